//! The write-ahead log of SQLite beside the metadata store: whether commits in it are lost ([`lost_changes`]). SQLite does not
//! miss a log that was removed, and reads one up to the first frame whose checksum is wrong: it takes all behind it for a torn
//! write, without a word. A frame behind it that is right, and of the same log, tells a damaged frame from the end.
//!
//! The format is that of <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>. Nothing is changed here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Bytes of the header of the log, and of that of a frame.
const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The magic number of a log whose checksums are of little-endian words; with the lowest bit set, of big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// A checksum: two sums that go on from frame to frame.
type Sums = [u32; 2];

/// How the newest changes of a store were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostChanges {
    /// The log was removed.
    Removed,
    /// So many commits are behind a damaged frame. The last one may never have been acknowledged, if the system failed while
    /// it was written.
    Damaged {
        /// Their number.
        commits: usize,
    },
}

impl fmt::Display for LostChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed => f.write_str("it was removed, and the last changes with it"),
            Self::Damaged { commits } => {
                write!(f, "it is damaged, and {commits} changes behind the damage are lost")
            }
        }
    }
}

/// Whether the newest changes of the store at `path` are lost. Call this before the store is opened, which creates an empty
/// log.
///
/// # Errors
///
/// The log cannot be read.
pub(super) fn lost_changes(path: &Path) -> io::Result<Option<LostChanges>> {
    let wal = beside(path, "-wal");
    let commits = match fs::read(&wal) {
        Ok(bytes) => Log::of(&bytes).map_or(0, |log| log.lost_commits()),
        // SQLite removes `-shm` before `-wal` when it closes a store, so it never leaves `-shm` alone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(beside(path, "-shm").exists().then_some(LostChanges::Removed));
        }
        Err(error) => return Err(error),
    };
    Ok((commits > 0).then_some(LostChanges::Damaged { commits }))
}

/// The file of a store with this at the end of its name.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    PathBuf::from(name)
}

/// A log with a header that is right.
struct Log<'b> {
    is_big_endian: bool,
    page_bytes: usize,
    /// What distinguishes its frames from those of former logs in the same file.
    salts: &'b [u8],
    sums: Sums,
    frames: &'b [u8],
}

/// A frame.
struct Frame<'b> {
    is_commit: bool,
    is_of_log: bool,
    /// What its checksum is of.
    summed: [&'b [u8]; 2],
    sums: Sums,
}

impl<'b> Log<'b> {
    fn of(bytes: &'b [u8]) -> Option<Self> {
        let (header, frames) = bytes.split_at_checked(HEADER_BYTES)?;
        let magic = number(header, 0)?;
        let is_big_endian = magic & 1 == 1;
        let page_bytes = usize::try_from(number(header, 8)?).ok()?;
        let sums = [number(header, 24)?, number(header, 28)?];
        let is_right = magic & !1 == MAGIC
            && page_bytes.is_power_of_two()
            && summed([0, 0], header.get(..24)?, is_big_endian) == sums;
        let salts = header.get(16..24)?;
        is_right.then_some(Self { is_big_endian, page_bytes, salts, sums, frames })
    }

    fn lost_commits(&self) -> usize {
        let (mut before, mut is_damaged, mut lost) = (self.sums, false, 0);
        for bytes in self.frames.chunks_exact(FRAME_HEADER_BYTES + self.page_bytes) {
            let Some(frame) = self.frame(bytes) else { break };
            let is_right = frame.is_of_log && self.follows(before, &frame);
            is_damaged |= !is_right;
            // Each frame goes on from the sums that the one before it has stored.
            lost += usize::from(is_damaged && is_right && frame.is_commit);
            before = frame.sums;
        }
        lost
    }

    fn frame(&self, bytes: &'b [u8]) -> Option<Frame<'b>> {
        let (header, page) = bytes.split_at_checked(FRAME_HEADER_BYTES)?;
        Some(Frame {
            is_commit: number(header, 4)? > 0,
            is_of_log: header.get(8..16)? == self.salts,
            summed: [header.get(..8)?, page],
            sums: [number(header, 16)?, number(header, 20)?],
        })
    }

    /// Whether the checksum of a frame is right behind a frame with these sums.
    fn follows(&self, before: Sums, frame: &Frame<'_>) -> bool {
        let sums =
            frame.summed.iter().fold(before, |sums, part| summed(sums, part, self.is_big_endian));
        sums == frame.sums
    }
}

/// The big-endian number at an offset.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_be_bytes)
}

/// The sums of `bytes`, which are pairs of words, behind these.
fn summed([mut first, mut second]: Sums, bytes: &[u8], is_big_endian: bool) -> Sums {
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap_or_default();
        if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    for pair in bytes.chunks_exact(8) {
        let (left, right) = pair.split_at(4);
        first = first.wrapping_add(word(left)).wrapping_add(second);
        second = second.wrapping_add(word(right)).wrapping_add(first);
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FRAME_HEADER_BYTES, HEADER_BYTES, Log, LostChanges, beside, lost_changes};
    use weir_base::clock::{Clock, UnixMicros};
    use weir_metadata::Metadata;
    use weir_metadata::bootstrap::FirstStart;
    use weir_metadata::secrets::Seed;

    /// The log of a store with some commits, as SQLite has written it.
    async fn written() -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata.db");
        let clock = Clock::test(UnixMicros(1_795_248_000_000_000));
        let metadata = Metadata::open(&path, clock).await.unwrap();
        let seed = || Seed::new(&mut rand::rng());
        let started = metadata.bootstrap(FirstStart::default(), &seed()).await.unwrap();
        for _ in 0..4 {
            metadata.create_sign_in_link(started.user.id, &seed()).await.unwrap();
        }
        let bytes = fs::read(directory.path().join("metadata.db-wal")).unwrap();
        metadata.close().await;
        bytes
    }

    fn lost(bytes: &[u8]) -> usize {
        Log::of(bytes).map_or(0, |log| log.lost_commits())
    }

    /// Goal: a damaged frame is told from a torn end, wherever it is.
    #[tokio::test]
    async fn damage_is_told_from_a_torn_end() {
        let whole = written().await;
        let log = Log::of(&whole).expect("a log");
        let frame_bytes = FRAME_HEADER_BYTES + log.page_bytes;
        let frames = (whole.len() - HEADER_BYTES) / frame_bytes;
        let at = |frame: usize| HEADER_BYTES + frame * frame_bytes;
        let frame = |number: usize| log.frame(&whole[at(number)..at(number + 1)]).unwrap();
        let mut sums = log.sums;
        let live = (0..frames)
            .take_while(|number| {
                let own = frame(*number);
                let follows = own.is_of_log && log.follows(sums, &own);
                sums = own.sums;
                follows
            })
            .count();
        let commits: Vec<usize> = (0..live).filter(|number| frame(*number).is_commit).collect();
        assert!(commits.len() >= 5, "{commits:?} of {live}");
        assert_eq!(lost(&whole), 0);
        for number in 0..live {
            for offset in [0, 20, FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + 1000] {
                let mut damaged = whole.clone();
                damaged[at(number) + offset] ^= 0x10;
                // If its own sums are damaged, the next one does not follow either.
                let next = if (16..24).contains(&offset) { number + 2 } else { number + 1 };
                let behind = commits.iter().filter(|commit| **commit >= next).count();
                assert_eq!(lost(&damaged), behind, "frame {number} of {live}, byte {offset}");
            }
            let mut torn = whole.clone();
            torn.truncate(at(number) + 100);
            assert_eq!(lost(&torn), 0, "torn in frame {number}");
        }
        for bytes in [&[][..], &[0; 32], &whole[..20]] {
            assert_eq!(lost(bytes), 0);
        }
        // What is beside a store.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata.db");
        assert_eq!(lost_changes(&path).unwrap(), None, "a new one");
        fs::write(beside(&path, "-shm"), "").unwrap();
        assert_eq!(lost_changes(&path).unwrap(), Some(LostChanges::Removed));
        fs::write(beside(&path, "-wal"), &whole).unwrap();
        assert_eq!(lost_changes(&path).unwrap(), None);
        let mut damaged = whole.clone();
        damaged[at(0) + 100] ^= 1;
        fs::write(beside(&path, "-wal"), &damaged).unwrap();
        let commits = commits.iter().filter(|commit| **commit > 0).count();
        assert_eq!(lost_changes(&path).unwrap(), Some(LostChanges::Damaged { commits }));
    }
}
