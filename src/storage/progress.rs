//! Watch channel with the highest published log sequence. Publication sets it; queries wait on it to read
//! their own writes. Neither side depends on the other. [`Latest`] has the highest sequence of each project, so that
//! answers are kept as long as nothing new is there for their project.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
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
        /// The newest published record of each project.
        latest: Latest,
    },
    /// Of a data directory without writes: nothing to wait for.
    Still,
}

/// The newest published record of each project, by the project's number. Clones share one.
#[derive(Clone, Debug, Default)]
pub struct Latest(Arc<RwLock<HashMap<i64, Sequence>>>);

impl Latest {
    /// Notes that a record of a project is published. To be called after [`Progress::Live::published`] has it, and
    /// before the record is acknowledged: who reads a sequence here can wait for it there.
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
    use super::Latest;
    use crate::storage::wal::Sequence;

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
