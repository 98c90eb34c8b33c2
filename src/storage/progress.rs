//! How far the log is published, as readers of what is derived from it see it. Set by whoever
//! publishes, waited for by whoever answers; neither knows the other.

use tokio::sync::watch;

use crate::storage::wal::Sequence;

/// How far the road of writes has got.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A running server's: the newest published record, and whether the replay is over.
    Live {
        /// The newest published record.
        published: watch::Receiver<Sequence>,
        /// Whether the log of before the start is published.
        ready: watch::Receiver<bool>,
    },
    /// Nothing moves any more.
    Still,
}
