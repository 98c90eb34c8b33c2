//! Bitmaps per actor for rows with few distinct times and masks: [`Marked`]. A row sets a bit in the words of its
//! actor, which are addressed by the actor's number: nothing is hashed, compared or sorted, and equal rows take no
//! memory.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::events::histories::fold::{ACTOR, NO_TEXT, Row};
use crate::events::histories::kept::{Actor, Kept, Take, no_column, times_and_masks};
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;

/// Times per word.
const WORD: usize = 64;

/// Maximum words of an actor: 32 bytes, a few rows. With more words, rows take less memory if actors have few of them.
const WORDS_MAX: usize = 4;

/// Initial capacity in actors.
const ACTORS_MIN: usize = 1024;

/// The domain of rows: their times are from 0 to below `times`, their masks among `masks`. The plan must provide no
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Number of times.
    pub times: usize,
    /// The masks, in ascending order.
    pub masks: &'static [u32],
}

impl Marks {
    /// Whether times and masks are few enough for bitmaps.
    pub fn are_few(self) -> bool {
        self.words().saturating_mul(self.masks.len()) <= WORDS_MAX
    }

    /// Words per mask.
    fn words(self) -> usize {
        self.times.div_ceil(WORD)
    }

    /// Decodes the rows of an actor, in order, from its words, which hold those of the first mask first.
    fn read(self, own: &[u64], rows: &mut Vec<Row>) {
        rows.clear();
        let words = self.words();
        for number in 0..words {
            let of_masks = || own.iter().copied().skip(number).step_by(words.max(1));
            let mut left = of_masks().fold(0, |all, word| all | word);
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let at = i64::try_from(number * WORD).unwrap_or(i64::MAX) + i64::from(bit);
                let masks = self.masks.iter().zip(of_masks());
                let masks = masks.filter(|(_, word)| word >> bit & 1 == 1);
                let row = |mask: &u32| Row { at, mask: *mask, text: NO_TEXT, actor: 0 };
                rows.extend(masks.map(|(mask, _)| row(mask)));
            }
        }
    }
}

/// The bitmaps of one pass, for actors with numbers from `first` on.
#[derive(Debug)]
pub(super) struct Marked {
    marks: Marks,
    words: Vec<u64>,
    first: usize,
    /// The number from which on actors are left to the next pass; `None` if there are none.
    next: Option<usize>,
    texts: Interner,
    reservation: MemoryReservation,
}

impl Marked {
    /// An empty buffer before its first pass.
    pub(super) fn new(pool: &Arc<dyn MemoryPool>, marks: Marks) -> Self {
        Self {
            marks,
            words: Vec::new(),
            first: 0,
            next: Some(0),
            texts: Interner::default(),
            reservation: MemoryConsumer::new("marks of actors").register(pool),
        }
    }

    /// Words per actor.
    fn stride(&self) -> usize {
        self.marks.words() * self.marks.masks.len()
    }

    /// Offset of the words of an actor, which are allocated if necessary; `None` for actors of other passes.
    fn place(&mut self, actor: usize) -> Result<Option<usize>, QueryError> {
        let Some(own) = actor.checked_sub(self.first) else { return Ok(None) };
        if self.next.is_some_and(|next| actor >= next) {
            return Ok(None);
        }
        let start = own * self.stride();
        if start + self.stride() > self.words.len() {
            self.grow(own + 1)?;
        }
        if start + self.stride() <= self.words.len() {
            return Ok(Some(start));
        }
        self.next = Some(self.first + self.words.len() / self.stride().max(1));
        Ok(None)
    }

    /// Grows to `wanted` actors, or as far as the memory pool allows; fails if not even `ACTORS_MIN` fit.
    fn grow(&mut self, wanted: usize) -> Result<(), QueryError> {
        let bytes = |words: usize| words.saturating_mul(size_of::<u64>());
        let before = self.words.len();
        let mut actors = wanted.next_power_of_two().max(ACTORS_MIN);
        loop {
            let words = actors.saturating_mul(self.stride());
            if words <= before {
                return Ok(());
            }
            // During reallocation both buffers are in memory.
            match self.reservation.try_resize(bytes(before.saturating_add(words))) {
                Ok(()) => {
                    self.words.reserve_exact(words - before);
                    self.words.resize(words, 0);
                    return Ok(self.reservation.try_resize(bytes(self.words.capacity()))?);
                }
                Err(error) if actors <= ACTORS_MIN => return Err(error.into()),
                Err(_) => actors /= 2,
            }
        }
    }
}

impl Kept for Marked {
    fn begin(&mut self) -> bool {
        self.again();
        let next = self.next.take();
        self.first = next.unwrap_or(self.first);
        next.is_some()
    }

    fn again(&mut self) {
        self.words.fill(0);
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        let (at, masks) = times_and_masks(batch)?;
        let actors =
            batch.column_by_name(ACTOR).and_then(|own| own.as_primitive_opt::<UInt32Type>());
        let actors = actors.ok_or_else(no_column)?;
        let words = self.marks.words();
        for ((actor, at), mask) in actors.iter().zip(at).zip(masks) {
            let (Some(actor), Some(at), Some(mask)) = (actor, at, mask) else { continue };
            let at = usize::try_from(at).ok().filter(|at| *at < self.marks.times);
            let mask = self.marks.masks.iter().position(|own| *own == mask);
            let (Some(at), Some(mask)) = (at, mask) else { continue };
            let Some(start) = self.place(usize::try_from(actor).unwrap_or(usize::MAX))? else {
                continue;
            };
            if let Some(word) = self.words.get_mut(start + mask * words + at / WORD) {
                *word |= 1 << (at % WORD);
            }
        }
        Ok(())
    }

    fn texts(&self) -> &Interner {
        &self.texts
    }

    fn each(&mut self, take: &mut Take<'_>) -> Result<(), QueryError> {
        let mut rows = Vec::new();
        for (number, words) in (self.first..).zip(self.words.chunks_exact(self.stride().max(1))) {
            self.marks.read(words, &mut rows);
            if let Some(actor) = u32::try_from(number).ok().filter(|_| !rows.is_empty()) {
                take(Actor::Number(actor), &rows, &self.texts)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Actor, Marked, Marks};
    use crate::events::histories::kept::passes;
    use crate::kernel::error::QueryError;

    type RowsByActor = BTreeMap<u32, Vec<(i64, u32)>>;

    /// The rows of all actors, and the number of passes.
    fn marked(
        batches: &[RecordBatch],
        marks: Marks,
        bytes: usize,
    ) -> Result<(RowsByActor, usize), QueryError> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let mut found = RowsByActor::new();
        let passes = passes(Marked::new(&pool, marks), batches, &mut |actor, rows, _| {
            let Actor::Number(actor) = actor else { panic!("{actor:?} is no number") };
            let rows: Vec<(i64, u32)> = rows.iter().map(|row| (row.at, row.mask)).collect();
            assert_eq!(found.insert(actor, rows), None, "{actor} comes twice");
            Ok(())
        })?;
        assert_eq!(pool.reserved(), 0);
        Ok((found, passes))
    }

    /// Goal: each actor gets its rows, once and in order, whatever the memory. Method: random rows, compared with
    /// sorted sets.
    #[test]
    fn bits_are_the_rows_of_their_actor() {
        let mut rng = StdRng::seed_from_u64(11);
        let cases: [(usize, &[u32]); 6] = [
            (1, &[0]),
            (64, &[1, 2]),
            (65, &[1, 2]),
            (128, &[1, 5]),
            (256, &[7]),
            (40, &[0, 1, 2, 3]),
        ];
        for (times, masks) in cases {
            let mut expected: BTreeMap<u32, BTreeSet<(i64, u32)>> = BTreeMap::new();
            let (mut actors, mut ats, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..30_000 {
                let actor = rng.random_bool(0.9).then(|| rng.random_range(0..5000));
                let at = i64::try_from(rng.random_range(0..times)).unwrap();
                let at = rng.random_bool(0.9).then_some(at);
                let mask = masks[rng.random_range(0..masks.len())];
                if let (Some(actor), Some(at)) = (actor, at) {
                    expected.entry(actor).or_default().insert((at, mask));
                }
                actors.push(actor);
                ats.push(at);
                kinds.push(mask);
            }
            let rows = RecordBatch::try_from_iter([
                ("actor", Arc::new(UInt32Array::from(actors)) as ArrayRef),
                ("at", Arc::new(Int64Array::from(ats))),
                ("mask", Arc::new(UInt32Array::from(kinds))),
            ]);
            let rows = rows.unwrap();
            let batches: Vec<RecordBatch> = (0..30).map(|at| rows.slice(at * 1000, 1000)).collect();
            let marks = Marks { times, masks };
            assert!(marks.are_few());
            let expected: RowsByActor =
                expected.into_iter().map(|(actor, rows)| (actor, Vec::from_iter(rows))).collect();
            let words = times.div_ceil(64) * masks.len();
            for (actors, least) in [(16_384, 1), (3072, 2), (1024, 5)] {
                let (found, passes) = marked(&batches, marks, actors * words * 8).unwrap();
                assert!(found == expected, "{times} times, masks {masks:?}, {actors} actors");
                assert!((passes > 1) == (least > 1) && passes >= least, "{passes} passes");
            }
            let error = marked(&batches, marks, 1024 * words * 8 - 1).unwrap_err();
            assert!(matches!(error, QueryError::Memory(_)), "{error}");
        }
        let many: [(usize, &[u32]); 3] = [(257, &[0]), (129, &[0, 1]), (1, &[0, 1, 2, 3, 4])];
        assert!(!many.into_iter().any(|(times, masks)| Marks { times, masks }.are_few()));
    }
}
