//! `weir schema`: the data dictionary, of all tables or of one.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::cli::inspect::tables::tables_of;
use weir_app::live_files::LiveTables;
use weir_base::clock::Clock;
use weir_event::dictionary;
use weir_event::dictionary::{Availability, Column, TABLES, Table};
use weir_event::id::ProjectId;

/// Options of `weir schema`.
#[derive(Clone, Debug, clap::Args)]
pub struct SchemaArgs {
    /// The table whose columns are printed; without it, the tables (with --format json or markdown: all columns)
    pub table: Option<String>,
    /// Data directory, for the properties that it promotes to columns; if there is none, the columns that every
    /// directory has are printed
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Format of the result
    #[arg(long, value_enum, default_value_t = SchemaFormat::Table)]
    pub format: SchemaFormat,
}

/// Format of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaFormat {
    /// Aligned columns for a terminal.
    Table,
    /// The JSON of `GET /api/projects/:project/schema/`.
    Json,
    /// A section with a table for each table.
    Markdown,
}

/// Prints the dictionary.
///
/// # Errors
///
/// The error message for the user.
pub fn run(args: &SchemaArgs, clock: &Clock) -> anyhow::Result<()> {
    let found = |name: &str| {
        let names = TABLES.map(|table| table.name).join(", ");
        dictionary::table(name)
            .with_context(|| format!("there is no table {name:?}; there are {names}"))
    };
    let table = args.table.as_deref().map(found).transpose()?;
    let live = live_tables(args, clock)?;
    let tables: Vec<&Table> = match table {
        Some(table) => vec![table],
        None => TABLES.iter().collect(),
    };
    let described = tables.into_iter().map(|table| (table, columns(table, &live)));
    let described: Vec<(&Table, Vec<Column>)> = described.collect();
    let mut out = std::io::stdout().lock();
    let text = match (args.format, table, described.first()) {
        (SchemaFormat::Table, Some(_), Some((_, columns))) => aligned(&column_rows(columns)),
        (SchemaFormat::Table, ..) => aligned(&table_rows(&described)),
        (SchemaFormat::Json, Some(_), Some(one)) => format!("{:#}\n", json_of(one)),
        (SchemaFormat::Json, ..) => {
            let tables: Vec<Value> = described.iter().map(json_of).collect();
            format!("{:#}\n", json!({"tables": tables}))
        }
        (SchemaFormat::Markdown, ..) => {
            let sections = described.iter().map(|(table, columns)| markdown(table, columns));
            sections.collect::<Vec<_>>().join("\n")
        }
    };
    Ok(out.write_all(text.as_bytes())?)
}

/// The tables of a data directory; none if there is no directory.
fn live_tables(args: &SchemaArgs, clock: &Clock) -> anyhow::Result<LiveTables> {
    if !args.data_dir.is_dir() {
        return Ok(LiveTables::default());
    }
    let data_dir = std::path::absolute(&args.data_dir)?;
    let runtime = Runtime::new()?;
    let live = runtime.block_on(async {
        let tables = tables_of(&data_dir, clock).await?;
        Ok::<_, anyhow::Error>(LiveTables::of(&tables, ProjectId(1), clock).await?)
    });
    live.with_context(|| format!("cannot read the columns of {}", data_dir.display()))
}

/// The columns of a table, with those of a data directory that the dictionary does not list.
fn columns(table: &Table, live: &LiveTables) -> Vec<Column> {
    let more = live.of_table(table).map(|files| files.more_columns.clone());
    table.columns().into_iter().chain(more.unwrap_or_default()).collect()
}

fn place(column: &Column) -> &'static str {
    match column.place {
        Availability::Both => "SQL, files",
        Availability::Sql => "SQL",
        Availability::Files => "files",
    }
}

fn kind(column: &Column) -> String {
    let nullable = if column.is_nullable { ", nullable" } else { "" };
    format!("{}{nullable}", column.kind.sql())
}

fn column_rows(columns: &[Column]) -> Vec<Vec<String>> {
    let head = ["column", "type", "in", "since", "meaning", "example"].map(str::to_owned).to_vec();
    let row = |own: &Column| {
        let place = place(own).to_owned();
        let (since, example) = (own.since.to_string(), own.example.to_string());
        vec![own.name.to_string(), kind(own), place, since, own.description(), example]
    };
    std::iter::once(head).chain(columns.iter().map(row)).collect()
}

fn table_rows(tables: &[(&Table, Vec<Column>)]) -> Vec<Vec<String>> {
    let head = ["table", "columns", "in", "meaning"].map(str::to_owned).to_vec();
    let row = |(table, columns): &(&Table, Vec<Column>)| {
        let place = if table.has_files { "SQL, files" } else { "SQL" };
        let count = columns.len().to_string();
        vec![table.name.to_owned(), count, place.to_owned(), table.meaning.to_owned()]
    };
    std::iter::once(head).chain(tables.iter().map(row)).collect()
}

/// Rows with their cells below each other.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn json_of((table, columns): &(&Table, Vec<Column>)) -> Value {
    let column = |own: &Column| {
        json!({
            "name": own.name, "type": own.kind.sql(), "nullable": own.is_nullable,
            "description": own.meaning, "unit": own.unit, "example": own.example, "since": own.since,
            "in_sql": own.place != Availability::Files, "in_files": own.place != Availability::Sql,
        })
    };
    json!({
        "name": table.name, "description": table.meaning, "in_files": table.has_files,
        "columns": columns.iter().map(column).collect::<Vec<_>>(),
    })
}

/// A section about a table, as in the guide.
pub(crate) fn markdown(table: &Table, columns: &[Column]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let code =
        |text: &str| if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) };
    let rows = columns.iter().map(|own| {
        let (name, meaning) = (code(&own.name), cell(&own.description()));
        let (kind, place, example) = (kind(own), place(own), code(&own.example));
        format!("| {name} | {kind} | {place} | {} | {meaning} | {example} |\n", own.since)
    });
    format!(
        "## Columns of `{}`\n\n{}\n\n| column | type | in | since | meaning | example |\n|---|---|---|---|---|---|\n{}",
        table.name,
        table.meaning,
        rows.collect::<String>()
    )
}
