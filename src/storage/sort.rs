//! Sort of rows for a file: from batches in log order to sorted columns.
//!
//! Sort columns become integers with the same order as the values (text by its rank among the distinct
//! texts), so that the sort moves small fixed-size keys, and the rows are gathered once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ByteView, StringViewArray, new_null_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimestampMicrosecondType};
use arrow::error::ArrowError;
use hashbrown::HashMap;

use crate::rows::Rows;

/// Maximum number of sort columns of a table.
const SORT_COLUMNS_MAX: usize = 4;

/// Position of a row: batch number, and row number in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition {
    batch: u32,
    row: u32,
}

impl RowPosition {
    /// Number of the batch.
    pub fn batch(&self) -> usize {
        usize::try_from(self.batch).unwrap_or(usize::MAX)
    }

    /// Number of the row in it.
    pub fn row(&self) -> usize {
        usize::try_from(self.row).unwrap_or(usize::MAX)
    }
}

/// The positions of all rows of `batches`, sorted by `sort_columns`. Equal rows stay in log order.
///
/// # Errors
///
/// A sort column is no integer, time or text, or is missing.
pub fn sorted(
    batches: &[Arc<Rows>],
    sort_columns: &[usize],
) -> Result<Vec<RowPosition>, ArrowError> {
    let rows = batches.iter().map(|rows| rows.len).sum();
    let mut places: Vec<([u64; SORT_COLUMNS_MAX], RowPosition)> = Vec::with_capacity(rows);
    for (batch, rows) in batches.iter().enumerate() {
        let batch = u32::try_from(batch).map_err(|_| too_many())?;
        let len = u32::try_from(rows.len).map_err(|_| too_many())?;
        places.extend((0..len).map(|row| ([0; SORT_COLUMNS_MAX], RowPosition { batch, row })));
    }
    for (slot, position) in sort_columns.iter().take(SORT_COLUMNS_MAX).enumerate() {
        let ranks = text_ranks(batches, *position);
        let mut rest = places.iter_mut();
        for rows in batches {
            let keys = keys(rows, *position, &ranks)?;
            for (key, (place_key, _)) in keys.into_iter().zip(&mut rest) {
                if let Some(to) = place_key.get_mut(slot) {
                    *to = key;
                }
            }
        }
    }
    places.sort_unstable();
    Ok(places.into_iter().map(|(_, place)| place).collect())
}

fn too_many() -> ArrowError {
    ArrowError::InvalidArgumentError("more than 2^32 rows".to_owned())
}

type Ranks<'a> = HashMap<&'a str, u64, foldhash::fast::RandomState>;

/// Rank of each distinct text of a column; empty if the column is not text.
fn text_ranks(batches: &[Arc<Rows>], position: usize) -> Ranks<'_> {
    let mut ranks = Ranks::default();
    for rows in batches {
        let column = rows.columns.get(position).and_then(Option::as_ref);
        if let Some(text) = column.and_then(|column| column.as_string_view_opt()) {
            ranks.extend(text.iter().flatten().map(|text| (text, 0)));
        }
    }
    let mut texts: Vec<&str> = ranks.keys().copied().collect();
    texts.sort_unstable();
    ranks.extend(texts.into_iter().zip(0_u64..));
    ranks
}

fn keys(rows: &Rows, position: usize, ranks: &Ranks<'_>) -> Result<Vec<u64>, ArrowError> {
    let wrong = || ArrowError::SchemaError(format!("column {position} cannot be sorted by"));
    let column = rows.columns.get(position).and_then(Option::as_ref).ok_or_else(wrong)?;
    // Flipping the sign bit makes signed order unsigned order.
    let ordered = |number: &i64| number.cast_unsigned() ^ (1 << 63);
    Ok(match column.data_type() {
        DataType::Int64 => {
            column.as_primitive::<Int64Type>().values().iter().map(ordered).collect()
        }
        DataType::Timestamp(..) => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            times.values().iter().map(ordered).collect()
        }
        DataType::Utf8View => {
            let rank = |text: Option<&str>| text.and_then(|text| ranks.get(text)).copied();
            column.as_string_view().iter().map(|text| rank(text).unwrap_or(0)).collect()
        }
        _ => return Err(wrong()),
    })
}

/// The columns of all batches of a sort, from which sorted columns are gathered.
#[derive(Debug)]
pub struct Gather {
    schema: SchemaRef,
    /// By column of the schema; `None` if no batch has the column.
    columns: Vec<Option<Source>>,
}

/// One column, by batch.
#[derive(Debug)]
enum Source {
    Text(Texts),
    Other(Vec<ArrayRef>),
}

impl Gather {
    /// The columns of `batches`, whose rows have `schema`.
    pub fn new(batches: &[Arc<Rows>], schema: &SchemaRef) -> Self {
        let rows_max = batches.iter().map(|rows| rows.len).max().unwrap_or(0);
        let fields = schema.fields().iter().enumerate();
        let columns = fields.map(|(position, field)| {
            let of = |rows: &Arc<Rows>| rows.columns.get(position).cloned().flatten();
            if batches.iter().all(|rows| of(rows).is_none()) {
                return None;
            }
            // One array of NULLs serves every batch that lacks the column.
            let nulls = new_null_array(field.data_type(), rows_max);
            let array = |rows: &Arc<Rows>| of(rows).unwrap_or_else(|| nulls.slice(0, rows.len));
            let arrays: Vec<ArrayRef> = batches.iter().map(array).collect();
            let texts = Texts::new(&arrays);
            Some(texts.map_or_else(|| Source::Other(arrays), Source::Text))
        });
        Self { schema: Arc::clone(schema), columns: columns.collect() }
    }

    /// The values of column `position` at `places`, in this order.
    ///
    /// # Errors
    ///
    /// The batches do not match the schema, or it has no such column: a programmer error.
    pub fn column(&self, position: usize, places: &[RowPosition]) -> Result<ArrayRef, ArrowError> {
        let missing = || ArrowError::SchemaError(format!("there is no column {position}"));
        match self.columns.get(position).ok_or_else(missing)? {
            Some(Source::Text(texts)) => Ok(texts.rows(places)),
            Some(Source::Other(arrays)) => {
                let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
                let index = |place: &RowPosition| (place.batch(), place.row());
                interleave(&arrays, &places.iter().map(index).collect::<Vec<_>>())
            }
            None => {
                let field = self.schema.fields().get(position).ok_or_else(missing)?;
                Ok(new_null_array(field.data_type(), places.len()))
            }
        }
    }
}

/// A text column: the views of all batches over one list of their buffers.
#[derive(Debug)]
struct Texts {
    /// By batch: views, NULLs, and the index of its first buffer in the list.
    batches: Vec<(ScalarBuffer<u128>, Option<NullBuffer>, u32)>,
    buffers: Vec<Buffer>,
    has_nulls: bool,
}

impl Texts {
    /// `None` if the column is no text.
    fn new(arrays: &[ArrayRef]) -> Option<Self> {
        let mut texts = Self {
            batches: Vec::with_capacity(arrays.len()),
            buffers: Vec::new(),
            has_nulls: false,
        };
        for array in arrays {
            let array = array.as_string_view_opt()?;
            let first = u32::try_from(texts.buffers.len()).ok()?;
            texts.buffers.extend(array.data_buffers().iter().cloned());
            texts.has_nulls |= array.null_count() > 0;
            texts.batches.push((array.views().clone(), array.nulls().cloned(), first));
        }
        Some(texts)
    }

    /// The texts at `places`. Sorted rows are spread over the memory: without branches that depend on a
    /// view, the CPU has many cache misses in flight at once.
    fn rows(&self, places: &[RowPosition]) -> ArrayRef {
        let view = |place: &RowPosition| {
            let (views, _, first) = self.batches.get(place.batch())?;
            let view = *views.get(place.row())?;
            // The view of a text of more than 12 bytes has the buffer index in its third 32 bits.
            let is_long = view & u128::from(u32::MAX) > 12;
            Some(view + (u128::from(u32::from(is_long) * first) << 64))
        };
        let views: Vec<u128> = places.iter().map(|place| view(place).unwrap_or(0)).collect();
        self.fetch(&views);
        let is_valid = |place: &RowPosition| {
            let nulls = self.batches.get(place.batch()).and_then(|(_, nulls, _)| nulls.as_ref());
            nulls.is_none_or(|nulls| nulls.is_valid(place.row()))
        };
        let nulls = self.has_nulls.then(|| places.iter().map(is_valid).collect::<BooleanBuffer>());
        let nulls = nulls.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
        text_array(views, self.buffers.clone(), nulls)
    }
    /// Prefetches the bytes of long texts into the CPU cache, with many cache misses in flight at once. The
    /// Parquet writer, which hashes and compares one text after the other, would wait for each.
    fn fetch(&self, views: &[u128]) {
        let first_byte = |view: &u128| {
            let ByteView { length, buffer_index, offset, .. } = ByteView::from(*view);
            let buffer = self.buffers.get(usize::try_from(buffer_index).ok()?)?;
            let byte = buffer.get(usize::try_from(offset).ok()?)?;
            (length > 12).then_some(*byte)
        };
        let sum = views.iter().filter_map(first_byte).fold(0_u8, u8::wrapping_add);
        std::hint::black_box(sum);
    }
}

#[expect(
    unsafe_code,
    reason = "every view is one of an array that was checked, with the number of the same buffer in \
              the list of all; to check every byte again costs more than the rest of a sort"
)]
fn text_array(views: Vec<u128>, buffers: Vec<Buffer>, nulls: Option<NullBuffer>) -> ArrayRef {
    // SAFETY: see the reason above.
    Arc::new(unsafe { StringViewArray::new_unchecked(views.into(), buffers, nulls) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use proptest::prelude::*;

    use super::{Gather, Rows, sorted};
    use crate::exact::ExactColumns;

    /// Short, long or none.
    fn note(other: i64) -> Option<String> {
        (other % 3 != 0)
            .then(|| format!("{}{other}", if other % 2 == 0 { "" } else { "note no. " }))
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        #[test]
        fn the_order_is_that_of_the_values(
            batches in prop::collection::vec(
                prop::collection::vec((-3..3_i64, "[a-c]{0,2}|[a-c]{13,15}", any::<i64>()), 0..20),
                0..6,
            ),
        ) {
            let rows: Vec<Arc<Rows>> = batches.iter().map(|batch| {
                let numbers = batch.iter().map(|(number, _, _)| *number);
                let texts = batch.iter().map(|(_, text, _)| Some(text.as_str()));
                let others = batch.iter().map(|(_, _, other)| *other);
                let notes = batch.iter().map(|(_, _, other)| note(*other));
                Arc::new(Rows {
                    len: batch.len(),
                    columns: vec![
                        Some(Arc::new(Int64Array::from_iter_values(numbers))),
                        Some(Arc::new(StringViewArray::from_iter(texts))),
                        Some(Arc::new(Int64Array::from_iter_values(others))),
                        None,
                        (batch.len() % 3 > 0).then(|| {
                            Arc::new(StringViewArray::from_iter(notes)) as _
                        }),
                    ],
                    memory_bytes: 0,
                    runs: Vec::new(),
                    exact: ExactColumns::ALL,
                })
            }).collect();
            let places = sorted(&rows, &[0, 1, 2]).unwrap();
            let schema = Arc::new(Schema::new(vec![
                Field::new("a", DataType::Int64, false),
                Field::new("b", DataType::Utf8View, false),
                Field::new("c", DataType::Int64, false),
                Field::new("d", DataType::Float64, true),
                Field::new("e", DataType::Utf8View, true),
            ]));
            // A batch may lack a column.
            let mut expected: Vec<_> = batches
                .iter()
                .flat_map(|batch| {
                    let has_notes = batch.len() % 3 > 0;
                    let row = move |(number, text, other): &(i64, String, i64)| {
                        (*number, text.clone(), *other, note(*other).filter(|_| has_notes))
                    };
                    batch.iter().map(row)
                })
                .collect();
            expected.sort();
            let gather = Gather::new(&rows, &schema);
            let columns: Vec<_> =
                (0..5).map(|position| gather.column(position, &places).unwrap()).collect();
            prop_assert!(columns.iter().all(|column| column.len() == expected.len()));
            prop_assert_eq!(columns[3].null_count(), expected.len());
            let notes = columns[4].as_string_view();
            for (row, (number, text, other, note)) in expected.iter().enumerate() {
                let found = notes.is_valid(row).then(|| notes.value(row));
                prop_assert_eq!(found, note.as_deref());
                prop_assert_eq!(columns[0].as_primitive::<Int64Type>().value(row), *number);
                prop_assert_eq!(columns[1].as_string_view().value(row), text);
                prop_assert_eq!(columns[2].as_primitive::<Int64Type>().value(row), *other);
            }
        }
    }
}
