//! [`Survivors`]: what is kept in memory of the persons that were merged away, within a fixed size.
//!
//! All of them are in the database; here are a filter in front of it and a cache of what is in it. The
//! cache is filled when the database is opened, as long as there is room, and with each change, which may
//! take the room of what nobody asks for: a question that goes through all events asks for each of their
//! persons, and the database takes some 10 µs for one.
//!
//! # Why a reader gets what is right for its view
//!
//! A cached answer is of a certain [`Point`] and right from there until its entry changes. Before the
//! writer commits a batch that changes entries, it replaces their answers with those of the batch and
//! notes that they change with it. So an answer that is found is right for every view from its point on;
//! older views ask the database. And an answer that was read from a view that is older than the change of
//! its entry is not taken in. Of the changes only some are remembered; views that are older than those are
//! taken to have missed one.
//!
//! A batch that fails is followed by [`Survivors::forget`] before another one: the database is opened
//! again, perhaps as of an earlier point. What lies behind that point happens once more, and in between
//! two readers may have views of one point in two courses of events. So each answer and each reader knows
//! in which [`Opening`] it came: a reader gets no answer of a later one, and is not heard in it.

use std::hash::BuildHasher;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use quick_cache::sync::DefaultLifecycle;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::identity::codec::Point;
use crate::identity::filter::Filter;
use crate::identity::filter::Hash;

/// A person as events are stored with it.
pub(super) type Key = (ProjectId, Uuid);

/// Memory of a cached answer: slab entry, index, and half the ghost of an evicted one. quick_cache 0.7
/// reports 132 to 141, by how full its index is.
const ENTRY_BYTES: u64 = 140;

/// Changes that are remembered; 48 bytes each.
const CHANGES_MAX: usize = 16 * 1024;

/// How often the database was opened again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Opening(u32);

/// What a reader sees: a state of the database as it was opened then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) point: Point,
    /// Asked for before the view was taken: too early an opening costs answers, too late a one may
    /// bring wrong ones.
    pub(super) opening: Opening,
}

/// A person that replaces another one, if one does, as of a point and after.
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

/// What is in memory of the overrides.
pub(super) struct Survivors {
    hasher: RandomState,
    filter: Filter,
    /// Whether the filter has all entries that were in the database when it was opened.
    is_filtering: AtomicBool,
    /// Whether there are entries at all.
    has_any: AtomicBool,
    cache: Cache<Key, Answer, UnitWeighter, foldhash::fast::RandomState>,
    changes: Mutex<Changes>,
}

impl std::fmt::Debug for Survivors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survivors").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Changes {
    /// With which batch an entry changed last.
    latest: HashMap<Key, Point>,
    /// Changes up to here may have been forgotten.
    forgotten: Point,
    opening: Opening,
}

impl Survivors {
    /// Within so many bytes, an eighth for the filter. The cache grows only as it is used.
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

    /// Notes that an entry is in the database.
    pub(super) fn note(&self, key: &Key) {
        self.filter.insert(self.hash(key));
        self.has_any.store(true, Ordering::Release);
    }

    /// Notes that all entries of the database were noted.
    pub(super) fn begin_to_filter(&self) {
        self.is_filtering.store(true, Ordering::Release);
    }

    /// Whether there may be entries.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Answers that the cache has room for.
    pub(super) fn capacity(&self) -> u64 {
        self.cache.capacity()
    }

    /// Notes who replaces whom once the batch that leads to `point` is committed. Of the writer, before
    /// the commit.
    pub(super) fn change(&self, point: Point, entries: impl Iterator<Item = (Key, Option<Uuid>)>) {
        let mut changes = self.changes.lock();
        for (key, survivor) in entries {
            if changes.latest.len() >= CHANGES_MAX {
                changes.latest.clear();
                changes.forgotten = point;
            }
            changes.latest.insert(key, point);
            self.cache.insert(key, Answer { survivor, since: point, opening: changes.opening });
            self.note(&key);
        }
    }

    /// How the database is open now.
    pub(super) fn opening(&self) -> Opening {
        self.changes.lock().opening
    }

    /// Takes in who replaces `key` by the view of a reader.
    pub(super) fn learn(&self, key: Key, survivor: Option<Uuid>, seen: Seen) {
        let changes = self.changes.lock();
        let changed = changes.latest.get(&key).copied().unwrap_or(changes.forgotten);
        if changed <= seen.point && changes.opening == seen.opening {
            let Seen { point: since, opening } = seen;
            self.cache.insert(key, Answer { survivor, since, opening });
        }
    }

    /// Notes that the database was opened again, and is as of `point`. Answers of later ones are
    /// forgotten; the others are as right as before.
    pub(super) fn forget(&self, point: Point) {
        let mut changes = self.changes.lock();
        changes.latest.clear();
        changes.forgotten = point;
        changes.opening = Opening(changes.opening.0.saturating_add(1));
        self.cache.retain(|_, answer| answer.since <= point);
    }

    /// The person that replaces `key` for a reader, which `read` reads from the database.
    ///
    /// # Errors
    ///
    /// Those of `read`.
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
    use crate::identity::codec::Counters;

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

    /// Goal: no view gets an answer of another time, in whatever order readers and the writer come.
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
        // So many changes that those of before are forgotten.
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
        // The database is not asked for who was never merged.
        survivors.begin_to_filter();
        let before = reads.get();
        let found = (1_000_000..1_001_000).filter(|number| get(*number, 9, None).is_some()).count();
        assert!(found == 0 && reads.get() < before + 500, "{}", reads.get());
        assert_eq!((get(10, 9, Some(5)), survivors.has_any()), (Some(5), true));
    }

    /// Goal: after the database was opened again at an earlier point, nobody gets what was or will be
    /// behind it, neither from a reader that is slow nor for one; what is as it was stays known.
    #[test]
    fn courses_of_events_do_not_mix() {
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
        // A reader of before the change of 85 says what it has read only now.
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
        // In the other course it is 95 now; entry 2 changed at 98 in the one of `lost`, and will.
        survivors.learn(key(4), uuid(5), now(95));
        assert_eq!(survivors.get(key(4), lost, read_none), Err("reads"));
        assert_eq!(survivors.get(key(4), now(95), read_none), Ok(uuid(5)));
        assert_eq!(survivors.get(key(1), lost, read_none), Ok(uuid(9)), "that was so before");
    }

    /// Goal: memory stays within the limit, however many are asked for.
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
