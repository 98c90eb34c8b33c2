//! Evaluates one flag for one subject: returns a verdict with its reason.
//!
//! The order is early access, holdout, release conditions; the first match wins. Other flags and
//! cohorts are read through [`Dependencies`] and [`Cohorts`].

use serde_json::Value;

use crate::bucket;
use crate::definition::{Aggregation, Bucketing, Condition, Definition};
use crate::subject::Subject;
use crate::verdict::{Failure, Reason, Verdict};
use weir_event::predicate::filter::{Expected, Filter, Membership, Scope};
use weir_event::predicate::{Predicate, Properties};

/// The result of another flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency<'d> {
    /// It is false, or inactive.
    Off,
    /// It is on, perhaps with a variant.
    On(Option<&'d str>),
    /// It failed and has no verdict.
    Failed,
    /// It does not exist, or is in a dependency cycle.
    Missing,
}

/// The verdicts of other flags.
pub trait Dependencies {
    /// The result of the flag with this id.
    fn dependency(&self, flag_id: i64) -> Dependency<'_>;
}

/// The members of cohorts.
pub trait Cohorts {
    /// Whether the person is in the cohort.
    ///
    /// # Errors
    ///
    /// [`UnknownCohort`]: the members are unknown, and the flag fails.
    fn contains(&self, cohort_id: i64, person: &Subject<'_>) -> Result<bool, UnknownCohort>;
}

/// The members of a cohort are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCohort;

/// The inputs of an evaluation beside the flag and the subject.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Other flags.
    pub flags: &'a dyn Dependencies,
    /// Cohorts.
    pub cohorts: &'a dyn Cohorts,
}

/// Evaluates one flag.
///
/// # Errors
///
/// [`Failure`]: an input that the verdict depends on is unknown.
pub fn evaluate<'d>(
    flag: &'d Definition,
    subject: &Subject<'_>,
    surroundings: Surroundings<'_>,
) -> Result<Verdict<'d>, Failure> {
    let evaluation = Evaluation { flag, subject, surroundings };
    if let Some(result) = evaluation.obstacle() {
        return result;
    }
    if let Some(verdict) = evaluation.enrollment() {
        return Ok(verdict);
    }
    if let Some(verdict) = evaluation.holdout() {
        return Ok(verdict);
    }
    evaluation.conditions()
}

#[derive(Clone, Copy)]
pub(super) struct Evaluation<'d, 'e> {
    pub(super) flag: &'d Definition,
    pub(super) subject: &'e Subject<'e>,
    pub(super) surroundings: Surroundings<'e>,
}

/// The result of one condition.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Attempt<'d> {
    Match(Option<&'d str>),
    /// Its filters match, its rollout does not include the subject.
    OutOfRollout,
    /// The filters do not match, or the condition was skipped.
    NoMatch(Reason),
}

/// The result of the filters of a condition.
enum Filters {
    Match,
    NoMatch,
    /// They match if the flag with this id, which failed, has the expected value.
    MatchIf(i64),
}

/// The result of the flag if the failed flag had the expected value. `answer` is the variant of a match.
struct Alternative<'d> {
    failed: i64,
    answer: Option<Option<&'d str>>,
}

impl<'d> Evaluation<'d, '_> {
    /// The verdict or failure that ends the evaluation before any condition.
    pub(super) fn obstacle(&self) -> Option<Result<Verdict<'d>, Failure>> {
        if !self.flag.active {
            return Some(Ok(Verdict::off(Reason::FlagDisabled, None)));
        }
        let is_missing = |id| self.surroundings.flags.dependency(id) == Dependency::Missing;
        if self.flag.dependencies().any(is_missing) {
            return Some(Ok(Verdict::off(Reason::MissingDependency, None)));
        }
        let has_failed = self.flag.continuity && self.subject.hash_keys_failed();
        has_failed.then_some(Err(Failure::HashKeys))
    }

    pub(super) fn enrollment(&self) -> Option<Verdict<'d>> {
        let enrollment = self.flag.enrollment.as_deref()?;
        let value = self.subject.property(enrollment)?;
        let enabled = match value {
            Value::Bool(enrolled) => *enrolled,
            Value::String(enrolled) => enrolled == "true",
            _ => false,
        };
        Some(Verdict {
            enabled,
            variant: None,
            reason: Reason::SuperConditionValue,
            condition_index: Some(0),
            payload: self.flag.payload(None),
        })
    }

    pub(super) fn holdout(&self) -> Option<Verdict<'d>> {
        let holdout = self.flag.holdout.as_ref()?;
        let place = || bucket::holdout(self.subject.holdout_identifier(self.flag));
        if !reaches(holdout.rollout, place) {
            return None;
        }
        let variant = Some(&*holdout.variant);
        Some(Verdict {
            enabled: true,
            variant,
            reason: Reason::HoldoutConditionValue,
            condition_index: None,
            payload: self.flag.payload(variant),
        })
    }

    fn conditions(&self) -> Result<Verdict<'d>, Failure> {
        let mut best: Option<(Reason, usize)> = None;
        let mut alternatives = Vec::new();
        for (index, condition) in self.flag.conditions.iter().enumerate() {
            let (attempt, failed) = self.attempt(condition)?;
            let ends = self.flag.early_exit && attempt == Attempt::OutOfRollout;
            match (attempt, failed) {
                (Attempt::Match(variant), Some(failed)) => {
                    alternatives.push(Alternative { failed, answer: Some(variant) });
                    continue;
                }
                (Attempt::Match(variant), None) => {
                    settle(&alternatives, Some(variant))?;
                    return Ok(self.on(variant, index));
                }
                (_, Some(failed)) if ends => {
                    alternatives.push(Alternative { failed, answer: None })
                }
                (_, None) if ends => {
                    settle(&alternatives, None)?;
                    return Ok(Verdict::off(Reason::OutOfRolloutBound, Some(index)));
                }
                _ => {}
            }
            let reason = attempt.reason();
            if best.is_none_or(|(strongest, _)| strongest <= reason) {
                best = Some((reason, index));
            }
        }
        settle(&alternatives, None)?;
        let (reason, index) = best.unzip();
        Ok(Verdict::off(reason.unwrap_or(Reason::NoConditionMatch), index))
    }

    /// Evaluates one condition; returns with it the id of the failed flag that a match depends on.
    pub(super) fn attempt(
        &self,
        condition: &Condition,
    ) -> Result<(Attempt<'d>, Option<i64>), Failure> {
        if let Some(reason) = self.skip_reason(condition) {
            return Ok((Attempt::NoMatch(reason), None));
        }
        let failed = match self.filters(condition)? {
            Filters::NoMatch => return Ok((Attempt::NoMatch(Reason::NoConditionMatch), None)),
            Filters::Match => None,
            Filters::MatchIf(failed) => Some(failed),
        };
        let identifier = || self.subject.identifier(self.flag, condition.aggregation);
        if !reaches(condition.rollout, || bucket::rollout(&self.flag.key, identifier())) {
            return Ok((Attempt::OutOfRollout, failed));
        }
        let variant = match condition.variant {
            Some(pinned) => self.flag.variants.get(pinned).map(|variant| &*variant.key),
            None if self.flag.variants.is_empty() => None,
            None => self.variant_at(bucket::variant(&self.flag.key, identifier())),
        };
        Ok((Attempt::Match(variant), failed))
    }

    /// The reason to skip a condition: the subject has no identifier for it.
    fn skip_reason(&self, condition: &Condition) -> Option<Reason> {
        match condition.aggregation {
            Aggregation::Person => {
                let lacks_device = self.flag.bucketing == Bucketing::DeviceId
                    && self.subject.device_id().is_none()
                    && self.flag.needs_hash(condition);
                lacks_device.then_some(Reason::OutOfRolloutBound)
            }
            Aggregation::Group(index) => {
                let group = self.subject.group(index);
                let has_key = group.is_some_and(|group| group.key.is_some());
                (!has_key).then_some(Reason::NoGroupType)
            }
        }
    }

    /// Cohorts come last: they cost most, and may fail the flag.
    fn filters(&self, condition: &Condition) -> Result<Filters, Failure> {
        let mut failed = None;
        for filter in &condition.filters {
            let matches = match filter {
                Filter::Cohort { .. } => true,
                Filter::Property { scope, predicate } => {
                    self.property(*scope, predicate, condition.aggregation)
                }
                Filter::Flag { id, expected } => {
                    let dependency = self.surroundings.flags.dependency(*id);
                    if dependency == Dependency::Failed && *expected != Expected::Nothing {
                        failed = Some(*id);
                        continue;
                    }
                    is_expected(dependency, expected)
                }
            };
            if !matches {
                return Ok(Filters::NoMatch);
            }
        }
        for filter in &condition.filters {
            if let Filter::Cohort { id, membership } = filter
                && !self.cohort(*id, *membership)?
            {
                return Ok(Filters::NoMatch);
            }
        }
        Ok(failed.map_or(Filters::Match, Filters::MatchIf))
    }

    fn property(&self, scope: Scope, predicate: &Predicate, aggregation: Aggregation) -> bool {
        let now = self.subject.now;
        match (scope, aggregation) {
            (Scope::Person, _) => predicate.matches(self.subject, now),
            (Scope::PersonMetadata, _) => {
                predicate.matches_value(self.subject.column(&predicate.key).as_ref(), now)
            }
            (Scope::Group(Some(index)), _) | (Scope::Group(None), Aggregation::Group(index)) => {
                match self.subject.group(index) {
                    Some(group) => predicate.matches(group, now),
                    None => predicate.matches_value(None, now),
                }
            }
            (Scope::Group(None), Aggregation::Person) => predicate.matches_value(None, now),
            // Flags are evaluated without an event.
            (Scope::Event | Scope::EventMetadata | Scope::Session | Scope::Expression, _) => false,
        }
    }

    /// The result of one filter, for a trace.
    pub(super) fn filter(
        &self,
        filter: &Filter,
        aggregation: Aggregation,
    ) -> Result<bool, Failure> {
        Ok(match filter {
            Filter::Property { scope, predicate } => self.property(*scope, predicate, aggregation),
            Filter::Cohort { id, membership } => self.cohort(*id, *membership)?,
            Filter::Flag { id, expected } => {
                is_expected(self.surroundings.flags.dependency(*id), expected)
            }
        })
    }

    fn cohort(&self, id: i64, membership: Membership) -> Result<bool, Failure> {
        match self.surroundings.cohorts.contains(id, self.subject) {
            Ok(inside) => Ok(membership.accepts(inside)),
            Err(UnknownCohort) => Err(Failure::Cohort(id)),
        }
    }

    /// `None` if the shares of the variants end before `place`.
    fn variant_at(&self, place: f64) -> Option<&'d str> {
        let mut end = 0.0;
        let mut variants = self.flag.variants.iter();
        let variant = variants.find(|variant| {
            end += variant.rollout / 100.0;
            place < end
        });
        variant.map(|variant| &*variant.key)
    }

    fn on(&self, variant: Option<&'d str>, index: usize) -> Verdict<'d> {
        Verdict {
            enabled: true,
            variant,
            reason: Reason::ConditionMatch,
            condition_index: Some(index),
            payload: self.flag.payload(variant),
        }
    }
}

impl Attempt<'_> {
    fn reason(self) -> Reason {
        match self {
            Self::Match(_) => Reason::ConditionMatch,
            Self::OutOfRollout => Reason::OutOfRolloutBound,
            Self::NoMatch(reason) => reason,
        }
    }
}

/// A rollout of 100 percent needs no hash, so it includes subjects without an identifier.
fn reaches(percent: f64, place: impl FnOnce() -> f64) -> bool {
    percent >= 100.0 || place() <= percent / 100.0
}

fn is_expected(dependency: Dependency<'_>, expected: &Expected) -> bool {
    match (dependency, expected) {
        (Dependency::Off, Expected::Off) | (Dependency::On(_), Expected::On) => true,
        (Dependency::On(variant), Expected::Variant(expected)) => variant == Some(expected),
        _ => false,
    }
}

/// Fails the flag if the result of a failed dependency could change its answer.
fn settle(alternatives: &[Alternative<'_>], answer: Option<Option<&str>>) -> Result<(), Failure> {
    match alternatives.iter().find(|alternative| alternative.answer != answer) {
        Some(alternative) => Err(Failure::Dependency(alternative.failed)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
