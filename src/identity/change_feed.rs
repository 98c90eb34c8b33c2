//! Change feed of persons: a snapshot, and the persons of all projects changed since the previous one, new ones
//! included. For copies of all persons, whose readers ask who is not in them as now.
//!
//! # Why no change is missed
//!
//! The writer records which stored rows a batch changes before it commits the batch. A reader takes
//! its snapshot under the lock of these records. At that time every batch but the last recorded one
//! is committed, so the snapshot contains it. The counters of the snapshot show whether it contains
//! the last one; if not, the changes of that batch stay for the next call.

pub(super) mod registry;

use crate::IdentityError;
use crate::person_set::PersonSet;
use crate::store::Identities;
use crate::view::View;

pub use crate::change_feed::registry::Watched;

/// A change feed: the persons that changed since the previous call. Opened by [`Identities::watch`]; closed when it is
/// dropped.
pub struct ChangeFeed {
    identities: Identities,
    id: u64,
}

impl Identities {
    /// Opens a change feed of the persons of all projects, starting at the returned view. Waits for a running
    /// [`Identities::apply`].
    pub fn watch(&self, watched: Watched) -> (ChangeFeed, View) {
        let (id, view) = self.register_feed(watched);
        (ChangeFeed { identities: self.clone(), id }, view)
    }
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeFeed").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ChangeFeed {
    /// A view, and the persons that came, changed or were removed since the previous view of the feed. It
    /// may contain persons that did not change.
    ///
    /// # Errors
    ///
    /// If the database fails; no change is lost then.
    pub fn changes(&mut self) -> Result<(View, PersonSet), IdentityError> {
        self.identities.feed().changes(self.id, || self.identities.view())
    }
}

impl Drop for ChangeFeed {
    fn drop(&mut self) {
        self.identities.feed().unregister(self.id);
    }
}
