//! The write-ahead log: records with gapless sequences in segment files, durable once
//! [`writer::Wal::sync`] returns. This file has the types that its modules share. The payload of a record is
//! opaque to all of them.
//!
//! | module | contents |
//! |---|---|
//! | `frame` | byte format of segment headers and frames |
//! | `segment` | one segment file: name, creation, cursor over its frames |
//! | `spare` | preallocated file for the next segment |
//! | `recovery` | repair at open: end of the log, torn writes, corruption |
//! | `writer`, `reader` | append and sync; reading in order |
//! | `verify` | read-only check of a log that is not opened |
//! | `files` | list of segments, shared by writer, readers and truncation |
//!
//! # Durability
//!
//! - A segment takes frames only after its header and its name are durable. The writer starts a new segment
//!   only after the previous one is durable. Unsynced bytes are in the newest segment only.
//! - The writer starts a new segment after every start. Its header contains its first sequence, which
//!   fixes the end of the previous segment: the rest of a torn write after that end need not be erased,
//!   and is never mistaken for lost records.
//! - Every frame contains the last sequence that was durable when it was written. So records missing before
//!   it are either lost (that sequence proves that they were acknowledged) or unconfirmed (they belong to
//!   the same unsynced batch: writes reach a disk in any order). The two are reported as different damage.
//! - Opening rewrites the last batch of the newest segment before it syncs it: after a failed sync and a
//!   restart of the process alone, the page cache shows bytes that are not on the disk.

pub mod files;
pub(crate) mod frame;
pub mod reader;
mod recovery;
mod segment;
mod spare;
pub mod verify;
pub mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::{fmt, io};

use weir_base::error::Kind;
use weir_disk::is_out_of_descriptors;

/// Log sequence: the number of a record. The first is 1, there are no gaps, and 0 stands for "no record".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next sequence.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The previous sequence; 0 for 0.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Directory of the log, and size of its segments.
#[derive(Clone, Debug)]
pub struct WalSettings {
    /// Directory of the segments, and of copies of damaged ones in `quarantine/`. Created if
    /// missing.
    pub dir: PathBuf,
    /// Size of a segment in bytes, preallocated when it is created. A larger record gets a segment of its
    /// own.
    pub segment_max_bytes: u64,
}

/// Log positions of the stores that are derived from the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// All records up to this sequence are durable in other stores, so the log may have been truncated up
    /// to it. Later records that are in no segment are lost.
    pub durable: Sequence,
    /// The highest sequence in any store. The log does not assign it or a lower one again.
    pub seen: Sequence,
}

impl Elsewhere {
    /// All records up to `sequence` are durable in other stores, which contain no later one.
    pub fn up_to(sequence: Sequence) -> Self {
        Self { durable: sequence, seen: sequence }
    }
}

/// Result of recovery at open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The last assigned sequence: every record up to it is durable, in the log or in other stores, or is
    /// listed in `corruptions`.
    pub last: Sequence,
    /// Bytes after the last record that no record follows: a torn write, which was never acknowledged.
    pub torn_bytes: u64,
    /// Damage in the newest segment, and records that are missing before the oldest segment or after
    /// the newest. Older segments are not read at open; a [`reader::Reader`] reports their damage, and this
    /// damage again.
    pub corruptions: Vec<Corruption>,
}

/// Where a record of a log is, which consists of files: segments, or objects of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordLocation {
    /// In the file whose first record is `first`, if its header does not say something else. `last` is the last record that
    /// may be in it; `None` for the newest file, which has no end yet.
    File { first: Sequence, last: Option<Sequence> },
    /// In no file: it was truncated, because it is durable in other stores. The log goes on at `oldest`.
    Removed { oldest: Sequence },
    /// In no file, though it was never truncated: the records up to `last` are missing, or all.
    Missing { last: Option<Sequence> },
}

/// A damaged place of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The segment file, or the directory if the file itself is missing.
    pub path: PathBuf,
    /// Byte offset at which the damage starts.
    pub offset: u64,
    /// What is lost.
    pub damage: Damage,
    /// Path of a copy of the segment for manual inspection; `None` if the copy failed.
    pub copy: Option<PathBuf>,
}

/// The effect of damage on records. Ranges include both ends.
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
    /// These records are missing before others of the same batch, and nothing in the segment proves
    /// whether that batch was acknowledged. Usually a power cut during a sync.
    Unconfirmed {
        /// The first of them.
        first: Sequence,
        /// The last of them.
        last: Sequence,
    },
}

impl Damage {
    /// The last record that cannot be read; `None` if all records can be read.
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
                "records {first} to {last} cannot be read; either they were never acknowledged, or \
                 they are lost"
            ),
        }
    }
}

/// Error of a log operation.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The disk failed. If it was a write or a sync, the log is poisoned now.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A new segment cannot be created: no disk space, no descriptor, no permission. Nothing was written; the
    /// next attempt may succeed.
    #[error("cannot begin a segment of {bytes} bytes in the log")]
    NoSegment {
        /// Size of the segment.
        bytes: u64,
        /// The error of the operating system.
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
    /// An earlier write or sync failed. The contents of the disk are unknown until the next open.
    #[error("the log rejects appends since a write or sync of it failed; restart the server")]
    Poisoned,
    /// A newer version of the program wrote the segment.
    #[error(
        "{} was made by a newer Weir: it has format version {version}, and this version reads those up to {known}",
        path.display()
    )]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version of this program.
        known: u32,
    },
    /// Another server has taken over a log in an object store. Nothing more is durable that is appended here.
    #[error("another server has taken the log over")]
    Fenced,
    /// The object store failed, or the process ends before the outcome of a put is known.
    #[error("cannot {action} the log in the object store")]
    Store {
        /// The failed operation, as a verb.
        action: &'static str,
        /// Its failure.
        #[source]
        source: object_store::Error,
    },
    /// The newest objects of a log in an object store are gone.
    #[error(
        "the log in the object store ends with record {end}, and files or persons have records up to {seen}: its newest \
         objects are missing. Restore them; or, if they are lost for good, remove all objects of the log, and the next \
         start begins another one"
    )]
    CutOff {
        /// The last record in the log.
        end: Sequence,
        /// The last record that other stores have.
        seen: Sequence,
    },
    /// The record was removed, because it is durable elsewhere.
    #[error("record {wanted} is no longer in the log, which begins at {oldest}")]
    Truncated {
        /// The requested record.
        wanted: Sequence,
        /// The oldest record in the log.
        oldest: Sequence,
    },
}

impl WalError {
    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { .. }
            | Self::Poisoned
            | Self::Version { .. }
            | Self::Fenced
            | Self::Store { .. }
            | Self::CutOff { .. } => Kind::Unavailable,
            Self::NoSegment { .. } => Kind::Overloaded,
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Truncated { .. } => Kind::NotFound,
        }
    }

    /// Whether a file could not be opened because the process is out of descriptors: the file exists, and
    /// can be read later.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_descriptors(source))
    }

    /// Adds the operation and the path to an I/O error, for `map_err`.
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }
}
