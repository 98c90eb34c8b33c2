//! Lists and requests against servers that misbehave.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use url::Url;

use super::Pages;
use crate::server::{Call, Http, NoReply, Repeat, Reply, Server};

type Answers = dyn Fn(usize, &str) -> Result<Reply, NoReply> + Send + Sync;

/// Answers by a function of the number of the request and its path; notes what was asked and how long it waited.
struct Fake {
    base: Url,
    answer: Box<Answers>,
    asked: Mutex<Vec<String>>,
    paused: Mutex<Vec<Duration>>,
}

impl Http for Fake {
    fn base(&self) -> &Url {
        &self.base
    }

    fn send(&self, call: Call) -> BoxFuture<'_, Result<Reply, NoReply>> {
        let mut asked = self.asked.lock();
        let answer = (self.answer)(asked.len(), &call.path);
        asked.push(call.path);
        async move { answer }.boxed()
    }

    fn pause(&self, duration: Duration) -> BoxFuture<'_, ()> {
        self.paused.lock().push(duration);
        async {}.boxed()
    }
}

fn fake(
    answer: impl Fn(usize, &str) -> Result<Reply, NoReply> + Send + Sync + 'static,
) -> (Arc<Fake>, Server) {
    let fake = Arc::new(Fake {
        base: Url::parse("https://source.example/").unwrap(),
        answer: Box::new(answer),
        asked: Mutex::new(Vec::new()),
        paused: Mutex::new(Vec::new()),
    });
    (Arc::clone(&fake), Server::new("the source", fake))
}

fn reply(status: u16, body: &str) -> Result<Reply, NoReply> {
    Ok(Reply { status, retry_after: None, body: Bytes::from(body.to_owned()) })
}

fn list(
    answer: impl Fn(usize, &str) -> Value + Send + Sync + 'static,
) -> Result<Vec<Value>, String> {
    let (_, server) = fake(move |number, path| reply(200, &answer(number, path).to_string()));
    let listed = block_on(Pages::new(&server, "/api/projects/1/cohorts/?limit=2").all());
    listed.map_err(|fault| fault.to_string())
}

#[test]
fn pages_are_followed_to_the_end() {
    let next = |offset: usize| {
        // A server behind a proxy writes http, and some write only the path.
        let host = if offset == 2 { "http://source.example" } else { "" };
        format!("{host}/api/projects/1/cohorts/?limit=2&offset={offset}")
    };
    let pages = move |number: usize, path: &str| {
        assert_eq!(number > 0, path.contains("offset"), "{path}");
        let next = (number < 2).then(|| next((number + 1) * 2));
        json!({"results": [number, "x"], "next": next})
    };
    assert_eq!(list(pages).unwrap().len(), 6);
    assert_eq!(list(|_, _| json!([1, 2])).unwrap(), [json!(1), json!(2)]);
}

#[test]
fn pages_that_are_too_large_are_asked_for_in_parts() {
    let (http, server) = fake(|_, path| match path.split_once("limit=").unwrap().1 {
        "3&x=1" => {
            reply(200, "{\"results\": [1, 2, 3], \"next\": \"/api/y/?limit=3&x=1&offset=3\"}")
        }
        "3&x=1&offset=3" => reply(200, "{\"results\": [4], \"next\": null}"),
        _ => Err(NoReply::TooLarge),
    });
    let all = block_on(Pages::new(&server, "/api/y/?limit=12&x=1").all()).unwrap();
    assert_eq!((all.len(), http.asked.lock().len()), (4, 4));
    let (http, server) = fake(|_, _| Err(NoReply::TooLarge));
    assert!(block_on(Pages::new(&server, "/api/y/?limit=500").all()).is_err());
    assert_eq!(http.asked.lock().len(), 9);
}

#[test]
fn a_source_that_does_not_end_or_leads_away_is_an_error_that_says_where() {
    let page = |next: Value| json!({"results": [1], "next": next});
    for (answer, expected) in [
        (
            page(json!("https://evil.example/api/projects/1/cohorts/?limit=2")),
            "another host: evil.example",
        ),
        (page(json!("https://source.example:444/api/projects/1/cohorts/")), "another host"),
        (
            page(json!("https://source.example@evil.example/api/projects/1/cohorts/")),
            "another host",
        ),
        (page(json!("//evil.example/api/projects/1/cohorts/")), "another host: evil.example"),
        (page(json!("file:///etc/passwd")), "another host"),
        (page(json!("/api/projects/2/cohorts/")), "leads to /api/projects/2/cohorts/"),
        (page(json!("/api/projects/1/cohorts/?limit=2")), "in a circle"),
        (page(json!(7)), "not an address"),
        (json!({"results": {"a": 1}}), "no list of results"),
        (json!({"count": 3}), "no list of results"),
        (json!("x"), "no list of results"),
    ] {
        let told = answer.to_string();
        let error = list(move |_, _| answer.clone()).unwrap_err();
        assert!(error.contains(expected), "{told}: {error}");
        assert!(error.contains("the source: GET /api/projects/1/cohorts/"), "{error}");
    }
    let endless = |rows: Value| move |number: usize, _: &str| json!({"results": rows, "next": format!("/api/projects/1/cohorts/?offset={number}")});
    assert!(list(endless(json!([]))).unwrap_err().contains("one empty page follows the other"));
    assert!(list(endless(json!(vec![0; 5000]))).unwrap_err().contains("more than 100000 objects"));
}

#[test]
fn what_is_no_json_of_the_api_is_named() {
    for (status, body, expected) in [
        (200, "<html><body>Sign in</body></html>", "HTML instead of JSON"),
        (200, "", "an empty answer"),
        (200, "{\"results\": [", "no JSON"),
        (301, "", "a redirect"),
        (401, "{\"detail\": \"Invalid API key.\"}", "401: Invalid API key."),
        (403, "<h1>no</h1>", "403: an error without an explanation"),
        (404, "{\"detail\": \"\\u001b[31mred\\nline\"}", "404:  [31mred line"),
    ] {
        let (_, server) = fake(move |_, _| reply(status, body));
        let error = block_on(server.get("/api/x/")).unwrap_err().to_string();
        assert!(error.contains(expected), "{body}: {error}");
        assert!(error.starts_with("the source: GET /api/x/: "), "{error}");
    }
    let deep = "[".repeat(100_000);
    let (_, server) = fake(move |_, _| reply(200, &deep));
    assert!(block_on(server.get("/")).unwrap_err().to_string().contains("no JSON"));
    let (_, server) = fake(|_, _| Err(NoReply::TooLarge));
    assert!(
        block_on(server.get("/")).unwrap_err().to_string().contains("more than 67108864 bytes")
    );
}

#[test]
fn requests_wait_as_they_are_told_and_are_repeated_if_that_is_safe() {
    let wait = |status: u16, seconds: u64| Reply {
        status,
        retry_after: Some(Duration::from_secs(seconds)),
        body: Bytes::new(),
    };
    // Throttled twice, then broken once, then answered.
    let (http, server) = fake(move |number, _| match number {
        0 | 1 => Ok(wait(429, 7)),
        2 => Err(NoReply::Unreachable("reset".to_owned())),
        3 => reply(502, ""),
        _ => reply(200, "{}"),
    });
    assert!(block_on(server.get("/api/x/")).is_ok());
    assert_eq!(http.asked.lock().len(), 5);
    assert_eq!(http.paused.lock()[..2], [Duration::from_secs(7); 2]);
    // What makes something is not sent again after it may have been done.
    for (repeat, asked) in [(Repeat::IfRefused, 1), (Repeat::Always, 6)] {
        let (http, server) = fake(|_, _| Err(NoReply::Unreachable("reset".to_owned())));
        let sent = block_on(server.put("POST", "/api/x/", &json!({}), repeat));
        assert!(sent.unwrap_err().to_string().contains("no answer: reset"));
        assert_eq!(http.asked.lock().len(), asked);
    }
    let (http, server) = fake(move |number, _| match number {
        0 => Ok(wait(503, 1)),
        _ => reply(201, "{\"id\": 1}"),
    });
    assert!(block_on(server.put("POST", "/api/x/", &json!({}), Repeat::IfRefused)).is_ok());
    assert_eq!(http.asked.lock().len(), 2);
    // Nobody waits for a day, or for ever.
    let (http, server) = fake(move |_, _| Ok(wait(429, 86_400)));
    assert!(block_on(server.get("/api/x/")).is_err());
    assert_eq!(http.asked.lock().len(), 1);
    let (http, server) = fake(move |_, _| Ok(wait(429, 1)));
    assert!(block_on(server.get("/api/x/")).is_err());
    assert_eq!(http.asked.lock().len(), 61);
}
