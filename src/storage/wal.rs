//! The write-ahead log: records with gapless sequences in segment files, durable once
//! [`writer::Wal::sync`] returns. Here: its vocabulary. Nothing in it knows what a record holds.
//!
//! `frame` has the bytes, `segment` a file of them, `spare` the file of the next one, `recovery` what happens at open, `writer` and
//! `reader` the two ways in and out, `verify` a look at a log that stays closed, `files` the set of segments that they share.
//!
//! # Why it can be trusted
//!
//! - A segment takes frames only after its header and its name are durable, and a new one is begun
//!   only after all of the previous one is durable. Unsynced bytes are in the newest segment only.
//! - A new segment is begun after every start. Its header names its first sequence, which says
//!   for ever where the previous one ends: the remains of a torn write behind that end need not be
//!   erased, and are never mistaken for lost records.
//! - Every frame names the last sequence that was durable when it was written. So a hole in front
//!   of it is known to be lost (the sequence was acknowledged) or known to be open (the same
//!   unsynced batch: writes reach a disk in any order). Both are reported, as different things.
//! - Opening writes the last batch of the newest segment again before it syncs it: after a failed
//!   sync and a restart of the process alone, the page cache shows bytes that the disk has not.

pub mod files;
mod frame;
pub mod reader;
mod recovery;
mod segment;
mod spare;
pub mod verify;
pub mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Kind;
use crate::storage::disk::is_out_of_descriptors;

/// The number of a record. The first is 1, there are no gaps, and 0 stands for "nothing".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The one after this.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The one before this; nothing comes before 0.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the log is, and when it begins another file.
#[derive(Clone, Debug)]
pub struct WalSettings {
    /// Directory of the segments, and of copies of damaged ones in `quarantine/`. Created if
    /// missing.
    pub dir: PathBuf,
    /// Size of a segment in bytes, reserved when it is begun. A record that is larger than that
    /// gets a segment of its own.
    pub segment_max_bytes: u64,
}

/// What other stores have of the log's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// All records up to here are durable in other stores, so the log may have been cut up to here.
    /// Records behind it that are in no segment are lost.
    pub durable: Sequence,
    /// The highest sequence that any store has. The log gives out none up to here again.
    pub seen: Sequence,
}

impl Elsewhere {
    /// All records up to `sequence` are durable in other stores, which have none behind it.
    pub fn up_to(sequence: Sequence) -> Self {
        Self { durable: sequence, seen: sequence }
    }
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The last sequence that is taken: every record up to here is durable, in the log or
    /// elsewhere, or is named in `corruptions`.
    pub last: Sequence,
    /// Bytes behind the last record that no record followed: a write that a crash cut short, and
    /// for which nobody got an answer.
    pub torn_bytes: u64,
    /// Damage in the newest segment, and records that are missing before the oldest segment or
    /// behind the newest. Older segments are not read at open; a [`reader::Reader`] reports what it
    /// finds there (and these once more).
    pub corruptions: Vec<Corruption>,
}

/// A place of the log that does not hold what was written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The segment file, or the directory if the file itself is missing.
    pub path: PathBuf,
    /// Where the damage begins, in bytes.
    pub offset: u64,
    /// What it means.
    pub damage: Damage,
    /// A copy of the segment for an inspection by hand; `None` if it could not be made.
    pub copy: Option<PathBuf>,
}

/// What a damaged place means. Ranges include both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One of the two copies of a segment header is damaged. Every record is readable.
    Header,
    /// These records were acknowledged and cannot be read.
    Lost {
        /// The first of them.
        first: Sequence,
        /// The last of them.
        last: Sequence,
    },
    /// These records are missing before others of the same batch, and nothing in the segment says
    /// whether that batch was ever acknowledged. Usually a power cut in the middle of a sync.
    Unconfirmed {
        /// The first of them.
        first: Sequence,
        /// The last of them.
        last: Sequence,
    },
}

impl Damage {
    /// The last record that cannot be read; `None` if all can.
    pub fn last(self) -> Option<Sequence> {
        match self {
            Self::Header => None,
            Self::Lost { last, .. } | Self::Unconfirmed { last, .. } => Some(last),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => {
                write!(f, "one of two copies of the segment's header is damaged; nothing is lost")
            }
            Self::Lost { first, last } => {
                write!(f, "acknowledged records {first} to {last} cannot be read")
            }
            Self::Unconfirmed { first, last } => write!(
                f,
                "records {first} to {last} cannot be read; a write that was never acknowledged, \
                 or damage"
            ),
        }
    }
}

/// Why the log did not do it.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The disk failed. If it was a write or a sync, the log is poisoned now.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// A verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the disk said.
        #[source]
        source: io::Error,
    },
    /// Another segment cannot be begun: no room on the disk, no descriptor, no permission. Nothing was
    /// written; the next try may succeed.
    #[error("cannot begin a segment of {bytes} bytes in the log")]
    NoSegment {
        /// Size of the segment.
        bytes: u64,
        /// What the disk said.
        #[source]
        source: io::Error,
    },
    /// The record is larger than the format allows. Nothing was written.
    #[error("a record of {bytes} bytes exceeds the limit of {max_bytes}")]
    TooLarge {
        /// Size of the record.
        bytes: usize,
        /// The limit.
        max_bytes: u32,
    },
    /// An earlier write or sync failed. What it left on the disk is unknown until the next open.
    #[error("the log takes no records since a write or sync of it failed")]
    Poisoned,
    /// A newer program wrote the segment.
    #[error("{} has format version {version}, and this program knows none above {known}", path.display())]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version of this program.
        known: u32,
    },
    /// The record was removed, because it is durable elsewhere.
    #[error("record {wanted} is no longer in the log, which begins at {oldest}")]
    Truncated {
        /// What was asked for.
        wanted: Sequence,
        /// What is still there.
        oldest: Sequence,
    },
}

impl WalError {
    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { .. } | Self::Poisoned | Self::Version { .. } => Kind::Unavailable,
            Self::NoSegment { .. } => Kind::Overloaded,
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Truncated { .. } => Kind::NotFound,
        }
    }

    /// Whether what was to be read could not be opened for want of a descriptor: it is there, and
    /// can be read later.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_descriptors(source))
    }

    /// Adds what was being done to what, for `map_err`.
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}
