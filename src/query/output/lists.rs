//! Writing of result rows as JSON lists: which columns they show ([`Layout`]), and how these are written ([`write`]). A
//! cell is the value of a column, or JSON built from several columns ([`Cell`]), row by row, so that its memory is part
//! of the memory of the text.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use arrow::json::StructMode;
use arrow::json::writer::{EncoderOptions, make_encoder};
use bytes::Bytes;

use crate::kernel::error::QueryError;
use weir_identity::IdentityError;

/// Appends the JSON of a cell, in a row of a batch, to a text.
pub type Cell =
    Arc<dyn Fn(&RecordBatch, usize, &mut Vec<u8>) -> Result<(), IdentityError> + Send + Sync>;

/// Which columns and rows a response shows.
#[derive(Clone)]
pub struct Layout {
    /// The columns; `None` for all columns of the query.
    pub columns: Option<Vec<Shown>>,
    /// Maximum rows.
    pub rows_max: usize,
    /// Number of fetched rows from which on there are, or may be, more rows than the response shows.
    pub more_from: usize,
}

/// A column of a response.
#[derive(Clone)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Where its cells come from.
    pub content: Content,
}

/// Source of the cells of a column.
#[derive(Clone)]
pub enum Content {
    /// The query's column at this index.
    Column(usize),
    /// A cell built from other columns, and the name of its type.
    Made(&'static str, Cell),
}

impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout").field("rows_max", &self.rows_max).finish_non_exhaustive()
    }
}

/// A result as lists.
#[derive(Debug)]
pub struct Lists {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Their types, in the terms of PostHog's responses.
    pub types: Vec<String>,
    /// A JSON list of the rows.
    pub rows: Bytes,
    /// Whether there are, or may be, more rows.
    pub has_more: bool,
    /// Whether the result may be cached while the tables of the project do not change.
    pub is_cacheable: bool,
    /// Events that the query names.
    pub events: Vec<String>,
    /// How long the query took.
    pub took: Took,
}

/// Duration of the phases of a query.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Time until there was a plan, including the wait for a slot.
    pub planning: Duration,
    /// Time until all rows were there.
    pub execution: Duration,
}

impl Layout {
    /// All columns, and at most so many rows.
    pub fn all(rows_max: usize, more_from: usize) -> Self {
        Self { columns: None, rows_max, more_from }
    }

    /// A page of `limit` rows, and the number of rows to fetch, of which a query may have `most`. One row more than
    /// shown is fetched to find out whether there are more; where `most` does not allow it, a full page counts as
    /// having more, and a client that reads page by page gets an empty last one.
    pub fn page(columns: Vec<Shown>, limit: usize, most: usize) -> (Self, usize) {
        let asked = if limit < most { limit.saturating_add(1) } else { limit };
        (Self { columns: Some(columns), rows_max: limit, more_from: asked }, asked)
    }

    fn shown(&self, schema: &SchemaRef) -> Vec<Shown> {
        self.columns.clone().unwrap_or_else(|| {
            let fields = schema.fields().iter().enumerate();
            let shown = |(at, field): (usize, &Arc<Field>)| Shown {
                name: field.name().clone(),
                content: Content::Column(at),
            };
            fields.map(shown).collect()
        })
    }

    /// The names and the types of the columns.
    pub(crate) fn head(&self, schema: &SchemaRef) -> (Vec<String>, Vec<String>) {
        let type_of = |content: &Content| match content {
            Content::Column(at) => {
                schema.fields().get(*at).map(|field| type_name(field)).unwrap_or_default()
            }
            Content::Made(name, _) => (*name).to_owned(),
        };
        let shown = self.shown(schema);
        shown.into_iter().map(|one| (one.name, type_of(&one.content))).unzip()
    }
}

/// Writes the rows of `batches` of `schema` that the layout shows. Stops early once `is_stopped`.
///
/// # Errors
///
/// Writing fails, a type has no form in JSON, or a cell cannot be made.
pub(crate) fn write(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    layout: &Layout,
    is_stopped: impl Fn() -> bool,
    out: &mut impl Write,
) -> Result<(), QueryError> {
    fn failed(error: impl Display) -> QueryError {
        QueryError::Invalid(format!("the answer has no form in this format: {error}"))
    }
    let options =
        EncoderOptions::default().with_explicit_nulls(true).with_struct_mode(StructMode::ListOnly);
    let shown = layout.shown(schema);
    let (mut left, mut begin) = (layout.rows_max, "[");
    let mut line = Vec::new();
    out.write_all(b"[").map_err(failed)?;
    for batch in batches {
        let encoder = |one: &Shown| match one.content {
            Content::Column(at) => {
                let (field, column) = (schema.fields().get(at), batch.columns().get(at));
                let (Some(field), Some(column)) = (field, column) else { return Ok(None) };
                make_encoder(field, column, &options).map(Some)
            }
            Content::Made(..) => Ok(None),
        };
        let encoders: Result<Vec<_>, _> = shown.iter().map(encoder).collect();
        let mut encoders = encoders.map_err(failed)?;
        let rows = left.min(batch.num_rows());
        left = left.saturating_sub(rows);
        for row in 0..rows {
            if is_stopped() {
                return Ok(());
            }
            line.clear();
            line.extend_from_slice(begin.as_bytes());
            begin = ",[";
            for (at, (one, encoder)) in shown.iter().zip(&mut encoders).enumerate() {
                if at > 0 {
                    line.push(b',');
                }
                match (&one.content, encoder) {
                    (Content::Made(_, cell), _) => cell(batch, row, &mut line)?,
                    (_, Some(encoder)) if !encoder.is_null(row) => encoder.encode(row, &mut line),
                    _ => line.extend_from_slice(b"null"),
                }
            }
            line.push(b']');
            out.write_all(&line).map_err(failed)?;
        }
    }
    out.write_all(b"]").map_err(failed)
}

/// Type name of a column in PostHog's responses, which is ClickHouse's.
fn type_name(field: &Field) -> String {
    let name = plain_type_name(field.data_type());
    let is_whole = !field.data_type().is_nested();
    if field.is_nullable() && is_whole { format!("Nullable({name})") } else { name }
}

fn plain_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "Nothing".to_owned(),
        DataType::Boolean => "Bool".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "String".to_owned(),
        DataType::Dictionary(_, values) => plain_type_name(values),
        DataType::Date32 | DataType::Date64 => "Date".to_owned(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            let zone = zone.as_ref().map(|zone| format!(", '{zone}'")).unwrap_or_default();
            format!("DateTime64({digits}{zone})")
        }
        DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
            format!("Decimal({digits}, {scale})")
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("Array({})", type_name(item))
        }
        DataType::Struct(fields) => {
            let items: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), type_name(field)))
                .collect();
            format!("Tuple({})", items.join(", "))
        }
        // Numbers have the same names there; other types have none.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringViewArray,
        StructArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{DataType, Field, Int64Type};
    use serde_json::{Value, json};

    use super::{Content, Layout, Shown, write};
    use weir_identity::IdentityError;

    fn written(batches: &[RecordBatch], layout: &Layout) -> Value {
        let mut out = Vec::new();
        write(&batches[0].schema(), batches, layout, || false, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn columns_have_types_and_rows_are_lists() {
        let moment = TimestampMicrosecondArray::from_iter([Some(1_500_000), None]);
        let moment: ArrayRef = Arc::new(moment.with_timezone("UTC"));
        let text: ArrayRef = Arc::new(StringViewArray::from_iter([Some("a \"b\""), None]));
        let number: ArrayRef = Arc::new(Int64Array::from_iter_values([i64::MAX, -1]));
        let share: ArrayRef = Arc::new(Float64Array::from_iter([Some(0.5), None]));
        let is_on: ArrayRef = Arc::new(BooleanArray::from_iter([Some(true), None]));
        let lists = [Some(vec![Some(1), None]), None];
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let inner = Arc::new(Field::new("x", DataType::Int64, false));
        let pair: ArrayRef = Arc::new(StructArray::from(vec![(inner, Arc::clone(&number))]));
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("text", text, true),
            ("number", number, false),
            ("share", share, true),
            ("is_on", is_on, true),
            ("moment", moment, true),
            ("list", list, true),
            ("pair", pair, false),
        ]);
        let batch = batch.unwrap();
        let rows = json!([
            ["a \"b\"", i64::MAX, 0.5, true, "1970-01-01T00:00:01.500Z", [1, null], [i64::MAX]],
            [null, -1, null, null, null, null, [-1]],
        ]);
        let names = ["text", "number", "share", "is_on", "moment", "list", "pair"];
        let types = [
            "Nullable(String)",
            "Int64",
            "Nullable(Float64)",
            "Nullable(Bool)",
            "Nullable(DateTime64(6, 'UTC'))",
            "Array(Nullable(Int64))",
            "Tuple(x Int64)",
        ];
        let all = |rows_max| Layout::all(rows_max, usize::MAX);
        assert_eq!(
            all(1).head(&batch.schema()),
            (names.map(str::to_owned).to_vec(), types.map(str::to_owned).to_vec())
        );
        let one = [batch.clone()];
        for rows_max in [2, usize::MAX] {
            assert_eq!(written(&one, &all(rows_max)), rows);
        }
        let two = [batch.clone(), batch.clone()];
        assert_eq!(written(&two, &all(3)), json!([rows[0], rows[1], rows[0]]));
        assert_eq!(written(&[batch.slice(0, 0)], &all(9)), json!([]));
        assert_eq!(written(&two, &all(0)), json!([]));

        // Columns in another order, duplicated, and built from others.
        let sum = |batch: &RecordBatch, row: usize, out: &mut Vec<u8>| {
            let bytes = batch.column(0).is_valid(row).to_string();
            out.extend_from_slice(bytes.as_bytes());
            Ok::<(), IdentityError>(())
        };
        let shown = |name: &str, content| Shown { name: name.to_owned(), content };
        let columns = vec![
            shown("n", Content::Column(1)),
            shown("made", Content::Made("Bool", Arc::new(sum))),
            shown("n", Content::Column(1)),
            shown("none", Content::Column(99)),
        ];
        let (layout, asked) = Layout::page(columns, 1, 10);
        assert_eq!((asked, layout.more_from), (2, 2));
        assert_eq!(Layout::page(Vec::new(), 10, 10).1, 10);
        assert_eq!(written(&two, &layout), json!([[i64::MAX, true, i64::MAX, null]]));
        let (names, types) = layout.head(&batch.schema());
        assert_eq!(
            (names, types),
            (
                ["n", "made", "n", "none"].map(str::to_owned).to_vec(),
                ["Int64", "Bool", "Int64", ""].map(str::to_owned).to_vec()
            )
        );
    }
}
