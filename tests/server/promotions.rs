//! Promotion of properties to columns: over the API, by the command and on the page; who may, and what is refused. What the
//! columns have is tested in `promoted_columns`.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{Answer, KEY, TestServer, binary, run};
use crate::support::forms::post;

const PROMOTED: &str = "/api/projects/1/promoted_properties/";

fn promote(server: &TestServer, project: i64, key: &str, kind: &str) -> Answer {
    let path = format!("/api/projects/{project}/promoted_properties/");
    server.post(&path, &json!({"key": key, "type": kind}))
}

/// The keys and types of the promoted properties of a project.
fn promoted(server: &TestServer, project: i64) -> Vec<(String, String)> {
    let list = server.get(&format!("/api/projects/{project}/promoted_properties/")).json();
    let results = list["results"].as_array().expect("a list").clone();
    assert_eq!(list["count"], results.len(), "{list}");
    let text = |row: &Value, name: &str| row[name].as_str().expect("a text").to_owned();
    results.iter().map(|row| (text(row, "key"), text(row, "type"))).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(key, kind)| ((*key).to_owned(), (*kind).to_owned())).collect()
}

/// Field, code and text of a refusal.
fn refusal(answer: &Answer) -> (Value, Value, String) {
    assert_eq!(answer.status, 400, "{answer}");
    let told = answer.json();
    (told["attr"].clone(), told["code"].clone(), told["detail"].as_str().expect("text").to_owned())
}

#[test]
fn a_property_is_promoted_and_is_no_more() {
    let mut server = TestServer::start();
    assert!(promoted(&server, 1).is_empty());
    let plan = promote(&server, 1, "plan", "text").created();
    let fields = json!({"key": "plan", "type": "text", "column": "p_plan", "table": "events", "created_at": plan["created_at"]});
    assert_eq!(plan, fields);
    assert!(plan["created_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{plan}");
    let odd = promote(&server, 1, " a/b c%ü", "number").created();
    assert_eq!((&odd["key"], &odd["column"]), (&json!(" a/b c%ü"), &json!("p_%20a/b%20c%25ü")));
    promote(&server, 1, "paid", "boolean").created();
    assert_eq!(promote(&server, 1, "plan", "text").created(), plan, "as it was");
    let all = pairs(&[(" a/b c%ü", "number"), ("paid", "boolean"), ("plan", "text")]);
    assert_eq!(promoted(&server, 1), all);
    let page = server.get(&format!("{PROMOTED}?limit=1&offset=2")).json();
    assert_eq!((&page["count"], &page["next"]), (&json!(3), &Value::Null));
    assert_eq!(page["results"], json!([plan]));
    server.stop();
    server.restart();
    assert_eq!(promoted(&server, 1), all);
    let odd = format!("{PROMOTED}%20a%2Fb%20c%25%C3%BC/");
    for (path, status) in [
        (format!("{PROMOTED}plan/"), 204),
        (format!("{PROMOTED}plan/"), 404),
        (format!("{PROMOTED}Paid/"), 404),
        (odd.clone(), 204),
        (odd, 404),
    ] {
        let answer = server.delete(&path);
        assert_eq!(answer.status, status, "{path}: {answer}");
    }
    assert_eq!(promoted(&server, 1), pairs(&[("paid", "boolean")]));
    let log = server.get("/api/projects/1/activity_log/?scope=PropertyDefinition").json();
    let changes: Vec<&Value> = log["results"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| &entry["detail"]["changes"][0]["after"])
        .collect();
    let columns =
        [json!("p_paid, boolean"), json!("p_%20a/b%20c%25ü, number"), json!("p_plan, text")];
    assert_eq!(changes, [&Value::Null, &Value::Null, &columns[0], &columns[1], &columns[2]]);
}

#[test]
fn what_cannot_be_promoted_is_refused() {
    let server = TestServer::start();
    let long = "ü".repeat(201);
    for (body, attr, code, detail) in [
        (json!({}), "key", "required", "This field is required."),
        (json!({"key": "a"}), "type", "required", "This field is required."),
        (json!({"key": null, "type": "text"}), "key", "null", "This field may not be null."),
        (json!({"key": "", "type": "text"}), "key", "blank", "This field may not be blank."),
        (json!({"key": ["a"], "type": "text"}), "key", "invalid_input", "Not a valid string."),
        (
            json!({"key": "a", "type": "date"}),
            "type",
            "invalid_choice",
            "\"date\" is not a valid choice.",
        ),
        (
            json!({"key": "a", "type": "text", "table": "groups"}),
            "table",
            "invalid_choice",
            "\"groups\" is not a valid choice.",
        ),
        (
            json!({"key": "a", "type": "text", "table": null}),
            "table",
            "null",
            "This field may not be null.",
        ),
        (
            json!({"key": long, "type": "text"}),
            "key",
            "max_length",
            "Ensure this field has no more than 200 characters.",
        ),
        (
            json!({"key": "a\u{0}", "type": "text"}),
            "key",
            "invalid_input",
            "A key with control characters cannot have a column.",
        ),
        (
            json!({"key": "$browser", "type": "text"}),
            "key",
            "invalid_input",
            "The property $browser has a column already, p_$browser.",
        ),
        (
            json!({"key": "$session_id", "type": "text"}),
            "key",
            "invalid_input",
            "The property $session_id has a column already, session_id.",
        ),
        (
            json!({"key": "$Browser", "type": "text"}),
            "key",
            "invalid_input",
            "The column p_$Browser would differ in case alone from p_$browser.",
        ),
    ] {
        let told = refusal(&server.post(PROMOTED, &body));
        assert_eq!(told, (json!(attr), json!(code), detail.to_owned()), "{body}");
    }
    let unknown = server.post(PROMOTED, &json!({"key": "a", "type": "text", "name": "b"}));
    assert_eq!(refusal(&unknown).0, "name");
    assert!(promoted(&server, 1).is_empty());
    for path in [format!("{PROMOTED}?table=groups"), format!("{PROMOTED}?table=")] {
        assert_eq!(refusal(&server.get(&path)).0, "table", "{path}");
    }
    let deleted = server.delete(&format!("{PROMOTED}plan/?table=person"));
    assert_eq!(refusal(&deleted).0, "table");
}

#[test]
fn tables_have_their_own_promotions() {
    let server = TestServer::start();
    let of = |table: &str| {
        let list = server.get(&format!("{PROMOTED}?table={table}")).json();
        let rows = list["results"].as_array().expect("a list").clone();
        assert!(rows.iter().all(|row| row["table"] == table), "{list}");
        rows.iter().map(|row| row["type"].clone()).collect::<Vec<_>>()
    };
    let plan = json!({"key": "plan", "type": "number", "table": "persons"});
    let made = server.post(PROMOTED, &plan).created();
    assert_eq!(made["column"], "p_plan");
    promote(&server, 1, "plan", "text").created();
    // Events have columns of it.
    for key in ["$os", "$ip", "$session_id"] {
        let body = json!({"key": key, "type": "text", "table": "persons"});
        server.post(PROMOTED, &body).created();
    }
    assert_eq!(of("events"), ["text"]);
    assert_eq!(of("persons"), ["text", "text", "text", "number"]);
    assert_eq!(server.get(PROMOTED).json()["count"], 5);
    assert_eq!(server.delete(&format!("{PROMOTED}plan/")).status, 204);
    assert_eq!(server.delete(&format!("{PROMOTED}plan/")).status, 404);
    assert!(of("events").is_empty());
    assert_eq!(server.delete(&format!("{PROMOTED}plan/?table=persons")).status, 204);
    assert_eq!(of("persons").len(), 3);
    // The table of persons has a column for good once its files can have it.
    server.post(PROMOTED, &plan).created();
    run(server.weir(&["flush", "--persons"]));
    assert_eq!(server.delete(&format!("{PROMOTED}plan/?table=persons")).status, 204);
    let other = json!({"key": "plan", "type": "text", "table": "persons"});
    let stays = refusal(&server.post(PROMOTED, &other)).2;
    assert_eq!(stays, "The column p_plan is number, and stays it.");
    promote(&server, 1, "plan", "text").created();
}

#[test]
fn a_column_has_one_type_in_all_projects_and_for_good() {
    let server = TestServer::start();
    let (other, _) = server.project("Other");
    promote(&server, 1, "plan", "text").created();
    promote(&server, 1, "seats", "number").created();
    let stays = |answer: &Answer, column: &str, kind: &str| {
        let detail = format!("The column {column} is {kind}, and stays it.");
        assert_eq!(refusal(answer), (json!("type"), json!("invalid_input"), detail));
    };
    stays(&promote(&server, 1, "plan", "number"), "p_plan", "text");
    stays(&promote(&server, other, "plan", "boolean"), "p_plan", "text");
    promote(&server, other, "plan", "text").created();
    // Of the other project nothing is seen, and nothing ended.
    assert_eq!(promoted(&server, other), pairs(&[("plan", "text")]));
    let path = format!("/api/projects/{other}/promoted_properties/seats/");
    assert_eq!(server.delete(&path).status, 404);
    assert_eq!(promoted(&server, 1), pairs(&[("plan", "text"), ("seats", "number")]));
    // Files have the columns from now on, whoever promotes them.
    let event =
        json!([{"event": "a", "distinct_id": "b", "properties": {"plan": "x", "seats": 3}}]);
    assert_eq!(server.capture(&event).status, 200);
    server.flush();
    assert_eq!(server.delete(&format!("{PROMOTED}seats/")).status, 204);
    stays(&promote(&server, 1, "seats", "text"), "p_seats", "number");
    let case = refusal(&promote(&server, other, "Seats", "number")).2;
    assert_eq!(case, "The column p_Seats would differ in case alone from p_seats.");
    promote(&server, other, "seats", "number").created();
    // What a deleted project has promoted is promoted no more, and the column stays.
    assert_eq!(server.delete(&format!("/api/projects/{other}/")).status, 204);
    stays(&promote(&server, 1, "seats", "boolean"), "p_seats", "number");
    promote(&server, 1, "seats", "number").created();
}

#[test]
fn a_server_has_so_many_columns() {
    let server = TestServer::start();
    let (other, _) = server.project("Other");
    for number in 0..50 {
        let project = if number % 2 == 0 { 1 } else { other };
        promote(&server, project, &format!("key {number}"), "text").created();
    }
    promote(&server, 1, "key 1", "text").created();
    let refused = refusal(&promote(&server, 1, "more", "text"));
    assert_eq!(refused.2, "The projects of a server promote at most 50 properties of events.");
    // Those of persons are others.
    let of_persons =
        |key: &str| server.post(PROMOTED, &json!({"key": key, "type": "text", "table": "persons"}));
    for number in 0..50 {
        of_persons(&format!("key {number}")).created();
    }
    let refused = refusal(&of_persons("more"));
    assert_eq!(refused.2, "The projects of a server promote at most 50 properties of persons.");
    assert_eq!(server.delete(&format!("{PROMOTED}key%200/")).status, 204);
    promote(&server, other, "more", "text").created();
}

#[test]
fn only_administrators_promote() {
    let server = TestServer::start();
    let (other, _) = server.project("Other");
    promote(&server, 1, "plan", "text").created();
    let member = json!({"email": "mel@acme.com", "level": 1});
    let member = server.post("/api/organizations/@current/members/", &member).created();
    let member = member["personal_api_key"].as_str().expect("a key").to_owned();
    let reading = server.key(&json!({"label": "r", "scopes": ["property_definition:read"]}));
    let writing = server.key(&json!({"label": "w", "scopes": ["property_definition:write"]}));
    let limited = json!({"label": "l", "scopes": ["*"], "scoped_teams": [1]});
    let limited = server.key(&limited);
    let elsewhere = json!({"label": "e", "scopes": ["*"], "scoped_teams": [other]});
    let elsewhere = server.key(&elsewhere);
    let ask = |key: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        server.send(method, path, &headers, body).status
    };
    let plan = format!("{PROMOTED}plan/");
    let paid = json!({"key": "paid", "type": "text"}).to_string();
    for (key, reads, writes) in [
        (&member, 200, false),
        (&reading, 200, false),
        (&limited, 200, false),
        (&elsewhere, 403, false),
        (&writing, 200, true),
    ] {
        assert_eq!(ask(key, "GET", PROMOTED, ""), reads);
        assert_eq!(ask(key, "POST", PROMOTED, &paid), if writes { 201 } else { 403 });
        assert_eq!(ask(key, "DELETE", &plan, ""), if writes { 204 } else { 403 });
    }
    assert_eq!(promoted(&server, 1), pairs(&[("paid", "text")]));
}

fn weir(server: &TestServer, key: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("promote").args(arguments).args(["--url", &server.url(), "--key", key]);
    command.output().expect("weir")
}

#[test]
fn the_command_promotes_lists_and_removes() {
    let server = TestServer::start();
    let (other, _) = server.project("Other");
    let done = |arguments: &[&str]| {
        let output = weir(&server, KEY, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        // Without the times.
        let line = |line: &str| {
            let mut parts: Vec<&str> = line.split('\t').collect();
            parts.remove(3);
            parts.join("\t")
        };
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(done(&[]), ["KEY\tTYPE\tCOLUMN\tTABLE"]);
    assert_eq!(done(&["plan"]), ["plan\ttext\tp_plan\tevents"]);
    assert_eq!(done(&["a b/c", "--type", "number"]), ["a b/c\tnumber\tp_a%20b/c\tevents"]);
    let number = other.to_string();
    let of_other = ["paid", "--type", "boolean", "--project", &number];
    assert_eq!(done(&of_other), ["paid\tboolean\tp_paid\tevents"]);
    let of_persons = ["a b/c", "--table", "persons"];
    assert_eq!(done(&of_persons), ["a b/c\ttext\tp_a%20b/c\tpersons"]);
    let all = [
        "KEY\tTYPE\tCOLUMN\tTABLE",
        "a b/c\tnumber\tp_a%20b/c\tevents",
        "plan\ttext\tp_plan\tevents",
        "a b/c\ttext\tp_a%20b/c\tpersons",
    ];
    assert_eq!(done(&[]), all);
    assert_eq!(done(&["--table", "persons"]), [all[0], all[3]]);
    assert_eq!(done(&["--table", "events"]), all[..3]);
    assert_eq!(done(&["a b/c", "--remove"]), Vec::<String>::new());
    assert_eq!(done(&["--table", "persons"]), [all[0], all[3]]);
    assert_eq!(done(&["a b/c", "--remove", "--table", "persons"]), Vec::<String>::new());
    assert_eq!(promoted(&server, 1), pairs(&[("plan", "text")]));
    assert_eq!(promoted(&server, other), pairs(&[("paid", "boolean")]));
    for (arguments, key, expected) in [
        (&["plan", "--type", "number"][..], KEY, "The column p_plan is text, and stays it."),
        (&["plan", "--type", "date"], KEY, "date"),
        (&["plan", "--table", "groups"], KEY, "groups"),
        (&["plan", "--remove", "--table", "persons"], KEY, "Not found."),
        (&["other", "--remove"], KEY, "Not found."),
        (&["--remove"], KEY, "KEY"),
        (&["plan"], "phx_wrong", "key"),
    ] {
        let output = weir(&server, key, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn the_page_promotes_properties() {
    let server = TestServer::start();
    let properties = json!({"seats": 3, "$browser": "x", "$set": {"age": 7}});
    let event = json!([{"event": "a", "distinct_id": "b", "properties": properties}]);
    assert_eq!(server.capture(&event).status, 200);
    server.count("SELECT count(*) FROM events");
    let page = |path: &str| {
        let answer = server.get(&format!("/project/1/data-management/{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer}");
        String::from_utf8(answer.body).expect("UTF-8")
    };
    let id = |query: &str| {
        let list = server.get(&format!("/api/projects/1/property_definitions/?{query}")).json();
        list["results"][0]["id"].as_str().expect("an id").to_owned()
    };
    let (seats, browser, age) =
        (id("search=seats"), id("search=browser"), id("type=person&search=age"));
    let own = format!("properties/{seats}");
    let shown = page(&own);
    assert!(shown.contains("value=\"promote\""), "{shown}");
    assert!(shown.contains("<option value=\"number\" selected>number</option>"), "{shown}");
    let fixed = page(&format!("properties/{browser}"));
    assert!(!fixed.contains("id=\"column\""), "{fixed}");
    let shown = page(&format!("properties/{age}"));
    assert!(shown.contains("<option value=\"number\" selected>number</option>"), "{shown}");
    let send = |id: &str, fields: &[(&str, &str)]| {
        post(&server, &format!("data-management/properties/{id}/column"), fields)
    };
    let answer = send(&seats, &[("do", "promote"), ("type", "number")]);
    assert_eq!(answer.status, 303, "{answer}");
    let to = format!("/project/1/data-management/{own}");
    assert_eq!(answer.header("location").map(|to| to.replace("%2D", "-")), Some(to));
    assert_eq!(promoted(&server, 1), pairs(&[("seats", "number")]));
    assert!(page("properties").contains("p_seats, number"));
    let shown = page(&own);
    assert!(shown.contains("p_seats") && shown.contains("value=\"stop\""), "{shown}");
    for (id, fields, status) in [
        (&seats, &[("do", "promote"), ("type", "text")][..], 400),
        (&seats, &[("do", "promote"), ("type", "date")], 400),
        (&seats, &[("do", "other")], 400),
        (&browser, &[("do", "promote"), ("type", "text")], 400),
    ] {
        let answer = send(id, fields);
        assert_eq!(answer.status, status, "{fields:?}: {answer}");
    }
    assert_eq!(promoted(&server, 1), pairs(&[("seats", "number")]));
    assert_eq!(send(&seats, &[("do", "stop")]).status, 303);
    assert!(promoted(&server, 1).is_empty());
    assert_eq!(send(&seats, &[("do", "stop")]).status, 404);
    // Of persons.
    assert_eq!(send(&age, &[("do", "stop")]).status, 404);
    assert_eq!(send(&age, &[("do", "promote"), ("type", "number")]).status, 303);
    let list = server.get(PROMOTED).json()["results"].clone();
    assert_eq!((&list[0]["key"], &list[0]["table"]), (&json!("age"), &json!("persons")));
    assert!(page("properties?type=person").contains("p_age, number"));
    assert!(!page("properties").contains("p_age, number"));
    let shown = page(&format!("properties/{age}"));
    assert!(shown.contains("p_age") && shown.contains("value=\"stop\""), "{shown}");
    assert_eq!(send(&age, &[("do", "stop")]).status, 303);
    assert!(promoted(&server, 1).is_empty());
}
