//! Runs the plan of a funnel and shapes its response: the steps, for each breakdown value.

use std::collections::HashMap;

use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use crate::breakdown::{Breakdown, SEPARATOR};
use crate::entity::{Entity, note_named};
use crate::funnels::split::{Attempt, Splitter};
use crate::funnels::times::{Room, Times};
use crate::funnels::{Funnels, Shown};
use crate::{Context, InsightError, ProjectSettings};
use weir_api::insights::funnel::{Funnel, Step, Steps};
use weir_api::insights::value::BreakdownValue;
use weir_api::nodes::insights::FunnelOrderType;
use weir_metadata::cohorts::CohortId;
use weir_query::events::histories::{Fold, PartialFold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;

/// The breakdown value that represents all values beyond the limit together (PostHog's).
pub(super) const OTHER: &str = "Other";

/// Most distinct breakdown values.
pub(super) const VALUES_MAX: usize = 50_000;

/// How many actors reached each step, and how long they took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    reached: Vec<u64>,
    /// For each step the times since the previous required step; empty for the first step and for optional ones.
    times: Vec<Times>,
}

impl Counts {
    fn add(
        &mut self,
        (found, optional): (Attempt<'_>, u32),
        room: &mut Room,
    ) -> Result<(), QueryError> {
        let steps = found.times.len();
        if self.reached.len() < steps {
            self.reached.resize(steps, 0);
            self.times.resize_with(steps, Times::default);
        }
        for (count, _) in self.reached.iter_mut().zip(found.times).filter(|(_, at)| at.is_some()) {
            *count = count.saturating_add(1);
        }
        let mut required = None;
        for ((at, times), step) in found.times.iter().zip(&mut self.times).zip(0_u32..) {
            let Some(at) = at.filter(|_| optional >> step & 1 == 0) else { continue };
            // Steps at the same time do not count for the time to convert.
            if let Some(before) = required.filter(|before| at > *before) {
                room.add(times, at.saturating_sub(before))?;
            }
            required = Some(at);
        }
        Ok(())
    }

    fn extend(&mut self, other: Self) {
        let steps = self.reached.len().max(other.reached.len());
        self.reached.resize(steps, 0);
        self.times.resize_with(steps, Times::default);
        for (own, more) in self.reached.iter_mut().zip(other.reached) {
            *own = own.saturating_add(more);
        }
        for (own, more) in self.times.iter_mut().zip(other.times) {
            own.extend(more);
        }
    }

    /// How many actors reached a step.
    fn of(&self, step: usize) -> u64 {
        self.reached.get(step).copied().unwrap_or(0)
    }
}

/// Counts by breakdown value.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counting {
    splitter: Splitter,
    values: HashMap<String, Counts>,
    room: Room,
}

impl PartialFold for Counting {
    const NAME: &'static str = "steps of a funnel";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        self.room.merge(other.room)?;
        for (value, counts) in other.values {
            if !self.values.contains_key(&value) {
                check_values(self.values.len())?;
            }
            self.values.entry(value).or_default().extend(counts);
        }
        Ok(())
    }

    fn account(&mut self, _: MemoryReservation) {
        self.room.restrict();
    }
}

impl Fold for Counting {
    fn actor(&mut self, _: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { splitter, values, room } = self;
        let optional = splitter.course.optional;
        splitter.each(rows, texts, |found| {
            if let Some(counts) = values.get_mut(found.value) {
                return counts.add((found, optional), room);
            }
            check_values(values.len())?;
            values.entry(found.value.to_owned()).or_default().add((found, optional), room)
        })
    }
}

/// Refuses a further breakdown value if there are `count` already and that is too many.
pub(super) fn check_values(count: usize) -> Result<(), QueryError> {
    if count < VALUES_MAX {
        return Ok(());
    }
    Err(QueryError::Invalid(format!("The breakdown has more than {VALUES_MAX} values.")))
}

/// The `limit` values with the largest `rank`, largest first, and the others joined to one, if there are any.
pub(super) fn ranked<T, R: Ord>(
    values: HashMap<String, T>,
    limit: usize,
    rank: impl Fn(&T) -> R,
    mut join: impl FnMut(&mut T, T),
) -> (Vec<(String, T)>, Option<T>) {
    let mut values: Vec<(String, T)> = values.into_iter().collect();
    values.sort_by(|(a, own), (b, other)| rank(other).cmp(&rank(own)).then_with(|| a.cmp(b)));
    let mut others = values.split_off(values.len().min(limit)).into_iter().map(|(_, own)| own);
    let rest = others.next().map(|mut first| {
        others.for_each(|other| join(&mut first, other));
        first
    });
    (values, rest)
}

/// A breakdown value in the form of the response: the list of the values of the properties.
pub(super) fn value_of(value: &str) -> BreakdownValue {
    BreakdownValue::Several(value.split(SEPARATOR).map(str::to_owned).collect())
}

impl Funnels {
    /// Computes the result, in the form of `results` in PostHog's API.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Funnel, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let context = Context { engine, view: &view, owner };
        match self.shown {
            Shown::Steps => Ok(Funnel::Steps(self.shown_steps(context).await?)),
            Shown::TimeToConvert(bins) => {
                Ok(Funnel::Times(self.time_to_convert(context, bins).await?))
            }
            Shown::Trends => Ok(Funnel::Trends(self.conversion_trends(context).await?)),
        }
    }

    async fn shown_steps(&self, context: Context<'_>) -> Result<Steps, InsightError> {
        match self.split() {
            Breakdown::Nothing => {
                let counts = self.counts(context, None).await?.remove("").unwrap_or_default();
                Ok(Steps::All(self.bodies(&counts, None)))
            }
            Breakdown::Cohorts(cohorts) => {
                let mut answer = Vec::with_capacity(cohorts.len());
                for cohort in cohorts {
                    let mut counts = self.counts(context, *cohort).await?;
                    let counts = counts.remove("").unwrap_or_default();
                    answer.push(self.bodies(&counts, Some(cohort_of(context, *cohort))));
                }
                Ok(Steps::ByValue(answer))
            }
            Breakdown::Properties { limit, is_other_hidden, .. } => {
                let (shown, rest) = self.ranked_counts(context, *limit).await?;
                let rest = rest.filter(|_| !is_other_hidden);
                let rest = rest.map(|counts| (OTHER.to_owned(), counts));
                let body = |(value, counts): (String, Counts)| {
                    let value = value_of(&value);
                    self.bodies(&counts, Some((value.clone(), value)))
                };
                Ok(Steps::ByValue(shown.into_iter().chain(rest).map(body).collect()))
            }
        }
    }

    /// The counts of the values that are shown on their own, and those of all others together.
    pub(super) async fn ranked_counts(
        &self,
        context: Context<'_>,
        limit: usize,
    ) -> Result<(Vec<(String, Counts)>, Option<Counts>), InsightError> {
        let counts = self.counts(context, None).await?;
        // By the count of the last step, ties by that of the step before, and so on.
        let rank = |counts: &Counts| -> Vec<u64> {
            (0..self.steps.len()).rev().map(|step| counts.of(step)).collect()
        };
        Ok(ranked(counts, limit, rank, Counts::extend))
    }

    async fn counts(
        &self,
        context: Context<'_>,
        cohort: Option<i64>,
    ) -> Result<HashMap<String, Counts>, InsightError> {
        let bounds = self.bounds(context).await?;
        let (values, room) = (HashMap::new(), Room::default());
        let counting = Counting { splitter: self.splitter(None), values, room };
        Ok(self.fold(context, (bounds, cohort), counting).await?.values)
    }

    /// The steps in the form of the response, with the name and the breakdown value if there is a breakdown.
    fn bodies(
        &self,
        counts: &Counts,
        value: Option<(BreakdownValue, BreakdownValue)>,
    ) -> Vec<Step> {
        let (breakdown, breakdown_value) = value.unzip();
        let none = Times::default();
        let body = |(step, entity): (usize, &Entity)| {
            let times = counts.times.get(step).unwrap_or(&none);
            let (action_id, name, custom_name) = match self.course.order {
                FunnelOrderType::Unordered => {
                    let plural = if step == 0 { "" } else { "s" };
                    (None, format!("Completed {} step{plural}", step + 1), None)
                }
                FunnelOrderType::Ordered | FunnelOrderType::Strict => {
                    (entity.id(), entity.name().to_owned(), entity.custom_name.clone())
                }
            };
            Step {
                action_id,
                average_conversion_time: times.average(),
                breakdown: breakdown.clone(),
                breakdown_value: breakdown_value.clone(),
                count: counts.of(step),
                custom_name,
                median_conversion_time: times.median(),
                name,
                order: step,
                kind: entity.kind(),
                ..Step::default()
            }
        };
        self.steps.iter().enumerate().map(body).collect()
    }
}

/// The name of a cohort, and its id.
pub(super) fn cohort_of(
    context: Context<'_>,
    cohort: Option<i64>,
) -> (BreakdownValue, BreakdownValue) {
    let Some(id) = cohort else {
        let name = BreakdownValue::One("all users".to_owned());
        return (name, BreakdownValue::One("all".to_owned()));
    };
    let snapshot = context.engine.metadata().snapshot();
    let cohort = snapshot.cohort(context.owner.project, CohortId(id));
    let name = cohort.map_or_else(|| id.to_string(), |cohort| cohort.name.clone());
    (BreakdownValue::One(name), BreakdownValue::Cohort(id))
}
