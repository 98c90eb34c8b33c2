//! The live view: every acknowledged event is shown, in the order of arrival, or counted where there are too many; and
//! so are refused requests.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{KEY, TestServer, patiently};

/// The address of the stream, which does not end.
const STREAM: &str = "/project/1/activity/live/rows";

/// One open stream.
struct Stream {
    socket: TcpStream,
    received: Vec<u8>,
}

/// What a stream has told.
#[derive(Debug, Default)]
struct Told {
    /// Rows, in the order in which they came.
    rows: Vec<String>,
    /// The number of events that messages tell of.
    count: u64,
    /// What was not stored, as of each message.
    refused: Vec<String>,
    /// The last position.
    position: Option<String>,
}

impl Told {
    /// The ids of the events in the rows.
    fn ids(&self) -> Vec<&str> {
        let id = |row: &'_ String| -> Option<(usize, usize)> {
            let start = row.find("data-id=\"")? + "data-id=\"".len();
            Some((start, start + row[start..].find('"')?))
        };
        self.rows.iter().filter_map(|row| id(row).map(|(start, end)| &row[start..end])).collect()
    }
}

impl Stream {
    fn open(server: &TestServer, key: &str, address: &str, last: Option<&str>) -> Self {
        let url = server.url();
        let host = url.trim_start_matches("http://");
        let mut socket = TcpStream::connect(host).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
        let last = last.map(|last| format!("last-event-id: {last}\r\n")).unwrap_or_default();
        let head = format!(
            "GET {address} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n{last}\r\n"
        );
        socket.write_all(head.as_bytes()).expect("sent");
        let mut stream = Self { socket, received: Vec::new() };
        patiently(|| stream.text().contains("retry:").then_some(())).expect("a stream");
        stream
    }

    fn text(&mut self) -> String {
        let mut piece = [0; 1 << 16];
        if let Ok(length) = self.socket.read(&mut piece) {
            self.received.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// All of it so far.
    fn told(&mut self) -> Told {
        let mut told = Told::default();
        for message in self.text().split("\n\n") {
            let field = |name: &str| {
                let mut lines = message.lines();
                lines.find_map(|line| line.strip_prefix(name)).map(str::trim)
            };
            // A piece of the body that has begun is no message yet, and no JSON.
            let Some(Ok(data)) = field("data:").map(serde_json::from_str::<Value>) else {
                continue;
            };
            told.position = field("id:").map(str::to_owned).or(told.position);
            match field("event:") {
                Some("rows") => {
                    let rows = data["rows"].as_array().expect("rows").iter();
                    told.rows.extend(rows.map(|row| row.as_str().expect("a row").to_owned()));
                    told.count += data["count"].as_u64().expect("a count");
                }
                Some("refused") => told.refused.push(data.as_str().expect("a text").to_owned()),
                other => panic!("{other:?}"),
            }
        }
        told
    }

    /// Waits until as many events were told of.
    fn wait(&mut self, count: u64) -> Told {
        let told = patiently(|| Some(self.told()).filter(|told| told.count >= count));
        told.unwrap_or_else(|| panic!("{:?}", self.told()))
    }
}

fn page(server: &TestServer) -> String {
    let answer = server.get("/project/1/activity/live");
    assert_eq!(answer.status, 200, "{answer}");
    String::from_utf8(answer.body).expect("UTF-8")
}

/// The address of the stream that the page goes on with.
fn address_in(page: &str) -> String {
    let rest = page.split("data-live=\"").nth(1).expect("an address");
    rest.split('"').next().expect("its end").replace("&amp;", "&")
}

fn uuid(number: usize) -> String {
    format!("0192f0c1-7f3a-7000-8000-{number:012}")
}

fn batch(numbers: std::ops::Range<usize>) -> Value {
    numbers
        .map(|number| json!({"event": "many", "distinct_id": "m", "uuid": uuid(number)}))
        .collect()
}

#[test]
fn the_stream_has_what_the_form_asks_for() {
    let server = TestServer::start();
    let mut stream =
        Stream::open(&server, KEY, &format!("{STREAM}?event=wanted&key=plan&value=pro"), None);
    server.capture(&json!([
        {"event": "wanted", "distinct_id": "<b>", "properties": {"plan": "pro"}},
        {"event": "wanted", "distinct_id": "free", "properties": {"plan": "free"}},
        {"event": "unwanted", "distinct_id": "other", "properties": {"plan": "pro"}},
    ]));
    let told = stream.wait(1);
    assert_eq!((told.rows.len(), told.count), (1, 1), "{told:?}");
    let row = &told.rows[0];
    assert!(row.contains("wanted") && row.contains("&lt;b&gt;") && !row.contains("<b>"), "{row}");
}

#[test]
fn every_event_is_told_whenever_it_happened() {
    let server = TestServer::start();
    let now = weir_base::clock::Clock::system().now().to_datetime();
    // Newer ones than what comes late are there, more than fit on the page.
    server.capture(&batch(0..60));
    let mut stream = Stream::open(&server, KEY, STREAM, None);
    let late = (now - chrono::TimeDelta::days(6)).to_rfc3339();
    server.capture(&json!([{"event": "late one", "distinct_id": "l", "timestamp": late}]));
    let told = stream.wait(1);
    assert!(told.rows.len() == 1 && told.rows[0].contains("late one"), "{told:?}");
    assert!(told.rows[0].contains("6\u{202f}d"), "it says how late it is: {told:?}");
    // It is at the top of the page, which is in the order of arrival, too.
    let shown = page(&server);
    let first = shown.split("<tbody").nth(1).and_then(|rows| rows.split("</tr>").next());
    assert!(first.is_some_and(|row| row.contains("late one")), "{shown}");
}

#[test]
fn of_many_events_the_newest_are_shown_and_all_are_counted() {
    let server = TestServer::start();
    let mut stream = Stream::open(&server, KEY, STREAM, None);
    server.capture(&batch(0..80));
    let told = stream.wait(80);
    let ids = told.ids();
    let different: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!((told.count, ids.len(), different.len()), (80, 50, 50), "{told:?}");
    assert!(told.rows[0].contains("30 more events"), "{}", told.rows[0]);
    // The next ones are all shown, in the order of arrival.
    for number in 100..103 {
        server.capture(&batch(number..number + 1));
    }
    let told = stream.wait(83);
    let last: Vec<String> = (100..103).map(uuid).collect();
    assert_eq!(
        (told.count, told.ids().split_off(50)),
        (83, last.iter().map(String::as_str).collect())
    );
}

#[test]
fn nothing_is_between_the_page_and_its_stream() {
    let server = TestServer::start();
    server.capture(&batch(0..3));
    let address = address_in(&page(&server));
    // A look may come long after the page, when the events are in files.
    server.capture(&batch(3..5));
    assert!(server.weir(&["flush"]).output().expect("weir flush").status.success());
    let mut stream = Stream::open(&server, KEY, &address, None);
    let told = stream.wait(2);
    assert_eq!(told.count, 2, "those of the page are not counted: {told:?}");
    for number in 3..5 {
        assert!(told.ids().contains(&uuid(number).as_str()), "{told:?}");
    }
    // After a break the browser says where it was.
    let position = told.position.expect("a position");
    drop(stream);
    server.capture(&batch(5..7));
    let mut again = Stream::open(&server, KEY, &address, Some(&position));
    let told = again.wait(2);
    assert_eq!(told.count, 2, "{told:?}");
    for number in 5..7 {
        assert!(told.ids().contains(&uuid(number).as_str()), "{told:?}");
    }
    let position = told.position.expect("a position");
    drop(again);
    // Nothing came: nothing is told until something does.
    let mut third = Stream::open(&server, KEY, STREAM, Some(&position));
    server.capture(&batch(7..8));
    let told = third.wait(1);
    assert!(told.count == 1 && told.ids().contains(&uuid(7).as_str()), "{told:?}");
    // Many came.
    let position = told.position.expect("a position");
    drop(third);
    server.capture(&batch(1000..1300));
    let told = Stream::open(&server, KEY, STREAM, Some(&position)).wait(300);
    assert_eq!((told.count, told.ids().len()), (300, 50), "{told:?}");
    assert!(told.rows[0].contains("250 more events"), "{}", told.rows[0]);
}

#[test]
fn refused_requests_are_told_as_they_come_to_those_who_may_see_health() {
    let server = TestServer::start();
    let body = json!({"label": "x", "scopes": ["query:read"]});
    let narrow = server.post("/api/personal_api_keys/", &body).created()["value"].clone();
    let mut stream = Stream::open(&server, KEY, STREAM, None);
    let mut other = Stream::open(&server, narrow.as_str().expect("a key"), STREAM, None);
    assert_eq!(server.send("POST", "/capture/", &[], "{").status, 400);
    let unknown = json!({"api_key": "phc_of_nobody", "event": "x", "distinct_id": "y"});
    let refused = server.send("POST", "/capture/", &[], unknown.to_string());
    assert!((400..500).contains(&refused.status), "{refused}");
    let code = refused.json()["code"].as_str().expect("a code").replace('_', " ");
    let told = patiently(|| stream.told().refused.pop().filter(|told| told.contains(&code)));
    let told = told.unwrap_or_else(|| panic!("{:?}", stream.told()));
    assert!(told.contains("invalid payload") && told.contains(">Last<"), "{told}");
    server.capture(&batch(0..1));
    assert!(other.wait(1).refused.is_empty(), "it needs another scope");
    let health = server.get("/project/1/health");
    assert!(String::from_utf8_lossy(&health.body).contains(&code), "{health}");
}
