//! The two tables ([`TableOf`]): their columns, and how their files are laid out.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use weir_identity::change_feed::Watched;
use weir_storage::delta::TableSpec;
use weir_storage::parquet::Layout;

/// Which table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableOf {
    /// `persons`: one row per person.
    Persons,
    /// `person_distinct_ids`: one row per distinct id of a person, for other engines: by a join with it events get the
    /// persons that they have after all merges and splits.
    DistinctIds,
}

impl TableOf {
    /// The specification of the table.
    pub fn spec(self) -> TableSpec {
        let schema = match self {
            Self::Persons => persons_schema(),
            Self::DistinctIds => distinct_ids_schema(),
        };
        TableSpec { name: self.name(), schema, partition_column: None }
    }

    /// The name of the table, with which the names of its files begin.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Persons => "persons",
            Self::DistinctIds => "person_distinct_ids",
        }
    }

    /// The changes by which its files become out of date.
    pub(super) fn watched(self) -> Watched {
        match self {
            Self::Persons => Watched::Persons,
            Self::DistinctIds => Watched::DistinctIds,
        }
    }

    /// The columns with the project and the number of the person.
    pub(super) fn place(self) -> [&'static str; 2] {
        match self {
            Self::Persons => ["project_id", "id"],
            Self::DistinctIds => ["project_id", "person_number"],
        }
    }

    /// The layout of the files, by positions in the schema. Rows are sorted by [`TableOf::place`].
    pub(super) fn layout(self) -> Layout {
        let (sort, statistics, unique, wide) = match self {
            Self::Persons => (vec![0, 1], vec![0, 1, 5], vec![2, 3], vec![4]),
            Self::DistinctIds => (vec![0, 5], vec![0, 3, 5], vec![1, 2, 4], Vec::new()),
        };
        Layout { sort, bloom: Vec::new(), statistics, unique, wide }
    }
}

/// The columns, as published in `schemas/arrow/persons.v1.json`: existing columns stay, and a new column is
/// added at the end and nullable. `distinct_ids` is a JSON array and `properties` a JSON object, both as
/// text, which every Parquet reader supports.
fn persons_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        field("project_id", DataType::Int64),
        field("id", DataType::Int64),
        field("uuid", DataType::Utf8View),
        field("distinct_ids", DataType::Utf8View),
        field("properties", DataType::Utf8View),
        field("created_at", time()),
        field("is_identified", DataType::Boolean),
        field("version", DataType::Int64),
    ]))
}

/// The same of `schemas/arrow/person_distinct_ids.v1.json`. What an event has as `person_id` if it was captured before
/// its distinct id was merged into another person is `old_person_id`; most rows have none.
fn distinct_ids_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        field("project_id", DataType::Int64),
        field("distinct_id", DataType::Utf8View),
        field("person_id", DataType::Utf8View),
        field("since", time()).with_nullable(true),
        field("old_person_id", DataType::Utf8View).with_nullable(true),
        field("person_number", DataType::Int64),
    ]))
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, false)
}

fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}
