//! The set of segments that writer, readers and truncation share: [`WalFiles`]. It knows which
//! file holds which sequences, and nothing of what is inside the files.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::storage::disk::Disk;
use crate::storage::disk::DiskFile;
use crate::storage::wal::Sequence;
use crate::storage::wal::WalError;
use crate::storage::wal::reader::Reader;
use crate::storage::wal::segment;
use crate::storage::wal::spare;

/// Directory inside the log's for copies of damaged segments.
const QUARANTINE: &str = "quarantine";

/// What is copied at once into the quarantine.
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
    /// Average of the last syncs; 0 before the first.
    bytes_per_sync: AtomicU64,
}

#[derive(Debug)]
struct List {
    /// Oldest first. Only the last one may be written.
    segments: Vec<Segment>,
    /// Records up to here are durable elsewhere, and may be gone from the log.
    durable_elsewhere: Sequence,
    /// The last sequence that was taken when the log was opened.
    end: Sequence,
}

/// One file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Sequence of its first record.
    pub(super) first: Sequence,
    /// Length of the file, unused room included.
    pub(super) len_bytes: u64,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the segment that begins with `first`. It ends with `last`; `None` for the newest one.
    Segment { first: Sequence, last: Option<Sequence> },
    /// In no segment: it was removed because it is durable elsewhere. `oldest` is still there.
    Removed { oldest: Sequence },
    /// In no segment, though it should be: those up to `last` are missing.
    Missing { last: Sequence },
}

impl WalFiles {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        segments: Vec<Segment>,
        (durable_elsewhere, end): (Sequence, Sequence),
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

    /// Bytes that the log takes on the disk, reserved ones included; copies in quarantine are not
    /// counted.
    pub fn size_bytes(&self) -> u64 {
        self.shared.list.lock().segments.iter().map(|segment| segment.len_bytes).sum()
    }

    /// The record before the first that may be in the log. Without a segment, the last sequence that
    /// was taken.
    pub fn before_oldest(&self) -> Sequence {
        let list = self.shared.list.lock();
        list.segments.first().map_or(list.end, |segment| segment.first.previous())
    }

    /// Removes the segments whose records all are at or before `through`, which must be durable
    /// elsewhere, and returns the bytes that this freed. The newest segment always stays.
    ///
    /// Each removal is durable before the next, so that what remains is in one piece.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`]; some of the segments may be gone. Calling again is safe.
    pub fn truncate_through(&self, through: Sequence) -> Result<u64, WalError> {
        let shared = &*self.shared;
        let mut freed = 0;
        while let Some(segment) = self.removable(through) {
            let path = segment::path_of(&shared.dir, segment.first);
            match shared.disk.remove(&path) {
                Ok(()) => {}
                // Another call was faster, or an earlier one failed after it.
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

    /// Makes a spare for the next segment, of `segment_bytes`, if there is none. `goes_on` is asked
    /// every megabyte whether to go on, and may take its time. For one thread of its own; spares
    /// count as no part of the log.
    ///
    /// # Errors
    ///
    /// [`WalError::Io`]. The log goes on without a spare.
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

    /// Makes sure that the next segment can be begun: that there is a spare, and that files can be
    /// created. For the thread that keeps the spare; says whether that is so.
    ///
    /// # Errors
    ///
    /// What the disk says.
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

    /// Whether a spare was made, or found, since the last was taken. Costs no call of the system.
    pub(super) fn has_spare(&self) -> bool {
        self.shared.has_spare.load(Ordering::Relaxed)
    }

    /// Takes note that the spare, if there was one, is taken.
    pub(super) fn forget_spare(&self) {
        self.shared.has_spare.store(false, Ordering::Relaxed);
    }

    /// How much a sync makes durable, about; `None` before the first.
    pub fn bytes_per_sync(&self) -> Option<u64> {
        Some(self.shared.bytes_per_sync.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Takes note of a sync, for the average. For the writer alone.
    pub(super) fn note_sync(&self, bytes: u64) {
        let average = &self.shared.bytes_per_sync;
        let before = self.bytes_per_sync().unwrap_or(bytes);
        average.store(
            (before.saturating_mul(15).saturating_add(bytes) / 16).max(1),
            Ordering::Relaxed,
        );
    }

    /// A reader of the records behind `after`.
    pub fn reader(&self, after: Sequence) -> Reader {
        Reader::new(self.clone(), after)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    pub(super) fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Adds the segment that the writer has begun.
    pub(super) fn push(&self, segment: Segment) {
        self.shared.list.lock().segments.push(segment);
    }

    pub(super) fn locate(&self, wanted: Sequence) -> Place {
        let list = self.shared.list.lock();
        let after = list.segments.partition_point(|segment| segment.first <= wanted);
        let next = list.segments.get(after).map(|segment| segment.first);
        let at = after.checked_sub(1).and_then(|at| list.segments.get(at));
        if let Some(segment) = at {
            return Place::Segment { first: segment.first, last: next.map(Sequence::previous) };
        }
        // Without a segment, the first one will begin behind all sequences that are taken.
        let oldest = next.unwrap_or(list.end.max(list.durable_elsewhere).next());
        if wanted <= list.durable_elsewhere || oldest <= wanted {
            Place::Removed { oldest }
        } else {
            Place::Missing { last: oldest.previous() }
        }
    }

    fn removable(&self, through: Sequence) -> Option<Segment> {
        let mut list = self.shared.list.lock();
        list.durable_elsewhere = list.durable_elsewhere.max(through);
        let [oldest, next, ..] = list.segments.as_slice() else { return None };
        (next.first.previous() <= through).then_some(*oldest)
    }

    /// Whether `first` was still in the list.
    fn forget(&self, first: Sequence) -> bool {
        let mut list = self.shared.list.lock();
        let before = list.segments.len();
        list.segments.retain(|segment| segment.first != first);
        list.segments.len() < before
    }
}

/// Copies the segment that begins with `first` into the quarantine, unless a copy is there.
/// Returns its path, or `None` if that failed: the copy is evidence, and a log that can be read
/// must not stay closed for want of it.
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
