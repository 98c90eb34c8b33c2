//! Tests of operations on times with a zone. Expected values follow from the tz database.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::{Value, json};

use super::{LocalTimes, answer, table};
use crate::output::rows::json_rows;
use weir_event::time::parse_rfc3339;

const BERLIN: &str = "Europe/Berlin";
const NIGHT: &str = "2026-06-01T22:30:00Z";

fn context(zone: &str, at: &str) -> SessionContext {
    let mut config = SessionConfig::new();
    config.options_mut().execution.time_zone = Some(zone.to_owned());
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rule(Arc::new(LocalTimes))
        .build();
    let context = SessionContext::new_with_state(state);
    let times = TimestampMicrosecondArray::from(vec![parse_rfc3339(at).unwrap().0]);
    let times: ArrayRef = Arc::new(times.with_timezone("UTC"));
    let rows = RecordBatch::try_from_iter([("at", times)]).unwrap();
    let stored = MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap();
    context.register_table("t", table("t", Arc::new(stored), zone).unwrap()).unwrap();
    context
}

async fn value(zone: &str, at: &str, expression: &str) -> Result<Value, String> {
    let context = context(zone, at);
    let sql = format!("SELECT {expression} AS v FROM t");
    let plan = context.state().create_logical_plan(&sql).await.map_err(|why| why.to_string())?;
    let plan = answer(plan, zone).unwrap();
    let found = context.execute_logical_plan(plan).await.unwrap().collect().await;
    let found = json_rows(&found.map_err(|why| why.to_string())?).unwrap();
    Ok(found[0]["v"].clone())
}

async fn assert_value(zone: &str, at: &str, expression: &str, expected: &Value) {
    let found = value(zone, at, expression).await;
    assert_eq!(found.as_ref(), Ok(expected), "{zone} {at}: {expression}");
}

#[tokio::test]
async fn clocks_decide() {
    for (zone, at, expression, expected) in [
        (BERLIN, NIGHT, "at", json!(NIGHT)),
        (BERLIN, NIGHT, "[at]", json!([NIGHT])),
        (BERLIN, NIGHT, "at = '2026-06-02 00:30:00'", json!(true)),
        (BERLIN, NIGHT, "at = '2026-06-02T00:30:00+02:00'", json!(true)),
        (BERLIN, NIGHT, "at = '2026-06-01T22:30:00Z'", json!(true)),
        (BERLIN, NIGHT, "at >= DATE '2026-06-02'", json!(true)),
        (BERLIN, NIGHT, "DATE '2026-06-02' > at", json!(false)),
        (BERLIN, NIGHT, "at BETWEEN DATE '2026-06-02' AND DATE '2026-06-03'", json!(true)),
        (BERLIN, NIGHT, "at IN (DATE '2026-06-02', DATE '2026-06-03')", json!(false)),
        (BERLIN, NIGHT, "date_trunc('day', at) IN (DATE '2026-06-02')", json!(true)),
        (BERLIN, NIGHT, "at = TIMESTAMP '2026-06-02 00:30:00'", json!(true)),
        (BERLIN, NIGHT, "CAST(at AS TIMESTAMP)", json!("2026-06-02T00:30:00")),
        (BERLIN, NIGHT, "CAST(at AS DATE)", json!("2026-06-02")),
        (BERLIN, NIGHT, "CAST(at AS VARCHAR)", json!("2026-06-02T00:30:00+02:00")),
        (BERLIN, NIGHT, "to_local_time(at) = TIMESTAMP '2026-06-02 00:30:00'", json!(true)),
        (BERLIN, NIGHT, "TRY_CAST('soon' AS TIMESTAMP WITH TIME ZONE) IS NULL", json!(true)),
        (BERLIN, NIGHT, "date_part('hour', at)", json!(0)),
        (BERLIN, NIGHT, "date_bin(INTERVAL '1 day', at)", json!("2026-06-02T00:00:00+02:00")),
        (BERLIN, NIGHT, "at = to_timestamp(1780353000)", json!(true)),
        (BERLIN, NIGHT, "at = to_timestamp('2026-06-02 00:30:00')", json!(true)),
        (BERLIN, NIGHT, "at = to_timestamp_millis(1780353000000)", json!(true)),
        // In Havana, 00:00 is skipped, and taken as 01:00.
        ("America/Havana", "2026-03-08T05:00:00Z", "at = '2026-03-08'", json!(true)),
        ("America/Havana", "2026-03-08T05:00:00Z", "at = DATE '2026-03-08'", json!(true)),
        ("America/Havana", "2026-03-08T04:59:59Z", "at < '2026-03-08'", json!(true)),
        // And here it is repeated.
        ("America/Havana", "2026-11-01T04:00:00Z", "at = '2026-11-01'", json!(true)),
        (BERLIN, "2026-03-29T01:30:00Z", "at = '2026-03-29 02:30:00'", json!(true)),
        (BERLIN, "2026-10-25T00:30:00Z", "at = '2026-10-25 02:30:00'", json!(true)),
        (BERLIN, "2026-10-25T01:30:00Z", "at = '2026-10-25 02:30:00'", json!(false)),
    ] {
        assert_value(zone, at, expression, &expected).await;
    }
    for expression in ["at > 'soon'", "CAST('2026-13-01' AS TIMESTAMP WITH TIME ZONE)"] {
        assert!(value(BERLIN, NIGHT, expression).await.is_err(), "{expression}");
    }
}

#[tokio::test]
async fn sums_and_bins_follow_the_clocks() {
    for (zone, at, expression, expected) in [
        (BERLIN, "2026-03-28T01:30:00Z", "at + INTERVAL '1 day'", json!("2026-03-29T01:30:00Z")),
        (BERLIN, "2026-03-30T00:30:00Z", "at - INTERVAL '1 day'", json!("2026-03-29T01:30:00Z")),
        (BERLIN, "2026-03-30T00:30:00Z", "INTERVAL '1 day' + at", json!("2026-03-31T00:30:00Z")),
        (BERLIN, "2026-10-26T01:30:00Z", "at - INTERVAL '1 day'", json!("2026-10-25T01:30:00Z")),
        (BERLIN, "2026-10-24T00:30:00Z", "at + INTERVAL '1 day'", json!("2026-10-25T00:30:00Z")),
        (BERLIN, "2026-10-25T00:30:00Z", "at + INTERVAL '1 hour'", json!("2026-10-25T01:30:00Z")),
        (BERLIN, "2026-01-31T12:00:00Z", "at + INTERVAL '1 month'", json!("2026-02-28T12:00:00Z")),
        (
            BERLIN,
            "2026-03-31T12:00:00Z",
            "at - INTERVAL '1 month 1 day 1 hour'",
            json!("2026-02-27T12:00:00Z"),
        ),
        (
            BERLIN,
            "2026-10-25T01:40:00Z",
            "date_bin(INTERVAL '15 minutes', at)",
            json!("2026-10-25T02:30:00+01:00"),
        ),
        (
            "Asia/Kathmandu",
            "2026-06-01T00:10:00Z",
            "date_bin(INTERVAL '30 minutes', at)",
            json!("2026-06-01T05:30:00+05:45"),
        ),
        (
            "America/St_Johns",
            "2026-06-01T12:50:00Z",
            "date_bin(INTERVAL '15 minutes', at)",
            json!("2026-06-01T10:15:00-02:30"),
        ),
        ("UTC", NIGHT, "at = '2026-06-01 22:30:00'", json!(true)),
        ("UTC", NIGHT, "at >= DATE '2026-06-02'", json!(false)),
        ("UTC", NIGHT, "CAST(at AS VARCHAR)", json!(NIGHT)),
        ("UTC", NIGHT, "at AT TIME ZONE 'Asia/Kolkata' = '2026-06-02 04:00:00'", json!(true)),
    ] {
        assert_value(zone, at, expression, &expected).await;
    }
}

/// Goal: several intervals are added one after another.
#[tokio::test]
async fn intervals_are_added_in_their_order() {
    for (at, expression, expected) in [
        (
            "2026-03-28T01:30:00Z",
            "at + INTERVAL '1 day' - INTERVAL '1 hour' + INTERVAL '2 hours'",
            json!("2026-03-29T02:30:00Z"),
        ),
        (
            "2026-01-31T12:00:00Z",
            "at + INTERVAL '1 month' - INTERVAL '1 month' + CAST(NULL AS INTERVAL)",
            json!(null),
        ),
        (
            "2026-01-31T12:00:00Z",
            "INTERVAL '1 month' + at - INTERVAL '1 month'",
            json!("2026-01-28T12:00:00Z"),
        ),
    ] {
        let found = value(BERLIN, at, expression).await;
        assert_eq!(found.as_ref(), Ok(&expected), "{at}: {expression}");
    }
}

/// Goal: a comparison reaches the table as one on stored values, by which files are pruned.
#[tokio::test]
async fn comparisons_are_of_what_is_stored() {
    for condition in [
        "at >= '2026-06-02'",
        "at >= DATE '2026-06-02'",
        "DATE '2026-06-03' >= at",
        "at >= TIMESTAMP '2026-06-02 00:00:00' - INTERVAL '1 day'",
        "at = date_trunc('day', now())",
    ] {
        let context = context(BERLIN, NIGHT);
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let state = context.state();
        let plan = state.create_logical_plan(&sql).await.unwrap();
        let shown = state.optimize(&plan).unwrap().to_string();
        let filter = shown.lines().find(|line| line.trim().starts_with("Filter:"));
        let filter = filter.unwrap_or_else(|| panic!("{shown}"));
        assert!(filter.contains("Some(\"UTC\")"), "{condition}: {shown}");
        assert!(
            !filter.contains("CAST(") && !filter.contains("local_time"),
            "{condition}: {shown}"
        );
    }
}
