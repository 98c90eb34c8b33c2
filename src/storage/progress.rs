//! Watch channel with the highest published log sequence. Publication sets it; queries wait on it to read
//! their own writes. Neither side depends on the other.

use tokio::sync::watch;

use crate::storage::wal::Sequence;

/// Progress of the write path.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Of a running server.
    Live {
        /// The newest published record.
        published: watch::Receiver<Sequence>,
        /// Whether the replay of the log at start is finished.
        ready: watch::Receiver<bool>,
    },
    /// Of a data directory without writes: nothing to wait for.
    Still,
}
