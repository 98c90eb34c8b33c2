//! Change feed of persons: a snapshot, and the persons changed since the previous one. For caches
//! of all persons of a project, which are brought up to date at each query.
//!
//! # Why no change is missed
//!
//! The writer records which stored rows a batch changes before it commits the batch. A reader takes
//! its snapshot under the lock of these records. At that time every batch but the last recorded one
//! is committed, so the snapshot contains it. The counters of the snapshot show whether it contains
//! the last one; if not, the changes of that batch stay for the next call. A feed of one project does not
//! record new persons: they have the next numbers.

pub(super) mod registry;

use crate::IdentityError;
use crate::person_set::PersonSet;
use crate::store::Identities;
use crate::view::View;
use weir_event::id::ProjectId;

/// A change feed: the persons of one project, or of all, that changed since the previous call. Opened by
/// [`Identities::watch`] or [`Identities::watch_all`]; closed when it is dropped.
pub struct ChangeFeed {
    identities: Identities,
    id: u64,
}

impl Identities {
    /// Opens a change feed of the persons of a project, starting at the returned view. Waits for a
    /// running [`Identities::apply`].
    pub fn watch(&self, project: ProjectId) -> (ChangeFeed, View) {
        let (id, view) = self.register_feed(Some(project));
        (ChangeFeed { identities: self.clone(), id }, view)
    }

    /// The same of the persons of all projects, with new ones.
    pub fn watch_all(&self) -> (ChangeFeed, View) {
        let (id, view) = self.register_feed(None);
        (ChangeFeed { identities: self.clone(), id }, view)
    }
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeFeed").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ChangeFeed {
    /// A current view, without the changes up to it.
    pub fn view(&self) -> View {
        self.identities.view()
    }

    /// A view, and the persons that changed or were removed since the previous view of the feed. It
    /// may contain persons that did not change; of one project it does not contain new ones.
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
