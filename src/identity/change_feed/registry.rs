//! The recorded changes of all open feeds: written by the writer before each commit, taken by the feeds.

use parking_lot::Mutex;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bitmap::Bitmap;
use crate::identity::codec::Point;
use crate::identity::view::View;

/// The recorded changes of all open feeds.
#[derive(Default)]
pub(in crate::identity) struct ChangeFeeds {
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    last_id: u64,
    feeds: Vec<OpenFeed>,
}

struct OpenFeed {
    id: u64,
    project: ProjectId,
    /// Persons changed by batches that have been committed.
    committed: Bitmap,
    has_committed: bool,
    /// Persons changed by the last recorded batch.
    latest: Vec<i64>,
    /// The state after that batch.
    point: Point,
}

impl OpenFeed {
    fn commit_latest(&mut self) {
        self.has_committed |= !self.latest.is_empty();
        for number in self.latest.drain(..) {
            self.committed.insert(usize::try_from(number).unwrap_or(0));
        }
    }
}

impl ChangeFeeds {
    /// Whether any feed is open. Only the writer may call it.
    pub(in crate::identity) fn is_watched(&self) -> bool {
        !self.registry.lock().feeds.is_empty()
    }

    /// Records the rows that the batch leading to `point` changes. The writer calls it before the
    /// commit.
    pub(in crate::identity) fn note(&self, point: Point, changed: &[(ProjectId, i64)]) {
        for feed in &mut self.registry.lock().feeds {
            feed.commit_latest();
            feed.point = point;
            let own = changed.iter().filter(|(project, _)| *project == feed.project);
            feed.latest.extend(own.map(|(_, number)| *number));
        }
    }

    /// Opens a feed. Must not run between the record of a batch and its commit.
    pub(in crate::identity) fn register(&self, project: ProjectId) -> u64 {
        let mut registry = self.registry.lock();
        registry.last_id += 1;
        let (id, committed) = (registry.last_id, Bitmap::default());
        let point = Point::default();
        let feed =
            OpenFeed { id, project, committed, has_committed: false, latest: Vec::new(), point };
        registry.feeds.push(feed);
        id
    }
    /// A view, and the persons of the feed `id` that changed since its previous one. `view` takes the
    /// view, under the lock of the records.
    ///
    /// # Errors
    ///
    /// If the database fails; no change is lost then.
    pub(super) fn changes(
        &self,
        id: u64,
        view: impl FnOnce() -> View,
    ) -> Result<(View, Bitmap), IdentityError> {
        let mut registry = self.registry.lock();
        let view = view();
        let point = view.counters()?.point();
        let Some(own) = registry.feeds.iter_mut().find(|feed| feed.id == id) else {
            return Ok((view, Bitmap::default()));
        };
        if own.point <= point {
            own.commit_latest();
        }
        let has_changes = std::mem::take(&mut own.has_committed);
        let changed =
            if has_changes { std::mem::take(&mut own.committed) } else { Bitmap::default() };
        Ok((view, changed))
    }

    /// Closes a feed.
    pub(super) fn unregister(&self, id: u64) {
        self.registry.lock().feeds.retain(|feed| feed.id != id);
    }
}
