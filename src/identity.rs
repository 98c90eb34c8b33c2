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
mod illegal;
mod overlay;
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
pub mod view;
pub mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::error::Kind;

/// Why the state could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The database failed. After a failed write it refuses all others until it is opened again.
    #[error("identity database failed")]
    Database(#[from] fjall::Error),
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
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Database(_) | Self::Format { .. } | Self::NotNoted => Kind::Unavailable,
            Self::Damaged { .. } | Self::Encode(_) => Kind::Internal,
            Self::Behind { .. } => Kind::Timeout,
        }
    }
}
