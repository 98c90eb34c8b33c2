//! Kept answers to SQL and to lists of events and actors, which must never be out of date, and those that come later.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, patiently};

const QUERY: &str = "/api/projects/1/query/";
const IDS: usize = 6;

/// Questions whose answers stay right until something changes.
fn lasting() -> Vec<Value> {
    let sql = |text: &str| json!({"kind": "HogQLQuery", "query": text});
    let trend = json!({"kind": "TrendsQuery", "series": [{"event": "buy"}], "dateRange": {"date_from": "all"}});
    let source = json!({"kind": "InsightActorsQuery", "source": trend});
    vec![
        sql(
            "SELECT event, count() AS n, uniq(person_id) FROM events GROUP BY event ORDER BY event",
        ),
        sql(
            "SELECT uuid, person.properties.plan FROM events ORDER BY timestamp DESC, uuid LIMIT 5",
        ),
        json!({"kind": "DataVisualizationNode", "source": sql("SELECT properties.plan AS plan, count() FROM persons GROUP BY plan ORDER BY plan")}),
        json!({"kind": "HogQLQuery", "query": "SELECT count() FROM events WHERE {filters}",
               "filters": {"dateRange": {"date_from": "-7d"}, "filterTestAccounts": true}}),
        sql("SELECT count(*), max(toStartOfDay(timestamp)) FROM sessions, events"),
        json!({"kind": "EventsQuery", "after": "all", "before": "2036-01-01", "select": ["*", "person"], "orderBy": ["timestamp DESC", "uuid"]}),
        json!({"kind": "EventsQuery", "after": "2020-01-01", "before": "2036-01-01", "filterTestAccounts": true,
               "select": ["person_display_name", "count()"], "orderBy": ["count() DESC", "distinct_id", "person_id"]}),
        json!({"kind": "ActorsQuery", "select": ["id", "properties.plan", "person"], "orderBy": ["id"]}),
        json!({"kind": "ActorsQuery", "select": ["id"], "properties": [{"key": "plan", "value": "paid"}]}),
        json!({"kind": "ActorsQuery", "source": sql("SELECT person_id FROM events WHERE event = 'buy' GROUP BY person_id"), "orderBy": ["id"]}),
        json!({"kind": "ActorsQuery", "source": source, "select": ["id", "event_count"]}),
        json!({"kind": "ActorsQuery", "source": source, "select": ["id", "properties.plan"], "orderBy": ["id"]}),
        source,
    ]
}

fn ask(server: &TestServer, query: &Value, refresh: &str) -> Value {
    let answer = server.post(QUERY, &json!({"query": query, "refresh": refresh}));
    assert_eq!(answer.status, 200, "{query}: {answer}");
    answer.json()
}

/// An answer without what tells when it was made.
fn content(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().expect("an object");
    for name in ["is_cached", "last_refresh", "next_allowed_client_refresh", "timings"] {
        assert!(fields.remove(name).is_some(), "{name}");
    }
    answer
}

fn change(server: &TestServer, rng: &mut StdRng) -> &'static str {
    let id = |rng: &mut StdRng| format!("d{}", rng.random_range(0..IDS));
    let plan = |rng: &mut StdRng| ["free", "paid", "trial"][rng.random_range(0..3)];
    let send = |event: Value| assert_eq!(server.capture(&json!([event])).status, 200);
    match rng.random_range(0..7) {
        0 => {
            let name = ["buy", "view"][rng.random_range(0..2)];
            let properties = json!({"$session_id": id(rng)});
            send(json!({"event": name, "distinct_id": id(rng), "properties": properties}));
            "an event"
        }
        1 => {
            let new = json!({"$anon_distinct_id": format!("d{}", rng.random_range(IDS..2 * IDS))});
            send(json!({"event": "$identify", "distinct_id": id(rng), "properties": new}));
            "a merge"
        }
        2 => {
            let set = json!({"$set": {"plan": plan(rng)}});
            send(json!({"event": "$set", "distinct_id": id(rng), "properties": set}));
            "a property"
        }
        3 => {
            let people = server.get("/api/projects/1/persons/").json();
            if let Some(person) = people["results"].as_array().and_then(|people| people.first()) {
                let events = ["", "?delete_events=true"][rng.random_range(0..2)];
                let uuid = person["uuid"].as_str().expect("a uuid");
                let gone = server.delete(&format!("/api/projects/1/persons/{uuid}/{events}"));
                assert_eq!(gone.status, 202, "{gone}");
            }
            "a deletion"
        }
        4 => {
            let filters = json!([{"key": "plan", "type": "person", "value": plan(rng), "operator": "is_not"}]);
            let zone = ["UTC", "Asia/Tokyo"][rng.random_range(0..2)];
            let settings = json!({"test_account_filters": filters, "timezone": zone});
            assert_eq!(server.patch("/api/projects/1/", &settings).status, 200);
            "settings"
        }
        5 => {
            let names = [json!(null), json!(["plan"])][rng.random_range(0..2)].clone();
            let settings = json!({"person_display_name_properties": names});
            assert_eq!(server.patch("/api/projects/1/", &settings).status, 200);
            "names"
        }
        _ => {
            assert!(server.weir(&["flush"]).output().expect("runs").status.success());
            "a flush"
        }
    }
}

#[test]
fn kept_rows_are_never_out_of_date() {
    let server = TestServer::start();
    let questions = lasting();
    let mut rng = StdRng::seed_from_u64(17);
    let mut question = &questions[0];
    let (mut kept, mut asked, mut done) = (0, 0, Vec::new());
    for _ in 0..200 {
        for _ in 0..rng.random_range(0..3) {
            done.push(change(&server, &mut rng));
        }
        if rng.random_bool(0.5) {
            question = &questions[rng.random_range(0..questions.len())];
        }
        let told = ask(&server, question, "blocking");
        let fresh = ask(&server, question, "force_blocking");
        assert_eq!(fresh["is_cached"], false);
        kept += u32::from(told["is_cached"] == true);
        asked += 1;
        assert_eq!(content(told), content(fresh), "{question} after {done:?}");
    }
    assert!(kept > 10 && kept < asked, "{kept} of {asked}");
}

#[test]
fn rows_are_told_again_until_something_changes() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let token = other["api_token"].as_str().expect("a token");
    let buy =
        |id: &str| json!({"event": "buy", "distinct_id": id, "properties": {"$session_id": "s"}});
    assert_eq!(server.capture(&json!([buy("a"), buy("b")])).status, 200);
    for question in lasting() {
        let first = ask(&server, &question, "blocking");
        assert_eq!(first["is_cached"], false, "{question}");
        // What happens in another project changes nothing here.
        let theirs = json!({"api_key": token, "event": "buy", "distinct_id": "x"});
        let json_type = [("content-type", "application/json")];
        assert_eq!(server.send("POST", "/capture/", &json_type, theirs.to_string()).status, 200);
        for refresh in ["blocking", "async", "lazy_async", "force_cache"] {
            let again = ask(&server, &question, refresh);
            assert_eq!(again["is_cached"], true, "{refresh}: {question}");
            assert_eq!(again["last_refresh"], first["last_refresh"]);
            assert_eq!(content(again), content(first.clone()), "{refresh}: {question}");
        }
        // The other project has an answer of its own.
        let path = format!("/api/projects/{}/query/", other["id"]);
        let missed =
            server.post(&path, &json!({"query": question, "refresh": "force_cache"})).json();
        assert!(missed.get("results").is_none() && missed["cache_key"].is_string(), "{missed}");
        let own = server.post(&path, &json!({"query": question})).json();
        assert_eq!(own["is_cached"], false, "{own}");
        assert_ne!(own["cache_key"], first["cache_key"]);
        assert_eq!(server.capture(&json!([buy("a")])).status, 200);
        let later = ask(&server, &question, "blocking");
        assert_eq!(later["is_cached"], false, "{question}");
    }
    // Saved ones are kept as well.
    let saved = json!({"name": "n", "query": {"kind": "HogQLQuery", "query": "SELECT count() FROM events"}});
    let saved = server.post("/api/projects/1/insights/", &saved).created();
    let path = format!("/api/projects/1/insights/{}/", saved["id"]);
    assert_eq!(server.get(&path).json()["result"], Value::Null);
    let first = server.get(&format!("{path}?refresh=blocking")).json();
    assert_eq!(first["is_cached"], false, "{first}");
    let again = server.get(&path).json();
    assert_eq!((&again["is_cached"], &again["result"]), (&json!(true), &first["result"]));
    assert_eq!(again["columns"], first["columns"]);
    let list = json!({"name": "n", "query": {"kind": "DataTableNode", "source": {"kind": "EventsQuery", "select": ["event", "count()"]}}});
    let list = server.post("/api/projects/1/insights/", &list).created();
    let told =
        server.get(&format!("/api/projects/1/insights/{}/?refresh=blocking", list["id"])).json();
    assert_eq!(told["columns"], json!(["event", "count()"]), "{told}");
    assert_eq!(told["result"][0][0], "buy", "{told}");
}

#[test]
fn what_may_change_by_itself_is_not_kept() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([{"event": "buy", "distinct_id": "a"}])).status, 200);
    let sql = |text: &str| json!({"kind": "HogQLQuery", "query": text});
    let recent =
        json!([{"key": "joined", "type": "person", "operator": "is_date_after", "value": "-1h"}]);
    for question in [
        sql("SELECT now()"),
        sql("SELECT count() FROM events WHERE timestamp > now() - toIntervalHour(1)"),
        sql("SELECT today() FROM events"),
        sql("SELECT random()"),
        sql("SELECT (SELECT count() FROM events WHERE timestamp < current_timestamp)"),
        sql("SELECT count() FROM event_definitions"),
        sql("SELECT e.event FROM events e JOIN property_definitions p ON p.name = e.event"),
        sql("SELECT count() FROM ingestion_warnings"),
        sql("SELECT table_name FROM information_schema.tables"),
        sql("EXPLAIN SELECT count(*) FROM events"),
        json!({"kind": "HogQLQuery", "query": "SELECT count() FROM events WHERE {filters}", "filters": {"properties": recent}}),
        json!({"kind": "EventsQuery", "after": "all", "before": "2036-01-01", "select": ["now()"]}),
        json!({"kind": "EventsQuery", "after": "all", "before": "2036-01-01", "where": ["timestamp < now()"]}),
        json!({"kind": "EventsQuery", "after": "all", "before": "2036-01-01", "orderBy": ["random()"]}),
        json!({"kind": "EventsQuery", "after": "all", "before": "2036-01-01", "properties": recent}),
        json!({"kind": "ActorsQuery", "properties": recent}),
        json!({"kind": "ActorsQuery", "select": ["id", "now()"]}),
        json!({"kind": "ActorsQuery", "source": sql("SELECT person_id FROM events WHERE timestamp < now()")}),
    ] {
        for _ in 0..2 {
            assert_eq!(ask(&server, &question, "blocking")["is_cached"], false, "{question}");
        }
        let missed = ask(&server, &question, "force_cache");
        assert!(missed.get("results").is_none(), "{question}: {missed}");
    }
    // What is longer than the cache is not kept, either.
    let small = TestServer::start_with(&[("WEIR_INSIGHT_CACHE_MAX_BYTES", "1MiB")]);
    let long = sql("SELECT repeat('x', 2000000)");
    for _ in 0..2 {
        assert_eq!(ask(&small, &long, "blocking")["is_cached"], false);
    }
    let short = sql("SELECT repeat('x', 100)");
    assert_eq!(ask(&small, &short, "blocking")["is_cached"], false);
    assert_eq!(ask(&small, &short, "blocking")["is_cached"], true);
}

#[test]
fn rows_can_come_later() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    assert_eq!(server.capture(&json!([{"event": "buy", "distinct_id": "a"}])).status, 200);
    let status = |id: &str| server.get(&format!("{QUERY}{id}/"));
    let finished = |id: &str| -> Answer {
        patiently(|| Some(status(id)).filter(|answer| answer.status != 202)).expect("it ends")
    };
    for (at, question) in lasting().into_iter().enumerate() {
        let id = format!("rows-{at}");
        let body = json!({"query": question, "refresh": "async", "client_query_id": id});
        let begun = server.post(QUERY, &body);
        assert_eq!(begun.status, 202, "{question}: {begun}");
        let begun = begun.json()["query_status"].clone();
        let head = (&begun["id"], &begun["complete"], &begun["results"]);
        assert_eq!(head, (&json!(id), &json!(false), &Value::Null));
        let done = finished(&id);
        assert_eq!(done.status, 200, "{question}: {done}");
        let done = done.json()["query_status"].clone();
        assert_eq!((&done["complete"], &done["error"]), (&json!(true), &json!(false)));
        let now = ask(&server, &question, "blocking");
        assert_eq!(now["is_cached"], true, "{question}: it was kept, too");
        assert_eq!(content(done["results"].clone()), content(now), "{question}");
        let theirs = server.get(&format!("/api/projects/{}/query/{id}/", other["id"]));
        assert_eq!(theirs.status, 404, "{theirs}");
    }
    // What is wrong with a node is told at once, and what planning finds, later.
    let wrong = json!({"query": {"kind": "EventsQuery", "select": ["event,"]}, "refresh": "async"});
    let told = server.post(QUERY, &wrong);
    assert_eq!((told.status, &told.json()["attr"]), (400, &json!("query__select")), "{told}");
    for (id, query, words) in [
        ("none", json!({"kind": "HogQLQuery", "query": "SELECT nothing FROM events"}), "nothing"),
        (
            "rows",
            json!({"kind": "HogQLQuery", "query": "SELECT repeat('x', 4500000 + value) FROM range(1, 9)"}),
            "longer than",
        ),
        ("list", json!({"kind": "EventsQuery", "select": ["nothing"]}), "nothing"),
    ] {
        let body = json!({"query": query, "refresh": "force_async", "client_query_id": id});
        assert_eq!(server.post(QUERY, &body).status, 202, "{query}");
        let failed = finished(id);
        let told = failed.json()["query_status"].clone();
        assert_eq!((failed.status, &told["error"]), (400, &json!(true)), "{told}");
        let message = told["error_message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{query}: {message}");
    }
    // One that takes long ends when it is cancelled.
    let long =
        "SELECT sum(a.value * b.value) FROM range(1, 10000000) a CROSS JOIN range(1, 10000000) b";
    let body = json!({"query": {"kind": "HogQLQuery", "query": long}, "refresh": "async", "client_query_id": "long"});
    assert_eq!(server.post(QUERY, &body).status, 202);
    assert_eq!(status("long").status, 202);
    let cancelled = server.delete(&format!("{QUERY}long/"));
    assert!(cancelled.status == 200 && cancelled.json()["message"].is_string(), "{cancelled}");
    let told = status("long");
    assert_eq!(told.status, 400, "{told}");
    assert_eq!(told.json()["query_status"]["error_message"], "The query was cancelled.");
    assert_eq!(
        ask(&server, &json!({"kind": "HogQLQuery", "query": "SELECT 1"}), "blocking")["results"],
        json!([[1]])
    );
}
