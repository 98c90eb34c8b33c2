//! Memtable: rows that are durable in the log and not yet in a file. No files, no locks.

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::BooleanArray;
use arrow::error::ArrowError;

use crate::rows::{Rows, Run};
use crate::wal::Sequence;

/// Batches with fewer rows than this are joined.
const SMALL_ROWS: usize = 256;
/// Batches with less memory than this are joined: other threads wait for the store during a join, so that the
/// copied bytes are bounded to [`SMALL_BATCHES_MAX`] times this. It fits [`SMALL_ROWS`] usual events of SDKs.
const SMALL_BYTES: usize = 128 << 10;
/// Number of consecutive small batches that are joined into one, all with the same number of previous
/// joins, so that each row is copied once per factor of this. A larger number means fewer copies and more
/// batches to scan.
const SMALL_BATCHES_MAX: usize = 16;

/// Rows in log order.
#[derive(Debug, Default)]
pub struct Memtable {
    batches: Vec<Arc<Rows>>,
    /// For each small batch at the end, the number of joins that it went through.
    joined: Vec<u8>,
    rows: usize,
    memory_bytes: usize,
    last: Sequence,
    oldest: Option<Duration>,
}

impl Memtable {
    /// Adds the rows of the log record at `sequence`, possibly none. `now` is a monotonic time.
    ///
    /// # Errors
    ///
    /// The types of the rows differ from the previous rows: a programmer error. Nothing has changed then,
    /// so that the flushed log position never passes a record whose rows are missing.
    pub fn insert(
        &mut self,
        mut rows: Rows,
        sequence: Sequence,
        now: Duration,
    ) -> Result<(), ArrowError> {
        let len = rows.len;
        if len > 0 {
            rows.runs = vec![Run { len, sequence }];
            self.push(Arc::new(rows))?;
        }
        self.rows += len;
        self.last = sequence;
        self.oldest.get_or_insert(now);
        Ok(())
    }

    /// Adds a batch, and joins it with the batches at the end if that is due. On an error nothing has
    /// changed.
    fn push(&mut self, mut rows: Arc<Rows>) -> Result<(), ArrowError> {
        // Number of batches at the end that `rows` replaces, and number of joins that it went through.
        let (mut replaced, mut joined) = (0, 0_u8);
        while is_small(&rows) {
            let others = self.joined.iter().rev().skip(replaced);
            let alike = others.take_while(|other| **other == joined).count();
            if alike + 1 < SMALL_BATCHES_MAX {
                break;
            }
            replaced += alike;
            let parts = self.batches.iter().skip(self.batches.len() - replaced).take(alike);
            let parts: Vec<_> = parts.cloned().chain([rows]).collect();
            rows = Arc::new(Rows::concatenated(&parts)?);
            joined = joined.saturating_add(1);
        }
        let replaced_from = self.batches.len() - replaced;
        let replaced_bytes = self.batches.drain(replaced_from..).map(|batch| batch.memory_bytes);
        self.memory_bytes -= replaced_bytes.sum::<usize>();
        self.memory_bytes += rows.memory_bytes;
        if is_small(&rows) {
            self.joined.truncate(self.joined.len() - replaced);
            self.joined.push(joined);
        } else {
            self.joined.clear();
        }
        self.batches.push(rows);
        Ok(())
    }

    /// The same without the rows of log records up to `through`.
    ///
    /// # Errors
    ///
    /// Rows cannot be filtered: a programmer error.
    pub fn after(&self, through: Sequence) -> Result<Self, ArrowError> {
        let mut rest = Self { last: self.last, oldest: self.oldest, ..Self::default() };
        if self.last <= through {
            return Ok(Self::default());
        }
        for batch in &self.batches {
            let is_newer = |run: &Run| run.sequence > through;
            let batch = match batch.runs.iter().filter(|run| is_newer(run)).count() {
                0 => continue,
                newer if newer == batch.runs.len() => Arc::clone(batch),
                _ => {
                    let keep = batch.runs.iter();
                    let keep: BooleanArray =
                        keep.flat_map(|run| repeat_n(Some(is_newer(run)), run.len)).collect();
                    let mut kept = Rows::clone(batch).filtered(&keep)?;
                    kept.runs.retain(is_newer);
                    Arc::new(kept)
                }
            };
            rest.rows += batch.len;
            rest.memory_bytes += batch.memory_bytes;
            rest.batches.push(batch);
        }
        Ok(rest)
    }

    /// The batches, oldest first.
    pub fn batches(&self) -> &[Arc<Rows>] {
        &self.batches
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Memory of the rows in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Sequence of the newest log record in the memtable; all earlier ones are in it or in files.
    pub fn last(&self) -> Sequence {
        self.last
    }

    /// Whether the memtable contains no log record.
    pub fn is_empty(&self) -> bool {
        self.oldest.is_none()
    }

    /// Time since the first record was added.
    pub fn age(&self, now: Duration) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.saturating_sub(oldest))
    }
}

fn is_small(rows: &Rows) -> bool {
    rows.len < SMALL_ROWS && rows.memory_bytes < SMALL_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringViewArray};

    use super::{Memtable, Rows, Sequence};
    use crate::exact::ExactColumns;

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
                exact: ExactColumns::ALL,
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

    /// Goal: whatever record is the last one in files, what is left are the rows of the records behind it, in order.
    #[test]
    fn rows_that_are_in_files_are_left_out() {
        let mut memtable = Memtable::default();
        let rows = |number: u64| {
            let text = text(&["a", "b"][..usize::try_from(number % 3).unwrap()]);
            Rows { memory_bytes: 10, ..text }
        };
        for number in 1..=100 {
            memtable.insert(rows(number), Sequence(number), Duration::from_secs(number)).unwrap();
        }
        for through in [0, 1, 15, 16, 17, 50, 99, 100, 200] {
            let mut rest = memtable.after(Sequence(through)).unwrap();
            let positions = |memtable: &Memtable| -> Vec<i64> {
                let batches = memtable.batches().iter();
                batches.flat_map(|batch| batch.positions().values().to_vec()).collect()
            };
            let left: Vec<u64> = (through + 1..=100).collect();
            let expected = |left: &[u64]| -> Vec<i64> {
                let of = |number: &u64| {
                    let count = usize::try_from(number % 3).unwrap();
                    std::iter::repeat_n(i64::try_from(*number).unwrap(), count)
                };
                left.iter().flat_map(of).collect()
            };
            assert_eq!(positions(&rest), expected(&left), "{through}");
            assert_eq!(rest.rows(), expected(&left).len());
            assert_eq!(rest.is_empty(), left.is_empty(), "{through}");
            let bytes = rest.batches().iter().map(|batch| batch.memory_bytes).sum::<usize>();
            assert_eq!(rest.memory_bytes(), bytes);
            let more: Vec<u64> = left.iter().copied().chain(101..=150).collect();
            for number in 101..=150 {
                rest.insert(rows(number), Sequence(number), Duration::ZERO).unwrap();
            }
            assert_eq!(positions(&rest), expected(&more), "{through}");
            assert_eq!(rest.last(), Sequence(150));
        }
    }

    fn text(values: &[&str]) -> Rows {
        let column: ArrayRef = Arc::new(StringViewArray::from(values.to_vec()));
        let memory_bytes = column.get_array_memory_size();
        Rows {
            len: values.len(),
            columns: vec![Some(column)],
            memory_bytes,
            runs: Vec::new(),
            exact: ExactColumns::ALL,
        }
    }

    /// Goal: a record whose rows do not match removes no previous rows, and does not move the last sequence.
    #[test]
    fn rows_that_do_not_fit_change_nothing() {
        let mut memtable = Memtable::default();
        for number in 1..=15 {
            memtable.insert(text(&["a"]), Sequence(number), Duration::ZERO).unwrap();
        }
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let memory_bytes = number.get_array_memory_size();
        let odd = Rows {
            len: 1,
            columns: vec![Some(number)],
            memory_bytes,
            runs: Vec::new(),
            exact: ExactColumns::ALL,
        };
        let before = memtable.memory_bytes();
        for _ in 0..2 {
            assert!(memtable.insert(odd.clone(), Sequence(16), Duration::ZERO).is_err());
            assert_eq!((memtable.rows(), memtable.last()), (15, Sequence(15)));
            assert_eq!((memtable.batches().len(), memtable.memory_bytes()), (15, before));
        }
        memtable.insert(text(&["b"]), Sequence(16), Duration::ZERO).unwrap();
        assert_eq!((memtable.rows(), memtable.last()), (16, Sequence(16)));
        let [whole] = memtable.batches() else { panic!("they are put together") };
        assert_eq!((whole.len, whole.memory_bytes), (16, memtable.memory_bytes()));
    }

    /// Goal: no other thread waits while many bytes are copied, however few rows they are in.
    #[test]
    fn large_rows_are_not_copied() {
        let mut memtable = Memtable::default();
        let long = "x".repeat(1 << 20);
        let mut sent = Vec::new();
        for number in 1..=40 {
            let rows = text(&[if number % 2 == 0 { &long } else { "short" }]);
            sent.extend(rows.columns.clone());
            memtable.insert(rows, Sequence(number), Duration::ZERO).unwrap();
        }
        let kept = memtable.batches().iter().map(|batch| batch.columns[0].as_ref().unwrap());
        assert_eq!(kept.clone().count(), 40);
        assert!(kept.zip(sent.iter().flatten()).all(|(kept, sent)| Arc::ptr_eq(kept, sent)));
    }
}
