//! Cohorts in the management API and in flags. Formats and texts are those of PostHog's API.

use serde_json::{Value, json};

use crate::harness::{TOKEN, TestServer, patiently};

const COHORTS: &str = "/api/projects/1/cohorts/";
const FLAGS: &str = "/api/projects/1/feature_flags/";

fn plan(value: &str) -> Value {
    json!({"key": "plan", "type": "person", "value": [value], "operator": "exact"})
}

fn rule(kind: &str, values: Value) -> Value {
    json!({"properties": {"type": kind, "values": values}})
}

fn flag_on(cohort: &Value, operator: &str) -> Value {
    let filter = json!({
        "key": "id", "type": "cohort", "value": cohort["id"], "operator": operator,
    });
    json!({"groups": [{"properties": [filter], "rollout_percentage": 100}]})
}

fn flags_of(server: &TestServer, distinct_id: &str) -> Value {
    let body = json!({"api_key": TOKEN, "distinct_id": distinct_id});
    let answer = server.send("POST", "/flags/?v=1", &[], body.to_string());
    let answer = answer.json();
    assert_eq!(answer["errorsWhileComputingFlags"], false, "{answer}");
    answer["featureFlags"].clone()
}

fn set(distinct_id: &str, properties: Value) -> Value {
    json!({"event": "$set", "distinct_id": distinct_id, "properties": {"$set": properties}})
}

fn detail(answer: &crate::harness::Answer) -> (u16, Value, Value) {
    let body = answer.json();
    (answer.status, body["code"].clone(), body["detail"].clone())
}

#[test]
fn cohorts_are_created_listed_changed_deleted_and_restored() {
    let server = TestServer::start();
    assert_eq!(
        server.capture(&json!([set("ada", json!({"plan": "pro"})), set("bob", json!({}))])).status,
        200
    );
    let pro = rule("AND", json!([{"type": "OR", "values": [plan("pro")]}]));
    let cohort = server.post(COHORTS, &json!({"name": "Pro", "filters": pro})).created();
    assert_eq!(cohort["created_by"]["id"], 1, "{cohort}");
    for (name, expected) in [
        ("name", json!("Pro")),
        ("description", json!("")),
        ("groups", json!([])),
        ("deleted", json!(false)),
        ("filters", pro.clone()),
        ("is_static", json!(false)),
        ("errors_calculating", json!(0)),
        ("experiment_set", json!([])),
        ("cohort_type", json!("person_property")),
        ("version", json!(1)),
    ] {
        assert_eq!(cohort[name], expected, "{name}");
    }
    let path = format!("{COHORTS}{}/", cohort["id"]);
    let counted = patiently(|| {
        let cohort = server.get(&path).json();
        (cohort["is_calculating"] == false).then_some(cohort)
    });
    let counted = counted.expect("the count comes");
    assert_eq!((&counted["count"], &counted["errors_calculating"]), (&json!(1), &json!(0)));
    assert!(counted["last_calculation"].is_string(), "{counted}");

    let free =
        json!({"name": "Free", "groups": [{"properties": [plan("free")]}, {"properties": []}]});
    let free = server.post(COHORTS, &free).created();
    assert_eq!(free["filters"]["properties"]["type"], "OR", "{free}");
    let list = server.get(COHORTS).json();
    assert_eq!((&list["count"], &list["results"][1]["name"]), (&json!(2), &json!("Pro")));
    assert_eq!(server.get(&format!("{COHORTS}?search=PR")).json()["count"], 1);
    assert_eq!(server.get(&format!("{COHORTS}?type=static")).json()["count"], 0);

    let renamed = server.patch(&path, &json!({"name": "Paying", "description": "They pay."}));
    assert_eq!(renamed.json()["name"], "Paying", "{renamed}");
    assert_eq!((renamed.json()["version"].clone(), renamed.status), (json!(2), 200));
    let members = server.get(&format!("{path}persons/")).json();
    assert_eq!(members["results"][0]["distinct_ids"], json!(["ada"]), "{members}");
    let deleted = server.delete(&path);
    assert_eq!((deleted.status, deleted.body.len()), (405, 0));
    assert_eq!(server.patch(&path, &json!({"deleted": true})).status, 200);
    assert_eq!(server.get(COHORTS).json()["count"], 1);
    assert_eq!(server.get(&path).json()["deleted"], true);
    assert_eq!(server.patch(&path, &json!({"deleted": false})).status, 200);
    assert_eq!(server.get(COHORTS).json()["count"], 2);
}

#[test]
fn sizes_follow_the_persons() {
    let server = TestServer::start_with(&[("WEIR_COHORT_COUNT_INTERVAL", "100ms")]);
    let pro = rule("OR", json!([{"type": "OR", "values": [plan("pro")]}]));
    let cohort = server.post(COHORTS, &json!({"name": "Pro", "filters": pro})).created();
    let path = format!("{COHORTS}{}/", cohort["id"]);
    for (distinct_id, expected) in [("ada", 1), ("bob", 2)] {
        let event = json!([set(distinct_id, json!({"plan": "pro"}))]);
        assert_eq!(server.capture(&event).status, 200);
        let counted = patiently(|| (server.get(&path).json()["count"] == expected).then_some(()));
        counted.unwrap_or_else(|| panic!("{expected} persons, and {}", server.get(&path)));
    }
    let log = server.get(&format!("{path}activity/")).json();
    assert_eq!(log["total_count"], 1, "a count is no change: {log}");
    assert_eq!(server.get(&path).json()["version"], 1);
}

#[test]
fn bad_cohorts_are_refused() {
    let server = TestServer::start();
    let events = rule(
        "OR",
        json!([{"type": "OR", "values": [
            {"key": "$pageview", "type": "behavioral", "value": "performed_event"},
        ]}]),
    );
    let behavioral = server.post(COHORTS, &json!({"name": "Visited", "filters": events})).created();
    let a = server
        .post(COHORTS, &json!({"name": "A", "filters": rule("AND", json!([plan("a")]))}))
        .created();
    let in_a = json!({"key": "id", "type": "cohort", "value": a["id"]});
    let b = server
        .post(COHORTS, &json!({"name": "B", "filters": rule("AND", json!([in_a]))}))
        .created();
    let in_b = json!({"key": "id", "type": "cohort", "value": b["id"]});
    let circle = server
        .patch(&format!("{COHORTS}{}/", a["id"]), &json!({"filters": rule("AND", json!([in_b]))}));
    let invalid = json!("invalid_input");
    let looped = json!("Cohorts cannot reference other cohorts in a loop.");
    assert_eq!(detail(&circle), (400, invalid.clone(), looped));
    let needed = server.patch(&format!("{COHORTS}{}/", a["id"]), &json!({"deleted": true}));
    assert_eq!((needed.status, needed.json()["code"].clone()), (400, invalid.clone()), "{needed}");
    for (body, code) in [
        (json!({}), "required"),
        (json!({"name": ""}), "blank"),
        (json!({"name": "x".repeat(401)}), "max_length"),
        (json!({"name": "x", "filters": {}}), "invalid_input"),
        (json!({"name": "x", "filters": []}), "invalid_input"),
        (json!({"name": "x", "filters": rule("XOR", json!([]))}), "invalid_input"),
        (
            json!({"name": "x", "filters": rule("AND", json!([{"key": "id", "type": "cohort", "value": 999}]))}),
            "invalid_input",
        ),
        (
            json!({"name": "x", "is_static": true, "_create_static_person_ids": ["x"]}),
            "invalid_input",
        ),
    ] {
        let answer = server.post(COHORTS, &body);
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (400, json!(code)),
            "{body} {answer}"
        );
    }
    for (cohort, code, text) in [
        (
            &behavioral,
            "behavioral_cohort_found",
            "Cohort 'Visited' with filters on events cannot be used in feature flags.",
        ),
        (&json!({"id": 999}), "cohort_does_not_exist", "Cohort with id 999 does not exist"),
    ] {
        let answer = server.post(FLAGS, &json!({"key": "x", "filters": flag_on(cohort, "in")}));
        assert_eq!(detail(&answer), (400, json!(code), json!(text)));
        assert_eq!(answer.json()["attr"], "filters");
    }
    server.post(FLAGS, &json!({"key": "uses-b", "filters": flag_on(&b, "in")})).created();
    let used = server.patch(&format!("{COHORTS}{}/", b["id"]), &json!({"deleted": true}));
    assert_eq!(used.status, 400, "{used}");
    assert_eq!(server.get(&format!("{COHORTS}999/")).status, 404);
}

/// Also indirectly through other cohorts: a cohort with conditions on events would match nobody.
#[test]
fn cohorts_of_flags_do_not_come_to_ask_for_events() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([set("ada", json!({"plan": "pro"}))])).status, 200);
    let asks = |cohort: &Value| json!({"key": "id", "type": "cohort", "value": cohort["id"]});
    let one = |filter: Value| rule("AND", json!([filter]));
    let make = |name: &str, filters: Value| {
        server.post(COHORTS, &json!({"name": name, "filters": filters})).created()
    };
    let events = || one(json!({"key": "paid", "type": "behavioral", "value": "performed_event"}));
    let inner = make("Inner", one(plan("pro")));
    let outer = make("Outer", one(asks(&inner)));
    let paid = make("Paid", events());
    server.post(FLAGS, &json!({"key": "uses", "filters": flag_on(&outer, "in")})).created();
    let own = "Behavioral filters cannot be added to cohorts used in feature flags.";
    let others = "A dependent cohort (Paid) has filters based on events. These cohorts can't be used \
                  in feature flags.";
    for (cohort, filters, text) in [
        (&inner, events(), own),
        (&outer, events(), own),
        (&inner, one(asks(&paid)), others),
        (&outer, one(asks(&paid)), others),
    ] {
        let answer =
            server.patch(&format!("{COHORTS}{}/", cohort["id"]), &json!({"filters": filters}));
        assert_eq!(detail(&answer), (400, json!("behavioral_cohort_found"), json!(text)));
        assert_eq!(answer.json()["attr"], "filters", "{answer}");
    }
    assert_eq!(flags_of(&server, "ada"), json!({"uses": true}));
    let odd =
        one(json!({"key": "id", "type": "cohort", "value": inner["id"], "operator": "is_not"}));
    let odd = server.post(COHORTS, &json!({"name": "Odd", "filters": odd}));
    assert_eq!((odd.status, &odd.json()["code"]), (400, &json!("invalid_operator")), "{odd}");
    let odd = server.post(FLAGS, &json!({"key": "odd", "filters": flag_on(&outer, "is_not")}));
    assert_eq!((odd.status, &odd.json()["code"]), (400, &json!("invalid_operator")), "{odd}");

    // A flag is told with the names that its cohorts have by now.
    let flag = || server.get(FLAGS).json()["results"][0].clone();
    let name = |flag: &Value| flag["filters"]["groups"][0]["properties"][0]["cohort_name"].clone();
    let mut seen = flag();
    assert_eq!(name(&seen), "Outer", "{seen}");
    let path = format!("{COHORTS}{}/", outer["id"]);
    assert_eq!(server.patch(&path, &json!({"name": "Renamed"})).status, 200);
    let path = format!("{FLAGS}{}/", seen["id"]);
    assert_eq!(name(&server.get(&path).json()), "Renamed");
    // Sent back they are no change.
    seen["original_flag"] = seen.clone();
    let changed = server.patch(&path, &seen);
    assert_eq!((changed.status, name(&changed.json())), (200, json!("Renamed")), "{changed}");
    let log = server.get(&format!("{path}activity/")).json();
    let changes = log["results"][0]["detail"]["changes"].as_array().expect("changes").iter();
    let fields: Vec<&Value> = changes.map(|change| &change["field"]).collect();
    assert!(!fields.contains(&&json!("filters")), "{log}");
}

#[test]
fn flags_ask_cohorts_with_rules_and_lists_and_a_crash_changes_nothing() {
    let mut server = TestServer::start();
    let events = json!([
        set("ada", json!({"plan": "pro"})),
        set("bob", json!({"plan": "free"})),
        set("cy", json!({"plan": "free"})),
    ]);
    assert_eq!(server.capture(&events).status, 200);
    let pro = server
        .post(COHORTS, &json!({"name": "pro", "filters": rule("AND", json!([plan("pro")]))}))
        .created();
    let bob = server.get("/api/projects/1/persons/?distinct_id=bob").json()["results"][0].clone();
    let list = json!({"name": "list", "is_static": true, "_create_static_person_ids": [bob["uuid"]],
        "distinct_ids": ["nobody"]});
    let list = server.post(COHORTS, &list).created();
    assert_eq!((&list["count"], &list["is_static"]), (&json!(1), &json!(true)), "{list}");
    let values = json!([
        {"key": "id", "type": "cohort", "value": list["id"]},
        {"key": "id", "type": "cohort", "value": pro["id"], "negation": true},
    ]);
    let nested =
        server.post(COHORTS, &json!({"name": "nested", "filters": rule("AND", values)})).created();
    for (key, cohort, operator) in [
        ("pro", &pro, "in"),
        ("not-pro", &pro, "not_in"),
        ("list", &list, "in"),
        ("nested", &nested, "in"),
    ] {
        server.post(FLAGS, &json!({"key": key, "filters": flag_on(cohort, operator)})).created();
    }
    let of = |pro: bool, list: bool, nested: bool| json!({"pro": pro, "not-pro": !pro, "list": list, "nested": nested});
    assert_eq!(flags_of(&server, "ada"), of(true, false, false));
    assert_eq!(flags_of(&server, "bob"), of(false, true, true));
    assert_eq!(flags_of(&server, "nobody"), of(false, false, false));
    let path = format!("{COHORTS}{}/", list["id"]);
    let added = server.patch(
        &format!("{path}add_persons_to_static_cohort/"),
        &json!({"distinct_ids": ["ada", "cy"]}),
    );
    assert_eq!(added.status, 200, "{added}");
    assert_eq!(server.get(&path).json()["count"], 3);
    let log = server.get(&format!("{path}activity/")).json();
    let change = &log["results"][0]["detail"]["changes"][0];
    assert_eq!((&change["before"], &change["after"]), (&json!(1), &json!(3)), "{log}");
    assert_eq!(flags_of(&server, "ada"), of(true, true, false));
    // Bob turns out to be Dan, whose person stays. Members stay members.
    let merge = json!([
        set("dan", json!({"plan": "free"})),
        {"event": "$identify", "distinct_id": "dan", "properties": {"$anon_distinct_id": "bob"}},
    ]);
    assert_eq!(server.capture(&merge).status, 200);
    assert_eq!(flags_of(&server, "dan"), of(false, true, true));
    server.kill();
    server.restart();
    assert_eq!(flags_of(&server, "dan"), of(false, true, true));
    assert_eq!(flags_of(&server, "bob"), of(false, true, true));
    let removed = server.patch(
        &format!("{path}remove_person_from_static_cohort/"),
        &json!({"person_id": bob["uuid"]}),
    );
    assert_eq!(removed.status, 200, "{removed}");
}

#[test]
fn a_login_keeps_the_values_of_before_also_after_a_crash() {
    let mut server = TestServer::start();
    let groups = json!([{"properties": [], "rollout_percentage": 50}]);
    let flag =
        json!({"key": "kept", "filters": {"groups": groups}, "ensure_experience_continuity": true});
    server.post(FLAGS, &flag).created();
    // Two ids of before the login, one on each side of the rollout; user ids on the other side.
    let value = |id: &str| flags_of(&server, id)["kept"] == true;
    let ids = |wanted: bool, prefix: &str| {
        let names = (0..).map(|i| format!("{prefix}-{i}"));
        names.into_iter().find(|id| value(id) == wanted).expect("an id")
    };
    let cases = [
        (ids(true, "anon"), ids(false, "user"), true),
        (ids(false, "guest"), ids(true, "member"), false),
    ];
    for (anon, user, expected) in &cases {
        let body = json!({"api_key": TOKEN, "distinct_id": user, "$anon_distinct_id": anon});
        let answer = server.send("POST", "/flags/?v=1", &[], body.to_string()).json();
        assert_eq!(answer["featureFlags"]["kept"], *expected, "{answer}");
    }
    server.kill();
    server.restart();
    for (anon, user, expected) in &cases {
        assert_eq!(flags_of(&server, user)["kept"], *expected, "without the id of before");
        // Another device of the same user changes nothing.
        let body =
            json!({"api_key": TOKEN, "distinct_id": user, "$anon_distinct_id": "other-device"});
        let answer = server.send("POST", "/flags/?v=1", &[], body.to_string()).json();
        assert_eq!(answer["featureFlags"]["kept"], *expected, "{answer}");
        // The value follows the person through a merge.
        let merge = json!([{"event": "$identify", "distinct_id": user, "properties": {"$anon_distinct_id": anon}},
            {"event": "$create_alias", "distinct_id": user, "properties": {"alias": format!("{user}-2")}}]);
        assert_eq!(server.capture(&merge).status, 200);
        assert_eq!(flags_of(&server, &format!("{user}-2"))["kept"], *expected, "of an alias");
    } // Who is deleted and comes back is somebody new, for flags and for lists.
    for (_, user, expected) in &cases {
        let list = json!({"name": user, "is_static": true});
        let list = format!("{COHORTS}{}/", server.post(COHORTS, &list).created()["id"]);
        let add = json!({"distinct_ids": [user]});
        let added = server.patch(&format!("{list}add_persons_to_static_cohort/"), &add);
        assert_eq!((added.status, &server.get(&list).json()["count"]), (200, &json!(1)), "{added}");
        let found = server.get(&format!("/api/projects/1/persons/?distinct_id={user}")).json();
        let person = format!("/api/projects/1/persons/{}/", found["results"][0]["id"]);
        assert_eq!(server.delete(&person).status, 202);
        assert_eq!(server.get(&list).json()["count"], 0);
        assert_eq!(server.capture(&json!([set(user, json!({}))])).status, 200);
        assert_eq!(flags_of(&server, user)["kept"], !expected, "by its own id");
        let members = server.get(&format!("{list}persons/")).json();
        assert_eq!(members["results"], json!([]), "{members}");
    }
}

/// Goal: of a person with very many ids only a few are read, and the id of the request is among them.
#[test]
fn a_login_under_one_of_very_many_ids_is_kept() {
    let server = TestServer::start();
    let groups = json!([{"properties": [], "rollout_percentage": 50}]);
    let flag =
        json!({"key": "kept", "filters": {"groups": groups}, "ensure_experience_continuity": true});
    server.post(FLAGS, &flag).created();
    let value = |id: &str| flags_of(&server, id)["kept"] == true;
    let id = |wanted: bool, prefix: &str| {
        let mut names = (0..).map(|i| format!("{prefix}-{i}"));
        names.find(|id| value(id) == wanted).expect("an id")
    };
    let (anon, user) = (id(true, "anon"), id(false, "user"));
    let identify = |other: &str| json!({"event": "$identify", "distinct_id": "crowd", "properties": {"$anon_distinct_id": other}});
    let others = (0..300).map(|number| identify(&format!("member-{number}")));
    let merges: Vec<_> = others.chain([identify(&user)]).collect();
    assert_eq!(server.capture(&json!(merges)).status, 200);
    assert!(!value(&user), "by its own id");
    let body = json!({"api_key": TOKEN, "distinct_id": user, "$anon_distinct_id": anon});
    let answer = server.send("POST", "/flags/?v=1", &[], body.to_string()).json();
    assert_eq!(answer["featureFlags"]["kept"], true, "{answer}");
    assert!(value(&user), "without the id of before");
}

/// Those whom `rule` should have, of ten persons of whom the number `i` ordered `i` times, and those with an even number
/// long ago, too.
fn did(rule: &Value, person: u64) -> bool {
    if let Some(values) = rule["values"].as_array() {
        return match rule["type"].as_str() {
            Some("AND") => values.iter().all(|value| did(value, person)),
            _ => values.iter().any(|value| did(value, person)),
        };
    }
    if rule["type"] == "person" {
        return person.is_multiple_of(3);
    }
    let is_long = rule["time_value"] == 60;
    let times = match (rule["key"].as_str(), rule["event_filters"].is_array()) {
        (Some("order"), false) => person,
        // Its first two orders.
        (Some("order"), true) => person.min(2),
        (Some("old"), _) => u64::from(is_long && person.is_multiple_of(2)),
        _ => 0,
    };
    let count = rule["operator_value"].as_u64().unwrap_or(1);
    let has = times > 0
        && match rule["operator"].as_str() {
            Some("lte") => times <= count,
            Some("exact") => times == count,
            _ => times >= count,
        };
    has != (rule["negation"] == true)
}

#[test]
fn cohorts_by_events_have_those_who_did_it() {
    let server = TestServer::start_with(&[("WEIR_COHORT_COUNT_INTERVAL", "100ms")]);
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let event = |name: &str, person: u64, hours: i64, properties: Value| {
        let at = (now - chrono::TimeDelta::hours(hours)).to_rfc3339();
        json!({"event": name, "distinct_id": format!("p{person}"), "timestamp": at, "properties": properties})
    };
    let mut events = Vec::new();
    for person in 0..10_u64 {
        let plan = if person.is_multiple_of(3) { "pro" } else { "free" };
        events.push(event("$set", person, 0, json!({"$set": {"plan": plan}})));
        for order in 0..person {
            events.push(event("order", person, 2, json!({"n": order})));
        }
        if person.is_multiple_of(2) {
            events.push(event("old", person, 40 * 24, json!({})));
        }
    }
    server.capture(&json!(events));
    assert_eq!(server.count("SELECT count(*) FROM persons"), 10);

    let deed = |more: Value| {
        let mut own = json!({"type": "behavioral", "key": "order", "value": "performed_event",
            "event_type": "events", "time_value": 30, "time_interval": "day"});
        own.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        own
    };
    let often = |operator: &str, count: u64| {
        deed(
            json!({"value": "performed_event_multiple", "operator": operator, "operator_value": count}),
        )
    };
    let of = |kind: &str, values: Value| json!({"type": kind, "values": values});
    let few = json!([{"key": "n", "value": 2, "operator": "lt", "type": "event"}]);
    let rules = [
        of("OR", json!([deed(json!({}))])),
        of("OR", json!([deed(json!({"negation": true}))])),
        of("OR", json!([often("gte", 4)])),
        of("OR", json!([often("lte", 2)])),
        of("OR", json!([often("exact", 5)])),
        of("OR", json!([deed(json!({"key": "old"}))])),
        of("OR", json!([deed(json!({"key": "old", "time_value": 60}))])),
        of("AND", json!([{"type": "AND", "values": [plan("pro"), often("gte", 2)]}])),
        of(
            "OR",
            json!([
                of("AND", json!([plan("pro"), deed(json!({"key": "old", "time_value": 60}))])),
                often("gte", 8)
            ]),
        ),
        of(
            "AND",
            json!([deed(json!({"event_filters": few, "value": "performed_event_multiple",
            "operator": "exact", "operator_value": 2}))]),
        ),
    ];
    let made: Vec<Value> = rules
        .iter()
        .map(|rule| {
            server.post(COHORTS, &json!({"name": "C", "filters": {"properties": rule}})).created()
        })
        .collect();
    let members = |cohort: &Value| {
        let found = server.get(&format!("{COHORTS}{}/persons/?limit=100", cohort["id"])).json();
        let ids = found["results"].as_array().expect("a list").iter();
        let mut ids: Vec<String> =
            ids.map(|own| own["distinct_ids"][0].as_str().expect("an id").to_owned()).collect();
        ids.sort_unstable();
        ids
    };
    for (rule, cohort) in rules.iter().zip(&made) {
        let expected: Vec<String> = (0..10)
            .filter(|person| did(rule, *person))
            .map(|person| format!("p{person}"))
            .collect();
        let path = format!("{COHORTS}{}/", cohort["id"]);
        let counted =
            patiently(|| Some(server.get(&path).json()).filter(|own| own["count"].is_number()));
        let counted = counted.expect("it is computed");
        assert_eq!(members(cohort), expected, "{rule}");
        assert_eq!(counted["count"], expected.len(), "{rule}: {counted}");
        assert_eq!(counted["cohort_type"], "behavioral");
        // Insights have the same.
        let query = json!({"query": {"kind": "TrendsQuery", "interval": "day", "dateRange": {"date_from": "-2d"},
            "series": [{"kind": "EventsNode", "event": "$set", "math": "dau"}],
            "trendsFilter": {"display": "BoldNumber"},
            "properties": [{"type": "cohort", "key": "id", "value": cohort["id"]}]}});
        let answer = server.post("/api/projects/1/query/", &query).json();
        assert_eq!(
            answer["results"][0]["aggregated_value"].as_f64(),
            Some(expected.len() as f64),
            "{rule}: {answer}"
        );
    }

    // Whoever does it later is in it then, and who is deleted is not.
    server.capture(&json!([event("order", 0, 0, json!({"n": 0}))]));
    let all: Vec<String> = (0..10).map(|person| format!("p{person}")).collect();
    assert!(
        patiently(|| (members(&made[0]) == all).then_some(())).is_some(),
        "{:?}",
        members(&made[0])
    );
    assert!(patiently(|| members(&made[1]).is_empty().then_some(())).is_some());
    let found = server.get("/api/projects/1/persons/?distinct_id=p9").json();
    let uuid = found["results"][0]["uuid"].as_str().expect("a person").to_owned();
    server.delete(&format!("/api/projects/1/persons/{uuid}/?delete_events=true"));
    assert_eq!(members(&made[0]), all[..9]);

    // What is not available is kept, and says so by errors.
    let first = of("OR", json!([deed(json!({"value": "performed_event_first_time"}))]));
    let kept =
        server.post(COHORTS, &json!({"name": "F", "filters": {"properties": first}})).created();
    let path = format!("{COHORTS}{}/", kept["id"]);
    let failed =
        patiently(|| Some(server.get(&path).json()).filter(|own| own["errors_calculating"] != 0));
    assert!(failed.is_some() && members(&kept).is_empty());
    // A rule without events has its own members again.
    let change = json!({"filters": rule("OR", json!([{"type": "OR", "values": [plan("pro")]}]))});
    server.patch(&format!("{COHORTS}{}/", made[2]["id"]), &change);
    assert_eq!(members(&made[2]), ["p0", "p3", "p6"]);
}

/// A form as browsers, curl and `requests` send it: fields, and a file under `csv`.
fn form(
    server: &TestServer,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    csv: &str,
) -> crate::harness::Answer {
    let mut body = String::new();
    for (name, value) in fields {
        body +=
            &format!("--xYz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body += &format!(
        "--xYz\r\nContent-Disposition: form-data; name=\"csv\"; filename=\"ids.csv\"\r\n\
         Content-Type: text/csv\r\n\r\n{csv}\r\n--xYz--\r\n"
    );
    let bearer = format!("Bearer {}", crate::harness::KEY);
    let headers =
        [("authorization", &*bearer), ("content-type", "multipart/form-data; boundary=xYz")];
    server.send(method, path, &headers, body)
}

/// Goal: lists of persons come from files. Expectations: the rules of PostHog's upload.
#[test]
fn static_cohorts_are_made_of_csv_files() {
    let server = TestServer::start();
    let events = json!([
        set("ada", json!({"email": "ada@example.com"})),
        set("bob", json!({"email": "bob@example.com", "e-mail": "b@x.org"})),
        set("cy", json!({})),
    ]);
    assert_eq!(server.capture(&events).status, 200);
    let uuid = |id: &str| {
        let path = format!("/api/projects/1/persons/?distinct_id={id}");
        server.get(&path).json()["results"][0]["uuid"].as_str().expect("a uuid").to_owned()
    };
    let members = |id: &Value| {
        let list = server.get(&format!("{COHORTS}{id}/persons/")).json();
        let persons = list["results"].as_array().expect("persons").iter();
        let mut ids: Vec<String> = persons
            .map(|person| person["distinct_ids"][0].as_str().expect("an id").to_owned())
            .collect();
        ids.sort_unstable();
        ids
    };
    let ada = uuid("ada");
    for (csv, expected) in [
        ("ada\r\nbob\r\nnobody\r\n".to_owned(), &["ada", "bob"][..]),
        ("distinct_id\ncy".to_owned(), &["cy"]),
        (format!("person_id\n{ada}\nno-uuid"), &["ada"]),
        ("Name,Email,plan\nAda,ada@example.com,pro\nBob,,free".to_owned(), &[]),
        (
            "name,email\n\"A, B\",\"ada@example.com\"\nBob,bob@example.com".to_owned(),
            &["ada", "bob"],
        ),
        ("e-mail\nb@x.org".to_owned(), &["bob"]),
        ("email,distinct_id\nbob@example.com,cy".to_owned(), &["cy"]),
    ] {
        let fields = [("name", "list"), ("is_static", "true"), ("description", "by file")];
        let cohort = form(&server, "POST", COHORTS, &fields, &csv).created();
        assert_eq!(cohort["count"], expected.len(), "{csv}: {cohort}");
        assert_eq!(
            (&cohort["is_static"], &cohort["description"]),
            (&json!(true), &json!("by file"))
        );
        assert_eq!(members(&cohort["id"]), expected, "{csv}");
    }
    // A change adds to the list, and takes the other fields as well.
    let cohort =
        form(&server, "POST", COHORTS, &[("name", "a"), ("is_static", "true")], "ada").created();
    let path = format!("{COHORTS}{}/", cohort["id"]);
    let changed = form(&server, "PATCH", &path, &[("name", "b")], "bob\n");
    assert_eq!((changed.status, &changed.json()["name"]), (200, &json!("b")), "{changed}");
    assert_eq!(changed.json()["count"], 2, "{changed}");
    assert_eq!(members(&cohort["id"]), ["ada", "bob"]);
    let rules =
        server.post(COHORTS, &json!({"name": "r", "filters": rule("AND", json!([plan("a")]))}));
    let rules = format!("{COHORTS}{}/", rules.created()["id"]);
    let is_static = ("is_static", "true");
    for (method, path, fields, csv, code, attr) in [
        ("POST", COHORTS, &[("name", "x"), is_static][..], "", "invalid_input", json!("csv")),
        ("POST", COHORTS, &[("name", "x"), is_static], "a,b\n1,2", "invalid_input", json!("csv")),
        (
            "POST",
            COHORTS,
            &[("name", "x"), is_static],
            "person_id\n\n",
            "invalid_input",
            json!("csv"),
        ),
        ("POST", COHORTS, &[("name", "x")], "ada", "invalid_input", json!("csv")),
        ("PATCH", &rules, &[("name", "x")], "ada", "invalid_input", json!("csv")),
        ("POST", COHORTS, &[is_static], "ada", "required", json!("name")),
        (
            "POST",
            COHORTS,
            &[("name", "x"), ("filters", "{")],
            "ada",
            "invalid_input",
            json!("filters"),
        ),
    ] {
        let answer = form(&server, method, path, fields, csv);
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["code"], &body["attr"]),
            (400, &json!(code), &attr),
            "{csv}: {answer}"
        );
    }
    let bearer = format!("Bearer {}", crate::harness::KEY);
    for (content_type, body) in [
        ("multipart/form-data", "--xYz--"),
        ("multipart/form-data; boundary=xYz", "name=x"),
        (
            "multipart/form-data; boundary=xYz",
            "--xYz\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nx",
        ),
    ] {
        let headers = [("authorization", &*bearer), ("content-type", content_type)];
        let answer = server.send("POST", COHORTS, &headers, body);
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (400, &json!("parse_error")),
            "{answer}"
        );
    }
}
