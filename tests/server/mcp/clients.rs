//! Released clients of Python and TypeScript, over HTTP and over standard input and output.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{ask, call, shop};
use crate::harness::{KEY, TestServer, binary};
use crate::owner::Owner;
use crate::sdk::{source, tools};

/// The first two days of March, of which the shop has events.
fn march(mut arguments: Value) -> Value {
    arguments["from"] = json!("2026-03-01");
    arguments["to"] = json!("2026-03-02");
    arguments
}

/// Questions with good arguments.
fn questions() -> Vec<(&'static str, Value)> {
    let (view, signup, paid) =
        (json!({"event": "$pageview"}), json!({"event": "signed up"}), json!({"event": "paid"}));
    let pro = json!([{"key": "plan", "value": "pro"}]);
    vec![
        ("schema", json!({})),
        ("schema", json!({"event": "signed up"})),
        (
            "sql",
            json!({"query": "SELECT event, count(*) AS n FROM events GROUP BY event ORDER BY event"}),
        ),
        ("sql", json!({"query": "SELECT event FROM events ORDER BY timestamp", "limit": 2})),
        (
            "trends",
            march(
                json!({"series": [view, {"event": "$pageview", "math": "dau", "name": "persons"}]}),
            ),
        ),
        ("trends", march(json!({"series": [signup], "breakdown": "plan", "show": "total"}))),
        (
            "trends",
            march(
                json!({"series": [{"event": "signed up", "filters": pro}], "formulas": ["A * 2"]}),
            ),
        ),
        (
            "trends",
            json!({"query": {
                "kind": "StickinessQuery", "series": [{"kind": "EventsNode", "event": "$pageview"}],
                "dateRange": {"date_from": "2026-03-01", "date_to": "2026-03-02"},
            }}),
        ),
        ("funnel", march(json!({"steps": [view, signup, paid]}))),
        ("retention", march(json!({"start": view, "intervals": 2}))),
        ("paths", march(json!({"include": ["$pageview"]}))),
        ("persons_find", json!({"search": "ada@"})),
        ("persons_find", json!({"filters": [{"key": "email", "value": "bob@shop.example"}]})),
        ("person", json!({"id": "ada"})),
        ("flags_list", json!({})),
        ("flag_explain", json!({"flag": "pro-only", "distinct_id": "ada"})),
        ("flag_explain", json!({"flag": "pro-only", "distinct_id": "bob"})),
    ]
}

/// Questions that cannot be answered, and what the answer says to write instead.
fn mistakes() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("schema", json!({"event": "signed upp"}), "Did you mean \"signed up\"?"),
        ("sql", json!({"query": "SELECT nothing FROM events"}), "tool schema"),
        ("sql", json!({"query": "DELETE FROM events"}), "DELETE"),
        ("sql", json!({}), "sql needs the argument query."),
        ("trends", json!({"serie": []}), "Did you mean \"series\"?"),
        (
            "trends",
            json!({"series": [{"event": "paid", "filters": [{"key": "a", "operator": "is"}]}]}),
            "operator",
        ),
        ("trends", json!({"breakdown_type": "person"}), "breakdown"),
        ("trends", json!({"query": {"kind": "FunnelsQuery"}}), "TrendsQuery"),
        (
            "trends",
            json!({"query": {"kind": "TrendsQuery"}, "interval": "day"}),
            "leave out interval",
        ),
        ("funnel", json!({"steps": [{"event": "paid"}]}), "two steps"),
        ("retention", json!({"interval": "year"}), "Expected minute, hour, day, week or month."),
        ("paths", json!({"edges": "many"}), "whole number"),
        ("person", json!({"id": "nobody"}), "persons_find"),
        (
            "flag_explain",
            json!({"flag": "pro-onyl", "distinct_id": "ada"}),
            "Did you mean \"pro-only\"?",
        ),
        ("flag_change", json!({"flag": "pro-only"}), "active, rollout_percentage"),
        ("flag_change", json!({"flag": "pro-only", "rollout_percentage": 101}), "100"),
    ]
}

/// The programs: the name, and the command.
fn clients(server: &TestServer, url: &str) -> Vec<(&'static str, &'static str, Command)> {
    let tools = tools();
    let python = |mode: &str, rest: &[&str]| {
        let mut command = Command::new(tools.join("mcp-python/bin/python"));
        command.arg(source("assistant.py")).arg(mode).args(rest);
        command
    };
    let node = |generation: &str, rest: &[&str]| {
        let mut command = Command::new(tools.join("nodejs/bin/node"));
        command.arg(source("assistant.mjs")).arg(tools.join("mcp-node/node_modules"));
        command.arg(generation).args(rest);
        command
    };
    let (binary, directory) = (binary(), server.data_dir());
    let (binary, directory) = (binary.to_str().unwrap(), directory.to_str().unwrap());
    let http = ["http", url, KEY];
    let local = ["stdio", binary, "mcp", "--data-dir", directory];
    let base = server.url();
    let remote = ["stdio", binary, "mcp", "--url", &base, "--key", KEY];
    vec![
        ("Python", "2026-07-28", python("auto", &http)),
        ("Python", "2025-11-25", python("legacy", &http)),
        ("Python", "2026-07-28", python("auto", &local)),
        ("Python", "2025-11-25", python("legacy", &remote)),
        ("TypeScript", "2025-11-25", node("v1", &http)),
        ("TypeScript", "2026-07-28", node("v2", &http)),
        ("TypeScript", "2025-11-25", node("v1", &local)),
        ("TypeScript", "2026-07-28", node("v2", &remote)),
    ]
}

/// What a client says to each line.
fn run(name: &str, mut command: Command, lines: &[Value]) -> Vec<Value> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("the client starts");
    let mut stdin = running.stdin.take().expect("its standard input");
    for line in lines {
        writeln!(stdin, "{line}").expect("the client listens");
    }
    drop(stdin);
    let output = running.wait_with_output().expect("the client ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{stderr}", output.status);
    let told: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"))
        })
        .collect();
    assert_eq!(told.len(), lines.len(), "{name}: {stderr}");
    told
}

#[test]
fn released_clients_use_every_tool() {
    let server = shop();
    let (insight, board) = furnish(&server);
    let url = format!("{}/mcp", server.url());
    let mut lines = vec![json!({"do": "about"}), json!({"do": "tools"})];
    let call = |name: &str, sent: &Value| json!({"do": "call", "name": name, "arguments": sent});
    lines.extend(questions().iter().map(|(name, sent)| call(name, sent)));
    lines.extend(mistakes().iter().map(|(name, sent, _)| call(name, sent)));
    let rest = [
        json!({"do": "call", "name": "trend", "arguments": {}}),
        json!({"do": "resources"}),
        json!({"do": "templates"}),
        json!({"do": "read", "uri": format!("weir://project/1/insights/{insight}")}),
        json!({"do": "read", "uri": format!("weir://project/1/dashboards/{board}")}),
        json!({"do": "read", "uri": "weir://project/1/insights/9999"}),
        json!({"do": "prompts"}),
        json!({"do": "prompt", "name": "why_did_it_change", "arguments": {"what": "signups"}}),
        json!({"do": "prompt", "name": "why_did_it_change"}),
        json!({"do": "call", "name": "health"}),
    ];
    lines.extend(rest.iter().cloned());
    let mut first: Option<Vec<Value>> = None;
    for (name, revision, command) in clients(&server, &url) {
        let case = format!("{name} {revision}: {command:?}");
        let mut told = run(&case, command, &lines);
        let about = told.remove(0);
        assert_eq!(about["result"]["name"], "weir", "{case}: {about}");
        if !about["result"]["revision"].is_null() {
            assert_eq!(about["result"]["revision"], revision, "{case}");
        }
        check_mistakes(&case, &told[1 + questions().len()..]);
        check_rest(&case, insight, &told[told.len() - rest.len()..]);
        // Figures of the server change all the time.
        told.pop();
        match &first {
            None => first = Some(told),
            Some(first) => {
                for ((line, first), told) in lines[1..].iter().zip(first).zip(&told) {
                    let (first, told) = (plain(first), plain(told));
                    assert_eq!(told, first, "{case}: {line}");
                }
            }
        }
    }
    let first = first.expect("a client");
    let tools: Vec<&str> = first[0]["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["name"].as_str().unwrap())
        .collect();
    assert_eq!(tools.len(), 12, "{tools:?}");
    check_numbers(&server, &first[1..=questions().len()]);
}

/// Without what clients and revisions have in errors, and of lists the names: clients fill in the rest by themselves.
fn plain(told: &Value) -> Value {
    match (told.get("error"), &told["result"]) {
        (Some(_), _) => json!("an error"),
        (None, Value::Array(list)) => list.iter().map(|own| own["name"].clone()).collect(),
        (None, result) => with_floats(result),
    }
}

/// With all numbers as JavaScript has them: 100 and 100.0 are the same.
fn with_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(with_floats).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), with_floats(value))).collect()
        }
        other => other.clone(),
    }
}

/// A flag, a saved insight and a dashboard with it, whose ids are returned.
fn furnish(server: &TestServer) -> (i64, i64) {
    let email = json!({"key": "email", "type": "person", "operator": "exact", "value": ["ada@shop.example"]});
    let filters = json!({"groups": [{"properties": [email], "rollout_percentage": 100}]});
    let flag = json!({"key": "pro-only", "name": "For Ada", "active": true, "filters": filters});
    server.post("/api/projects/1/feature_flags/", &flag).created();
    let query = json!({
        "kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "$pageview"}],
        "dateRange": {"date_from": "2026-03-01", "date_to": "2026-03-02"},
    });
    let insight = json!({"name": "Views", "query": query});
    let insight = server.post("/api/projects/1/insights/", &insight).created();
    let board = json!({"name": "Board", "tiles": [{"insight": insight["id"]}]});
    let board = server.post("/api/projects/1/dashboards/", &board).created();
    let id = |own: &Value| own["id"].as_i64().expect("an id");
    (id(&insight), id(&board))
}

fn check_mistakes(case: &str, told: &[Value]) {
    for ((name, sent, hint), told) in mistakes().iter().zip(told) {
        let result = &told["result"];
        assert_eq!(result["failed"], true, "{case}: {name} {sent}: {told}");
        let text = result["text"].as_str().unwrap();
        assert!(text.contains(hint), "{case}: {name} {sent}: {text}");
    }
}

/// What is said to the lines behind the tools.
fn check_rest(case: &str, insight: i64, told: &[Value]) {
    let [unknown, resources, templates, saved, board, missing, prompts, prompt, bare, health] =
        told
    else {
        panic!("{case}: {} answers", told.len());
    };
    let message = |told: &Value| told["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message(unknown).contains("Did you mean \"trends\"?"), "{case}: {unknown}");
    let uris: Vec<&Value> =
        resources["result"].as_array().unwrap().iter().map(|own| &own["uri"]).collect();
    let uri = json!(format!("weir://project/1/insights/{insight}"));
    assert!(uris.contains(&&uri), "{case}: {uris:?}");
    assert_eq!(templates["result"].as_array().unwrap().len(), 2, "{case}");
    let text = saved["result"].as_str().unwrap_or_else(|| panic!("{case}: {saved}"));
    assert!(text.starts_with("Views: ") && text.contains("Page: http://"), "{case}: {text}");
    let text = board["result"].as_str().unwrap_or_else(|| panic!("{case}: {board}"));
    assert!(text.starts_with("Dashboard Board") && text.contains("Views: "), "{case}: {text}");
    assert!(message(missing).contains("There is no such resource"), "{case}: {missing}");
    assert_eq!(prompts["result"].as_array().unwrap().len(), 2, "{case}");
    assert!(prompt["result"].as_str().unwrap().contains("signups (lately)"), "{case}: {prompt}");
    assert!(message(bare).contains("needs what"), "{case}: {bare}");
    assert_eq!(health["result"]["failed"], false, "{case}: {health}");
}

/// The tables of the answers: computed by hand from the events of the shop, and those of the API.
fn check_numbers(server: &TestServer, told: &[Value]) {
    let table = |at: usize| {
        let result = &told[at]["result"];
        assert_eq!(result["failed"], false, "{}", told[at]);
        result["structured"]["tables"][0].clone()
    };
    let has = |at: usize, row: Value| {
        let table = table(at);
        let rows = table["rows"].as_array().unwrap();
        assert!(rows.contains(&row), "{at}: {row} is not in {table}");
    };
    has(2, json!(["$pageview", 5]));
    has(2, json!(["signed up", 2]));
    assert_eq!(table(3)["rows"], json!([["$pageview"], ["$pageview"]]));
    assert_eq!(table(3)["total"], 8);
    let structured = |at: usize, name: &str| told[at]["result"]["structured"][name].clone();
    for at in 4..=10 {
        // The node of the answer, asked over the API, has the numbers that the table has.
        let body = json!({"query": structured(at, "query")});
        let api = server.post("/api/projects/1/query/", &body);
        assert_eq!(api.status, 200, "{at}: {api}");
        numbers_are_in(&api.json()["results"], &table(at), at);
        assert!(structured(at, "url").as_str().unwrap().starts_with(&server.url()), "{at}");
    }
}

/// Checks that all counts of a result of the API are in a table.
fn numbers_are_in(result: &Value, table: &Value, at: usize) {
    let cells: Vec<&Value> =
        table["rows"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap()).collect();
    let mut found = 0;
    let mut check = |number: &Value| {
        found += 1;
        // Periods that are behind the range are empty.
        let is_behind = number == &json!(0) && cells.contains(&&json!(""));
        assert!(is_behind || cells.contains(&number), "{at}: {number} is not in {table}");
    };
    let mut pending = vec![result];
    while let Some(own) = pending.pop() {
        match own {
            Value::Array(list) => pending.extend(list),
            Value::Object(fields) => {
                let single = fields.get("aggregated_value").filter(|own| !own.is_null());
                if let Some(number) = single {
                    check(number);
                } else if let Some(Value::Array(data)) = fields.get("data") {
                    data.iter().for_each(&mut check);
                } else if let Some(Value::Array(values)) = fields.get("values") {
                    pending.extend(values);
                } else if let Some(number) = fields.get("count").or_else(|| fields.get("value")) {
                    check(number);
                }
            }
            _ => {}
        }
    }
    assert!(found > 0, "{at}: {result}");
}

/// Pages of answers are those that show the same, and SQL has the same numbers.
#[test]
fn answers_lead_to_the_page_and_to_sql() {
    let server = shop();
    let arguments = march(json!({"series": [{"event": "$pageview"}]}));
    let (_, text, structured) = call(&server, KEY, "trends", &arguments);
    let url = structured["url"].as_str().unwrap_or_else(|| panic!("{text}"));
    let page = server.get(url.strip_prefix(&server.url()).unwrap());
    let shown = String::from_utf8_lossy(&page.body).into_owned();
    assert!(page.status == 200 && shown.contains("$pageview"), "{}: {url}", page.status);
    let sql = structured["sql"].as_str().unwrap_or_else(|| panic!("{text}"));
    let (failed, told, rows) = call(&server, KEY, "sql", &json!({"query": sql}));
    assert!(!failed, "{told}");
    let values: Vec<&Value> =
        rows["tables"][0]["rows"].as_array().unwrap().iter().map(|row| &row[1]).collect();
    assert_eq!(values, [&json!(4), &json!(1)], "{told}");
    let (_, plan, _) = call(&server, KEY, "sql", &json!({"query": "SELECT 1", "explain": true}));
    assert!(plan.starts_with("The plan"), "{plan}");
}

/// No tool, resource or id shows anything of another project: `me` asks with what it knows of `you`.
pub(crate) fn nothing_is_told_of_others(
    server: &TestServer,
    key: &str,
    (me, you): (&Owner, &Owner),
) {
    let base = json!({"from": "all"});
    let of = |more: Value| {
        let mut arguments = base.clone();
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let theirs = |name: &str| Value::from(you.ids[name].as_str());
    let named = format!("only of {}", you.secret);
    // Whether the answer has the secret of `me`; the nearest names of a wrong one may have it.
    let (yes, no, maybe) = (Some(true), Some(false), None);
    for (name, arguments, tells) in [
        ("schema", json!({}), yes),
        ("schema", json!({"event": "same event"}), yes),
        ("schema", json!({"event": named}), maybe),
        ("sql", json!({"query": "SELECT properties FROM events"}), yes),
        ("trends", of(json!({"series": [{"event": "same event"}], "breakdown": "secret"})), yes),
        ("trends", of(json!({"series": [{"event": named}]})), maybe),
        ("funnel", of(json!({"steps": [{"event": "same event"}, {"event": named}]})), maybe),
        ("paths", of(json!({"include": ["$pageview", "custom_event"]})), yes),
        ("retention", json!({"start": {"event": "same event"}}), no),
        ("persons_find", json!({}), yes),
        ("persons_find", json!({"search": format!("{}@", you.secret)}), no),
        ("person", json!({"id": "same"}), yes),
        ("person", json!({"id": theirs("PERSON")}), no),
        ("flags_list", json!({}), yes),
        ("flag_explain", json!({"flag": theirs("FLAG"), "distinct_id": "same"}), maybe),
        ("flag_change", json!({"flag": theirs("FLAG"), "active": false}), maybe),
        ("health", json!({}), maybe),
    ] {
        let sent = arguments.to_string();
        let (_, text, _) = call(server, key, name, &arguments);
        // The slowest queries of this project name what was sent with them.
        let text = match text.split_once("\nSlowest queries") {
            Some((before, slow)) => {
                let after = slow.find("\n\n").and_then(|end| slow.get(end..)).unwrap_or_default();
                format!("{before}{after}")
            }
            None => text,
        };
        // What was sent may come back in an error.
        let is_told = text.contains(you.secret) && !sent.contains(you.secret);
        assert!(!is_told && !text.contains(&you.ids["GONE"]), "{name} {sent}: {text}");
        assert!(
            tells.is_none_or(|tells| text.contains(me.secret) == tells),
            "{name} {sent}: {text}"
        );
    }
    let listed = ask(server, key, "resources/list", &json!({"cursor": "insights:0"})).to_string();
    assert!(listed.contains(me.secret) && !listed.contains(you.secret), "{listed}");
    for (project, kind, id) in [
        (you.project, "insights", "INSIGHT"),
        (me.project, "insights", "INSIGHT"),
        (you.project, "dashboards", "BOARD"),
        (me.project, "dashboards", "BOARD"),
    ] {
        let uri = format!("weir://project/{project}/{kind}/{}", you.ids[id]);
        let told = ask(server, key, "resources/read", &json!({"uri": uri}));
        assert_eq!(told["error"]["code"], -32002, "{uri}: {told}");
    }
}
