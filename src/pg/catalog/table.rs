//! Small tables from rows of a few values: [`table`]. A column that a row does not name has the usual value of its type.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int16Array, Int32Array, Int64Array, ListArray,
    ListBuilder, RecordBatch, RecordBatchOptions, StringArray, StringBuilder,
};
use arrow::datatypes::{Field, Int16Type, Int64Type, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::Result;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Ints(Vec<i64>),
}

impl From<bool> for Cell {
    fn from(own: bool) -> Self {
        Self::Bool(own)
    }
}

impl From<i64> for Cell {
    fn from(own: i64) -> Self {
        Self::Int(own)
    }
}

impl From<&str> for Cell {
    fn from(own: &str) -> Self {
        Self::Text(own.to_owned())
    }
}

impl From<String> for Cell {
    fn from(own: String) -> Self {
        Self::Text(own)
    }
}

impl From<Option<String>> for Cell {
    fn from(own: Option<String>) -> Self {
        own.map_or(Self::Null, Self::Text)
    }
}

impl From<Vec<i64>> for Cell {
    fn from(own: Vec<i64>) -> Self {
        Self::Ints(own)
    }
}

/// The values of a row by the names of their columns; others are usual.
pub(super) type Row = Vec<(&'static str, Cell)>;

/// A table with columns such as `oid:l relname:t`. Types are `b` for boolean, `s`, `i` and `l` for integers of 2, 4 and 8
/// bytes, `n` for one that is
/// NULL unless it is given, `f` for double, `t` for text, and `S`, `L`, `T` for lists of these, of which those of
/// texts are NULL. Usual values are false, 0 and NULL.
///
/// # Errors
///
/// The columns do not belong together: a bug.
pub(super) fn table(columns: &str, rows: &[Row]) -> Result<Arc<dyn TableProvider>> {
    let named = columns.split_whitespace().filter_map(|own| own.split_once(':'));
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (name, kind) in named {
        let cells = rows.iter().map(|row| {
            let found = row.iter().find(|(own, _)| *own == name);
            found.map_or(&Cell::Null, |(_, cell)| cell)
        });
        let array = array(kind, &cells.collect::<Vec<_>>());
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}

fn array(kind: &str, cells: &[&Cell]) -> ArrayRef {
    let int = |cell: &Cell| match cell {
        Cell::Int(own) => *own,
        _ => 0,
    };
    let ints = cells.iter().map(|cell| int(cell));
    match kind {
        "b" => {
            let truths = cells.iter().map(|cell| Some(**cell == Cell::Bool(true)));
            Arc::new(truths.collect::<BooleanArray>())
        }
        "s" => Arc::new(ints.map(|own| i16::try_from(own).ok()).collect::<Int16Array>()),
        "i" => Arc::new(ints.map(|own| i32::try_from(own).ok()).collect::<Int32Array>()),
        "n" => {
            let numbers = cells.iter().map(|cell| match cell {
                Cell::Int(own) => i32::try_from(*own).ok(),
                _ => None,
            });
            Arc::new(numbers.collect::<Int32Array>())
        }
        "l" => Arc::new(Int64Array::from_iter_values(ints)),
        "f" => {
            let numbers = ints.map(|own| i32::try_from(own).map_or(0.0, f64::from));
            Arc::new(Float64Array::from_iter_values(numbers))
        }
        "S" => {
            let lists = cells.iter().map(|cell| match cell {
                Cell::Ints(own) => {
                    Some(own.iter().map(|own| i16::try_from(*own).ok()).collect::<Vec<_>>())
                }
                _ => None,
            });
            Arc::new(ListArray::from_iter_primitive::<Int16Type, _, _>(lists))
        }
        "L" => {
            let lists = cells.iter().map(|cell| match cell {
                Cell::Ints(own) => Some(own.iter().copied().map(Some).collect::<Vec<_>>()),
                _ => None,
            });
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
        }
        "T" => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            cells.iter().for_each(|_| lists.append(false));
            Arc::new(lists.finish())
        }
        _ => {
            let texts = cells.iter().map(|cell| match cell {
                Cell::Text(own) => Some(own.clone()),
                Cell::Int(own) => Some(own.to_string()),
                _ => None,
            });
            Arc::new(texts.collect::<StringArray>())
        }
    }
}
