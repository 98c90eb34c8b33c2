//! Tests of the plan of sessions, over an in-memory table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, RecordBatch, StringViewArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::prelude::SessionContext;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{PROPERTIES, SESSION_ID, SessionsTable, data_type};
use weir_event::dictionary::{Kind, SESSIONS};
use weir_event::schema::events_schema;
use weir_storage::exact::ExactColumns;

/// An event: its session, its time in microseconds, its name, its distinct id and its properties.
type Event<'e> = (Option<&'e str>, i64, &'e str, &'e str, Value);

/// The `events` of a project with these rows, with all promoted columns null, so that properties are read from the JSON
/// text.
fn events(rows: &[Event<'_>]) -> Arc<dyn TableProvider> {
    let schema = events_schema();
    let texts = |of: &dyn Fn(&Event<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringViewArray>())
    };
    let column = |name: &str| match name {
        "session_id" => texts(&|row| row.0.map(str::to_owned)),
        "event" => texts(&|row| Some(row.2.to_owned())),
        "distinct_id" | "person_id" => texts(&|row| Some(row.3.to_owned())),
        "properties" => texts(&|row| Some(row.4.to_string())),
        "uuid" => texts(&|_| Some(String::new())),
        "timestamp" | "received_at" => {
            let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.1));
            Arc::new(times.with_timezone("UTC"))
        }
        "project_id" => Arc::new(arrow::array::Int64Array::from(vec![1; rows.len()])),
        _ => {
            let data_type = schema.field_with_name(name).unwrap().data_type();
            new_null_array(data_type, rows.len())
        }
    };
    let columns = schema.fields().iter().map(|field| column(field.name())).collect();
    // Several batches, so that partial aggregates are merged.
    let all = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let mut parts: Vec<_> = (0..rows.len()).map(|at| vec![all.slice(at, 1)]).collect();
    parts.push(Vec::new());
    Arc::new(MemTable::try_new(schema, parts).unwrap())
}

/// The columns of each session, as texts, ordered by session id.
fn sessions(rows: &[Event<'_>], columns: &[&str]) -> Vec<Vec<String>> {
    let context = SessionContext::new();
    let mut state = context.state();
    datafusion_functions_json::register_all(&mut state).unwrap();
    let context = SessionContext::new_with_state(state);
    let table = SessionsTable { events: events(rows), exact: ExactColumns::default() };
    context.register_table("sessions", Arc::new(table)).unwrap();
    let columns: Vec<String> = columns.iter().map(|name| format!("{name:?}")).collect();
    let sql = format!("SELECT {} FROM sessions ORDER BY session_id", columns.join(", "));
    let runtime = Runtime::new().unwrap();
    let batches =
        runtime.block_on(async { context.sql(&sql).await.unwrap().collect().await.unwrap() });
    let options = FormatOptions::default().with_null("-");
    let mut found = Vec::new();
    for batch in &batches {
        for at in 0..batch.num_rows() {
            let text = |column: &ArrayRef| {
                ArrayFormatter::try_new(column, &options).unwrap().value(at).to_string()
            };
            found.push(batch.columns().iter().map(text).collect());
        }
    }
    found
}

const SECOND: i64 = 1_000_000;

#[test]
fn a_session_is_entered_and_left_at_pages() {
    let page = |url: &str, source: &str| json!({"$current_url": url, "utm_source": source});
    let rows = [
        (Some("a"), 30 * SECOND, "$pageview", "x", page("https://a.example:8080/end?x#y", "late")),
        (Some("a"), 10 * SECOND, "$pageview", "y", json!({"$current_url": "https://b.example/in"})),
        (Some("a"), 35 * SECOND, "$autocapture", "z", json!({"utm_source": "click"})),
        (Some("a"), 5 * SECOND, "start", "y", json!({"utm_source": "before"})),
        (Some("b"), 5 * SECOND, "$pageview", "y", page("", "empty")),
        (Some("b"), 5 * SECOND, "$screen", "y", page("https://c.example", "c")),
        (None, SECOND, "$pageview", "y", page("https://d.example", "d")),
        (Some(""), SECOND, "$pageview", "y", page("https://e.example", "e")),
    ];
    let columns = [
        "session_id",
        "distinct_id",
        "$session_duration",
        "$entry_current_url",
        "$entry_pathname",
        "$end_current_url",
        "$end_pathname",
        "$end_hostname",
        "$exit_pathname",
        "$entry_utm_source",
        "$pageview_count",
        "$autocapture_count",
        "$screen_count",
        "$is_bounce",
    ];
    let found = sessions(&rows, &columns);
    let end = "https://a.example:8080/end?x#y";
    let expected = [
        vec![
            "a",
            "z",
            "30",
            "https://b.example/in",
            "/in",
            end,
            "/end",
            "a.example",
            "/end",
            "-",
            "2",
            "1",
            "0",
            "false",
        ],
        vec![
            "b",
            "y",
            "0",
            "https://c.example",
            "-",
            "https://c.example",
            "-",
            "c.example",
            "-",
            "c",
            "1",
            "0",
            "1",
            "true",
        ],
    ];
    assert_eq!(found, expected);
}

#[test]
fn texts_decide_between_events_of_one_time() {
    let page = |url: &str| json!({"$current_url": url});
    let mut rows = [
        (Some("a"), -SECOND, "$pageview", "x", page("https://a/m")),
        (Some("a"), -SECOND, "$pageview", "z", page("https://a/b")),
        (Some("a"), -SECOND, "$pageview", "y", page("https://a/z")),
    ];
    let columns = ["distinct_id", "$entry_pathname", "$end_pathname", "$start_timestamp"];
    for _ in 0..3 {
        rows.rotate_left(1);
        assert_eq!(sessions(&rows, &columns), [["z", "/b", "/z", "1969-12-31T23:59:59Z"]]);
    }
}

#[test]
fn seconds_are_counted_as_they_begin() {
    for (times, seconds) in [
        ([0, 999_999], "0"),
        ([900_000, 1_100_000], "1"),
        ([-100_000, 100_000], "1"),
        ([-1_900_000, -1_100_000], "0"),
        ([0, 86_400 * 365 * SECOND], "31536000"),
    ] {
        let rows = times.map(|time| (Some("a"), time, "e", "x", json!({})));
        assert_eq!(sessions(&rows, &["$session_duration"]), [[seconds]], "{times:?}");
    }
}

#[test]
fn bounces_are_short_and_of_one_page() {
    let of = |names: &[&'static str], seconds: i64| {
        let event = |(at, name): (i64, &&'static str)| {
            (Some("a"), at * seconds * SECOND, *name, "x", json!({}))
        };
        let rows: Vec<_> = (0..).zip(names).map(event).collect();
        sessions(&rows, &["$is_bounce"]).concat().concat()
    };
    for (names, seconds, expected) in [
        (&["$pageview", "e"][..], 9, "true"),
        (&["$pageview", "e"], 10, "false"),
        (&["$pageview", "$pageview"], 1, "false"),
        (&["$pageview", "$autocapture"], 1, "false"),
        (&["$screen"], 1, "-"),
    ] {
        assert_eq!(of(names, seconds), expected, "{names:?} {seconds}");
    }
}

#[test]
fn the_table_has_the_columns_of_its_plan() {
    let table = SessionsTable { events: events(&[]), exact: ExactColumns::ALL };
    let of_plan = table.plan().unwrap();
    let own = table.schema();
    let columns = |schema: &arrow::datatypes::Schema| -> Vec<_> {
        let fields = schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    assert_eq!(columns(of_plan.schema().as_arrow()), columns(&own));
    assert_eq!(own.fields().len(), PROPERTIES.len() + 3);
    let rows =
        [(Some("a"), 0, "$pageview", "x", json!({"$current_url": "https://a/b", "gad_source": 1}))];
    let all: Vec<&str> = PROPERTIES.iter().map(|(name, _)| *name).collect();
    let found = sessions(&rows, &all).concat();
    let epoch = "1970-01-01T00:00:00Z";
    let (url, none) = ("https://a/b", "-");
    let expected = [
        epoch, epoch, "0", "1", "0", "0", "true", url, "a", "/b", url, "a", "/b", url, "/b", none,
        none, none, none, none, none, none, "1", none, none,
    ];
    assert_eq!(found, expected);
}

/// Goal: the dictionary has the columns of the plan, with the types of session properties.
#[test]
fn sessions_have_the_columns_of_the_dictionary() {
    let ids = [SESSION_ID, "distinct_id", "person_id"].map(|name| (name, Kind::Text.arrow()));
    let properties = PROPERTIES.iter().map(|(name, kind)| (*name, data_type(*kind)));
    let expected: Vec<_> = ids.into_iter().chain(properties).collect();
    let schema = SESSIONS.sql_schema();
    let found = schema.fields().iter().map(|own| (own.name().as_str(), own.data_type().clone()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let table = SessionsTable { events: events(&[]), exact: ExactColumns::default() };
    let plan = table.plan().unwrap();
    for (own, planned) in schema.fields().iter().zip(plan.schema().fields()) {
        assert_eq!((own.name(), own.data_type()), (planned.name(), planned.data_type()));
    }
}
