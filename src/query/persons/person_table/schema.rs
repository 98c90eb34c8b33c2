//! The columns of the persons table, and how its files are laid out.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use weir_storage::delta::TableSpec;
use weir_storage::parquet::Layout;

/// The columns, as published in `schemas/arrow/persons.v1.json`: existing columns stay, and a new column is
/// added at the end and nullable. `distinct_ids` is a JSON array and `properties` a JSON object, both as
/// text, which every Parquet reader supports.
pub(super) fn persons_schema() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("project_id", DataType::Int64),
        field("id", DataType::Int64),
        field("uuid", DataType::Utf8View),
        field("distinct_ids", DataType::Utf8View),
        field("properties", DataType::Utf8View),
        field("created_at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("is_identified", DataType::Boolean),
        field("version", DataType::Int64),
    ]))
}

/// The specification of the persons table.
pub fn spec() -> TableSpec {
    TableSpec { name: "persons", schema: persons_schema(), partition_column: None }
}

/// The layout of the files, by positions in [`persons_schema`]. Rows are sorted by project id, and within a
/// project by person number.
pub(super) fn layout() -> Layout {
    Layout {
        sort: vec![0, 1],
        bloom: Vec::new(),
        statistics: vec![0, 1, 5],
        unique: vec![2, 3],
        wide: vec![4],
    }
}
