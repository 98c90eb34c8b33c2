//! The recorded changes of all open feeds: written by the writer before each commit, taken by the feeds.

use parking_lot::Mutex;

use crate::IdentityError;
use crate::codec::Point;
use crate::person_set::{PersonKey, PersonSet};
use crate::view::View;

/// Which changes of persons a feed is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Of their rows or their distinct ids.
    Persons,
    /// Of their distinct ids and uuids alone, which change much less often than properties.
    DistinctIds,
}

/// The recorded changes of all open feeds.
#[derive(Default)]
pub(crate) struct ChangeFeeds {
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    last_id: u64,
    feeds: Vec<OpenFeed>,
}

struct OpenFeed {
    id: u64,
    watched: Watched,
    /// Persons changed by batches that have been committed.
    committed: PersonSet,
    /// Persons changed by the last recorded batch.
    latest: Vec<PersonKey>,
    /// The state after that batch.
    point: Point,
}

impl OpenFeed {
    fn commit_latest(&mut self) {
        self.latest.drain(..).for_each(|place| self.committed.insert(place));
    }
}

impl ChangeFeeds {
    /// Whether any feed is open. Only the writer may call it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.registry.lock().feeds.is_empty()
    }

    /// Records whom the batch leading to `point` changes, of each kind of change. The writer calls it before the
    /// commit; a purge of deleted projects, which leads to no other point, after it.
    pub(crate) fn note(&self, point: Point, changed: impl Fn(Watched) -> Vec<PersonKey>) {
        for feed in &mut self.registry.lock().feeds {
            feed.commit_latest();
            feed.point = point;
            feed.latest.extend(changed(feed.watched));
        }
    }

    /// Opens a feed. Must not run between the record of a batch and its commit.
    pub(crate) fn register(&self, watched: Watched) -> u64 {
        let mut registry = self.registry.lock();
        registry.last_id += 1;
        let (id, committed) = (registry.last_id, PersonSet::default());
        let point = Point::default();
        registry.feeds.push(OpenFeed { id, watched, committed, latest: Vec::new(), point });
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
    ) -> Result<(View, PersonSet), IdentityError> {
        let mut registry = self.registry.lock();
        let view = view();
        let point = view.counters()?.point();
        let Some(own) = registry.feeds.iter_mut().find(|feed| feed.id == id) else {
            return Ok((view, PersonSet::default()));
        };
        if own.point <= point {
            own.commit_latest();
        }
        Ok((view, std::mem::take(&mut own.committed)))
    }

    /// Closes a feed.
    pub(super) fn unregister(&self, id: u64) {
        self.registry.lock().feeds.retain(|feed| feed.id != id);
    }
}
