//! Changes of groups by operators over HTTP: create a group, change its properties, name a type. Formats and
//! texts are those of PostHog's API; that a crash loses nothing is a guarantee of Weir.

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};

const GROUPS: &str = "/api/projects/@current/groups/";
const TYPES: &str = "/api/projects/@current/groups_types/";

fn identify(kind: &str, key: &str, set: Value) -> Value {
    json!({"event": "$groupidentify", "distinct_id": "a", "properties": {"$group_type": kind, "$group_key": key, "$group_set": set}})
}

/// A server with two types, and one group of each.
fn start() -> TestServer {
    let server = TestServer::start();
    let sent = json!([
        identify("company", "acme", json!({"plan": "free"})),
        identify("channel", "general", json!({"open": true})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    server
}

fn of(path: &str, index: u8, key: &str) -> String {
    format!("{GROUPS}{path}?group_type_index={index}&group_key={key}")
}

fn properties(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["group_properties"].clone()
}

/// Activity, name and changes, newest first.
fn log(server: &TestServer, path: &str) -> Vec<Value> {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{answer}");
    let page = answer.json();
    let entries = page["results"].as_array().expect("entries").iter();
    entries
        .map(|entry| {
            assert_eq!((&entry["scope"], &entry["user"]["id"]), (&json!("Group"), &json!(1)));
            json!([entry["activity"], entry["detail"]["name"], entry["detail"]["changes"]])
        })
        .collect()
}

fn field(action: &str, name: &str, before: Value, after: Value) -> Value {
    json!({"type": "Group", "action": action, "field": name, "before": before, "after": after})
}

#[test]
fn groups_are_made_and_changed_and_stay_so_whatever_happens() {
    let mut server = start();
    let made = server.post(
        GROUPS,
        &json!({"group_type_index": 0, "group_key": " umbrella ", "group_properties": {"plan": "free", "seats": 3}}),
    );
    assert_eq!(made.status, 201, "{made}");
    let made = made.json();
    assert_eq!((&made["group_type_index"], &made["group_key"]), (&json!(0), &json!("umbrella")));
    assert_eq!(made["group_properties"], json!({"plan": "free", "seats": 3}));
    assert_eq!(server.get(&of("find/", 0, "umbrella")).json(), made);
    // The same key of another type is another group, and one may have nothing.
    let bare = json!({"group_type_index": 1, "group_key": "umbrella", "group_properties": null});
    assert_eq!(server.post(GROUPS, &bare).status, 201);

    let set = |key: &str, value: Value| json!({"key": key, "value": value});
    let update = of("update_property/", 0, "umbrella");
    let delete = of("delete_property/", 0, "umbrella");
    let updated = server.post(update.as_str(), &set("plan", json!("pro")));
    assert_eq!(properties(&updated), json!({"plan": "pro", "seats": 3}));
    // Nothing is another after this.
    assert_eq!(server.post(update.as_str(), &set("plan", json!("pro"))).status, 200);
    let added = server.post(update.as_str(), &set("evil", json!([true])));
    assert_eq!(properties(&added), json!({"plan": "pro", "seats": 3, "evil": [true]}));
    let deleted = server.post(delete.as_str(), &json!({"$unset": "seats"}));
    assert_eq!(properties(&deleted), json!({"plan": "pro", "evil": [true]}));
    // Events go on changing what there is.
    let sent = json!([identify("company", "umbrella", json!({"plan": "team"}))]);
    assert_eq!(server.capture(&sent).status, 200);

    let expected = [
        json!(["update_property", "seats", [field("deleted", "seats", json!(3), json!(null))]]),
        json!(["create_property", "evil", [field("created", "evil", json!(null), json!([true]))]]),
        json!(["update_property", "plan", [field("changed", "plan", json!("free"), json!("pro"))]]),
        json!([
            "create_group",
            "umbrella",
            [
                field("created", "plan", json!(null), json!("free")),
                field("created", "seats", json!(null), json!(3)),
            ]
        ]),
    ];
    let other = json!(["create_group", "umbrella", []]);
    let all = [&expected[..3], std::slice::from_ref(&other), &expected[3..]].concat();
    for state in ["at once", "after a crash", "after an end"] {
        let now = properties(&server.get(&of("find/", 0, "umbrella")));
        assert_eq!(now, json!({"plan": "team", "evil": [true]}), "{state}");
        assert_eq!(log(&server, &of("activity/", 0, "umbrella")), expected, "{state}");
        let of_other = log(&server, &of("activity/", 1, "umbrella"));
        assert_eq!(of_other, std::slice::from_ref(&other), "{state}");
        assert_eq!(log(&server, &of("activity/", 0, "acme")), Vec::<Value>::new(), "{state}");
        let path = "/api/projects/@current/activity_log/?scope=Group";
        assert_eq!(log(&server, path), all, "{state}");
        match state {
            "at once" => server.kill(),
            _ => server.stop(),
        }
        server.restart();
    }
    // What operators set is known as a property, like what events say.
    let known = "/api/projects/@current/property_definitions/?type=group&group_type_index=0";
    let known = server.get(known).json();
    let names: Vec<_> =
        known["results"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["evil", "plan", "seats"]);
}

#[test]
fn what_cannot_be_done_to_groups_is_refused() {
    let server = start();
    let (update, delete) = (of("update_property/", 0, "acme"), of("delete_property/", 0, "acme"));
    let (nobody, other) = (of("update_property/", 0, "nobody"), of("delete_property/", 1, "acme"));
    let large = "x".repeat(700_000);
    let group = |index: Value, key: Value| json!({"group_type_index": index, "group_key": key});
    let with =
        |set: Value| json!({"group_type_index": 0, "group_key": "new", "group_properties": set});
    for (path, body, status, attr, detail) in [
        (
            GROUPS,
            json!({"group_key": "a"}),
            400,
            json!("group_type_index"),
            "This field is required.",
        ),
        (
            GROUPS,
            json!({"group_type_index": 0}),
            400,
            json!("group_key"),
            "This field is required.",
        ),
        (
            GROUPS,
            group(json!("x"), json!("a")),
            400,
            json!("group_type_index"),
            "A valid integer is required.",
        ),
        (
            GROUPS,
            group(json!(0), json!(" ")),
            400,
            json!("group_key"),
            "This field may not be blank.",
        ),
        (
            GROUPS,
            group(json!(0), json!("x".repeat(401))),
            400,
            json!("group_key"),
            "Ensure this field has no more than 400 characters.",
        ),
        (GROUPS, group(json!(2), json!("a")), 404, json!(null), "Not found."),
        (GROUPS, group(json!(-1), json!("a")), 404, json!(null), "Not found."),
        (
            GROUPS,
            group(json!(0), json!("acme")),
            400,
            json!("detail"),
            "A group with this key already exists",
        ),
        (
            GROUPS,
            with(json!([])),
            400,
            json!("group_properties"),
            "Expected a dictionary of items but got type \"list\".",
        ),
        (
            GROUPS,
            with(json!({"a": large})),
            400,
            json!("group_properties"),
            "The properties of the group would be too large.",
        ),
        (
            update.as_str(),
            json!({"key": "a", "value": large}),
            400,
            json!("value"),
            "The properties of the group would be too large.",
        ),
        (update.as_str(), json!({"key": "a"}), 400, json!("value"), "This field is required."),
        (
            update.as_str(),
            json!({"key": "a", "value": null}),
            400,
            json!("value"),
            "This field is required.",
        ),
        (update.as_str(), json!({"value": 1}), 400, json!("key"), "This field is required."),
        (
            delete.as_str(),
            json!({}),
            400,
            json!("$unset"),
            "This field is required and must be a string (the property name to delete).",
        ),
        (
            delete.as_str(),
            json!({"$unset": ["plan"]}),
            400,
            json!("$unset"),
            "This field is required and must be a string (the property name to delete).",
        ),
        (
            delete.as_str(),
            json!({"$unset": "no"}),
            400,
            json!("$unset"),
            "Property 'no' does not exist on this group.",
        ),
        (nobody.as_str(), json!({"key": "a", "value": 1}), 404, json!(null), "Not found."),
        (other.as_str(), json!({"$unset": "plan"}), 404, json!(null), "Not found."),
    ] {
        let answer = server.post(path, &body);
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["attr"], &told["detail"]),
            (status, &attr, &json!(detail)),
            "{path}"
        );
    }
    let missing = server.get(&of("activity/", 0, "nobody"));
    assert_eq!(missing.status, 404, "{missing}");
    assert_eq!(properties(&server.get(&of("find/", 0, "acme"))), json!({"plan": "free"}));
    assert_eq!(server.get(&of("find/", 0, "new")).status, 404);
    assert_eq!(
        log(&server, "/api/projects/@current/activity_log/?scope=Group"),
        Vec::<Value>::new()
    );
}

/// Goal: a type has an index and a column from the first event that names it, whether or not a
/// `$groupidentify` ever describes one of its groups.
#[test]
fn types_that_events_name_are_listed_and_have_groups() {
    let mut server = TestServer::start();
    let member = |groups: Value| json!({"event": "x", "distinct_id": "a", "properties": {"$groups": groups}});
    let sent = json!([member(json!({"team": "red"})), member(json!({"channel": "general"}))]);
    assert_eq!(server.capture(&sent).status, 200);
    let listed = |server: &TestServer| -> Vec<Value> {
        let types = server.get(TYPES).json();
        let types = types.as_array().expect("types").iter();
        types.map(|one| json!([one["group_type"], one["group_type_index"]])).collect()
    };
    let named = json!([["team", 0], ["channel", 1]]);
    assert_eq!(json!(listed(&server)), named);
    // The later type is the first that gets a group, and keeps its index all the same.
    let group = |index: u8, key: &str| json!({"group_type_index": index, "group_key": key, "group_properties": {"a": index}});
    assert_eq!(server.post(GROUPS, &group(1, "general")).status, 201);
    assert_eq!(server.capture(&json!([identify("team", "red", json!({"b": 2}))])).status, 200);
    for state in ["at once", "after a crash"] {
        assert_eq!(json!(listed(&server)), named, "{state}");
        assert_eq!(properties(&server.get(&of("find/", 1, "general"))), json!({"a": 1}), "{state}");
        assert_eq!(properties(&server.get(&of("find/", 0, "red"))), json!({"b": 2}), "{state}");
        server.kill();
        server.restart();
    }
}

#[test]
fn types_are_called_what_people_say() {
    let mut server = start();
    let path = format!("{TYPES}update_metadata/");
    let named = |server: &TestServer| -> Vec<Value> {
        let types = server.get(TYPES).json();
        let types = types.as_array().expect("types").iter();
        types
            .map(|one| json!([one["group_type"], one["name_singular"], one["name_plural"]]))
            .collect()
    };
    assert_eq!(named(&server), [json!(["company", null, null]), json!(["channel", null, null])]);
    let both = json!([
        {"group_type_index": 0, "name_singular": "firm", "name_plural": "firms", "group_type": "x"},
        {"group_type_index": 1, "name_plural": "rooms"},
    ]);
    let answer = server.patch(&path, &both);
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.json(), server.get(TYPES).json());
    assert_eq!(
        named(&server),
        [json!(["company", "firm", "firms"]), json!(["channel", null, "rooms"])]
    );
    // One alone, and one taken back; what is as it was is no change.
    let one = json!([{"group_type_index": 1, "name_singular": "room", "name_plural": null}]);
    assert_eq!(server.patch(&path, &one).status, 200);
    assert_eq!(server.patch(&path, &one).status, 200);
    for (body, status, attr) in [
        (json!([{"name_singular": "x"}]), 400, json!("group_type_index")),
        (
            json!([{"group_type_index": 0, "name_singular": "x".repeat(401)}]),
            400,
            json!("name_singular"),
        ),
        (json!([{"group_type_index": 0, "name_singular": {}}]), 400, json!("name_singular")),
        (
            json!([{"group_type_index": 0, "name_singular": "lost"}, {"group_type_index": 2}]),
            404,
            json!(null),
        ),
        (json!(["company"]), 400, json!(null)),
    ] {
        let answer = server.patch(&path, &body);
        assert_eq!((answer.status, &answer.json()["attr"]), (status, &attr), "{body}");
    }
    server.kill();
    server.restart();
    assert_eq!(
        named(&server),
        [json!(["company", "firm", "firms"]), json!(["channel", "room", null])]
    );
    let logged = log(&server, "/api/projects/@current/activity_log/?scope=Group");
    let change = |name: &str, fields: Value| json!(["updated", name, fields]);
    assert_eq!(
        logged,
        [
            change(
                "channel",
                json!([
                    field("deleted", "name_plural", json!("rooms"), json!(null)),
                    field("created", "name_singular", json!(null), json!("room")),
                ])
            ),
            change(
                "channel",
                json!([field("created", "name_plural", json!(null), json!("rooms"))])
            ),
            change(
                "company",
                json!([
                    field("created", "name_plural", json!(null), json!("firms")),
                    field("created", "name_singular", json!(null), json!("firm")),
                ])
            ),
        ]
    );
}

/// Goal: the key of a group is a property of it, `$group_key`, for filters and breakdowns of insights and lists as it is for
/// flags. An event without a group has none.
#[test]
fn the_key_of_a_group_is_asked_for_like_a_property() {
    let server = start();
    let event = |name: &str, groups: Value| json!({"event": name, "distinct_id": "a", "properties": {"$groups": groups}});
    let sent = json!([
        event("e", json!({"company": "acme"})),
        event("e", json!({"company": "zeta", "channel": "general"})),
        event("e", json!({})),
    ]);
    assert_eq!(server.capture(&sent).status, 200);
    let results = |node: &Value| {
        let query = json!({"query": node, "refresh": "force_blocking"});
        let answer = server.post("/api/projects/@current/query/", &query);
        assert_eq!(answer.status, 200, "{node}: {answer}");
        answer.json()["results"].clone()
    };
    for (operator, value, expected) in [
        ("exact", json!("acme"), 1),
        ("exact", json!(["acme", "zeta"]), 2),
        ("is_not", json!("zzz"), 3),
        ("is_not", json!("acme"), 2),
        ("icontains", json!("ET"), 1),
        ("is_set", json!("is_set"), 2),
        ("is_not_set", json!("is_not_set"), 1),
    ] {
        let filter = json!([{"key": "$group_key", "type": "group", "group_type_index": 0, "operator": operator, "value": value}]);
        let trend = json!({"kind": "TrendsQuery", "series": [{"event": "e"}], "properties": filter, "dateRange": {"date_from": "-1d"},
                           "trendsFilter": {"display": "BoldNumber"}});
        assert_eq!(results(&trend)[0]["aggregated_value"], json!(expected), "{filter}");
        let list =
            json!({"kind": "EventsQuery", "select": ["uuid"], "event": "e", "properties": filter});
        assert_eq!(results(&list).as_array().unwrap().len(), expected, "{filter}");
    }
    let by_key = json!({"breakdown": "$group_key", "breakdown_type": "group", "breakdown_group_type_index": 0});
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": "e"}], "breakdownFilter": by_key, "dateRange": {"date_from": "-1d"},
                       "trendsFilter": {"display": "BoldNumber"}});
    let lines = results(&trend);
    let mut found: Vec<&str> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["breakdown_value"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["$$_posthog_breakdown_null_$$", "acme", "zeta"]);
}
