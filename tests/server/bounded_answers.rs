//! Lists and shared boards with as much in them as may be: pages end at their bytes and lose nothing, one request and many
//! at once take memory within the budget, and capture is answered beside them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Answer, TestServer};
use crate::limits::{FREED_AT_ONCE, peak_mib};

const BASE: &str = "/api/projects/@current";

/// About the longest fields that one document may have, as many small values.
fn heavy(number: usize) -> Value {
    let source = json!({"kind": "HogQLQuery", "query": "SELECT 1", "values": {"odd": vec![json!({"a": 1}); 7_000]}});
    json!({"name": format!("insight {number}"), "query": {"kind": "DataTableNode", "source": source}})
}

/// The path of a link, as the server of the link is asked.
fn path_of(link: &Value) -> Option<String> {
    let link = link.as_str()?;
    Some(link[link.find("/api/").expect("a path")..].to_owned())
}

/// All pages of a list, by the links from one to the next: the bytes and the rows of each.
fn pages(server: &TestServer, path: &str) -> Vec<(usize, Vec<Value>)> {
    let (mut pages, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let answer = server.get(&path);
        assert_eq!(answer.status, 200, "{answer}");
        let page = answer.json();
        let rows = page["results"].as_array().expect("a list").clone();
        assert!(!rows.is_empty(), "{path}");
        next = path_of(&page["next"]);
        pages.push((answer.body.len(), rows));
        assert!(pages.len() < 1000, "an end");
    }
    pages
}

fn ids(pages: &[(usize, Vec<Value>)]) -> Vec<String> {
    pages.iter().flat_map(|(_, rows)| rows.iter().map(|row| row["id"].to_string())).collect()
}

/// Says that a load is over, also where it fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The longest time that an event waited for its answer while `load` ran.
fn capture_beside(server: &TestServer, load: impl FnOnce()) -> Duration {
    let (client, is_over) = (server.client(), AtomicBool::new(false));
    thread::scope(|scope| {
        let capturing = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            let body = json!({"api_key": crate::harness::TOKEN, "event": "e", "distinct_id": "d"});
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let answer = client.send("POST", "/capture/", &[], body.to_string().as_bytes());
                assert_eq!(answer.expect("an answer").status, 200);
                longest = longest.max(begun.elapsed());
                thread::sleep(Duration::from_millis(20));
            }
            longest
        });
        let over = Over(&is_over);
        load();
        drop(over);
        capturing.join().expect("a time")
    })
}

/// Goal: a list of documents is bounded by bytes. Method: 130 insights of 56 KB, all of them by the links of pages; then
/// twelve clients that ask for as much as there is at once.
#[test]
fn lists_of_documents_end_at_their_bytes_and_lose_no_row() {
    const INSIGHTS: usize = 130;
    const CLIENTS: usize = 12;
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    for number in 0..INSIGHTS {
        server.post(&format!("{BASE}/insights/"), &heavy(number)).created();
    }
    for query in ["limit=500", "limit=500&basic=true", "limit=7", "search=insight&order=name"] {
        let pages = pages(&server, &format!("{BASE}/insights/?{query}"));
        let ids = ids(&pages);
        let once: BTreeSet<&String> = ids.iter().collect();
        assert_eq!((ids.len(), once.len()), (INSIGHTS, INSIGHTS), "{query}");
        let longest = pages.iter().map(|(bytes, _)| *bytes).max().expect("a page");
        assert!(longest < 5 << 20, "{query}: {longest}");
        assert_eq!(pages[0].1.len() == 7, query == "limit=7", "{query}");
    }
    let before = peak_mib(&server);
    let client = server.client();
    let read = AtomicUsize::new(0);
    let waited = capture_beside(&server, || {
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let path = format!("{BASE}/insights/?limit=500");
                    let key = format!("Bearer {}", crate::harness::KEY);
                    let headers = [("authorization", key.as_str())];
                    let answer = client.send("GET", &path, &headers, b"").expect("an answer");
                    assert!([200, 503].contains(&answer.status), "{answer}");
                    read.fetch_add(usize::from(answer.status == 200), Ordering::Relaxed);
                });
            }
        });
    });
    let peak = peak_mib(&server);
    assert!(read.into_inner() > 0, "no list was read");
    eprintln!("lists: {before} MiB, then {peak} MiB; capture waited {waited:?}");
    assert!(peak < before + 200, "{before} MiB, then {peak} MiB");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}

/// The same for other lists with what users wrote: the log of changes, which has each of them before and after, and
/// flags.
#[test]
fn other_lists_end_at_their_bytes_and_lose_no_row() {
    let server = TestServer::start();
    let payload = |number: usize| format!("\"{}{number}\"", "x".repeat(200_000));
    let flag = |number: usize| {
        let filters =
            json!({"groups": [{"rollout_percentage": 100}], "payloads": {"true": payload(number)}});
        json!({"key": format!("flag-{number}"), "filters": filters})
    };
    let mut made = Vec::new();
    for number in 0..30 {
        made.push(server.post(&format!("{BASE}/feature_flags/"), &flag(number)).created());
    }
    for (number, flag) in made.iter().enumerate() {
        let filters = json!({"groups": [], "payloads": {"true": payload(1000 + number)}});
        let path = format!("{BASE}/feature_flags/{}/", flag["id"]);
        let answer = server.patch(&path, &json!({"filters": filters}));
        assert_eq!(answer.status, 200, "{answer}");
        let schedule = json!({"record_id": flag["id"].to_string(), "model_name": "FeatureFlag",
            "scheduled_at": "2100-01-01T00:00:00Z",
            "payload": {"operation": "update_status", "value": false}});
        server.post(&format!("{BASE}/scheduled_changes/"), &schedule).created();
    }
    for (path, rows) in [
        ("feature_flags/?limit=1000", 30),
        ("feature_flags/activity/?limit=1000", 60),
        ("feature_flags/activity/?limit=7", 60),
        ("activity_log/?limit=50", 60),
        ("scheduled_changes/?limit=1000", 30),
        ("scheduled_changes/?limit=20", 30),
    ] {
        let pages = pages(&server, &format!("{BASE}/{path}"));
        let ids = ids(&pages);
        let once: BTreeSet<&String> = ids.iter().collect();
        assert!(
            once.len() >= rows && ids.len() == once.len(),
            "{path}: {} {}",
            ids.len(),
            once.len()
        );
        let longest = pages.iter().map(|(bytes, _)| *bytes).max().expect("a page");
        assert!(longest < 5 << 20, "{path}: {longest}");
    }
}

/// A board with an answer of some megabytes, and its link.
fn shared_board(server: &TestServer) -> String {
    let event = |number: usize| json!({"event": "e", "distinct_id": format!("d{number}"), "properties": {"n": number}});
    let events: Vec<Value> = (0..2000).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let board = server.post(&format!("{BASE}/dashboards/"), &json!({"name": "wide"})).created();
    let columns: Vec<String> = (0..20)
        .map(|number| format!("concat(uuid, distinct_id, 'x{number}') AS c{number}"))
        .collect();
    let sql = format!("SELECT {} FROM events LIMIT 2000", columns.join(", "));
    let node = json!({"kind": "DataTableNode", "source": {"kind": "HogQLQuery", "query": sql}});
    let insight = json!({"name": "rows", "query": node, "dashboards": [board["id"]]});
    server.post(&format!("{BASE}/insights/"), &insight).created();
    let path = format!("{BASE}/dashboards/{}/sharing/", board["id"]);
    let share = server.patch(&path, &json!({"enabled": true}));
    assert_eq!(share.status, 200, "{share}");
    share.json()["access_token"].as_str().expect("a token").to_owned()
}

fn unpacked(answer: &Answer) -> String {
    let mut text = String::new();
    GzDecoder::new(&*answer.body).read_to_string(&mut text).expect("gzip");
    text
}

/// Goal: a link costs its making, whoever many read it. Method: its page is the same for all, compressed or not; then a
/// hundred clients that ask for it and do not read, and many that do.
#[test]
fn readers_of_a_link_cost_no_more_than_one() {
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    let token = shared_board(&server);
    let page = format!("/shared/{token}");
    let gzip = [("accept-encoding", "gzip")];
    let packed = server.send("GET", &page, &gzip, "");
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(packed.header("vary"), Some("accept-encoding"));
    let plain = server.send("GET", &page, &[], "");
    assert_eq!((plain.status, plain.header("content-encoding")), (200, None));
    assert!(unpacked(&packed).contains("<table"), "a table of rows");
    let told = server.send("GET", &format!("{page}.json"), &[], "");
    assert!(told.body.len() > 1_500_000, "{}", told.body.len());
    assert_eq!(told.json()["type"], "scene");
    let before = peak_mib(&server);
    let address = server.client().address();
    let mut idle = Vec::new();
    for number in 0..100 {
        let mut socket = TcpStream::connect(address).expect("a connection");
        let path = if number % 2 == 0 { page.clone() } else { format!("{page}.json") };
        let head = format!("GET {path} HTTP/1.1\r\nhost: weir\r\naccept-encoding: gzip\r\n\r\n");
        socket.write_all(head.as_bytes()).expect("a request");
        idle.push(socket);
    }
    let client = server.client();
    let begun = Instant::now();
    let waited = capture_beside(&server, || {
        thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let answer = client.send("GET", &page, &gzip, b"").expect("an answer");
                        assert_eq!(answer.status, 200, "{answer}");
                    }
                });
            }
        });
    });
    let rate = 480.0 / begun.elapsed().as_secs_f64();
    let peak = peak_mib(&server);
    eprintln!(
        "a link: {before} MiB, then {peak} MiB; {rate:.0} pages a second; capture waited {waited:?}"
    );
    assert!(peak < before + 150, "{before} MiB, then {peak} MiB");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    drop(idle);
}

/// Six days of ten series by the minute: about as many numbers as an answer has. As filters of older clients, and as a node.
fn long_trend() -> (String, Value) {
    let series = |number: usize| json!({"id": "e", "name": "e", "order": number, "math": "total"});
    let events = json!((0..10).map(series).collect::<Vec<_>>()).to_string();
    let events: String = form_urlencoded::byte_serialize(events.as_bytes()).collect();
    let dates = "date_from=2026-01-01&date_to=2026-01-06";
    let series = vec![json!({"kind": "EventsNode", "event": "e"}); 10];
    let range = json!({"date_from": "2026-01-01", "date_to": "2026-01-06"});
    let node =
        json!({"kind": "TrendsQuery", "series": series, "interval": "minute", "dateRange": range});
    (format!("insights/trend/?events={events}&interval=minute&{dates}"), node)
}

/// Goal: no long answer is made or written where sockets are served. Method: each kind is asked for by more clients at once
/// than there are threads of sockets, so that all of these would be busy with it one after another; no event waits longer
/// than one such answer takes where nobody else asks.
#[test]
fn events_are_acknowledged_beside_long_answers() {
    const CLIENTS: usize = 12;
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    let event = |number: usize| {
        let properties = json!({"text": "x".repeat(400), "n": number});
        json!({"event": "e", "distinct_id": "d", "properties": properties})
    };
    for _ in 0..5 {
        assert_eq!(server.capture(&json!((0..1000).map(event).collect::<Vec<_>>())).status, 200);
    }
    let (trend, node) = long_trend();
    let letters = "abcdefghij".chars().map(|letter| format!("{letter}=e")).collect::<Vec<_>>();
    let page = format!("{}&interval=minute&from=2026-01-01&to=2026-01-06", letters.join("&"));
    // The shortest address of the page.
    let page = server.get(&format!("/project/1/insights/trends?{page}"));
    let page = page.header("location").expect("an address").to_owned();
    let sql = json!({"query": "SELECT * FROM events LIMIT 5000", "format": "csv"});
    let node = json!({"query": node, "refresh": "force_blocking"});
    let get = |path: String| ("GET", path, String::new());
    for (method, path, body) in [
        get(format!("{BASE}/{trend}")),
        get(format!("{BASE}/{trend}&format=csv")),
        get(format!("{BASE}/events/?limit=5000&format=csv")),
        get(page.clone()),
        get(format!("{page}&format=csv")),
        ("POST", format!("{BASE}/query/"), node.to_string()),
        ("POST", format!("{BASE}/query/"), sql.to_string()),
    ] {
        let client = server.client();
        let ask = || {
            let key = format!("Bearer {}", crate::harness::KEY);
            let headers = [("authorization", key.as_str()), ("content-type", "application/json")];
            let begun = Instant::now();
            let answer = client.send(method, &path, &headers, body.as_bytes()).expect("an answer");
            (begun.elapsed(), answer)
        };
        let (alone, answer) = ask();
        assert_eq!(answer.status, 200, "{path}: {answer}");
        assert!(answer.body.len() > 1 << 15, "{path}: {}", answer.body.len());
        let read = AtomicUsize::new(0);
        let waited = capture_beside(&server, || {
            thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    scope.spawn(|| {
                        let (_, answer) = ask();
                        assert!([200, 503].contains(&answer.status), "{answer}");
                        read.fetch_add(usize::from(answer.status == 200), Ordering::Relaxed);
                    });
                }
            });
        });
        let short = path.split('?').next().unwrap_or_default();
        eprintln!("{short}: alone {alone:?}; capture waited {waited:?}");
        assert!(read.into_inner() > 0, "{path}: none was read");
        assert!(waited < alone.max(Duration::from_secs(1)), "{path}: {waited:?}, {alone:?}");
    }
}

/// Goal: no array of a body is read element by element without an end. Method: each list of a body with one item more than
/// its limit is refused with its name, and the same one again and again counts once.
#[test]
fn lists_in_bodies_have_a_limit() {
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    let board = server.post(&format!("{BASE}/dashboards/"), &json!({"name": "b"})).created();
    let one = json!({"name": "i", "dashboards": vec![board["id"].clone(); 100]});
    let insight = server.post(&format!("{BASE}/insights/"), &one).created();
    assert_eq!(insight["dashboards"], json!([board["id"]]));
    let ids = |count: usize| (0..count).collect::<Vec<_>>();
    for (method, path, body, name, most) in [
        ("POST", "insights/", json!({"dashboards": ids(501)}), "dashboards", 500),
        ("POST", "insights/", json!({"tags": vec!["a"; 10_001]}), "tags", 10_000),
        (
            "POST",
            "feature_flags/",
            json!({"key": "k", "analytics_dashboards": ids(501)}),
            "analytics_dashboards",
            500,
        ),
        ("POST", "feature_flags/", json!({"key": "k", "tags": vec!["a"; 10_001]}), "tags", 10_000),
        ("POST", "feature_flags/bulk_keys/", json!({"ids": ids(10_001)}), "ids", 10_000),
        (
            "POST",
            "feature_flags/bulk_update_tags/",
            json!({"ids": ids(501), "action": "add", "tags": ["a"]}),
            "ids",
            500,
        ),
        (
            "POST",
            "cohorts/",
            json!({"name": "c", "is_static": true, "distinct_ids": vec!["a"; 100_001]}),
            "distinct_ids",
            100_000,
        ),
    ] {
        let answer = server.send(
            method,
            &format!("{BASE}/{path}"),
            &[
                ("authorization", &format!("Bearer {}", crate::harness::KEY)),
                ("content-type", "application/json"),
            ],
            body.to_string(),
        );
        assert_eq!(answer.status, 400, "{path}: {answer}");
        let told = answer.json();
        assert_eq!(
            (&told["code"], &told["attr"]),
            (&json!("max_length"), &json!(name)),
            "{path}: {told}"
        );
        let limit = format!("no more than {most} elements");
        assert!(told["detail"].as_str().expect("a text").contains(&limit), "{told}");
    }
    let body = json!({"dashboards": [board["id"], 4711]});
    let answer = server.post(&format!("{BASE}/insights/"), &body);
    assert_eq!(answer.status, 400, "{answer}");
    assert_eq!(answer.json()["detail"], "Invalid pk \"4711\" - object does not exist.");
}
