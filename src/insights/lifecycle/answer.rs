//! Counts the actors of each status, and shapes the response: a series for each status.

use crate::lifecycle::Lifecycle;
use crate::lifecycle::plan::{rows, statuses};
use crate::{InsightError, ProjectSettings};
use weir_api::insights::series::{Day, Series, Status};
use weir_api::insights::value::Number;
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

impl Lifecycle {
    /// The series of the response, as in PostHog's API, in the order of [`Status::ALL`]. The numbers of dormant
    /// actors are negative.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Series>, InsightError> {
        let view = engine.view(owner.project).await?;
        let intervals = self.intervals(engine, (&view, owner)).await?;
        let plan = self.plan(engine, (&view, owner), &intervals).await?;
        let fold = Counting { counts: Status::ALL.map(|_| vec![0; intervals.len()]) };
        let counted = engine.histories(plan, rows(&intervals), fold).await?;
        let name = self.series.entity.label();
        let all = 0..intervals.len();
        let series = |(status, data): (Status, Vec<i64>)| Series {
            action: Some(self.series.action.clone()),
            count: data.iter().sum::<i64>().into(),
            data: data.into_iter().map(Number::from).collect(),
            days: all.clone().map(|at| Day::Beginning(intervals.day(at))).collect(),
            label: format!("{name} - {}", status.name()),
            labels: all.clone().map(|at| intervals.label(at)).collect(),
            status: Some(status),
            ..Series::default()
        };
        let all = Status::ALL.into_iter().zip(counted.counts);
        Ok(all.filter(|(status, _)| self.shown.contains(status)).map(series).collect())
    }
}

/// Counts actors by their status and interval.
#[derive(Debug)]
struct Counting {
    counts: [Vec<i64>; 4],
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let [new, returning, resurrecting, dormant] = &mut self.counts;
        let intervals = new.len();
        statuses(rows, intervals, |interval, status| {
            let (counts, change) = match status {
                Status::New => (&mut *new, 1),
                Status::Returning => (&mut *returning, 1),
                Status::Resurrecting => (&mut *resurrecting, 1),
                Status::Dormant => (&mut *dormant, -1),
            };
            if let Some(count) = counts.get_mut(interval) {
                *count += change;
            }
        });
        Ok(())
    }
}
