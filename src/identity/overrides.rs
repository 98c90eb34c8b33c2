//! Which person an event belongs to today, given the person it was stored with.
//!
//! One entry per distinct id that is not its person's first. No chains: every entry names the final
//! survivor, because a merge moves all distinct ids of the source and writes an entry for each.
//!
//! # Why
//!
//! Readers hold a whole version, so a change makes a new one. To keep that cheap with millions of
//! entries there are two maps: a large one that versions share, and a small one of recent entries
//! that is copied; when the small one has grown to an eighth of the large one they are joined.
//! About 60 bytes per entry: the one part of the identity state that grows in memory with the data.

use std::sync::Arc;

use hashbrown::HashMap;
use uuid::Uuid;

use crate::event::id::ProjectId;

/// Recent entries are joined with the others from this number on.
const RECENT_MIN: usize = 1024;

type Entries = HashMap<(ProjectId, Uuid), Uuid>;

/// All overrides, as of some applied sequence.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    base: Arc<Entries>,
    recent: Entries,
    len: usize,
}

impl Overrides {
    pub(super) fn new(entries: impl Iterator<Item = ((ProjectId, Uuid), Uuid)>) -> Self {
        let base: Entries = entries.collect();
        Self { len: base.len(), base: Arc::new(base), recent: Entries::new() }
    }

    /// The person that events stored with `person` belong to; `person` itself if it was not merged.
    pub fn resolve(&self, project: ProjectId, person: Uuid) -> Uuid {
        self.get(project, person).unwrap_or(person)
    }

    /// The person that replaces `person`, if one does.
    pub fn get(&self, project: ProjectId, person: Uuid) -> Option<Uuid> {
        let key = (project, person);
        self.recent.get(&key).or_else(|| self.base.get(&key)).copied()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All entries `((project, person), survivor)`, each once, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ((ProjectId, Uuid), Uuid)> + '_ {
        let older = self.base.iter().filter(|(key, _)| !self.recent.contains_key(*key));
        self.recent.iter().chain(older).map(|(key, survivor)| (*key, *survivor))
    }

    /// The next version, with `changes` over this one.
    pub(super) fn with(&self, changes: impl Iterator<Item = ((ProjectId, Uuid), Uuid)>) -> Self {
        let mut next = self.clone();
        for (key, survivor) in changes {
            let is_new =
                next.recent.insert(key, survivor).is_none() && !next.base.contains_key(&key);
            next.len += usize::from(is_new);
        }
        if next.recent.len() >= RECENT_MIN.max(next.base.len() / 8) {
            let recent = std::mem::take(&mut next.recent);
            let mut base = (*next.base).clone();
            base.extend(recent);
            next.base = Arc::new(base);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::Overrides;
    use super::RECENT_MIN;
    use crate::event::id::ProjectId;

    fn entry(from: u128, to: u128) -> ((ProjectId, Uuid), Uuid) {
        ((ProjectId(1), Uuid::from_u128(from)), Uuid::from_u128(to))
    }

    /// Goal: entries neither vanish nor come back when the two maps are joined.
    #[test]
    fn versions_are_independent_and_later_entries_win() {
        let empty = Overrides::default();
        assert!(empty.is_empty());
        let limit = u128::try_from(RECENT_MIN).expect("small");
        let mut version = empty.clone();
        let mut kept = Vec::new();
        for i in 0..3 * limit {
            version = version.with([entry(i, 1), entry(i / 2, i)].into_iter());
            if i == limit / 2 {
                kept.push(version.clone());
            }
        }
        assert_eq!(version.len(), usize::try_from(3 * limit).expect("small"));
        assert_eq!(version.iter().count(), version.len());
        let survivor = version.get(ProjectId(1), Uuid::from_u128(10));
        assert_eq!(survivor, Some(Uuid::from_u128(21)));
        let kept_len = usize::try_from(limit / 2 + 1).expect("small");
        assert_eq!(kept.first().map(Overrides::len), Some(kept_len));
        assert_eq!(version.get(ProjectId(2), Uuid::from_u128(10)), None);
        let unmerged = Uuid::from_u128(u128::MAX);
        assert_eq!(version.resolve(ProjectId(1), unmerged), unmerged);
        assert!(empty.is_empty());
    }
}
