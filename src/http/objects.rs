//! JSON objects, such as the items of a list, as JSON lines, Parquet or Arrow: [`file`], and [`of_rows`] for rows under
//! names.

use std::borrow::Cow;
use std::collections::HashSet;

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::rendering::media_type;
use crate::response::{Problem, Response};
use weir_base::error::Kind;
use weir_query::output::format::Format;
use weir_query::output::value_rows;

/// A file with a row per object. In Parquet and Arrow, the columns are the keys of all of them, and lists and objects
/// are text.
///
/// # Errors
///
/// A value has no form in the format: a bug.
pub fn file(status: StatusCode, format: Format, rows: &[Value]) -> Result<Response, Problem> {
    let file = match format {
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

    use super::{file, of_rows};
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

    #[test]
    fn objects_are_lines() {
        let rows = [json!({"id": 1, "a": [1, {"b": "\n"}]}), json!({"id": 2})];
        let response = file(StatusCode::OK, Format::JsonLines, &rows).unwrap();
        let Body::Full(text) = response.body else { panic!("a body") };
        assert_eq!(text, "{\"a\":[1,{\"b\":\"\\n\"}],\"id\":1}\n{\"id\":2}\n");
    }
}
