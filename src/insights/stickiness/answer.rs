//! Counts the actors with each number of intervals, and shapes the answer: a series for each period and each
//! series of the request.

use serde_json::{Map, Value, json};

use crate::compare::{Compare, PERIODS};
use crate::entity::note_named;
use crate::node::NodeError;
use crate::stickiness::active::Rule;
use crate::stickiness::{Counted, Stickiness};
use crate::{InsightError, ProjectSettings};
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// Most numbers of one answer.
const NUMBERS_MAX: usize = 100_000;

impl Stickiness {
    /// The answer: the series as PostHog's clients expect them, in their order.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Value>, InsightError> {
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
                let counts = engine.histories(plan, self.rows(&intervals), fold).await?.counts;
                shown.push(self.body(counted, counts, period));
            }
        }
        Ok(shown)
    }

    fn body(&self, counted: &Counted, mut counts: Vec<u64>, period: &str) -> Value {
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
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("action", counted.series.action.clone());
        set("label", json!(counted.series.entity.label()));
        set("count", json!(count));
        set("labels", (1..=counts.len()).map(label).collect());
        set("days", json!((1..=counts.len()).collect::<Vec<_>>()));
        set("data", json!(counts));
        if self.compare != Compare::Nothing {
            set("compare", json!(true));
            set("compare_label", json!(period));
        }
        Value::Object(body)
    }
}

/// Counts actors by the number of their intervals, from 1 on.
#[derive(Debug)]
struct Counting {
    rule: Rule,
    counts: Vec<u64>,
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
