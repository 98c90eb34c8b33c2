//! Which files to merge next? [`choose`] is pure; `maintenance` carries a choice out.
//!
//! Files of one partition are merged when enough of about the same size have come together, so
//! that a row is rewritten once per step of size (times [`STEP`]), not once per flush.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::storage::delta::DataFile;

/// Files within this factor of size are of one step.
const STEP: u64 = 4;

/// The smallest step: files below this size are all of one.
const STEP_MIN_BYTES: u64 = 1 << 20;

/// Memory that reading one file takes at most: the compressed row group that is being read. Of a
/// larger file only one row group is in memory.
const ROW_GROUP_BYTES: u64 = 96 << 20;

/// Bounds of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files below this are merged.
    pub target_bytes: u64,
    /// Files that make a merge worth while.
    pub files_min: usize,
    /// Memory for the files that are read at once.
    pub memory_max_bytes: u64,
}

/// Picks the files of the next merge, all of one partition; empty if none is due.
pub fn choose(files: &[Arc<DataFile>], limits: Limits) -> Vec<Arc<DataFile>> {
    let mut steps: BTreeMap<(Option<&str>, u32), Vec<&Arc<DataFile>>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.size_bytes < limits.target_bytes) {
        let step = (file.size_bytes / STEP_MIN_BYTES).max(1).ilog(STEP);
        steps.entry((file.partition.as_deref(), step)).or_default().push(file);
    }
    for mut files in steps.into_values() {
        // By path: flushes are named by their place in the log, so neighbours are merged.
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut memory = 0;
        let fits = |file: &&&Arc<DataFile>| {
            memory += file.size_bytes.min(ROW_GROUP_BYTES);
            memory <= limits.memory_max_bytes
        };
        let chosen: Vec<Arc<DataFile>> =
            files.iter().take_while(fits).map(|file| Arc::clone(file)).collect();
        if files.len() >= limits.files_min && chosen.len() > 1 {
            return chosen;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Limits;
    use super::choose;
    use crate::storage::delta::DataFile;
    use crate::storage::delta::stats::FileStats;

    const MIB: u64 = 1 << 20;

    fn check(files: &[(&str, u64)], expected: &[usize]) {
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
        let limits = Limits { target_bytes: 256 * MIB, files_min: 3, memory_max_bytes: 200 * MIB };
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
    fn stops_at_the_memory_for_it() {
        let files = [("a", 90 * MIB); 5];
        check(&files, &[0, 1]);
        // Of files with several row groups only one is in memory at a time.
        check(&[("a", 200 * MIB); 3], &[0, 1]);
    }
}
