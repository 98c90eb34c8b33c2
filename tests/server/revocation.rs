//! What lasts ends with the right to it: streams, answers that come later, and questions whose askers wait end soon after
//! a key was revoked, a user signed out or was removed, or a token was replaced. What others asked goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TOKEN, TestServer, patiently, within};

const KEYS: &str = "/api/personal_api_keys/";
const MEMBERS: &str = "/api/organizations/@current/members/";
const QUERY: &str = "/api/projects/1/query/";
const LIVE: &str = "/project/1/activity/live/rows";

/// How long an answer may outlast the right to it.
const SOON: Duration = Duration::from_secs(15);

/// It takes minutes over some thousand events.
const SLOW: &str = "SELECT count(*) AS n FROM events a CROSS JOIN events b CROSS JOIN events c \
                    WHERE a.distinct_id || b.distinct_id || c.distinct_id = 'x'";

/// One open stream.
struct Stream {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Stream {
    fn open(server: &TestServer, path: &str, header: &str) -> Self {
        let url = server.url();
        let host = url.trim_start_matches("http://");
        let mut socket = TcpStream::connect(host).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{header}\r\n\r\n");
        socket.write_all(head.as_bytes()).expect("sent");
        let mut stream = Self { socket, received: Vec::new() };
        let begun = patiently(|| {
            stream.is_over();
            let text = String::from_utf8_lossy(&stream.received);
            assert!(text.is_empty() || text.starts_with("HTTP/1.1 200"), "{text}");
            (text.contains("connected") || text.contains("retry:")).then_some(())
        });
        begun.expect("a stream");
        stream
    }

    /// Reads what there is, and tells whether it was all: the last chunk, or the end of the connection.
    fn is_over(&mut self) -> bool {
        let mut piece = [0; 1 << 14];
        match self.socket.read(&mut piece) {
            Ok(0) => true,
            Ok(length) => {
                self.received.extend_from_slice(&piece[..length]);
                self.received.ends_with(b"0\r\n\r\n")
            }
            Err(_) => false,
        }
    }

    fn ends(&mut self) -> bool {
        within(SOON, || self.is_over().then_some(())).is_some()
    }
}

fn ask(server: &TestServer, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send(method, path, &headers, body.to_string())
}

/// A key of the first user: its value, and its path.
fn made_key(server: &TestServer) -> (String, String) {
    let made = server.post(KEYS, &json!({"label": "x", "scopes": ["query:read"]})).created();
    (made["value"].as_str().expect("a value").to_owned(), format!("{KEYS}{}/", made["id"]))
}

/// A new member: the path and the first key.
fn member(server: &TestServer, email: &str) -> (String, String) {
    let member = server.post(MEMBERS, &json!({"email": email, "level": 1})).created();
    let key = member["personal_api_key"].as_str().expect("a key").to_owned();
    (format!("{MEMBERS}{}/", member["id"].as_str().expect("an id")), key)
}

/// The secret part of a link that signs a user in.
fn link(server: &TestServer, email: &str) -> String {
    let output = server.weir(&["login", "--email", email]).output().expect("weir login");
    assert!(output.status.success(), "{output:?}");
    let link = String::from_utf8(output.stdout).expect("UTF-8");
    link.trim().split_once("?link=").expect("a link").1.to_owned()
}

fn send_form(server: &TestServer, path: &str, cookie: &str, form: &str) -> Answer {
    let origin = server.url();
    let headers = [
        ("origin", origin.as_str()),
        ("cookie", cookie),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    server.send("POST", path, &headers, form)
}

/// The cookie of whoever uses a link.
fn cookie(server: &TestServer, link: &str) -> String {
    let answer = send_form(server, "/login", "", &format!("link={link}"));
    let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("{answer}"));
    cookie.split(';').next().expect("a pair").to_owned()
}

#[test]
fn streams_end_with_the_right_to_them() {
    let server = TestServer::start();
    let first = server.get("/api/users/@me/").json()["email"].as_str().expect("one").to_owned();
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let (key, key_path) = made_key(&server);
    let (mel, mel_key) = member(&server, "mel@acme.com");
    let bearer = |key: &str| format!("authorization: Bearer {key}");
    let cookies =
        [cookie(&server, &link(&server, &first)), cookie(&server, &link(&server, &first))];
    let of_mel = cookie(&server, &link(&server, "mel@acme.com"));
    let by_cookie = |cookie: &str| Stream::open(&server, LIVE, &format!("cookie: {cookie}"));
    let flags = |token: &str| {
        Stream::open(
            &server,
            &format!("/flags/events?token={token}"),
            &format!("x-api-key: {token}"),
        )
    };
    let mut going_on = [
        Stream::open(&server, LIVE, &bearer(KEY)),
        by_cookie(&cookies[1]),
        flags(other["api_token"].as_str().expect("a token")),
    ];
    let mut ending = [
        ("key", Stream::open(&server, LIVE, &bearer(&key))),
        ("session", by_cookie(&cookies[0])),
        ("key of a member", Stream::open(&server, LIVE, &bearer(&mel_key))),
        ("session of a member", by_cookie(&of_mel)),
        ("token", flags(TOKEN)),
    ];
    assert_eq!(server.delete(&key_path).status, 204);
    assert_eq!(send_form(&server, "/logout", &cookies[0], "").status, 303);
    assert_eq!(server.delete(&mel).status, 204);
    assert_eq!(server.patch("/api/projects/1/reset_token/", &json!({})).status, 200);
    for (by, stream) in &mut ending {
        assert!(stream.ends(), "by {by}");
    }
    // Two looks later.
    thread::sleep(Duration::from_secs(5));
    assert!(going_on.iter_mut().all(|stream| !stream.is_over()));
}

#[test]
fn questions_end_with_the_right_to_them() {
    let settings = [("WEIR_QUERY_TIMEOUT", "300s"), ("WEIR_QUERIES_MAX", "4")];
    let server = TestServer::start_with(&settings);
    let event = |n: usize| json!({"event": "e", "distinct_id": format!("u{n}")});
    let events: Vec<Value> = (0..5000).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let node = json!({"kind": "HogQLQuery", "query": SLOW});
    let later = |key: &str, id: &str| {
        let body = json!({"query": node, "refresh": "force_async", "client_query_id": id});
        let begun = ask(&server, key, "POST", QUERY, &body);
        assert_eq!(begun.status, 202, "{begun}");
    };
    let (key, path) = made_key(&server);
    later(&key, "theirs");
    later(KEY, "mine");
    let waiting = thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&server, &key, "POST", QUERY, &json!({"query": SLOW})));
        thread::sleep(Duration::from_secs(2));
        assert_eq!(server.delete(&path).status, 204);
        waiting.join().expect("an answer")
    });
    assert_eq!((waiting.status, &waiting.json()["code"]), (401, &json!("authentication_failed")));
    let ended = within(SOON, || {
        let told = server.get(&format!("{QUERY}theirs/"));
        (told.status != 202).then(|| told.json()["query_status"].clone())
    });
    let ended = ended.expect("it ends");
    assert_eq!((&ended["complete"], &ended["error"]), (&json!(true), &json!(true)), "{ended}");
    let detail = ended["error_message"].as_str().expect("a text");
    assert!(detail.contains("has ended"), "{detail}");
    assert_eq!(server.get(&format!("{QUERY}mine/")).status, 202);
    assert_eq!(server.delete(&format!("{QUERY}mine/")).status, 200);
}

/// Goal: whoever may ask questions cancels those of nobody else, by no endpoint. Who has all rights of an admin may.
#[test]
fn a_question_is_cancelled_by_whoever_asked_it() {
    let settings = [("WEIR_QUERY_TIMEOUT", "300s"), ("WEIR_QUERIES_MAX", "4")];
    let server = TestServer::start_with(&settings);
    let event = |n: usize| json!({"event": "e", "distinct_id": format!("u{n}")});
    let events: Vec<Value> = (0..5000).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let (own, _) = made_key(&server);
    let (_, mel) = member(&server, "mel@acme.com");
    let narrow = server.post(KEYS, &json!({"label": "x", "scopes": ["insight:read"]})).created();
    let narrow = narrow["value"].as_str().expect("a value").to_owned();
    let body = json!({"query": {"kind": "HogQLQuery", "query": SLOW}, "refresh": "force_async", "client_query_id": "q"});
    let begin = || {
        let begun = ask(&server, &own, "POST", QUERY, &body);
        assert_eq!(begun.status, 202, "{begun}");
    };
    let path = format!("{QUERY}q/");
    let named = json!({"client_query_id": "q"});
    let older =
        |key: &str| ask(&server, key, "POST", "/api/projects/1/insights/cancel/", &named).status;
    let cancel = |key: &str| ask(&server, key, "DELETE", &path, &Value::Null).status;
    let state = || server.get(&path).status;
    begin();
    assert_eq!([older(&narrow), older(&mel), cancel(&mel)], [403; 3]);
    assert_eq!(state(), 202, "it runs");
    assert_eq!((cancel(&own), state()), (200, 400));
    begin();
    assert_eq!((cancel(KEY), state()), (200, 400), "by the owner");
    assert_eq!((older(&narrow), cancel(&mel)), (201, 200), "it has ended");
}

#[test]
fn who_was_removed_and_added_again_has_to_sign_in() {
    let server = TestServer::start();
    let email = "mel@acme.com";
    let (mel, _) = member(&server, email);
    let old = cookie(&server, &link(&server, email));
    let unused = link(&server, email);
    let see = |cookie: &str| {
        let answer = server.send("GET", "/project/1/settings", &[("cookie", cookie)], "");
        answer.status
    };
    assert_eq!(see(&old), 200);
    assert_eq!(server.delete(&mel).status, 204);
    assert_eq!(see(&old), 303);
    assert_eq!(member(&server, email).0, mel);
    assert_eq!(see(&old), 303, "the cookie of before");
    let late = send_form(&server, "/login", "", &format!("link={unused}"));
    assert_eq!((late.status, late.header("set-cookie")), (403, None), "{late}");
    assert_eq!(see(&cookie(&server, &link(&server, email))), 200);
}
