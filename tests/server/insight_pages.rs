//! Pages of insights: their numbers are those of the API, as many persons are behind a mark as it says, any address is
//! a page or a clear refusal, and what is saved is found again.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer};

const QUERY: &str = "/api/projects/1/query/";
const HOSTILE: &str = "<script>window.hit=1</script>\"'><img src=x onerror=hit>\u{202e}\u{0}";

/// Questions of all kinds: the kind and the parameters.
const QUESTIONS: [(&str, &str); 19] = [
    ("trends", ""),
    ("trends", "a=view&a.math=dau&b=buy&b.math=sum&b.property=price&from=-6d"),
    ("trends", "a=view&by1.key=%24browser&by.limit=2&interval=hour&from=-2d&show=area"),
    ("trends", "a=view&b=buy&formula=B%2FA&compare=previous&show=bars"),
    ("trends", "a=view&by1.key=%24browser&show=totals&compare=-1d"),
    ("trends", "a=view&by1.key=%24browser&show=pie"),
    ("trends", "a=view&by1.key=%24browser&show=countries"),
    ("trends", "a=*&f1.key=%24browser&f1.value=Chrome&f1.value=Safari&show=number"),
    ("funnel", "a=view&b=buy&window=2"),
    ("funnel", "a=view&b=buy&by1.key=%24browser"),
    ("funnel", "a=view&b=buy&not1=leave&not1.from=1&not1.to=2"),
    ("funnel", "a=view&b=buy&show=trends"),
    ("funnel", "a=view&b=buy&show=time_to_convert"),
    ("retention", "a=view&b=buy&intervals=5"),
    ("retention", "a=view&interval=week&show=count&type=first_time"),
    ("paths", "steps=3"),
    ("lifecycle", "a=view"),
    ("stickiness", "a=view&b=buy"),
    ("stickiness", "a=view&cumulative=1"),
];

fn world(server: &TestServer) {
    let mut rng = StdRng::seed_from_u64(19);
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let mut events = Vec::new();
    for _ in 0..400 {
        let at = now - chrono::TimeDelta::minutes(rng.random_range(0..12 * 1440));
        let browser = ["Chrome", "Safari", "Firefox", HOSTILE][rng.random_range(0..4)];
        let name = ["view", "view", "view", "buy", HOSTILE][rng.random_range(0..5)];
        let id = rng.random_range(0..30);
        let id = if id == 0 { HOSTILE.replace('\0', "") } else { format!("d{id}") };
        events.push(json!({
            "event": name, "distinct_id": id, "timestamp": at.to_rfc3339(),
            "properties": {"$browser": browser, "price": rng.random_range(1..2000), "$set": {"name": HOSTILE}},
        }));
    }
    server.capture(&json!(events));
}

/// A page, at its shortest address.
fn page(server: &TestServer, path: &str) -> Answer {
    let answer = server.get(&format!("/project/1/{path}"));
    match answer.header("location") {
        Some(location) if answer.status == 303 => server.get(location),
        _ => answer,
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

fn address(kind: &str, query: &str, format: &str) -> String {
    let separator = if query.is_empty() { "" } else { "&" };
    format!("insights/{kind}?{query}{separator}format={format}")
}

/// A text of a page as it is read.
fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The numbers of the cells of the first table of a page whose class is `data`, and their links.
fn cells(page: &str) -> Vec<(f64, Option<String>)> {
    let table = page.split("<table class=\"data\">").nth(1).expect("a table");
    let table = table.split("</table>").next().unwrap_or_default();
    let cell = |cell: &str| {
        let inner = cell.split("</td>").next().unwrap_or_default();
        let shown = inner.split("<bdi>").nth(1)?.split("</bdi>").next()?;
        let number = shown.replace(',', "").replace('\u{2212}', "-").parse().ok()?;
        let link = inner.split("href=\"").nth(1).and_then(|rest| rest.split('"').next());
        Some((number, link.map(unescaped)))
    };
    table.split("<td class=\"number\">").skip(1).filter_map(cell).collect()
}

/// All numbers that stand in the fields `data` or `aggregated_value` of an answer, by place and series.
fn numbers(results: &Value) -> Vec<f64> {
    let series = results.as_array().map(Vec::as_slice).unwrap_or_default();
    let places = series.iter().filter_map(|own| Some(own["data"].as_array()?.len())).max();
    let of = |own: &Value, place: usize| own["data"][place].as_f64();
    (0..places.unwrap_or(0))
        .flat_map(|at| series.iter().filter_map(move |own| of(own, at)))
        .collect()
}

#[test]
fn numbers_are_those_of_the_api() {
    let server = TestServer::start();
    world(&server);
    for (kind, query) in QUESTIONS {
        let file = page(&server, &address(kind, query, "json"));
        assert_eq!(file.status, 200, "{kind} {query}: {file}");
        let file = file.json();
        let answer = server.post(QUERY, &json!({"query": file["query"], "refresh": true}));
        assert_eq!(answer.status, 200, "{kind} {query}: {answer}");
        assert_eq!(file["results"], answer.json()["results"], "{kind} {query}");
        let html = page(&server, &format!("insights/{kind}?{query}"));
        assert_eq!(html.status, 200, "{kind} {query}: {html}");
        let html = text(&html);
        assert!(!html.contains("<script>") && !html.contains("<img src=x"), "{kind} {query}");
        assert!(
            html.contains("<form class=\"question\"") && html.contains("curl "),
            "{kind} {query}"
        );
        let (expected, is_exact) = (numbers(&file["results"]), !query.contains("formula"));
        if !expected.is_empty() && is_exact && kind != "funnel" {
            let shown: Vec<f64> = cells(&html).into_iter().map(|(number, _)| number).collect();
            assert_eq!(shown, expected, "{kind} {query}");
            let csv = text(&page(&server, &address(kind, query, "csv")));
            let rows: Vec<&str> = csv
                .lines()
                .rev()
                .take(file["results"][0]["data"].as_array().unwrap().len())
                .collect();
            let of = |row: &&str| {
                row.split(',').skip(1).map(|cell| cell.parse().unwrap()).collect::<Vec<f64>>()
            };
            let numbers: Vec<f64> = rows.iter().rev().flat_map(of).collect();
            assert_eq!(numbers, expected, "{kind} {query}: {csv}");
        }
    }
}

#[test]
fn as_many_persons_are_behind_a_mark_as_it_says() {
    let server = TestServer::start();
    world(&server);
    let mut looked = BTreeMap::new();
    for (kind, query) in [
        ("trends", "a=view&a.math=dau&by1.key=%24browser&compare=previous&from=-4d"),
        ("trends", "a=view&a.math=dau&show=totals"),
        ("funnel", "a=view&b=buy&from=-9d"),
        ("funnel", "a=view&b=buy&by1.key=%24browser"),
        ("lifecycle", "a=view"),
        ("stickiness", "a=view&b=buy"),
        ("stickiness", "a=view&cumulative=1"),
    ] {
        let answer = page(&server, &format!("insights/{kind}?{query}"));
        let html = text(&answer);
        let marks = match html.contains("<table class=\"data\">") {
            true => cells(&html),
            false => Vec::new(),
        };
        for (number, link) in marks {
            let Some(link) = link else { continue };
            let behind = server.get(&link);
            assert_eq!(behind.status, 200, "{link}: {behind}");
            let behind = text(&behind);
            assert!(!behind.contains("<script>") && !behind.contains("<img src=x"), "{link}");
            let told = match number.abs() {
                1.0 => ">1 person<".to_owned(),
                number => format!(">{number} persons<"),
            };
            assert!(behind.contains(&told), "{kind} {query} {link}: not {told}");
            *looked.entry(kind).or_insert(0) += 1;
        }
    }
    assert!(looked.len() == 4 && looked.values().sum::<usize>() > 40, "{looked:?}");
}

#[test]
fn cells_of_a_retention_lead_to_those_who_came_back() {
    let server = TestServer::start();
    world(&server);
    // How many cells have persons depends on the time of day.
    let mut looked = 0;
    for query in ["a=view&b=buy&intervals=5", "a=view&show=count&intervals=4"] {
        let html = text(&page(&server, &format!("insights/retention?{query}")));
        let results = page(&server, &address("retention", query, "json")).json()["results"].clone();
        let links = html.split("<td class=\"heat").skip(1).filter_map(|cell| {
            let cell = cell.split("</td>").next()?;
            cell.split("href=\"").nth(1)?.split('"').next().map(unescaped)
        });
        for link in links {
            let number = |name: &str| -> Option<usize> {
                let rest = link.split(&format!("point.{name}=")).nth(1)?;
                rest.split('&').next()?.parse().ok()
            };
            let (row, cell) = (number("row").expect("a row"), number("cell").expect("a cell"));
            let count = results[row]["values"][cell]["count"].as_u64().expect("a count");
            let told =
                if count == 1 { ">1 person<".to_owned() } else { format!(">{count} persons<") };
            let behind = text(&server.get(&link));
            assert!(behind.contains(&told), "{link}: not {told}: {behind}");
            looked += 1;
        }
    }
    assert!(looked > 8, "{looked}");
}

#[test]
fn any_address_is_a_page_or_a_clear_refusal() {
    let server = TestServer::start();
    world(&server);
    for (path, status, told) in [
        ("insights/trends?a=x&mth=dau", 400, "mth"),
        ("insights/trends?a=x&a.math=often", 400, "a.math"),
        ("insights/trends?interval=year", 400, "interval"),
        ("insights/trends?a=x&a=y", 400, "given twice"),
        ("insights/trends?%3Cscript%3E=1", 400, "There is no such parameter"),
        ("insights/paths?a=x", 400, "There is no such parameter"),
        // What only the computation finds comes after the frame.
        ("insights/trends?a=x&a.math=sum", 200, "math"),
        ("insights/trends?a=x&formula=A%2B", 200, "class=\"problem\""),
        ("insights/trends?a=x&from=someday", 200, "Expected a date"),
        ("insights/trends?a=action%3A99", 200, "class=\"problem\""),
        ("insights/funnel", 200, "Which steps?"),
        ("insights/trends?a=nothing", 200, "Nothing happened"),
        ("insights/trends/persons?a=x&point.day=never", 200, "class=\"problem\""),
        ("insights/trends/persons?a=x&point.dy=1", 400, "point.dy"),
        ("insights/nothing1", 404, ""),
        ("insights/trends/nothing", 404, ""),
        ("dashboard/99", 404, ""),
        ("dashboard/x", 404, ""),
        ("dashboard?x=1", 200, "No dashboard yet"),
        ("insights", 200, "No saved insights yet"),
    ] {
        let answer = page(&server, path);
        assert_eq!(answer.status, status, "{path}: {answer}");
        let text = text(&answer);
        assert!(text.contains(told), "{path}: {text}");
        assert!(!text.contains("<script>"), "{path}: {text}");
    }
    // Forms send what says nothing, too.
    let long = "/project/1/insights/trends?a=x&a.math=&b=&interval=&f1.key=&f1.op=regex";
    let short = server.get(long);
    assert_eq!(short.status, 303, "{short}");
    assert_eq!(short.header("location"), Some("/project/1/insights/trends?a=x"));
}

#[test]
fn a_script_gets_the_part_that_changes() {
    let server = TestServer::start();
    world(&server);
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("weir-part", "result")];
    for (path, status) in [("insights/trends?a=view", 200), ("insights/trends?a=view&zz=1", 400)] {
        let part = server.send("GET", &format!("/project/1/{path}"), &headers, "");
        assert_eq!(part.status, status, "{part}");
        assert_eq!(part.header("vary"), Some("weir-part"), "{part}");
        let part = text(&part);
        assert!(part.starts_with("<section id=\"result\""), "{part}");
        assert!(text(&page(&server, path)).contains("<h1>"), "{path}");
    }
}

#[test]
fn what_is_saved_is_found_again() {
    let server = TestServer::start();
    world(&server);
    let post = |path: &str, body: &str| {
        let headers = [
            ("authorization", format!("Bearer {KEY}")),
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
            ("sec-fetch-site", "same-origin".to_owned()),
        ];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        server.send("POST", &format!("/project/1/{path}"), &headers, body)
    };
    let board = post("dashboard", "name=Weekly");
    assert_eq!(board.status, 303, "{board}");
    assert_eq!(board.header("location"), Some("/project/1/dashboard/1"));
    let empty = text(&page(&server, "dashboard/1"));
    assert!(empty.contains("This dashboard is empty") && empty.contains("Weekly"), "{empty}");
    for (kind, question) in QUESTIONS {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("kind", kind).append_pair("question", question);
        body.append_pair("name", &format!("{kind} {HOSTILE}").replace('\0', ""))
            .append_pair("dashboard", "1");
        let saved = post("insights", &body.finish());
        assert_eq!(saved.status, 303, "{kind} {question}: {saved}");
    }
    let saved = server.get("/api/projects/1/insights/").json();
    let saved = saved["results"].as_array().expect("insights");
    assert_eq!(saved.len(), QUESTIONS.len());
    for insight in saved {
        let short_id = insight["short_id"].as_str().expect("a short id");
        let answer = page(&server, &format!("insights/{short_id}"));
        assert_eq!(answer.status, 200, "{answer}");
        let html = text(&answer);
        assert!(html.contains("<form class=\"question\""), "{insight}: {html}");
        assert!(!html.contains("<script>"), "{html}");
    }
    // Another project has none of it.
    let other = server.post("/api/projects/", &json!({"name": "Other"})).created();
    let short_id = saved[0]["short_id"].as_str().expect("a short id");
    for path in [format!("insights/{short_id}"), "dashboard/1".to_owned()] {
        let missing = server.get(&format!("/project/{}/{path}", other["id"]));
        assert_eq!(missing.status, 404, "{missing}");
    }
    let list = text(&page(&server, "insights"));
    assert!(list.contains("trends &lt;script&gt;"), "{list}");
    for path in ["dashboard/1", "dashboard/1?from=-3d"] {
        let board = text(&page(&server, path));
        assert_eq!(board.matches("<section class=\"tile\"").count(), QUESTIONS.len(), "{board}");
        assert!(!board.contains("class=\"problem\"") && !board.contains("<script>"), "{board}");
    }
    let wrong = page(&server, "dashboard/1?frm=-3d");
    assert_eq!(wrong.status, 400, "{wrong}");
    for (path, body) in [
        ("insights", "kind=pie&name=x"),
        ("insights", "kind=trends&question=zz%3D1&name=x"),
        ("insights", "kind=trends&question=&name=x&dashboard=99"),
    ] {
        let refused = post(path, body);
        assert_eq!(refused.status, 400, "{body}: {refused}");
    }
}

#[test]
fn exclusions_of_a_funnel_are_asked_by_the_form() {
    let server = TestServer::start();
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let did = |who: &str, deeds: &[(&str, &str)]| -> Vec<Value> {
        let event = |(at, (name, plan)): (i64, &(&str, &str))| {
            json!({"event": name, "distinct_id": who, "properties": {"plan": plan},
                "timestamp": (now - chrono::TimeDelta::minutes(60 - at)).to_rfc3339()})
        };
        (0..).zip(deeds).map(event).collect()
    };
    let mut events = did("straight", &[("view", ""), ("cart", ""), ("buy", "")]);
    events.extend(did("early", &[("view", ""), ("leave", "pro"), ("cart", ""), ("buy", "")]));
    events.extend(did("late", &[("view", ""), ("cart", ""), ("leave", "free"), ("buy", "")]));
    server.capture(&json!(events));
    for (query, expected) in [
        ("", 3),
        ("&not1=leave", 1),
        ("&not1=leave&not1.to=2", 2),
        ("&not1=leave&not1.from=2", 2),
        ("&not1=leave&not1.f1.key=plan&not1.f1.value=free", 2),
        ("&not1=nothing&not2=leave&not2.from=1&not2.to=3", 1),
    ] {
        let query = format!("a=view&b=cart&c=buy{query}");
        let file = page(&server, &address("funnel", &query, "json")).json();
        let answer = server.post(QUERY, &json!({"query": file["query"], "refresh": true})).json();
        assert_eq!(file["results"], answer["results"], "{query}");
        let counts: Vec<u64> = file["results"]
            .as_array()
            .expect("steps")
            .iter()
            .map(|step| step["count"].as_u64().expect("a count"))
            .collect();
        assert_eq!(counts[2], expected, "{query}: {counts:?}");
        let shown = text(&page(&server, &format!("insights/funnel?{query}")));
        for number in 1..=query.matches("=leave").count() + query.matches("=nothing").count() + 1 {
            assert!(shown.contains(&format!("name=\"not{number}\"")), "{query}: {number}");
        }
        let field = shown.split("name=\"not1\"").nth(1).and_then(|rest| rest.split('>').next());
        let has_event = field.is_some_and(|field| field.contains("value=\"leave\""));
        assert_eq!(has_event, query.contains("not1=leave"), "{query}");
    }
    // Steps are counted from 1, and what the API refuses is told.
    for query in ["not1=leave&not1.from=0", "not1=leave&not1.from=2&not1.to=2", "not1=view"] {
        let shown = text(&page(&server, &format!("insights/funnel?a=view&b=buy&{query}")));
        assert!(shown.contains("class=\"problem\""), "{query}");
    }
}

/// Sends a form of a page of the first project.
fn sent(server: &TestServer, path: &str, fields: &[(&str, &str)]) -> Answer {
    crate::support::forms::post(server, path, fields)
}

fn only_insight(server: &TestServer) -> Value {
    let saved = server.get("/api/projects/1/insights/").json();
    assert_eq!(saved["results"].as_array().map(Vec::len), Some(1), "{saved}");
    saved["results"][0].clone()
}

#[test]
fn a_saved_insight_is_edited_in_place() {
    let server = TestServer::start();
    world(&server);
    let fields = [("kind", "trends"), ("question", "a=view"), ("name", "Views"), ("dashboard", "")];
    assert_eq!(sent(&server, "insights", &fields).status, 303);
    let before = only_insight(&server);
    let path = format!("insights/{}", before["short_id"].as_str().expect("a short id"));
    let own = text(&page(&server, &path));
    // The form stays on this page, which offers to place it, not to save it again.
    assert!(own.contains(&format!("action=\"/project/1/{path}\" data-swap")), "{own}");
    assert!(own.contains("value=\"place\"") && !own.contains("value=\"ask\""), "{own}");
    let changed = page(&server, &format!("{path}?a=buy&from=-30d"));
    assert_eq!(changed.status, 200, "{changed}");
    let changed = text(&changed);
    assert!(changed.contains("<h1>Views</h1>") || changed.contains(">Views<"), "{changed}");
    assert!(changed.contains("value=\"ask\"") && !changed.contains("value=\"place\""), "{changed}");
    assert_eq!(only_insight(&server)["query"], before["query"], "nothing is saved by looking");
    let wrong = page(&server, &format!("{path}?zz=1"));
    assert_eq!(wrong.status, 400, "{wrong}");
    let saved = sent(&server, &path, &[("do", "ask"), ("question", "a=buy&from=-30d")]);
    assert_eq!(saved.header("location"), Some(&*format!("/project/1/{path}")), "{saved}");
    let after = only_insight(&server);
    assert_eq!((&after["id"], &after["name"]), (&before["id"], &before["name"]));
    assert_eq!(after["query"]["source"]["series"][0]["event"], "buy", "{after}");
    assert_eq!(after["query"]["source"]["dateRange"]["date_from"], "-30d", "{after}");
    assert_eq!(after["query"]["kind"], "InsightVizNode");
    let refused = sent(&server, &path, &[("do", "ask"), ("question", "zz=1")]);
    assert_eq!(refused.status, 400, "{refused}");
    // Onto a new dashboard, and onto one that is there.
    let placed = sent(&server, &path, &[("do", "place"), ("dashboard", "new")]);
    assert_eq!(placed.header("location"), Some("/project/1/dashboard/1"), "{placed}");
    assert_eq!(sent(&server, "dashboard", &[("name", "Other")]).status, 303);
    let placed = sent(&server, &path, &[("do", "place"), ("dashboard", "2")]);
    assert_eq!(placed.status, 303, "{placed}");
    assert_eq!(only_insight(&server)["dashboards"], json!([1, 2]));
    let own = text(&page(&server, &path));
    assert!(!own.contains("<option value=\"1\">") && own.contains("a new dashboard"), "{own}");
    let nothing = sent(&server, &path, &[("do", "place"), ("dashboard", "")]);
    assert_eq!(nothing.status, 400, "{nothing}");
}

#[test]
fn saved_sql_is_edited_in_place() {
    let server = TestServer::start();
    let node = json!({"kind": "DataTableNode", "source": {
        "kind": "HogQLQuery", "query": "SELECT 1 AS one", "values": {"n": 1}}});
    let made = server.post("/api/projects/1/insights/", &json!({"name": "One", "query": node}));
    let path = format!("insights/{}", made.created()["short_id"].as_str().expect("a short id"));
    let own = text(&page(&server, &path));
    assert!(own.contains("<textarea id=\"q\"") && !own.contains("value=\"ask\""), "{own}");
    let changed = text(&page(&server, &format!("{path}?q=SELECT+2+AS+two&chart=bars")));
    assert!(changed.contains(">two<") && changed.contains("value=\"ask\""), "{changed}");
    let saved =
        sent(&server, &path, &[("do", "ask"), ("question", "SELECT 2 AS two"), ("chart", "bars")]);
    assert_eq!(saved.status, 303, "{saved}");
    let query = &only_insight(&server)["query"];
    assert_eq!(query["source"]["query"], "SELECT 2 AS two", "{query}");
    assert_eq!(query["source"]["values"], json!({"n": 1}), "{query}");
}

#[test]
fn a_time_that_is_not_over_is_dashed() {
    let server = TestServer::start();
    world(&server);
    for (query, is_open) in [
        ("a=view", true),
        ("a=view&show=area", true),
        ("a=view&show=bars", true),
        ("a=view&interval=hour&from=-2d", true),
        ("a=view&from=-9d&to=-3d", false),
        ("a=view&show=bars&from=-9d&to=-3d", false),
        ("a=view&show=number", false),
    ] {
        let shown = text(&page(&server, &format!("insights/trends?{query}")));
        assert_eq!(shown.contains(" unfinished "), is_open, "{query}: {shown}");
        assert_eq!(shown.contains("(not over yet)"), is_open, "{query}");
    }
}
