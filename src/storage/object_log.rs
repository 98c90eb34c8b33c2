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
//! | `follow` | what another process has put since |
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
pub mod follow;
mod format;
pub mod list;
mod put;
pub mod reader;
mod rivals;
mod settings;
pub mod writer;

#[cfg(test)]
mod tests;

use object_store::ObjectStore;

pub use crate::object_log::rivals::Rivals;
pub use crate::object_log::settings::{DIRECTORY, Doubt, ObjectLogSettings, Pauses};
use crate::wal::WalError;

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
