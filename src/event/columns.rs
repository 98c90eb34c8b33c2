//! Arrow columns of events, built row by row without copying text: [`Columns`].
//!
//! A text value is a 16-byte view. Up to 12 bytes stand in the view itself; longer text is a range
//! of the request body, which the column keeps alive, or of the `side` buffer, for text that is
//! not in the body as such (unescaped strings, ids the server made). No rules of events here.
//!
//! Columns that no row of a batch sets do not exist in it; readers take them as NULL.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::BooleanArray;
use arrow::array::Float64Array;
use arrow::array::Int64Array;
use arrow::array::StringViewArray;
use arrow::array::TimestampMicrosecondArray;
use arrow::array::make_view;
use arrow::buffer::BooleanBuffer;
use arrow::buffer::Buffer;
use arrow::buffer::NullBuffer;
use arrow::buffer::ScalarBuffer;

/// Buffer number of the request body in a view.
const BODY_BUFFER: u32 = 0;
/// Buffer number of the side buffer in a view.
const SIDE_BUFFER: u32 = 1;

/// A text value, ready to be put into any text column of the same [`Columns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(u128);

/// The columns of one batch under construction. Column positions are those of the table's schema.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<Column>,
    side: Vec<u8>,
    rows: usize,
    capacity: usize,
}

#[derive(Debug)]
enum Column {
    Absent,
    Text { views: Vec<u128>, valid: Bits },
    Int(Vec<i64>),
    Time(Vec<i64>),
    Double { values: Vec<f64>, valid: Bits },
    Boolean { values: Bits, valid: Bits },
}

impl Columns {
    /// No rows yet; room for `capacity` of them.
    pub fn new(columns: usize, capacity: usize) -> Self {
        let columns = std::iter::repeat_with(|| Column::Absent).take(columns).collect();
        Self { columns, side: Vec::new(), rows: 0, capacity }
    }

    /// Makes room for `bytes` of text that is not in the body as such. Growing step by step would
    /// copy the text and touch new memory at each step.
    pub fn reserve_side(&mut self, bytes: usize) {
        self.side.reserve(bytes);
    }

    /// Rows finished so far; also the number of the row under construction.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Ends the row under construction.
    pub fn finish_row(&mut self) {
        self.rows += 1;
    }

    /// Forgets what was set in the row under construction.
    pub fn abandon_row(&mut self) {
        for column in &mut self.columns {
            column.truncate(self.rows);
        }
    }

    /// Forgets what was set in one column of the row under construction.
    pub fn unset(&mut self, position: usize) {
        if let Some(column) = self.columns.get_mut(position) {
            column.truncate(self.rows);
        }
    }

    /// The view of `text`, which stands at `offset` of the body.
    pub fn body_view(text: &[u8], offset: u32) -> View {
        View(make_view(text, BODY_BUFFER, offset))
    }

    /// The view of `text`, copied into the side buffer if it does not fit into the view.
    /// `None` if the side buffer would pass 4 GiB.
    pub fn side_view(&mut self, text: &[u8]) -> Option<View> {
        let offset = u32::try_from(self.side.len()).ok()?;
        u32::try_from(self.side.len() + text.len()).ok()?;
        if text.len() > 12 {
            self.side.extend_from_slice(text);
        }
        Some(View(make_view(text, SIDE_BUFFER, offset)))
    }

    /// The view of the text that `write` appends to the side buffer.
    pub fn write_side(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<View> {
        let start = self.side.len();
        write(&mut self.side);
        let offset = u32::try_from(start).ok()?;
        u32::try_from(self.side.len()).ok()?;
        let view = View(make_view(self.side.get(start..)?, SIDE_BUFFER, offset));
        Some(view)
    }

    /// Sets a text column of the row under construction.
    pub fn set_text(&mut self, position: usize, View(view): View) {
        let (rows, capacity) = (self.rows, self.capacity);
        let Some(column) = self.columns.get_mut(position) else { return };
        if let Column::Absent = column {
            *column = Column::Text { views: Vec::with_capacity(capacity), valid: Bits::default() };
        }
        if let Column::Text { views, valid } = column {
            views.resize(rows, 0);
            views.push(view);
            valid.set(rows);
        }
    }

    /// Sets a whole-number column of the row under construction.
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
            *column =
                Column::Double { values: Vec::with_capacity(capacity), valid: Bits::default() };
        }
        if let Column::Double { values, valid } = column {
            values.resize(rows, 0.0);
            values.push(value);
            valid.set(rows);
        }
    }

    /// Sets a truth column of the row under construction.
    pub fn set_boolean(&mut self, position: usize, value: bool) {
        let rows = self.rows;
        let Some(column) = self.columns.get_mut(position) else { return };
        if let Column::Absent = column {
            *column = Column::Boolean { values: Bits::default(), valid: Bits::default() };
        }
        if let Column::Boolean { values, valid } = column {
            if value {
                values.set(rows);
            } else {
                values.clear(rows);
            }
            valid.set(rows);
        }
    }

    /// Ends the batch: one array per column that any row set, all of the same length. `body` is
    /// the buffer that [`Columns::body_view`] offsets refer to; it must be valid UTF-8 in every
    /// range that was given to it.
    pub fn finish(mut self, body: Buffer) -> Vec<Option<ArrayRef>> {
        if self.side.len() < self.side.capacity() / 2 {
            self.side.shrink_to_fit();
        }
        let buffers = [body, Buffer::from_vec(self.side)];
        let rows = self.rows;
        self.columns.into_iter().map(|column| column.finish(rows, &buffers)).collect()
    }
}

impl Column {
    fn truncate(&mut self, rows: usize) {
        match self {
            Self::Absent => {}
            Self::Text { views, valid } => {
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

    fn finish(self, rows: usize, buffers: &[Buffer; 2]) -> Option<ArrayRef> {
        Some(match self {
            Self::Absent => return None,
            Self::Text { mut views, valid } => {
                views.resize(rows, 0);
                text_array(views, buffers, valid.into_nulls(rows))
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
                Arc::new(Float64Array::new(ScalarBuffer::from(values), valid.into_nulls(rows)))
            }
            Self::Boolean { values, valid } => {
                Arc::new(BooleanArray::new(values.into_buffer(rows), valid.into_nulls(rows)))
            }
        })
    }
}

#[expect(
    unsafe_code,
    reason = "views come from body_view, side_view and write_side alone: each was made from the \
              very bytes it points to, which simd-json or Rust's str had checked as UTF-8; a second \
              check of every byte costs a fifth of the whole build"
)]
fn text_array(views: Vec<u128>, buffers: &[Buffer; 2], nulls: Option<NullBuffer>) -> ArrayRef {
    let views = ScalarBuffer::from(views);
    let buffers = buffers.to_vec();
    // SAFETY: see the reason above.
    Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
}

/// A growing bitmap, least significant bit first, as Arrow has it. Bits never set are zero.
#[derive(Debug, Default)]
struct Bits(Vec<u8>);

impl Bits {
    fn set(&mut self, index: usize) {
        if self.0.len() <= index / 8 {
            self.0.resize(index / 8 + 1, 0);
        }
        if let Some(byte) = self.0.get_mut(index / 8) {
            *byte |= 1 << (index % 8);
        }
    }

    fn clear(&mut self, index: usize) {
        if let Some(byte) = self.0.get_mut(index / 8) {
            *byte &= !(1 << (index % 8));
        }
    }

    fn truncate(&mut self, bits: usize) {
        self.0.truncate(bits.div_ceil(8));
        // The byte that `bits` ends in; it may not exist, as bits at the end that were never set do
        // not.
        if let Some(last) = self.0.get_mut(bits / 8) {
            *last &= (1 << (bits % 8)) - 1;
        }
    }

    fn into_buffer(mut self, bits: usize) -> BooleanBuffer {
        self.0.resize(bits.div_ceil(8), 0);
        BooleanBuffer::new(Buffer::from_vec(self.0), 0, bits)
    }

    /// `None` if every bit is set: such a column has no NULL.
    fn into_nulls(self, bits: usize) -> Option<NullBuffer> {
        Some(NullBuffer::new(self.into_buffer(bits))).filter(|nulls| nulls.null_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use arrow::array::AsArray;
    use arrow::buffer::Buffer;

    use super::Columns;

    #[test]
    fn rows_that_were_abandoned_leave_nothing() {
        let body = b"a text that is longer than twelve bytes".to_vec();
        let long = Columns::body_view(&body, 0);
        let mut columns = Columns::new(4, 8);
        for row in 0..20_i64 {
            if row % 3 == 0 {
                columns.set_text(0, long);
                columns.set_boolean(2, true);
            }
            columns.set_int(1, row);
            if row % 2 == 0 { columns.finish_row() } else { columns.abandon_row() }
        }
        let arrays = columns.finish(Buffer::from_vec(body));
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

    /// A column whose last value is more than eight rows back has a bitmap that ends before the
    /// row that is abandoned.
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
                let arrays = columns.finish(Buffer::from_vec(Vec::<u8>::new()));
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
    fn short_and_long_side_text_reads_back() {
        let mut columns = Columns::new(1, 2);
        let views = ["", "short", "exactly12byt", "thirteen byte", "a good deal longer than that"]
            .map(|text| (text, columns.side_view(text.as_bytes()).unwrap()));
        for (_, view) in views {
            columns.set_text(0, view);
            columns.finish_row();
        }
        let arrays = columns.finish(Buffer::from_vec(Vec::<u8>::new()));
        let array = arrays[0].as_ref().unwrap().as_string_view();
        assert_eq!(array.null_count(), 0);
        for (row, (text, _)) in views.into_iter().enumerate() {
            assert_eq!(array.value(row), text);
        }
    }
}
