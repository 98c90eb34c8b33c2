//! The page of a person says which event set each property, however long ago it was.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::TestServer;

const DAY_HOURS: i64 = 24;

/// The events to which the page links, by property.
fn told(server: &TestServer, who: &str) -> BTreeMap<String, String> {
    let answer = server.get(&format!("/project/1/person/{who}"));
    assert_eq!(answer.status, 200, "{answer}");
    let text = String::from_utf8(answer.body).expect("UTF-8");
    let all = text.split("Events that set the properties").nth(1).expect("the part");
    let all = all.split("</dl>").next().unwrap_or_default();
    let entry = |part: &str| {
        let name = part.split("</dt>").next().unwrap_or_default().to_owned();
        let id = part.split("/events/").nth(1).and_then(|rest| rest.split('"').next());
        (name, id.unwrap_or_default().replace("%2D", "-"))
    };
    all.split("<dt>").skip(1).map(entry).collect()
}

#[test]
fn each_property_has_the_event_that_set_it() {
    let server = TestServer::start();
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let uuid = |at: i64| format!("0192f0c1-7f3a-7000-8000-{at:012}");
    let event = |at: i64, who: &str, hours_ago: i64, properties: Value| {
        json!({"event": format!("event {at}"), "distinct_id": who, "uuid": uuid(at), "properties": properties,
            "timestamp": (now - chrono::TimeDelta::hours(hours_ago)).to_rfc3339()})
    };
    let mut events = vec![
        event(
            1,
            "ada",
            90 * DAY_HOURS,
            json!({"$set_once": {"source": "fair"}, "$browser": "Firefox"}),
        ),
        event(2, "ada", 80 * DAY_HOURS, json!({"$set": {"plan": "pro", "age": 7, "it's": "o'k"}})),
        event(
            3,
            "ada",
            70 * DAY_HOURS,
            json!({"$set": {"plan": "free"}, "$set_once": {"source": "fair"}}),
        ),
        event(4, "ada", 60 * DAY_HOURS, json!({"$set": {"plan": "pro"}, "$browser": "Chrome"})),
        event(5, "ada", 50 * DAY_HOURS, json!({"$browser": "Chrome", "utm_source": "letter"})),
        // Of somebody else, and without a person.
        event(6, "bob", 3, json!({"$set": {"age": 7}, "$browser": "Chrome"})),
        event(
            7,
            "ada",
            40 * DAY_HOURS,
            json!({"$process_person_profile": false, "$browser": "Chrome"}),
        ),
    ];
    // Far more than a page of newer ones.
    events.extend((0..500).map(|at| event(100 + at, "ada", 30 - at / 20, json!({"n": at}))));
    for part in events.chunks(100) {
        assert_eq!(server.capture(&part.iter().cloned().collect()).status, 200);
    }
    let properties = server.get("/api/projects/1/persons/?distinct_id=ada").json();
    let properties = &properties["results"][0]["properties"];
    assert_eq!((&properties["plan"], &properties["$browser"]), (&json!("pro"), &json!("Chrome")));
    let told = told(&server, "ada");
    for (name, expected) in [
        ("plan", 4),
        ("age", 2),
        ("it&#39;s", 2),
        ("source", 1),
        ("$browser", 5),
        ("$initial_browser", 1),
        ("utm_source", 5),
    ] {
        let name =
            if told.contains_key(name) { name.to_owned() } else { name.replace("&#39;", "'") };
        assert_eq!(told.get(&name), Some(&uuid(expected)), "{name}: {told:?} {properties}");
    }
}

/// A part of everybody is chosen by distinct id, so one person may have a flag with one id and not with another.
#[test]
fn flags_are_told_with_the_id_that_they_are_of() {
    let server = TestServer::start();
    let flag = json!({"key": "half", "filters": {"groups": [{"properties": [], "rollout_percentage": 50}]}});
    server.post("/api/projects/1/feature_flags/", &flag).created();
    let value = |id: &str| -> bool {
        let path = format!("/api/projects/1/feature_flags/evaluation_reasons/?distinct_id={id}");
        server.get(&path).json()["half"]["value"].as_bool().expect("a value")
    };
    let find = |wanted: bool| {
        (0..100).map(|at| format!("id-{at}")).find(|id| value(id) == wanted).expect("an id")
    };
    let (on, off) = (find(true), find(false));
    server.capture(&json!([
        {"event": "$identify", "distinct_id": on, "properties": {"$anon_distinct_id": off}},
        {"event": "seen", "distinct_id": "alone"},
    ]));
    assert_eq!(server.count("SELECT count(*) FROM person_distinct_ids"), 3);
    let flags = |path: &str| -> String {
        let answer = server.get(&format!("/project/1/person/{path}"));
        assert_eq!(answer.status, 200, "{answer}");
        let text = String::from_utf8(answer.body).expect("UTF-8");
        let all = text.split("Feature flags, now").nth(1).expect("the part");
        all.split("</table>").next().unwrap_or_default().to_owned()
    };
    for (path, id, expected) in [
        (on.clone(), &on, true),
        (off.clone(), &off, false),
        (format!("{on}?flags_of={off}"), &off, false),
        (format!("{off}?flags_of={on}"), &on, true),
        // Another person's id is not asked for.
        (format!("{on}?flags_of=alone"), &on, true),
    ] {
        let shown = flags(&path);
        let chosen =
            shown.split("<option value=\"").skip(1).find(|option| option.contains("\" selected"));
        let chosen = chosen.and_then(|option| option.split('"').next());
        let is_own = chosen.is_some_and(|own| [&on, &off].iter().any(|id| *id == own));
        assert!(is_own && (path.ends_with("=alone") || chosen == Some(id)), "{path}: {shown}");
        let expected =
            if path.ends_with("=alone") { value(chosen.unwrap_or_default()) } else { expected };
        assert!(shown.contains(&format!(">{expected}<")), "{path}: {shown}");
        assert!(!shown.contains("value=\"alone\""), "{shown}");
    }
    assert!(flags("alone").contains("the only one of this person"));
}
