//! JSON objects, such as the items of a list, in the format that a request wants, as JSON or as a file: [`answer`] and
//! [`render`]; [`of_rows`] for a file of rows under names.

use std::borrow::Cow;
use std::collections::HashSet;

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::beside::beside;
use crate::csv;
use crate::rendering::{Rendering, media_type};
use crate::response::{Problem, Response};
use weir_base::error::Kind;
use weir_base::tasks::CpuPool;
use weir_event::json;
use weir_query::output::format::Format;
use weir_query::output::value_rows;

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
    let Some(format) = rendering.format() else { return Response::json(status, value) };
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
    file(status, format, rows).unwrap_or_else(Response::from)
}

/// A file with a row per object. In Parquet and Arrow, the columns are the keys of all of them, and lists and objects
/// are text.
///
/// # Errors
///
/// A value has no form in the format: a bug.
fn file(status: StatusCode, format: Format, rows: &[Value]) -> Result<Response, Problem> {
    let file = match format {
        Format::Csv => csv::of_objects(rows).into_bytes(),
        Format::Json | Format::JsonLines => lines(rows),
        format => {
            let objects: Vec<Cow<'_, Map<String, Value>>> = rows.iter().map(as_object).collect();
            let names = names(&objects);
            let row = |row: &Cow<'_, Map<String, Value>>| -> Vec<Value> {
                names.iter().map(|name| row.get(name).cloned().unwrap_or_default()).collect()
            };
            let rows: Vec<Vec<Value>> = objects.iter().map(row).collect();
            typed(format, &names, &rows)?
        }
    };
    Ok(Response::bytes(status, media_type(format), file))
}

/// A file of rows with these columns, of which a row may have only the first.
///
/// # Errors
///
/// A value has no form in the format: a bug.
pub fn of_rows(format: Format, names: &[String], rows: &[Vec<Value>]) -> Result<Response, Problem> {
    let file = match format {
        Format::Csv => csv::of_lines(names, rows).into_bytes(),
        Format::Json | Format::JsonLines => {
            let names = value_rows::distinct(names);
            let object = |row: &Vec<Value>| {
                let cells = names.iter().cloned().zip(row.iter().cloned());
                Value::from(cells.collect::<Map<_, _>>())
            };
            lines(&rows.iter().map(object).collect::<Vec<Value>>())
        }
        format => typed(format, names, rows)?,
    };
    Ok(Response::bytes(StatusCode::OK, media_type(format), file))
}

fn typed(format: Format, names: &[String], rows: &[Vec<Value>]) -> Result<Vec<u8>, Problem> {
    let file = value_rows::written(format, names, rows);
    file.map_err(|error| Problem::of(Kind::Internal, &error))
}

/// A row as an object: the items of a list by their index, another value as `value`.
fn as_object(row: &Value) -> Cow<'_, Map<String, Value>> {
    match row {
        Value::Object(row) => Cow::Borrowed(row),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            Cow::Owned(items.map(|(at, item)| (at.to_string(), item.clone())).collect())
        }
        other => Cow::Owned(Map::from_iter([("value".to_owned(), other.clone())])),
    }
}

/// One object a line.
fn lines(rows: &[Value]) -> Vec<u8> {
    let mut text = Vec::new();
    for row in rows {
        text.extend_from_slice(row.to_string().as_bytes());
        text.push(b'\n');
    }
    text
}

/// The keys of all objects, in the order in which they first come.
fn names(objects: &[Cow<'_, Map<String, Value>>]) -> Vec<String> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    for name in objects.iter().flat_map(|row| row.keys()) {
        if known.insert(name.as_str()) {
            names.push(name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::{file, of_rows, render};
    use crate::rendering::Rendering;
    use crate::response::Body;
    use weir_query::output::format::Format;

    #[test]
    fn rows_are_lines_with_names() {
        let names = ["a", "a"].map(str::to_owned);
        let rows = [vec![json!(1), json!([2])], vec![json!("x")]];
        let Body::Full(text) = of_rows(Format::JsonLines, &names, &rows).unwrap().body else {
            panic!("a body")
        };
        assert_eq!(text, "{\"a\":1,\"a (2)\":[2]}\n{\"a\":\"x\"}\n");
        // Rows of any shape have columns in the other formats.
        let rows = [json!([1, 2]), json!("x"), json!({"k": null})];
        for format in [Format::Parquet, Format::Arrow] {
            file(StatusCode::OK, format, &rows).unwrap();
        }
    }

    /// Texts that are JSON already come from the sender and may have any key.
    #[test]
    fn objects_of_senders_become_lines() {
        let sent = r#"{"a":{"$serde_json::private::RawValue":"not JSON"}}"#;
        let sent = RawValue::from_string(sent.to_owned()).unwrap();
        let response = render(StatusCode::OK, Rendering::Csv, &[sent]);
        assert_eq!(response.status, StatusCode::OK);
    }

    #[test]
    fn objects_are_lines() {
        let rows = [json!({"id": 1, "a": [1, {"b": "\n"}]}), json!({"id": 2})];
        let response = file(StatusCode::OK, Format::JsonLines, &rows).unwrap();
        let Body::Full(text) = response.body else { panic!("a body") };
        assert_eq!(text, "{\"a\":[1,{\"b\":\"\\n\"}],\"id\":1}\n{\"id\":2}\n");
    }
}
