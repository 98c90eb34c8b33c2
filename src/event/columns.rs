//! Arrow columns of events, built row by row: [`Columns`].
//!
//! A text value is a 16-byte view. Up to 12 bytes are stored in the view itself; longer text is a range
//! of one buffer that all text columns share. Repeated values of a column are stored once. The
//! views do not refer to the request body: it would stay in memory as a whole, with every value that is
//! written elsewhere stored twice. No rules of events here.
//!
//! A column that no row of a batch sets is absent from the batch; readers treat it as NULL.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, ByteView, Float64Array, Int64Array,
    NullBufferBuilder, StringViewArray, TimestampMicrosecondArray, make_view,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};

/// Number of the shared buffer in a view.
const TEXT_BUFFER: u32 = 0;

/// Longest text that is stored inline in a view.
const INLINE_MAX_BYTES: usize = 12;

/// Recent long values of a column that a new one is compared with: a batch has only a few pages, agents
/// and sessions at a time.
const RECENT_MAX: usize = 8;

/// A text value, ready to be put into any text column of the same [`Columns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(u128);

/// The columns of one batch under construction. Column positions are those of the table's schema.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<Column>,
    text: Vec<u8>,
    rows: usize,
    capacity: usize,
}

#[derive(Debug)]
enum Column {
    Absent,
    Text(Text),
    Int(Vec<i64>),
    Time(Vec<i64>),
    Double { values: Vec<f64>, valid: NullBufferBuilder },
    Boolean { values: BooleanBufferBuilder, valid: NullBufferBuilder },
}

impl Columns {
    /// Starts without rows; reserves capacity for `capacity` rows.
    pub fn new(columns: usize, capacity: usize) -> Self {
        let columns = std::iter::repeat_with(|| Column::Absent).take(columns).collect();
        Self { columns, text: Vec::new(), rows: 0, capacity }
    }

    /// Reserves capacity for `bytes` of text. Growing in steps would copy the text and touch new memory at
    /// each step.
    pub fn reserve_text(&mut self, bytes: usize) {
        self.text.reserve(bytes);
    }

    /// Rows finished so far; also the number of the row under construction.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Ends the row under construction.
    pub fn finish_row(&mut self) {
        self.rows += 1;
    }

    /// Discards the values of the row under construction.
    pub fn abandon_row(&mut self) {
        for column in &mut self.columns {
            column.truncate(self.rows);
        }
    }

    /// Discards the value of one column of the row under construction.
    pub fn unset(&mut self, position: usize) {
        if let Some(column) = self.columns.get_mut(position) {
            column.truncate(self.rows);
        }
    }

    /// The view of `text`, for more than one column or row. `None` if the text buffer would exceed 4 GiB.
    pub fn view(&mut self, text: &str) -> Option<View> {
        append(&mut self.text, text.as_bytes()).map(View)
    }

    /// The view of the text that `write` appends. `None` if the text buffer would exceed 4 GiB.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<View> {
        let start = self.text.len();
        write(&mut self.text);
        let offset = u32::try_from(start).ok()?;
        u32::try_from(self.text.len()).ok()?;
        Some(View(make_view(self.text.get(start..)?, TEXT_BUFFER, offset)))
    }

    /// Sets a text column of the row under construction.
    pub fn set_text(&mut self, position: usize, View(view): View) {
        let (rows, capacity) = (self.rows, self.capacity);
        let column = self.columns.get_mut(position);
        if let Some(column) = column.and_then(|column| column.as_text(capacity)) {
            column.set(rows, view);
        }
    }

    /// Sets a text column of the row under construction, for a value that is likely to repeat. `None` if the
    /// text buffer would exceed 4 GiB.
    pub fn put_text(&mut self, position: usize, text: &str) -> Option<()> {
        let (rows, capacity) = (self.rows, self.capacity);
        let column = self.columns.get_mut(position);
        if let Some(column) = column.and_then(|column| column.as_text(capacity)) {
            let view = match column.recent.find(text.as_bytes(), &self.text) {
                Some(view) => view,
                None => column.recent.add(append(&mut self.text, text.as_bytes())?),
            };
            column.set(rows, view);
        }
        Some(())
    }

    /// Sets an integer column of the row under construction.
    pub fn set_int(&mut self, position: usize, value: i64) {
        let (rows, capacity) = (self.rows, self.capacity);
        let Some(column) = self.columns.get_mut(position) else { return };
        if let Column::Absent = column {
            *column = Column::Int(Vec::with_capacity(capacity));
        }
        if let Column::Int(values) = column {
            values.resize(rows, 0);
            values.push(value);
        }
    }

    /// Sets a time column (microseconds, UTC) of the row under construction.
    pub fn set_time(&mut self, position: usize, micros: i64) {
        let (rows, capacity) = (self.rows, self.capacity);
        let Some(column) = self.columns.get_mut(position) else { return };
        if let Column::Absent = column {
            *column = Column::Time(Vec::with_capacity(capacity));
        }
        if let Column::Time(values) = column {
            values.resize(rows, 0);
            values.push(micros);
        }
    }

    /// Sets a number column of the row under construction.
    pub fn set_double(&mut self, position: usize, value: f64) {
        let (rows, capacity) = (self.rows, self.capacity);
        let Some(column) = self.columns.get_mut(position) else { return };
        if let Column::Absent = column {
            let valid = NullBufferBuilder::new(capacity);
            *column = Column::Double { values: Vec::with_capacity(capacity), valid };
        }
        if let Column::Double { values, valid } = column {
            values.resize(rows, 0.0);
            values.push(value);
            mark(valid, rows);
        }
    }

    /// Sets a boolean column of the row under construction.
    pub fn set_boolean(&mut self, position: usize, value: bool) {
        let (rows, capacity) = (self.rows, self.capacity);
        let Some(column) = self.columns.get_mut(position) else { return };
        if let Column::Absent = column {
            let valid = NullBufferBuilder::new(capacity);
            *column = Column::Boolean { values: BooleanBufferBuilder::new(capacity), valid };
        }
        if let Column::Boolean { values, valid } = column {
            values.resize(rows);
            values.append(value);
            mark(valid, rows);
        }
    }

    /// Ends the batch: one array per column that a row set, all of the same length.
    pub fn finish(mut self) -> Vec<Option<ArrayRef>> {
        if self.text.len() < self.text.capacity() / 2 {
            self.text.shrink_to_fit();
        }
        let text = Buffer::from_vec(self.text);
        let rows = self.rows;
        self.columns.into_iter().map(|column| column.finish(rows, &text)).collect()
    }
}

/// The view of `bytes`; long values are appended to `text`.
fn append(text: &mut Vec<u8>, bytes: &[u8]) -> Option<u128> {
    let offset = u32::try_from(text.len()).ok()?;
    u32::try_from(text.len() + bytes.len()).ok()?;
    if bytes.len() > INLINE_MAX_BYTES {
        text.extend_from_slice(bytes);
    }
    Some(make_view(bytes, TEXT_BUFFER, offset))
}

/// A text column.
#[derive(Debug)]
struct Text {
    views: Vec<u128>,
    valid: NullBufferBuilder,
    recent: Recent,
}

impl Text {
    fn set(&mut self, row: usize, view: u128) {
        self.views.resize(row, 0);
        self.views.push(view);
        mark(&mut self.valid, row);
    }
}

/// Ring buffer of views of the latest long values of a column.
#[derive(Debug, Default)]
struct Recent {
    views: [u128; RECENT_MAX],
    /// The view that is replaced next.
    oldest: usize,
}

impl Recent {
    /// The view of an equal value, if there is one.
    fn find(&self, bytes: &[u8], text: &[u8]) -> Option<u128> {
        let head = make_view(bytes, TEXT_BUFFER, 0);
        if bytes.len() <= INLINE_MAX_BYTES {
            return Some(head);
        }
        let stored = |view: u128| {
            let start = usize::try_from(ByteView::from(view).offset).ok()?;
            text.get(start..start.checked_add(bytes.len())?)
        };
        // The lower half of a view has the length and the first four bytes.
        let is_same = |view: &&u128| (**view ^ head) << 64 == 0 && stored(**view) == Some(bytes);
        self.views.iter().find(is_same).copied()
    }

    fn add(&mut self, view: u128) -> u128 {
        if let Some(place) = self.views.get_mut(self.oldest) {
            *place = view;
        }
        self.oldest = (self.oldest + 1) % RECENT_MAX;
        view
    }
}

impl Column {
    /// The text column; created with capacity for `capacity` rows if nothing was set yet.
    fn as_text(&mut self, capacity: usize) -> Option<&mut Text> {
        if let Self::Absent = self {
            let views = Vec::with_capacity(capacity);
            let valid = NullBufferBuilder::new(capacity);
            *self = Self::Text(Text { views, valid, recent: Recent::default() });
        }
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn truncate(&mut self, rows: usize) {
        match self {
            Self::Absent => {}
            Self::Text(Text { views, valid, .. }) => {
                views.truncate(rows);
                valid.truncate(rows);
            }
            Self::Int(values) | Self::Time(values) => values.truncate(rows),
            Self::Double { values, valid } => {
                values.truncate(rows);
                valid.truncate(rows);
            }
            Self::Boolean { values, valid } => {
                values.truncate(rows);
                valid.truncate(rows);
            }
        }
    }

    fn finish(self, rows: usize, text: &Buffer) -> Option<ArrayRef> {
        Some(match self {
            Self::Absent => return None,
            Self::Text(Text { mut views, valid, .. }) => {
                views.resize(rows, 0);
                text_array(views, text, nulls(valid, rows))
            }
            Self::Int(mut values) => {
                values.resize(rows, 0);
                Arc::new(Int64Array::from(values))
            }
            Self::Time(mut values) => {
                values.resize(rows, 0);
                Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
            }
            Self::Double { mut values, valid } => {
                values.resize(rows, 0.0);
                Arc::new(Float64Array::new(ScalarBuffer::from(values), nulls(valid, rows)))
            }
            Self::Boolean { mut values, valid } => {
                values.resize(rows);
                Arc::new(BooleanArray::new(values.build(), nulls(valid, rows)))
            }
        })
    }
}

#[expect(
    unsafe_code,
    reason = "views come from this file alone: each was made from the very bytes it points to, \
              which simd-json or Rust's str had checked as UTF-8; a second check of every byte \
              costs a fifth of the whole build"
)]
fn text_array(views: Vec<u128>, text: &Buffer, nulls: Option<NullBuffer>) -> ArrayRef {
    let views = ScalarBuffer::from(views);
    let buffers = vec![text.clone()];
    // SAFETY: see the reason above.
    Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
}

/// Marks `row` as not NULL, and the rows between it and the last one marked as NULL.
fn mark(valid: &mut NullBufferBuilder, row: usize) {
    valid.truncate(row);
    pad(valid, row);
    valid.append_non_null();
}

/// Marks the rows from the last one marked to the end as NULL. `None` if there is no NULL.
fn nulls(mut valid: NullBufferBuilder, rows: usize) -> Option<NullBuffer> {
    pad(&mut valid, rows);
    valid.build().filter(|nulls| nulls.null_count() > 0)
}

fn pad(valid: &mut NullBufferBuilder, rows: usize) {
    // Without this condition a column without NULL would get a bitmap.
    if valid.len() < rows {
        valid.append_n_nulls(rows - valid.len());
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use proptest::prelude::*;

    use super::{Columns, RECENT_MAX};

    #[test]
    fn rows_that_were_abandoned_leave_nothing() {
        let mut columns = Columns::new(4, 8);
        let long = columns.view("a text that is longer than twelve bytes").unwrap();
        for row in 0..20_i64 {
            if row % 3 == 0 {
                columns.set_text(0, long);
                columns.set_boolean(2, true);
            }
            columns.set_int(1, row);
            if row % 2 == 0 { columns.finish_row() } else { columns.abandon_row() }
        }
        let arrays = columns.finish();
        assert_eq!(arrays.len(), 4);
        assert!(arrays[3].is_none());
        let kept: Vec<i64> = (0..20).filter(|row| row % 2 == 0).collect();
        let text = arrays[0].as_ref().unwrap().as_string_view();
        let number = arrays[1].as_ref().unwrap();
        let number = number.as_primitive::<arrow::datatypes::Int64Type>();
        let truth = arrays[2].as_ref().unwrap().as_boolean();
        assert_eq!(number.values().to_vec(), kept);
        for (index, row) in kept.into_iter().enumerate() {
            assert_eq!(text.is_valid(index), row % 3 == 0, "row {row}");
            assert_eq!(truth.is_valid(index), row % 3 == 0, "row {row}");
            if row % 3 == 0 {
                assert_eq!(text.value(index), "a text that is longer than twelve bytes");
                assert!(truth.value(index));
            }
        }
    }

    /// The bitmap of a column whose last value is more than eight rows back ends before the row that is
    /// abandoned.
    #[test]
    fn abandoned_rows_leave_values_far_back_alone() {
        for values in 1..=16 {
            for gap in 0..=20 {
                let mut columns = Columns::new(3, 0);
                for row in 0..values + gap {
                    columns.set_int(0, row);
                    if row < values {
                        columns.set_boolean(1, true);
                        columns.set_double(2, 0.5);
                    }
                    columns.finish_row();
                    columns.set_int(0, -1);
                    columns.abandon_row();
                }
                let arrays = columns.finish();
                let total = usize::try_from(values + gap).unwrap();
                for array in arrays.iter().skip(1).flatten() {
                    assert_eq!(array.len(), total);
                    assert_eq!(array.null_count(), usize::try_from(gap).unwrap());
                }
                let truth = arrays[1].as_ref().unwrap().as_boolean();
                assert_eq!(truth.true_count(), usize::try_from(values).unwrap());
            }
        }
    }

    #[test]
    fn short_and_long_text_reads_back() {
        let mut columns = Columns::new(1, 2);
        let views = ["", "short", "exactly12byt", "thirteen byte", "a good deal longer than that"]
            .map(|text| (text, columns.view(text).unwrap()));
        for (_, view) in views {
            columns.set_text(0, view);
            columns.finish_row();
        }
        let arrays = columns.finish();
        let array = arrays[0].as_ref().unwrap().as_string_view();
        assert_eq!(array.null_count(), 0);
        for (row, (text, _)) in views.into_iter().enumerate() {
            assert_eq!(array.value(row), text);
        }
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        /// Values read back as they were set, including repeated ones and ones with the same prefix.
        #[test]
        fn values_that_come_again_read_back(
            rows in prop::collection::vec(
                (prop::option::of("[ab]{0,3}|same beginning [a-d]{1,2}"), any::<bool>()),
                0..60,
            ),
        ) {
            let mut columns = Columns::new(1, 8);
            let mut expected = Vec::new();
            for (text, stays) in rows {
                if let Some(text) = &text {
                    columns.put_text(0, text).unwrap();
                }
                if stays {
                    columns.finish_row();
                    expected.push(text);
                } else {
                    columns.abandon_row();
                }
            }
            let arrays = columns.finish();
            let found = arrays[0].as_ref().map(|array| array.as_string_view());
            for (row, text) in expected.iter().enumerate() {
                let found = found.filter(|array| array.is_valid(row)).map(|array| array.value(row));
                prop_assert_eq!(found, text.as_deref(), "row {}", row);
            }
        }
    }

    #[test]
    fn recent_values_are_stored_once() {
        let text = |number: usize| format!("a long value with the number {number}");
        for (values, times, stored) in [(1, 5, 1), (RECENT_MAX, 3, RECENT_MAX)] {
            let mut columns = Columns::new(1, 8);
            for row in 0..values * times {
                columns.put_text(0, &text(row % values)).unwrap();
                columns.finish_row();
            }
            let arrays = columns.finish();
            let buffers = arrays[0].as_ref().unwrap().as_string_view().data_buffers();
            assert_eq!(buffers[0].len(), stored * text(0).len());
        }
    }
}
