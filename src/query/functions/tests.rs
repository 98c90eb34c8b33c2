//! Documentation of the ClickHouse functions, with examples: the page `src/guide/functions.md` is generated from this
//! table, and the result of each example is tested. Expected values are from ClickHouse's documentation, or by hand.

mod lists;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::dialect::{clickhouse, hogql, property_values, with_constants};
use crate::functions;
use crate::functions::calendar::Calendar;
use crate::functions::quantile;
use crate::functions::tests::lists::{AGGREGATES, ARRAYS, JSON};
use crate::functions::tests::values::{CONDITIONS, NUMBERS, TEXTS, TIMES, URLS};

/// How it is called, a description, and examples with their results.
pub(super) type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The rows of the examples of aggregates, in the page and in the tests.
const ROWS: &str =
    "(VALUES (1, 'free'), (2, NULL), (3, 'pro'), (4, NULL), (5, 'team'), (6, NULL)) AS t (n, plan)";

/// All sections of the page.
const PARTS: [(&str, &[Row]); 8] = [
    ("Aggregates", AGGREGATES),
    ("Arrays", ARRAYS),
    ("JSON", JSON),
    ("Texts", TEXTS),
    ("URLs", URLS),
    ("Numbers", NUMBERS),
    ("Conditions", CONDITIONS),
    ("Times", TIMES),
];

fn state() -> SessionState {
    let mut config = SessionConfig::new();
    config.options_mut().execution.time_zone = Some("UTC".to_owned());
    let mut state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    datafusion_functions_json::register_all(&mut state).unwrap();
    let registry: &mut dyn datafusion::execution::FunctionRegistry = &mut state;
    registry.register_udf(Arc::new(quantile::function())).unwrap();
    functions::register(registry).unwrap();
    state
}

async fn answer(context: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    let mut statement = hogql::statement(sql, 50)?;
    let tables: &[(&str, &[&str])] = &[];
    with_constants::rewrite(&mut statement, &tables)?;
    clickhouse::rewrite(&mut statement, &Calendar::default())?;
    property_values::rewrite(&mut statement)?;
    let plan = context.state().statement_to_plan(statement).await?;
    context.execute_logical_plan(plan).await?.collect().await
}

/// The values of the first column.
fn shown(batches: &[RecordBatch]) -> String {
    let options = FormatOptions::new().with_null("NULL");
    let mut values = Vec::new();
    for batch in batches {
        let shown = ArrayFormatter::try_new(batch.column(0), &options).unwrap();
        values.extend((0..batch.num_rows()).map(|row| shown.value(row).to_string()));
    }
    values.join(", ")
}

/// Goal: every function does what its description promises. Method: run each example.
#[tokio::test]
async fn examples_have_the_values_that_are_told() {
    let context = SessionContext::new_with_state(state());
    let mut wrong = Vec::new();
    for (part, rows) in PARTS {
        for (example, expected) in rows.iter().flat_map(|(.., examples)| *examples) {
            let from = if part == "Aggregates" { format!(" FROM {ROWS}") } else { String::new() };
            let sql = format!("SELECT {example}{from}");
            let found = match answer(&context, &sql).await {
                Ok(batches) => shown(&batches),
                Err(error) => error.to_string(),
            };
            if found != *expected {
                wrong.push(format!("{example}: {found}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: the page documents all functions. Method: their names.
#[test]
fn each_function_is_told_of() {
    let forms = PARTS.iter().flat_map(|(_, rows)| *rows).map(|(form, ..)| form.to_lowercase());
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    // The names before parentheses.
    let told: BTreeSet<String> = forms
        .flat_map(|form| {
            let before = form.split('(').map(|part| {
                part.rsplit(|last| !is_of_name(last)).next().unwrap_or_default().to_owned()
            });
            before.collect::<Vec<_>>()
        })
        .collect();
    let mut names: Vec<&str> = clickhouse::names().chain(functions::names()).collect();
    names.retain(|name| !told.contains(&name.to_lowercase()));
    assert!(names.is_empty(), "not told of: {}", names.join(", "));
}

/// Goal: the page matches the table. If it differs, the test prints the expected page.
#[test]
fn the_page_is_of_this_table() {
    let mut page = String::from(
        "# Functions of ClickHouse in SQL\n\n\
         In addition to the functions of DataFusion, SQL has these functions of HogQL. Names are case-insensitive. A null \
         argument gives null, unless stated otherwise; aggregates skip rows where an argument is null. Positions count \
         from 1, and texts are counted in characters. `c` is a condition. Functions with `zone` take the name of a time \
         zone after their other arguments, as all functions of parts of times do; without it they use the time zone of \
         the project. The examples of aggregates are over these rows:\n\n```sql\n",
    );
    page.push_str(&format!("SELECT ... FROM {ROWS}\n```\n"));
    for (part, rows) in PARTS {
        page.push_str(&format!(
            "\n## {part}\n\n| function | meaning | examples |\n|---|---|---|\n"
        ));
        for (form, says, examples) in rows {
            let shown = |(example, value): &(&str, &str)| {
                let value = if value.is_empty() {
                    "an empty text".to_owned()
                } else {
                    format!("`{value}`")
                };
                format!("`{}`: {value}", example.replace('|', "\\|"))
            };
            let examples: Vec<String> = examples.iter().map(shown).collect();
            page.push_str(&format!("| {form} | {says} | {} |\n", examples.join("<br>")));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/guide/functions.md");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "put this into src/guide/functions.md:\n{page}");
}
