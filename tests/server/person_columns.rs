//! Files of the persons table: lists are the same with and without them, after shutdowns and crashes, and deleted
//! values leave them. Expectations come from what was sent; DuckDB reads the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::harness::{TestServer, patiently};
use crate::sdk::tools;

const PERSONS: &str = "/api/projects/@current/persons/";

/// Persons of the test.
const COUNT: u64 = 300;

/// Files that may be stale for a short time only, and are removed soon after they were replaced.
const SETTINGS: [(&str, &str); 3] = [
    ("WEIR_DELETION_INTERVAL", "2s"),
    ("WEIR_VACUUM_GRACE", "100ms"),
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
    check_sql(server, model, state);
}

/// The same of SQL: some properties, the whole text, other columns, and none.
fn check_sql(server: &TestServer, model: &Model, state: &str) {
    let mut plans: BTreeMap<String, u64> = BTreeMap::new();
    for own in model.values() {
        let plan = own.get("plan").and_then(Value::as_str).unwrap_or("none");
        *plans.entry(plan.to_owned()).or_default() += 1;
    }
    let sql =
        "SELECT coalesce(properties.plan, 'none') AS plan, count(*) AS n FROM persons GROUP BY 1";
    let rows = server.query(sql);
    let found = rows.iter().map(|row| {
        (row["plan"].as_str().expect("a text").to_owned(), row["n"].as_u64().expect("a number"))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), plans, "{state}");
    let rows = server.query(
        "SELECT d.distinct_id AS id, p.properties AS text, p.is_identified AS is FROM persons p JOIN \
         person_distinct_ids d ON d.person_id = p.uuid",
    );
    let found = rows.iter().map(|row| {
        let text = row["text"].as_str().expect("a text");
        let mut properties: Map<String, Value> = serde_json::from_str(text).expect("JSON");
        properties.retain(|key, _| !key.starts_with('$'));
        (row["id"].as_str().expect("a text").to_owned(), properties)
    });
    assert_eq!(found.collect::<Model>(), *model, "{state}");
    let count = u64::try_from(model.len()).expect("few");
    assert_eq!(server.count("SELECT count(*) AS n FROM persons"), count, "{state}");
    let sum = model.values().filter_map(|own| own["n"].as_u64()).sum::<u64>();
    let sql = "SELECT sum(json_get_int(properties, 'n')) AS n FROM persons WHERE properties.secret IS NOT NULL";
    assert_eq!(server.count(sql), sum, "{state}");
    let limited = server.query("SELECT id FROM persons WHERE properties.n > 5 LIMIT 7");
    assert_eq!(limited.len(), 7, "{state}");
}

fn files(server: &TestServer) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(server.data_dir().join("tables/persons")).expect("files");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "parquet")).collect()
}

/// All values in the files; `None` if a file disappears while it is read, or there is none.
fn values(server: &TestServer) -> Option<String> {
    let script = "import duckdb, sys\n\
                  for path in sys.argv[1:]:\n\
                  \tfor row in duckdb.execute('SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)', [path]).fetchall():\n\
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

#[test]
fn filters_are_right_over_restarts_and_what_is_deleted_leaves_the_files() {
    let mut server = TestServer::start_with(&SETTINGS);
    let mut model = Model::new();
    let id = |number: u64| format!("person {number}");
    let persons: Vec<_> = (0..COUNT).map(|number| (id(number), told(number))).collect();
    tell(&server, &mut model, &persons[..40]);
    check(&server, &model, "soon");
    tell(&server, &mut model, &persons);
    wait_for(&server, &["secret-7-", "secret-8-", "secret-299-"], &[]);
    check(&server, &model, "with files");

    server.stop();
    let before = files(&server);
    server.restart();
    check(&server, &model, "after an end");
    let live = || -> BTreeSet<PathBuf> { before.intersection(&files(&server)).cloned().collect() };
    assert!(!live().is_empty(), "nothing is written anew");

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
    check(&server, &model, "after the files were written anew");

    // What changes last is seen by no file before the crash.
    let later = json!({"later": 1}).as_object().cloned().expect("an object");
    tell(&server, &mut model, &[(id(20), later), (id(COUNT + 1), told(COUNT + 1))]);
    assert_eq!(server.delete(&path(&server, &id(21))).status, 202);
    model.remove(&id(21));
    server.kill();
    server.restart();
    check(&server, &model, "after a crash");
    wait_for(&server, &["secret-8-", "secret-301-"], &["secret-21-", "secret-7-"]);
    check(&server, &model, "with files of after the crash");
}
