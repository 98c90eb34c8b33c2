//! [`Survivors`]: cache of overrides (which person replaces a merged one), of fixed size: a Bloom
//! filter and a cache in front of the database.
//!
//! The cache is filled when the database is opened, as far as it has capacity, and with each
//! change, which may evict unused entries. A query over all events looks up the person of each
//! event, and a look-up in the database takes some 10 µs.
//!
//! # Why a reader gets the right entry for its view
//!
//! A cached answer has a [`Point`] and is right from there until its entry changes. Before the
//! writer commits a batch that changes entries, it replaces their answers with those of the batch
//! and records the point of the change. So a cached answer is right for every view from its point
//! on; older views read the database. An answer that was read from a view older than the last
//! change of its entry is not cached. Only some changes are remembered; views older than those
//! count as having missed one.
//!
//! After a batch that fails, [`Survivors::forget`] is called before the next batch: the database is
//! reopened, perhaps at an earlier point. The records after that point are applied again, and in
//! between two readers may have views of one point from two histories. So each answer and each
//! reader has the [`Opening`] in which it was read: a reader gets no answer of a later opening, and
//! its own answers are not cached in a later one.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use uuid::Uuid;

use crate::codec::Point;
use crate::filter::{Filter, Hash};
use weir_event::id::ProjectId;

/// The uuid of a person as stored with events.
pub(super) type Key = (ProjectId, Uuid);

/// Memory of a cached answer: slab entry, index, and half the ghost of an evicted one. quick_cache
/// 0.7 reports 132 to 141 bytes, depending on how full its index is.
const ENTRY_BYTES: u64 = 140;

/// Changes that are remembered, 48 bytes each.
const CHANGES_MAX: usize = 64 * 1024;

/// The number of reopens of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Opening(u32);

/// The state of the database that a reader sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) point: Point,
    /// Taken before the view: an opening that is too early costs cache hits; one that is too late
    /// may give wrong answers.
    pub(super) opening: Opening,
}

/// The person that replaces another one, or none, from a point on.
#[derive(Clone, Copy, Debug)]
struct Answer {
    survivor: Option<Uuid>,
    since: Point,
    opening: Opening,
}

impl Answer {
    fn is_for(&self, seen: Seen) -> bool {
        self.since <= seen.point && self.opening <= seen.opening
    }
}

/// Filter and cache of the overrides.
pub(super) struct Survivors {
    hasher: RandomState,
    filter: Filter,
    /// Whether the filter contains all overrides that were in the database when it was opened.
    is_filtering: AtomicBool,
    /// Whether there are overrides at all.
    has_any: AtomicBool,
    cache: Cache<Key, Answer, UnitWeighter, foldhash::fast::RandomState>,
    changes: Mutex<Changes>,
}

impl std::fmt::Debug for Survivors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survivors").finish_non_exhaustive()
    }
}

/// A project of which so many changes are remembered makes room for others with them; otherwise all are dropped.
const LARGE: usize = CHANGES_MAX / 16;

#[derive(Default)]
struct Changes {
    /// Those of the projects that had some since `forgotten`.
    projects: HashMap<ProjectId, ChangesOf>,
    /// Changes that are remembered.
    count: usize,
    /// Changes of all projects up to this point may have been dropped.
    forgotten: Point,
    opening: Opening,
}

/// Changes of a project.
#[derive(Default)]
struct ChangesOf {
    /// The batch that changed an entry last.
    latest: HashMap<Uuid, Point>,
    /// Changes up to this point may have been dropped from `latest`.
    forgotten: Point,
}

impl Changes {
    /// Up to which point changes of a project may have been dropped.
    fn forgotten(&self, project: ProjectId) -> Point {
        let own = self.projects.get(&project).map_or(self.forgotten, |own| own.forgotten);
        own.max(self.forgotten)
    }

    /// The batch that changed an entry last, as far as it is known.
    fn latest(&self, (project, person): Key) -> Point {
        let own = self.projects.get(&project).and_then(|own| own.latest.get(&person));
        own.copied().unwrap_or_else(|| self.forgotten(project))
    }

    fn note(&mut self, (project, person): Key, point: Point) {
        if self.count >= CHANGES_MAX {
            self.make_room(point);
        }
        let own = self.projects.entry(project).or_default();
        self.count += usize::from(own.latest.insert(person, point).is_none());
    }

    /// Drops the changes of the project with the most, or all.
    fn make_room(&mut self, point: Point) {
        let most = self.projects.values_mut().max_by_key(|own| own.latest.len());
        match most.filter(|own| own.latest.len() >= LARGE) {
            Some(own) => {
                self.count -= own.latest.len();
                *own = ChangesOf { forgotten: point, ..ChangesOf::default() };
            }
            None => self.drop_all(point),
        }
    }

    fn drop_all(&mut self, point: Point) {
        self.projects.clear();
        (self.count, self.forgotten) = (0, point);
    }
}

impl Survivors {
    /// Uses at most `bytes`, an eighth for the filter. The cache grows only as it is used.
    pub(super) fn new(bytes: u64) -> Self {
        let entries = (bytes - bytes / 8) / ENTRY_BYTES;
        let items = usize::try_from(entries).unwrap_or(usize::MAX);
        let (hasher, life) = (foldhash::fast::RandomState::default(), DefaultLifecycle::default());
        Self {
            hasher: RandomState::default(),
            filter: Filter::new(bytes / 8),
            is_filtering: AtomicBool::new(false),
            has_any: AtomicBool::new(false),
            cache: Cache::with(items, entries, UnitWeighter, hasher, life),
            changes: Mutex::default(),
        }
    }

    fn hash(&self, key: &Key) -> Hash {
        Hash(self.hasher.hash_one((key.0.0, key.1.as_u128())))
    }

    /// Adds an override of the database to the filter.
    pub(super) fn note(&self, key: &Key) {
        self.filter.insert(self.hash(key));
        self.has_any.store(true, Ordering::Release);
    }

    /// Enables the filter: all overrides of the database have been added.
    pub(super) fn begin_to_filter(&self) {
        self.is_filtering.store(true, Ordering::Release);
    }

    /// Whether there may be overrides.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// The number of answers that the cache can hold.
    pub(super) fn capacity(&self) -> u64 {
        self.cache.capacity()
    }

    /// Caches the overrides of the batch that leads to `point`. The writer calls it before the
    /// commit.
    pub(super) fn change(&self, point: Point, entries: impl Iterator<Item = (Key, Option<Uuid>)>) {
        let mut changes = self.changes.lock();
        for (key, survivor) in entries {
            changes.note(key, point);
            self.cache.insert(key, Answer { survivor, since: point, opening: changes.opening });
            self.note(&key);
        }
    }

    /// The current opening of the database.
    pub(super) fn opening(&self) -> Opening {
        self.changes.lock().opening
    }

    /// Caches the override of `key` as a reader's view has it.
    pub(super) fn learn(&self, key: Key, survivor: Option<Uuid>, seen: Seen) {
        let changes = self.changes.lock();
        if changes.latest(key) <= seen.point && changes.opening == seen.opening {
            let Seen { point: since, opening } = seen;
            self.cache.insert(key, Answer { survivor, since, opening });
        }
    }

    /// Starts a new opening: the database was reopened at `point`. Answers from after it are
    /// evicted; the others stay right.
    pub(super) fn forget(&self, point: Point) {
        let mut changes = self.changes.lock();
        changes.drop_all(point);
        changes.opening = Opening(changes.opening.0.saturating_add(1));
        self.cache.retain(|_, answer| answer.since <= point);
    }

    /// The person that replaces `key` in a reader's view; `read` reads it from the database on a
    /// miss.
    pub(super) fn get<E>(
        &self,
        key: Key,
        seen: Seen,
        read: impl FnOnce() -> Result<Option<Uuid>, E>,
    ) -> Result<Option<Uuid>, E> {
        if self.is_filtering.load(Ordering::Acquire) && !self.filter.may_have(self.hash(&key)) {
            return Ok(None);
        }
        if let Some(answer) = self.cache.get(&key)
            && answer.is_for(seen)
        {
            return Ok(answer.survivor);
        }
        let survivor = read()?;
        self.learn(key, survivor, seen);
        Ok(survivor)
    }

    /// The persons of a project of whom the entries may differ between two states; `None` if too many have changed since
    /// the earlier one.
    pub(super) fn changed_between(
        &self,
        project: ProjectId,
        a: Seen,
        b: Seen,
    ) -> Option<Vec<Uuid>> {
        let changes = self.changes.lock();
        let earlier = a.point.min(b.point);
        let is_known = [a, b].iter().all(|seen| seen.opening == changes.opening)
            && changes.forgotten(project) <= earlier;
        is_known.then(|| {
            let changed = changes.projects.get(&project).into_iter().flat_map(|own| &own.latest);
            let changed = changed.filter(|(_, point)| **point > earlier);
            changed.map(|(person, _)| *person).collect()
        })
    }

    /// Cached answers.
    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::codec::Counters;

    fn point(applied: u64) -> Point {
        Counters { applied, ..Counters::START }.point()
    }

    /// What a reader sees before the database is opened again.
    fn seen(applied: u64) -> Seen {
        Seen { point: point(applied), opening: Opening::default() }
    }

    fn key(number: u128) -> Key {
        (ProjectId(1), Uuid::from_u128(number))
    }

    /// Goal: no view gets an answer of another state, in whatever order readers and the writer run.
    #[test]
    fn an_answer_is_right_for_the_view_that_asks() {
        let survivors = Survivors::new(1 << 20);
        let reads = Cell::new(0);
        let get = |number: u128, at: u64, stored: Option<u128>| {
            let read = || {
                reads.set(reads.get() + 1);
                Ok::<_, ()>(stored.map(Uuid::from_u128))
            };
            survivors
                .get(key(number), Seen { opening: survivors.opening(), ..seen(at) }, read)
                .unwrap()
                .map(|uuid| uuid.as_u128())
        };
        let change = |at: u64, number: u128, survivor: u128| {
            survivors
                .change(point(at), [(key(number), Some(Uuid::from_u128(survivor)))].into_iter());
        };
        change(1, 1, 7);
        assert_eq!((get(1, 1, None), reads.get()), (Some(7), 0), "nobody asks for what is told");
        assert_eq!((get(1, 2, None), reads.get()), (Some(7), 0), "it is right for later views");
        assert_eq!((get(1, 0, None), reads.get()), (None, 1), "an older view asks the database");
        assert_eq!(
            (get(1, 2, None), reads.get()),
            (Some(7), 1),
            "which changes nothing for others"
        );
        // It changes with batch 5, which is not committed yet.
        change(5, 1, 9);
        assert_eq!((get(1, 4, Some(7)), reads.get()), (Some(7), 2), "what is new is not given out");
        assert_eq!((get(1, 5, None), reads.get()), (Some(9), 2), "and what is old not taken in");
        survivors.learn(key(1), Some(Uuid::from_u128(7)), seen(4));
        assert_eq!((get(1, 5, None), reads.get()), (Some(9), 2), "from nobody");
        // Enough changes to drop the earlier ones.
        for number in 0..CHANGES_MAX as u128 {
            change(6, 10 + number, number);
        }
        assert_eq!((get(2, 5, Some(3)), reads.get()), (Some(3), 3));
        assert_eq!((get(2, 6, Some(4)), reads.get()), (Some(4), 4), "it may have changed");
        survivors.learn(key(3), Some(Uuid::from_u128(4)), seen(6));
        assert_eq!((get(3, 6, None), reads.get()), (Some(4), 4), "who was told need not ask");
        survivors.forget(point(1));
        assert_eq!((get(2, 1, None), reads.get()), (None, 5), "nothing of a later point is left");
        assert_eq!((get(4, 1, None), get(4, 1, None), reads.get()), (None, None, 6));
        // A person without an override needs no database read.
        survivors.begin_to_filter();
        let before = reads.get();
        let found = (1_000_000..1_001_000).filter(|number| get(*number, 9, None).is_some()).count();
        assert!(found == 0 && reads.get() < before + 500, "{}", reads.get());
        assert_eq!((get(10, 9, Some(5)), survivors.has_any()), (Some(5), true));
    }

    /// Goal: after a reopen at an earlier point, no reader gets answers from after that point, and answers
    /// that slow readers bring from the previous opening are not cached. Unchanged answers stay cached.
    #[test]
    fn histories_do_not_mix() {
        let survivors = Survivors::new(1 << 20);
        let uuid = |number: u128| Some(Uuid::from_u128(number));
        let change = |at: u64, number: u128, survivor: u128| {
            survivors.change(point(at), [(key(number), uuid(survivor))].into_iter());
        };
        let read_none = || Err::<Option<Uuid>, _>("reads");
        let slow = seen(80);
        change(70, 1, 7);
        change(70, 2, 8);
        change(85, 1, 9);
        change(95, 3, 9);
        let lost = seen(100);
        survivors.forget(point(90));
        let now = |at| Seen { opening: survivors.opening(), ..seen(at) };
        // A reader whose view is older than the change at 85 offers its answer only now.
        survivors.learn(key(1), uuid(7), slow);
        assert_eq!(survivors.get(key(1), now(90), read_none), Ok(uuid(9)));
        assert_eq!(survivors.get(key(2), now(90), read_none), Ok(uuid(8)), "it is not read again");
        assert_eq!(survivors.get(key(3), now(90), read_none), Err("reads"));
        survivors.learn(key(3), uuid(9), lost);
        assert_eq!(
            survivors.get(key(3), now(100), read_none),
            Err("reads"),
            "nor is that one heard"
        );
        // After the reopen the state is at 95 again; entry 2 changed at 98 in the lost history, and
        // will again.
        survivors.learn(key(4), uuid(5), now(95));
        assert_eq!(survivors.get(key(4), lost, read_none), Err("reads"));
        assert_eq!(survivors.get(key(4), now(95), read_none), Ok(uuid(5)));
        assert_eq!(survivors.get(key(1), lost, read_none), Ok(uuid(9)), "that was so before");
    }

    /// Goal: who has many changes makes nobody else forget theirs, and what is told has all since a state.
    #[test]
    fn changes_are_remembered_by_project() {
        let survivors = Survivors::new(1 << 20);
        let of = |project: i64, number: usize| {
            (ProjectId(project), Uuid::from_u128(u128::try_from(number).unwrap()))
        };
        let change = |at: u64, key: Key| {
            survivors.change(point(at), [(key, Some(Uuid::nil()))].into_iter());
        };
        let told = |project: i64, since: u64, now: u64| {
            let changed = survivors.changed_between(ProjectId(project), seen(since), seen(now));
            changed.map(|changed| changed.len())
        };
        change(1, of(1, 1));
        change(2, of(1, 2));
        for number in 0..CHANGES_MAX + 10 {
            change(3 + u64::try_from(number).unwrap(), of(2, number));
        }
        let now = 3 + u64::try_from(CHANGES_MAX + 10).unwrap();
        assert_eq!(
            (told(1, 0, now), told(1, 1, now), told(1, 2, now)),
            (Some(2), Some(1), Some(0))
        );
        assert_eq!((told(2, 0, now), told(2, now - 5, now)), (None, Some(4)));
        assert_eq!(told(3, 0, now), Some(0), "it has none");
        // Many projects with few: those of all are forgotten.
        for number in 0..2 * CHANGES_MAX {
            change(now + 1, of(i64::try_from(10 + number).unwrap(), 1));
        }
        assert!(survivors.changes.lock().count <= CHANGES_MAX);
        assert_eq!((told(1, 0, now + 1), told(1, now + 1, now + 1)), (None, Some(0)));
    }

    /// Goal: memory stays within the limit, however many persons are looked up.
    #[test]
    fn the_cache_is_bounded() {
        for entries in [1000, 60_000] {
            let survivors = Survivors::new(ENTRY_BYTES * entries * 8 / 7);
            for number in 0..4 * u128::from(entries) {
                let read = || Ok::<_, ()>(Some(Uuid::nil()));
                survivors.get(key(number), seen(1), read).unwrap();
            }
            let bytes = u64::try_from(survivors.cache.memory_used().total()).unwrap();
            // Shards are not filled alike.
            assert!(bytes <= ENTRY_BYTES * entries * 21 / 20, "{bytes} for {entries}");
            assert!(survivors.cached() > 900, "{}", survivors.cached());
        }
    }
}
