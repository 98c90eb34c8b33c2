//! GeoIP locations, with MaxMind's test databases. Expected values were read with MaxMind's own
//! reader (Python `maxminddb`).

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::harness::{KEY, TOKEN, TestServer};
use crate::sdk::tools;

fn database(name: &str) -> String {
    let path: PathBuf = tools().join("geoip").join(name);
    path.to_str().expect("UTF-8").to_owned()
}

fn with_places(name: &str) -> TestServer {
    TestServer::start_with(&[("WEIR_GEOIP_FILE", &database(name))])
}

/// Sends an event from `address`, through a trusted proxy.
fn send(server: &TestServer, address: &str, distinct_id: &str, properties: &Value) {
    let event = json!({
        "api_key": TOKEN, "event": "e", "distinct_id": distinct_id, "properties": properties,
    });
    let answer = server.send("POST", "/e/", &[("x-forwarded-for", address)], event.to_string());
    assert_eq!(answer.status, 200, "{answer}");
}

/// The stored properties of the one event of `distinct_id`, and its address.
fn stored(server: &TestServer, distinct_id: &str) -> (Map<String, Value>, Value) {
    let sql = format!("SELECT properties, ip FROM events WHERE distinct_id = '{distinct_id}'");
    let rows = server.query(&sql);
    let text = rows[0]["properties"].as_str().expect("text");
    let properties = serde_json::from_str(text).expect("an object");
    (properties, rows[0].get("ip").cloned().unwrap_or(Value::Null))
}

fn person(server: &TestServer, distinct_id: &str) -> Value {
    let page = server.get(&format!("/api/projects/1/persons/?distinct_id={distinct_id}")).json();
    page["results"][0]["properties"].clone()
}

/// The location properties in `properties`.
fn places(properties: &Map<String, Value>) -> Value {
    let about = properties.iter().filter(|(name, _)| name.starts_with("$geoip_"));
    Value::Object(about.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn boxford() -> Value {
    json!({
        "$geoip_city_name": "Boxford",
        "$geoip_country_name": "United Kingdom",
        "$geoip_country_code": "GB",
        "$geoip_continent_name": "Europe",
        "$geoip_continent_code": "EU",
        "$geoip_postal_code": "OX1",
        "$geoip_latitude": 51.75,
        "$geoip_longitude": -1.25,
        "$geoip_accuracy_radius": 100,
        "$geoip_time_zone": "Europe/London",
        "$geoip_subdivision_1_code": "ENG",
        "$geoip_subdivision_1_name": "England",
        "$geoip_subdivision_2_code": "WBK",
        "$geoip_subdivision_2_name": "West Berkshire",
    })
}

#[test]
fn events_and_persons_get_the_place_of_their_address() {
    let mut server = with_places("GeoIP2-City-Test.mmdb");
    send(&server, "2.125.160.216", "ada", &json!({}));
    let (properties, ip) = stored(&server, "ada");
    assert_eq!(places(&properties), boxford());
    assert_eq!((&properties["$ip"], &ip), (&json!("2.125.160.216"), &json!("2.125.160.216")));
    let known = person(&server, "ada");
    for (name, value) in boxford().as_object().expect("an object") {
        let initial = name.replacen('$', "$initial_", 1);
        assert_eq!((&known[name], &known[&initial]), (value, value), "{name}");
    }
    // Later somewhere else, of which less is known: nothing of the old place is left, but the first.
    send(&server, "2001:218::1", "ada", &json!({}));
    let known = person(&server, "ada");
    assert_eq!(known["$geoip_country_name"], "Japan");
    assert_eq!(known["$geoip_city_name"], Value::Null);
    assert_eq!(known["$initial_geoip_city_name"], "Boxford");
    assert_eq!(known["$initial_geoip_country_name"], "United Kingdom");
    send(&server, "2.125.160.216", "bob", &json!({}));
    let before = stored(&server, "bob");
    server.kill();
    // This reads the log, and has no database of places.
    assert_eq!(stored(&server, "bob"), before, "a replay comes to the same");
    server.restart();
    assert_eq!(stored(&server, "bob"), before);
    assert_eq!(person(&server, "ada"), known);
}

#[test]
fn who_wants_no_place_gets_none() {
    let server = with_places("GeoIP2-City-Test.mmdb");
    let london = json!({"$ip": "81.2.69.142"});
    for (number, (address, properties, city)) in [
        ("2.125.160.216", json!({}), json!("Boxford")),
        ("2.125.160.216", london, json!("London")),
        ("2.125.160.216", json!({"$ip": ""}), json!("Boxford")),
        ("2.125.160.216", json!({"$ip": null}), json!("Boxford")),
        ("2.125.160.216", json!({"$ip": "nowhere"}), Value::Null),
        ("2.125.160.216", json!({"$geoip_disable": true}), Value::Null),
        ("2.125.160.216", json!({"$geoip_disable": false}), json!("Boxford")),
        ("2.125.160.216", json!({"$geoip_city_name": "Mine"}), json!("Mine")),
        ("127.0.0.1", json!({}), Value::Null),
        ("10.0.0.1", json!({}), Value::Null),
        ("203.0.113.7", json!({}), Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let who = format!("person-{number}");
        send(&server, address, &who, &properties);
        let (found, _) = stored(&server, &who);
        let found = found.get("$geoip_city_name").cloned().unwrap_or(Value::Null);
        assert_eq!(found, city, "{address} {properties}");
        let set = person(&server, &who).get("$geoip_city_name").cloned().unwrap_or(Value::Null);
        let set_by_server = if city == "Mine" { &Value::Null } else { &city };
        assert_eq!(&set, set_by_server, "{address} {properties}");
    }
    let properties = json!({"$process_person_profile": false});
    send(&server, "2.125.160.216", "nobody", &properties);
    let (found, _) = stored(&server, "nobody");
    assert_eq!(found["$geoip_city_name"], "Boxford");
    assert!(!found.contains_key("$set"), "who is no person has no properties: {found:?}");
}

#[test]
fn addresses_go_once_the_place_is_found_if_the_project_says_so() {
    let server = with_places("GeoIP2-Country-Test.mmdb");
    let project = "/api/projects/1/";
    assert_eq!(server.get(project).json()["anonymize_ips"], false);
    let answer = server.patch(project, &json!({"anonymize_ips": true}));
    assert_eq!((answer.status, &answer.json()["anonymize_ips"]), (200, &json!(true)), "{answer}");
    assert_eq!(server.get(project).json()["anonymize_ips"], true);
    for (who, properties) in
        [("ada", json!({"a": 1})), ("bob", json!({"a": 1, "$ip": "81.2.69.142", "b": 2}))]
    {
        send(&server, "89.160.20.128", who, &properties);
        let (found, ip) = stored(&server, who);
        assert_eq!((found.get("$ip"), &ip), (None, &Value::Null), "{who}");
        assert_eq!(found["a"], 1, "{who}");
        let country = if who == "ada" { "Sweden" } else { "United Kingdom" };
        assert_eq!(found["$geoip_country_name"], country, "{who}");
        assert_eq!(found.get("$geoip_city_name"), None, "a database of countries");
        assert_eq!(person(&server, who)["$geoip_country_name"], country);
    }
    for (method, body, status) in [
        ("PATCH", json!({"anonymize_ips": "perhaps"}), 400),
        ("PATCH", json!({"name": ""}), 400),
        ("PATCH", json!({"anonymize_ips": false, "name": "Shop"}), 200),
    ] {
        let key = format!("Bearer {KEY}");
        let headers = [("authorization", &*key), ("content-type", "application/json")];
        let answer = server.send(method, project, &headers, body.to_string());
        assert_eq!(answer.status, status, "{body}: {answer}");
    }
    assert_eq!(server.get(project).json()["name"], "Shop");
    assert_eq!(server.send("GET", project, &[], "").status, 401);
    send(&server, "89.160.20.128", "cyd", &json!({}));
    let (found, ip) = stored(&server, "cyd");
    assert_eq!((&found["$ip"], ip), (&json!("89.160.20.128"), json!("89.160.20.128")));
}

#[test]
fn flags_know_where_the_client_is() {
    let server = with_places("GeoIP2-City-Test.mmdb");
    let country = json!({
        "key": "$geoip_country_code", "type": "person", "operator": "exact", "value": ["GB"],
    });
    let filters = json!({"groups": [{"properties": [country], "rollout_percentage": 100}]});
    let flag = json!({"key": "british", "filters": filters});
    assert_eq!(server.post("/api/projects/1/feature_flags/", &flag).status, 201);
    for (address, more, expected) in [
        ("2.125.160.216", json!({}), true),
        ("89.160.20.128", json!({}), false),
        ("203.0.113.7", json!({}), false),
        ("2.125.160.216", json!({"geoip_disable": true}), false),
        ("2.125.160.216", json!({"person_properties": {"$geoip_country_code": "SE"}}), false),
        ("89.160.20.128", json!({"person_properties": {"$geoip_country_code": "GB"}}), true),
    ] {
        let mut body = json!({"api_key": TOKEN, "distinct_id": "ada"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let headers = [("x-forwarded-for", address)];
        let answer = server.send("POST", "/flags/?v=2", &headers, body.to_string()).json();
        assert_eq!(answer["flags"]["british"]["enabled"], expected, "{address} {more}: {answer}");
    }
}

#[test]
fn a_database_that_cannot_be_used_is_told_at_the_start() {
    for (name, said) in [
        ("GeoLite2-ASN-Test.mmdb", "neither cities nor countries"),
        ("geoip2-5.1.0.tar.gz", "damaged, or not in MaxMind's format"),
        ("nothing.mmdb", "--geoip-file: there is no file"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let output = std::process::Command::new(crate::harness::binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--geoip-file", &database(name)])
            .arg("--data-dir")
            .arg(directory.path())
            .output()
            .expect("weir");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{name}: {stderr}");
        assert!(stderr.contains(name), "{stderr}");
    }
}
