//! Log recovery at open: finds the end of the log, and distinguishes torn writes from corruption. The only
//! code that repairs; it never removes a readable frame.
//!
//! | newest segment | decision |
//! |---|---|
//! | no valid header, followed by zeros | its creation was interrupted: removed |
//! | no frame, and no evidence of one | nothing in it was acknowledged: removed |
//! | frames, then bytes that no frame follows | torn write: ignored, counted |
//! | frames, then damage, then frames | corruption: copied, reported; all frames count |
//! | no valid header, followed by other bytes | corruption: copied, reported, kept |
//!
//! After a removal the previous segment is the newest one.

use std::io;
use std::path::{Path, PathBuf};

use crate::wal::files::Segment;
use crate::wal::frame::{FRAMES_START, FrameHeader, Prefix};
use crate::wal::segment::Cursor;
use crate::wal::{
    Corruption, Damage, Elsewhere, Recovered, Sequence, WalError, files, frame, segment,
};
use weir_disk::Disk;

/// Bytes per write when the last batch is rewritten.
const REWRITE_BYTES: usize = 1 << 20;

/// Finds the end of the log in `dir`. When this returns, records up to [`Recovered::last`] are durable in the
/// log or in other stores, or reported as missing.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    elsewhere: Elsewhere,
) -> Result<(Vec<Segment>, Recovered), WalError> {
    create_dir(disk, dir).map_err(WalError::io("create", dir))?;
    let mut segments = list(disk, dir).map_err(WalError::io("list", dir))?;
    let mut recovered = Recovered::default();
    // The name of a removed segment proves that all records before its first sequence were durable.
    let mut proven = Sequence::default();
    // The last record that the log or the other stores contain.
    let mut held = elsewhere.durable;
    while let Some(newest) = segments.last().copied() {
        let path = segment::path_of(dir, newest.first);
        let mut inspection =
            Inspection { disk, dir, path: &path, newest, recovered: &mut recovered };
        match inspection.run().map_err(|failure| failure.at(&path))? {
            Some(last) => {
                held = held.max(last);
                break;
            }
            None => {
                disk.remove(&path).map_err(WalError::io("remove", &path))?;
                proven = proven.max(newest.first.previous());
                segments.pop();
            }
        }
    }
    let mut missing = |first: Sequence, last: Sequence| {
        if first <= last {
            let damage = Damage::Lost { first, last };
            let path = dir.to_path_buf();
            recovered.corruptions.push(Corruption { path, offset: 0, damage, copy: None });
        }
    };
    let used = proven.max(elsewhere.seen);
    missing(held.next(), used);
    if let Some(oldest) = segments.first() {
        missing(elsewhere.durable.next(), oldest.first.previous());
    }
    recovered.last = held.max(used);
    Ok((segments, recovered))
}

/// Creates `dir` and makes its name and those of its parents durable. Parents that this process may not open
/// belong to somebody else and existed before.
fn create_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.create_dir_all(dir)?;
    for above in dir.ancestors().skip(1) {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match disk.sync_dir(above) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    Ok(())
}

/// The segments, oldest first. Other files are ignored.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<Segment>> {
    let entries = disk.list(dir)?;
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let mut segments: Vec<Segment> = files
        .filter_map(|entry| {
            let first = segment::first_of(&entry.path)?;
            Some(Segment { first, len_bytes: entry.len_bytes })
        })
        .collect();
    segments.sort_unstable_by_key(|segment| segment.first);
    Ok(segments)
}

/// Contents of a segment.
pub(super) enum Looked {
    /// No record, and no evidence of one.
    Empty,
    /// The header is lost, so records cannot be recognized. Their last sequence is at most `last`.
    Unreadable { last: Sequence },
    /// Valid records, and the places of damaged ones.
    Frames { records: u64, end: u64, last: Sequence, damages: Vec<(u64, Damage)> },
}

/// Reads a segment and repairs nothing.
pub(super) fn look(
    disk: &dyn Disk,
    dir: &Path,
    segment: Segment,
) -> Result<(PathBuf, Looked), WalError> {
    let path = segment::path_of(dir, segment.first);
    let mut recovered = Recovered::default();
    let inspection =
        Inspection { disk, dir, path: &path, newest: segment, recovered: &mut recovered };
    let looked = inspection.look().map_err(|failure| failure.at(&path))?;
    Ok((path, looked))
}

/// Why an inspection ended early.
enum Failure {
    Io(io::Error),
    Version(u32),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    fn at(self, path: &Path) -> WalError {
        match self {
            Self::Io(source) => WalError::io("recover", path)(source),
            Self::Version(version) => {
                WalError::Version { path: path.to_path_buf(), version, known: frame::VERSION }
            }
        }
    }
}

/// Inspection of one segment, at open the newest.
struct Inspection<'log> {
    disk: &'log dyn Disk,
    dir: &'log Path,
    path: &'log Path,
    newest: Segment,
    recovered: &'log mut Recovered,
}

/// Result of reading the frames of a segment.
struct Frames {
    /// Sequence of the last valid frame; the sequence before the segment if there is none.
    last: Sequence,
    /// The highest sequence that any frame proves to have been durable.
    durable: Sequence,
    /// Offset of the end of the last valid frame.
    end: u64,
    /// Offset of the last batch: the first of the frames with the same durable sequence as the last frame.
    /// All earlier frames were synced successfully.
    batch_start: u64,
    /// Damage that is followed by valid frames, with the records that are missing.
    holes: Vec<Hole>,
    /// Number of valid frames.
    records: u64,
}

impl Frames {
    /// Reports frames that are missing at the end although a header proves that they were durable.
    fn note_missing_end(&mut self) {
        if self.durable > self.last {
            let (first, last) = (self.last.next(), self.durable);
            self.holes.push(Hole { offset: self.end, first, last });
            self.last = last;
        }
    }

    fn damages(&self) -> impl Iterator<Item = (u64, Damage)> {
        self.holes.iter().map(|Hole { offset, first, last }| {
            let (first, last) = (*first, *last);
            let damage = match self.durable >= first {
                true => Damage::Lost { first, last },
                false => Damage::Unconfirmed { first, last },
            };
            (*offset, damage)
        })
    }
}

struct Hole {
    offset: u64,
    first: Sequence,
    last: Sequence,
}

impl Inspection<'_> {
    /// Returns the last sequence that the segment has used; `None` if it can be removed.
    fn run(&mut self) -> Result<Option<Sequence>, Failure> {
        let (mut cursor, prefix) = Cursor::open(self.disk, self.path, self.newest.first)?;
        match prefix {
            Prefix::Valid(_) | Prefix::Damaged(_) => {}
            Prefix::Version(version) => return Err(Failure::Version(version)),
            Prefix::Invalid if cursor.end_of_bytes(FRAMES_START)? == FRAMES_START => {
                return Ok(None);
            }
            Prefix::Invalid => return Ok(Some(self.give_up(&cursor))),
        }
        let mut frames = self.read(&mut cursor)?;
        self.recovered.torn_bytes += cursor.end_of_bytes(frames.end)? - frames.end;
        if frames.end == FRAMES_START && frames.durable < self.newest.first {
            return Ok(None);
        }
        frames.note_missing_end();
        if matches!(prefix, Prefix::Damaged(_)) {
            self.report(0, Damage::Header);
        }
        for (offset, damage) in frames.damages() {
            self.report(offset, damage);
        }
        settle(&mut cursor, frames.batch_start, frames.end)?;
        Ok(Some(frames.last))
    }

    /// The same as [`Self::run`] without a repair.
    fn look(&self) -> Result<Looked, Failure> {
        let (mut cursor, prefix) = Cursor::open(self.disk, self.path, self.newest.first)?;
        match prefix {
            Prefix::Valid(_) | Prefix::Damaged(_) => {}
            Prefix::Version(version) => return Err(Failure::Version(version)),
            Prefix::Invalid if cursor.end_of_bytes(FRAMES_START)? == FRAMES_START => {
                return Ok(Looked::Empty);
            }
            Prefix::Invalid => return Ok(Looked::Unreadable { last: self.last_possible(&cursor) }),
        }
        let mut frames = self.read(&mut cursor)?;
        let header = matches!(prefix, Prefix::Damaged(_)).then_some((0, Damage::Header));
        frames.note_missing_end();
        let damages = header.into_iter().chain(frames.damages()).collect();
        let Frames { records, end, last, .. } = frames;
        Ok(Looked::Frames { records, end, last, damages })
    }

    /// Walks all frames.
    fn read(&self, cursor: &mut Cursor) -> io::Result<Frames> {
        let before = self.newest.first.previous();
        let mut frames = Frames {
            last: before,
            durable: before,
            end: FRAMES_START,
            batch_start: FRAMES_START,
            holes: Vec::new(),
            records: 0,
        };
        let mut batch = before;
        loop {
            let wanted = frames.last.next();
            let Some((offset, header)) = self.next_frame(cursor, &mut frames)? else {
                return Ok(frames);
            };
            if header.sequence > wanted {
                let last = header.sequence.previous();
                frames.holes.push(Hole { offset: frames.end, first: wanted, last });
            }
            if header.durable != batch {
                batch = header.durable;
                frames.batch_start = offset;
            }
            frames.durable = frames.durable.max(header.durable);
            frames.records += 1;
            frames.last = header.sequence;
            frames.end = offset + header.frame_bytes();
        }
    }

    /// The next valid frame, possibly after damage.
    fn next_frame(
        &self,
        cursor: &mut Cursor,
        frames: &mut Frames,
    ) -> io::Result<Option<(u64, FrameHeader)>> {
        let (offset, wanted) = (frames.end, frames.last.next());
        let mut search_from = offset + 1;
        if let Some(header) = cursor.header(offset)? {
            if header.sequence >= wanted && cursor.payload(offset, &header)?.is_some() {
                return Ok(Some((offset, header)));
            }
            search_from = offset + header.frame_bytes();
            frames.durable = frames.durable.max(header.durable);
        }
        let search = cursor.find(search_from, wanted..=self.limit(offset, wanted))?;
        frames.durable = frames.durable.max(search.durable);
        Ok(search.found)
    }

    /// The highest sequence that fits into the segment if `wanted` is at `offset`.
    fn limit(&self, offset: u64, wanted: Sequence) -> Sequence {
        let free_bytes = self.newest.len_bytes.saturating_sub(offset);
        Sequence(wanted.0.saturating_add(free_bytes / frame::frame_bytes(0)))
    }

    /// Handles a lost header: without the salt no frame can be recognized. Keeps the file unchanged, and
    /// treats every sequence that it could contain as used.
    fn give_up(&mut self, cursor: &Cursor) -> Sequence {
        let (first, last) = (self.newest.first, self.last_possible(cursor));
        self.report(0, Damage::Lost { first, last });
        last
    }

    fn last_possible(&self, cursor: &Cursor) -> Sequence {
        let free_bytes = cursor.len_bytes().saturating_sub(FRAMES_START);
        Sequence(self.newest.first.0.saturating_add(free_bytes / frame::frame_bytes(0)))
    }

    fn report(&mut self, offset: u64, damage: Damage) {
        let copy = files::quarantine(self.disk, self.dir, self.newest.first);
        let path = self.path.to_path_buf();
        self.recovered.corruptions.push(Corruption { path, offset, damage, copy });
    }
}

/// Makes the last batch durable. It may be only in the page cache, and marked as clean there if its sync
/// failed. Rewriting it makes the pages dirty, so that the sync writes them to the disk.
fn settle(cursor: &mut Cursor, start: u64, end: u64) -> io::Result<()> {
    let file = cursor.file();
    let mut offset = start;
    while offset < end {
        let rest = segment::to_usize(end - offset)?;
        let mut bytes = vec![0; rest.min(REWRITE_BYTES)];
        let read = file.read_at(&mut bytes, offset)?;
        bytes.truncate(read);
        file.write_all_at(&bytes, offset)?;
        offset += segment::to_u64(read.max(1));
    }
    file.sync_data()
}
