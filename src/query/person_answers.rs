//! What is known of a yes-or-no question about persons: [`PersonAnswers`]. A plan over many events meets each person many
//! times, and asks once.

use std::hash::BuildHasher;
use std::sync::Arc;

use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::memory_pool::MemoryReservation;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::RwLock;
use uuid::Uuid;

use crate::query::person_numbers::table_bytes;

/// Answers by person, as many as memory allows; who is not among them is asked again.
#[derive(Debug)]
pub(super) struct PersonAnswers {
    hasher: RandomState,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    table: HashTable<(Uuid, bool)>,
    memory: MemoryReservation,
}

impl PersonAnswers {
    /// None yet. Their memory is of `pool`.
    pub(super) fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let memory = MemoryConsumer::new("answers about persons").register(pool);
        let known = Known { table: HashTable::new(), memory };
        Self { hasher: RandomState::default(), known: RwLock::new(known) }
    }

    /// The answer for each of these persons, as far as it is known.
    pub(super) fn get(&self, persons: &[Uuid]) -> Vec<Option<bool>> {
        let known = self.known.read();
        let answer = |person: &Uuid| {
            let found = known.table.find(self.hasher.hash_one(person), |(own, _)| own == person)?;
            Some(found.1)
        };
        persons.iter().map(answer).collect()
    }

    /// Adds answers, if there is room for them.
    pub(super) fn add(&self, answers: impl ExactSizeIterator<Item = (Uuid, bool)>) {
        let mut known = self.known.write();
        if !known.has_room(answers.len(), &self.hasher) {
            return;
        }
        for (person, answer) in answers {
            let entry = known.table.entry(
                self.hasher.hash_one(person),
                |(own, _)| *own == person,
                |(own, _)| self.hasher.hash_one(own),
            );
            entry.or_insert((person, answer));
        }
    }
}

impl Known {
    /// Makes room for so many more answers, if memory allows.
    fn has_room(&mut self, more: usize, hasher: &RandomState) -> bool {
        let wanted = self.table.len().saturating_add(more);
        if wanted <= self.table.capacity() {
            return true;
        }
        // A table doubles, and while it moves there are two.
        let both = bytes(self.table.capacity()).saturating_add(bytes(wanted.next_power_of_two()));
        if self.memory.try_resize(both).is_err() {
            return false;
        }
        self.table.reserve(more, |(own, _)| hasher.hash_one(own));
        self.memory.resize(bytes(self.table.capacity()));
        true
    }
}

fn bytes(entries: usize) -> usize {
    table_bytes(entries, size_of::<(Uuid, bool)>())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::memory_pool::MemoryPool;
    use uuid::Uuid;

    use super::PersonAnswers;

    fn persons(count: u128) -> Vec<Uuid> {
        (0..count).map(Uuid::from_u128).collect()
    }

    /// Goal: an answer is that of the first time, or not known. Method: batches that overlap, in a pool with room and in
    /// one without; memory is given back at the end.
    #[test]
    fn answers_are_kept_as_far_as_memory_allows() {
        let is_even = |person: &Uuid| person.as_u128().is_multiple_of(2);
        for (pool_bytes, is_enough) in [(16 << 20, true), (1 << 20, false), (0, false)] {
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
            let answers = PersonAnswers::new(&pool);
            let persons = persons(200_000);
            for batch in persons.chunks(5000) {
                answers.add(batch.iter().map(|person| (*person, is_even(person))));
                // Another thread may have asked the same.
                answers.add(batch.iter().map(|person| (*person, !is_even(person))));
            }
            let known = answers.get(&persons);
            let count = known.iter().flatten().count();
            for (person, answer) in persons.iter().zip(known) {
                assert!(answer.is_none_or(|answer| answer == is_even(person)), "{person}");
            }
            assert_eq!(count == persons.len(), is_enough, "{count} of {pool_bytes}");
            assert_eq!(count > 0, pool_bytes > 0, "{count} of {pool_bytes}");
            assert!(pool.reserved() <= pool_bytes);
            drop(answers);
            assert_eq!(pool.reserved(), 0);
        }
    }
}
