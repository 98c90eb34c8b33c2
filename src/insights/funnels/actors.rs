//! The persons or groups behind a step of a funnel: [`Funnels::actors`]. The walks that counted them find them, so that there
//! are as many as the step says.

use std::collections::HashSet;

use serde_json::Value;

use crate::bins::name_of;
use crate::breakdown::{Breakdown, OfValue, value_sent};
use crate::funnels::answer::OTHER;
use crate::funnels::split::{Found, Splitter};
use crate::funnels::{Funnels, Shown};
use crate::node::{Node, NodeError};
use crate::ranked::Ranked;
use crate::{Actor, Context, InsightError, ProjectSettings};
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

/// Who is asked for: the fields of a `FunnelsActorsQuery` beside its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    of: Of,
    /// The value of the breakdown.
    breakdown: Option<Value>,
}

/// Where they stopped.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    /// At a step.
    Step(Stop),
    /// In a trend: between the two steps that it shows, or not before the later one.
    Trend {
        /// The beginning of an interval.
        day: String,
        is_drop_off: bool,
    },
}

/// What is asked of the steps of those who are meant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    /// They did the step at this place.
    Did(usize),
    /// They did the required step at the place before, and not the step at the place.
    Left {
        /// The place of the required step.
        before: usize,
        /// The place of the step.
        at: usize,
    },
    /// The last step that they did is one of these, counted from 1.
    Last(Vec<usize>),
    /// They did the first step.
    Any,
}

impl Stop {
    /// Whether they did so who did steps at these times.
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

/// Collects the actors.
#[derive(Debug)]
struct Behind {
    splitter: Splitter,
    reached: Reached,
    value: OfValue,
    found: Ranked,
}

/// How far an actor came.
#[derive(Debug)]
enum Reached {
    Stop(Stop),
    /// In an interval: at least the first number of steps, and less than the second.
    Within {
        bucket: usize,
        least: usize,
        below: usize,
    },
}

impl Reached {
    fn is(&self, found: &Found<'_>) -> bool {
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
    /// Reads the fields of a `FunnelsActorsQuery` beside its source, which is this one.
    ///
    /// # Errors
    ///
    /// A field is malformed, or there is no such step.
    pub fn asked(&self, node: &Node<'_>) -> Result<Position, NodeError> {
        self.check_unit()?;
        let breakdown = match node.value("funnelStepBreakdown") {
            Some(Value::Array(values)) if values.is_empty() => None,
            value => value.cloned(),
        };
        let of = match self.shown {
            Shown::Trends => self.trend_asked(node)?,
            Shown::Steps | Shown::TimeToConvert(_) => Of::Step(self.stop_asked(node)?),
        };
        Ok(Position { of, breakdown })
    }

    fn trend_asked(&self, node: &Node<'_>) -> Result<Of, NodeError> {
        if node.value("funnelTrendsDropOff").is_none() {
            let detail = "Trends of funnels need funnelTrendsDropOff: true or false.";
            return Err(node.refuse("funnelTrendsDropOff", detail));
        }
        let Some(day) = node.text("funnelTrendsEntrancePeriodStart")? else {
            let detail = "Trends of funnels need the beginning of an interval, as in days.";
            return Err(node.refuse("funnelTrendsEntrancePeriodStart", detail));
        };
        let is_drop_off = node.truth("funnelTrendsDropOff")?;
        Ok(Of::Trend { day: day.to_owned(), is_drop_off })
    }

    /// Whom `funnelStep` or `funnelCustomSteps` ask for.
    pub(super) fn stop_asked(&self, node: &Node<'_>) -> Result<Stop, NodeError> {
        let count = self.steps.len();
        let number = |value: &Value| match value {
            Value::String(text) => text.parse::<i64>().ok(),
            other => other.as_i64(),
        };
        let custom = node.list("funnelCustomSteps")?;
        if !custom.is_empty() {
            let step = |value: &Value| {
                let step = number(value).and_then(|step| usize::try_from(step).ok());
                let detail = || format!("Expected numbers of steps from 1 to {count}.");
                step.filter(|step| (1..=count).contains(step))
                    .ok_or_else(|| node.refuse("funnelCustomSteps", detail()))
            };
            return Ok(Stop::Last(custom.iter().map(step).collect::<Result<_, _>>()?));
        }
        let Some(sent) = node.value("funnelStep") else {
            let detail = "Expected a step: funnelStep, or funnelCustomSteps.";
            return Err(node.refuse("funnelStep", detail));
        };
        let step =
            number(sent).ok_or_else(|| node.refuse("funnelStep", "Expected a whole number."))?;
        let place = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
        if step == -1 {
            let detail = "Nobody drops off before the first step: use -2 for those who did the first step alone.";
            return Err(node.refuse("funnelStep", detail));
        }
        if place == 0 || place > count {
            let detail = format!("Expected a step from 1 to {count}, or from -2 to -{count}.");
            return Err(node.refuse("funnelStep", detail));
        }
        let at = place - 1;
        if step > 0 {
            return Ok(Stop::Did(at));
        }
        let is_required = |step: &usize| self.course.optional >> step & 1 == 0;
        Ok(Stop::Left { before: (0..at).rev().find(is_required).unwrap_or(0), at })
    }

    /// The persons or groups behind a step, by their ids; one more than the part has where there are more.
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
        let behind = self.fold(context, (bounds, cohort), behind).await?;
        Ok(behind.found.into_actors())
    }

    /// The values that a value of the answer stands for, and the cohort.
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

    /// The values that are shown on their own.
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
