//! What a log in an object store is opened with: [`ObjectLogSettings`].

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use uuid::Uuid;

use crate::wal::{Elsewhere, Sequence};

/// Directory of the objects, below the prefix of the store.
pub const DIRECTORY: &str = "log";

/// Waits between two attempts of a request, of which the number is given, from 0. False ends the attempts, as when the
/// process ends.
#[derive(Clone)]
pub struct Pauses(Arc<dyn Fn(u32) -> BoxFuture<'static, bool> + Send + Sync>);

impl Pauses {
    /// Waits as `wait` does.
    pub fn new(wait: impl Fn(u32) -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wait))
    }

    pub(super) async fn pause(&self, attempt: u32) -> bool {
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
