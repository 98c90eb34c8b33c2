//! Rows that are durable in the log and not yet in a file: [`Memtable`]. No files, no locks.

use std::sync::Arc;
use std::time::Duration;

use arrow::error::ArrowError;

use crate::storage::rows::Rows;
use crate::storage::rows::Run;
use crate::storage::wal::Sequence;

/// Batches with fewer rows than this are put together.
const SMALL_ROWS: usize = 256;
/// How many small batches in a row are put together, all put together as often before, so that each
/// row is copied once per factor of this. More means fewer copies and more batches to scan.
const SMALL_BATCHES_MAX: usize = 16;

/// Rows in log order.
#[derive(Debug, Default)]
pub struct Memtable {
    batches: Vec<Arc<Rows>>,
    /// How often the batch at the same place was put together from smaller ones; only of small
    /// batches at the end.
    joined: Vec<u8>,
    rows: usize,
    memory_bytes: usize,
    last: Sequence,
    oldest: Option<Duration>,
}

impl Memtable {
    /// Adds the rows of the log record at `sequence`, which may be none. `now` is a monotonic time.
    ///
    /// # Errors
    ///
    /// The rows do not have the types of those before: a programmer error.
    pub fn insert(
        &mut self,
        mut rows: Rows,
        sequence: Sequence,
        now: Duration,
    ) -> Result<(), ArrowError> {
        self.last = sequence;
        self.oldest.get_or_insert(now);
        if rows.len == 0 {
            return Ok(());
        }
        rows.runs = vec![Run { len: rows.len, sequence }];
        self.rows += rows.len;
        self.memory_bytes += rows.memory_bytes;
        self.push(rows, 0);
        while let Some(joined) = self.joined.last().copied() {
            let alike = self.joined.iter().rev().take_while(|other| **other == joined).count();
            if alike < SMALL_BATCHES_MAX {
                break;
            }
            self.joined.truncate(self.joined.len() - alike);
            let parts = self.batches.split_off(self.batches.len() - alike);
            let whole = Rows::concatenated(&parts)?;
            self.memory_bytes -= parts.iter().map(|part| part.memory_bytes).sum::<usize>();
            self.memory_bytes += whole.memory_bytes;
            self.push(whole, joined.saturating_add(1));
        }
        Ok(())
    }

    /// Adds a batch that was put together `joined` times.
    fn push(&mut self, rows: Rows, joined: u8) {
        if rows.len < SMALL_ROWS {
            self.joined.push(joined);
        } else {
            self.joined.clear();
        }
        self.batches.push(Arc::new(rows));
    }

    /// The batches, oldest first.
    pub fn batches(&self) -> &[Arc<Rows>] {
        &self.batches
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Memory that the rows keep.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Sequence of the newest log record in here; all earlier ones are in here or in files.
    pub fn last(&self) -> Sequence {
        self.last
    }

    /// Whether no log record is in here.
    pub fn is_empty(&self) -> bool {
        self.oldest.is_none()
    }

    /// Time since the first record came in.
    pub fn age(&self, now: Duration) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.saturating_sub(oldest))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow::array::AsArray;
    use arrow::array::Int64Array;
    use arrow::array::StringViewArray;

    use super::Memtable;
    use super::Rows;
    use super::Sequence;

    #[test]
    fn small_batches_are_put_together_in_order() {
        let mut memtable = Memtable::default();
        for number in 0..1000_i64 {
            // Every third batch has no text column at all.
            let text = format!("the text of number {number}");
            let text = StringViewArray::from(vec![text.as_str()]);
            let rows = Rows {
                len: 1,
                columns: vec![
                    Some(Arc::new(Int64Array::from(vec![number]))),
                    (number % 3 != 0).then(|| Arc::new(text) as _),
                ],
                memory_bytes: 100,
                runs: Vec::new(),
            };
            let sequence = Sequence(u64::try_from(number).unwrap() + 1);
            memtable.insert(rows, sequence, Duration::ZERO).unwrap();
        }
        assert_eq!((memtable.rows(), memtable.last()), (1000, Sequence(1000)));
        // 1000 = 3 * 256 + 14 * 16 + 8.
        assert_eq!(memtable.batches().len(), 3 + 14 + 8);
        let mut next = 0;
        for batch in memtable.batches() {
            let numbers = batch.columns[0].as_ref().unwrap();
            for (row, number) in
                numbers.as_primitive::<arrow::datatypes::Int64Type>().values().iter().enumerate()
            {
                assert_eq!(*number, next);
                assert_eq!(batch.positions().value(row), next + 1, "its record");
                let text = batch.columns[1].as_ref().map(|text| text.as_string_view());
                let text = text.filter(|text| arrow::array::Array::is_valid(text, row));
                let expected = format!("the text of number {number}");
                assert_eq!(
                    text.map(|text| text.value(row)),
                    (number % 3 != 0).then_some(expected.as_str()),
                );
                next += 1;
            }
        }
        assert_eq!(next, 1000);
    }
}
