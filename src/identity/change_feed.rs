//! Change feed of persons: a snapshot, and the persons changed since the previous one. For caches
//! of all persons of a project, which are brought up to date at each query.
//!
//! # Why no change is missed
//!
//! The writer records which stored rows a batch changes before it commits the batch. A reader takes
//! its snapshot under the lock of these records. At that time every batch but the last recorded one
//! is committed, so the snapshot contains it. The counters of the snapshot show whether it contains
//! the last one; if not, the changes of that batch stay for the next call. New persons are not
//! recorded: they have the next numbers.

use parking_lot::Mutex;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bitmap::Bitmap;
use crate::identity::codec::Point;
use crate::identity::store::Identities;
use crate::identity::view::View;

/// The recorded changes of all open feeds.
#[derive(Default)]
pub(super) struct ChangeFeeds {
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
    pub(super) fn is_watched(&self) -> bool {
        !self.registry.lock().feeds.is_empty()
    }

    /// Records the rows that the batch leading to `point` changes. The writer calls it before the
    /// commit.
    pub(super) fn note(&self, point: Point, changed: &[(ProjectId, i64)]) {
        for feed in &mut self.registry.lock().feeds {
            feed.commit_latest();
            feed.point = point;
            let own = changed.iter().filter(|(project, _)| *project == feed.project);
            feed.latest.extend(own.map(|(_, number)| *number));
        }
    }

    /// Opens a feed. Must not run between the record of a batch and its commit.
    pub(super) fn register(&self, project: ProjectId) -> u64 {
        let mut registry = self.registry.lock();
        registry.last_id += 1;
        let (id, committed) = (registry.last_id, Bitmap::default());
        let point = Point::default();
        let feed =
            OpenFeed { id, project, committed, has_committed: false, latest: Vec::new(), point };
        registry.feeds.push(feed);
        id
    }
}

/// A change feed: the persons of a project that changed since the previous call. Opened by
/// [`Identities::watch`]; closed when it is dropped.
pub struct ChangeFeed {
    identities: Identities,
    id: u64,
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeFeed").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ChangeFeed {
    pub(super) fn new(identities: Identities, id: u64) -> Self {
        Self { identities, id }
    }

    /// A current view, without the changes up to it.
    pub fn view(&self) -> View {
        self.identities.view()
    }

    /// A view, and the persons that changed or were removed since the previous view of the feed. It
    /// may contain persons that did not change, and it does not contain new ones.
    ///
    /// # Errors
    ///
    /// If the database fails; no change is lost then.
    pub fn changes(&mut self) -> Result<(View, Bitmap), IdentityError> {
        let mut registry = self.identities.feed().registry.lock();
        let view = self.identities.view();
        let point = view.counters()?.point();
        let Some(own) = registry.feeds.iter_mut().find(|feed| feed.id == self.id) else {
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
}

impl Drop for ChangeFeed {
    fn drop(&mut self) {
        self.identities.feed().registry.lock().feeds.retain(|feed| feed.id != self.id);
    }
}
