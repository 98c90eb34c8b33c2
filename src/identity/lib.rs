//! Identity resolution: persons, their distinct ids, groups.
//!
//! Ingest turns the events of one log record into a [`change::Record`]. [`Identities::apply`]
//! applies records to the state, in log order, on one thread; all other threads only read. No HTTP,
//! no event columns, no log in here.
//!
//! Write path: `change` (input) -> `decide` (the rules, pure) -> `write_set` (the rows of one
//! batch) -> `tables` (one atomic batch). Readers take a [`view::View`], a snapshot.
//!
//! # Why
//!
//! A person's uuid is a pure function of the project and the first distinct id ([`PersonId::of`]),
//! so an event gets its person without a look-up. For every distinct id `d` of a person `p`, the
//! overrides map `PersonId::of(d)` to `p` unless the two are equal. So the uuid that an event was
//! stored with, mapped once, is always the person that owns the event's distinct id today.
//!
//! # Rebuilding
//!
//! The state is derived from the log and needs no sync of its own. `applied_sequence` is in the
//! same batch as the rows: after a crash the caller replays the log from there, and records that
//! are already in the state are skipped. To rebuild a damaged state, delete its directory, open it
//! again (`applied_sequence` is 0) and replay from the first record. The log may be cut only up to
//! what [`Identities::persist`] returned; rows older than the log then have to come from the
//! persons table before the replay.
//!
//! [`PersonId::of`]: weir_event::id::PersonId::of
//! [`Identities::apply`]: store::Identities::apply
//! [`Identities::persist`]: store::Identities::persist

mod cache;
mod codec;
mod filter;
mod gone;
mod hurry;
mod illegal;
mod loaded;
mod purge;
mod reading;
mod survivors;
mod tables;
mod write_set;

pub mod auto_set;
pub mod change;
pub mod change_feed;
pub mod decide;
pub mod deletions;
pub mod image;
pub mod limits;
pub mod overrides;
pub mod person;
pub mod person_set;
pub mod property_replay;
pub mod row;
pub mod store;
pub mod verify;
pub mod view;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_base::error::Kind;

/// The file of a database with its format.
const DATABASE_FORMAT: &str = "version";

/// Why the state could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The database failed. After a failed write it rejects all others until it is reopened; see
    /// [`Identities::reopen`](store::Identities::reopen).
    #[error("identity database failed")]
    Database(#[from] fjall::Error),
    /// The database is closed and is being reopened.
    #[error("identity state is being opened again")]
    Reopening,
    /// A sync of the database failed for another reason than a full disk. Earlier writes may be
    /// lost although they can still be read.
    #[error("a sync of the identity database failed; check the disk, then restart")]
    Unsynced,
    /// A file of the database is damaged, so the database does not open.
    #[error(
        "the identity store in {} is damaged: persons, distinct ids and groups cannot be read. Events \
         and the log are not affected. Restore the directory from a backup; or, without one, move it \
         away and start again: persons are then rebuilt from the log, which goes back to the last \
         flush at most, and requests to delete events that are not done yet have to be made again",
        directory.display()
    )]
    Unreadable {
        /// The directory of the database.
        directory: PathBuf,
        /// The database's error.
        #[source]
        source: fjall::Error,
    },
    /// A row is corrupt. Delete the directory and replay the log.
    #[error("identity row is damaged: {what}")]
    Damaged {
        /// Which row or field.
        what: &'static str,
    },
    /// The directory was written by a newer version of Weir.
    #[error(
        "the identity store was made by a newer Weir: it has format {found}, and this version reads {expected}"
    )]
    Format {
        /// The format on disk.
        found: u64,
        /// The newest format that this version reads, and the one that it writes.
        expected: u64,
    },
    /// The directory was written by a newer version of Weir, whose database has another format.
    #[error(
        "the identity store in {} was made by a newer Weir: its database has a format that this version does not read",
        directory.display()
    )]
    Newer {
        /// The directory of the database.
        directory: PathBuf,
        /// The database's error.
        #[source]
        source: fjall::Error,
    },
    /// An image of the store could not be made.
    #[error("cannot make an image of the identity store: {}", path.display())]
    Image {
        /// The file or directory.
        path: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// A row could not be written as JSON.
    #[error("identity row cannot be encoded")]
    Encode(#[from] serde_json::Error),
    /// The activity entry of an operator's operation could not be written, so the operation was not
    /// applied.
    #[error("a change of persons could not be written down")]
    NotNoted,
    /// The state did not reach the sequence in time.
    #[error("identity state has not reached sequence {sequence} within {waited:?}")]
    Behind {
        /// The sequence that was waited for.
        sequence: u64,
        /// The timeout.
        waited: Duration,
    },
}

impl IdentityError {
    /// Whether the error may pass after the state is reopened.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Database(_) | Self::Reopening | Self::NotNoted)
    }

    /// Whether a newer version of the program wrote the state.
    pub fn is_of_newer(&self) -> bool {
        matches!(self, Self::Format { .. } | Self::Newer { .. })
    }

    /// Adds the directory to a damage error of opening the database.
    fn of_open(error: Self, directory: &Path) -> Self {
        match error {
            Self::Database(source) if is_newer(&source, directory) => {
                Self::Newer { directory: directory.to_path_buf(), source }
            }
            Self::Database(source) if is_damage(&source) => {
                Self::Unreadable { directory: directory.to_path_buf(), source }
            }
            error => error,
        }
    }

    /// The class of the error for the receiver.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Database(_)
            | Self::Reopening
            | Self::Unsynced
            | Self::Unreadable { .. }
            | Self::Format { .. }
            | Self::Newer { .. }
            | Self::Image { .. }
            | Self::NotNoted => Kind::Unavailable,
            Self::Damaged { .. } | Self::Encode(_) => Kind::Internal,
            Self::Behind { .. } => Kind::Timeout,
        }
    }
}

/// Whether a database in `directory` does not open because it has a later format than this version of it writes. A file
/// of some bytes says which: the letters `FJL`, and a number.
fn is_newer(error: &fjall::Error, directory: &Path) -> bool {
    match error {
        fjall::Error::InvalidVersion(None) => {
            let written = std::fs::read(directory.join(DATABASE_FORMAT)).unwrap_or_default();
            let number = written.strip_prefix(b"FJL").and_then(|rest| rest.first());
            number.is_some_and(|number| *number > u8::from(fjall::FormatVersion::V3))
        }
        fjall::Error::Storage(fjall::LsmError::InvalidVersion(version)) => {
            *version > u8::from(fjall::FormatVersion::V3)
        }
        _ => false,
    }
}

/// Whether the contents of files are damaged, as opposed to the access to them failing.
fn is_damage(error: &fjall::Error) -> bool {
    let is_contents = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
    };
    match error {
        fjall::Error::Io(error) => is_contents(error),
        fjall::Error::Storage(error) => {
            let source = std::error::Error::source(error);
            source.and_then(|source| source.downcast_ref()).is_none_or(is_contents)
        }
        fjall::Error::Locked | fjall::Error::Poisoned | fjall::Error::KeyspaceDeleted => false,
        _ => true,
    }
}
