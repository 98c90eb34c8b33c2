//! The SQL page: an editor, the available tables and examples, and a grid of results.

use maud::{Markup, html};
use serde_json::Value;

use crate::insight::links;
use crate::insight::saved::Saved;
use crate::pages::sql_chart;
use crate::parts::{Elsewhere, page, query};
use crate::state::curl;
use crate::state::saved_sql::{CHARTS, Chart, SavedSql};
use crate::state::sql::OF_SQL;
use crate::{assets, parts};
use weir_api::query::Rows;
use weir_api::schema::{Column, Schema};

/// Most rows of a grid; files have all of them.
const ROWS_MAX: usize = 1000;

/// Value that the form of a saved query sends for rows without a chart.
const ROWS: &str = "table";

/// Example queries: a title and SQL.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "Events by name",
        "SELECT event, count(*) AS events, count(DISTINCT person_id) AS persons\nFROM events\nGROUP BY event\nORDER BY events DESC\nLIMIT 50",
    ),
    (
        "Events by day",
        "SELECT date_trunc('day', timestamp) AS day, count(*) AS events\nFROM events\nGROUP BY day\nORDER BY day DESC\nLIMIT 30",
    ),
    (
        "Newest events",
        "SELECT timestamp, event, distinct_id, properties\nFROM events\nORDER BY timestamp DESC\nLIMIT 20",
    ),
    ("Newest persons", "SELECT *\nFROM persons\nORDER BY created_at DESC\nLIMIT 20"),
];

/// Completions of the editor.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// Tables, columns and functions.
    pub all: Vec<String>,
    /// Names of properties of events and persons.
    pub properties: Vec<String>,
    /// Names of events.
    pub events: Vec<String>,
}

/// The address of the page with a query and a chart of its rows.
pub fn address(project: i64, sql: &str, chart: Option<&Chart>) -> String {
    let chart = chart.map_or("", |chart| chart.name);
    format!("{}?{}", page(project, "sql"), query(&[("q", sql), ("chart", chart)]))
}

/// The editor, saved queries, the history in this browser, and examples.
pub fn form(
    project: i64,
    (sql, chart): (&str, Option<&Chart>),
    words: &Words,
    saved: &[Saved],
) -> Markup {
    let address = page(project, "sql");
    html! {
        form class="stack" method="get" action=(address) {
            label for="q" { "SQL (Ctrl+Enter runs it)" }
            div class="typed" {
                textarea id="q" name="q" rows="9" spellcheck="false" autocomplete="off" maxlength="100000" data-words=(project) { (sql) }
            }
            @for (id, own) in [("sql-words", &words.all), ("sql-properties", &words.properties), ("sql-events", &words.events)] {
                datalist id=(id) { @for word in own { option value=(word) {} } }
            }
            @if let Some(chart) = chart { input type="hidden" name="chart" value=(chart.name); }
            div class="actions" {
                button class="main" { "Run" }
                button name="explain" value="1" title="Shows the plan instead of running it" { "Explain" }
            }
        }
        @if !saved.is_empty() {
            details class="card" {
                summary { "Saved" }
                ul class="plain" {
                    @for own in saved { li { a href=(links::saved(project, &own.short_id)) { bdi { (own.starred()) } } } }
                }
            }
        }
        details class="card" id="sql-history" hidden {
            summary { "Run before in this browser" }
            div {
                ul class="plain mono" {}
                button class="small" type="button" { "Clear history" }
            }
        }
        script src=(assets::path("sql.js")) defer {}
        @if sql.is_empty() {
            div class="empty" {
                h2 { "Query your events with SQL" }
                p { "Every event and person of this project is a row. Only reading is possible, and every query has \
                     limits on time and memory, so nothing can break." }
                div class="actions" {
                    @for (title, sql) in EXAMPLES {
                        a class="button small" href=(format!("{address}?{}", query(&[("q", sql)]))) { (title) }
                    }
                }
            }
        }
    }
}

/// The distinct texts in the first column of rows.
pub fn names(rows: &Rows) -> Vec<String> {
    let first = |row: &Vec<Value>| row.first().and_then(Value::as_str).map(str::to_owned);
    sorted(rows.results.iter().filter_map(first).collect())
}

/// The names of tables and columns that SQL has.
pub fn words(schema: &Schema) -> Vec<String> {
    let columns = schema.tables.iter().flat_map(|table| &table.columns);
    let columns = columns.filter(|column| column.in_sql).map(|column| column.name.clone());
    sorted(schema.tables.iter().map(|table| table.name.clone()).chain(columns).collect())
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// The tables of SQL with their columns.
pub fn tables(schema: &Schema) -> Markup {
    html! {
        aside class="card" aria-label="Tables" {
            h2 { "Tables" }
            @for table in &schema.tables {
                details {
                    summary { code { (table.name) } }
                    p class="quiet" { (table.description) }
                    ul class="plain" {
                        @for column in table.columns.iter().filter(|column| column.in_sql) { li { (shown(column)) } }
                    }
                }
            }
            p class="quiet" { br; "A property is " code { "properties.plan" } ", or " code { "properties['$browser']" } "." }
        }
    }
}

fn shown(column: &Column) -> Markup {
    let example = Some(&column.example).filter(|example| !example.is_empty());
    let title = example.map(|example| format!("For example {example}"));
    html! {
        code title=[title] { (column.name) } " "
        span class="quiet" {
            (column.r#type) ": " (column.description)
            @if let Some(unit) = &column.unit { " (" (unit) ")" }
        }
    }
}

/// The result of a query, and above it a chart of this kind, if one is selected.
pub fn result(
    (project, sql, chart): (i64, &str, Option<&Chart>),
    answer: &Rows,
    millis: u128,
) -> Markup {
    let rows = &answer.results;
    let link = |chart: Option<&Chart>| address(project, sql, chart);
    html! {
        section id="result" aria-label="Result" {
            div class="actions above" {
                span class="quiet" { (counted(rows.len())) " in " (millis) " ms" }
                @if !rows.is_empty() {
                    nav class="tabs small" aria-label="Ways to show the rows" {
                        a href=(link(None)) aria-current=[chart.is_none().then_some("page")] { "Table" }
                        @for own in &CHARTS {
                            a href=(link(Some(own))) aria-current=[(chart == Some(own)).then_some("page")] { (own.title) }
                        }
                    }
                }
                (parts::files(|format| format!("{}&{}", link(None), query(&[("format", format)]))))
            }
            (drawn(answer, chart))
        }
    }
}

/// The rows of a result, and above them a chart if there is one of them.
fn drawn(answer: &Rows, chart: Option<&Chart>) -> Markup {
    let is_empty = answer.results.is_empty();
    html! {
        @if let Some(chart) = chart.filter(|_| !is_empty) {
            @match sql_chart::chart(answer, chart) {
                Some(chart) => div class="card" { (chart) },
                None => p class="note" { "A chart needs a column of numbers, and a column beside it that says what each number is of, such as a day." },
            }
        }
        (grid(answer))
    }
}

/// The result of a saved query: its saved chart, or the rows; both if it is the only one on the page.
pub fn saved(answer: &Rows, query: &Value, is_alone: bool) -> Markup {
    let chart = SavedSql::of(query).and_then(|saved| saved.chart);
    if is_alone {
        return drawn(answer, chart);
    }
    chart.and_then(|chart| sql_chart::chart(answer, chart)).unwrap_or_else(|| grid(answer))
}

/// The SQL of a saved query, editable at the address `at` of the insight, and the link to the SQL page.
pub fn asked(project: i64, (saved, is_changed): (&SavedSql, bool), at: Option<&str>) -> Markup {
    html! {
        details class="source" open[is_changed] {
            summary { "Query" }
            @match at {
                None => pre tabindex="0" { code { (saved.sql) } },
                Some(address) => form class="stack" method="get" action=(address) {
                    label for="q" { "SQL" }
                    textarea id="q" name="q" rows="9" spellcheck="false" autocomplete="off" maxlength="100000" { (saved.sql) }
                    div class="actions" {
                        label {
                            "Shown as "
                            select name="chart" {
                                option value=(ROWS) selected[saved.chart.is_none()] { "Table" }
                                @for own in &CHARTS { option value=(own.name) selected[saved.chart == Some(own)] { (own.title) } }
                            }
                        }
                        button { "Run" }
                    }
                },
            }
            @if saved.is_whole {
                div class="actions" {
                    a class="button small" href=(address(project, &saved.sql, saved.chart)) { "Open on the page of SQL" }
                }
            }
        }
    }
}

/// The rows of a result as a table.
fn grid(answer: &Rows) -> Markup {
    let Rows { columns, types, results: rows } = answer;
    html! {
        @if rows.is_empty() {
            div class="empty" { h2 { "No rows" } p { "The query ran and found nothing." } }
        } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Rows" {
                table class="grid" {
                    thead { tr { @for (at, column) in columns.iter().enumerate() {
                        th scope="col" class=[is_number(rows, at).then_some("number")] title=[types.get(at)] { (column) }
                    } } }
                    tbody {
                        @for row in rows.iter().take(ROWS_MAX) {
                            tr { @for value in row { (cell(value)) } }
                        }
                    }
                }
            }
            @if rows.len() > ROWS_MAX {
                p class="quiet" { "The first " (ROWS_MAX) " rows are shown; files have all of them." }
            }
        }
    }
}

fn cell(value: &Value) -> Markup {
    match value {
        Value::Null => html! { td { span class="null" { "null" } } },
        Value::Number(number) => html! { td class="number" { (number.to_string()) } },
        other => html! { td { (parts::short(other)) } },
    }
}

/// Whether a column is numeric, by its first value that is not null.
fn is_number(rows: &[Vec<Value>], column: usize) -> bool {
    let mut values = rows.iter().filter_map(|row| row.get(column)).filter(|value| !value.is_null());
    values.next().is_some_and(Value::is_number)
}

/// The plan of a query: rows of text.
pub fn plan(answer: &Rows) -> Markup {
    let line = |row: &Vec<Value>| row.last().map(parts::plain).unwrap_or_default();
    let lines: Vec<String> = answer.results.iter().map(line).collect();
    html! { section id="result" aria-label="Plan" { h2 { "Plan" } pre tabindex="0" { (lines.join("\n")) } } }
}

/// How to run the same query by the API.
pub fn source(project: i64, server: &str, sql: &str) -> Markup {
    let body = serde_json::json!({"query": sql, "format": "csv"});
    let curl = curl::post(server, project, "query/", &body);
    parts::source(project, &Elsewhere { sql: None, duckdb: Err(OF_SQL), curl: &curl })
}

fn counted(rows: usize) -> String {
    match rows {
        1 => "1 row".to_owned(),
        rows => format!("{} rows", parts::number(i64::try_from(rows).unwrap_or(i64::MAX))),
    }
}

/// The message of a failed query.
pub fn failed(detail: &str) -> Markup {
    html! { section id="result" { (parts::failed(detail)) } }
}
