//! The data dictionary: tables of SQL and of files, their columns, and the live files.

use schemars::JsonSchema;
use serde::Serialize;

/// All tables.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "DataDictionary")]
pub struct Schema {
    /// The tables.
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "DataTable")]
pub struct Table {
    /// Its name in SQL, and of the directory of its files.
    pub name: String,
    /// What a row is.
    pub description: String,
    /// Whether it is also a Delta table of files.
    pub in_files: bool,
    /// Its columns; two of them may have the same name, one in SQL and one in files.
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "DataColumn")]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type: `text`, `bigint`, `double`, `boolean`, `timestamptz` or `date`.
    pub r#type: String,
    /// Whether a row may lack it.
    pub nullable: bool,
    /// What it says.
    pub description: String,
    /// Unit or format of its values.
    pub unit: Option<String>,
    /// A value; empty for a property that only this project has.
    pub example: String,
    /// The version of the table's columns that introduced it.
    pub since: u32,
    /// Whether SQL has it.
    pub in_sql: bool,
    /// Whether the files have it.
    pub in_files: bool,
}

/// The live files of the tables that may have rows of a project.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "LiveFiles")]
pub struct Files {
    /// The tables.
    pub tables: Vec<TableFiles>,
    /// A text of SQL for DuckDB that creates views of the project's rows in these files.
    pub views: String,
}

/// The files of one table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct TableFiles {
    /// Its name.
    pub name: String,
    /// The directory on the server, or the prefix in a bucket, of the Delta table.
    pub location: String,
    /// The version of the Delta table; null if there is none yet.
    pub version: Option<u64>,
    /// The sum of the files.
    pub bytes: u64,
    /// The files.
    pub files: Vec<File>,
}

/// A Parquet file.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct File {
    /// Path on the server, or address in a bucket.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its rows, of all projects.
    pub rows: u64,
}
