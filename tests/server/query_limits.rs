//! Resource limits of SQL: memory, time, and the slots of other queries.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer, beside};
use crate::limits::{FREED_AT_ONCE, peak_mib};

const QUERY: &str = "/api/projects/1/query/";

fn ask(server: &TestServer, sql: &str) -> Answer {
    server.post(QUERY, &json!({"query": sql}))
}

/// Goal: whatever the SQL, the process stays within the sum of its settings. Method: queries that produce
/// gigabytes from a few words or rows, by functions, operators, constants, joins, lists, windows and
/// results. What fails: one of them is not refused, or memory is allocated before it is.
#[test]
fn sql_stays_within_its_memory() {
    let settings =
        [("WEIR_QUERY_MEMORY_MAX_BYTES", "64MiB"), ("WEIR_QUERY_TIMEOUT", "300s"), FREED_AT_ONCE];
    let server = TestServer::start_with(&settings);
    let event = |n: usize| {
        let properties = json!({"n": n, "text": "lorem ipsum ".repeat(80)});
        json!({"event": "e", "distinct_id": format!("u{n}"), "properties": properties})
    };
    for batch in 0..4 {
        let events: Vec<Value> = (batch * 3000..(batch + 1) * 3000).map(event).collect();
        assert_eq!(server.capture(&json!(events)).status, 200);
    }
    assert_eq!(server.count("SELECT count(*) FROM events"), 12_000);
    let before = peak_mib(&server);
    let long = "a".repeat(500_000);
    for sql in [
        "SELECT length(repeat('x', 1000000000))",
        "SELECT max(repeat(distinct_id, 30000)) FROM events",
        "SELECT array_length(range(1, 300000000))",
        "SELECT array_length(array_repeat(1, 300000000))",
        "SELECT max(replace(properties, 'o', repeat('y', 20000))) FROM events",
        "SELECT max(lpad(distinct_id, 100000, 'ab')) FROM events",
        "SELECT max(concat(properties, repeat('x', 60000), repeat('y', 60000))) FROM events",
        "SELECT encode(repeat('x', 700000000), 'hex')",
        "SELECT CAST(NULL AS BIGINT[1000000000])",
        &format!("SELECT a || '{long}' FROM (SELECT '{long}' || event AS a FROM events)"),
        "SELECT array_agg(a || b.event) FROM (SELECT repeat(event, 60000) AS a FROM events LIMIT 1) \
         CROSS JOIN events b",
        "SELECT a, unnest(range(1, 60000)) FROM (SELECT repeat(event, 60000) AS a FROM events LIMIT 1)",
        "SELECT max(length(a) + n) FROM (SELECT a, sum(length(a)) OVER () AS n FROM \
         (SELECT properties || distinct_id || properties || properties || properties || properties \
         || properties || properties || properties || properties || properties AS a FROM events))",
        "SELECT array_agg(properties || event) FROM events a CROSS JOIN (SELECT 1 FROM events LIMIT 9)",
        "SELECT repeat(properties, 10) AS a FROM events",
    ] {
        let answer = ask(&server, sql);
        assert_eq!(answer.status, 400, "{}: {answer}", &sql[..sql.len().min(200)]);
        let detail = answer.json()["detail"].clone();
        assert!(detail.is_string(), "{answer}");
    }
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < 400, "{more} MiB");
    // It goes on for others.
    assert_eq!(server.count("SELECT count(*) FROM events"), 12_000);
}

/// Goal: a join that does not fit into memory takes longer, and has the same result. Method: events joined
/// with the groups of all of them, in far less memory than the groups take. What fails: a query is refused,
/// or fits into memory after all, or its result differs from a plain computation.
#[test]
fn a_join_with_a_grouped_subquery_spills() {
    const PERSONS: usize = 20_000;
    let server = TestServer::start_with(&[
        ("WEIR_QUERY_MEMORY_MAX_BYTES", "16MiB"),
        ("WEIR_QUERY_TIMEOUT", "300s"),
    ]);
    // Person n has one to three events.
    let event = |n: usize| {
        let name = format!("kind {}", n % 7);
        let properties = json!({"n": n, "text": "lorem ipsum ".repeat(10)});
        json!({"event": name, "distinct_id": format!("person {}", n % PERSONS), "properties": properties})
    };
    const EVENTS: usize = 2 * PERSONS + PERSONS / 2;
    for from in (0..EVENTS).step_by(10_000) {
        let events: Vec<Value> = (from..(from + 10_000).min(EVENTS)).map(event).collect();
        assert_eq!(server.capture(&json!(events)).status, 200);
    }
    let replanned = || server.metric("weir_queries_replanned_total");
    let before = replanned();
    let answer = ask(
        &server,
        "SELECT e.event, s.n, count(*) AS events FROM events e \
         JOIN (SELECT distinct_id, count(*) AS n, max(properties) AS last FROM events GROUP BY 1) s \
         ON e.distinct_id = s.distinct_id WHERE s.last >= e.properties GROUP BY 1, 2 ORDER BY 1, 2",
    );
    assert_eq!(answer.status, 200, "{answer}");
    assert!(replanned() > before, "it fits");
    let mut expected: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for n in 0..EVENTS {
        let of_person = if n % PERSONS < PERSONS / 2 { 3 } else { 2 };
        *expected.entry((format!("kind {}", n % 7), of_person)).or_default() += 1;
    }
    let rows = String::from_utf8(answer.body).expect("UTF-8");
    let found = rows.lines().map(|row| {
        let row: Value = serde_json::from_str(row).expect("JSON");
        let number = |name: &str| row[name].as_u64().expect("a number");
        let event = row["event"].as_str().expect("a name").to_owned();
        ((event, number("n")), number("events"))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
    // The condition reads columns that the result does not have.
    let before = replanned();
    let answer = ask(
        &server,
        "SELECT count(*) AS pairs FROM events e \
         JOIN (SELECT distinct_id AS id, max(properties) AS last FROM events GROUP BY 1) s \
         ON e.distinct_id = s.id AND e.properties < s.last",
    );
    // All but the last of each person.
    assert_eq!((answer.status, answer.json()), (200, json!({"pairs": EVENTS - PERSONS})));
    assert!(replanned() > before, "it fits");
    // Persons of two events at least: a join that only asks whether there is another row.
    let before = replanned();
    let answer = ask(
        &server,
        "SELECT count(DISTINCT e.distinct_id) AS persons FROM events e \
         JOIN events f ON e.distinct_id = f.distinct_id AND e.properties < f.properties \
         JOIN (SELECT distinct_id AS id, max(properties) AS last FROM events GROUP BY 1) s \
         ON f.distinct_id = s.id AND f.properties <= s.last",
    );
    assert_eq!((answer.status, answer.json()), (200, json!({"persons": PERSONS})));
    assert!(replanned() > before, "it fits");
    // Of many groups, some plans of several partitions would never end if they spilled.
    for _ in 0..5 {
        let before = replanned();
        let answer = ask(
            &server,
            "SELECT count(*) AS persons, sum(k) AS events FROM (SELECT distinct_id, \
             count(DISTINCT properties) AS k FROM events GROUP BY distinct_id)",
        );
        let expected = json!({"persons": PERSONS, "events": EVENTS});
        assert_eq!((answer.status, answer.json()), (200, expected));
        assert!(replanned() > before, "it fits");
    }
}

/// Goal: a call that takes minutes in one step is refused before it begins, constant-folded or not.
#[test]
fn sql_stays_within_its_time() {
    let server = TestServer::start();
    assert_eq!(server.capture(&json!([{"event": "e", "distinct_id": "u"}])).status, 200);
    for sql in [
        "SELECT levenshtein(repeat('a', 400000), repeat('b', 400000))",
        "SELECT levenshtein(repeat(event, 400000), repeat(distinct_id, 400000)) FROM events",
        "SELECT strpos(repeat('éa', 300000), repeat('é', 300000))",
        "SELECT array_has_all(range(1, 200000), range(1, 200000))",
    ] {
        let answer = ask(&server, sql);
        assert_eq!(answer.status, 400, "{sql}: {answer}");
        assert!(answer.to_string().contains("takes too long"), "{sql}: {answer}");
    }
}

/// Goal: one key cannot take all slots, nor SQL those of lists. Method: more endless queries of one key than
/// there are slots; meanwhile other requests are answered. What fails: a response arrives only after the
/// server has stopped, which ends those queries.
#[test]
fn one_key_leaves_slots_to_others() {
    let settings = [("WEIR_QUERIES_MAX", "4"), ("WEIR_QUERY_TIMEOUT", "1h")];
    let mut server = TestServer::start_with(&settings);
    assert_eq!(server.capture(&json!([{"event": "e", "distinct_id": "u"}])).status, 200);
    let made = server.post("/api/personal_api_keys/", &json!({"label": "other", "scopes": ["*"]}));
    let other = made.json()["value"].as_str().expect("a value").to_owned();
    let (client, endless) = (server.client(), "SELECT count(*) FROM range(1, 1000000000000000)");
    let send = move |key: &str, sql: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", &*bearer), ("content-type", "application/json")];
        client.send("POST", QUERY, &headers, json!({"query": sql}).to_string().as_bytes())
    };
    let (ended, ends) = mpsc::channel();
    for _ in 0..6 {
        let ended = ended.clone();
        beside(move || {
            let answer = send(KEY, endless);
            let _ = ended.send(answer.map(|answer| answer.status).ok());
        });
    }
    // A refusal tells that the others are there: of those that wait, only so many may.
    let early = ends.recv_timeout(Duration::from_secs(2));
    assert!(early.is_err(), "{early:?}");
    let list = server.get("/api/projects/1/persons/");
    assert_eq!((list.status, &list.json()["results"][0]["distinct_ids"]), (200, &json!(["u"])));
    let sql = send(&other, "SELECT count(*) AS n FROM events").expect("an answer");
    assert_eq!(sql.json()["n"], 1, "{sql}");
    let flags = json!({"api_key": crate::harness::TOKEN, "distinct_id": "u"}).to_string();
    assert_eq!(server.send("POST", "/flags/?v=2", &[], flags).status, 200);
    assert!(ends.try_recv().is_err(), "all of the first key are still there");
    // Beyond a length of the line they are refused, and may come again.
    let mut refused = None;
    for _ in 0..64 {
        let ended = ended.clone();
        beside(move || {
            let answer = send(KEY, endless);
            let retry = answer.as_ref().ok().map(|answer| answer.header("retry-after").is_some());
            let _ =
                ended.send(answer.ok().map(|answer| answer.status).filter(|_| retry == Some(true)));
        });
    }
    if let Ok(status) = ends.recv_timeout(Duration::from_secs(60)) {
        refused = status;
    }
    assert_eq!(refused, Some(503), "too many wait");
    server.kill();
}

/// Cells with persons multiply what is stored once, and are part of the memory of queries as they are written.
#[test]
fn cells_of_lists_take_no_more_memory_than_queries_have() {
    let settings =
        [("WEIR_QUERY_MEMORY_MAX_BYTES", "64MiB"), ("WEIR_QUERY_TIMEOUT", "300s"), FREED_AT_ONCE];
    let server = TestServer::start_with(&settings);
    let large = json!({"$set": {"text": "x".repeat(100_000)}});
    let events: Vec<Value> = (0..3000)
        .map(|at| {
            let properties = if at == 0 { large.clone() } else { json!({}) };
            json!({"event": "look", "distinct_id": "d", "properties": properties})
        })
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let ask = |node: Value| server.post("/api/projects/1/query/", &json!({"query": node}));
    let list = |limit: usize| {
        json!({"kind": "EventsQuery", "select": ["person", "event"], "after": "all", "orderBy": ["timestamp DESC"],
               "limit": limit})
    };
    let few = ask(list(10));
    assert_eq!(few.status, 200);
    let text = few.json()["results"][9][0]["properties"]["text"].as_str().map(str::len);
    assert_eq!(text, Some(100_000));
    let before = peak_mib(&server);
    let persons = json!({"kind": "ActorsQuery", "select": ["person"], "limit": 50_000,
        "source": {"kind": "HogQLQuery", "query": "SELECT person_id FROM events"}});
    for node in [list(3000), persons] {
        for _ in 0..2 {
            let refused = ask(node.clone());
            let told = refused.json();
            assert_eq!(
                (refused.status, &told["type"]),
                (400, &json!("validation_error")),
                "{told}"
            );
            assert!(told["detail"].as_str().is_some_and(|text| text.contains("memory")), "{told}");
        }
    }
    let used = peak_mib(&server).saturating_sub(before);
    assert!(used < 200, "{used} MiB more");
}
