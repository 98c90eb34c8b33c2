//! The page in Chromium: a journey with forms and keys; and every page as axe sees it in light, dark and forced colours,
//! narrow, at 200 %, by keyboard alone and without scripts. Texts of events, persons and flags are hostile.

use std::process::Command;

use serde_json::json;

use crate::harness::{KEY, TestServer};
use crate::sdk::drivers::of_kind;
use crate::sdk::{drivers, tools};

const HOSTILE: &str = "<script>window.__hit=1</script>\"><img src=x onerror=window.__hit=1>\u{202e} \
                       aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Pages to look at; those with an id are about the first thing that was made.
const PAGES: [&str; 41] = [
    "home",
    "activity/live",
    "activity/explore",
    "insights",
    "insights/trends?a=seen&by1.key=plan",
    "insights/trends?a=*&show=table",
    "insights/trends?a=seen&by1.key=plan&show=pie",
    "insights/trends/persons?a=seen&point.series=0",
    "insights/funnel?a=seen&b=bought&not1=nothing",
    "insights/funnel/persons?a=seen&b=bought&point.step=1",
    "insights/retention?a=seen",
    "insights/paths",
    "insights/lifecycle?a=seen",
    "insights/stickiness?a=seen",
    "dashboard",
    "dashboard/1",
    "dashboard/1/edit",
    "persons",
    "person/p1",
    "person/p1?flags_of=p1",
    "groups",
    "cohorts",
    "cohorts/new",
    "cohorts/1",
    "cohorts/1/edit",
    "feature_flags",
    "feature_flags/new",
    "feature_flags/1",
    "feature_flags/1/edit",
    "early_access_features",
    "early_access_features/new",
    "data-management/events",
    "data-management/properties",
    "data-management/properties?type=person",
    "data-management/deletions",
    "sql?q=SELECT+event%2C+properties+FROM+events",
    "sql?q=SELECT+event%2C+count(*)+AS+n+FROM+events+GROUP+BY+event&chart=bars",
    "health",
    "settings",
    "onboarding",
    "/login",
];

/// Pages of things whose ids are known once they are there.
fn pages_with_ids(server: &TestServer) -> Vec<String> {
    let id = |path: &str| -> String {
        let found = server.get(&format!("/api/projects/1/{path}")).json();
        found["results"][0]["id"].as_str().expect("an id").to_owned()
    };
    let key: String = HOSTILE.bytes().map(|byte| format!("%{byte:02X}")).collect();
    vec![
        format!("events/{}", id("events/?limit=1")),
        format!("groups/0/{key}"),
        format!("data-management/events/{}", id("event_definitions/?search=seen")),
        format!("data-management/properties/{}", id("property_definitions/?search=plan")),
        format!("early_access_features/{}", id("early_access_feature/")),
    ]
}

fn fill(server: &TestServer) {
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let event = |at: i64| {
        let name = ["seen", "seen", "bought", HOSTILE][usize::try_from(at % 4).unwrap_or(0)];
        json!({
            "event": name, "distinct_id": format!("p{}", at % 7),
            "timestamp": (now - chrono::TimeDelta::hours(at * 3)).to_rfc3339(),
            "properties": {"plan": HOSTILE, "$current_url": HOSTILE, "$set": {"name": HOSTILE, "plan": "pro"},
                "$groups": {"company": HOSTILE}},
        })
    };
    server.capture(&(0..60).map(event).collect());
    server.capture(&json!([{"event": "$groupidentify", "distinct_id": "p1", "properties": {
        "$group_type": "company", "$group_key": HOSTILE, "$group_set": {"name": HOSTILE}}}]));
    let filter = json!({"key": HOSTILE, "value": [HOSTILE], "operator": "exact", "type": "person"});
    let rule =
        json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [filter]}]}});
    for (path, body) in [
        (
            "dashboards/",
            json!({"name": HOSTILE, "description": HOSTILE, "tiles": [{"text": {"body": HOSTILE}}],
                "filters": {"properties": [filter]}}),
        ),
        (
            "insights/",
            json!({"name": HOSTILE, "dashboards": [1], "query": {"kind": "TrendsQuery",
                "series": [{"kind": "EventsNode", "event": HOSTILE}]}}),
        ),
        ("cohorts/", json!({"name": HOSTILE, "description": HOSTILE, "filters": rule})),
        (
            "feature_flags/",
            json!({"key": "first", "name": HOSTILE, "filters": {
                "groups": [{"properties": [filter], "rollout_percentage": 50}],
                "multivariate": {"variants": [{"key": "blue", "name": HOSTILE, "rollout_percentage": 100}]},
            }}),
        ),
        (
            "early_access_feature/",
            json!({"name": HOSTILE, "description": HOSTILE, "stage": "beta"}),
        ),
    ] {
        server.post(&format!("/api/projects/1/{path}"), &body).created();
    }
}

#[test]
fn pages_work_in_a_browser_and_are_accessible() {
    let tools = tools();
    let server = TestServer::start();
    fill(&server);
    let mut command = Command::new(tools.join("nodejs/bin/node"));
    command.arg(drivers::source("pages.mjs"));
    command.args([tools.join("posthog-js/node_modules"), tools.join("axe/node_modules")]);
    let with_ids = pages_with_ids(&server);
    command.args([server.url().as_str(), KEY]).args(PAGES).args(&with_ids);
    let said = drivers::drive("pages.mjs", command);
    let steps: Vec<&str> =
        of_kind(&said, "step").filter_map(|step| step["what"].as_str()).collect();
    assert_eq!(
        steps,
        ["sign in", "reach", "flag", "dashboard", "shared", "keys", "without scripts"]
    );
    for kind in ["violation", "overflow", "lost", "dead", "complaint", "hit"] {
        let found: Vec<String> = of_kind(&said, kind).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{kind}: {}", found.join("\n"));
    }
    let looks = of_kind(&said, "seen").next().and_then(|seen| seen["looks"].as_u64());
    assert_eq!(looks, Some(3 * ((PAGES.len() + with_ids.len()) as u64 + 2)));
}

#[test]
fn the_box_of_sql_completes_and_remembers() {
    let tools = tools();
    let server = TestServer::start();
    server.capture(&json!([{"event": "it's <b>", "distinct_id": "a",
        "properties": {"plan": "pro", "$set": {"odd 'name'": 1}}}]));
    let mut command = Command::new(tools.join("nodejs/bin/node"));
    command.arg(drivers::source("sql.mjs")).arg(tools.join("posthog-js/node_modules"));
    command.args([server.url().as_str(), KEY]);
    let said = drivers::drive_without_complaint("sql.mjs", command);
    let steps: Vec<&str> =
        of_kind(&said, "step").filter_map(|step| step["what"].as_str()).collect();
    let expected = [
        "functions",
        "columns",
        "properties",
        "events",
        "text",
        "lines",
        "rows",
        "history",
        "again",
        "forgotten",
    ];
    assert_eq!(steps, expected);
}
