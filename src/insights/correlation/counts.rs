//! Counts actors by subject: [`Counts`], for as many subjects as fit in memory. If they do not fit, they are split in
//! halves by hash: one half is counted in this scan, the other one in a later scan of its own.

use std::hash::{BuildHasher, Hash, Hasher};

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use foldhash::quality::FixedState;
use hashbrown::Equivalent;

use weir_query::kernel::error::QueryError;
use weir_query::kernel::slice::Slice;

/// Most distinct subjects that one scan counts.
const THINGS_MAX: usize = 1 << 20;

/// Most scans of one query.
const SCANS_MAX: u64 = 16;

/// Initial capacity in subjects.
const THINGS_MIN: usize = 1024;

/// Numbers of actors that complete a funnel, and that do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) successes: u64,
    pub(super) failures: u64,
}

impl Pair {
    /// Counts an actor.
    pub(super) fn add(&mut self, is_converted: bool) {
        let count = if is_converted { &mut self.successes } else { &mut self.failures };
        *count = count.saturating_add(1);
    }

    /// The number of actors.
    pub(super) fn sum(self) -> u64 {
        self.successes.saturating_add(self.failures)
    }
}

/// A subject that may correlate: the index of an event name, and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    pub(super) event: u32,
    pub(super) text: Box<str>,
}

/// A borrowed [`Thing`].
#[derive(Clone, Copy, Hash)]
struct Named<'t>(u32, &'t str);

impl Hash for Thing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

impl Equivalent<Thing> for Named<'_> {
    fn equivalent(&self, thing: &Thing) -> bool {
        self.0 == thing.event && self.1 == &*thing.text
    }
}

impl Thing {
    fn named(&self) -> Named<'_> {
        Named(self.event, &self.text)
    }
}

impl Named<'_> {
    /// Decides by a hash that is the same in every scan.
    fn is_in(self, slice: Slice) -> bool {
        slice == Slice::ALL || slice.has(FixedState::default().hash_one(self))
    }
}

/// Counts of the subjects of one slice of the hash space.
#[derive(Debug)]
pub(super) struct Counts {
    pairs: hashbrown::HashMap<Thing, Pair, foldhash::fast::RandomState>,
    /// The length of all texts in bytes.
    bytes: usize,
    slice: Slice,
    /// The slices that are left to further scans.
    left: Vec<Slice>,
    most: usize,
    reservation: MemoryReservation,
}

impl Counts {
    pub(super) fn new(slice: Slice, reservation: MemoryReservation) -> Self {
        let pairs = hashbrown::HashMap::default();
        Self { pairs, bytes: 0, slice, left: Vec::new(), most: THINGS_MAX, reservation }
    }

    /// Takes the slices that are left to further scans.
    pub(super) fn take_left(&mut self) -> Vec<Slice> {
        std::mem::take(&mut self.left)
    }

    /// Counts an actor for a subject.
    ///
    /// # Errors
    ///
    /// There are too many subjects.
    pub(super) fn add(
        &mut self,
        (event, text): (u32, &str),
        is_converted: bool,
    ) -> Result<(), QueryError> {
        let named = Named(event, text);
        if !named.is_in(self.slice) {
            return Ok(());
        }
        if let Some(pair) = self.pairs.get_mut(&named) {
            pair.add(is_converted);
            return Ok(());
        }
        self.make_room(text.len())?;
        if !named.is_in(self.slice) {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(text.len());
        let mut pair = Pair::default();
        pair.add(is_converted);
        self.pairs.insert(Thing { event, text: text.into() }, pair);
        Ok(())
    }

    /// Frees capacity for one more subject with a text of this length: by growing the table, or else by halving the
    /// slice.
    fn make_room(&mut self, text_bytes: usize) -> Result<(), QueryError> {
        while self.pairs.len() >= self.most || self.reserve(text_bytes).is_err() {
            let Some([own, other]) = self.slice.halves(SCANS_MAX) else {
                let detail = "there are too many different events or values of properties: ask for less time, \
                              or for fewer of them";
                return Err(QueryError::Memory(detail.to_owned()));
            };
            self.slice = own;
            self.left.push(other);
            self.pairs.retain(|thing, _| thing.named().is_in(own));
            self.bytes = self.pairs.keys().map(|thing| thing.text.len()).sum();
        }
        Ok(())
    }

    fn reserve(&mut self, text_bytes: usize) -> Result<(), DataFusionError> {
        let texts = self.bytes.saturating_add(text_bytes);
        // The hash table has 8/7 as many slots as its capacity, and a control byte for each.
        let bytes =
            |room: usize| (room * 8 / 7 * (size_of::<(Thing, Pair)>() + 1)).saturating_add(texts);
        let room = self.pairs.capacity();
        if self.pairs.len() < room {
            return self.reservation.try_resize(bytes(room));
        }
        let larger = (room * 2).max(THINGS_MIN);
        // While the table grows, the old and the new one exist together.
        self.reservation.try_resize(bytes(room + larger))?;
        self.pairs.reserve(larger - self.pairs.len());
        self.reservation.try_resize(bytes(self.pairs.capacity()))
    }

    /// The subjects with their counts.
    pub(super) fn into_pairs(self) -> impl Iterator<Item = (Thing, Pair)> {
        self.pairs.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::{Counts, Pair, SCANS_MAX};
    use weir_query::kernel::error::QueryError;
    use weir_query::kernel::slice::Slice;

    type Counted = BTreeMap<(u32, String), Pair>;

    /// The counts with this memory limit and this limit of subjects, and the number of scans.
    fn counted(memory: usize, most: usize) -> Result<(Counted, usize), QueryError> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory));
        let (mut left, mut all, mut scans) = (vec![Slice::ALL], BTreeMap::new(), 0);
        while let Some(slice) = left.pop() {
            let mut counts = Counts::new(slice, MemoryConsumer::new("counts").register(&pool));
            counts.most = most;
            for round in 0..3_u32 {
                for number in 0..500_u32 {
                    let text = format!("text {}", number / 2);
                    counts.add((number % 2, &text), (number + round) % 3 == 0)?;
                }
            }
            left.extend(counts.take_left());
            for (thing, pair) in counts.into_pairs() {
                assert_eq!(all.insert((thing.event, thing.text.into()), pair), None);
            }
            scans += 1;
        }
        Ok((all, scans))
    }

    #[test]
    fn scans_with_little_room_count_the_same_as_one() {
        let (expected, scans) = counted(1 << 20, 1000).unwrap();
        assert_eq!((expected.len(), scans), (500, 1));
        assert!(expected.values().all(|pair| *pair == Pair { successes: 1, failures: 2 }));
        let (found, scans) = counted(1 << 20, 100).unwrap();
        assert_eq!(found, expected);
        assert!(scans > 4, "{scans}");
        let few = 500 / usize::try_from(SCANS_MAX).unwrap() / 2;
        assert!(matches!(counted(1 << 20, few), Err(QueryError::Memory(_))));
        assert!(matches!(counted(1000, 1000), Err(QueryError::Memory(_))));
    }
}
