//! Kept answers to insights, which must never be out of date, and those that come later.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use weir_base::clock::Clock;

use crate::harness::{TestServer, patiently};
use crate::owner::with;

const QUERY: &str = "/api/projects/1/query/";
const IDS: usize = 8;

fn trend(event: Option<&str>, more: &Value) -> Value {
    let mut node = json!({
        "kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": event, "math": "dau"}],
        "dateRange": {"date_from": "-7d"},
    });
    let fields = node.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    node
}

/// Questions whose answers depend on events, persons, groups, cohorts and settings.
fn questions(cohort: i64) -> Vec<Value> {
    let in_cohort = json!([{"key": "id", "type": "cohort", "value": cohort}]);
    let total = json!([{"kind": "EventsNode", "event": null, "math": "total"}]);
    vec![
        trend(None, &json!({})),
        trend(Some("buy"), &json!({"interval": "hour", "dateRange": {"date_from": "-24h"}})),
        trend(None, &json!({"series": total, "dateRange": {"date_from": "all"}})),
        trend(None, &json!({"properties": in_cohort})),
        trend(
            None,
            &json!({"breakdownFilter": {"breakdown_type": "cohort", "breakdown": [cohort, "all"]}}),
        ),
        trend(None, &json!({"breakdownFilter": {"breakdown_type": "person", "breakdown": "plan"}})),
        trend(None, &json!({"filterTestAccounts": true})),
        json!({"kind": "PathsQuery", "dateRange": {"date_from": "-2d"}}),
    ]
}

fn ask(server: &TestServer, question: &Value, refresh: &str) -> Value {
    let answer = server.post(QUERY, &json!({"query": question, "refresh": refresh}));
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

/// Does something that may change answers.
fn change(server: &TestServer, rng: &mut StdRng, cohort: i64) -> &'static str {
    let id = |rng: &mut StdRng| format!("d{}", rng.random_range(0..IDS));
    let plan = |rng: &mut StdRng| ["free", "paid", "trial"][rng.random_range(0..3)];
    let now =
        Clock::system().now().to_datetime() - chrono::TimeDelta::minutes(rng.random_range(0..600));
    let event = |name: &str, id: String, properties: Value| json!({"event": name, "distinct_id": id, "timestamp": now.to_rfc3339(), "properties": properties});
    match rng.random_range(0..9) {
        0..3 => {
            let name = ["buy", "view", "leave"][rng.random_range(0..3)];
            server.capture(&json!([event(name, id(rng), json!({}))]));
            "an event"
        }
        3 => {
            let new = json!({"$anon_distinct_id": format!("d{}", rng.random_range(IDS..2 * IDS))});
            server.capture(&json!([event("$identify", id(rng), new)]));
            "a merge"
        }
        4 => {
            let set = json!({"$set": {"plan": plan(rng)}});
            server.capture(&json!([event("$set", id(rng), set)]));
            "a property"
        }
        5 => {
            let people = server.get("/api/projects/1/persons/").json();
            if let Some(person) = people["results"].as_array().and_then(|people| people.first()) {
                let events = ["", "?delete_events=true"][rng.random_range(0..2)];
                let uuid = person["uuid"].as_str().expect("a uuid");
                let gone = server.delete(&format!("/api/projects/1/persons/{uuid}/{events}"));
                assert_eq!(gone.status, 202, "{gone}");
            }
            "a deletion"
        }
        6 => {
            let rule = json!({"key": "plan", "type": "person", "value": plan(rng)});
            let rule = json!({"properties": {"type": "AND", "values": [{"type": "AND", "values": [rule]}]}});
            let path = format!("/api/projects/1/cohorts/{cohort}/");
            let changed = server.patch(&path, &json!({"filters": rule}));
            assert_eq!(changed.status, 200, "{changed}");
            "a cohort"
        }
        7 => {
            let filters = json!([{"key": "plan", "type": "person", "value": plan(rng), "operator": "is_not"}]);
            let zone = ["UTC", "Asia/Tokyo"][rng.random_range(0..2)];
            let settings = json!({"test_account_filters": filters, "timezone": zone});
            let changed = server.patch("/api/projects/1/", &settings);
            assert_eq!(changed.status, 200, "{changed}");
            "settings"
        }
        _ => {
            assert!(server.weir(&["flush"]).output().expect("runs").status.success());
            "a flush"
        }
    }
}

fn cohort(server: &TestServer) -> i64 {
    let rule = json!({"key": "plan", "type": "person", "value": "paid"});
    let rule =
        json!({"properties": {"type": "AND", "values": [{"type": "AND", "values": [rule]}]}});
    let made = server.post("/api/projects/1/cohorts/", &json!({"name": "c", "filters": rule}));
    assert_eq!(made.status, 201, "{made}");
    made.json()["id"].as_i64().expect("an id")
}

#[test]
fn kept_answers_are_never_out_of_date() {
    let server = TestServer::start();
    let cohort = cohort(&server);
    let questions = questions(cohort);
    let mut rng = StdRng::seed_from_u64(61);
    let (mut kept, mut asked, mut done) = (0, 0, Vec::new());
    for _ in 0..250 {
        for _ in 0..rng.random_range(0..3) {
            done.push(change(&server, &mut rng, cohort));
        }
        let question = &questions[rng.random_range(0..questions.len())];
        let told = ask(&server, question, "blocking");
        let fresh = ask(&server, question, "force_blocking");
        assert_eq!(told["results"], fresh["results"], "{question} after {done:?}");
        assert_eq!(fresh["is_cached"], false);
        asked += 1;
        kept += u32::from(told["is_cached"] == true);
        // Cohorts are counted in the background, which makes their set another one.
        let again = ask(&server, question, "blocking");
        assert_eq!(again["results"], fresh["results"], "{question} after {done:?}");
    }
    assert!(kept > 10 && kept < asked, "{kept} of {asked}");
}

#[test]
fn what_has_not_changed_is_told_at_once() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let events: Vec<Value> = (0..2000)
        .map(|at| json!({"event": "buy", "distinct_id": format!("d{}", at % 50)}))
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let question = trend(Some("buy"), &json!({}));
    let first = ask(&server, &question, "blocking");
    assert_eq!((&first["is_cached"], &first["results"][0]["count"]), (&json!(false), &json!(50)));
    let token = other["api_token"].as_str().expect("a token");
    let event = json!({"api_key": token, "event": "buy", "distinct_id": "x"});
    let (clock, mut fastest) = (Clock::system(), Duration::MAX);
    for _ in 0..50 {
        // What happens in another project changes nothing here.
        let json_type = [("content-type", "application/json")];
        assert_eq!(server.send("POST", "/capture/", &json_type, event.to_string()).status, 200);
        let began = clock.monotonic();
        let again = ask(&server, &question, "blocking");
        fastest = fastest.min(clock.monotonic() - began);
        assert_eq!(again["is_cached"], true);
        for name in ["results", "last_refresh", "cache_key"] {
            assert_eq!(again[name], first[name]);
        }
    }
    assert!(fastest < Duration::from_millis(5), "{fastest:?}");
    let forced = ask(&server, &question, "force_cache");
    assert_eq!((&forced["is_cached"], &forced["results"]), (&json!(true), &first["results"]));

    // The other project has an answer of its own.
    let path = format!("/api/projects/{}/query/", other["id"]);
    let theirs = server.post(&path, &json!({"query": question, "refresh": "force_cache"})).json();
    assert!(theirs.get("results").is_none(), "{theirs}");
    assert!(theirs["cache_key"].is_string() && theirs["cache_key"] != first["cache_key"]);
    let theirs = server.post(&path, &json!({"query": question})).json();
    assert_eq!((&theirs["is_cached"], &theirs["results"][0]["count"]), (&json!(false), &json!(1)));

    // Its answer changes while time goes by, so it is not kept.
    let recent =
        json!([{"key": "joined", "type": "person", "operator": "is_date_after", "value": "-1h"}]);
    let question = trend(None, &json!({"properties": recent}));
    for _ in 0..2 {
        assert_eq!(ask(&server, &question, "blocking")["is_cached"], false);
    }
}

#[test]
fn without_memory_nothing_is_kept() {
    let server = TestServer::start_with(&[("WEIR_INSIGHT_CACHE_MAX_BYTES", "0B")]);
    let question = trend(None, &json!({}));
    for _ in 0..2 {
        assert_eq!(ask(&server, &question, "blocking")["is_cached"], false);
    }
    let missed = ask(&server, &question, "force_cache");
    assert!(missed.get("results").is_none(), "{missed}");
}

#[test]
fn answers_can_come_later() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    assert_eq!(server.capture(&json!([{"event": "buy", "distinct_id": "a"}])).status, 200);
    let question = trend(Some("buy"), &json!({}));
    let begin = |more: Value| {
        let mut body = json!({"query": question});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        server.post(QUERY, &body)
    };
    let status = |id: &str| server.get(&format!("{QUERY}{id}/"));
    let finished = |id: &str| {
        let done = patiently(|| Some(status(id)).filter(|answer| answer.status != 202));
        done.expect("it ends").json()["query_status"].clone()
    };
    let begun = begin(json!({"refresh": "async", "client_query_id": "mine"}));
    assert_eq!(begun.status, 202, "{begun}");
    let told = begun.json()["query_status"].clone();
    assert_eq!(
        (&told["id"], &told["complete"], &told["error"]),
        (&json!("mine"), &json!(false), &json!(false))
    );
    let done = finished("mine");
    assert_eq!((&done["complete"], &done["error"]), (&json!(true), &json!(false)));
    assert_eq!(done["results"]["results"][0]["count"], 1, "{done}");
    assert!(done["end_time"].is_string() && done["expiration_time"].is_string());

    // It was kept, too.
    let kept = begin(json!({"async": true}));
    assert_eq!((kept.status, &kept.json()["is_cached"]), (200, &json!(true)), "{kept}");
    let forced = begin(json!({"refresh": "force_async"}));
    assert_eq!(forced.status, 202, "{forced}");
    let id = forced.json()["query_status"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(finished(&id)["results"]["results"], done["results"]["results"]);

    // Of another project, cancelled, unknown.
    let theirs = server.get(&format!("/api/projects/{}/query/mine/", other["id"]));
    assert_eq!(theirs.status, 404, "{theirs}");
    let theirs = server.delete(&format!("/api/projects/{}/query/mine/", other["id"]));
    assert_eq!(theirs.status, 404, "{theirs}");
    let cancelled = server.delete(&format!("{QUERY}mine/"));
    assert!(cancelled.status == 200 && cancelled.json()["message"].is_string(), "{cancelled}");
    assert_eq!(status("mine").status, 200, "it had ended");
    assert_eq!(
        (status("other").status, server.delete(&format!("{QUERY}other/")).status),
        (404, 404)
    );

    // What is wrong with the question itself is told at once, and what shows later, later.
    let mut wrong = question.clone();
    wrong["interval"] = json!("year");
    let told = server.post(QUERY, &json!({"query": wrong, "refresh": "async"}));
    assert_eq!((told.status, &told.json()["attr"]), (400, &json!("query__interval")), "{told}");
    let mut long = question.clone();
    long["dateRange"] = json!({"date_from": "1990-01-01", "date_to": "2026-01-01"});
    let told =
        server.post(QUERY, &json!({"query": long, "refresh": "async", "client_query_id": "long"}));
    assert_eq!(told.status, 202, "{told}");
    let failed = finished("long");
    assert_eq!((&failed["complete"], &failed["error"]), (&json!(true), &json!(true)));
    assert!(
        failed["error_message"].as_str().is_some_and(|text| text.contains("intervals")),
        "{failed}"
    );
    assert_eq!(status("long").status, 400);
    for (body, attr) in [
        (json!({"refresh": "soon"}), "refresh"),
        (json!({"client_query_id": 4}), "client_query_id"),
    ] {
        let told = begin(body);
        assert_eq!((told.status, &told.json()["attr"]), (400, &json!(attr)), "{told}");
    }
}

#[test]
fn a_key_has_few_queries_at_once() {
    // One query at a time, and many events: the first ones keep the others waiting.
    let server = TestServer::start_with(&[("WEIR_QUERIES_MAX", "1")]);
    let events: Vec<Value> = (0..20_000)
        .map(
            |at| json!({"event": format!("e{}", at % 97), "distinct_id": format!("d{}", at % 500)}),
        )
        .collect();
    for part in events.chunks(5000) {
        assert_eq!(server.capture(&json!(part)).status, 200);
    }
    let mut seen = [0, 0];
    let mut running = Vec::new();
    for at in 0..60 {
        let question = json!({"kind": "PathsQuery", "pathsFilter": {"stepLimit": 20 + at}});
        let body = json!({"query": question, "refresh": "force_async", "client_query_id": format!("q{at}")});
        let begun = server.post(QUERY, &body);
        match begun.status {
            202 => seen[0] += 1,
            429 => {
                seen[1] += 1;
                assert_eq!(begun.json()["code"], "concurrency_limit_exceeded", "{begun}");
                continue;
            }
            _ => panic!("{begun}"),
        }
        running.push(format!("{QUERY}q{at}/"));
    }
    assert!(seen[0] >= 8 && seen[1] > 0, "{seen:?}");
    let last = running.last().expect("one");
    let gone = server.delete(last);
    assert_eq!(gone.status, 200, "{gone}");
    for path in &running {
        let ended = patiently(|| Some(server.get(path)).filter(|answer| answer.status != 202));
        let ended = ended.expect("it ends");
        assert!(matches!(ended.status, 200 | 400), "{ended}");
    }
}

/// Older clients get kept answers, too, with the addresses of their own request, and persons behind a point page by
/// page by numbers in the body.
#[test]
fn older_endpoints_tell_kept_answers_and_pages_by_their_bodies() {
    let server = TestServer::start();
    let now = Clock::system().now().to_datetime();
    let event = |name: &str, at: i32, minutes: i64| {
        let time = (now - chrono::TimeDelta::minutes(minutes)).to_rfc3339();
        json!({"event": name, "distinct_id": format!("d{at}"), "timestamp": time})
    };
    let events: Vec<Value> =
        (0..5).flat_map(|at| [event("look", at, 9), event("buy", at, 5)]).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let buy = json!([{"id": "buy", "type": "events", "order": 0}]);
    for (path, insight) in [
        ("trend", "TRENDS"),
        ("trend", "LIFECYCLE"),
        ("trend", "STICKINESS"),
        ("funnel", "FUNNELS"),
        ("retention", "RETENTION"),
        ("path", "PATHS"),
    ] {
        let body = json!({"insight": insight, "events": buy, "date_from": "-2d"});
        let ask = |more: &Value| {
            let mut body = body.clone();
            let fields = body.as_object_mut().expect("an object");
            fields.extend(more.as_object().expect("an object").clone());
            let answer = server.post(&format!("/api/projects/1/insights/{path}/"), &body);
            assert_eq!(answer.status, 200, "{insight}: {answer}");
            answer.json()
        };
        let first = ask(&json!({}));
        let again = ask(&json!({}));
        assert_eq!(
            (&first["is_cached"], &again["is_cached"]),
            (&json!(false), &json!(true)),
            "{insight}"
        );
        assert_eq!(first["result"], again["result"], "{insight}");
        assert_eq!(first["last_refresh"], again["last_refresh"], "{insight}");
        assert_eq!(ask(&json!({"refresh": true}))["is_cached"], false, "{insight}");
        assert_eq!(ask(&json!({"refresh": "force_blocking"}))["is_cached"], false, "{insight}");
        server.capture(&json!([{"event": "other", "distinct_id": "d0"}]));
        assert_eq!(ask(&json!({}))["is_cached"], false, "{insight}: something was captured");
    }
    let count = |answer: &Value| answer["results"][0]["count"].clone();
    for (path, more) in [("funnel", json!({"funnel_step": 1})), ("path", json!({}))] {
        let mut body = json!({"events": buy, "date_from": "-2d", "limit": 2, "offset": "2"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("more").clone());
        let path = format!("/api/projects/1/persons/{path}/");
        let page = server.post(&path, &body).json();
        assert_eq!(count(&page), 2, "{page}");
        let next = page["next"].as_str().expect("a next page");
        let next = next.find("/api/").map(|at| &next[at..]).expect("a path");
        let last = server.post(next, &body).json();
        assert_eq!((count(&last), &last["next"]), (json!(1), &Value::Null), "{last}");
        let all = server.post(&format!("{path}?limit=100&offset=0"), &body).json();
        assert_eq!(count(&all), 5, "{all}");
    }
}

/// Correlations, too, by nodes and by filters of older clients, whose links lead to the persons of their rows even where
/// the name of a row may be read in several ways.
#[test]
fn correlations_are_kept_and_can_come_later() {
    let server = TestServer::start();
    let now = Clock::system().now().to_datetime();
    let event = |name: &str, at: i32, minutes: i64, properties: Value| {
        let time = (now - chrono::TimeDelta::minutes(minutes)).to_rfc3339();
        json!({"event": name, "distinct_id": format!("d{at}"), "timestamp": time, "properties": properties})
    };
    let mut events = Vec::new();
    for at in 0..6 {
        let set = json!({"$set": {"plan": if at < 3 { "a::b" } else { "c" }, "x::y": "z"}});
        events.push(event("look", at, 30, set));
        events.push(event("ask", at, 20, json!({"where": "page::top"})));
        events.extend((at < 4).then(|| event("buy", at, 10, json!({}))));
    }
    assert_eq!(server.capture(&json!(events)).status, 200);
    let funnel = json!({"kind": "FunnelsQuery", "dateRange": {"date_from": "-2d"}, "series": [
        {"kind": "EventsNode", "event": "look"}, {"kind": "EventsNode", "event": "buy"}]});
    let question = json!({"kind": "FunnelCorrelationQuery", "funnelCorrelationType": "events",
        "source": {"kind": "FunnelsActorsQuery", "source": funnel}});
    let first = ask(&server, &question, "blocking");
    let again = ask(&server, &question, "blocking");
    assert_eq!((&first["is_cached"], &again["is_cached"]), (&json!(false), &json!(true)));
    assert_eq!(
        (&first["results"], first["results"]["events"].as_array().map(Vec::len)),
        (&again["results"], Some(1))
    );
    let begun = server
        .post(QUERY, &json!({"query": question, "refresh": "force_async", "client_query_id": "c"}));
    assert_eq!(begun.status, 202, "{begun}");
    let status = || Some(server.get(&format!("{QUERY}c/"))).filter(|answer| answer.status != 202);
    let ended = patiently(status).expect("it ends");
    assert_eq!(
        (ended.status, &ended.json()["query_status"]["results"]["results"]),
        (200, &first["results"]),
        "{ended}"
    );
    server.capture(&json!([event("ask", 0, 15, json!({}))]));
    assert_eq!(ask(&server, &question, "blocking")["is_cached"], false, "something was captured");

    let steps = json!([{"id": "look", "type": "events", "order": 0}, {"id": "buy", "type": "events", "order": 1}]);
    for more in [
        json!({"funnel_correlation_type": "events"}),
        json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["plan"]}),
        json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["x::y"]}),
        // `plan::a` may be a property with the value `b`: the subjects of rows are kept with them.
        json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["$all"]}),
        json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["ask"]}),
    ] {
        let mut body = json!({"insight": "FUNNELS", "events": steps, "date_from": "-2d"});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        let asked = || {
            let answer = server.post("/api/projects/1/insights/funnel/correlation/", &body);
            assert_eq!(answer.status, 200, "{answer}");
            answer.json()
        };
        let (first, again) = (asked(), asked());
        assert_eq!(
            (&first["is_cached"], &again["is_cached"]),
            (&json!(false), &json!(true)),
            "{more}"
        );
        assert_eq!(first["result"], again["result"], "{more}");
        for row in again["result"]["events"].as_array().expect("rows") {
            for (link, count) in
                [("success_people_url", "success_count"), ("failure_people_url", "failure_count")]
            {
                let page = server.get(&format!("/{}", row[link].as_str().expect("a link"))).json();
                assert_eq!(page["results"][0]["count"], row[count], "{more}: {row} {page}");
            }
        }
    }
}

/// Whoever is found by one of several distinct ids counts with the events of all of them.
#[test]
fn persons_found_by_a_distinct_id_count_all_their_events() {
    let mut server = TestServer::start();
    let now = Clock::system().now().to_datetime();
    let event = |name: &str, id: &str, minutes: i64, properties: Value| {
        let time = (now - chrono::TimeDelta::minutes(minutes)).to_rfc3339();
        json!({"event": name, "distinct_id": id, "timestamp": time, "properties": properties})
    };
    let batch = json!([
        event("buy", "Device-7", 30, json!({})),
        event("$identify", "ada", 20, json!({"$anon_distinct_id": "Device-7"})),
        event("buy", "ada", 10, json!({})),
        event("buy", "ada", 5, json!({})),
        event("buy", "bob", 5, json!({})),
        event("$set", "cleo", 5, json!({"$set": {"email": "cleo@device-7.com"}})),
        event("buy", "cleo", 5, json!({})),
    ]);
    assert_eq!(server.capture(&batch).status, 200);
    let source = trend(Some("buy"), &json!({"dateRange": {"date_from": "-2d"}}));
    let actors = json!({"kind": "ActorsQuery", "search": "device-7", "select": ["actor", "event_count"],
        "source": {"kind": "InsightActorsQuery", "source": source}});
    let older = "entity_id=buy&entity_type=events&date_from=-2d&search=DEVICE-7";
    for round in ["in memory", "in files"] {
        let told = server.post(QUERY, &json!({"query": actors})).json();
        let counts: Vec<_> =
            told["results"].as_array().expect("rows").iter().map(|row| row[1].clone()).collect();
        assert_eq!(
            counts.iter().map(Value::as_f64).collect::<Vec<_>>(),
            [Some(3.0), Some(1.0)],
            "{round}: {told}"
        );
        let told = server.get(&format!("/api/projects/1/persons/trends/?{older}")).json();
        let people = &told["results"][0]["people"];
        let values = [0, 1].map(|at: usize| people[at]["value_at_data_point"].as_f64());
        assert_eq!(
            (values, people.as_array().map(Vec::len)),
            ([Some(3.0), Some(1.0)], Some(2)),
            "{round}"
        );
        let body = json!({"events": [{"id": "buy", "order": 0}, {"id": "buy", "order": 1}, {"id": "buy", "order": 2}],
            "date_from": "-2d", "funnel_step": 3, "search": "device-7"});
        let told = server.post("/api/projects/1/persons/funnel/", &body).json();
        assert_eq!(told["results"][0]["count"], 1, "{round}: three steps need all events: {told}");
        for (operator, value, expected) in [
            ("icontains", "device", 4),
            ("exact", "ada", 4),
            ("is_not", "ada", 3),
            ("is_set", "", 7),
        ] {
            let filter = json!([{"key": "distinct_id", "type": "person_metadata", "operator": operator, "value": value}]);
            let path = with("/api/projects/1/events/", &format!("properties={filter}"));
            let told = server.get(&path).json();
            assert_eq!(
                told["results"].as_array().map(Vec::len),
                Some(expected),
                "{round}: {filter}: {told}"
            );
        }
        server.stop();
        server.restart();
    }
}
