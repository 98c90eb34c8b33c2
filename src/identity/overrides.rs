//! Which person an event belongs to today, given the person it was stored with.
//!
//! One entry per distinct id that is not its person's first. No chains: every entry names the final
//! survivor, because a merge moves all distinct ids of the source and writes an entry for each.
//!
//! A split takes entries away. But events of before may be stored under the person they were merged
//! into, whoever of its ids they have: compaction folds survivors into files. So the uuids that the
//! parts of a split person have or ever had are remembered, and an event stored under one of them
//! belongs to whom its distinct id says. That is exact, whatever was folded when: a person's uuid
//! is made from one of its ids, ids part only by a split, and then all of them are remembered.
//!
//! # Why
//!
//! Readers hold a whole version, so a change makes a new one. To keep that cheap with millions of
//! entries there are two maps: a large one that versions share, and a small one of recent entries
//! that is copied; when the small one has grown to an eighth of the large one they are joined.
//! About 60 bytes per entry: the one part of the identity state that grows in memory with the data.

use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::HashSet;
use uuid::Uuid;

use crate::event::id::PersonId;
use crate::event::id::ProjectId;

/// Recent entries are joined with the others from this number on.
const RECENT_MIN: usize = 1024;

type Key = (ProjectId, Uuid);

type Entries = HashMap<Key, Uuid>;

/// All overrides, as of some applied sequence.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    base: Arc<Entries>,
    /// Entries that lead to themselves take those of `base` away.
    recent: Entries,
    len: usize,
    splits: Arc<HashSet<Key>>,
}

impl Overrides {
    pub(super) fn new(
        entries: impl Iterator<Item = (Key, Uuid)>,
        splits: impl Iterator<Item = Key>,
    ) -> Self {
        let base: Entries = entries.collect();
        let splits = Arc::new(splits.collect());
        Self { len: base.len(), base: Arc::new(base), recent: Entries::new(), splits }
    }

    /// The person that events stored with `person` belong to; `person` itself if it was not merged.
    /// Only right for persons that were never split; see [`Overrides::of_event`].
    pub fn resolve(&self, project: ProjectId, person: Uuid) -> Uuid {
        self.get(project, person).unwrap_or(person)
    }

    /// The person that replaces `person`, if one does.
    pub fn get(&self, project: ProjectId, person: Uuid) -> Option<Uuid> {
        let key = (project, person);
        let found = self.recent.get(&key).or_else(|| self.base.get(&key));
        found.copied().filter(|survivor| *survivor != person)
    }

    /// The person that an event belongs to that was stored with `person`, if it is another.
    pub fn of_event(&self, project: ProjectId, person: Uuid, distinct_id: &str) -> Option<Uuid> {
        if !self.splits.contains(&(project, person)) {
            return self.get(project, person);
        }
        let own = PersonId::of(project, distinct_id).0;
        Some(self.resolve(project, own)).filter(|owner| *owner != person)
    }

    /// Whether any person was ever split, so that the distinct ids of events count.
    pub fn has_splits(&self) -> bool {
        !self.splits.is_empty()
    }

    /// Whether every event belongs to the person that it was stored with.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.splits.is_empty()
    }

    /// How many persons are replaced.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All entries `((project, person), survivor)`, each once, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Uuid)> + '_ {
        let older = self.base.iter().filter(|(key, _)| !self.recent.contains_key(*key));
        let all = self.recent.iter().chain(older).map(|(key, survivor)| (*key, *survivor));
        all.filter(|((_, person), survivor)| person != survivor)
    }

    /// The next version, with `changes` over this one; a person that is changed to itself is
    /// replaced no more.
    pub(super) fn with(
        &self,
        changes: impl Iterator<Item = (Key, Uuid)>,
        splits: impl Iterator<Item = Key>,
    ) -> Self {
        let mut next = self.clone();
        for (key, survivor) in changes {
            let was_there = next.get(key.0, key.1).is_some();
            let is_there = survivor != key.1;
            next.recent.insert(key, survivor);
            next.len = next.len + usize::from(is_there) - usize::from(was_there);
        }
        if next.recent.len() >= RECENT_MIN.max(next.base.len() / 8) {
            let recent = std::mem::take(&mut next.recent);
            let mut base = (*next.base).clone();
            base.extend(recent);
            base.retain(|(_, person), survivor| person != survivor);
            next.base = Arc::new(base);
        }
        let mut splits = splits.peekable();
        if splits.peek().is_some() {
            Arc::make_mut(&mut next.splits).extend(splits);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::Overrides;
    use super::RECENT_MIN;
    use crate::event::id::PersonId;
    use crate::event::id::ProjectId;

    fn entry(from: u128, to: u128) -> ((ProjectId, Uuid), Uuid) {
        ((ProjectId(1), Uuid::from_u128(from)), Uuid::from_u128(to))
    }

    /// Beyond all persons that are replaced.
    const FAR: u128 = 1 << 64;

    /// Goal: entries neither vanish nor come back when the two maps are joined.
    #[test]
    fn versions_are_independent_and_later_entries_win() {
        let empty = Overrides::default();
        assert!(empty.is_empty());
        let limit = u128::try_from(RECENT_MIN).expect("small");
        let mut version = empty.clone();
        let mut kept = Vec::new();
        for i in 0..3 * limit {
            version = version
                .with([entry(i, FAR), entry(i / 2, FAR + i)].into_iter(), std::iter::empty());
            if i == limit / 2 {
                kept.push(version.clone());
            }
        }
        assert_eq!(version.len(), usize::try_from(3 * limit).expect("small"));
        assert_eq!(version.iter().count(), version.len());
        let survivor = version.get(ProjectId(1), Uuid::from_u128(10));
        assert_eq!(survivor, Some(Uuid::from_u128(FAR + 21)));
        let kept_len = usize::try_from(limit / 2 + 1).expect("small");
        assert_eq!(kept.first().map(Overrides::len), Some(kept_len));
        assert_eq!(version.get(ProjectId(2), Uuid::from_u128(10)), None);
        let unmerged = Uuid::from_u128(u128::MAX);
        assert_eq!(version.resolve(ProjectId(1), unmerged), unmerged);
        assert!(empty.is_empty());
    }

    /// Goal: what is taken back is as if it had never been, also after the maps are joined.
    #[test]
    fn an_entry_that_leads_to_itself_is_none() {
        let none = std::iter::empty;
        let limit = u128::try_from(RECENT_MIN).expect("small");
        let mut version = Overrides::new((0..limit).map(|i| entry(i, FAR)), none());
        for i in 0..limit {
            version = version.with([entry(i, i), entry(FAR + i, FAR + i)].into_iter(), none());
            assert_eq!(version.get(ProjectId(1), Uuid::from_u128(i)), None);
            let left = usize::try_from(limit - 1 - i).expect("small");
            assert_eq!((version.len(), version.iter().count()), (left, left));
        }
        assert!(version.is_empty() && version.base.is_empty());
    }

    /// Goal: whatever of its persons an event is stored with, its distinct id decides after a split.
    #[test]
    fn events_of_split_persons_go_by_their_distinct_ids() {
        let project = ProjectId(1);
        let own = |id: &str| PersonId::of(project, id).0;
        let merged = [((project, own("b")), own("a")), ((project, own("c")), own("a"))];
        let before = Overrides::new(merged.into_iter(), std::iter::empty());
        let marks = ["a", "b"].map(|id| (project, own(id)));
        let taken_back = [((project, own("b")), own("b"))];
        let after = before.with(taken_back.into_iter(), marks.into_iter());
        for (stored, id, expected_before, expected_after) in [
            ("a", "a", "a", "a"),
            ("b", "b", "a", "b"),
            ("a", "b", "a", "b"),
            ("b", "a", "a", "a"),
            ("a", "c", "a", "a"),
            ("d", "d", "d", "d"),
        ] {
            for (overrides, expected) in [(&before, expected_before), (&after, expected_after)] {
                let owner = overrides.of_event(project, own(stored), id).unwrap_or(own(stored));
                assert_eq!(owner, own(expected), "{id} stored with {stored}");
            }
        }
        assert!(after.has_splits() && !before.has_splits());
    }
}
