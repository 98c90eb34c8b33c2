//! Counts the actors of each cell of a retention, and shapes the answer: a row for each interval.

use chrono::SecondsFormat;
use serde_json::Value;
use serde_json::json;

use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::retention::Retention;
use crate::insights::retention::plan::Folded;
use crate::insights::retention::rows::Activity;
use crate::insights::retention::rows::Rule;
use crate::insights::selection::zone;
use crate::query::engine::Engine;
use crate::query::error::QueryError;
use crate::query::histories::Fold;
use crate::query::histories::Row;
use crate::query::interner::Interner;

impl Retention {
    /// The answer: a row for each interval as PostHog's clients expect them, in their order.
    ///
    /// # Errors
    ///
    /// See [`InsightError`].
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Value>, InsightError> {
        let Folded { plan, rows, rule, intervals } = self.folded(engine, owner).await?;
        let cells = rule.cells;
        let counts = vec![0; cells.saturating_mul(intervals.len())];
        let fold = Counting { rule, counts, activity: Activity::default() };
        let counted = engine.histories(plan, rows, fold).await?;
        let (zone, period) = (zone(owner)?, self.title());
        let row = |(counts, at): (&[u64], usize)| {
            let start = intervals.bounds_of(at).map(|(start, _)| start.to_datetime());
            let date = start
                .map(|start| start.with_timezone(&zone).to_rfc3339_opts(SecondsFormat::Secs, true));
            let value = |(count, at): (&u64, usize)| json!({"count": count, "label": format!("{period} {at}")});
            let values: Vec<Value> = counts.iter().zip(0..).map(value).collect();
            json!({"values": values, "label": format!("{period} {at}"), "date": date})
        };
        Ok(counted.counts.chunks(cells).zip(0..).map(row).collect())
    }

    /// What an interval is called.
    fn title(&self) -> String {
        let name = self.period.name();
        let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
        format!("{}{rest}", first.to_uppercase())
    }
}

/// Counts actors.
#[derive(Debug)]
struct Counting {
    rule: Rule,
    /// The cells of all rows.
    counts: Vec<u64>,
    /// Of the actor.
    activity: Activity,
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], _: &Interner) -> Result<(), QueryError> {
        let Self { rule, counts, activity } = self;
        rule.read(rows.iter().map(|row| (row.at, row.mask)), activity);
        for start in &activity.starts {
            rule.counted(activity, *start, |cell| {
                if let Some(count) = counts.get_mut(start * rule.cells + cell) {
                    *count += 1;
                }
            });
        }
        Ok(())
    }
}
