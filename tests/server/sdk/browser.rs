//! posthog-js in Chromium, on a page of another origin, against a real server.
//!
//! The driver prints each event just before the SDK sends it. The stored event must equal it,
//! except for the server's documented changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer};
use crate::sdk::drivers::{Said, Sdk, of_kind};
use crate::sdk::stored::str_of;
use crate::sdk::{create_flags, drivers, stored, tools};

/// Pages that contain the SDK, as bundlers include it.
const WITH_SDK: [(&str, Sdk); 2] =
    [("browser-module", Sdk::Browser("module")), ("browser-plain", Sdk::Browser("plain"))];

/// Pages that load the SDK from this server.
const WITHOUT_SDK: [(&str, Sdk); 2] =
    [("browser-snippet", Sdk::Browser("snippet")), ("browser-array", Sdk::Browser("array"))];

/// Requests of pages to this server.
const REQUESTS: [(&str, &str); 6] = [
    ("GET", "/array/<token>/config.js"),
    ("GET", "/api/early_access_features/"),
    ("GET", "/api/surveys/"),
    ("POST", "/e/"),
    ("POST", "/i/v0/e/"),
    ("POST", "/flags/"),
];

/// Additional requests of pages that load the SDK from this server.
const REQUESTS_FOR_SDK: [(&str, &str); 2] =
    [("GET", "/array/<token>/array.js"), ("GET", "/static/array.js")];

/// Events that every browser sends, automatically or by a call, at least once each.
const EVENTS: [&str; 9] = [
    "$pageview",
    "$pageleave",
    "$autocapture",
    "$identify",
    "$set",
    "$create_alias",
    "$groupidentify",
    "$feature_flag_called",
    "$exception",
];

#[test]
fn a_browser_with_the_sdk_is_understood() {
    let tools = tools();
    let server = TestServer::start();
    let said = check(&tools, &server, &WITH_SDK);
    check_requests(&said, &REQUESTS);
}

#[test]
fn a_browser_gets_the_sdk_and_is_understood() {
    let tools = tools();
    let scripts = tools.join("posthog-js/node_modules/posthog-js/dist");
    let server = TestServer::start_with(&[("WEIR_STATIC_DIR", &scripts.display().to_string())]);
    let said = check(&tools, &server, &WITHOUT_SDK);
    check_requests(&said, &[&REQUESTS[..], &REQUESTS_FOR_SDK].concat());
}

fn check(tools: &Path, server: &TestServer, browsers: &[(&'static str, Sdk)]) -> Vec<Said> {
    create_flags(server);
    let said = drivers::run(tools, browsers, &server.url(), (TOKEN, KEY));
    let rows = stored::sql(server, stored::ALL_EVENTS);
    for (who, said) in &said {
        check_sent(who, said, &rows);
        check_told(who, said, &rows);
        stored::check_persons(server, said, &rows);
        stored::check_groups(server, said);
        check_flags(who, said);
    }
    let sent: usize = said.iter().map(|(_, said)| of_kind(said, "sent").count()).sum();
    // One is the flags' group.
    assert_eq!(rows.len(), sent + 1, "nothing is stored that nobody sent");
    said
}

/// The stored events equal the sent ones, property by property.
fn check_sent(who: &str, said: &[Value], rows: &[Value]) {
    let by_uuid: BTreeMap<&str, &Value> =
        rows.iter().map(|row| (str_of(row, "uuid"), row)).collect();
    for sent in of_kind(said, "sent") {
        let row = by_uuid.get(str_of(sent, "uuid"));
        let row = row.unwrap_or_else(|| panic!("{who}: not stored: {sent}"));
        let found: Value = serde_json::from_str(str_of(row, "properties")).expect("JSON");
        // All of an event is told here, so nothing is left for the SDK to add.
        stored::check_event("", &whole(sent, row), (row, &found))
            .unwrap_or_else(|problem| panic!("{who}: {problem}\n{sent}\n{row}"));
        assert_eq!(row["ip"], "127.0.0.1", "{row}");
    }
    let names: BTreeSet<&str> = of_kind(said, "sent").map(|sent| str_of(sent, "event")).collect();
    for event in EVENTS {
        assert!(names.contains(event), "{who} sent no {event}");
    }
}

/// The event in the form of a call: members at its top level are part of its properties, where the
/// top level takes precedence.
fn whole(sent: &Value, row: &Value) -> Value {
    let mut properties = sent["properties"].clone();
    for (name, top) in sent["top"].as_object().into_iter().flatten() {
        match (&mut properties[name], top) {
            (Value::Object(below), Value::Object(top)) => below.extend(top.clone()),
            (below, top) => *below = top.clone(),
        }
    }
    let groups = &properties["$groups"];
    let group = groups.get("company").cloned().unwrap_or(Value::Null);
    let personless = properties["$process_person_profile"] == false;
    json!({
        "event": sent["event"],
        "distinct_id": properties["distinct_id"],
        "timestamp": sent["timestamp"],
        // Whoever has no person has no groups.
        "group_0": if personless { Value::Null } else { group },
        "properties": properties,
        "uuid": row["uuid"],
    })
}

/// The SDK sent the events of the calls.
fn check_told(who: &str, said: &[Value], rows: &[Value]) {
    let by_uuid: BTreeMap<&str, &Value> =
        rows.iter().map(|row| (str_of(row, "uuid"), row)).collect();
    assert!(of_kind(said, "event").next().is_some(), "{who} was told nothing");
    for told in of_kind(said, "event") {
        let row = by_uuid.get(str_of(told, "uuid"));
        let row = row.unwrap_or_else(|| panic!("{who}: not stored: {told}"));
        assert_eq!(told["event"], row["event"], "{row}");
        assert_eq!(told["distinct_id"], row["distinct_id"], "{row}");
        let found: Value = serde_json::from_str(str_of(row, "properties")).expect("JSON");
        for (name, given) in told["properties"].as_object().into_iter().flatten() {
            assert!(stored::is_same(given, &found[name]), "{who}: {name} of {row}");
        }
    }
    let click = of_kind(said, "sent").find(|sent| sent["event"] == "$autocapture");
    let row = by_uuid[str_of(click.expect("a click"), "uuid")];
    let chain = str_of(row, "elements_chain");
    for part in ["button.big.btn", r#"attr__data-id="a \"quoted\" one""#, ";form"] {
        assert!(chain.contains(part), "{part} in {chain}");
    }
}

/// The flags that the page received, in the order of its requests.
fn check_flags(who: &str, said: &[Value]) {
    let answers: Vec<(&str, &Value, &Value)> = of_kind(said, "flag")
        .map(|flag| (str_of(flag, "key"), &flag["value"], &flag["payload"]))
        .collect();
    let (yes, no, none) = (&json!(true), &json!(false), &Value::Null);
    let (blue, hex, on) = (&json!("blue"), &json!({"hex": "#00f"}), &json!({"on": 1}));
    let expected = [
        ("everyone", yes, none),
        ("nobody", no, none),
        ("colour", blue, hex),
        ("by-email", no, none),
        ("switch-<who>", yes, on),
        ("reloaded-<who>", no, none),
        // Once the person is known.
        ("by-email", yes, none),
        ("by-group", yes, none),
        // Once switched off, which takes it out of the answer, and on again.
        ("switch-<who>", none, none),
        ("switch-<who>", yes, on),
        // After the page was loaded again, and of somebody new.
        ("by-email", yes, none),
        // Which everybody has since, by the management API.
        ("reloaded-<who>", yes, none),
        ("by-email", no, none),
    ];
    assert_eq!(answers, expected, "{who}");
}

/// Together the pages requested `expected` and nothing else, and got responses.
fn check_requests(said: &[Said], expected: &[(&str, &str)]) {
    let mut made = BTreeSet::new();
    for (who, said) in said {
        for request in of_kind(said, "request") {
            assert_eq!(request["status"], 200, "{who}: {request}");
            made.insert((str_of(request, "method"), str_of(request, "path")));
        }
        let beacons = of_kind(said, "beacons").next().expect("a number of beacons");
        assert!(beacons["count"].as_u64() >= Some(1), "{who}: {beacons}");
    }
    assert_eq!(made, expected.iter().copied().collect());
}
