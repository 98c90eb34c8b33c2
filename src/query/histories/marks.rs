//! Rows of few times and masks as bits of each actor: [`Marks`]. Counting them is an aggregation by hash, on all threads
//! and in a few words for each actor, where rows would have to be kept and sorted.

use arrow::array::Array;
use arrow::array::AsArray;
use arrow::array::RecordBatch;
use arrow::array::UInt64Array;
use arrow::datatypes::DataType;
use arrow::datatypes::UInt64Type;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::bit_or;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::binary_expr;
use datafusion::logical_expr::cast;
use datafusion::logical_expr::when;
use datafusion::prelude::ident;
use datafusion::prelude::lit;

use crate::query::histories::ACTOR;
use crate::query::histories::AT;
use crate::query::histories::MASK;
use crate::query::histories::NO_TEXT;
use crate::query::histories::Row;

/// Times of a word.
const WORD: usize = 64;

/// Most words of an actor. Each is a column of the aggregation: with more of them a sort is as good.
const WORDS_MAX: usize = 4;

/// Which rows there can be: their times are from 0 on and below a number, their masks among these. The plan gives no others,
/// which would be counted as some of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// How many times there are.
    pub times: usize,
    /// The masks, each larger than the one before.
    pub masks: &'static [u32],
}

impl Marks {
    /// Whether they are few enough.
    pub(super) fn are_few(self) -> bool {
        self.words().saturating_mul(self.masks.len()) <= WORDS_MAX
    }

    /// Words of a mask.
    fn words(self) -> usize {
        self.times.div_ceil(WORD)
    }

    /// The plan with one row for each actor: its words, those of the first mask first.
    pub(super) fn plan(self, rows: DataFrame) -> Result<DataFrame> {
        let mut words = Vec::new();
        for mask in self.masks {
            for first in (0..self.words()).map(|word| word * WORD) {
                let first = i64::try_from(first).unwrap_or(i64::MAX);
                let shift = cast(ident(AT) - lit(first), DataType::UInt64);
                let mut bit = binary_expr(lit(1_u64), Operator::BitwiseShiftLeft, shift);
                if let Some(is_own) = self.condition(*mask, first) {
                    bit = when(is_own, bit).end()?;
                }
                words.push(bit_or(bit).alias(format!("word {}", words.len())));
            }
        }
        // Without a filter of what is null: it would compute actors and times once more, below. A bit of no time is none.
        rows.aggregate(vec![ident(ACTOR)], words)
    }

    /// Which rows are of a word; `None` if all are.
    fn condition(self, mask: u32, first: i64) -> Option<Expr> {
        let of_mask = (self.masks.len() > 1).then(|| ident(MASK).eq(lit(mask)));
        let last = first.saturating_add(i64::try_from(WORD - 1).unwrap_or(0));
        let of_word = (self.words() > 1).then(|| ident(AT).between(lit(first), lit(last)));
        of_mask.into_iter().chain(of_word).reduce(Expr::and)
    }

    /// The words of the actors of a batch of the plan.
    pub(super) fn words_of(self, batch: &RecordBatch) -> Result<Words<'_>> {
        let columns = batch.columns().iter().skip(1);
        let columns: Option<Vec<_>> =
            columns.map(|column| column.as_primitive_opt::<UInt64Type>()).collect();
        let missing = || DataFusionError::Internal("a word of marks is none".to_owned());
        Ok(Words { marks: self, columns: columns.ok_or_else(missing)? })
    }
}

/// Words of actors.
pub(super) struct Words<'b> {
    marks: Marks,
    columns: Vec<&'b UInt64Array>,
}

impl Words<'_> {
    /// Reads the rows of an actor, in their order.
    pub(super) fn read(&self, actor: usize, rows: &mut Vec<Row>) {
        rows.clear();
        let word = |place: usize| match self.columns.get(place) {
            Some(column) if column.is_valid(actor) => column.value(actor),
            _ => 0,
        };
        let words = self.marks.words();
        for number in 0..words {
            let own = || (0..self.marks.masks.len()).map(|mask| word(mask * words + number));
            let mut left = own().fold(0, |all, word| all | word);
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let at = i64::try_from(number * WORD).unwrap_or(i64::MAX) + i64::from(bit);
                let masks = self.marks.masks.iter().zip(own());
                let masks = masks.filter(|(_, word)| word >> bit & 1 == 1);
                rows.extend(masks.map(|(mask, _)| Row {
                    at,
                    mask: *mask,
                    text: NO_TEXT,
                    actor: 0,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow::array::Array;
    use arrow::array::ArrayRef;
    use arrow::array::AsArray;
    use arrow::array::Int64Array;
    use arrow::array::RecordBatch;
    use arrow::array::UInt32Array;
    use arrow::datatypes::UInt32Type;
    use datafusion::prelude::SessionContext;
    use rand::Rng;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::Marks;

    /// Goal: each actor has its rows, once and in their order. Method: random rows beside sorted sets.
    #[tokio::test]
    async fn bits_are_the_rows_of_their_actor() {
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
            for _ in 0..3000 {
                let actor = rng.random_bool(0.9).then(|| rng.random_range(0..50));
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
            let rows = SessionContext::new().read_batch(rows.unwrap()).unwrap();
            let marks = Marks { times, masks };
            assert!(marks.are_few());
            let (mut found, mut own) = (BTreeMap::new(), Vec::new());
            for batch in marks.plan(rows).unwrap().collect().await.unwrap() {
                let (actors, words) = (batch.column(0), marks.words_of(&batch).unwrap());
                let actors = actors.as_primitive::<UInt32Type>();
                for place in (0..actors.len()).filter(|place| actors.is_valid(*place)) {
                    words.read(place, &mut own);
                    let rows: Vec<(i64, u32)> = own.iter().map(|row| (row.at, row.mask)).collect();
                    assert_eq!(found.insert(actors.value(place), rows), None);
                }
            }
            // Whose rows have no time.
            found.retain(|_, rows| !rows.is_empty());
            let expected = expected.into_iter().map(|(actor, rows)| (actor, Vec::from_iter(rows)));
            assert_eq!(found, expected.collect(), "{times} times, masks {masks:?}");
        }
        let many: [(usize, &[u32]); 3] = [(257, &[0]), (129, &[0, 1]), (1, &[0, 1, 2, 3, 4])];
        assert!(!many.into_iter().any(|(times, masks)| Marks { times, masks }.are_few()));
    }
}
