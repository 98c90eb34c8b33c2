//! Content of a page as a file: CSV and JSON for people, Parquet and Arrow for programs. A file has more rows than a
//! page, up to the limits of the API.

use hyper::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::beside::beside;
use crate::operation::Operation;
use crate::operation::output::Items;
use crate::rendering::Rendering;
use crate::response::{Problem, Response};
use crate::routes::pages::visit::{Asking, Sent, Visit, file};
use crate::routes::query::answer::{Answer, FORMATS, media_type};
use crate::routes::query::{Query, answer};
use crate::{csv, page};
use weir_api::query::Rows;
use weir_base::error::Kind;
use weir_query::output::format::Format;
use weir_query::output::value_rows;
use weir_web::chart::table::{Cell, Table};
use weir_web::parts;
use weir_web::parts::{Elsewhere, FILES};
use weir_web::state::curl;
use weir_web::state::sql::OF_LISTS;

/// Most rows of a file.
pub(super) const ROWS: &str = "10000";
const ROWS_MAX: usize = 10_000;

/// The format of the requested file; `None` if the page itself is requested.
pub(super) fn wanted(visit: &Visit) -> Result<Option<&'static str>, Problem> {
    let sent = visit.parameter("format");
    if sent.is_empty() {
        return Ok(None);
    }
    let known = FILES.iter().map(|(format, _)| *format);
    match known.clone().find(|format| *format == sent) {
        Some(format) => Ok(Some(format)),
        None => {
            let known: Vec<&str> = known.collect();
            let detail = format!("There is no file of this format; there is {}.", known.join(", "));
            Err(Problem::new(Kind::Invalid, "invalid_input", detail))
        }
    }
}

/// A file with the rows of a list of the API, from all of its pages; `list` makes the operation for one page.
pub(super) async fn of_list<O: Operation<Out: Items + 'static>>(
    asking: &Asking,
    list: impl Fn(page::Page) -> O,
    (name, format): (&str, &str),
) -> Result<Sent, Problem> {
    let (mut rows, mut held) = (Vec::new(), asking.memory().reservation());
    loop {
        let page = page::Page { limit: ROWS_MAX, offset: rows.len() };
        let found = asking.perform(list(page)).await?;
        let has_next = found.has_next();
        let read = move || found.into_items(&mut held).map(|part| (part, held));
        let (mut part, rest) = beside(&asking.app.node.cpu, read).await?;
        held = rest;
        // A page of a list is limited in bytes.
        let goes_on = has_next && !part.is_empty();
        rows.append(&mut part);
        if !goes_on || rows.len() >= ROWS_MAX {
            break;
        }
    }
    asking.keep(held);
    let (name, format) = (name.to_owned(), format.to_owned());
    beside(&asking.app.node.cpu, move || of_objects(&rows, (&name, &format))).await
}

/// A file with one row per object.
pub(super) fn of_objects(rows: &[Value], (name, format): (&str, &str)) -> Result<Sent, Problem> {
    let response = match format {
        "json" => csv::render(StatusCode::OK, Rendering::Json, &rows),
        "csv" => csv::render(StatusCode::OK, Rendering::Csv, &rows),
        format => {
            let objects: Vec<&Map<String, Value>> =
                rows.iter().filter_map(Value::as_object).collect();
            let mut names: Vec<String> = Vec::new();
            for name in objects.iter().flat_map(|row| row.keys()) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            let cell = |row: &Map<String, Value>, name: &String| {
                row.get(name).cloned().unwrap_or_default()
            };
            let row = |row: &&Map<String, Value>| -> Vec<Value> {
                names.iter().map(|name| cell(row, name)).collect()
            };
            let rows: Vec<Vec<Value>> = objects.iter().map(row).collect();
            binary(format, &names, &rows)?
        }
    };
    Ok(named(response, name, format))
}

/// Whether columns have types in files of this format.
pub(super) fn has_types(format: &str) -> bool {
    format == "parquet" || format == "arrow"
}

/// A file with the result of SQL, whose columns keep their types.
pub(super) async fn of_sql(
    asking: &Asking,
    sql: &str,
    (name, format): (&str, &str),
) -> Result<Sent, Problem> {
    let of = FORMATS.iter().find(|(own, _)| *own == format).map(|(_, of)| *of);
    let of = of.filter(|of| of.is_streamed()).unwrap_or(Format::JsonLines);
    let response = match asking.perform(Query::file(sql, of)).await? {
        Answer::File(of, file) => answer::file(of, file),
        _ => return Err(Problem::not_acceptable()),
    };
    // One JSON object per line.
    let format = if format == "json" { "jsonl" } else { format };
    Ok(named(response, name, format))
}

/// A file with a table of a page: all of its rows, numbers in full.
pub(super) fn of_table(table: &Table, (name, format): (&str, &str)) -> Result<Sent, Problem> {
    let rows = || -> Vec<Vec<Value>> {
        table.rows.iter().map(|row| row.iter().map(value).collect()).collect()
    };
    let response = match format {
        "csv" => csv::of_table(table),
        "json" => {
            let body = json!({"columns": table.head, "results": rows()});
            Response::json(StatusCode::OK, &body)
        }
        format => binary(format, &table.head, &rows())?,
    };
    Ok(named(response, name, format))
}

/// A file with the result of SQL in the form of a table of a page.
pub(super) fn of_answer(answer: &Rows, (name, format): (&str, &str)) -> Result<Sent, Problem> {
    let cell = |value: &Value| Cell {
        raw: value.as_number().map(ToString::to_string),
        ..Cell::text(parts::plain(value))
    };
    let row = |row: &Vec<Value>| row.iter().map(cell).collect();
    let rows = answer.results.iter().map(row).collect();
    let head = answer.columns.clone();
    of_table(&Table { caption: String::new(), head, rows }, (name, format))
}

/// The value of a cell in a file.
fn value(cell: &Cell) -> Value {
    let Some(raw) = &cell.raw else { return Value::from(cell.text.as_str()) };
    match (raw.parse::<i64>(), raw.parse::<f64>()) {
        (Ok(whole), _) => Value::from(whole),
        (_, Ok(number)) => Value::from(number),
        _ => Value::Null,
    }
}

fn binary(format: &str, names: &[String], rows: &[Vec<Value>]) -> Result<Response, Problem> {
    let format = if format == "arrow" { Format::Arrow } else { Format::Parquet };
    let file = value_rows::written(format, names, rows);
    let file = file.map_err(|error| Problem::of(Kind::Internal, &error))?;
    Ok(Response::bytes(StatusCode::OK, media_type(format), file))
}

fn named(response: Response, name: &str, format: &str) -> Sent {
    Sent::Other(file(response, &format!("{name}.{format}")))
}

/// The footer of a list of the API: links to files, and how to request it from other programs. `query` has the filters
/// of the page.
pub(super) fn below(
    asking: &Asking,
    (path, query): (&str, &[(&str, &str)]),
    sql: Option<&str>,
) -> Markup {
    let own = parts::query(query);
    let path = if own.is_empty() { path.to_owned() } else { format!("{path}?{own}") };
    let curl = curl::get(&asking.server, asking.project(), &path);
    html! {
        footer class="source" {
            p { (parts::files(|format| link(query, format))) }
            (parts::source(asking.project(), &Elsewhere { sql, duckdb: Err(OF_LISTS), curl: &curl }))
        }
    }
}

/// The URL of the same page as a file of this format.
fn link(query: &[(&str, &str)], format: &str) -> String {
    format!("?{}", parts::query(&[query, &[("format", format)]].concat()))
}
