//! Persons that were active in the days up to each bucket, without a breakdown and with few steps: a fold over the steps in
//! which each person was active ([`counts`]), for which a person takes a bit for each step, and of which other nodes compute
//! parts. Others are counted by the plan.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{cast, lit};
use datafusion::prelude::ident;
use serde::{Deserialize, Serialize};

use crate::interval::Window;
use weir_query::events::histories::{ACTOR, AT, Fold, MASK, Marks, PartialFold, Row, Rows};
use weir_query::events::table::PERSON_NUMBER;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// The number of persons of `events` in the window of each bucket, in rows of bucket and number, which are called `names`.
/// There is no row for a bucket without persons.
///
/// # Errors
///
/// See [`QueryError`].
pub(super) async fn counts(
    engine: &Engine,
    events: DataFrame,
    window: Window,
    names: [&str; 2],
) -> Result<RecordBatch, QueryError> {
    let rows = events.select(vec![
        ident(PERSON_NUMBER).alias(ACTOR),
        cast(window.steps.expression(), DataType::Int64).alias(AT),
        lit(0_u32).alias(MASK),
    ])?;
    let fold = Counting { counts: vec![0; window.buckets()], window };
    let rows_of = Rows::Marked(marks(&fold.window));
    let counts = engine.histories_in_parts(rows, rows_of, fold).await?.counts;
    let found = (0_i32..).zip(counts).filter(|(_, count)| *count > 0);
    let (buckets, counts): (Vec<i32>, Vec<i64>) =
        found.map(|(bucket, count)| (bucket, i64::try_from(count).unwrap_or(i64::MAX))).unzip();
    let columns: [ArrayRef; 2] =
        [Arc::new(Int32Array::from(buckets)), Arc::new(Int64Array::from(counts))];
    Ok(RecordBatch::try_from_iter(names.into_iter().zip(columns)).map_err(DataFusionError::from)?)
}

/// Whether the steps of a window are few.
pub(super) fn has_few_steps(window: &Window) -> bool {
    marks(window).are_few()
}

fn marks(window: &Window) -> Marks {
    Marks { times: window.steps.len(), masks: &[0] }
}

/// Counts the persons in the window of each bucket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counting {
    window: Window,
    counts: Vec<u64>,
}

impl PartialFold for Counting {
    const NAME: &'static str = "active persons";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        for (own, more) in self.counts.iter_mut().zip(other.counts) {
            *own += more;
        }
        Ok(())
    }
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        // Steps come in order, and so do the buckets of each.
        let mut counted = 0;
        for step in rows.iter().filter_map(|row| usize::try_from(row.at).ok()) {
            let buckets = self.window.buckets_with(step);
            let new = buckets.start.max(counted)..buckets.end;
            self.counts.get_mut(new).into_iter().flatten().for_each(|count| *count += 1);
            counted = counted.max(buckets.end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::Counting;
    use crate::date_range::DateRange;
    use crate::interval::{Buckets, Interval};
    use weir_base::clock::UnixMicros;
    use weir_query::events::histories::{Fold, PartialFold, Row};
    use weir_query::kernel::interner::Interner;

    const DAY: i64 = 86_400_000_000;

    /// Goal: each person counts once in each bucket of which the window has one of its steps, in whatever parts they are
    /// counted. Method: random steps of random persons, of windows that overlap and of such that do not, beside a look at
    /// each step for each bucket.
    #[test]
    fn a_person_counts_once_in_each_window() {
        let mut random = StdRng::seed_from_u64(3);
        for (interval, days) in [
            (Interval::Day, 7),
            (Interval::Day, 30),
            (Interval::Hour, 7),
            (Interval::Week, 30),
            (Interval::Week, 8),
        ] {
            let range = DateRange::new(UnixMicros(0), UnixMicros(60 * DAY), Tz::UTC);
            let buckets = Buckets::of(&range, interval, false).unwrap();
            let window = buckets.window(days).unwrap().expect("steps are shorter than buckets");
            let steps = i64::try_from(window.steps.len()).unwrap();
            let persons: Vec<Vec<i64>> = (0..50)
                .map(|_| {
                    let count = random.random_range(1..12);
                    let mut steps: Vec<i64> =
                        (0..count).map(|_| random.random_range(0..steps)).collect();
                    steps.sort_unstable();
                    steps
                })
                .collect();
            let none = || Counting { counts: vec![0; window.buckets()], window: window.clone() };
            let mut parts = [none(), none()];
            for (at, steps) in persons.iter().enumerate() {
                let rows: Vec<Row> = steps.iter().map(|step| Row::new(*step, 0)).collect();
                parts[at % 2].actor("", &rows, &Interner::default()).unwrap();
            }
            let [mut all, other] = parts;
            all.merge(other).unwrap();
            let has = |steps: &&Vec<i64>, bucket: usize| {
                let mut steps = steps.iter().map(|step| usize::try_from(*step).unwrap());
                steps.any(|step| window.buckets_with(step).contains(&bucket))
            };
            for (bucket, count) in all.counts.iter().enumerate() {
                let expected = persons.iter().filter(|steps| has(steps, bucket)).count();
                assert_eq!(usize::try_from(*count).unwrap(), expected, "{interval:?} {bucket}");
            }
            assert!(all.counts.iter().any(|count| *count > 1));
        }
    }
}
