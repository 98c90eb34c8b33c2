//! What is known of a yes-or-no question about persons: [`PersonAnswers`]. A plan over many events meets each person many
//! times, and asks once, as far as there is memory that nobody needs more.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use crate::persons::person_numbers::{grown_table_bytes, table_bytes};

/// Memory of an answer.
const ENTRY_BYTES: usize = size_of::<(Uuid, bool)>();

/// Persons that are read in a row in the time that it takes to look one up by itself, or less.
const READ_PER_LOOKUP: usize = 8;

/// Persons that are read in a row at a time. In between a query may be cancelled.
const READ_MAX: usize = 32_768;

/// The part of the memory of all queries, as a divisor, beyond which no more answers are kept. Plans of others have nothing
/// to do without what they take.
const MEMORY_DIVISOR: usize = 2;

/// Answers by person, as many as memory allows; who is not among them is asked again.
#[derive(Debug)]
pub(crate) struct PersonAnswers {
    hasher: RandomState,
    known: RwLock<Known>,
    /// Persons who were looked up, each by itself.
    looked_up: AtomicUsize,
    ahead: Mutex<Ahead>,
}

/// Answers for persons in a row.
#[derive(Debug, Default)]
pub(crate) struct InARow {
    /// In the order of their numbers.
    pub(crate) answers: Vec<(Uuid, bool)>,
    /// The number of the person behind them, if there is one.
    pub(crate) next: Option<i64>,
}

/// How far persons were read in a row.
#[derive(Debug)]
struct Ahead {
    read: usize,
    /// The number that is next; `None` at the end. They start with 1.
    next: Option<i64>,
}

#[derive(Debug)]
struct Known {
    table: HashTable<(Uuid, bool)>,
    memory: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
}

impl PersonAnswers {
    /// None yet. Their memory is of `pool`.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let memory = MemoryConsumer::new("answers about persons").register(pool);
        let known = Known { table: HashTable::new(), memory, pool: Arc::clone(pool) };
        Self {
            hasher: RandomState::default(),
            known: RwLock::new(known),
            looked_up: AtomicUsize::new(0),
            ahead: Mutex::new(Ahead { read: 0, next: Some(0) }),
        }
    }

    /// The answer for each of these persons, as far as it is known.
    pub(crate) fn get(&self, persons: &[Uuid]) -> Vec<Option<bool>> {
        let known = self.known.read();
        let answer = |person: &Uuid| {
            let found = known.table.find(self.hasher.hash_one(person), |(own, _)| own == person)?;
            Some(found.1)
        };
        persons.iter().map(answer).collect()
    }

    /// Adds answers for persons who were looked up, each by itself. If there were so many that it costs no more, those of
    /// others are added before they are asked for: `read` gives the answers for persons with numbers from one on, at
    /// most so many, and the number behind them, if there are more.
    pub(crate) fn add_looked_up<E>(
        &self,
        answers: impl ExactSizeIterator<Item = (Uuid, bool)>,
        read: impl FnOnce(i64, usize) -> Result<InARow, E>,
    ) -> Result<(), E> {
        let looked_up = self.looked_up.fetch_add(answers.len(), Ordering::Relaxed) + answers.len();
        self.add(answers);
        // Who does not get the lock goes on.
        let Some(mut ahead) = self.ahead.try_lock() else { return Ok(()) };
        let may_read = looked_up.saturating_mul(READ_PER_LOOKUP).saturating_sub(ahead.read);
        let Some(first) = ahead.next.filter(|_| may_read >= READ_MAX) else { return Ok(()) };
        let InARow { answers, next } = read(first, READ_MAX)?;
        ahead.read += answers.len();
        let is_kept = self.add(answers.into_iter());
        ahead.next = next.filter(|_| is_kept);
        Ok(())
    }

    /// Adds answers, and tells whether there was room for them.
    fn add(&self, answers: impl ExactSizeIterator<Item = (Uuid, bool)>) -> bool {
        let mut known = self.known.write();
        if !known.has_room(answers.len(), &self.hasher) {
            return false;
        }
        for (person, answer) in answers {
            let entry = known.table.entry(
                self.hasher.hash_one(person),
                |(own, _)| *own == person,
                |(own, _)| self.hasher.hash_one(own),
            );
            entry.or_insert((person, answer));
        }
        true
    }
}

impl Known {
    /// Makes room for so many more answers, if memory allows.
    fn has_room(&mut self, more: usize, hasher: &RandomState) -> bool {
        let wanted = self.table.len().saturating_add(more);
        if wanted <= self.table.capacity() {
            return true;
        }
        // While it moves there are two tables.
        let grown = grown_table_bytes(wanted, ENTRY_BYTES);
        let may_be_taken = match self.pool.memory_limit() {
            MemoryLimit::Finite(all) => {
                self.pool.reserved().saturating_add(grown) <= all / MEMORY_DIVISOR
            }
            MemoryLimit::Infinite | MemoryLimit::Unknown => true,
        };
        if !may_be_taken || self.memory.try_grow(grown).is_err() {
            return false;
        }
        self.table.reserve(more, |(own, _)| hasher.hash_one(own));
        self.memory.resize(table_bytes(self.table.capacity(), ENTRY_BYTES));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use uuid::Uuid;

    use super::{InARow, PersonAnswers, READ_MAX, READ_PER_LOOKUP};

    fn persons(count: u128) -> Vec<Uuid> {
        (0..count).map(Uuid::from_u128).collect()
    }

    /// Goal: an answer is that of the first time, or not known. Method: batches that overlap, in a pool with room and in
    /// one without; half of the pool is left to others, and memory is given back at the end.
    #[test]
    fn answers_are_kept_as_far_as_memory_allows() {
        let is_even = |person: &Uuid| person.as_u128().is_multiple_of(2);
        for (pool_bytes, is_enough) in [(16 << 20, true), (1 << 20, false), (0, false)] {
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
            let answers = PersonAnswers::new(&pool);
            let persons = persons(200_000);
            for batch in persons.chunks(5000) {
                let _ = answers.add(batch.iter().map(|person| (*person, is_even(person))));
                // Another thread may have asked the same.
                let _ = answers.add(batch.iter().map(|person| (*person, !is_even(person))));
            }
            let known = answers.get(&persons);
            let count = known.iter().flatten().count();
            for (person, answer) in persons.iter().zip(known) {
                assert!(answer.is_none_or(|answer| answer == is_even(person)), "{person}");
            }
            assert_eq!(count == persons.len(), is_enough, "{count} of {pool_bytes}");
            assert_eq!(count > 0, pool_bytes > 0, "{count} of {pool_bytes}");
            assert!(pool.reserved() <= pool_bytes / 2);
            drop(answers);
            assert_eq!(pool.reserved(), 0);
        }
    }

    /// Goal: what is read in a row stays in proportion to what was looked up, ends with the persons or with memory, and
    /// is known then.
    #[test]
    fn persons_are_read_ahead_once_many_are_looked_up() {
        let count = 3 * READ_MAX + 5;
        let persons = persons(u128::try_from(count).unwrap());
        for (pool_bytes, is_enough) in [(64 << 20, true), (3 << 20, false)] {
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
            let (answers, mut looked_up, mut reads) = (PersonAnswers::new(&pool), 0, Vec::new());
            // From the end, so that they meet in the middle.
            for batch in persons.rchunks(1000) {
                let known = answers.get(batch);
                let unknown = batch.iter().zip(known).filter(|(_, known)| known.is_none());
                let found: Vec<_> = unknown.map(|(person, _)| (*person, true)).collect();
                looked_up += found.len();
                let read = |first: i64, max: usize| {
                    let from = usize::try_from(first).unwrap_or(0);
                    let rows = &persons[from..count.min(from + max)];
                    reads.push(rows.len());
                    let next = (from + max < count).then(|| i64::try_from(from + max).unwrap());
                    let answers = rows.iter().map(|person| (*person, true)).collect();
                    Ok::<_, ()>(InARow { answers, next })
                };
                answers.add_looked_up(found.into_iter(), read).unwrap();
                assert!(reads.iter().sum::<usize>() <= looked_up * READ_PER_LOOKUP);
            }
            match is_enough {
                true => {
                    assert_eq!(reads, [READ_MAX; 3], "the rest was looked up before");
                    assert!(looked_up < count / 3, "{looked_up}");
                    assert!(answers.get(&persons).into_iter().all(|answer| answer == Some(true)));
                }
                false => {
                    assert!(reads.len() < 3, "{reads:?}");
                    assert!(looked_up > count / 3, "{looked_up}");
                }
            }
        }
    }
}
