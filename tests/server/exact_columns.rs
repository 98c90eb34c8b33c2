//! Insights over properties with columns, whose values SDKs also send with other types: the column alone is read where
//! it has every value, and the JSON text too where it has not, in memory, in files, after a restart and a merge.

use serde_json::{Value, json};

use crate::harness::TestServer;

const QUERY: &str = "/api/projects/@current/query/";

/// A filter and whether it holds for the price and the browser of an event, both as they were sent.
type Case = (Value, fn(Option<&Value>, Option<&Value>) -> bool);

fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::String(text) => text.parse().ok(),
        other => other.as_f64(),
    }
}

fn text(value: Option<&Value>) -> Option<String> {
    value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

const CASES: usize = 9;

fn cases() -> [Case; CASES] {
    let of = |key: &str, operator: &str, value: Value| json!([{"key": key, "operator": operator, "value": value, "type": "event"}]);
    [
        (of("price", "gt", json!(5)), |price, _| number(price).is_some_and(|price| price > 5.0)),
        (of("price", "not_between", json!([4, 8])), |price, _| {
            price.is_none() || number(price).is_some_and(|price| !(4.0..=8.0).contains(&price))
        }),
        (of("price", "is_set", json!(null)), |price, _| price.is_some()),
        (of("price", "is_not_set", json!(null)), |price, _| price.is_none()),
        (of("price", "exact", json!("7")), |price, _| {
            text(price).is_some_and(|price| price == "7")
        }),
        (of("$browser", "icontains", json!("5")), |_, browser| {
            text(browser).is_some_and(|browser| browser.contains('5'))
        }),
        (of("$browser", "not_icontains", json!("chr")), |_, browser| {
            text(browser).is_none_or(|browser| !browser.to_lowercase().contains("chr"))
        }),
        (of("$browser", "is_not", json!("Chrome")), |_, browser| {
            text(browser).is_none_or(|browser| browser != "Chrome")
        }),
        (of("$browser", "regex", json!("^n?u")), |_, browser| {
            text(browser)
                .is_some_and(|browser| browser.starts_with("nu") || browser.starts_with('u'))
        }),
    ]
}

fn check(server: &TestServer, events: &[Value], round: &str) {
    let ask = |node: Value| {
        let answer = server.post(QUERY, &json!({"query": node, "refresh": "force_blocking"}));
        assert_eq!(answer.status, 200, "{answer}");
        answer.json()["results"].clone()
    };
    let trend = |math: &str| {
        json!({"kind": "TrendsQuery", "series": [{"event": "buy", "math": math, "math_property": "price"}],
               "dateRange": {"date_from": "all"}, "trendsFilter": {"display": "BoldNumber"}})
    };
    for (filters, holds) in cases() {
        let of = |event: &&Value| {
            let own = &event["properties"];
            holds(own.get("price"), own.get("$browser"))
        };
        let expected = events.iter().filter(of).count();
        let mut node = trend("total");
        node["properties"] = filters.clone();
        let found = ask(node);
        assert_eq!(found[0]["aggregated_value"], json!(expected), "{round}: {filters}");
    }
    let prices = events.iter().filter_map(|event| number(event["properties"].get("price")));
    let sum: f64 = prices.sum();
    assert_eq!(ask(trend("sum"))[0]["aggregated_value"].as_f64(), Some(sum), "{round}");
    let mut node = trend("total");
    node["breakdownFilter"] = json!({"breakdown": "$browser"});
    let browsers = ask(node);
    for line in browsers.as_array().expect("lines") {
        let value = line["breakdown_value"].as_str().expect("a text");
        let is_own = |event: &&Value| match event["properties"].get("$browser") {
            None | Some(Value::Null) => value == "$$_posthog_breakdown_null_$$",
            own => text(own).is_some_and(|own| own == value),
        };
        let expected = events.iter().filter(is_own).count();
        assert_eq!(line["aggregated_value"], json!(expected), "{round}: {value} of {browsers}");
    }
}

#[test]
fn columns_tell_all_where_nothing_else_was_sent() {
    let mut server = TestServer::start();
    let event = |number: i64, properties: Value| {
        let id = uuid::Uuid::from_u128(u128::try_from(number).expect("positive") + 1);
        json!({"event": "buy", "distinct_id": format!("d{number}"), "uuid": id.to_string(),
               "timestamp": "2026-01-05T12:00:00Z", "properties": properties})
    };
    let mut events = Vec::new();
    let batches = [
        vec![
            json!({"price": 7, "$browser": "Chrome"}),
            json!({"price": 4.5, "$browser": "Opera 5"}),
            json!({"$browser": "unknown"}),
            json!({"price": null, "$browser": null}),
            json!({}),
        ],
        vec![json!({"price": "7", "$browser": "Safari"}), json!({"price": 9})],
        vec![json!({"price": 1, "$browser": 5}), json!({"price": "free", "$browser": ["Chrome"]})],
    ];
    for (batch, round) in batches.into_iter().zip(["exact", "price as text", "browser as number"]) {
        let from = events.len();
        for properties in batch {
            let number = i64::try_from(events.len()).expect("few");
            events.push(event(number, properties));
        }
        assert_eq!(server.capture(&json!(events[from..])).status, 200);
        check(&server, &events, &format!("{round}, in memory"));
        let flushed = server.weir(&["flush"]).output().expect("runs");
        assert!(flushed.status.success(), "{flushed:?}");
        check(&server, &events, &format!("{round}, in files"));
        server.restart();
        check(&server, &events, &format!("{round}, after a restart"));
    }
}
