//! Hash keys that persons keep across a login, for flags with experience continuity.
//!
//! They are in the metadata store because it is the only store that is durable before the answer
//! and not derived from the log: after an answered login the values survive a crash. Rows belong to
//! distinct ids, not to persons. So they follow their id through merges and splits, and can be
//! written before the first event of the id arrives.

use tokio::sync::oneshot;

use weir_event::id::ProjectId;

mod operations;

/// Most distinct ids of one person that are looked up, beside the one of the request. More ids mean
/// that many people share one id.
pub const IDS_MAX: usize = 100;

/// A hash key to store, unless the distinct id has one for the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHashKey {
    /// The project.
    pub project: ProjectId,
    /// The distinct id.
    pub distinct_id: String,
    /// The key of the flag.
    pub flag_key: String,
    /// The value that is hashed instead of the distinct id.
    pub hash_key: String,
}

/// Rows that wait for the next write, each with the sender that notifies its caller.
pub(super) type Waiting = Vec<(Vec<NewHashKey>, oneshot::Sender<()>)>;
