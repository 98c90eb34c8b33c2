//! What pages show is a file in every format, with the same rows; and pages that say what became of things: of an
//! event, of a deletion, of those who left a funnel, and of a flag that is not saved yet.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer, patiently};
use crate::support::forms::post;

const HOSTILE: &str = "<script>window.__hit=1</script>\"'><img src=x onerror=hit>";

/// Largest page, compressed.
const PAGE_MAX_BYTES: usize = 60_000;

fn page(server: &TestServer, path: &str) -> String {
    let answer = server.get(&format!("/project/1/{path}"));
    assert_eq!(answer.status, 200, "{path}: {answer}");
    let text = String::from_utf8(answer.body.clone()).expect("UTF-8");
    assert!(!text.contains("<script>window") && !text.contains("<img src=x"), "{path}: {text}");
    text
}

/// A shop: 20 persons look, every second puts something into the cart, and one of five buys; those who do not buy read.
fn world(server: &TestServer) {
    let mut events = Vec::new();
    let now = weir_base::clock::Clock::system().now().to_datetime();
    for person in 0..20 {
        let id = format!("p{person}");
        let mut did = |name: &str, minutes: i64| {
            let at = now - chrono::TimeDelta::minutes(600 - minutes - person);
            events.push(json!({"event": name, "distinct_id": id, "timestamp": at.to_rfc3339(),
                "properties": {"plan": if person % 4 == 0 { "pro" } else { "free" }, "n": person, HOSTILE: HOSTILE,
                    "$groups": {"company": format!("c{}", person % 3)},
                    "$set": {"email": format!("{id}@example.com"), "plan": if person % 4 == 0 { "pro" } else { "free" }}}}));
        };
        did("look", 0);
        if person % 2 == 0 {
            did("cart", 30);
            match person % 10 {
                0 => did("buy", 60),
                2 | 4 => did("read", 60),
                6 => did(HOSTILE, 60),
                _ => {}
            }
        }
    }
    for company in 0..3 {
        events.push(json!({"event": "$groupidentify", "distinct_id": "p0", "properties": {"$group_type": "company",
            "$group_key": format!("c{company}"), "$group_set": {"name": HOSTILE}}}));
    }
    server.capture(&json!(events));
    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 50}]});
    for key in ["one", "two"] {
        server
            .post("/api/projects/1/feature_flags/", &json!({"key": key, "filters": filters}))
            .created();
    }
    let body =
        json!({"name": HOSTILE, "is_static": true, "_create_static_person_ids": persons(server)});
    server.post("/api/projects/1/cohorts/", &body).created();
    server.count("SELECT count(*) FROM events");
}

fn persons(server: &TestServer) -> Vec<String> {
    let found = server.query("SELECT uuid FROM persons");
    found.iter().map(|row| row["uuid"].as_str().expect("a uuid").to_owned()).collect()
}

/// The rows of a file, and the names of its columns.
fn rows(answer: &Answer, format: &str) -> (usize, BTreeSet<String>) {
    let names = |batches: &[RecordBatch]| -> BTreeSet<String> {
        let fields = batches.iter().flat_map(|batch| batch.schema().fields().to_vec());
        fields.map(|field| field.name().clone()).collect()
    };
    let batches: Vec<RecordBatch> = match format {
        "arrow" => {
            let reader = StreamReader::try_new(&*answer.body, None).expect("a stream of Arrow");
            reader.map(|batch| batch.expect("a batch")).collect()
        }
        _ => {
            let bytes = Bytes::from(answer.body.clone());
            let reader = ParquetRecordBatchReader::try_new(bytes, 1024).expect("Parquet");
            reader.map(|batch| batch.expect("a batch")).collect()
        }
    };
    (batches.iter().map(RecordBatch::num_rows).sum(), names(&batches))
}

#[test]
fn lists_and_charts_are_files_in_every_format() {
    let server = TestServer::start();
    world(&server);
    let saved = json!({"name": "sql", "query": {"kind": "DataVisualizationNode", "source":
        {"kind": "HogQLQuery", "query": "SELECT event, count(*) AS n, max(properties.n) AS most FROM events GROUP BY event"}}});
    let saved = server.post("/api/projects/1/insights/", &saved).created();
    let saved = format!("insights/{}?", saved["short_id"].as_str().expect("an id"));
    // Flags have a dashboard each, with insights.
    let count = |path: &str| {
        let found = server.get(&format!("/api/projects/1/{path}/?basic=true&limit=1")).json();
        usize::try_from(found["count"].as_u64().expect("a count")).expect("a size")
    };
    let (insights, dashboards) = (count("insights"), count("dashboards"));
    assert!(insights > 0 && dashboards > 0, "{insights} {dashboards}");
    for (path, count, column) in [
        ("activity/explore?event=cart", 10, "timestamp"),
        ("activity/explore?key=plan&value=pro", 14, "event"),
        ("persons?", 20, "uuid"),
        ("persons?search=p1@", 1, "properties"),
        ("groups?index=0", 3, "group_key"),
        ("cohorts?", 1, "name"),
        ("insights?", insights, "short_id"),
        ("dashboard?", dashboards, "name"),
        ("cohorts/1?", 20, "uuid"),
        ("feature_flags?search=two", 1, "key"),
        ("data-management/events?search=ca", 1, "name"),
        ("data-management/properties?search=plan", 1, "name"),
        ("data-management/properties?type=person&search=email", 1, "name"),
        ("insights/trends?a=look&from=-2d", 3, "Beginning"),
        ("insights/funnel?a=look&b=cart&c=buy", 3, "Step"),
        ("insights/funnel/persons?a=look&b=cart&c=buy&point.step=-3", 8, "uuid"),
        ("sql?q=SELECT+event,+count(*)+AS+n+FROM+events+GROUP+BY+event", 6, "n"),
        (saved.as_str(), 6, "most"),
    ] {
        let link = |format: &str| {
            let separator = if path.ends_with('?') { "" } else { "&" };
            format!("/project/1/{path}{separator}format={format}")
        };
        let shown = server.get(&format!("/project/1/{}", path.trim_end_matches('?')));
        let shown = match shown.header("location") {
            Some(location) => server.get(location),
            None => shown,
        };
        let html = String::from_utf8_lossy(&shown.body).into_owned();
        for format in ["csv", "json", "jsonl", "parquet", "arrow"] {
            assert!(html.contains(&format!("data-file=\"{format}\"")), "{path}: {format}: {html}");
            let answer = server.get(&link(format));
            assert_eq!(answer.status, 200, "{path} {format}: {answer}");
            let name = answer.header("content-disposition").unwrap_or_default();
            assert!(name.starts_with("attachment"), "{path} {format}: {answer}");
        }
        for format in ["parquet", "arrow"] {
            let (found, columns) = rows(&server.get(&link(format)), format);
            assert_eq!(found, count, "{path} {format}");
            assert!(columns.contains(column), "{path} {format}: {columns:?}");
        }
        let csv = String::from_utf8(server.get(&link("csv")).body).expect("UTF-8");
        assert!(csv.lines().count() > count, "{path}: {csv}");
        let lines = String::from_utf8(server.get(&link("jsonl")).body).expect("UTF-8");
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), count, "{path}");
        let has_column = |row: &Value| row.get(column).is_some();
        assert!(lines.iter().any(has_column), "{path}: {lines:?}");
        let refused = server.get(&link("xlsx"));
        assert_eq!(refused.status, 400, "{path}: {refused}");
    }
    let typed = server.get("/project/1/insights/trends?a=look&from=-2d&format=arrow");
    let reader = StreamReader::try_new(&*typed.body, None).expect("Arrow");
    let schema = reader.schema();
    assert_eq!(schema.field(1).data_type(), &arrow::datatypes::DataType::Int64, "{schema:?}");
}

#[test]
fn no_page_is_large() {
    let server = TestServer::start();
    let events: Value = (0..600)
        .map(|at| {
            let name = format!("event {} {}", at % 150, "x".repeat(60));
            let mut properties = json!({"$current_url": format!("https://shop.example/{}", "y".repeat(at % 90)),
                "$set": {"email": format!("{}@example.com", "z".repeat(40)), "at": at}});
            for key in 0..30 {
                properties[format!("property {key} {}", at % 20)] = json!(format!("{at}-{key}"));
            }
            json!({"event": name, "distinct_id": format!("person-{at}"), "properties": properties})
        })
        .collect();
    server.capture(&events);
    server.count("SELECT count(*) FROM events");
    let bearer = format!("Bearer {KEY}");
    for path in [
        "home",
        "onboarding",
        "activity/live",
        "activity/explore",
        "insights/trends?a=*&by1.key=%24current_url&by.limit=25&from=-30d",
        "insights/retention?a=*&interval=day&intervals=14",
        "insights/paths?steps=5",
        "persons",
        "person/person-7",
        "feature_flags",
        "data-management/events",
        "data-management/properties",
        "sql?q=SELECT+*+FROM+events+LIMIT+100",
        "health",
        "settings",
    ] {
        let headers = [("authorization", bearer.as_str()), ("accept-encoding", "gzip")];
        let path = format!("/project/1/{path}");
        let mut answer = server.send("GET", &path, &headers, "");
        if let Some(location) = answer.header("location").map(str::to_owned) {
            answer = server.send("GET", &location, &headers, "");
        }
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (200, Some("gzip")),
            "{path}"
        );
        assert!(answer.body.len() < PAGE_MAX_BYTES, "{path}: {} bytes", answer.body.len());
    }
}

#[test]
fn an_event_tells_its_journey() {
    let server = TestServer::start_with(&[("memtable-max-age", "1d")]);
    let at = (weir_base::clock::Clock::system().now().to_datetime() - chrono::TimeDelta::hours(2))
        .to_rfc3339();
    server.capture(&json!([{"event": HOSTILE, "distinct_id": "ada", "timestamp": at}]));
    let uuid = server.query("SELECT uuid FROM events")[0]["uuid"].clone();
    let path = format!("events/{}", uuid.as_str().expect("a uuid"));
    let shown = page(&server, &path);
    for part in ["Processing", "Received", "after it happened", "to the person", "In the log"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    server.flush();
    let shown = patiently(|| {
        let shown = page(&server, &path);
        shown.contains("Stored").then_some(shown)
    });
    let shown = shown.expect("a file");
    let file =
        shown.split("<code>tables/events/").nth(1).and_then(|rest| rest.split("</code>").next());
    let file = server.data_dir().join("tables/events").join(file.expect("a path"));
    assert!(file.is_file(), "{}", file.display());
}

#[test]
fn deletions_are_proven() {
    let server = TestServer::start();
    world(&server);
    server.flush();
    let found = server.get("/api/projects/1/persons/?distinct_id=p2").json();
    let uuid = found["results"][0]["uuid"].as_str().expect("a uuid").to_owned();
    let proof = format!("data-management/deletions?person={uuid}");
    let shown = page(&server, &proof);
    assert!(shown.contains("Nothing was deleted") && shown.contains("something"), "{shown}");
    let answer = post(&server, &format!("person/{uuid}/delete"), &[("what", "both")]);
    assert_eq!(answer.status, 303, "{answer}");
    assert_eq!(answer.header("location"), Some(format!("/project/1/{proof}").as_str()), "{answer}");
    let gone = patiently(|| {
        let shown = page(&server, &proof);
        (shown.contains(">done<") && shown.contains(">nothing<")).then_some(shown)
    });
    let gone = gone.expect("no file has its events");
    assert!(gone.contains(&uuid) && gone.contains("delta_scan("), "{gone}");
}

#[test]
fn those_who_left_a_funnel_did_something_else() {
    let server = TestServer::start();
    world(&server);
    let funnel = "insights/funnel/persons?a=look&b=cart&c=buy";
    let left = page(&server, &format!("{funnel}&point.step=-3"));
    // 8 of 10 did not buy: 4 of them read, 2 did the hostile one, 2 nothing.
    for part in [
        "What they did instead",
        "50\u{202f}%",
        "25\u{202f}%",
        ">read<",
        "&lt;script&gt;",
        "nothing, or something rarer",
    ] {
        assert!(left.contains(part), "{part}: {left}");
    }
    let came = page(&server, &format!("{funnel}&point.step=2"));
    assert!(came.contains("What they did next"), "{came}");
    let saved = post(&server, &format!("{funnel}&point.step=-3"), &[("name", "Left the cart")]);
    assert_eq!(saved.status, 303, "{saved}");
    let cohort = saved.header("location").expect("a cohort").to_owned();
    let id = cohort.rsplit('/').next().expect("an id");
    let members = patiently(|| {
        let found = server.get(&format!("/api/projects/1/cohorts/{id}/persons/")).json();
        let count = found["results"].as_array().map_or(0, Vec::len);
        (count == 8).then_some(())
    });
    members.expect("those who left");
}

#[test]
fn a_flag_is_tried_before_it_is_saved() {
    let server = TestServer::start();
    world(&server);
    let form = |plan: &'static str| {
        [
            ("do", "try"),
            ("try_id", "p4"),
            ("key", "new"),
            ("active", "1"),
            ("conditions", "1"),
            ("variants", "0"),
            ("c1.p1.of", "person"),
            ("c1.p1.key", "plan"),
            ("c1.p1.op", "exact"),
            ("c1.p1.value", plan),
            ("c1.rollout", "100"),
        ]
    };
    for (plan, part) in [("pro", "decides"), ("free", "does not match")] {
        let answer = post(&server, "feature_flags", &form(plan));
        assert_eq!(answer.status, 200, "{answer}");
        let shown = String::from_utf8(answer.body).expect("UTF-8");
        assert!(shown.contains(part) && shown.contains("value=\"p4\""), "{part}: {shown}");
    }
    let flags = server.get("/api/projects/1/feature_flags/").json();
    assert_eq!(flags["count"], 2, "nothing is saved");
}

#[test]
fn a_test_event_goes_all_the_way() {
    let server = TestServer::start();
    assert!(page(&server, "onboarding").contains("Send a test event"));
    let sent = post(&server, "onboarding", &[]);
    assert_eq!(sent.status, 303, "{sent}");
    let arrived = patiently(|| {
        let shown = page(&server, "onboarding");
        shown.contains("An event has arrived").then_some(shown)
    });
    assert!(arrived.expect("it").contains("test event"));
    assert_eq!(server.count("SELECT count(*) FROM persons"), 0);
}

#[test]
fn rows_of_sql_are_drawn() {
    let server = TestServer::start();
    world(&server);
    let sql = "sql?q=SELECT+event,+count(*)+AS+n+FROM+events+GROUP+BY+event";
    assert!(!page(&server, sql).contains("class=\"chart\""));
    for kind in ["line", "bars"] {
        let shown = page(&server, &format!("{sql}&chart={kind}"));
        assert!(shown.contains("class=\"chart\"") && shown.contains("look"), "{kind}: {shown}");
    }
    let none = page(&server, "sql?q=SELECT+1+AS+one&chart=line");
    assert!(none.contains("A chart needs a column of numbers"), "{none}");
    let refused = page(&server, "sql?q=SELECT+avg('x')+FROM+events");
    assert!(refused.contains("avg") && refused.contains("class=\"problem\""), "{refused}");
    assert!(!refused.contains("bug report"), "{refused}");
}

#[test]
fn definitions_are_described_and_counted() {
    let server = TestServer::start();
    world(&server);
    let shown = patiently(|| {
        let shown = page(&server, "data-management/events?search=cart");
        shown.contains(">cart<").then_some(shown)
    });
    let shown = shown.expect("a definition");
    assert!(shown.contains("10 <svg class=\"spark\""), "{shown}");
    let link = shown.split("data-management/events/").nth(1).expect("a link");
    let id = link.split('"').next().expect("an id");
    let path = format!("data-management/events/{id}");
    let fields = [("description", HOSTILE), ("tags", "shop, money"), ("verified", "1")];
    assert_eq!(post(&server, &path, &fields).status, 303);
    let shown = page(&server, &path);
    for part in ["money", "shop", "checked", "&lt;script&gt;"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
