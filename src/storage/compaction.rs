//! Which files to merge next ([`choose`]), and how many of them at once ([`Reading`]): pure
//! decisions, which `maintenance` carries out.
//!
//! Files of one partition are merged when enough of about the same size have come together, or enough
//! for a file that is large enough for good. So a row is rewritten once per step of size (times
//! [`STEP`]), not once per flush; under load, when many files wait, once.
//!
//! # The memory of a merge
//!
//! [`Memory`] divides what the settings allow. One half is for reading: of every file the pages,
//! dictionaries and batches that are being merged, counted before the merge by what the files say of
//! themselves ([`ReadCost`]). The other half is for writing: a row group is packed until it has
//! [`Memory::group_bytes`], is put together in another piece of memory of its size, which grows as
//! it is filled, and goes from there to the disk while the next one begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::storage::delta::DataFile;

/// Files within this factor of size are of one step.
const STEP: u64 = 4;

/// The smallest step: files below this size are all of one.
const STEP_MIN_BYTES: u64 = 1 << 20;

/// Files that together are so many times as large as a file that is not merged any further come to one:
/// a merge packs what flushes wrote to six tenths of its size.
const SHRINKAGE: u64 = 2;

/// The files of a merge together are at most so many times as large.
const OVERSIZE: u64 = 4;

/// Rows that are read of a file at once at most: more gain nothing.
const BATCH_ROWS_MAX: u64 = 1024;

/// Rows that are read of a file at once at least, however wide they are.
const BATCH_ROWS_MIN: u64 = 8;

/// What the rows that are read of a file at once may take.
const BATCH_BYTES: u64 = 512 << 10;

/// Batches of a file that are in memory at once: the one that is merged, the one before it, rows of
/// which are being written, and the one that is being read.
const BATCHES: u64 = 3;

/// Memory that a row group takes at its end for each byte that it took until then, in halves: twice
/// for the packed pages and for the bytes of the file, and what the latter leave when they move.
const GROUP_HALVES: u64 = 5;

/// Bounds of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files below this are merged.
    pub target_bytes: u64,
    /// Files that make a merge worth while.
    pub files_min: usize,
}

/// Picks the files of the next merge, all of one partition, in the order in which they are to be
/// taken; empty if none is due.
pub fn choose(files: &[Arc<DataFile>], limits: Limits) -> Vec<Arc<DataFile>> {
    let mut steps: BTreeMap<(Option<&str>, u32), Vec<&Arc<DataFile>>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.size_bytes < limits.target_bytes) {
        let step = (file.size_bytes / STEP_MIN_BYTES).max(1).ilog(STEP);
        steps.entry((file.partition.as_deref(), step)).or_default().push(file);
    }
    let due = steps.into_values().find(|files| is_due(files, limits));
    let mut files = due.unwrap_or_default();
    // By path: flushes are named by their place in the log, so neighbours are merged.
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut bytes = 0_u64;
    let fits = |file: &&&Arc<DataFile>| {
        bytes = bytes.saturating_add(file.size_bytes);
        // Of files that are to be merged, two always fit.
        bytes <= limits.target_bytes.saturating_mul(OVERSIZE)
    };
    files.iter().take_while(fits).map(|file| Arc::clone(file)).collect()
}

/// Enough files, or enough for a file that is not merged any further.
fn is_due(files: &[&Arc<DataFile>], limits: Limits) -> bool {
    let bytes = files.iter().fold(0_u64, |bytes, file| bytes.saturating_add(file.size_bytes));
    let is_whole = bytes >= limits.target_bytes.saturating_mul(SHRINKAGE);
    files.len() >= if is_whole { 2 } else { limits.files_min.max(2) }
}

/// How the memory of a merge is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// For the files that are read.
    pub read_bytes: u64,
    /// For the row group that is being packed.
    pub group_bytes: u64,
}

impl Memory {
    /// Divides the memory of one merge.
    pub fn of(bytes: u64) -> Self {
        Self { read_bytes: bytes / 2, group_bytes: bytes / GROUP_HALVES }
    }
}

/// What reading a file takes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Pages and dictionaries of all columns, in whatever batches the rows are read.
    pub pages_bytes: u64,
    /// The widest row.
    pub row_bytes: u64,
}

/// The files of a merge, counted one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    bytes_max: u64,
    files: usize,
    batch_rows: u64,
    sum: ReadCost,
}

impl Reading {
    /// No file yet.
    pub fn new(memory: Memory) -> Self {
        let sum = ReadCost::default();
        Self { bytes_max: memory.read_bytes, files: 0, batch_rows: BATCH_ROWS_MAX, sum }
    }

    /// Counts one more file, if there is memory for it. There always is for two: without them
    /// nothing would ever be merged.
    pub fn takes(&mut self, file: ReadCost) -> bool {
        let rows = (BATCH_BYTES / file.row_bytes.max(1)).max(BATCH_ROWS_MIN);
        let more = Self {
            files: self.files + 1,
            batch_rows: self.batch_rows.min(rows),
            sum: ReadCost {
                pages_bytes: self.sum.pages_bytes.saturating_add(file.pages_bytes),
                row_bytes: self.sum.row_bytes.saturating_add(file.row_bytes),
            },
            ..*self
        };
        let takes = more.files <= 2 || more.memory_bytes() <= more.bytes_max;
        if takes {
            *self = more;
        }
        takes
    }

    /// Rows that are to be read of each file at once.
    pub fn batch_rows(&self) -> usize {
        usize::try_from(self.batch_rows).unwrap_or(usize::MAX)
    }

    /// What the files take that were counted.
    pub fn memory_bytes(&self) -> u64 {
        let batches = (BATCHES * self.batch_rows).saturating_mul(self.sum.row_bytes);
        batches.saturating_add(self.sum.pages_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Limits;
    use super::Memory;
    use super::ReadCost;
    use super::Reading;
    use super::choose;
    use crate::storage::delta::DataFile;
    use crate::storage::delta::stats::FileStats;

    const MIB: u64 = 1 << 20;

    fn check(files: &[(&str, u64)], expected: &[usize]) {
        check_of(3, files, expected);
    }

    fn check_of(files_min: usize, files: &[(&str, u64)], expected: &[usize]) {
        let file = |(index, (partition, size)): (usize, &(&str, u64))| {
            Arc::new(DataFile {
                path: format!("{index:03}"),
                size_bytes: *size,
                rows: 1,
                partition: Some((*partition).to_owned()),
                stats: FileStats::default(),
            })
        };
        let files: Vec<_> = files.iter().enumerate().map(file).collect();
        let limits = Limits { target_bytes: 256 * MIB, files_min };
        let chosen = choose(&files, limits);
        let chosen: Vec<usize> = chosen.iter().map(|file| file.path.parse().unwrap()).collect();
        assert_eq!(chosen, expected);
    }

    #[test]
    fn merges_files_of_one_partition_and_about_one_size() {
        check(&[], &[]);
        check(&[("a", 1), ("a", 2)], &[]);
        check(&[("a", 1), ("a", 2), ("b", 3)], &[]);
        check(&[("a", 1), ("a", 2), ("a", 3)], &[0, 1, 2]);
        check(&[("a", 1), ("a", 300 * MIB), ("a", 2), ("a", 3)], &[0, 2, 3]);
        check(&[("a", MIB), ("a", 20 * MIB), ("a", 2 * MIB), ("a", 70 * MIB)], &[]);
        check(&[("a", 20 * MIB), ("b", 1), ("a", 30 * MIB), ("a", 40 * MIB)], &[0, 2, 3]);
    }

    #[test]
    fn merges_few_files_that_come_to_the_target() {
        check_of(16, &[("a", 171 * MIB), ("a", 171 * MIB), ("a", 169 * MIB)], &[]);
        check_of(16, &[("a", 171 * MIB), ("a", 171 * MIB), ("a", 170 * MIB)], &[0, 1, 2]);
        check_of(16, &[("a", 171 * MIB), ("a", 171 * MIB), ("b", 170 * MIB)], &[]);
    }

    #[test]
    fn the_files_of_a_merge_together_are_bounded() {
        check(&[("a", 200 * MIB); 7], &[0, 1, 2, 3, 4]);
        check(&[("a", 255 * MIB); 6], &[0, 1, 2, 3]);
        check(&[("a", 256 * MIB); 6], &[]);
    }

    #[test]
    fn reads_as_many_files_as_there_is_memory_for() {
        let memory = Memory::of(192 * MIB);
        let taken = |cost: ReadCost| {
            let mut reading = Reading::new(memory);
            let files = (0..1000).take_while(|_| reading.takes(cost)).count();
            if files > 2 {
                assert!(reading.memory_bytes() <= memory.read_bytes, "{reading:?}");
            }
            (files, reading.batch_rows())
        };
        // 96 MiB for pages of 4 MiB and three batches of half a MiB each.
        let row_bytes = 2 << 10;
        assert_eq!(taken(ReadCost { pages_bytes: 4 * MIB, row_bytes }), (17, 256));
        assert_eq!(taken(ReadCost { pages_bytes: 0, row_bytes }), (64, 256));
        // Narrow rows come in batches that are not too large, wide ones not singly.
        assert_eq!(taken(ReadCost { pages_bytes: 16 * MIB, row_bytes: 8 }), (5, 1024));
        assert_eq!(taken(ReadCost { pages_bytes: MIB, row_bytes: MIB }), (3, 8));
        // Two are merged in any case.
        assert_eq!(taken(ReadCost { pages_bytes: 300 * MIB, row_bytes: 8 }), (2, 1024));
    }

    #[test]
    fn the_widest_rows_decide_how_many_are_read_at_once() {
        let mut reading = Reading::new(Memory::of(192 * MIB));
        assert!(reading.takes(ReadCost { pages_bytes: MIB, row_bytes: 2 << 10 }));
        assert_eq!(reading.batch_rows(), 256);
        assert!(reading.takes(ReadCost { pages_bytes: MIB, row_bytes: 32 << 10 }));
        assert_eq!(reading.batch_rows(), 16);
        assert_eq!(reading.memory_bytes(), 2 * MIB + 3 * 16 * (34 << 10));
    }

    #[test]
    fn reading_and_writing_share_the_memory() {
        for bytes in [0, 100, 192 * MIB, 1 << 40] {
            let memory = Memory::of(bytes);
            // A row group, its bytes in the file, and half of them once more.
            let writing = memory.group_bytes * 5 / 2;
            assert!(memory.read_bytes + writing <= bytes, "{memory:?}");
        }
    }
}
