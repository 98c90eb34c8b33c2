//! Opening: finds the end of the log, and decides what is torn and what is corrupt. The one place
//! that repairs; it never removes a frame that can be read.
//!
//! | newest segment | decision |
//! |---|---|
//! | no valid header, and zeros behind it | its creation was interrupted: removed |
//! | no frame, and no sign that there was one | nothing in it was acknowledged: removed |
//! | frames, then bytes that no frame follows | torn write: ignored, counted |
//! | frames, then damage, then frames | corruption: copied, reported; all frames count |
//! | no valid header, and something behind it | corruption: copied, reported, kept |
//!
//! After a removal the segment before it is the newest one.

use std::io;
use std::path::Path;
use std::path::PathBuf;

use crate::storage::disk::Disk;
use crate::storage::wal::Corruption;
use crate::storage::wal::Damage;
use crate::storage::wal::Elsewhere;
use crate::storage::wal::Recovered;
use crate::storage::wal::Sequence;
use crate::storage::wal::WalError;
use crate::storage::wal::files;
use crate::storage::wal::files::Segment;
use crate::storage::wal::frame;
use crate::storage::wal::frame::FRAMES_START;
use crate::storage::wal::frame::FrameHeader;
use crate::storage::wal::frame::Prefix;
use crate::storage::wal::segment;
use crate::storage::wal::segment::Cursor;

/// What is rewritten at once.
const REWRITE_BYTES: usize = 1 << 20;

/// Finds the end of the log in `dir`. When this returns, records up to [`Recovered::last`] are durable
/// here or elsewhere, or named as missing.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    elsewhere: Elsewhere,
) -> Result<(Vec<Segment>, Recovered), WalError> {
    create_dir(disk, dir).map_err(WalError::io("create", dir))?;
    let mut segments = list(disk, dir).map_err(WalError::io("list", dir))?;
    let mut recovered = Recovered::default();
    // What the name of a removed segment proves: all before its first sequence had been durable.
    let mut proven = Sequence::default();
    // The end of what the log or the other stores hold.
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

/// Creates `dir` and makes its name and those above it durable. Directories that this process may
/// not open are not ours, and older than us.
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

/// The segments, oldest first. Other files are not ours to judge.
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

/// What a segment holds.
pub(super) enum Looked {
    /// No record, and no sign that there was one.
    Empty,
    /// Records that cannot be told from other bytes. The last one is `last` at most.
    Unreadable { last: Sequence },
    /// Records, and where some of them are damaged.
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

/// A look at the newest segment.
struct Inspection<'log> {
    disk: &'log dyn Disk,
    dir: &'log Path,
    path: &'log Path,
    newest: Segment,
    recovered: &'log mut Recovered,
}

/// The frames of a segment, as far as they can be read.
struct Frames {
    /// The last one that is whole; the one before the segment if none is.
    last: Sequence,
    /// The highest sequence that any of them proves to have been durable.
    durable: Sequence,
    /// Where the last whole frame ends.
    end: u64,
    /// Where the last batch begins: the first of the frames that name the same durable sequence
    /// as the last one does. Everything before it was synced with success.
    batch_start: u64,
    /// Damage that whole frames follow, and what is missing in it.
    holes: Vec<Hole>,
    /// How many are whole.
    records: u64,
}

impl Frames {
    /// Frames that are missing at the end though a later header says that they were durable.
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

    /// The next whole frame, which may be behind damage.
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

    /// The last sequence for which there is room if `wanted` is at `offset`.
    fn limit(&self, offset: u64, wanted: Sequence) -> Sequence {
        let room = self.newest.len_bytes.saturating_sub(offset);
        Sequence(wanted.0.saturating_add(room / frame::frame_bytes(0)))
    }

    /// Without the salt no frame can be told from other bytes. Keeps the file as it is, and takes
    /// every sequence that it might hold as used.
    fn give_up(&mut self, cursor: &Cursor) -> Sequence {
        let (first, last) = (self.newest.first, self.last_possible(cursor));
        self.report(0, Damage::Lost { first, last });
        last
    }

    fn last_possible(&self, cursor: &Cursor) -> Sequence {
        let room = cursor.len_bytes().saturating_sub(FRAMES_START);
        Sequence(self.newest.first.0.saturating_add(room / frame::frame_bytes(0)))
    }

    fn report(&mut self, offset: u64, damage: Damage) {
        let copy = files::quarantine(self.disk, self.dir, self.newest.first);
        let path = self.path.to_path_buf();
        self.recovered.corruptions.push(Corruption { path, offset, damage, copy });
    }
}

/// Makes the last batch durable. It may be in the page cache only, and even marked as written
/// there if its sync failed; writing it again is what a sync needs to bring it to the disk.
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
