//! Removes the rows of deleted projects ([`Identities::purge_projects`]). Nothing reads them any more, so that this is no
//! change of the state.
//!
//! An older state, such as that of an image, has the rows and lacks the mark: the replay of the log makes it again.

use fjall::{Keyspace, Slice};

use crate::loaded::load_gone;
use crate::person_set::PersonKey;
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
        let tables = self.tables()?;
        let all = load_gone(&tables)?;
        for (project, _) in all.into_iter().filter(|(_, gone)| gone.done_at.is_none()) {
            // First, as each of these requests has a row in another keyspace.
            let metas = codec::META_OF_PROJECTS
                .map(|prefix| (&tables.meta, codec::meta_key(prefix, project)));
            let own = tables.of_projects().map(|keyspace| (keyspace, codec::key(project, &[])));
            for (keyspace, prefix) in metas.into_iter().chain(own) {
                if !self.purge_rows(&tables, (keyspace, &prefix), &goes_on)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Removes the rows of a keyspace whose keys begin with `prefix`. Each batch goes on behind the last key of the one
    /// before: from the start, an iterator would pass the marks of all removed rows again. Returns `false` if `goes_on`
    /// has ended it.
    fn purge_rows(
        &self,
        tables: &Tables,
        (keyspace, prefix): (&Keyspace, &[u8]),
        goes_on: &impl Fn() -> bool,
    ) -> Result<bool, IdentityError> {
        let mut from = prefix.to_vec();
        loop {
            // Without the lock: no record adds such a key any more.
            let mut keys = Vec::new();
            for entry in keyspace.range(from.clone()..).take(PURGE_AT_ONCE) {
                let key = entry.key()?;
                if !key.starts_with(prefix) {
                    break;
                }
                keys.push(key);
            }
            let Some(last) = keys.last() else { return Ok(true) };
            from = [last.as_ref(), &[0]].concat();
            self.remove(tables, keyspace, keys)?;
            if !goes_on() {
                return Ok(false);
            }
        }
    }

    /// Removes rows of deleted projects while no record is applied.
    fn remove(
        &self,
        tables: &Tables,
        keyspace: &Keyspace,
        keys: Vec<Slice>,
    ) -> Result<(), IdentityError> {
        let mut persons: Vec<PersonKey> = Vec::new();
        if keyspace.name() == tables.persons.name() {
            persons =
                keys.iter().map(|key| codec::decode_person_key(key)).collect::<Result<_, _>>()?;
        }
        let mut batch = tables.database.batch();
        keys.into_iter().for_each(|key| batch.remove(keyspace, key));
        let writer = self.writer();
        tables.commit(batch)?;
        for (_, number) in &persons {
            writer.caches.forget_row(*number);
        }
        // After the commit: nobody asks for these persons, and a copy of all has them for a moment longer.
        let feed = self.feed();
        if feed.is_watched() {
            feed.note(writer.counters.point(), |_| persons.clone());
        }
        Ok(())
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
}
