//! Forms round-trip the query, and results become charts with links to the persons behind them.

use maud::Markup;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};

use crate::frame::Theme;
use crate::insight::form::fields::Suggestions;
use crate::insight::form::form;
use crate::insight::links::Links;
use crate::insight::persons::{Persons, list};
use crate::insight::result::shown;
use crate::insight::shared::document;
use crate::state::actor::ActorRow;
use crate::state::insight::{Kind, Question};
use crate::state::node::node;
use crate::state::point::Point;
use weir_api::insights::AnswerTo;
use weir_api::shared::Shared;
use weir_api::sharing::SharingSettings;

const HOSTILE: &str = "\"><script>alert(1)</script>";

/// The fields that a browser sends for a form that the user did not change.
pub(crate) fn sent(markup: &Markup) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    let text = |own: &str| {
        own.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        rest.split_once('"').map(|(value, _)| text(value))
    };
    let mut select = None;
    for (tag, content) in markup.0.split('<').filter_map(|rest| rest.split_once('>')) {
        let (element, is) = (tag.split(' ').next().unwrap_or(""), |word: &str| {
            tag.split(' ').any(|own| own == word)
        });
        match element {
            "input" if tag.contains("type=\"checkbox\"") && !is("checked") => {}
            "input" => {
                let value = attribute(tag, "value").unwrap_or_default();
                pairs.append_pair(&attribute(tag, "name").unwrap(), &value);
            }
            "textarea" => _ = pairs.append_pair(&attribute(tag, "name").unwrap(), &text(content)),
            "select" => select = attribute(tag, "name"),
            "option" if is("selected") => {
                if let (Some(name), Some(value)) = (&select, attribute(tag, "value")) {
                    pairs.append_pair(name, &value);
                }
            }
            _ => {}
        }
    }
    pairs.finish()
}

fn query_of(insight: &serde_json::Map<String, Value>) -> Value {
    insight["query"].clone()
}

#[test]
fn forms_send_what_was_asked() {
    let known = Suggestions { groups: vec![(1, "company".to_owned())], ..Suggestions::default() };
    for (kind, query) in [
        (Kind::Trends, ""),
        (
            Kind::Trends,
            "a=x+y&a.name=n&a.math=sum&a.property=p&a.f1.of=person&a.f1.key=k&a.f1.op=gt&a.f1.value=1&b=*&\
             from=-30d&to=-1d&interval=week&f1.key=k&f1.value=1&f1.value=2&without_tests=1&group=1&by1.of=group1&\
             by1.key=z&by.limit=5&by.hide_other=1&compare=-2w&show=area&formula=A%2FB&smoothing=7",
        ),
        (Kind::Trends, "a=%22%3E%3Cscript%3E&f1.of=cohort&f1.key=7&f1.op=not_in"),
        (
            Kind::Funnel,
            "a=x&b=y&by1.key=k&attribution=last_touch&show=trends&order=strict&window=3&window.unit=hour",
        ),
        (
            Kind::Retention,
            "a=x&b=y&interval=month&show=count&type=first_time&intervals=9&cumulative=1&occurrences=2",
        ),
        (
            Kind::Paths,
            "include=%24screen&start=%2Fa&end=%2Fb&steps=3&edges=4&least=2&pattern=%2Fo%2F*&exclude=c&exclude=d",
        ),
        (Kind::Lifecycle, "a=x&only=new&only=dormant"),
        (
            Kind::Stickiness,
            "a=x&compare=previous&interval.count=2&cumulative=1&criteria=lte&criteria.value=4",
        ),
    ] {
        let question = Question::parse(kind, query).unwrap();
        let sent = sent(&form(1, &question, &known));
        assert_eq!(Question::parse(kind, &sent).as_ref(), Ok(&question), "{sent}");
    }
}

/// The chart of a result; asserts that no text of the result becomes markup.
fn drawn(kind: Kind, query: &str, results: &Value) -> String {
    let question = Question::parse(kind, query).unwrap();
    let links = Links::new(1, &question);
    let answer = AnswerTo(&node(&question)).deserialize(results).unwrap();
    assert_eq!(serde_json::to_value(&answer).unwrap(), *results);
    let shown = shown(&answer, &links);
    assert!(!shown.chart.0.contains("<script"), "{}", shown.chart.0);
    assert!(shown.table.rows.iter().all(|row| row.len() == shown.table.head.len()));
    shown.chart.0
}

#[test]
fn marks_lead_to_who_is_behind_them() {
    let days = json!(["2026-11-01", "2026-11-02"]);
    let entity = json!({"custom_name": null, "id": "x", "math": "total", "math_group_type_index": null,
                        "math_hogql": null, "math_property": null, "name": "x", "order": 0,
                        "properties": [], "type": "events"});
    let trend = json!([
        {"action": entity, "label": HOSTILE, "order": 0, "count": 3, "data": [3, 0], "days": days,
         "labels": ["1", "2"], "breakdown_value": ["Chrome", "$$_posthog_breakdown_null_$$"],
         "compare": true, "compare_label": "previous"},
    ]);
    let query = "a=x&by1.key=b&by2.key=c";
    let text = drawn(Kind::Trends, query, &trend);
    let expected = "href=\"/project/1/insights/trends/persons?a=x&amp;by1.key=b&amp;by2.key=c&amp;point.day=2026-11-01&amp;\
                    point.value=Chrome&amp;point.value=%24%24_posthog_breakdown_null_%24%24&amp;point.previous=1\"";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("Chrome · (none)") && text.contains("1 Nov"), "{text}");
    assert!(!text.contains("point.day=2026-11-02"), "nobody is behind a zero: {text}");

    let step = |order: usize, custom_name: Option<&str>, count: u64| {
        json!({"action_id": "x", "average_conversion_time": null, "count": count, "custom_name": custom_name,
               "median_conversion_time": 2.5, "name": HOSTILE, "order": order, "people": [], "type": "events"})
    };
    let steps = json!([step(0, None, 9), step(1, Some("second"), 4)]);
    let text = drawn(Kind::Funnel, "a=x&b=y", &steps);
    assert!(text.contains("point.step=2\"") && text.contains("point.step=-2\""), "{text}");
    assert!(text.contains("5 left") && text.contains("44.44"), "{text}");

    let edges = json!([{"source": "1_/a_b", "target": format!("2_{HOSTILE}"), "value": 3,
                        "average_conversion_time": 61000.0}]);
    let text = drawn(Kind::Paths, "", &edges);
    assert!(text.contains("point.start=1_%2Fa_b"), "{text}");

    let rows = json!([
        {"date": "2026-11-01T00:00:00+00:00", "label": "Day 0",
         "values": [{"count": 4, "label": "Day 0"}, {"count": 1, "label": "Day 1"}]},
        {"date": "2026-11-02T00:00:00+00:00", "label": "Day 1",
         "values": [{"count": 2, "label": "Day 0"}, {"count": 0, "label": "Day 1"}]},
    ]);
    let text = drawn(Kind::Retention, "", &rows);
    assert!(text.contains("point.row=1\"") && text.contains("25\u{202f}%"), "{text}");
    assert_eq!(text.matches("heat h0").count(), 0, "what has not begun has no shade: {text}");

    let statuses = json!([{"action": entity, "status": "dormant", "count": -2, "data": [-2, 0], "days": days,
                           "label": "x - dormant", "labels": ["1", "2"]}]);
    let text = drawn(Kind::Lifecycle, "a=x", &statuses);
    assert!(text.contains("point.status=dormant") && text.contains("s3"), "{text}");
}

#[test]
fn answers_of_every_form_are_drawn() {
    let rates = json!([{"count": 1, "data": [33.0], "days": ["2026-11-01"], "labels": ["1"]}]);
    let times = json!({"average_conversion_time": null, "bins": [[0.0, 2], [60.0, 0]]});
    for (kind, query, results) in [
        (Kind::Funnel, "show=trends", rates),
        (Kind::Funnel, "show=time_to_convert", times),
        (Kind::Funnel, "", json!([])),
        (Kind::Funnel, "show=trends", json!([])),
        (Kind::Retention, "", json!([])),
        (Kind::Paths, "", json!([])),
        (Kind::Trends, "show=number", json!([])),
        (Kind::Trends, "show=table", json!([])),
    ] {
        drawn(kind, query, &results);
    }
    for kind in Kind::ALL {
        let query = json!({"kind": kind.query()});
        for results in [json!(null), json!([1]), json!([{"label": 1}]), json!({"bins": [[1]]})] {
            assert!(AnswerTo(&query).deserialize(&results).is_err(), "{results}");
        }
    }
}

#[test]
fn persons_are_named_and_linked() {
    let question = Question::parse(Kind::Trends, "a=x").unwrap();
    let point = Point { day: Some("2026-11-01".to_owned()), ..Point::default() };
    let people = [
        json!({"uuid": "u", "distinct_ids": ["a/b?", HOSTILE], "properties": {"email": HOSTILE},
               "created_at": "2026-11-01T10:00:00.123Z", "value_at_data_point": 2}),
        json!({"uuid": "gone"}),
    ]
    .map(|person| ActorRow::of(&person));
    let persons = Persons {
        project: 1,
        zone: chrono_tz::Tz::UTC,
        server: "http://x",
        question: &question,
        point: &point,
        people: &people,
        offset: 100,
        next: Some(200),
        can_save: true,
    };
    let text = list(&persons).0;
    assert!(!text.contains("<script"), "{text}");
    assert!(text.contains("/project/1/person/a%2Fb%3F"), "{text}");
    assert!(text.contains("offset=200") && text.contains("Persons 101 to 102"), "{text}");
    assert!(text.contains("gone"), "{text}");
}

#[test]
fn links_of_everybody_lead_nowhere() {
    let query = json!({"kind": "TrendsQuery", "series": [{"event": HOSTILE}]});
    let result = json!([{"label": "a", "days": ["2026-11-01"], "labels": ["1"], "data": [3], "count": 3, "action": null}]);
    let insight = json!({"name": HOSTILE, "description": HOSTILE, "query": query, "result": result, "short_id": "x"});
    let place = |x: i64, y: i64, w: i64| json!({"sm": {"x": x, "y": y, "w": w, "h": 5}});
    let board = json!({"name": HOSTILE, "tiles": [
        {"id": 1, "text": {"body": "second"}, "layouts": place(0, 5, 12)},
        {"id": 2, "insight": insight, "layouts": place(6, 0, 6)},
        {"id": 3, "text": {"body": "last"}, "layouts": {}},
        {"id": 4, "text": {"body": "first"}, "layouts": place(0, 0, 6)},
        {"id": 5, "insight": insight, "error": {"type": "x", "message": "There is no result."}, "layouts": place(0, 10, 6)},
    ]});
    let board = Shared::of(json!({"dashboard": board}), &query_of);
    let shown = document(Theme::Light, &SharingSettings::default(), &board).0;
    let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text}: {shown}"));
    assert!(place(">first<") < place("<svg") && place("<svg") < place(">second<"), "{shown}");
    assert!(
        place(">second<") < place("There is no result")
            && place("There is no result") < place(">last<")
    );
    assert!(shown.contains("class=\"tile wide\""), "{shown}");
    assert!(
        !shown.contains("<script>") && !shown.contains("/project/") && !shown.contains("<form"),
        "{shown}"
    );
    let settings = SharingSettings {
        no_header: Some(true),
        whitelabel: Some(true),
        ..SharingSettings::default()
    };
    let insight = Shared::of(json!({"insight": insight}), &query_of);
    let bare = document(Theme::Light, &settings, &insight).0;
    assert!(
        !bare.contains("<h1>") && !bare.contains("Shown by Weir") && bare.contains("<svg"),
        "{bare}"
    );
}
