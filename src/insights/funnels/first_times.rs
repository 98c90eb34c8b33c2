//! Funnel steps that count only the first occurrence ever of an actor: [`Funnels::with_first_times`].

use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::logical_expr::{Expr, JoinType};
use datafusion::prelude::{col, ident};

use crate::columns::time;
use crate::funnels::Funnels;
use crate::series::First;
use crate::{Context, InsightError};
use weir_base::clock::UnixMicros;
use weir_query::events::expression_columns::with_columns;

/// Temporary column with the actor of an event.
const ACTOR: &str = "actor_of_first_times";

/// The column with the time of an actor's first occurrence of a step.
fn column(step: usize) -> String {
    format!("first_time_{step}")
}

impl Funnels {
    /// Adds the first times of the actors to `events`, which have none after `to`.
    pub(super) async fn with_first_times(
        &self,
        Context { engine, view, owner }: Context<'_>,
        events: DataFrame,
        to: UnixMicros,
    ) -> Result<DataFrame, InsightError> {
        if self.firsts.iter().all(Option::is_none) {
            return Ok(events);
        }
        let mut events = events.with_column(ACTOR, self.selection.unit.actor())?;
        let project = owner.project;
        for ((entity, first), step) in self.steps.iter().zip(&self.firsts).zip(0..) {
            let Some(first) = first else { continue };
            let all = view.events()?.filter(col("timestamp").lt_eq(time(to)))?;
            let mut conditions = vec![entity.is_named(engine, (view, project))?];
            if *first == First::Matching {
                conditions.push(entity.condition(engine, (view, project))?);
                let filters = self.selection.filters(owner)?;
                conditions.extend(filters.condition(engine, project, view.exact()));
            }
            let bounds = (UnixMicros(i64::MIN), to);
            let mut all = with_columns(view, all, bounds, &conditions).await?;
            for condition in conditions {
                all = all.filter(condition)?;
            }
            let key = format!("{ACTOR}_{step}");
            let actor = self.selection.unit.actor().alias(&key);
            let first = min(ident("timestamp")).alias(column(step));
            let firsts = all.aggregate(vec![actor], vec![first])?;
            // The left side of a join is held in memory, so it must be the smaller one.
            events = firsts.join(events, JoinType::Right, &[&key], &[ACTOR], None)?;
        }
        Ok(events)
    }

    /// The condition that an event of the step is its first occurrence; `None` if the step counts all occurrences.
    pub(super) fn is_first(&self, step: usize) -> Option<Expr> {
        self.firsts.get(step)?.as_ref()?;
        Some(ident("timestamp").eq(ident(column(step))))
    }
}
