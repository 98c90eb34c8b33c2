//! Filter semantics, compared in five implementations on random rows: the list of persons (identity
//! store), lists of actors and of events (plans over the tables), the predicate of the library, and
//! DuckDB on an export, with SQL that `tests/sdk/filters.py` generates independently.
//!
//! Random filters use only what the dialects of regular expressions have in common. Other differences
//! from PostHog's lists are listed in `src/guide/compatibility.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use weir_base::clock::{Clock, UnixMicros};
use weir_event::predicate::Matching;
use weir_event::predicate::filter::Filter;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;

use crate::harness::{KEY, TestServer};
use crate::sdk::{source, tools};

const PERSONS: &str = "/api/projects/@current/persons/";
const EVENTS: &str = "/api/projects/@current/events/";

/// Rows, each one event and its person.
const ROWS: usize = 250;

/// Filters with one operator only, per operator: enough that some match in any run.
const SINGLE: usize = 20;

/// Trees of several filters.
const TREES: usize = 150;

/// Every operator of properties.
const OPERATORS: [&str; 36] = [
    "exact",
    "is_not",
    "icontains",
    "not_icontains",
    "icontains_multi",
    "not_icontains_multi",
    "starts_with",
    "not_starts_with",
    "ends_with",
    "not_ends_with",
    "regex",
    "not_regex",
    "gt",
    "gte",
    "min",
    "lt",
    "lte",
    "max",
    "between",
    "not_between",
    "is_set",
    "is_not_set",
    "is_date_exact",
    "is_date_before",
    "is_date_after",
    "semver_eq",
    "semver_neq",
    "semver_gt",
    "semver_gte",
    "semver_lt",
    "semver_lte",
    "semver_tilde",
    "semver_caret",
    "semver_wildcard",
    "in",
    "not_in",
];

/// Keys of rows, with the usual kind of their values; some keys are hard to quote, and some have columns of events.
const KEYS: [(&str, Kind); 15] = [
    ("name", Kind::Text),
    ("na.me", Kind::Text),
    ("count", Kind::Number),
    ("a/b~c", Kind::Number),
    ("beta", Kind::Truth),
    ("since", Kind::Date),
    ("$version", Kind::Version),
    ("quo'te \"d\"", Kind::List),
    ("$browser", Kind::Text),
    ("price", Kind::Number),
    ("$is_server", Kind::Truth),
    ("$feature_flag_response", Kind::Truth),
    ("$app_build", Kind::Date),
    ("$app_version", Kind::Version),
    ("$os_version", Kind::Date),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Truth,
    Date,
    Version,
    List,
}

const KINDS: [Kind; 6] =
    [Kind::Text, Kind::Number, Kind::Truth, Kind::Date, Kind::Version, Kind::List];

const PATTERNS: [&str; 14] = [
    "^a",
    "corp\\.com$",
    "[0-9]+",
    "(?i)ann",
    "^$",
    "a|b",
    "\\d{2}",
    "^-?\\d+(\\.\\d+)?$",
    "tru",
    ".",
    "n.l",
    "^[^@]+@[^@]+$",
    "\\s",
    "é",
];

struct Maker {
    random: StdRng,
    now: UnixMicros,
}

impl Maker {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from.choose(&mut self.random).expect("some").clone()
    }

    fn chance(&mut self, of: f64) -> bool {
        self.random.random_bool(of)
    }

    /// A random value of this kind, for rows and filters; there are few distinct ones, so that they
    /// match.
    fn value(&mut self, kind: Kind) -> Value {
        let days_ago = |days: i64| UnixMicros(self.now.0 - days * 86_400_000_000).to_rfc3339();
        let all = match kind {
            Kind::Text => json!([
                "",
                "Ann",
                "ann@corp.com",
                "ANN@CORP.COM",
                "annabel",
                "Zoé",
                "ZOÉ",
                "stra\u{df}e",
                "b",
                "a b",
                "new\nline",
                "quote'd",
                "\"dq\"",
                "back\\slash",
                "100%",
                "under_score",
                "null",
            ]),
            Kind::Number => json!([
                0,
                1,
                -3,
                9.5,
                10,
                41,
                100,
                2.25,
                "10",
                "9.5",
                "-3",
                "1e2",
                "+7",
                ".5",
                "ten",
                " 10",
                "9.5\t",
                "NaN",
                "-Infinity",
                "1e400",
                "0x1f",
            ]),
            Kind::Truth => json!([true, false, "true", "TRUE", "False", "yes", 1, 0]),
            Kind::Date => json!([
                "2024-05-01",
                "2024-05-01T00:00:00Z",
                "2024-05-01 00:00:00",
                "2024-05-01T02:00:00+02:00",
                "2024-06-30 12:30",
                "2024-06-30T12:30:15.250Z",
                1_714_521_600,
                "1714521600",
                1.5,
                days_ago(3),
                days_ago(20),
                days_ago(200),
                days_ago(500),
                "soon",
                "2024-13-01",
            ]),
            Kind::Version => json!([
                "1.2.3",
                "v1.2.3",
                "1.2",
                "1.10.0",
                "2",
                "0.3.1",
                "0.0.4",
                "0.0.5",
                "1.2.3-alpha",
                "1.2.3-alpha.1",
                "1.2.3-beta.2",
                "1.2.9-beta.2",
                "1.9.0-rc.1",
                "1.2.3-beta.11",
                "1.2.3+build.5",
                "1.02.3",
                "1.2.3.4",
                "x.y",
            ]),
            Kind::List => json!([
                [], [1, 2], ["a", "Ann"], [true], [true, "TRUE"], [false, "false"], [true, null], {}, {"a": 1},
                {"b": ["x"], "a": "\u{e9}"}, null,
            ]),
        };
        let all = all.as_array().expect("a list");
        self.pick(all)
    }

    fn any_value(&mut self) -> Value {
        let kind = self.pick(&KINDS);
        self.value(kind)
    }

    fn row(&mut self) -> Map<String, Value> {
        let mut row = Map::new();
        for (key, kind) in KEYS {
            if self.chance(0.8) {
                let value = if self.chance(0.85) { self.value(kind) } else { self.any_value() };
                row.insert(key.to_owned(), value);
            }
        }
        row
    }

    /// The usual kind of value for an operator.
    fn kind_of(&mut self, operator: &str) -> Kind {
        match operator {
            _ if operator.starts_with("semver_") => Kind::Version,
            _ if operator.starts_with("is_date_") => Kind::Date,
            "gt" | "gte" | "min" | "lt" | "lte" | "max" | "between" | "not_between" => Kind::Number,
            "exact" | "is_not" | "in" | "not_in" | "is_set" | "is_not_set" => self.pick(&KINDS),
            _ => Kind::Text,
        }
    }

    fn filter_value(&mut self, operator: &str, kind: Kind) -> Value {
        match operator {
            "regex" | "not_regex" => return self.pick(&PATTERNS).into(),
            "between" | "not_between" if self.chance(0.9) => {
                let mut bounds = [self.pick(&[-5.0, 0.0, 1.0, 9.5]), self.pick(&[1.0, 10.0, 50.0])];
                if self.chance(0.9) {
                    bounds.sort_by(f64::total_cmp);
                }
                return json!(bounds);
            }
            "semver_wildcard" if self.chance(0.7) => {
                return self.pick(&["1.2.*", "1.*", "*", "0.*", "v1.*.*", "1.*.3", "2"]).into();
            }
            // No row is exactly as old as a span.
            "is_date_before" | "is_date_after" if self.chance(0.4) => {
                return self.pick(&["-7d", "7d", "-2w", "-1m", "-1y", "-96h", "-1q"]).into();
            }
            _ => {}
        }
        if self.chance(0.1) {
            return self.any_value();
        }
        if matches!(
            operator,
            "exact" | "is_not" | "in" | "not_in" | "icontains_multi" | "not_icontains_multi"
        ) && self.chance(0.4)
        {
            return Value::Array(
                (0..self.random.random_range(0..4)).map(|_| self.value(kind)).collect(),
            );
        }
        match (operator, self.value(kind)) {
            // A part of a text says more than the whole.
            ("exact" | "is_not" | "in" | "not_in", value) => value,
            (_, Value::String(text)) if kind == Kind::Text => {
                let start = self.random.random_range(0..=text.chars().count().min(3));
                let length = self.random.random_range(1..=3);
                let part: String = match operator {
                    "starts_with" | "not_starts_with" => text.chars().take(length).collect(),
                    "ends_with" | "not_ends_with" => text.chars().skip(start).collect(),
                    _ => text.chars().skip(start).take(length).collect(),
                };
                part.into()
            }
            (_, value) => value,
        }
    }

    fn leaf(&mut self, operator: &str) -> Value {
        let kind = self.kind_of(operator);
        let keys: Vec<&str> =
            KEYS.iter().filter(|(_, own)| *own == kind).map(|(key, _)| *key).collect();
        let any: Vec<&str> = KEYS.iter().map(|(key, _)| *key).chain(["nobody has it"]).collect();
        let key = if self.chance(0.85) { self.pick(&keys) } else { self.pick(&any) };
        let value = self.filter_value(operator, kind);
        let mut leaf = json!({"key": key, "operator": operator, "value": value});
        let fields = leaf.as_object_mut().expect("an object");
        if operator == "exact" && self.chance(0.3) {
            fields.remove("operator");
        }
        if matches!(operator, "is_set" | "is_not_set") {
            fields.remove("value");
        } else if fields["value"].is_null() {
            // Refused: there is nothing to compare with.
            fields.insert("value".to_owned(), json!(""));
        }
        if self.chance(0.1) {
            fields.insert("negation".to_owned(), json!(true));
        }
        leaf
    }

    fn any_leaf(&mut self) -> Value {
        let operator = self.pick(&OPERATORS);
        self.leaf(operator)
    }

    fn tree(&mut self, depth: usize) -> Value {
        if depth == 0 || self.chance(0.4) {
            return self.any_leaf();
        }
        let parts = (0..self.random.random_range(0..4)).map(|_| self.tree(depth - 1)).collect();
        match self.random.random_range(0..5) {
            0 => Value::Array(parts),
            1 | 2 => json!({"type": "OR", "values": parts}),
            _ => json!({"type": "AND", "values": parts}),
        }
    }

    /// The oldest form: an object of key, or key and operator, to value.
    fn oldest(&mut self) -> Value {
        let mut all = Map::new();
        for _ in 0..self.random.random_range(1..4) {
            let operator = self.pick(&OPERATORS);
            let leaf = self.leaf(operator);
            let key = leaf["key"].as_str().expect("a key");
            let name =
                if operator == "exact" { key.to_owned() } else { format!("{key}__{operator}") };
            all.insert(name, leaf["value"].clone());
        }
        Value::Object(all)
    }
}

/// The same filters with an explicit type.
fn typed(tree: &Value, of: &str) -> Value {
    match tree {
        Value::Array(trees) => trees.iter().map(|tree| typed(tree, of)).collect(),
        Value::Object(fields) if fields.contains_key("values") => {
            let mut fields = fields.clone();
            fields.insert("values".to_owned(), typed(&fields["values"], of));
            Value::Object(fields)
        }
        Value::Object(fields) if fields.contains_key("key") => {
            let mut fields = fields.clone();
            fields.insert("type".to_owned(), of.into());
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

/// The ids in a list of the server.
fn listed(server: &TestServer, path: &str, tree: &Value, id: impl Fn(&Value) -> &Value) -> Ids {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("limit", "1000")
        .append_pair("select", r#"["distinct_id"]"#)
        .append_pair("properties", &tree.to_string())
        .finish();
    let answer = server.get(&format!("{path}?{query}"));
    assert_eq!(answer.status, 200, "{tree}: {answer}");
    let page = answer.json();
    let results = page["results"].as_array().expect("results").iter();
    results.map(|one| id(one).as_str().expect("an id").to_owned()).collect()
}

type Ids = BTreeSet<String>;

/// The ids of the persons whom a plan finds. It does not have the oldest form of filters.
fn planned(server: &TestServer, tree: &Value) -> Option<Ids> {
    if tree.is_object() && tree.get("values").is_none() {
        return None;
    }
    let node =
        json!({"kind": "ActorsQuery", "select": ["person"], "properties": tree, "limit": 1000});
    let answer = server.post("/api/projects/@current/query/", &json!({"query": node}));
    assert_eq!(answer.status, 200, "{tree}: {answer}");
    let rows = answer.json()["results"].as_array().expect("rows").clone();
    let id = |row: &Value| row[0]["distinct_ids"][0].as_str().expect("an id").to_owned();
    Some(rows.iter().map(id).collect())
}

/// Writes the rows of `sql` into a Parquet file, and reads them as JSON.
fn exported(server: &TestServer, file: &Path, sql: &str) -> BTreeMap<String, Map<String, Value>> {
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = json!({"query": sql, "format": "parquet"}).to_string();
    let answer = server.send("POST", "/api/projects/@current/query/", &headers, body);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    std::fs::write(file, &answer.body).expect("a file");
    let rows = server.query(sql);
    assert_eq!(rows.len(), ROWS);
    let text = |row: &Value, name: &str| row[name].as_str().expect("text").to_owned();
    let row = |row: &Value| {
        let properties = serde_json::from_str(&text(row, "properties")).expect("an object");
        (text(row, "id"), properties)
    };
    rows.iter().map(row).collect()
}

/// The ids that DuckDB finds in the files, per tree.
fn asked_of_duckdb(now: UnixMicros, files: &[&Path], trees: &[Value]) -> Vec<Vec<Ids>> {
    let lines: String = trees.iter().map(|tree| format!("{tree}\n")).collect();
    let asked = files[0].with_file_name("trees");
    std::fs::write(&asked, lines).expect("a file");
    let mut command = Command::new(tools().join("readers/bin/python"));
    command.arg(source("filters.py")).arg(now.0.to_string()).args(files);
    command.stdin(File::open(&asked).expect("the file")).stderr(Stdio::inherit());
    let output = command.output().expect("filters.py starts");
    assert!(output.status.success(), "filters.py: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let found: Vec<_> =
        text.lines().map(|line| serde_json::from_str(line).expect("lists of ids")).collect();
    assert_eq!(found.len(), trees.len());
    found
}

/// The ids that the predicate of the library matches.
fn asked_of_predicate(
    rows: &BTreeMap<String, Map<String, Value>>,
    tree: &Value,
    of: &str,
    now: UnixMicros,
) -> Ids {
    let tree = Tree::parse(tree, of, Matching::Legacy).expect("filters");
    let holds = |properties: &Map<String, Value>| {
        tree.holds(&mut |filter| match filter {
            Filter::Property { predicate, .. } => predicate.matches(properties, Now::utc(now)),
            Filter::Cohort { .. } | Filter::Flag { .. } => panic!("{filter:?}"),
        })
    };
    rows.iter().filter(|(_, row)| holds(row)).map(|(id, _)| id.clone()).collect()
}

/// Checks that each operator is selective: its filters match some rows and not others.
fn check_that_operators_decide(trees: &[Value], found: &[Vec<Ids>]) {
    let single = OPERATORS.iter().flat_map(|operator| vec![*operator; SINGLE]);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (operator, found) in single.zip(found) {
        *counts.entry(operator).or_default() += found[0].len();
    }
    assert_eq!(counts.len(), OPERATORS.len());
    for (operator, count) in counts {
        assert!((1..SINGLE * ROWS).contains(&count), "{operator} matched {count} times");
    }
    let all: usize = found.iter().map(|found| found[0].len()).sum();
    let (low, high) = (trees.len() * ROWS / 20, trees.len() * ROWS * 19 / 20);
    assert!((low..high).contains(&all), "{all} matches of {} filters", trees.len());
}

#[test]
fn filters_mean_the_same_to_lists_plans_predicates_and_duckdb() {
    let seed = std::env::var_os("WEIR_FILTERS_SEED")
        .map_or_else(rand::random, |seed| seed.to_str().expect("text").parse().expect("a number"));
    println!("WEIR_FILTERS_SEED={seed}");
    let now = Clock::system().now();
    let mut maker = Maker { random: StdRng::seed_from_u64(seed), now };
    let server = TestServer::start();
    let event = |(number, row): (usize, Map<String, Value>)| {
        let mut properties = row.clone();
        properties.insert("$set".to_owned(), Value::Object(row));
        json!({"event": "row", "distinct_id": format!("p{number}"), "properties": properties})
    };
    let events = (0..ROWS).map(|_| maker.row()).enumerate().map(event).collect();
    assert_eq!(server.capture(&Value::Array(events)).status, 200);

    let directory = tempfile::tempdir().expect("a directory");
    let files = ["persons", "events"].map(|name| directory.path().join(format!("{name}.parquet")));
    let persons = exported(
        &server,
        &files[0],
        "SELECT d.distinct_id AS id, p.properties FROM persons p \
         JOIN person_distinct_ids d ON d.person_id = p.uuid",
    );
    let events = exported(&server, &files[1], "SELECT distinct_id AS id, properties FROM events");

    let single = OPERATORS.iter().flat_map(|operator| vec![*operator; SINGLE]);
    let mut trees: Vec<Value> = single.map(|operator| json!([maker.leaf(operator)])).collect();
    trees.extend((0..TREES).map(|_| maker.tree(3)));
    trees.extend((0..TREES / 5).map(|_| maker.oldest()));
    let found = asked_of_duckdb(now, &[&files[0], &files[1]], &trees);
    for (tree, found) in trees.iter().zip(&found) {
        let is_said = maker.chance(0.5);
        let said = |of: &str| if is_said { typed(tree, of) } else { tree.clone() };
        for (of, path, rows, found) in
            [("person", PERSONS, &persons, &found[0]), ("event", EVENTS, &events, &found[1])]
        {
            let tree = said(of);
            let by_list = match of {
                "person" => listed(&server, path, &tree, |person| &person["distinct_ids"][0]),
                _ => listed(&server, path, &tree, |columns| &columns[0]),
            };
            let by_predicate = asked_of_predicate(rows, &tree, of, now);
            let by_plan = (of == "person").then(|| planned(&server, &tree)).flatten();
            let by_plan = by_plan.map(|ids| ("the plan", ids));
            let ways = [("the list", by_list), ("the predicate", by_predicate)];
            for (who, ids) in ways.into_iter().chain(by_plan) {
                let differ: Vec<_> = ids
                    .symmetric_difference(found)
                    .map(|id| (id, found.contains(id), &rows[id]))
                    .collect();
                assert!(
                    differ.is_empty(),
                    "seed {seed}: {who} of {of}s and DuckDB (matched: ...) differ about {tree}: \
                     {differ:#?}"
                );
            }
        }
    }
    check_that_operators_decide(&trees, &found);
}
