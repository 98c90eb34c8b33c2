//! Counts the actors of each status, and shapes the answer: a series for each status.

use serde_json::{Value, json};

use crate::lifecycle::Lifecycle;
use crate::lifecycle::plan::{rows, statuses};
use crate::lifecycle::status::Status;
use crate::{InsightError, ProjectSettings};
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

impl Lifecycle {
    /// The answer: the series as PostHog's clients expect them, in the order of [`Status::ALL`]. The numbers of those
    /// who stay away are negative.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Value>, InsightError> {
        let view = engine.view(owner.project).await?;
        let intervals = self.intervals(engine, (&view, owner)).await?;
        let plan = self.plan(engine, (&view, owner), &intervals).await?;
        let fold = Counting { counts: Status::ALL.map(|_| vec![0; intervals.len()]) };
        let counted = engine.histories(plan, rows(&intervals), fold).await?;
        let name = self.series.entity.label();
        let texts =
            |text: &dyn Fn(usize) -> String| (0..intervals.len()).map(text).collect::<Vec<_>>();
        let series = |(status, data): (Status, Vec<i64>)| {
            json!({
                "action": self.series.action, "label": format!("{name} - {}", status.name()),
                "count": data.iter().sum::<i64>(), "data": data,
                "labels": texts(&|at| intervals.label(at)), "days": texts(&|at| intervals.day(at)),
                "status": status.name(),
            })
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
