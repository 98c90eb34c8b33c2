//! Row buffer of one pass, within the memory of queries: [`Gathered`].

use std::cmp::Ordering;
use std::sync::Arc;
use std::thread;

use arrow::array::{Array, AsArray, RecordBatch, StringViewArray, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::events::histories::fold::{ACTOR, NO_TEXT, Row, Rows, TEXT};
use crate::events::histories::kept::{Actor, Kept, Take, no_column, times_and_masks};
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;
use crate::kernel::slice::Slice;

/// Maximum slices into which actors are partitioned. If a slice still does not fit then, it has a single actor.
const SLICES_MAX: u64 = 1 << 20;

/// Minimum rows of each half from which on two threads sort them.
const HALF_MIN: usize = 1 << 16;

/// Initial capacity in rows.
const ROWS_MIN: usize = 8192;

/// Rows with their actors.
#[derive(Debug)]
pub(super) struct Gathered {
    rows: Vec<Row>,
    /// The interned names of actors; `None` if the plan provides person numbers.
    names: Option<Interner>,
    texts: Interner,
    kind: Rows,
    /// The slice of this pass.
    slice: Slice,
    /// The slices of later passes.
    left: Vec<Slice>,
    reservation: MemoryReservation,
}

impl Gathered {
    /// An empty buffer before its first pass. Actors are texts, or numbers if `has_names` is false.
    pub(super) fn new(pool: &Arc<dyn MemoryPool>, kind: Rows, has_names: bool) -> Self {
        Self {
            rows: Vec::new(),
            names: has_names.then(Interner::default),
            texts: Interner::default(),
            kind,
            slice: Slice::ALL,
            left: vec![Slice::ALL],
            reservation: MemoryConsumer::new("rows by actor").register(pool),
        }
    }

    /// Whether all actors have fitted into the memory so far.
    pub(super) fn is_whole(&self) -> bool {
        self.left.is_empty()
    }

    /// The numbers of the actors of a batch, null for those outside the slice; `None` without a column of their type.
    fn actors_of(&mut self, batch: &RecordBatch) -> Result<Option<UInt32Array>, QueryError> {
        let Some(column) = batch.column_by_name(ACTOR) else { return Ok(None) };
        let Some(names) = &mut self.names else {
            let is_own = |number: &u32| self.slice.has(hash_of(*number));
            let numbers = column.as_primitive_opt::<UInt32Type>();
            let own = |numbers: &UInt32Array| numbers.iter().map(|n| n.filter(is_own)).collect();
            return Ok(numbers.map(own));
        };
        let texts = cast(column, &DataType::Utf8View).ok();
        let Some(texts) = texts.as_ref().and_then(|texts| texts.as_string_view_opt()) else {
            return Ok(None);
        };
        let mut number = |actor: &str| {
            let hash = names.hash(actor);
            let is_own = self.slice.has(hash);
            is_own.then(|| names.insert(actor, hash).ok_or_else(too_many)).transpose()
        };
        let numbers = texts.iter().map(|actor| Ok(actor.map(&mut number).transpose()?.flatten()));
        numbers.collect::<Result<_, QueryError>>().map(Some)
    }

    /// Reserves memory for `more` rows: by growing, by removing duplicate rows, or by halving the slice.
    fn make_room(&mut self, more: usize) -> Result<(), QueryError> {
        loop {
            let Err(error) = self.reserve(more) else { return Ok(()) };
            let before = self.rows.len();
            if self.kind != Rows::All {
                self.sort();
                if self.rows.len() <= before / 2 {
                    continue;
                }
            }
            let Some([own, other]) = self.slice.halves(SLICES_MAX) else {
                return Err(QueryError::from(error));
            };
            self.slice = own;
            self.left.push(other);
            self.keep_slice()?;
        }
    }

    fn reserve(&mut self, more: usize) -> Result<(), DataFusionError> {
        let (length, room) = (self.rows.len(), self.rows.capacity());
        let other = self.names.as_ref().map_or(0, Interner::bytes) + self.texts.bytes();
        let bytes = |rows: usize| other.saturating_add(rows.saturating_mul(size_of::<Row>()));
        if length + more <= room {
            return self.reservation.try_resize(bytes(room));
        }
        let larger = (length + more).max(length + length / 2).max(ROWS_MIN);
        // During reallocation both buffers are in memory.
        self.reservation.try_resize(bytes(room.saturating_add(larger)))?;
        self.rows.reserve_exact(larger - length);
        self.reservation.try_resize(bytes(self.rows.capacity()))
    }

    /// Removes the rows and actors that are not in the slice.
    fn keep_slice(&mut self) -> Result<(), QueryError> {
        let Some(names) = &mut self.names else {
            let slice = self.slice;
            self.rows.retain(|row| slice.has(hash_of(row.actor)));
            return Ok(());
        };
        let mut own_names = names.emptied();
        let mut numbers = Vec::with_capacity(names.len());
        for number in 0.. {
            let Some(actor) = names.get(number) else { break };
            let hash = names.hash(actor);
            let kept = self.slice.has(hash).then(|| own_names.insert(actor, hash));
            numbers.push(kept.map(|number| number.ok_or_else(too_many)).transpose()?);
        }
        *names = own_names;
        self.rows.retain_mut(|row| {
            let number = usize::try_from(row.actor).ok().and_then(|at| *numbers.get(at)?);
            row.actor = number.unwrap_or(row.actor);
            number.is_some()
        });
        Ok(())
    }

    /// Sorts the rows by actor, time, mask and text, and removes those that the fold does not need.
    fn sort(&mut self) {
        let Self { rows, texts, kind, .. } = self;
        let text = |row: &Row| texts.get(row.text);
        let order = |a: &Row, b: &Row| {
            let numbers = (a.actor, a.at, a.mask).cmp(&(b.actor, b.at, b.mask));
            numbers.then_with(|| match a.text == b.text {
                true => Ordering::Equal,
                false => text(a).cmp(&text(b)),
            })
        };
        sort_by(rows, &order);
        if *kind != Rows::All {
            rows.dedup();
        }
    }
}

/// Sorts rows. Of many, the lower half is sorted on another thread: at the end of a pass the other query threads are
/// idle for this query.
fn sort_by(rows: &mut [Row], order: &(impl Fn(&Row, &Row) -> Ordering + Sync)) {
    let middle = rows.len() / 2;
    if middle < HALF_MIN {
        rows.sort_unstable_by(order);
        return;
    }
    rows.select_nth_unstable_by(middle, order);
    let (low, high) = rows.split_at_mut(middle);
    let is_helped = thread::scope(|scope| {
        let helper = thread::Builder::new().name("query-sort".to_owned());
        let helper = helper.spawn_scoped(scope, || low.sort_unstable_by(order));
        high.sort_unstable_by(order);
        helper.is_ok()
    });
    if !is_helped {
        low.sort_unstable_by(order);
    }
}

impl Kept for Gathered {
    /// Removes all rows, and starts the pass of the next slice.
    fn begin(&mut self) -> bool {
        self.again();
        let next = self.left.pop();
        self.slice = next.unwrap_or(self.slice);
        next.is_some()
    }

    /// What did not fit into the memory stays left to later passes.
    fn again(&mut self) {
        self.rows.clear();
        self.names = self.names.as_ref().map(Interner::emptied);
        self.texts = self.texts.emptied();
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        self.make_room(batch.num_rows())?;
        let texts = |name: &str| {
            let column = batch.column_by_name(name)?;
            cast(column, &DataType::Utf8View).ok()?.as_string_view_opt().cloned()
        };
        let (at, masks) = times_and_masks(batch)?;
        let actors = self.actors_of(batch)?.ok_or_else(no_column)?;
        let labels = texts(TEXT);
        for (place, ((actor, at), mask)) in actors.iter().zip(at).zip(masks).enumerate() {
            let (Some(actor), Some(at)) = (actor, at) else { continue };
            let text = match labels.as_ref().and_then(|labels| text_at(labels, place)) {
                Some(text) => {
                    self.texts.insert(text, self.texts.hash(text)).ok_or_else(too_many)?
                }
                None => NO_TEXT,
            };
            self.rows.push(Row { at, mask: mask.unwrap_or(0), text, actor });
        }
        Ok(())
    }

    fn texts(&self) -> &Interner {
        &self.texts
    }

    fn each(&mut self, take: &mut Take<'_>) -> Result<(), QueryError> {
        self.sort();
        let Self { rows, names, texts, .. } = &*self;
        for rows in rows.chunk_by(|a, b| a.actor == b.actor) {
            let Some(number) = rows.first().map(|row| row.actor) else { continue };
            let actor = match names {
                Some(names) => names.get(number).map(Actor::Name),
                None => Some(Actor::Number(number)),
            };
            if let Some(actor) = actor {
                take(actor, rows, texts)?;
            }
        }
        Ok(())
    }
}

/// Hash of a person number, by which slices partition actors.
fn hash_of(number: u32) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text_at(texts: &StringViewArray, at: usize) -> Option<&str> {
    texts.is_valid(at).then(|| texts.value(at))
}

fn too_many() -> QueryError {
    QueryError::Memory("there are too many different texts".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Actor, Gathered, HALF_MIN, Row, sort_by};
    use crate::events::histories::Rows;
    use crate::events::histories::kept::passes;
    use crate::kernel::error::QueryError;

    type Plain = (i64, u32, Option<String>);
    type Histories = BTreeMap<String, Vec<Plain>>;

    fn batch(rows: &[(String, Plain)]) -> RecordBatch {
        let actors: StringArray = rows.iter().map(|(actor, _)| Some(actor)).collect();
        batch_of(Arc::new(actors), rows)
    }

    /// The same with numbers, parsed from the actors' names.
    fn numbered(rows: &[(String, Plain)]) -> RecordBatch {
        let number = |(actor, _): &(String, Plain)| actor.parse::<u32>().unwrap();
        batch_of(Arc::new(rows.iter().map(number).collect::<UInt32Array>()), rows)
    }

    fn batch_of(actors: ArrayRef, rows: &[(String, Plain)]) -> RecordBatch {
        let at: Int64Array = rows.iter().map(|(_, row)| row.0).collect();
        let masks: UInt32Array = rows.iter().map(|(_, row)| row.1).collect();
        let texts: StringArray = rows.iter().map(|(_, row)| row.2.clone()).collect();
        RecordBatch::try_from_iter([
            ("actor", actors),
            ("at", Arc::new(at) as ArrayRef),
            ("mask", Arc::new(masks)),
            ("text", Arc::new(texts)),
        ])
        .unwrap()
    }

    /// All histories of the batches, and the number of passes.
    fn gathered(
        batches: &[RecordBatch],
        bytes: usize,
        kind: Rows,
    ) -> Result<(Histories, usize), QueryError> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let has_names = !batches[0].column(0).data_type().is_integer();
        let (kept, mut found) = (Gathered::new(&pool, kind, has_names), Histories::new());
        let passes = passes(kept, batches, &mut |actor, rows, texts| {
            let row = |row: &Row| (row.at, row.mask, texts.get(row.text).map(str::to_owned));
            let rows = rows.iter().map(row).collect();
            let actor = match actor {
                Actor::Name(name) => name.to_owned(),
                Actor::Number(number) => number.to_string(),
            };
            assert_eq!(found.insert(actor.clone(), rows), None, "{actor} comes twice");
            Ok(())
        })?;
        assert_eq!(pool.reserved(), 0);
        Ok((found, passes))
    }

    /// Goal: the same histories, whatever the memory. Method: random rows, compared with sorted lists.
    #[test]
    fn all_rows_come_in_their_order_within_little_memory() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut rows: Vec<(String, Plain)> = Vec::new();
        for _ in 0..60_000 {
            let text = rng.random_bool(0.8).then(|| format!("t{}", rng.random_range(0..9)));
            let row = (rng.random_range(0..40), rng.random_range(0..3), text);
            rows.push((rng.random_range(0..2000).to_string(), row));
        }
        let both = [batch, numbered].map(|of| rows.chunks(1000).map(of).collect::<Vec<_>>());
        let mut expected = Histories::new();
        for (actor, row) in rows {
            expected.entry(actor).or_default().push(row);
        }
        expected.values_mut().for_each(|rows| rows.sort());
        for batches in &both {
            let (found, passes) = gathered(batches, 64 << 20, Rows::All).unwrap();
            assert_eq!((found == expected, passes), (true, 1));
            let (found, passes) = gathered(batches, 600 << 10, Rows::All).unwrap();
            assert!(found == expected && passes > 2, "{passes} passes");
        }
        expected.values_mut().for_each(Vec::dedup);
        for (batches, bytes) in both.iter().flat_map(|of| [64, 2, 1].map(|size| (of, size << 19))) {
            let (found, passes) = gathered(batches, bytes, Rows::Distinct).unwrap();
            assert!(found == expected, "{bytes} bytes, {passes} passes");
        }
    }

    /// Goal: two threads sort as one does. Method: actors with very different numbers of rows, one of them with most
    /// rows.
    #[test]
    fn halves_are_one_order() {
        let mut rng = StdRng::seed_from_u64(3);
        let order = |a: &Row, b: &Row| (a.actor, a.at).cmp(&(b.actor, b.at));
        for (actors, often) in [(1, 0.0), (3, 0.9), (1000, 0.3), (1_000_000, 0.0)] {
            let row = |rng: &mut StdRng| {
                let actor = rng.random_range(0..actors);
                let actor = if rng.random_bool(often) { actors / 2 } else { actor };
                Row { actor, ..Row::new(rng.random_range(0..1000), 0) }
            };
            let mut rows: Vec<Row> = (0..3 * HALF_MIN).map(|_| row(&mut rng)).collect();
            let mut expected = rows.clone();
            expected.sort_by(order);
            sort_by(&mut rows, &order);
            assert!(rows == expected, "{actors} actors");
        }
    }

    #[test]
    fn equal_rows_take_memory_once() {
        let rows = vec![("one".to_owned(), (1, 0, None)); 10_000];
        let batches = vec![batch(&rows); 100];
        let (found, passes) = gathered(&batches, 1 << 20, Rows::Distinct).unwrap();
        assert_eq!((found["one"].len(), passes), (1, 1));
        let error = gathered(&batches, 1 << 20, Rows::All).unwrap_err();
        assert!(matches!(error, QueryError::Memory(_)), "one actor is more than there is: {error}");
    }
}
