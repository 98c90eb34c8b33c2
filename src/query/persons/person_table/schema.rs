//! The columns of the persons table, and how its files are laid out.

use arrow::datatypes::SchemaRef;

use weir_event::dictionary;
use weir_storage::delta::TableSpec;
use weir_storage::parquet::Layout;

/// The columns, as published in `schemas/arrow/persons.v1.json`: existing columns stay, and a new column is
/// added at the end and nullable. `distinct_ids` is a JSON array and `properties` a JSON object, both as
/// text, which every Parquet reader supports.
pub(super) fn persons_schema() -> SchemaRef {
    dictionary::PERSONS.files_schema()
}

/// The specification of the persons table.
pub fn spec() -> TableSpec {
    let schema = dictionary::described(&dictionary::PERSONS, &persons_schema());
    TableSpec { name: dictionary::PERSONS.name, schema, partition_column: None }
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
