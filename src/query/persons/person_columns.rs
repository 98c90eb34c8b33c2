//! Columns of files of the persons table in memory: the cache behind the scan of the table, within a setting.
//!
//! A file never changes, so neither does a column of it; who has changed since is read from the store by every scan. A
//! column goes with its file. If there is too much, the columns that were used longest ago go first, but none that the scan
//! uses that needs the memory: what does not fit is read each time, and does not push out what the next scan reads first.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef};
use parking_lot::Mutex;

use weir_event::id::ProjectId;
use weir_storage::delta::DataFile;

/// Memory of a column beside its values and name.
const HELD_BYTES: usize = 256;

/// The path of a file, a project in it, and the name of a column.
type Name = (String, ProjectId, String);

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct PersonColumns {
    bytes_max: usize,
    held: Mutex<AllHeld>,
}

#[derive(Debug, Default)]
struct AllHeld {
    columns: HashMap<Name, Held>,
    bytes: usize,
    scans: u64,
}

#[derive(Debug)]
struct Held {
    column: ArrayRef,
    bytes: usize,
    /// The last scan that used it.
    used: u64,
    file: Weak<DataFile>,
}

impl AllHeld {
    /// Drops the columns of files that nobody reads any more.
    fn drop_files(&mut self) {
        self.retain(|held| held.file.strong_count() > 0);
    }

    fn retain(&mut self, is_kept: impl Fn(&Held) -> bool) {
        let mut freed = 0;
        self.columns.retain(|_, held| {
            let is_kept = is_kept(held);
            freed += if is_kept { 0 } else { held.bytes };
            is_kept
        });
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

impl PersonColumns {
    /// None yet; later at most this many bytes of them.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self { bytes_max, held: Mutex::default() }
    }

    /// The number of a scan that begins.
    pub(crate) fn begin(&self) -> u64 {
        let mut held = self.held.lock();
        held.drop_files();
        held.scans += 1;
        held.scans
    }

    /// A column, if it is there.
    pub(crate) fn get(&self, scan: u64, name: &Name) -> Option<ArrayRef> {
        let mut held = self.held.lock();
        let found = held.columns.get_mut(name)?;
        found.used = found.used.max(scan);
        Some(Arc::clone(&found.column))
    }

    /// Keeps a column, if there is memory for it.
    pub(crate) fn put(&self, scan: u64, file: &Arc<DataFile>, name: Name, column: &ArrayRef) {
        let names = name.0.len().saturating_add(name.2.len());
        let bytes =
            column.get_buffer_memory_size().saturating_add(names).saturating_add(HELD_BYTES);
        if bytes > self.bytes_max {
            return;
        }
        let mut held = self.held.lock();
        while held.bytes.saturating_add(bytes) > self.bytes_max {
            let oldest = held.columns.values().map(|held| held.used).min();
            let Some(oldest) = oldest.filter(|oldest| *oldest < scan) else { return };
            held.retain(|held| held.used != oldest);
        }
        let (column, file) = (Arc::clone(column), Arc::downgrade(file));
        let new = Held { column, bytes, used: scan, file };
        let before = held.columns.insert(name, new).map_or(0, |before| before.bytes);
        held.bytes = held.bytes.saturating_add(bytes).saturating_sub(before);
    }

    /// Memory of all columns in bytes.
    pub(crate) fn memory(&self) -> usize {
        let mut held = self.held.lock();
        held.drop_files();
        held.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, Int64Array};

    use super::{HELD_BYTES, PersonColumns};
    use weir_event::id::ProjectId;
    use weir_storage::delta::DataFile;
    use weir_storage::delta::stats::FileStats;
    use weir_storage::derived::DerivedTag;
    use weir_storage::exact::ExactColumns;

    fn file(path: String) -> Arc<DataFile> {
        Arc::new(DataFile {
            path,
            size_bytes: 1,
            rows: 1,
            partition: None,
            stats: FileStats::default(),
            exact: ExactColumns::default(),
            derived: DerivedTag::default(),
        })
    }

    /// Goal: memory is bounded, a scan that needs more than there is finds as much the next time, and columns go with their
    /// files.
    #[test]
    fn what_fits_is_there_and_goes_with_its_file() {
        let files: Vec<_> = (0..10).map(|number| file(number.to_string())).collect();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7; 100]));
        let one = column.get_buffer_memory_size() + HELD_BYTES + 2;
        let columns = PersonColumns::new(u64::try_from(one * 6).unwrap());
        let scan = |name: &str, files: &[Arc<DataFile>]| {
            let (scan, mut found) = (columns.begin(), 0);
            for file in files {
                let name = (file.path.clone(), ProjectId(1), name.to_owned());
                match columns.get(scan, &name) {
                    Some(_) => found += 1,
                    None => columns.put(scan, file, name, &column),
                }
                assert!(columns.memory() <= one * 6);
            }
            found
        };
        assert_eq!([scan("a", &files), scan("a", &files), scan("a", &files)], [0, 6, 6]);
        assert_eq!([scan("b", &files[..4]), scan("b", &files[..4])], [0, 4]);
        assert_eq!(scan("c", &files[..1]), 0);
        assert_eq!([scan("b", &files[..4]), scan("c", &files[..1])], [4, 1]);
        drop(files);
        columns.begin();
        assert_eq!(columns.memory(), 0);
        let file = file("x".to_owned());
        let none = PersonColumns::new(0);
        none.put(none.begin(), &file, ("x".to_owned(), ProjectId(1), "a".to_owned()), &column);
        assert_eq!(none.memory(), 0);
    }
}
