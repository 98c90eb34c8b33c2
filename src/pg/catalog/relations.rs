//! The tables of a project as the catalog has them: [`Relation`].

use datafusion::catalog::TableProvider;

use crate::types::Kind;
use weir_event::dictionary;
use weir_query::kernel::prepared;
use weir_query::kernel::prepared::ResultColumn;
use weir_query::kernel::view::View;

/// The id of the first table; the others follow in the order of their names. Ids below are PostgreSQL's own.
const FIRST_OID: i64 = 16_384;

/// The id of the first key, far behind those of tables.
const FIRST_KEY_OID: i64 = 32_768;

/// The columns that identify a row, by tables.
const KEYS: [(&str, &[&str]); 8] = [
    ("event_definitions", &["id"]),
    ("event_properties", &["event", "property"]),
    ("events", &["uuid"]),
    ("groups", &["group_type_index", "key"]),
    ("ingestion_warnings", &["type", "day"]),
    ("person_distinct_ids", &["distinct_id"]),
    ("persons", &["id"]),
    ("property_definitions", &["id"]),
];

/// A table.
#[derive(Debug)]
pub(crate) struct Relation {
    /// Its id.
    pub(crate) oid: i64,
    /// Its name.
    pub(crate) name: String,
    /// What it is about.
    pub(crate) about: Option<String>,
    /// Its columns.
    pub(crate) columns: Vec<Column>,
    /// The id of its key, and the numbers of the columns of that, from 1 on.
    pub(crate) key: Option<(i64, Vec<i64>)>,
}

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its type.
    pub(crate) kind: Kind,
    /// Whether it may be NULL.
    pub(crate) is_nullable: bool,
    /// What it is about.
    pub(crate) about: Option<String>,
}

impl Relation {
    /// The name of its key.
    pub(crate) fn key_name(&self) -> String {
        format!("{}_pkey", self.name)
    }

    /// The columns with their numbers, from 1 on.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (i64, &Column)> {
        (1_i64..).zip(&self.columns)
    }
}

/// The tables of a view, by name.
pub(crate) fn relations(view: &View) -> Vec<Relation> {
    let tables = (0_i64..).zip(view.tables());
    tables.map(|(at, (name, table))| relation(at, name, table.as_ref())).collect()
}

fn relation(at: i64, name: &str, table: &dyn TableProvider) -> Relation {
    let (schema, described) = (table.schema(), dictionary::table(name));
    let columns: Vec<Column> = schema
        .fields()
        .iter()
        .map(|field| {
            // As results have it.
            let is_json = prepared::is_json(field.name(), field.data_type());
            let own =
                ResultColumn { name: String::new(), data_type: field.data_type().clone(), is_json };
            Column {
                name: field.name().clone(),
                kind: Kind::of(&own),
                is_nullable: field.is_nullable(),
                about: described.and_then(|own| own.sql_description(field.name())),
            }
        })
        .collect();
    let names = KEYS.iter().find(|(table, _)| *table == name).map(|(_, names)| *names);
    let place = |wanted: &&str| {
        let at = columns.iter().position(|own| own.name == **wanted)?;
        i64::try_from(at.saturating_add(1)).ok()
    };
    let key: Option<Vec<i64>> = names.and_then(|names| names.iter().map(place).collect());
    Relation {
        oid: FIRST_OID.saturating_add(at),
        name: name.to_owned(),
        about: described.map(|own| own.meaning.to_owned()),
        columns,
        key: key.map(|key| (FIRST_KEY_OID.saturating_add(at), key)),
    }
}
