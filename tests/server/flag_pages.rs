//! Pages of flags tell how often flags were asked for, by the events of the SDKs.

use serde_json::{Value, json};

use crate::harness::TestServer;

fn page(server: &TestServer, path: &str) -> String {
    let answer = server.get(&format!("/project/1/{path}"));
    assert_eq!(answer.status, 200, "{path}: {answer}");
    String::from_utf8(answer.body).expect("UTF-8")
}

/// The cells of the row of a flag.
fn cells(list: &str, key: &str) -> Vec<String> {
    let row = list.split("<tr>").find(|row| row.contains(&format!(">{key}</a>")));
    let cells = row.expect("a row").split("<td").skip(1);
    let text = |cell: &str| {
        let inner = cell.split_once('>').map_or("", |(_, rest)| rest);
        inner.split("</td>").next().unwrap_or_default().to_owned()
    };
    cells.map(text).collect()
}

#[test]
fn flags_tell_how_often_they_were_asked_for() {
    let server = TestServer::start();
    for key in ["asked", "unasked"] {
        let flag = json!({"key": key, "filters": {"groups": [{"rollout_percentage": 50}]}});
        server.post("/api/projects/1/feature_flags/", &flag).created();
    }
    assert_eq!(cells(&page(&server, "feature_flags"), "asked")[2], "0");
    let now = weir_base::clock::Clock::system().now().to_datetime();
    let call = |at: i64| {
        let days = if at < 12 { 2 } else { 10 };
        let response = if at % 3 == 0 { json!("blue") } else { json!(false) };
        json!({"event": "$feature_flag_called", "distinct_id": format!("p{at}"),
            "timestamp": (now - chrono::TimeDelta::days(days)).to_rfc3339(),
            "properties": {"$feature_flag": if at % 4 == 3 { "other" } else { "asked" },
                "$feature_flag_response": response}})
    };
    server.capture(&(0..20).map(call).collect::<Value>());
    let list = page(&server, "feature_flags");
    assert_eq!(cells(&list, "asked")[2], "9", "those of the last 7 days: {list}");
    assert_eq!(cells(&list, "unasked")[2], "0", "{list}");
    let id = server.get("/api/projects/1/feature_flags/?search=unasked").json();
    let id = id["results"][0]["id"].as_i64().expect("an id");
    let unasked = page(&server, &format!("feature_flags/{id}"));
    assert!(unasked.contains("Nothing happened in this time"), "{unasked}");
    let asked = page(&server, "feature_flags/1");
    let link = asked.split("href=\"").find(|rest| {
        rest.split_once(">Ask more of them<").is_some_and(|(own, _)| !own.contains("<"))
    });
    let link = link.and_then(|rest| rest.split('"').next()).expect("a link").replace("&amp;", "&");
    assert!(asked.contains("blue") && asked.contains("false"), "{asked}");
    let numbers = server.get(&format!("{link}&format=json")).json();
    let sums = numbers["results"].as_array().expect("series").iter().map(|own| {
        let sum: f64 =
            own["data"].as_array().expect("numbers").iter().flat_map(Value::as_f64).sum();
        (own["breakdown_value"].to_string(), sum)
    });
    let mut sums: Vec<(String, f64)> = sums.collect();
    sums.sort_by(|a, b| a.0.cmp(&b.0));
    // Of the calls of the last 14 days: 0 to 19 but for each fourth.
    let expected = [("\"blue\"".to_owned(), 5.0), ("\"false\"".to_owned(), 10.0)];
    assert_eq!(sums, expected, "{numbers}");
}

/// Goal: a search of groups stays with their type.
#[test]
fn a_search_keeps_the_kind_of_group() {
    let server = TestServer::start();
    let group = |of: &str, key: &str| {
        json!({"event": "$groupidentify", "distinct_id": "p", "properties": {
            "$group_type": of, "$group_key": key, "$group_set": {"name": key}}})
    };
    server.capture(&json!([group("company", "one"), group("team", "red")]));
    assert_eq!(server.count("SELECT count(*) FROM groups"), 2);
    let teams = page(&server, "groups?index=1");
    assert!(teams.contains("<input type=\"hidden\" name=\"index\" value=\"1\">"), "{teams}");
    assert!(page(&server, "groups?index=1&search=red").contains(">red<"));
}
