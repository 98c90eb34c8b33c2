//! Tests of names and of the text of views.

use std::collections::{BTreeMap, BTreeSet};

use super::{FILES_MAX, RESERVED, is_plain, names, sql};
use crate::live_files::{LiveFile, LiveFiles, LiveTables};
use weir_base::clock::UnixMicros;
use weir_event::dictionary;
use weir_event::dictionary::{EVENTS, PERSONS, Table};
use weir_event::id::ProjectId;
use weir_event::schema::PROMOTED;

fn named(table: &Table, more: &[&str]) -> BTreeMap<String, String> {
    let more: Vec<_> = more.iter().filter_map(|name| dictionary::of_property(name)).collect();
    names(table, &more).into_iter().map(|(column, name)| (column.name.to_string(), name)).collect()
}

/// Goal: names need no quotes, are different, and do not change when the table gets more columns.
#[test]
fn names_are_plain_and_stay() {
    let before = named(&EVENTS, &[]);
    for (column, expected) in [
        ("event", "event"),
        ("person_id", "person_id"),
        ("p_$browser", "browser"),
        ("p_utm_source", "utm_source"),
        ("p_title", "title"),
        ("p_$title", "p__title"),
        ("p_$os", "os"),
        ("historical_migration", "historical_migration"),
    ] {
        assert_eq!(before.get(column).map(String::as_str), Some(expected), "{column}");
    }
    assert!(!before.contains_key("project_id") && !before.contains_key("month"));
    let more = [
        "p_plan",
        "p_event",
        "p_browser",
        "p_a%20b",
        "p_a-b",
        "p_a_b",
        "p_Group",
        "p_1st",
        "p_$plan",
        "p_",
        "p_$",
        "p_naïve",
    ];
    let after = named(&EVENTS, &more);
    for (column, name) in &before {
        assert_eq!(after.get(column), Some(name));
    }
    for (column, expected) in [
        ("p_plan", "plan"),
        ("p_event", "p_event"),
        ("p_browser", "p_browser"),
        ("p_a%20b", "a_b"),
        ("p_a-b", "p_a_b"),
        ("p_a_b", "p_a_b_2"),
        ("p_Group", "p_Group"),
        ("p_1st", "p_1st"),
        ("p_$plan", "p__plan"),
        ("p_", "p_"),
        ("p_$", "p__"),
        ("p_naïve", "na_ve"),
    ] {
        assert_eq!(after.get(column).map(String::as_str), Some(expected), "{column}");
    }
    let different: BTreeSet<String> = after.values().map(|name| name.to_lowercase()).collect();
    assert_eq!(different.len(), after.len());
    assert!(after.values().all(|name| is_plain(name)));
    assert!(RESERVED.is_sorted() && PROMOTED.len() < before.len());
}

/// Goal: the same of persons, for whom no server promotes anything by itself.
#[test]
fn names_of_persons_are_plain_and_stay() {
    let all = named(&PERSONS, &["p_plan", "p_browser", "p_$browser", "p_id", "p_number", "p_a b"]);
    for (column, expected) in [
        ("id", "id"),
        ("number", "number"),
        ("properties", "properties"),
        ("p_plan", "plan"),
        ("p_browser", "browser"),
        ("p_$browser", "p__browser"),
        ("p_id", "p_id"),
        ("p_number", "p_number"),
        ("p_a b", "a_b"),
    ] {
        assert_eq!(all.get(column).map(String::as_str), Some(expected), "{column}");
    }
    assert!(!all.contains_key("project_id") && !all.contains_key("distinct_ids"));
}

/// Goal: only a view with columns that files may lack looks at the columns of all files.
#[test]
fn files_of_persons_are_united_by_name_if_columns_are_asked_for() {
    let text = |more: &[&str]| {
        let persons = LiveFiles {
            version: Some(1),
            files: vec![LiveFile { path: "a.parquet".to_owned(), bytes: 1, rows: 1 }],
            more_columns: more.iter().filter_map(|name| dictionary::of_property(name)).collect(),
            ..LiveFiles::default()
        };
        let tables = LiveTables { tables: vec![(&PERSONS, persons)] };
        sql(ProjectId(3), &tables, UnixMicros(0)).unwrap()
    };
    let without = text(&[]);
    assert!(!without.contains("union_by_name"), "{without}");
    assert!(without.contains(
        "SELECT uuid AS id, uuid, created_at, is_identified, properties, id AS number\n"
    ));
    let with = text(&["p_a%20b"]);
    for part in [
        "properties, id AS number, \"p_a%20b\" AS a_b\n",
        "CAST(NULL AS text) AS \"p_a%20b\"",
        "union_by_name = true",
        "COMMENT ON COLUMN persons.a_b IS 'property `a b`';",
    ] {
        assert!(with.contains(part), "{part} in {with}");
    }
}

#[test]
fn texts_of_others_are_quoted_and_files_are_counted() {
    let file = |name: &str| LiveFile { path: name.to_owned(), bytes: 1, rows: 1 };
    let events = LiveFiles {
        version: Some(7),
        place: "s3://bucket/tables/events".to_owned(),
        files: vec![file("s3://bucket/it's.parquet")],
        more_columns: dictionary::of_property("p_it's; DROP\"").into_iter().collect(),
    };
    let mut tables =
        LiveTables { tables: vec![(&EVENTS, events), (&PERSONS, LiveFiles::default())] };
    let text = sql(ProjectId(3), &tables, UnixMicros(0)).unwrap();
    for part in [
        "'s3://bucket/it''s.parquet'",
        "stored.\"p_it's; DROP\"\"\" AS it_s__DROP_",
        "IS 'property `it''s; DROP\"`';",
        "WHERE project_id = 3",
        "CREATE SECRET",
        "from version 7 of events, no persons.",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    tables.tables[0].1.files = vec![file("a"); FILES_MAX + 1];
    let refused = sql(ProjectId(3), &tables, UnixMicros(0)).unwrap_err();
    assert!(refused.to_string().contains("20001 files"), "{refused}");
}
