//! Tests that the dictionary has every column, once, and those that are published.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use serde_json::{Value, json};

use super::{
    Availability, DESCRIPTION, EVENTS, Kind, PERSONS, TABLES, described, plain, properties,
    property_key, table,
};
use crate::schema::{PARTITION_COLUMN, PROMOTED, events_schema, promoted_column_name};

#[test]
fn every_column_is_described_once() {
    for table in TABLES {
        assert!(table.meaning.ends_with('.'), "{}", table.name);
        let mut seen = BTreeSet::new();
        for column in table.columns() {
            let at = format!("{}.{}", table.name, column.name);
            assert!(!column.meaning.is_empty() && !column.example.is_empty(), "{at}");
            assert!(!column.meaning.ends_with('.') && column.since > 0, "{at}");
            // Descriptions stand in cells of Markdown tables.
            assert!(!column.description().contains(['|', '\n']), "{at}");
            let places: &[Availability] = match column.place {
                Availability::Both => &[Availability::Sql, Availability::Files],
                Availability::Sql => &[Availability::Sql],
                Availability::Files => &[Availability::Files],
            };
            for place in places {
                assert!(seen.insert((format!("{place:?}"), column.name.to_string())), "{at}");
                assert!(table.has_files || *place == Availability::Sql, "{at}");
            }
        }
        assert_eq!(super::table(table.name).map(|found| found.name), Some(table.name));
    }
    assert!(table("nothing").is_none());
}

/// Goal: nothing of the schema is missing here, and nothing here is missing in the schema.
#[test]
fn events_have_the_columns_of_the_schema() {
    assert_eq!(EVENTS.files_schema(), events_schema());
    let last = EVENTS.files_columns().last().unwrap();
    assert_eq!((&*last.name, last.kind), (PARTITION_COLUMN, Kind::Text));
    let described: BTreeSet<&str> = properties::known().collect();
    let promoted: BTreeSet<&str> = PROMOTED.iter().map(|(key, _)| *key).collect();
    assert_eq!(described, promoted);
    let hidden: Vec<String> = EVENTS
        .columns()
        .iter()
        .filter(|own| own.place == Availability::Files)
        .map(|own| own.name.to_string())
        .collect();
    assert_eq!(hidden, ["project_id", PARTITION_COLUMN]);
}

/// Goal: the columns of files are those that are published.
#[test]
fn files_have_the_published_columns() {
    for (table, published) in [
        (EVENTS, include_str!("../../../schemas/arrow/events.v1.json")),
        (PERSONS, include_str!("../../../schemas/arrow/persons.v1.json")),
    ] {
        let published: Value = serde_json::from_str(published).unwrap();
        let columns: Vec<Value> = table
            .files_columns()
            .map(|column| {
                let kind = match column.kind {
                    Kind::Text => "string",
                    Kind::Integer => "long",
                    Kind::Double => "double",
                    Kind::Boolean => "boolean",
                    Kind::Timestamp => "timestamp",
                    Kind::Date => "date",
                };
                json!({"name": column.name, "type": kind, "nullable": column.is_nullable})
            })
            .collect();
        assert_eq!(published["columns"], json!(columns), "{}", table.name);
    }
}

#[test]
fn keys_are_read_from_names_of_columns() {
    for key in ["$os", "plan", "a b=c%", "naïve, {x};(y)", "%41", ""] {
        assert_eq!(property_key(&promoted_column_name(key)).as_deref(), Some(key));
    }
    for name in ["event", "p", "p_%4", "p_%zz", "p_%é"] {
        assert_eq!(property_key(name), None, "{name}");
    }
}

#[test]
fn schemas_get_descriptions_and_lose_them() {
    let fields = vec![
        Field::new("event", DataType::Utf8View, false),
        Field::new("p_plan", DataType::Utf8View, true),
        Field::new("properties.\"plan\"", DataType::Utf8View, true),
    ];
    let schema = Arc::new(Schema::new(fields));
    let found = described(&EVENTS, &schema);
    let text = |at: usize| found.field(at).metadata().get(DESCRIPTION).map(String::as_str);
    assert_eq!(text(0), Some("name of the event"));
    assert_eq!(text(1), Some("property `plan`"));
    assert_eq!(text(2), None);
    assert_eq!(plain(&found), schema);
    let ids = |name: &str| (PERSONS.file_description(name), PERSONS.sql_description(name));
    let (of_files, of_sql) = ids("id");
    assert!(of_files.unwrap().starts_with("number of the person"));
    assert_eq!(of_sql.unwrap(), "the same as `uuid`, as in HogQL (UUID)");
    assert_eq!(ids("version").1, None);
}
