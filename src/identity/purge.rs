//! Removes the rows of deleted projects ([`Identities::purge_projects`]). Nothing reads them any more, so that this is no
//! change of the state.
//!
//! An older state, such as that of an image, has the rows and lacks the mark: the replay of the log makes it again.

use crate::change_feed::registry::ChangeFeeds;
use crate::loaded::{Writer, load_gone};
use crate::person_set::Place;
use crate::store::Identities;
use crate::tables::Tables;
use crate::{IdentityError, codec};
use weir_event::id::ProjectId;

/// Rows that one batch removes.
const PURGE_AT_ONCE: usize = 10_000;

impl Identities {
    /// Whether the deletion of a project was applied.
    pub fn has_deleted(&self, project: ProjectId) -> bool {
        self.gone().contains(&project)
    }

    /// Removes all rows of deleted projects, in small batches. Returns whether none is left: `goes_on` is called between two
    /// batches, and may end it.
    ///
    /// # Errors
    ///
    /// If the database fails; what was removed stays removed.
    pub fn purge_projects(&self, goes_on: impl Fn() -> bool) -> Result<bool, IdentityError> {
        let all = load_gone(&*self.tables()?)?;
        for (project, _) in all.into_iter().filter(|(_, gone)| gone.done_at.is_none()) {
            while self.purge_part(project)? {
                if !goes_on() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Removes some rows of a deleted project. Returns whether there were any.
    fn purge_part(&self, project: ProjectId) -> Result<bool, IdentityError> {
        self.with_writer(|writer, feed| {
            let tables = self.tables()?;
            let mut batch = tables.database.batch();
            let mut left = PURGE_AT_ONCE;
            // First, as each of these requests has a row in another keyspace.
            for prefix in codec::META_OF_PROJECTS {
                for entry in tables.meta.prefix(codec::meta_key(prefix, project)).take(left) {
                    batch.remove(&tables.meta, entry.key()?);
                    left -= 1;
                }
            }
            let mut persons: Vec<Place> = Vec::new();
            for keyspace in tables.of_projects() {
                for entry in keyspace.prefix(codec::key(project, &[])).take(left) {
                    let key = entry.key()?;
                    if keyspace.name() == tables.persons.name() {
                        persons.push(codec::decode_person_key(&key)?);
                    }
                    batch.remove(keyspace, key);
                    left -= 1;
                }
            }
            if left == PURGE_AT_ONCE {
                return Ok(false);
            }
            tables.commit(batch)?;
            for (_, number) in &persons {
                writer.caches.forget_row(*number);
            }
            // After the commit: nobody asks for these persons, and a copy of all has them for a moment longer.
            if feed.is_watched() {
                feed.note(writer.counters.point(), |_| persons.clone());
            }
            Ok(true)
        })
    }

    /// Whether no row of a project is left.
    pub(super) fn is_purged(tables: &Tables, project: ProjectId) -> bool {
        let mut metas = codec::META_OF_PROJECTS.into_iter();
        metas.all(|prefix| tables.meta.prefix(codec::meta_key(prefix, project)).next().is_none())
            && tables
                .of_projects()
                .into_iter()
                .all(|keyspace| keyspace.prefix(codec::key(project, &[])).next().is_none())
    }

    /// Runs `work` while no record is applied.
    fn with_writer<T>(&self, work: impl FnOnce(&Writer, &ChangeFeeds) -> T) -> T {
        let writer = self.writer();
        work(&writer, self.feed())
    }
}
