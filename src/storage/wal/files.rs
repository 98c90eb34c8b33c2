//! Segment list that writer, readers and truncation share: [`WalFiles`]. It maps sequences to segment files
//! and does not read their contents.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::wal::reader::Reader;
use crate::wal::{RecordLocation, Sequence, WalError, segment, spare};
use weir_disk::{Disk, DiskFile};

/// Subdirectory for copies of damaged segments.
const QUARANTINE: &str = "quarantine";

/// Bytes per read when a segment is copied into the quarantine.
const COPY_BYTES: usize = 1 << 20;

/// A handle on the files of a log for threads that do not write it; clones are cheap.
#[derive(Clone, Debug)]
pub struct WalFiles {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Never held across I/O.
    list: Mutex<List>,
    has_spare: AtomicBool,
    /// Moving average over the last syncs; 0 before the first.
    bytes_per_sync: AtomicU64,
}

#[derive(Debug)]
struct List {
    /// Oldest first. Only the last one is written to.
    segments: Vec<Segment>,
    /// Records up to this sequence are durable in other stores, and may have been truncated.
    durable_elsewhere: Sequence,
    /// The last sequence that was assigned when the log was opened.
    end: Sequence,
}

/// One file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Sequence of its first record.
    pub(super) first: Sequence,
    /// Length of the file, unused space included.
    pub(super) len_bytes: u64,
}

impl WalFiles {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        segments: Vec<Segment>,
        durable_elsewhere: Sequence,
        end: Sequence,
    ) -> Self {
        let list = Mutex::new(List { segments, durable_elsewhere, end });
        Self {
            shared: Arc::new(Shared {
                disk,
                dir,
                list,
                has_spare: AtomicBool::new(false),
                bytes_per_sync: AtomicU64::new(0),
            }),
        }
    }

    /// Size of the log on disk in bytes, preallocated space included; copies in quarantine are not counted.
    pub fn size_bytes(&self) -> u64 {
        self.shared.list.lock().segments.iter().map(|segment| segment.len_bytes).sum()
    }

    /// The sequence before the first record that may be in the log. Without a segment, the last assigned
    /// sequence.
    pub fn before_oldest(&self) -> Sequence {
        let list = self.shared.list.lock();
        list.segments.first().map_or(list.end, |segment| segment.first.previous())
    }

    /// Removes the segments whose records are all at or before `through`, which must be durable in other
    /// stores, and returns the freed bytes. The newest segment always stays.
    ///
    /// Each removal is durable before the next, so that the remaining log has no gap.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`]; some of the segments may be removed. Calling again is safe.
    pub fn truncate_through(&self, through: Sequence) -> Result<u64, WalError> {
        let shared = &*self.shared;
        let mut freed = 0;
        while let Some(segment) = self.removable(through) {
            let path = segment::path_of(&shared.dir, segment.first);
            match shared.disk.remove(&path) {
                Ok(()) => {}
                // A concurrent call removed it, or an earlier call that failed afterwards.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(WalError::io("remove", &path)(source)),
            }
            shared.disk.sync_dir(&shared.dir).map_err(WalError::io("sync", &shared.dir))?;
            if self.forget(segment.first) {
                freed += segment.len_bytes;
            }
        }
        Ok(freed)
    }

    /// Creates a spare of `segment_bytes` for the next segment, if there is none. `goes_on` is called after
    /// every megabyte, may block, and returns `false` to stop. For one dedicated thread; a spare does not
    /// count for the size of the log.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`]. The log works without a spare.
    pub fn keep_spare(
        &self,
        segment_bytes: u64,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), WalError> {
        let Shared { disk, dir, .. } = &*self.shared;
        let made = spare::make(&**disk, dir, segment_bytes, goes_on);
        let made = made.map_err(|source| WalError::io("write a spare in", dir)(source))?;
        self.shared.has_spare.store(made, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that the next segment can be created: there is a spare, and files can be created. Returns
    /// whether there is a spare. For the thread that keeps the spare.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`]: a file cannot be created.
    pub fn prepare_segment(
        &self,
        segment_bytes: u64,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WalError> {
        self.keep_spare(segment_bytes, goes_on)?;
        let Shared { disk, dir, .. } = &*self.shared;
        spare::try_name(&**disk, dir)
            .map_err(|source| WalError::io("create a file in", dir)(source))?;
        Ok(self.has_spare())
    }

    /// Whether a spare was made or found since the last one was used. Costs no system call.
    pub(super) fn has_spare(&self) -> bool {
        self.shared.has_spare.load(Ordering::Relaxed)
    }

    /// Records that the spare, if there was one, is used.
    pub(super) fn forget_spare(&self) {
        self.shared.has_spare.store(false, Ordering::Relaxed);
    }

    /// Average bytes per sync; `None` before the first.
    pub fn bytes_per_sync(&self) -> Option<u64> {
        Some(self.shared.bytes_per_sync.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Adds a sync of `bytes` to the average. For the writer only.
    pub(super) fn note_sync(&self, bytes: u64) {
        let average = &self.shared.bytes_per_sync;
        let before = self.bytes_per_sync().unwrap_or(bytes);
        average.store(
            (before.saturating_mul(15).saturating_add(bytes) / 16).max(1),
            Ordering::Relaxed,
        );
    }

    /// A reader of the records after `after`.
    pub fn reader(&self, after: Sequence) -> Reader {
        Reader::new(self.clone(), after)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    pub(super) fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Adds a segment that the writer has created.
    pub(super) fn push(&self, segment: Segment) {
        self.shared.list.lock().segments.push(segment);
    }

    pub(super) fn locate(&self, wanted: Sequence) -> RecordLocation {
        let list = self.shared.list.lock();
        let after = list.segments.partition_point(|segment| segment.first <= wanted);
        let next = list.segments.get(after).map(|segment| segment.first);
        let at = after.checked_sub(1).and_then(|at| list.segments.get(at));
        if let Some(segment) = at {
            let last = next.map(Sequence::previous);
            return RecordLocation::File { first: segment.first, last };
        }
        // Without a segment, the first one will start after all assigned sequences.
        let oldest = next.unwrap_or(list.end.max(list.durable_elsewhere).next());
        if wanted <= list.durable_elsewhere || oldest <= wanted {
            RecordLocation::Removed { oldest }
        } else {
            RecordLocation::Missing { last: Some(oldest.previous()) }
        }
    }

    fn removable(&self, through: Sequence) -> Option<Segment> {
        let mut list = self.shared.list.lock();
        list.durable_elsewhere = list.durable_elsewhere.max(through);
        let [oldest, next, ..] = list.segments.as_slice() else { return None };
        (next.first.previous() <= through).then_some(*oldest)
    }

    /// Removes the segment from the list. Returns whether it was still in the list.
    fn forget(&self, first: Sequence) -> bool {
        let mut list = self.shared.list.lock();
        let before = list.segments.len();
        list.segments.retain(|segment| segment.first != first);
        list.segments.len() < before
    }
}

/// Copies the segment whose first sequence is `first` into the quarantine, unless there is a copy. Returns
/// the path of the copy, or `None` if copying failed: the copy is only for inspection, and its failure must
/// not keep a readable log from opening.
pub(super) fn quarantine(disk: &dyn Disk, dir: &Path, first: Sequence) -> Option<PathBuf> {
    let quarantine = dir.join(QUARANTINE);
    let from = segment::path_of(dir, first);
    let copy = segment::path_of(&quarantine, first);
    if disk.metadata(&copy).is_ok() {
        return Some(copy);
    }
    let partial = copy.with_extension("partial");
    let write = || -> io::Result<()> {
        disk.create_dir_all(&quarantine)?;
        if disk.metadata(&partial).is_ok() {
            disk.remove(&partial)?;
        }
        let target = disk.create_new(&partial)?;
        copy_file(&*disk.open(&from)?, &*target)?;
        target.sync_data()?;
        disk.rename(&partial, &copy)?;
        disk.sync_dir(&quarantine)?;
        disk.sync_dir(dir)
    };
    write().is_ok().then_some(copy)
}

fn copy_file(from: &dyn DiskFile, to: &dyn DiskFile) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let read = from.read_at(&mut buffer, offset)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        to.write_all_at(bytes, offset)?;
        offset += segment::to_u64(read);
    }
}
