//! Size-tiered compaction policy: chooses the files of the next merge ([`choose`]), and how many of them
//! fit into memory ([`Reading`]). Pure functions; `maintenance` runs the merges.
//!
//! Files of one partition are merged when there are enough files of about the same size, or enough bytes
//! for a file of the target size. So a row is rewritten once per size tier (factor [`STEP`]), not once per
//! flush. Under load, when many files wait, it is rewritten once.
//!
//! # The memory of a merge
//!
//! [`Memory`] divides the memory setting. One half is for reading: the pages, dictionaries and batches of
//! every merged file, estimated before the merge from the metadata of the files ([`ReadCost`]). The other
//! half is for writing: a row group is encoded until it has [`Memory::group_bytes`], is assembled in a
//! second buffer of the same size, which grows as it is filled, and is written from there to the disk while
//! the next row group starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delta::DataFile;

/// Files within this factor of size are in one tier.
const STEP: u64 = 4;

/// Unit of the tiers: files below this times [`STEP`] are in the smallest tier.
const STEP_MIN_BYTES: u64 = 1 << 20;

/// Files with this multiple of the target size merge into one file of the target size: a merge reduces
/// flushed files to six tenths of their size.
const SHRINKAGE: u64 = 2;

/// Upper bound of the total size of the files of a merge, as a multiple of the target size.
const OVERSIZE: u64 = 4;

/// Maximum rows per batch that is read from a file: more gain nothing.
const BATCH_ROWS_MAX: u64 = 1024;

/// Minimum rows per batch, however wide they are.
const BATCH_ROWS_MIN: u64 = 8;

/// Maximum memory of a batch in bytes.
const BATCH_BYTES: u64 = 512 << 10;

/// Batches of a file in memory at the same time: the one that is merged, the previous one, whose rows are
/// being written, and the next one, which is being read.
const BATCHES: u64 = 3;

/// Peak memory at the end of a row group per encoded byte, in halves (2.5 bytes): one byte for the encoded
/// pages, one for the bytes of the file, and one half for the old buffer when the latter is reallocated.
const GROUP_HALVES: u64 = 5;

/// Bounds of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files smaller than this are merged.
    pub target_bytes: u64,
    /// Minimum number of files in a merge.
    pub files_min: usize,
}

/// Chooses the files of the next merge, all of one partition, in merge order. Empty if no merge is due.
pub fn choose(files: &[Arc<DataFile>], limits: Limits) -> Vec<Arc<DataFile>> {
    let mut steps: BTreeMap<(Option<&str>, u32), Vec<&Arc<DataFile>>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.size_bytes < limits.target_bytes) {
        let step = (file.size_bytes / STEP_MIN_BYTES).max(1).ilog(STEP);
        steps.entry((file.partition.as_deref(), step)).or_default().push(file);
    }
    let due = steps.into_values().find(|files| is_due(files, limits));
    let mut files = due.unwrap_or_default();
    // Sorted by path: names of flushed files contain their log sequence, so neighbours in the log are merged.
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut bytes = 0_u64;
    let fits = |file: &&&Arc<DataFile>| {
        bytes = bytes.saturating_add(file.size_bytes);
        // Two files that are to be merged always fit.
        bytes <= limits.target_bytes.saturating_mul(OVERSIZE)
    };
    files.iter().take_while(fits).map(|file| Arc::clone(file)).collect()
}

/// Whether there are enough files, or enough bytes for a file of the target size.
fn is_due(files: &[&Arc<DataFile>], limits: Limits) -> bool {
    let bytes = files.iter().fold(0_u64, |bytes, file| bytes.saturating_add(file.size_bytes));
    let is_whole = bytes >= limits.target_bytes.saturating_mul(SHRINKAGE);
    files.len() >= if is_whole { 2 } else { limits.files_min.max(2) }
}

/// Division of the memory of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// For the files that are read.
    pub read_bytes: u64,
    /// For the row group that is being encoded.
    pub group_bytes: u64,
}

impl Memory {
    /// Divides the memory of one merge.
    pub fn of(bytes: u64) -> Self {
        Self { read_bytes: bytes / 2, group_bytes: bytes / GROUP_HALVES }
    }
}

/// Memory for reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Pages and dictionaries of all columns, independent of the batch size.
    pub pages_bytes: u64,
    /// Size of the widest row in bytes.
    pub row_bytes: u64,
}

/// Memory accounting of a merge, file by file.
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

    /// Adds a file, if there is memory for it; returns whether it was added. The first two files are always
    /// added: otherwise large files could never be merged.
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

    /// Rows per batch that is read from each file.
    pub fn batch_rows(&self) -> usize {
        usize::try_from(self.batch_rows).unwrap_or(usize::MAX)
    }

    /// Memory of the added files.
    pub fn memory_bytes(&self) -> u64 {
        let batches = (BATCHES * self.batch_rows).saturating_mul(self.sum.row_bytes);
        batches.saturating_add(self.sum.pages_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Limits, Memory, ReadCost, Reading, choose};
    use crate::delta::DataFile;
    use crate::delta::stats::FileStats;
    use crate::derived::DerivedTag;
    use crate::exact::ExactColumns;

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
                exact: ExactColumns::ALL,
                derived: DerivedTag::default(),
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
        // The batch size has a maximum for narrow rows, and a minimum for wide ones.
        assert_eq!(taken(ReadCost { pages_bytes: 16 * MIB, row_bytes: 8 }), (5, 1024));
        assert_eq!(taken(ReadCost { pages_bytes: MIB, row_bytes: MIB }), (3, 8));
        // Two files are merged in any case.
        assert_eq!(taken(ReadCost { pages_bytes: 300 * MIB, row_bytes: 8 }), (2, 1024));
    }

    #[test]
    fn the_widest_rows_determine_the_batch_size() {
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
            // The encoded row group, its bytes in the file, and half of them for the reallocation.
            let writing = memory.group_bytes * 5 / 2;
            assert!(memory.read_bytes + writing <= bytes, "{memory:?}");
        }
    }
}
