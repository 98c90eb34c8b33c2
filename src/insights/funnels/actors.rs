//! Lists the persons or groups behind a step of a funnel: [`Funnels::actors`]. They are found by the same walks that
//! counted them, so that their number equals the count of the step.

use std::collections::HashSet;

use serde_json::Value;

use crate::bins::name_of;
use crate::breakdown::{Breakdown, OfValue, of_value, value_sent};
use crate::funnels::answer::OTHER;
use crate::funnels::split::{Attempt, Splitter};
use crate::funnels::{Funnels, Shown};
use crate::ranked::Ranked;
use crate::{Actor, Context, InsightError, ProjectSettings};
use weir_api::node::{NodeError, join};
use weir_api::nodes::actors::FunnelsActorsQuery;
use weir_query::events::histories::{Fold, Row, Rows};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// Selects actors: the fields of a `FunnelsActorsQuery` besides its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    of: Of,
    /// The breakdown value.
    breakdown: Option<Value>,
}

/// Where the actors stopped.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    /// At a step.
    Step(Stop),
    /// In a trend: those that reached the later one of its two steps, or those that reached only the earlier one.
    Trend {
        /// The beginning of the interval.
        day: String,
        is_drop_off: bool,
    },
}

/// Condition on the steps that an actor completed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    /// Completed the step at this index.
    Did(usize),
    /// Completed the last required step before a step, but not that step.
    Left {
        /// The index of the required step.
        before: usize,
        /// The index of the step.
        at: usize,
    },
    /// The last completed step is one of these, counted from 1.
    Last(Vec<usize>),
    /// Completed the first step.
    Any,
}

impl Stop {
    /// Whether an actor with these times of steps meets the condition.
    pub(super) fn is(&self, times: &[Option<i64>]) -> bool {
        let did = |place: &usize| times.get(*place).is_some_and(Option::is_some);
        match self {
            Self::Did(place) => did(place),
            Self::Left { before, at } => did(before) && !did(at),
            Self::Last(steps) => steps.contains(&times.len()),
            Self::Any => !times.is_empty(),
        }
    }
}

fn trend_asked(sent: FunnelsActorsQuery, path: &str) -> Result<Of, NodeError> {
    let Some(is_drop_off) = sent.funnel_trends_drop_off else {
        let detail = "Trends of funnels need funnelTrendsDropOff: true or false.";
        return Err(NodeError::new(join(path, "funnelTrendsDropOff"), detail));
    };
    let Some(day) = sent.funnel_trends_entrance_period_start else {
        let detail = "Trends of funnels need the beginning of an interval, as in days.";
        return Err(NodeError::new(join(path, "funnelTrendsEntrancePeriodStart"), detail));
    };
    Ok(Of::Trend { day, is_drop_off })
}

/// Collects the actors that are selected.
#[derive(Debug)]
struct Behind {
    splitter: Splitter,
    reached: Reached,
    value: OfValue,
    found: Ranked,
}

/// How far an actor has to get.
#[derive(Debug)]
enum Reached {
    Stop(Stop),
    /// In an interval: at least `least` steps, and fewer than `below`.
    Within {
        bucket: usize,
        least: usize,
        below: usize,
    },
}

impl Reached {
    fn is(&self, found: &Attempt<'_>) -> bool {
        let steps = found.times.len();
        match self {
            Self::Stop(stop) => stop.is(found.times),
            Self::Within { bucket, least, below } => {
                found.bucket == *bucket && steps >= *least && steps < *below
            }
        }
    }
}

impl Fold for Behind {
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let mut is_in = false;
        self.splitter.each(rows, texts, |found| {
            is_in |= self.value.has(found.value) && self.reached.is(&found);
            Ok(())
        })?;
        if is_in {
            self.found.add(actor, 1.0);
        }
        Ok(())
    }
}

impl Funnels {
    /// Parses the `FunnelsActorsQuery` at `path`, the source of which is this funnel.
    ///
    /// # Errors
    ///
    /// A field is absent, or there is no such step.
    pub fn asked(&self, sent: FunnelsActorsQuery, path: &str) -> Result<Position, NodeError> {
        self.check_unit()?;
        let breakdown = of_value(sent.funnel_step_breakdown.as_ref());
        let of = match self.shown {
            Shown::Trends => trend_asked(sent, path)?,
            Shown::Steps | Shown::TimeToConvert(_) => {
                Of::Step(self.stop_asked(sent.funnel_step, &sent.funnel_custom_steps, path)?)
            }
        };
        Ok(Position { of, breakdown })
    }

    /// Parses `funnelStep` or `funnelCustomSteps` of the node at `path`.
    pub(super) fn stop_asked(
        &self,
        step: Option<i64>,
        custom: &[i64],
        path: &str,
    ) -> Result<Stop, NodeError> {
        let count = self.steps.len();
        let refused = |name: &str, detail: String| NodeError::new(join(path, name), detail);
        if !custom.is_empty() {
            let step = |step: &i64| {
                let step = usize::try_from(*step).ok().filter(|step| (1..=count).contains(step));
                let detail = || format!("Expected numbers of steps from 1 to {count}.");
                step.ok_or_else(|| refused("funnelCustomSteps", detail()))
            };
            return Ok(Stop::Last(custom.iter().map(step).collect::<Result<_, _>>()?));
        }
        let refused = |detail: &str| refused("funnelStep", detail.to_owned());
        let absent = "Expected a step: funnelStep, or funnelCustomSteps.";
        let step = step.ok_or_else(|| refused(absent))?;
        let place = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
        if step == -1 {
            let detail = "Nobody drops off before the first step: use -2 for those who did the first step alone.";
            return Err(refused(detail));
        }
        if place == 0 || place > count {
            let detail = format!("Expected a step from 1 to {count}, or from -2 to -{count}.");
            return Err(refused(&detail));
        }
        let at = place - 1;
        if step > 0 {
            return Ok(Stop::Did(at));
        }
        let is_required = |step: &usize| self.course.optional >> step & 1 == 0;
        Ok(Stop::Left { before: (0..at).rev().find(is_required).unwrap_or(0), at })
    }

    /// The persons or groups behind a step, by their ids; one more than `part` has is returned if there are more.
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        asked: &Position,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let view = engine.view(owner.project).await?;
        let context = Context { engine, view: &view, owner };
        let (reached, buckets) = match &asked.of {
            Of::Step(stop) => (Reached::Stop(stop.clone()), None),
            Of::Trend { day, is_drop_off } => {
                let buckets = self.buckets(context).await?;
                let bucket = buckets.bucket_of_day(day).ok_or_else(|| NodeError {
                    field: "funnelTrendsEntrancePeriodStart".to_owned(),
                    detail: "There is no such interval.".to_owned(),
                })?;
                let (from, to) = self.between;
                let (least, below) =
                    if *is_drop_off { (from + 1, to + 1) } else { (to + 1, usize::MAX) };
                (Reached::Within { bucket, least, below }, Some(buckets))
            }
        };
        let bounds = self.bounds(context).await?;
        let (value, cohort) = self.value_asked(context, asked.breakdown.as_ref()).await?;
        let splitter = self.splitter(buckets);
        let found = Ranked::new(part, self.selection.unit);
        let behind = Behind { splitter, reached, value, found };
        let rows = self.rows(context, bounds, cohort).await?;
        let behind = context.engine.histories(rows, Rows::All, behind).await?;
        Ok(behind.found.into_actors())
    }

    /// Resolves a breakdown value of the response to the values that it represents, or to a cohort.
    async fn value_asked(
        &self,
        context: Context<'_>,
        value: Option<&Value>,
    ) -> Result<(OfValue, Option<i64>), InsightError> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let Some(value) = value else { return Ok((OfValue::Any, None)) };
        match self.split() {
            Breakdown::Nothing => Ok((OfValue::Any, None)),
            Breakdown::Cohorts(cohorts) => {
                let asked = match value {
                    Value::Array(values) => values.first().map(text).unwrap_or_default(),
                    one => text(one),
                };
                let id =
                    |cohort: &Option<i64>| cohort.map_or("all".to_owned(), |id| id.to_string());
                let cohort = cohorts.iter().find(|cohort| id(cohort) == asked);
                let wrong = || NodeError {
                    field: "funnelStepBreakdown".to_owned(),
                    detail: "The funnel is not split by this cohort.".to_owned(),
                };
                Ok((OfValue::Any, *cohort.ok_or_else(wrong)?))
            }
            Breakdown::Properties { properties, limit, .. } => {
                let is_binned = matches!(properties.as_slice(), [one] if one.bins.is_some());
                let bin = if is_binned { name_of(value) } else { None };
                let value = bin.unwrap_or_else(|| value_sent(value));
                if value != OTHER {
                    return Ok((OfValue::One(value), None));
                }
                let shown = self.shown_values(context, *limit).await?;
                if shown.contains(OTHER) {
                    return Ok((OfValue::One(value), None));
                }
                Ok((OfValue::Others(shown), None))
            }
        }
    }

    /// The breakdown values that are shown on their own.
    async fn shown_values(
        &self,
        context: Context<'_>,
        limit: usize,
    ) -> Result<HashSet<String>, InsightError> {
        if self.shown == Shown::Trends {
            let buckets = self.buckets(context).await?;
            let (shown, _) = self.ranked_rates(context, &buckets, limit).await?;
            return Ok(shown.into_iter().map(|(value, _)| value).collect());
        }
        let (shown, _) = self.ranked_counts(context, limit).await?;
        Ok(shown.into_iter().map(|(value, _)| value).collect())
    }
}
