//! Conversion rates over time, by the interval in which an attempt begins.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::breakdown::Breakdown;
use crate::funnels::Funnels;
use crate::funnels::answer::{OTHER, check_values, cohort_of, ranked, value_of};
use crate::funnels::split::Splitter;
use crate::interval::Buckets;
use crate::{Context, InsightError};
use weir_api::insights::funnel::Conversion;
use weir_api::insights::value::BreakdownValue;
use weir_api::node::NodeError;
use weir_query::events::histories::{Fold, PartialFold, Row};
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Most numbers in a response. Each takes about 150 bytes with its label and its day.
const NUMBERS_MAX: usize = 100_000;

/// Most pairs of a breakdown value and an interval while a result is computed. Each takes about 50 bytes.
const CELLS_MAX: usize = 1_000_000;

/// How many actors entered and how many converted, by interval.
type Rates = BTreeMap<usize, Rate>;

/// How many actors reached the earlier step, and how many of them the later one.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Rate {
    entered: u64,
    converted: u64,
}

impl Rate {
    fn add(&mut self, other: Self) {
        self.entered = self.entered.saturating_add(other.entered);
        self.converted = self.converted.saturating_add(other.converted);
    }

    /// The conversion rate in percent, with two decimals.
    fn percent(self) -> f64 {
        // Hundredths of a percent, rounded.
        let (entered, converted) = (u128::from(self.entered), u128::from(self.converted));
        let hundredths = (converted * 20_000 + entered).checked_div(entered * 2).unwrap_or(0);
        u32::try_from(hundredths).map_or(100.0, |hundredths| f64::from(hundredths) / 100.0)
    }
}

/// Counts by breakdown value and interval.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counting {
    splitter: Splitter,
    between: (usize, usize),
    counted: Counted,
}

/// The rates of all breakdown values.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counted {
    values: HashMap<String, Rates>,
    cells: usize,
}

impl Counted {
    fn add(&mut self, value: &str, bucket: usize, rate: Rate) -> Result<(), QueryError> {
        let Self { values, cells } = self;
        if !values.contains_key(value) {
            check_values(values.len())?;
            values.insert(value.to_owned(), Rates::new());
        }
        let Some(rates) = values.get_mut(value) else { return Ok(()) };
        let before = rates.len();
        rates.entry(bucket).or_default().add(rate);
        *cells = cells.saturating_add(rates.len().saturating_sub(before));
        if *cells > CELLS_MAX {
            let detail = format!(
                "Values of the breakdown and intervals make more than {CELLS_MAX} numbers. Use longer intervals."
            );
            return Err(QueryError::Invalid(detail));
        }
        Ok(())
    }
}

impl PartialFold for Counting {
    const NAME: &'static str = "rates of a funnel";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        for (value, rates) in other.counted.values {
            for (bucket, rate) in rates {
                self.counted.add(&value, bucket, rate)?;
            }
        }
        Ok(())
    }
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { splitter, between: (from, to), counted } = self;
        splitter.each(rows, texts, |found| {
            let steps = found.times.len();
            if steps <= *from {
                return Ok(());
            }
            let rate = Rate { entered: 1, converted: u64::from(steps > *to) };
            counted.add(found.value, found.bucket, rate)
        })
    }
}

fn join(rates: &mut Rates, others: Rates) {
    for (bucket, rate) in others {
        rates.entry(bucket).or_default().add(rate);
    }
}

impl Funnels {
    pub(super) async fn conversion_trends(
        &self,
        context: Context<'_>,
    ) -> Result<Vec<Conversion>, InsightError> {
        let buckets = self.buckets(context).await?;
        match self.split() {
            Breakdown::Nothing => {
                let mut rates = self.rates(context, &buckets, None).await?;
                let rates = rates.remove("").unwrap_or_default();
                Ok(vec![series(&buckets, &rates, None)])
            }
            Breakdown::Cohorts(cohorts) => {
                check_size(&buckets, cohorts.len())?;
                let mut answer = Vec::with_capacity(cohorts.len());
                for cohort in cohorts {
                    let mut rates = self.rates(context, &buckets, *cohort).await?;
                    let rates = rates.remove("").unwrap_or_default();
                    let (_, value) = cohort_of(context, *cohort);
                    answer.push(series(&buckets, &rates, Some(value)));
                }
                Ok(answer)
            }
            Breakdown::Properties { limit, is_other_hidden, .. } => {
                check_size(&buckets, *limit)?;
                let (shown, rest) = self.ranked_rates(context, &buckets, *limit).await?;
                let rest = rest.filter(|_| !is_other_hidden);
                let rest = rest.map(|rates| (OTHER.to_owned(), rates));
                let body = |(value, rates): (String, Rates)| {
                    series(&buckets, &rates, Some(value_of(&value)))
                };
                Ok(shown.into_iter().chain(rest).map(body).collect())
            }
        }
    }

    /// The intervals of the range.
    pub(super) async fn buckets(&self, context: Context<'_>) -> Result<Buckets, InsightError> {
        let Context { engine, view, owner } = context;
        self.selection.dates.buckets(engine, (view, owner), self.interval).await
    }

    /// The rates of the values that are shown on their own, and those of all others together.
    pub(super) async fn ranked_rates(
        &self,
        context: Context<'_>,
        buckets: &Buckets,
        limit: usize,
    ) -> Result<(Vec<(String, Rates)>, Option<Rates>), InsightError> {
        let rates = self.rates(context, buckets, None).await?;
        let rank = |rates: &Rates| {
            let mut sum = Rate::default();
            rates.values().for_each(|rate| sum.add(*rate));
            (sum.converted, sum.entered)
        };
        Ok(ranked(rates, limit, rank, join))
    }

    async fn rates(
        &self,
        context: Context<'_>,
        buckets: &Buckets,
        cohort: Option<i64>,
    ) -> Result<HashMap<String, Rates>, InsightError> {
        let splitter = self.splitter(Some(buckets.clone()));
        let counting = Counting { splitter, between: self.between, counted: Counted::default() };
        // The first interval may begin before the range; events before the range are not counted.
        let bounds = (self.bounds(context).await?, cohort);
        Ok(self.fold(context, bounds, counting).await?.counted.values)
    }
}

fn check_size(buckets: &Buckets, values: usize) -> Result<(), NodeError> {
    if buckets.len().saturating_mul(values.saturating_add(1)) <= NUMBERS_MAX {
        return Ok(());
    }
    let detail = format!(
        "Values of the breakdown and intervals make more than {NUMBERS_MAX} numbers. \
         Use longer intervals or a lower breakdown_limit."
    );
    Err(NodeError { field: "interval".to_owned(), detail })
}

/// A series of the response: a rate for each interval.
fn series(buckets: &Buckets, rates: &Rates, breakdown_value: Option<BreakdownValue>) -> Conversion {
    let all = 0..buckets.len();
    let rate = |bucket| rates.get(&bucket).copied().unwrap_or_default().percent();
    Conversion {
        breakdown_value,
        count: buckets.len(),
        data: all.clone().map(rate).collect(),
        days: all.clone().map(|bucket| buckets.day(bucket)).collect(),
        labels: all.map(|bucket| buckets.label(bucket)).collect(),
        persons_urls: None,
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn rates_are_percents_with_two_decimals() {
        for (converted, entered, expected) in
            [(0, 0, 0.0), (0, 3, 0.0), (1, 3, 33.33), (2, 3, 66.67), (3, 3, 100.0), (1, 800, 0.13)]
        {
            assert_eq!(Rate { entered, converted }.percent(), expected);
        }
    }
}
