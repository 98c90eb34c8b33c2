//! Counts the actors by number of intervals, and shapes the response: a series for each period and each series of the
//! request.

use serde::{Deserialize, Serialize};

use crate::compare::{Compare, PERIODS};
use crate::entity::note_named;
use crate::stickiness::active::Rule;
use crate::stickiness::{Counted, Stickiness};
use crate::{InsightError, ProjectSettings};
use weir_api::insights::series::{Day, Period, Series};
use weir_api::insights::value::Number;
use weir_api::node::NodeError;
use weir_query::events::histories::{Fold, PartialFold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Most numbers in a response.
const NUMBERS_MAX: usize = 100_000;

impl Stickiness {
    /// The series of the response, as in PostHog's API, in order.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Series>, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let mut shown = Vec::new();
        let mut numbers = 0_usize;
        for (range, period) in self.ranges(engine, &view, owner).await?.iter().zip(PERIODS) {
            let (rule, intervals) = self.rule(range, owner)?;
            numbers = numbers.saturating_add(rule.largest().saturating_mul(self.series.len()));
            if numbers > NUMBERS_MAX {
                let detail = format!(
                    "Series and intervals make more than {NUMBERS_MAX} numbers. Use longer intervals."
                );
                return Err(NodeError { field: "interval".to_owned(), detail }.into());
            }
            for counted in &self.series {
                let plan = self.plan(engine, (&view, owner), counted, &intervals).await?;
                let fold = Counting { rule, counts: vec![0; rule.largest()] };
                let counts =
                    engine.histories_in_parts(plan, self.rows(&intervals), fold).await?.counts;
                shown.push(self.body(counted, counts, period));
            }
        }
        Ok(shown)
    }

    fn body(&self, counted: &Counted, mut counts: Vec<u64>, period: Period) -> Series {
        let count: u64 = counts.iter().sum();
        if self.is_cumulative {
            let mut sum = 0;
            for number in counts.iter_mut().rev() {
                sum += *number;
                *number = sum;
            }
        }
        let end = if self.is_cumulative { " or more" } else { "" };
        let name = self.interval.name();
        let label = |number: usize| {
            let plural = if number == 1 { "" } else { "s" };
            format!("{number} {name}{plural}{end}")
        };
        let compare = self.compare != Compare::Nothing;
        Series {
            action: Some(counted.series.action.clone()),
            compare,
            compare_label: compare.then_some(period),
            count: count.into(),
            days: (1..=counts.len()).map(Day::Intervals).collect(),
            label: counted.series.entity.label().to_owned(),
            labels: (1..=counts.len()).map(label).collect(),
            data: counts.into_iter().map(Number::from).collect(),
            ..Series::default()
        }
    }
}

/// Counts actors by their number of active intervals, from 1 on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counting {
    rule: Rule,
    counts: Vec<u64>,
}

impl PartialFold for Counting {
    const NAME: &'static str = "active intervals";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        for (own, more) in self.counts.iter_mut().zip(other.counts) {
            *own += more;
        }
        Ok(())
    }
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let events = rows.iter().filter_map(|row| usize::try_from(row.at).ok());
        let place = self.rule.active(events).checked_sub(1);
        if let Some(count) = place.and_then(|place| self.counts.get_mut(place)) {
            *count += 1;
        }
        Ok(())
    }
}
