//! Content of a page as a file: CSV and JSON for people, JSON lines, Parquet and Arrow for programs. Files of SQL, and of
//! lists that SQL can express, have all rows, and are sent while they are computed; those of other lists have
//! [`ROWS_MAX`].

use hyper::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::beside::beside;
use crate::operation::Operation;
use crate::operation::output::Items;
use crate::rendering::Rendering;
use crate::response::{Problem, Response};
use crate::routes::pages::visit::{Asking, Sent, Visit, file};
use crate::routes::query::answer::Answer;
use crate::routes::query::{Query, answer};
use crate::{csv, objects, page, rendering};
use weir_api::query::Rows;
use weir_base::error::Kind;
use weir_query::output::format::Format;
use weir_web::chart::table::{Cell, Table};
use weir_web::parts;
use weir_web::parts::{Elsewhere, FILES};
use weir_web::state::curl;
use weir_web::state::sql::OF_LISTS;

/// The limit of the SQL of a file: none.
pub(super) const ROWS: &str = "ALL";

/// Most rows of a file that is no file of SQL.
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
        let limit = ROWS_MAX.saturating_sub(rows.len());
        let page = page::Page { limit, offset: rows.len() };
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
    let rendering = Rendering::named(format).unwrap_or(Rendering::Json);
    Ok(named(objects::render(StatusCode::OK, rendering, &rows), name, format))
}

/// Whether a list that is the same as some SQL is a file of that SQL: of all rows, with columns that keep their types.
pub(super) fn is_of_sql(format: &str) -> bool {
    format != "json"
}

/// A file with the result of SQL, whose columns keep their types.
pub(super) async fn of_sql(
    asking: &Asking,
    sql: &str,
    (name, format): (&str, &str),
) -> Result<Sent, Problem> {
    let of = rendering::named(format).filter(|of| of.is_streamed());
    let of = of.unwrap_or(Format::JsonLines);
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
        "csv" => {
            let media_type = rendering::media_type(Format::Csv);
            Response::bytes(StatusCode::OK, media_type, csv::of_table(table))
        }
        "json" => {
            let body = json!({"columns": table.head, "results": rows()});
            Response::json(StatusCode::OK, &body)
        }
        format => {
            let format = Rendering::named(format).and_then(Rendering::format);
            objects::of_rows(format.unwrap_or(Format::Parquet), &table.head, &rows())?
        }
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
