//! Who is who: persons, their distinct ids, groups.
//!
//! Ingest turns the events of one log record into a [`change::Record`]; [`Identities::apply`] folds
//! records into the state, in log order, on one thread; everybody else reads. No HTTP, no event
//! columns, no log in here.
//!
//! The road: `change` (what arrives) -> `decide` (the rules, pure) -> `overlay` (the rows one call
//! touches) -> `tables` (one atomic batch). Readers take a [`view::View`].
//!
//! # Why
//!
//! A person's uuid is a pure function of project and first distinct id ([`PersonId::of`]), so events
//! get their person without a look-up. For every distinct id `d` of a person `p`, the overrides hold
//! `PersonId::of(d)` -> `p` unless the two are equal; so the uuid an event was stored with, mapped
//! once, is always the person that owns the event's distinct id today.
//!
//! # Rebuilding
//!
//! The state is derived from the log. It needs no sync of its own: `applied_sequence` is in the same
//! batch as the rows, so after a crash the caller replays the log from there, and records that are
//! already in the state are skipped. A damaged state is rebuilt by deleting its directory, opening
//! it again (`applied_sequence` is 0) and replaying from the first record. The log may be cut only
//! up to what [`Identities::persist`] returned; rows older than the log then have to come from the
//! persons table before the replay.
//!
//! [`PersonId::of`]: crate::event::id::PersonId::of
//! [`Identities::apply`]: store::Identities::apply
//! [`Identities::persist`]: store::Identities::persist

mod cache;
mod codec;
mod filter;
mod hurry;
mod illegal;
mod loaded;
mod overlay;
mod reading;
mod survivors;
mod tables;

pub mod bits;
pub mod change;
pub mod decide;
pub mod deletions;
pub mod lifted;
pub mod overrides;
pub mod person;
pub mod row;
pub mod store;
pub mod verify;
pub mod view;
pub mod watch;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Kind;

/// Why the state could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The database failed. After a failed write it refuses all others until it is opened again; see
    /// [`Identities::reopen`](store::Identities::reopen).
    #[error("identity database failed")]
    Database(#[from] fjall::Error),
    /// The database is closed, to be opened again.
    #[error("identity state is being opened again")]
    Reopening,
    /// A sync of the database failed, and not for want of space: what was written before may be lost
    /// although it can still be read.
    #[error("a sync of the identity database failed; check the disk, then restart")]
    Unsynced,
    /// A file of the database is not what was written, so the database does not open.
    #[error(
        "the identity store in {} is damaged: persons, distinct ids and groups cannot be read. Events \
         and the log are not affected. Restore the directory from a backup; or, without one, move it \
         away and start again: persons are then rebuilt from the log, which goes back to the last \
         flush at most, and requests to delete events that are not done yet have to be made again",
        directory.display()
    )]
    Unreadable {
        /// Where it is.
        directory: PathBuf,
        /// What the database says.
        #[source]
        source: fjall::Error,
    },
    /// A row cannot be what it is. Delete the directory and replay the log.
    #[error("identity row is damaged: {what}")]
    Damaged {
        /// Which row or field.
        what: &'static str,
    },
    /// The directory was written by another version of Weir.
    #[error("identity state has format {found}, this version reads {expected}")]
    Format {
        /// The format on disk.
        found: u64,
        /// The one format that this version reads and writes.
        expected: u64,
    },
    /// A row could not be written as JSON.
    #[error("identity row cannot be encoded")]
    Encode(#[from] serde_json::Error),
    /// What an operator did could not be written down, so it was not done either.
    #[error("a change of persons could not be written down")]
    NotNoted,
    /// The state did not reach the sequence in time.
    #[error("identity state has not reached sequence {sequence} within {waited:?}")]
    Behind {
        /// The sequence that was waited for.
        sequence: u64,
        /// For how long.
        waited: Duration,
    },
}

impl IdentityError {
    /// Whether it may pass once the state was opened again.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Database(_) | Self::Reopening | Self::NotNoted)
    }

    /// What opening the database in `directory` met.
    fn of_open(error: Self, directory: &Path) -> Self {
        match error {
            Self::Database(source) if is_damage(&source) => {
                Self::Unreadable { directory: directory.to_path_buf(), source }
            }
            error => error,
        }
    }

    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Database(_)
            | Self::Reopening
            | Self::Unsynced
            | Self::Unreadable { .. }
            | Self::Format { .. }
            | Self::NotNoted => Kind::Unavailable,
            Self::Damaged { .. } | Self::Encode(_) => Kind::Internal,
            Self::Behind { .. } => Kind::Timeout,
        }
    }
}

/// Whether the contents of files are wrong, and not the access to them.
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
