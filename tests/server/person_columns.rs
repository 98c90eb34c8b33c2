//! Column files of persons: responses are the same with and without them, after shutdowns and
//! crashes, and deleted values leave them. Expectations come from what was sent; DuckDB reads the
//! files.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::harness::TestServer;
use crate::harness::patiently;
use crate::sdk::tools;

const PERSONS: &str = "/api/projects/@current/persons/";

/// Persons of the test.
const COUNT: u64 = 300;

/// Column files for small numbers of persons, which may be stale for a short time only.
const SETTINGS: [(&str, &str); 3] = [
    ("WEIR_PERSON_COLUMNS_PERSONS_MIN", "50"),
    ("WEIR_DELETION_INTERVAL", "2s"),
    ("WEIR_COMPACTION_INTERVAL", "1h"),
];

/// The properties sent for each person, by distinct id.
type Model = BTreeMap<String, Map<String, Value>>;

/// The expected result of a filter.
type Holds<'a> = &'a dyn Fn(&Map<String, Value>) -> bool;

fn told(number: u64) -> Map<String, Value> {
    let mut properties = Map::new();
    properties.insert("n".to_owned(), json!(number));
    properties.insert("secret".to_owned(), json!(format!("secret-{number}-")));
    if !number.is_multiple_of(3) {
        properties.insert("plan".to_owned(), json!(["free", "pro"][usize::from(number % 3 == 1)]));
    }
    properties
}

/// Sets properties of persons, in one request and in the model.
fn tell(server: &TestServer, model: &mut Model, persons: &[(String, Map<String, Value>)]) {
    let event = |(id, set): &(String, Map<String, Value>)| json!({"event": "$set", "distinct_id": id, "properties": {"$set": set}});
    let events: Vec<Value> = persons.iter().map(event).collect();
    let answer = server.capture(&Value::Array(events));
    assert_eq!(answer.status, 200, "{answer}");
    for (id, set) in persons {
        model.entry(id.clone()).or_default().extend(set.clone());
    }
}

fn listed(server: &TestServer, filter: &Value) -> BTreeSet<String> {
    let query = json!([filter]).to_string();
    let mut found = BTreeSet::new();
    loop {
        let offset = found.len().to_string();
        let query = [("properties", query.as_str()), ("limit", "100"), ("offset", &offset)];
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let answer = server.get(&format!("{PERSONS}?{query}"));
        assert_eq!(answer.status, 200, "{answer}");
        let page = answer.json();
        let persons = page["results"].as_array().expect("results");
        let ids = persons.iter().map(|person| person["distinct_ids"][0].as_str().expect("an id"));
        found.extend(ids.map(str::to_owned));
        if persons.is_empty() {
            assert_eq!(page["count"], found.len(), "{filter}");
            return found;
        }
    }
}

/// Checks that filters match as in the model.
fn check(server: &TestServer, model: &Model, state: &str) {
    let text = |properties: &Map<String, Value>, key: &str| {
        properties.get(key).and_then(Value::as_str).map(str::to_owned)
    };
    let holds: [(Value, Holds<'_>); 5] = [
        (json!({"key": "plan", "operator": "exact", "value": ["pro"]}), &|own| {
            text(own, "plan").as_deref() == Some("pro")
        }),
        (json!({"key": "plan", "operator": "is_not_set"}), &|own| !own.contains_key("plan")),
        (json!({"key": "n", "operator": "gt", "value": 150}), &|own| {
            own["n"].as_u64().is_some_and(|n| n > 150)
        }),
        (json!({"key": "secret", "operator": "icontains", "value": "CRET-7"}), &|own| {
            text(own, "secret").is_some_and(|secret| secret.contains("cret-7"))
        }),
        (json!({"key": "later", "operator": "is_set"}), &|own| own.contains_key("later")),
    ];
    for (filter, holds) in holds {
        let expected = model.iter().filter(|(_, own)| holds(own)).map(|(id, _)| id.clone());
        let expected: BTreeSet<String> = expected.collect();
        assert_eq!(listed(server, &filter), expected, "{state}: {filter}");
    }
}

fn files(server: &TestServer) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(server.data_dir().join("person-columns")).expect("files");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "parquet")).collect()
}

/// All values in the files; `None` if a file disappears while it is read, or there is none.
fn values(server: &TestServer) -> Option<String> {
    let script = "import duckdb, sys\n\
                  for path in sys.argv[1:]:\n\
                  \tfor row in duckdb.execute('SELECT * FROM read_parquet(?)', [path]).fetchall():\n\
                  \t\tprint(*row)";
    let files = files(server);
    let mut command = Command::new(tools().join("readers/bin/python"));
    let output = command.arg("-c").arg(script).args(&files).output().expect("python");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    (output.status.success() && !files.is_empty()).then_some(text)
}

/// Waits until the files contain all of the values `all` and none of the values `none`.
fn wait_for(server: &TestServer, all: &[&str], none: &[&str]) {
    let mut last = None;
    let seen = patiently(|| {
        last = values(server);
        let values = last.as_deref()?;
        let is_seen = all.iter().all(|text| values.contains(text));
        (is_seen && none.iter().all(|text| !values.contains(text))).then_some(())
    });
    seen.unwrap_or_else(|| panic!("all of {all:?} and none of {none:?} in {last:?}"));
}

fn disk_bytes(server: &TestServer) -> u64 {
    let metrics = String::from_utf8(server.get("/metrics").body).expect("text");
    let mut lines = metrics.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("weir_person_columns_disk_bytes "));
    bytes.expect("the metric").parse().expect("a number")
}

#[test]
fn filters_are_right_over_restarts_and_what_is_deleted_leaves_the_files() {
    let mut server = TestServer::start_with(&SETTINGS);
    let mut model = Model::new();
    let id = |number: u64| format!("person {number}");
    let persons: Vec<_> = (0..COUNT).map(|number| (id(number), told(number))).collect();
    tell(&server, &mut model, &persons[..40]);
    check(&server, &model, "without files");
    assert_eq!((files(&server).len(), disk_bytes(&server)), (0, 0), "they are too few");
    tell(&server, &mut model, &persons);
    wait_for(&server, &["secret-7-", "secret-8-", "secret-299-"], &[]);
    let size = || -> u64 {
        files(&server).iter().map(|path| path.metadata().map_or(0, |file| file.len())).sum()
    };
    patiently(|| (disk_bytes(&server) == size()).then_some(())).expect("the metric is the size");
    check(&server, &model, "with files");

    let before = files(&server);
    server.stop();
    assert_eq!(files(&server), before);
    server.restart();
    check(&server, &model, "after an end");
    assert_eq!(files(&server), before, "they are kept");

    // Changed by an event and by an operator, and deleted.
    let later =
        json!({"secret": "anew-9-", "later": true}).as_object().cloned().expect("an object");
    tell(&server, &mut model, &[(id(9), later), (id(COUNT), told(COUNT))]);
    let path = |server: &TestServer, id: &str| {
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("distinct_id", id).finish();
        let page = server.get(&format!("{PERSONS}?{query}")).json();
        format!("{PERSONS}{}/", page["results"][0]["uuid"].as_str().expect("a uuid"))
    };
    let change = json!({"properties": {"plan": "pro", "secret": "anew-12-"}});
    let answer = server.patch(&path(&server, &id(12)), &change);
    assert_eq!(answer.status, 202, "{answer}");
    let changed = change["properties"].as_object().cloned().expect("properties");
    model.get_mut(&id(12)).expect("a person").extend(changed);
    assert_eq!(server.delete(&path(&server, &id(7))).status, 202);
    model.remove(&id(7));
    check(&server, &model, "after changes");
    wait_for(
        &server,
        &["secret-8-", "secret-70-", "anew-9-", "anew-12-"],
        &["secret-7-", "secret-9-", "secret-12-"],
    );
    check(&server, &model, "after the files were made anew");

    // What changes last is seen by no file before the crash.
    let later = json!({"later": 1}).as_object().cloned().expect("an object");
    tell(&server, &mut model, &[(id(20), later), (id(COUNT + 1), told(COUNT + 1))]);
    assert_eq!(server.delete(&path(&server, &id(21))).status, 202);
    model.remove(&id(21));
    let before = files(&server);
    server.kill();
    assert!(!server.data_dir().join("person-columns/record.json").exists());
    server.restart();
    check(&server, &model, "after a crash");
    assert!(files(&server).is_disjoint(&before), "nobody knows what these lack");
    wait_for(&server, &["secret-8-", "secret-301-"], &["secret-21-", "secret-7-"]);
    check(&server, &model, "with files of after the crash");

    // Without room there are none, and the answers are the same.
    server.stop();
    server.set("WEIR_PERSON_COLUMNS_DISK_MAX_BYTES", "0");
    server.restart();
    check(&server, &model, "without room");
    assert_eq!(files(&server), BTreeSet::new());
}
