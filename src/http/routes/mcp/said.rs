//! What a tool says: [`Said`], a few tables with the page that shows the same and the SQL. Models read the text, programs
//! the structured part; both are cut at the same row.

use serde_json::{Map, Value, json};

use weir_api::insights::value::Number;
use weir_api::query::Rows;
use weir_web::chart::table::Table;
use weir_web::parts::clipped;

/// Longest text of a cell, in characters.
const CELL_MAX_CHARS: usize = 300;

/// Longest tables of one answer together, in bytes of text.
const TABLES_MAX_BYTES: usize = 48 << 10;

/// Longest SQL that is repeated, in bytes.
const SQL_MAX_BYTES: usize = 8 << 10;

/// Longest address, in bytes: longer ones are cut by clients.
const ADDRESS_MAX_BYTES: usize = 6 << 10;

/// The answer of a tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// What is the case, in a sentence.
    title: String,
    grids: Vec<Grid>,
    /// What the caller should know of it, such as warnings.
    notes: Vec<String>,
    sql: Option<String>,
    url: Option<String>,
    /// Members of the structured part alone.
    more: Map<String, Value>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    /// What it has; empty if the title of the answer says that.
    pub(super) title: String,
    /// The names of its columns.
    pub(super) head: Vec<String>,
    /// Its rows.
    pub(super) rows: Vec<Vec<Value>>,
    /// How many rows there are, those that were left out included; `None` if nobody knows.
    pub(super) total: Option<usize>,
}

impl Grid {
    /// A table of these rows, of which at most `rows_max` are kept.
    pub(super) fn new(
        title: &str,
        head: &[&str],
        rows: impl IntoIterator<Item = Vec<Value>>,
        rows_max: usize,
    ) -> Self {
        let mut rows: Vec<_> = rows.into_iter().collect();
        let total = Some(rows.len());
        rows.truncate(rows_max);
        let head = head.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.to_owned(), head, rows, total }
    }

    /// The rows of SQL.
    pub(super) fn of_rows(rows: Rows, rows_max: usize) -> Self {
        let Rows { columns, results, .. } = rows;
        let total = results.len();
        let mut grid = Self::new("", &[], results, rows_max);
        (grid.head, grid.total) = (columns, Some(total));
        grid
    }

    /// A table of a page: counts in full, percentages and durations with their units.
    pub(super) fn of_table(table: Table, rows_max: usize) -> Self {
        let number = |raw: &str| raw.parse::<f64>().ok().map(whole);
        let rows = table.rows.into_iter().map(|row| {
            let cell = row.into_iter().map(|cell| match &cell.raw {
                Some(raw) if !has_unit(&cell.text) => number(raw).unwrap_or_else(|| json!(raw)),
                _ => json!(cell.text),
            });
            cell.collect()
        });
        let mut grid = Self::new("", &[], rows, rows_max);
        grid.head = table.head;
        grid
    }
}

/// Whether a number is shown with a unit, such as `12 %` or `3 min`.
fn has_unit(shown: &str) -> bool {
    shown.contains(|letter: char| letter.is_alphabetic() || letter == '%')
}

/// A number, without a fraction if it has none.
fn whole(number: f64) -> Value {
    serde_json::to_value(Number(number)).unwrap_or_default()
}

impl Said {
    /// An answer with this title.
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The same under a heading.
    #[must_use]
    pub(super) fn under(self, heading: &str) -> Self {
        Self { title: format!("{heading}: {}", self.title), ..self }
    }

    /// The same with a table.
    #[must_use]
    pub(super) fn with(mut self, grid: Grid) -> Self {
        self.grids.push(grid);
        self
    }

    /// The same with a note.
    #[must_use]
    pub(super) fn noting(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// The same with the SQL that gives the same numbers, or the reason why there is none.
    #[must_use]
    pub(super) fn by_sql(mut self, sql: Result<String, &'static str>) -> Self {
        match sql {
            Ok(sql) if sql.len() <= SQL_MAX_BYTES => self.sql = Some(sql),
            Ok(_) => {}
            Err(reason) => self.notes.push(reason.to_owned()),
        }
        self
    }

    /// The same with the address of the page that shows the same.
    #[must_use]
    pub(super) fn at(mut self, url: String) -> Self {
        self.url = Some(url).filter(|url| url.len() <= ADDRESS_MAX_BYTES);
        self
    }

    /// The same with a member of the structured part.
    #[must_use]
    pub(super) fn having(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Cuts the tables where the text of all becomes too long.
    fn cut(&mut self) {
        let mut left = TABLES_MAX_BYTES;
        for grid in &mut self.grids {
            for cell in grid.rows.iter_mut().flatten() {
                bound(cell);
            }
            let mut kept = 0;
            for row in &grid.rows {
                let bytes = line(row).len() + 1;
                let Some(rest) = left.checked_sub(bytes) else { break };
                (left, kept) = (rest, kept + 1);
            }
            grid.rows.truncate(kept);
        }
    }

    /// The text for a model.
    pub(super) fn text(mut self) -> String {
        self.cut();
        self.written()
    }

    fn written(&self) -> String {
        let mut text = self.title.clone();
        for grid in &self.grids {
            text.push('\n');
            if !grid.title.is_empty() {
                text.push_str(&format!("\n{}\n", grid.title));
            }
            let head = grid.head.iter().map(|name| one_line(name)).collect::<Vec<_>>().join(" | ");
            text.push_str(&head);
            for row in &grid.rows {
                text.push('\n');
                text.push_str(&line(row));
            }
            if let Some(total) = grid.total.filter(|total| *total > grid.rows.len()) {
                text.push_str(&format!("\n({} of {total} rows)", grid.rows.len()));
            }
            if grid.total == Some(0) {
                text.push_str("\n(no rows)");
            }
        }
        for note in &self.notes {
            text.push_str(&format!("\n\n{note}"));
        }
        if let Some(sql) = &self.sql {
            text.push_str(&format!("\n\nSQL with the same numbers:\n{sql}"));
        }
        if let Some(url) = &self.url {
            text.push_str(&format!("\n\nPage: {url}"));
        }
        text
    }

    /// The result of `tools/call`.
    pub(super) fn result(mut self) -> Value {
        self.cut();
        let content = json!([{"type": "text", "text": self.written()}]);
        let mut structured = std::mem::take(&mut self.more);
        let tables = self.grids.into_iter().map(|grid| {
            json!({"title": grid.title, "columns": grid.head, "rows": grid.rows, "total": grid.total})
        });
        structured.insert("tables".to_owned(), tables.collect());
        structured.insert("notes".to_owned(), json!(self.notes));
        structured.insert("sql".to_owned(), json!(self.sql));
        structured.insert("url".to_owned(), json!(self.url));
        json!({"content": content, "structuredContent": structured, "isError": false})
    }
}

/// The result of `tools/call` where the tool cannot do it; the model reads why.
pub(super) fn failed(detail: &str) -> Value {
    json!({"content": [{"type": "text", "text": detail}], "isError": true})
}

/// Cuts a long value, so that a row is bounded whatever is in it.
fn bound(cell: &mut Value) {
    let long = match &*cell {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => cell.to_string(),
        _ => return,
    };
    if long.chars().nth(CELL_MAX_CHARS).is_some() {
        *cell = Value::String(clipped(&long, CELL_MAX_CHARS));
    }
}

/// The text of a row.
fn line(row: &[Value]) -> String {
    let cells = row.iter().map(|cell| match cell {
        Value::Null => String::new(),
        Value::String(text) => one_line(text),
        other => other.to_string(),
    });
    cells.collect::<Vec<_>>().join(" | ")
}

/// A text without line breaks, which would look like another row.
fn one_line(text: &str) -> String {
    text.chars().map(|own| if own.is_control() { ' ' } else { own }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{CELL_MAX_CHARS, Grid, Said, TABLES_MAX_BYTES};
    use weir_web::chart::series::Unit;
    use weir_web::chart::table::{Cell, Table};

    #[test]
    fn an_answer_is_a_text_and_the_same_for_programs() {
        let rows = [vec![json!("a\nb"), json!(1)], vec![Value::Null, json!({"x": 1})]];
        let said = Said::new("Two rows")
            .with(Grid::new("Numbers", &["name", "value"], rows, 10))
            .noting("Note.")
            .by_sql(Ok("SELECT 1".to_owned()))
            .at("http://a/project/1/sql".to_owned())
            .having("token", json!("t"));
        let result = said.clone().result();
        let text = "Two rows\n\nNumbers\nname | value\na b | 1\n | {\"x\":1}\n\nNote.\n\n\
                    SQL with the same numbers:\nSELECT 1\n\nPage: http://a/project/1/sql";
        assert_eq!(result["content"], json!([{"type": "text", "text": text}]));
        assert_eq!(said.text(), text);
        let tables = json!([{
            "title": "Numbers", "columns": ["name", "value"], "rows": [["a\nb", 1], [null, {"x": 1}]], "total": 2,
        }]);
        let structured = json!({
            "tables": tables, "notes": ["Note."], "sql": "SELECT 1", "url": "http://a/project/1/sql", "token": "t",
        });
        assert_eq!(result["structuredContent"], structured);
    }

    #[test]
    fn answers_are_bounded_whatever_is_in_them() {
        let long = "ä".repeat(CELL_MAX_CHARS + 1);
        let rows = std::iter::repeat_n(vec![json!(long), json!([long])], 1000);
        let said = Said::new("").with(Grid::new("", &["a", "b"], rows, 500));
        let result = said.by_sql(Ok("x".repeat(9000))).at("y".repeat(7000)).result();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.len() < TABLES_MAX_BYTES + 1000, "{}", text.len());
        let table = &result["structuredContent"]["tables"][0];
        let shown = table["rows"].as_array().unwrap().len();
        assert!((10..100).contains(&shown), "{shown}");
        assert!(text.ends_with(&format!("({shown} of 1000 rows)")));
        assert_eq!(table["total"], 1000);
        assert_eq!(table["rows"][0][0].as_str().unwrap().chars().count(), CELL_MAX_CHARS + 1);
        assert_eq!(result["structuredContent"]["sql"], Value::Null);
        assert_eq!(result["structuredContent"]["url"], Value::Null);
    }

    #[test]
    fn tables_of_pages_have_their_numbers_in_full() {
        let cell = |number: f64| Cell::number(number, Unit::Count, None);
        let share = Cell::number(12.5, Unit::Percent, None);
        let shown = share.text.clone();
        assert!(shown.contains('%'), "{shown}");
        let rows =
            vec![vec![Cell::text("Mon"), cell(1_234_567.0), Cell::nothing(), cell(0.1), share]];
        let head = ["day", "A", "B", "C", "D"].map(str::to_owned).to_vec();
        let grid = Grid::of_table(Table { head, rows, ..Table::default() }, 10);
        let expected = [json!("Mon"), json!(1_234_567), json!(""), json!(0.1), json!(shown)];
        assert_eq!(grid.rows, [expected.to_vec()]);
    }
}
