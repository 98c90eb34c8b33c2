//! The PostgreSQL port: who may sign in, what they see and for how long, and what statements may take. Clients are in
//! [`clients`], hostile ones in [`attacks`]; here a connection is written by hand ([`wire`]), so that each message is known.

mod attacks;
mod clients;
pub(crate) mod wire;

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{KEY, TOKEN, TestServer, patiently, within};
use crate::limits::{FREED_AT_ONCE, peak_mib};
use crate::postgres_port::wire::Session;

const KEYS: &str = "/api/personal_api_keys/";

/// It takes minutes over some hundred events.
const SLOW: &str = "SELECT count(*) FROM events a CROSS JOIN events b CROSS JOIN events c CROSS JOIN events d \
                    WHERE a.distinct_id || b.distinct_id || c.distinct_id || d.distinct_id = 'x'";

/// A server with the port on a free port.
fn start(settings: &[(&str, &str)]) -> TestServer {
    let port = ("WEIR_POSTGRES_LISTEN", "127.0.0.1:0");
    TestServer::start_with(&[&[port], settings].concat())
}

/// Events of three kinds, with numbers, texts and without.
fn events(count: usize) -> Value {
    let event = |n: usize| {
        let name = ["buy", "view", "help"][n % 3];
        let properties = match n % 4 {
            0 => json!({"n": n, "plan": "pro", "title": format!("it's \"{n}\"\t\\ é")}),
            1 => json!({"n": n as f64 / 8.0, "plan": null, "$session_id": format!("s{}", n % 7)}),
            2 => json!({"plan": ["a", {"b": n}]}),
            _ => json!({}),
        };
        let minute = n % 60;
        json!({"event": name, "distinct_id": format!("u{}", n % 11), "properties": properties,
               "timestamp": format!("2026-03-0{}T12:{minute:02}:00.{:03}Z", 1 + n % 5, n % 1000)})
    };
    json!((0..count).map(event).collect::<Vec<_>>())
}

fn send(server: &TestServer, count: usize) {
    let all = events(count);
    for part in all.as_array().unwrap().chunks(1000) {
        assert_eq!(server.capture(&json!(part)).status, 200);
    }
}

#[test]
fn a_key_opens_its_projects_and_nothing_else() {
    let server = start(&[]);
    let address = server.postgres();
    let (other, other_token) = server.project("Other Shop");
    let other = other.to_string();
    let body =
        json!({"api_key": other_token, "batch": [{"event": "secret", "distinct_id": "spy"}]});
    let sent =
        server.send("POST", "/batch/", &[("content-type", "application/json")], body.to_string());
    assert_eq!(sent.status, 200);
    assert_eq!(server.capture(&events(3)).status, 200);
    let scope = |scopes: &[&str]| server.key(&json!({"label": "x", "scopes": scopes}));
    let narrow = server.key(&json!({"label": "x", "scopes": ["query:read"], "scoped_teams": [1]}));
    let (reader, writer, person) =
        (scope(&["query:read"]), scope(&["query:write"]), scope(&["person:read"]));
    for (key, database, expected) in [
        (KEY, "1", Ok(())),
        (KEY, &*other, Ok(())),
        (KEY, "Other Shop", Ok(())),
        (KEY, "other shop", Err("3D000")),
        (KEY, "99", Err("3D000")),
        (KEY, "postgres", Err("3D000")),
        (&reader, "1", Ok(())),
        (&writer, "1", Ok(())),
        (&person, "1", Err("42501")),
        (&narrow, "1", Ok(())),
        (&narrow, &*other, Err("3D000")),
        (&narrow, "Other Shop", Err("3D000")),
        ("phx_wrong_key_0123456789abcdefghijklmnop", "1", Err("28P01")),
        (TOKEN, "1", Err("28P01")),
        ("", "1", Err("28P01")),
    ] {
        let opened = Session::open(address, key, database);
        let code = opened.as_ref().map(|_| ()).map_err(|error| error.code.as_str());
        assert_eq!(code, expected, "{key} {database}");
    }
    // Each project sees its own events.
    let names = |database: &str| {
        let mut session = Session::open(address, KEY, database).unwrap();
        session.rows("SELECT DISTINCT event FROM events ORDER BY event").unwrap()
    };
    assert_eq!(names("1"), [["buy"], ["help"], ["view"]]);
    assert_eq!(names("Other Shop"), [["secret"]]);
    let mut session = Session::open(address, KEY, "Other Shop").unwrap();
    let sql = "SELECT properties.x, count(*) FROM \"Other Shop\".public.events GROUP BY 1";
    assert_eq!(session.rows(sql).unwrap(), [["NULL", "1"]]);
    assert_eq!(session.rows("SELECT * FROM \"1\".public.events").unwrap_err().code, "42P01");
    // Nothing of the catalog is of another project, and no other database is told.
    let mut session = Session::open(address, &narrow, "1").unwrap();
    assert_eq!(session.rows("SELECT datname FROM pg_database").unwrap(), [["1"]]);
    assert_eq!(session.rows("SELECT count(*) FROM pg_stat_activity").unwrap(), [["0"]]);
    // A key is in no log and no error.
    let said = server.stderr();
    assert!(said.contains("signed in to the PostgreSQL port"), "{said}");
    for secret in [KEY, &reader, &person, "phx_wrong"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn wrong_keys_of_an_address_are_few() {
    let server = start(&[]);
    let address = server.postgres();
    let attempt =
        |key: &str| Session::open(address, key, "1").map(drop).map_err(|error| error.message);
    let refused: Vec<String> = (0..25).map(|_| attempt("phx_wrong").unwrap_err()).collect();
    let (first, last) = (&refused[0], &refused[24]);
    assert!(
        first.contains("no personal API key") && last.contains("too many attempts"),
        "{first}; {last}"
    );
    assert!(attempt(KEY).unwrap_err().contains("too many attempts"));
    assert!(server.metric("weir_postgres_sign_ins_total{outcome=\"throttled\"}") >= 5);
    assert_eq!(server.metric("weir_postgres_sign_ins_total{outcome=\"refused\"}"), 20);
}

/// Goal: an event is visible to the next statement, as over HTTP, and in every protocol.
#[test]
fn statements_read_what_was_acknowledged() {
    let server = start(&[]);
    let mut session = Session::open(server.postgres(), KEY, "1").unwrap();
    for n in 1..=20 {
        assert_eq!(
            server.capture(&json!([{"event": "e", "distinct_id": format!("u{n}")}])).status,
            200
        );
        assert_eq!(session.rows("SELECT count(*) FROM events").unwrap(), [[n.to_string()]]);
        assert_eq!(session.prepared("SELECT count(*) FROM persons").unwrap(), [[n.to_string()]]);
    }
}

#[test]
fn a_session_ends_with_its_key() {
    let server = start(&[]);
    send(&server, 400);
    let address = server.postgres();
    let key = || {
        let made = server.post(KEYS, &json!({"label": "x", "scopes": ["query:read"]})).created();
        let path = format!("{KEYS}{}/", made["id"].to_string().replace('"', ""));
        (made["value"].as_str().unwrap().to_owned(), path)
    };
    let ((value, path), (slow_value, slow_path)) = (key(), key());
    let mut session = Session::open(address, &value, "1").unwrap();
    let mut idle = Session::open(address, &value, "1").unwrap();
    let mut slow = Session::open(address, &slow_value, "1").unwrap();
    let mut other = Session::open(address, KEY, "1").unwrap();
    assert_eq!(session.rows("SELECT 1").unwrap(), [["1"]]);
    slow.send_query(SLOW);
    // Time for it to begin.
    thread::sleep(Duration::from_millis(300));
    for path in [&path, &slow_path] {
        assert_eq!(server.delete(path).status, 204);
    }
    // One that ran, the next statement, and a session that waits.
    assert_eq!(slow.answer().unwrap_err().code, "28000");
    assert_eq!(session.rows("SELECT 1").unwrap_err().code, "28000");
    let ended = within(Duration::from_secs(15), || idle.is_over().then_some(()));
    ended.expect("the idle session ends");
    assert_eq!(other.rows("SELECT 1").unwrap(), [["1"]]);
}

#[test]
fn limits_are_those_of_queries() {
    let settings = [
        ("WEIR_QUERY_ROWS_MAX", "100"),
        ("WEIR_QUERY_TIMEOUT", "2s"),
        ("WEIR_POSTGRES_CONNECTIONS_MAX", "3"),
        ("WEIR_KEY_ANALYTICS_REQUESTS_PER_MINUTE_MAX", "60"),
    ];
    let server = start(&settings);
    send(&server, 400);
    let address = server.postgres();
    let mut session = Session::open(address, KEY, "1").unwrap();
    let all = "SELECT uuid FROM events ORDER BY uuid";
    for (sql, code) in
        [(all, "54000"), (SLOW, "57014"), ("SELECT repeat(event, 100000000) FROM events", "53200")]
    {
        let failed = session.rows(sql).unwrap_err();
        assert_eq!(failed.code, code, "{sql}: {}", failed.message);
    }
    assert_eq!(session.prepared(all).unwrap_err().code, "54000");
    // What streams has no such limit.
    assert_eq!(session.copied(&format!("COPY ({all}) TO STDOUT")).unwrap().lines().count(), 400);
    session.rows("BEGIN").unwrap();
    session.rows(&format!("DECLARE c CURSOR FOR {all}")).unwrap();
    let mut fetched = Vec::new();
    loop {
        let rows = session.rows("FETCH 150 FROM c").unwrap();
        if rows.is_empty() {
            break;
        }
        fetched.extend(rows);
    }
    session.rows("COMMIT").unwrap();
    assert_eq!((fetched.len(), fetched.is_sorted()), (400, true));
    assert_eq!(session.suspended(all, 170).unwrap(), 400);
    // One connection too many.
    let _others = [(); 2].map(|()| Session::open(address, KEY, "1").unwrap());
    let full = Session::open(address, KEY, "1").map(drop).unwrap_err();
    assert_eq!(full.code, "53300");
    // Rates of keys count statements, too.
    let refused = (0..80).find_map(|_| session.rows("SELECT 1").err());
    assert_eq!(refused.expect("a refusal").code, "53400");
    assert!(server.metric("weir_postgres_statements_total{outcome=\"ok\"}") > 10);
    assert!(server.metric("weir_postgres_sent_bytes_total") > 10_000);
}

/// Goal: long answers take no memory that grows with them. Method: a copy and a cursor of some hundred megabytes, read by
/// nobody in particular.
#[test]
fn long_answers_take_little_memory() {
    let server = start(&[FREED_AT_ONCE]);
    send(&server, 500);
    let mut session = Session::open(server.postgres(), KEY, "1").unwrap();
    session.rows("SELECT count(*) FROM events").unwrap();
    let before = peak_mib(&server);
    let wide = "SELECT a.properties || b.properties || repeat('x', 800) AS wide FROM events a CROSS JOIN events b";
    session.send_query(&format!("COPY ({wide}) TO STDOUT"));
    let mut bytes = 0;
    loop {
        match session.message().expect("a message") {
            (b'd', body) => bytes += body.len(),
            (b'E', body) => panic!("{}", String::from_utf8_lossy(&body)),
            (b'Z', _) => break,
            _ => {}
        }
    }
    assert!(bytes > 200 << 20, "{bytes}");
    assert_eq!(session.suspended(wide, 10_000).unwrap(), 250_000);
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < 150, "{more} MiB");
}

#[test]
fn sessions_that_wait_for_long_are_closed() {
    let server = start(&[("WEIR_POSTGRES_IDLE_TIMEOUT", "1s"), ("WEIR_HEADER_TIMEOUT", "1s")]);
    let address = server.postgres();
    let mut session = Session::open(address, KEY, "1").unwrap();
    let mut stranger = Session::connect(address);
    patiently(|| session.is_over().then_some(())).expect("an idle session ends");
    patiently(|| stranger.is_over().then_some(())).expect("who does not sign in is closed");
    assert_eq!(session.last_error().as_deref(), Some("57P05"));
}

#[test]
fn a_clean_end_waits_for_statements() {
    let mut server = start(&[("WEIR_DRAIN_TIMEOUT", "10s")]);
    send(&server, 60);
    let address = server.postgres();
    let mut idle = Session::open(address, KEY, "1").unwrap();
    let mut session = Session::open(address, KEY, "1").unwrap();
    session.send_query(
        "SELECT count(*) FROM events a, events b, events c, events d \
         WHERE a.uuid || b.uuid <= c.uuid || d.uuid",
    );
    // Time for it to begin.
    thread::sleep(Duration::from_millis(300));
    let rows = thread::scope(|scope| {
        let running = scope.spawn(move || session.answer().map(|answer| answer.rows.len()));
        server.stop();
        running.join().unwrap()
    });
    assert_eq!(rows.map_err(|error| error.code), Ok(1));
    patiently(|| idle.is_over().then_some(())).expect("its end");
    assert_eq!(idle.last_error().as_deref(), Some("57P01"));
}

#[test]
fn addresses_of_others_need_tls() {
    let mut server = TestServer::stopped(&[("WEIR_POSTGRES_LISTEN", "0.0.0.0:0")]);
    let refused = server.try_start().unwrap_err();
    assert!(refused.contains("postgres-tls-cert"), "{refused}");
}
