//! How far the write path is, and the wait of readers for it (read-your-writes). Neither the write path nor readers
//! depend on each other: both depend on this.
//!
//! [`Progress`] has watch channels with the highest durable and the highest published log sequence; publication sets
//! them. [`Latest`] has the highest durable sequence of each project, so that answers are cached as long as nothing new
//! is there for their project. [`ReadBarrier`](barrier::ReadBarrier) waits until the identity store has applied what was
//! published.

pub mod barrier;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use weir_storage::wal::Sequence;

/// Progress of the write path.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Of a running server.
    Live {
        /// The newest published record.
        published: watch::Receiver<Sequence>,
        /// The newest durable record. During the replay of the log at start it is ahead of the newest published one.
        durable: watch::Receiver<Sequence>,
        /// Whether the replay of the log at start is finished.
        ready: watch::Receiver<bool>,
        /// The newest durable record of each project.
        latest: Latest,
    },
    /// Of a data directory without writes: nothing to wait for.
    Still,
}

/// The newest durable record of each project since the start, by the project's number. Clones share one.
#[derive(Clone, Debug, Default)]
pub struct Latest(Arc<RwLock<HashMap<i64, Sequence>>>);

impl Progress {
    /// Waits until every record is published that is durable now, and returns the newest published one; `None` for a data
    /// directory without writes, or if nobody publishes any more. During the replay at start that may take long.
    pub async fn published(&self) -> Option<Sequence> {
        let Self::Live { published, durable, ready, .. } = self else { return None };
        let (mut published, mut ready, wanted) =
            (published.clone(), ready.clone(), *durable.borrow());
        // A live server publishes a record before it acknowledges it. Where the log is damaged, nothing is published.
        while !*ready.borrow_and_update() {
            let newest = *published.borrow_and_update();
            if newest >= wanted {
                return Some(newest);
            }
            tokio::select! {
                changed = published.changed() => changed.ok()?,
                changed = ready.changed() => changed.ok()?,
            }
        }
        let newest = *published.borrow();
        Some(newest)
    }
}

impl Latest {
    /// Notes a record of a project. To be called once [`Progress::Live::published`] has it, or during the replay at start
    /// [`Progress::Live::durable`], and before the record is acknowledged: for what is read here, [`Progress::published`]
    /// waits.
    pub fn note(&self, project: i64, sequence: Sequence) {
        let mut latest = self.0.write();
        let own = latest.entry(project).or_insert(sequence);
        *own = sequence.max(*own);
    }

    /// The newest record of a project; 0 without one since the start.
    pub fn of(&self, project: i64) -> Sequence {
        self.0.read().get(&project).copied().unwrap_or(Sequence(0))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures::poll;
    use tokio::sync::watch;

    use super::{Latest, Progress};
    use weir_storage::wal::Sequence;

    /// Goal: a reader waits for what was durable when it came, and for nothing else; for nothing at all where nothing is
    /// lacking.
    #[tokio::test]
    async fn readers_wait_for_what_is_durable() {
        let (published, seen) = watch::channel(Sequence(5));
        let (durable, seen_durable) = watch::channel(Sequence(5));
        let (ready, is_ready) = watch::channel(false);
        let latest = Latest::default();
        let progress =
            Progress::Live { published: seen, durable: seen_durable, ready: is_ready, latest };
        let told = |sequence| Poll::Ready(Some(Sequence(sequence)));
        assert_eq!(poll!(pin!(progress.published())), told(5));
        durable.send_replace(Sequence(7));
        let mut first = pin!(progress.published());
        assert_eq!(poll!(&mut first), Poll::Pending);
        durable.send_replace(Sequence(9));
        let mut second = pin!(progress.published());
        published.send_replace(Sequence(6));
        assert_eq!((poll!(&mut first), poll!(&mut second)), (Poll::Pending, Poll::Pending));
        published.send_replace(Sequence(7));
        assert_eq!((poll!(&mut first), poll!(&mut second)), (told(7), Poll::Pending));
        // The last two records are damaged.
        ready.send_replace(true);
        assert_eq!(poll!(&mut second), told(7));
        assert_eq!(poll!(pin!(progress.published())), told(7));
        ready.send_replace(false);
        let mut left = pin!(progress.published());
        assert_eq!(poll!(&mut left), Poll::Pending);
        drop((published, ready));
        assert_eq!(poll!(&mut left), Poll::Ready(None));
        assert_eq!(poll!(pin!(Progress::Still.published())), Poll::Ready(None));
    }

    #[test]
    fn each_project_has_its_newest_record() {
        let latest = Latest::default();
        for (project, sequence) in [(1, 4), (2, 7), (1, 9), (1, 8)] {
            latest.clone().note(project, Sequence(sequence));
        }
        let of = |project| latest.of(project).0;
        assert_eq!((of(1), of(2), of(3)), (9, 7, 0));
    }
}
