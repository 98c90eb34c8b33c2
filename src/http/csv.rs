//! CSV: tables of pages ([`of_table`]), rows of values ([`of_lines`]), and JSON objects ([`of_objects`]) in the format of
//! PostHog's renderer (djangorestframework-csv): one line per object, nested keys joined by dots, items of lists by their index,
//! the columns of all objects in alphabetical order, an empty cell where an object lacks a column. Lines end with CRLF
//! (RFC 4180). Texts and names are escaped against formulas in spreadsheets ([`text_cell`]).

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use weir_query::output::formulas::text_cell;
use weir_web::chart::table::Table;

/// Objects as a CSV file.
pub(super) fn of_objects(rows: &[Value]) -> String {
    let mut columns = Columns::default();
    rows.iter().for_each(|row| columns.add(row));
    let mut text = columns.head();
    rows.iter().for_each(|row| columns.write(row, &mut text));
    text
}

/// A table of a page as a CSV file: all rows, numbers in full.
pub fn of_table(table: &Table) -> String {
    let mut text = String::new();
    line(table.head.iter().map(|name| text_cell(name)), &mut text);
    for row in &table.rows {
        let cells = row.iter().map(|own| match &own.raw {
            Some(number) => Cow::Borrowed(number.as_str()),
            None => text_cell(&own.text),
        });
        line(cells, &mut text);
    }
    text
}

/// Rows under a header line of these names, in their order; a row may be shorter than the header.
pub(super) fn of_lines(head: &[String], lines: &[Vec<Value>]) -> String {
    let mut text = String::new();
    line(head.iter().map(|name| text_cell(name)), &mut text);
    for own in lines {
        let cells = own.iter().chain(std::iter::repeat(&Value::Null)).take(head.len());
        line(cells.map(shown), &mut text);
    }
    text
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
    use serde_json::json;

    use super::{of_objects as file, of_table};
    use weir_web::chart::series::Unit;
    use weir_web::chart::table::{Cell, Table};

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
        assert_eq!(of_table(&table), expected);
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
