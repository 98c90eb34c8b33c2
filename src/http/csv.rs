//! CSV: tables of pages ([`of_table`]), rows of values ([`of_lines`]), and JSON objects in the format of PostHog's
//! renderer (djangorestframework-csv): one line per object, nested keys joined by dots, items of lists by their index,
//! the columns of all objects in alphabetical order, an empty cell where an object lacks a column. Lines end with CRLF
//! (RFC 4180). Texts and names are escaped against formulas in spreadsheets ([`text_cell`]).

use std::borrow::Cow;
use std::collections::BTreeSet;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde::Serialize;
use serde_json::Value;

use crate::beside::beside;
use crate::objects;
use crate::rendering::Rendering;
use crate::response::{Problem, Response};
use weir_base::error::Kind;
use weir_base::tasks::CpuPool;
use weir_event::json;
use weir_query::output::format::Format;
use weir_query::output::formulas::text_cell;
use weir_web::chart::table::Table;

/// The media type of CSV responses.
pub const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");

/// The response with `value` in the format of [`render`], written outside the threads of sockets.
///
/// # Errors
///
/// The server stops.
pub(super) async fn answer(
    cpu: &CpuPool,
    status: StatusCode,
    rendering: Rendering,
    value: impl Serialize + Send + 'static,
) -> Result<Response, Problem> {
    beside(cpu, move || Ok(render(status, rendering, &value))).await
}

/// `value` as JSON or as a file, which has the items of a list, of the `results` of a page, or the one object. For short
/// values, and for callers that do not block others.
pub fn render(status: StatusCode, rendering: Rendering, value: &impl Serialize) -> Response {
    if rendering == Rendering::Json {
        return Response::json(status, value);
    }
    // Serialized to text first, because parts of it may be JSON text already.
    let text = serde_json::to_vec(value);
    let value: Value = match text.and_then(|text| json::restore(&text)) {
        Ok(value) => value,
        Err(error) => return Problem::of(Kind::Internal, &error).into(),
    };
    let rows = match &value {
        Value::Array(rows) => rows.as_slice(),
        Value::Object(page) => match page.get("results") {
            Some(Value::Array(rows)) => rows.as_slice(),
            _ => std::slice::from_ref(&value),
        },
        _ => &[],
    };
    match rendering.format() {
        None | Some(Format::Csv) => Response::bytes(status, MEDIA_TYPE, of_objects(rows)),
        Some(format) => objects::file(status, format, rows).unwrap_or_else(Response::from),
    }
}

/// Objects as a CSV file.
fn of_objects(rows: &[Value]) -> String {
    let mut columns = Columns::default();
    rows.iter().for_each(|row| columns.add(row));
    let mut text = columns.head();
    rows.iter().for_each(|row| columns.write(row, &mut text));
    text
}

/// A table of a page as a CSV file: all rows, numbers in full.
pub fn of_table(table: &Table) -> Response {
    let mut text = String::new();
    line(table.head.iter().map(|name| text_cell(name)), &mut text);
    for row in &table.rows {
        let cells = row.iter().map(|own| match &own.raw {
            Some(number) => Cow::Borrowed(number.as_str()),
            None => text_cell(&own.text),
        });
        line(cells, &mut text);
    }
    Response::bytes(StatusCode::OK, MEDIA_TYPE, text)
}

/// Rows under a header line of these names, in their order; a row may be shorter than the header.
pub fn of_lines(head: &[String], lines: &[Vec<Value>]) -> Response {
    let mut text = String::new();
    line(head.iter().map(|name| text_cell(name)), &mut text);
    for own in lines {
        let cells = own.iter().chain(std::iter::repeat(&Value::Null)).take(head.len());
        line(cells.map(shown), &mut text);
    }
    Response::bytes(StatusCode::OK, MEDIA_TYPE, text)
}

/// A value as the text of its cell.
fn shown(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => text_cell(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Appends a line.
fn line<'c>(cells: impl Iterator<Item = Cow<'c, str>>, text: &mut String) {
    for (index, own) in cells.enumerate() {
        cell(index, &own, text);
    }
    text.push_str("\r\n");
}

/// The columns of a file, collected from all rows.
#[derive(Debug, Default)]
pub struct Columns(BTreeSet<String>);

impl Columns {
    /// Adds the columns that `row` has.
    pub fn add(&mut self, row: &Value) {
        flatten(row, &mut String::new(), &mut |name, _| {
            if !self.0.contains(name) {
                self.0.insert(name.to_owned());
            }
        });
    }

    /// The header line; empty if no row has a column.
    pub fn head(&self) -> String {
        let mut text = String::new();
        if !self.0.is_empty() {
            line(self.0.iter().map(|name| text_cell(name)), &mut text);
        }
        text
    }

    /// Appends the line of `row` to `text`. All its columns must have been added.
    pub fn write(&self, row: &Value, text: &mut String) {
        let mut cells = Vec::new();
        flatten(row, &mut String::new(), &mut |name, value| {
            cells.push((name.to_owned(), shown(value).into_owned()));
        });
        cells.sort_unstable();
        // A name with a dot may equal a nested name; the column has one cell.
        cells.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut cells = cells.into_iter().peekable();
        for (index, name) in self.0.iter().enumerate() {
            let value = cells.next_if(|(own, _)| own == name).map(|(_, value)| value);
            cell(index, &value.unwrap_or_default(), text);
        }
        text.push_str("\r\n");
    }
}

/// Calls `show` for the leaves of `value` with their dotted names.
fn flatten(value: &Value, name: &mut String, show: &mut impl FnMut(&str, &Value)) {
    let length = name.len();
    let mut descend = |key: &str, value: &Value| {
        if length > 0 {
            name.push('.');
        }
        name.push_str(key);
        flatten(value, name, &mut *show);
        name.truncate(length);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| descend(key, value)),
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                descend(&index.to_string(), value);
            }
        }
        leaf => show(name, leaf),
    }
}

fn cell(index: usize, value: &str, line: &mut String) {
    if index > 0 {
        line.push(',');
    }
    if value.contains([',', '"', '\r', '\n']) {
        line.push('"');
        line.push_str(&value.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::{Columns, of_table, render};
    use crate::rendering::Rendering;
    use crate::response::Body;
    use weir_web::chart::series::Unit;
    use weir_web::chart::table::{Cell, Table};

    fn file(rows: &[serde_json::Value]) -> String {
        let mut columns = Columns::default();
        rows.iter().for_each(|row| columns.add(row));
        let mut text = columns.head();
        rows.iter().for_each(|row| columns.write(row, &mut text));
        text
    }

    #[test]
    fn tables_have_numbers_in_full_and_no_formulas() {
        let table = Table {
            caption: String::new(),
            head: vec!["a,b".to_owned(), "=1+1".to_owned()],
            rows: vec![
                vec![
                    Cell::text("@SUM(\"x\")"),
                    Cell::number(-1234.5, Unit::Count, Some("/x".to_owned())),
                ],
                vec![Cell::text("plain"), Cell::nothing()],
            ],
        };
        let expected = "\"a,b\",'=1+1\r\n\"'@SUM(\"\"x\"\")\",-1234.5\r\nplain,\r\n";
        let Body::Full(file) = of_table(&table).body else { panic!("a body") };
        assert_eq!(file, expected);
    }

    /// Texts that are JSON already come from the sender and may have any key.
    #[test]
    fn objects_of_senders_become_lines() {
        let sent = r#"{"a":{"$serde_json::private::RawValue":"not JSON"}}"#;
        let sent = RawValue::from_string(sent.to_owned()).unwrap();
        let response = render(StatusCode::OK, Rendering::Csv, &[sent]);
        assert_eq!(response.status, StatusCode::OK);
    }

    /// As djangorestframework-csv 3.0.2 documents: nested names with dots, lists by index, empty
    /// containers without a column, a sorted header over all rows.
    #[test]
    fn objects_become_lines() {
        let rows = [
            json!({"id": 1, "distinct_ids": ["a", "b"], "properties": {"x": {"y": true}, "n": null}}),
            json!({"id": 2, "distinct_ids": [], "properties": {}, "name": "say \"hi\", you\nthere"}),
        ];
        let expected = "distinct_ids.0,distinct_ids.1,id,name,properties.n,properties.x.y\r\n\
                        a,b,1,,,true\r\n\
                        ,,2,\"say \"\"hi\"\", you\nthere\",,\r\n";
        assert_eq!(file(&rows), expected);
    }

    #[test]
    fn texts_and_names_are_no_formulas() {
        let rows = [
            json!({"=1+1": "=HYPERLINK(\"http://x\")", "n": -5, "t": "-5", "u": "+1,2", "v": "a@b"}),
        ];
        let expected =
            "'=1+1,n,t,u,v\r\n\"'=HYPERLINK(\"\"http://x\"\")\",-5,'-5,\"'+1,2\",a@b\r\n";
        assert_eq!(file(&rows), expected);
    }

    #[test]
    fn nothing_is_an_empty_file() {
        assert_eq!(file(&[]), "");
    }

    #[test]
    fn columns_whose_names_share_a_beginning_keep_their_cells() {
        let rows = [json!({"a": {"b": 1}, "a.b": 5, "a.b.c": 2, "a!": 3})];
        assert_eq!(file(&rows), "a!,a.b,a.b.c\r\n3,1,2\r\n");
    }
}
