//! Data dictionary: every column of every table, with its type, meaning, unit and an example. One source for
//! `weir schema`, the endpoint and the page of SQL, the guide, and the descriptions in files and results.
//!
//! A table of SQL and the table of files with the same name are one entry; [`Availability`] says which of the two has a
//! column.
//! Types of events are those of [`events_schema`]; all other schemas are made from this dictionary
//! ([`Table::sql_schema`], [`Table::files_schema`]).
//!
//! [`events_schema`]: crate::schema::events_schema

mod column;
mod definitions;
mod events;
mod persons;
mod properties;
mod sessions;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};

pub use crate::dictionary::column::{Availability, Column, Kind, Table};
pub use crate::dictionary::definitions::{
    EVENT_DEFINITIONS, EVENT_PROPERTIES, INGESTION_WARNINGS, PROPERTY_DEFINITIONS,
};
pub use crate::dictionary::events::EVENTS;
pub use crate::dictionary::persons::{GROUPS, PERSON_DISTINCT_IDS, PERSONS};
pub use crate::dictionary::properties::{of_property, property_key};
pub use crate::dictionary::sessions::SESSIONS;

/// The key of the Arrow metadata of a field that holds its description.
pub const DESCRIPTION: &str = "description";

/// All tables, in the order in which they are listed.
pub const TABLES: [Table; 9] = [
    EVENTS,
    SESSIONS,
    PERSONS,
    PERSON_DISTINCT_IDS,
    GROUPS,
    EVENT_DEFINITIONS,
    PROPERTY_DEFINITIONS,
    EVENT_PROPERTIES,
    INGESTION_WARNINGS,
];

/// The table with this name.
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}

impl Table {
    /// The description of a column of the files.
    pub fn file_description(&self, name: &str) -> Option<String> {
        let column = self.files_columns().find(|column| column.name == name);
        column.or_else(|| of_property(name)).map(|column| column.description())
    }

    /// The promoted properties among the columns of SQL that are not listed here.
    pub fn more_columns<'f>(&self, fields: impl Iterator<Item = &'f Field>) -> Vec<Column> {
        let known: Vec<Column> = self.columns();
        let is_known = |field: &&Field| known.iter().any(|own| own.name == field.name().as_str());
        let column = |field: &Field| {
            let column = of_property(field.name())?;
            Some(Column { kind: Kind::of(field.data_type())?, ..column })
        };
        fields.filter(|field| !is_known(field)).filter_map(column).collect()
    }

    /// The description of a column of SQL.
    pub fn sql_description(&self, name: &str) -> Option<String> {
        let column = self.sql_columns().find(|column| column.name == name);
        column.or_else(|| of_property(name)).map(|column| column.description())
    }
}

/// The schema with the descriptions of a table's columns in the metadata of its fields ([`DESCRIPTION`]).
pub fn described(table: &Table, schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match table.file_description(field.name()) {
        Some(text) => Arc::new(with_description(field, text)),
        None => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The field with a description in its metadata.
pub fn with_description(field: &Field, description: String) -> Field {
    let mut metadata: HashMap<String, String> = field.metadata().clone();
    metadata.insert(DESCRIPTION.to_owned(), description);
    field.clone().with_metadata(metadata)
}

/// The schema without metadata.
pub fn plain(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| field.as_ref().clone().with_metadata(HashMap::new());
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests;
