//! The log in an object store: a chain of objects, each one group of records, put under the number of its first record
//! only if nothing is there ([`writer::ObjectLog`]). A record is durable once its object is put. This file has the types
//! that its modules share. The payload of a record is opaque to all of them.
//!
//! | module | contents |
//! |---|---|
//! | `format` | bytes of an object |
//! | `list` | the objects, shared by writer, readers and truncation |
//! | `rivals` | whether another writer has taken the log over |
//! | `put` | a put that is repeated until its outcome is known |
//! | `claim` | opening: who takes the log over, and shuts the former writer out |
//! | `writer`, `reader` | append and sync; reading in order |
//!
//! # One writer, without clocks
//!
//! The writer puts one object at a time, at the number after its last record. Who takes the log over puts a *claim*, an
//! object with one record, at the first free number. If a put of the former writer comes first, the claim finds the number
//! taken, and is tried behind it: that put is in the log which the new writer reads. If the claim comes first, the next put
//! of the former writer finds the number taken, whenever it arrives, and it never acknowledges again
//! ([`WalError::Fenced`]).
//!
//! Truncation frees numbers, so three rules keep a put that was delayed for long from finding one free:
//!
//! - A writer begins no put before it knows the outcome of the one before.
//! - Claims and the newest object are never removed.
//! - Who has put a claim lists once more. An object behind the claim means that the log had gone on, and was truncated,
//!   after the first list, or that another claim has followed: the claim is void, and who has put it gives up.
//!
//! `tests/explored.rs` runs this code in all orders of the requests of several writers.
//!
//! # A put whose outcome is unknown
//!
//! It is repeated, with the same bytes and name, until the store says that it is done, or that something is there: then the
//! header of what is there tells whose it is. If it is gone again, it was an object of this writer that the next one has
//! read and truncated: only a claim can be there of another writer, and claims stay.
//!
//! # What is required of the store
//!
//! Put if absent, reads and lists that show each completed put. `storage/probe.rs` checks it when a bucket is opened.

mod claim;
mod format;
pub mod list;
mod put;
pub mod reader;
mod rivals;
pub mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use uuid::Uuid;

pub use crate::object_log::rivals::Rivals;
use crate::wal::{Elsewhere, Sequence, WalError};

/// Directory of the objects, below the prefix of the store.
pub const DIRECTORY: &str = "log";

/// Whether there is a log.
///
/// # Errors
///
/// [`WalError::Store`].
pub async fn exists(objects: &dyn ObjectStore) -> Result<bool, WalError> {
    let listed = list::list(objects).await;
    let listed = listed.map_err(|source| WalError::Store { action: "look for", source })?;
    Ok(!listed.is_empty())
}

/// Waits between two attempts of a request, of which the number is given, from 0. False ends the attempts, as when the
/// process ends.
#[derive(Clone)]
pub struct Pauses(Arc<dyn Fn(u32) -> BoxFuture<'static, bool> + Send + Sync>);

impl Pauses {
    /// Waits as `wait` does.
    pub fn new(wait: impl Fn(u32) -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wait))
    }

    async fn pause(&self, attempt: u32) -> bool {
        (self.0)(attempt).await
    }
}

impl fmt::Debug for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pauses")
    }
}

/// Whether the outcome of a put is unknown, for those who watch the log.
pub type Doubt = Arc<dyn Fn(bool) + Send + Sync>;

/// What a log is opened with.
#[derive(Clone)]
pub struct ObjectLogSettings {
    /// The store; [`DIRECTORY`] in it has the objects.
    pub objects: Arc<dyn ObjectStore>,
    /// Names this opening of the log; never used before.
    pub writer: Uuid,
    /// Payload of the record in the claim.
    pub claim: Bytes,
    /// Log positions of the stores that are derived from the log.
    pub elsewhere: Elsewhere,
    /// The last record that all of them have: the log is needed from the next one on.
    pub had_by_all: Sequence,
    /// Waits between attempts.
    pub pauses: Pauses,
    /// Is told when the outcome of a put is unknown, and when it is known.
    pub doubt: Doubt,
}

impl fmt::Debug for ObjectLogSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectLogSettings").field("writer", &self.writer).finish_non_exhaustive()
    }
}
