//! Trace of a flag evaluation: every condition and filter, with the value that it compared and its result.
//! The code of the evaluation decides; the trace only records it, and adds the results of conditions that
//! the evaluation did not reach. At most one condition is marked as the one that decided.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::definition::{Aggregation, Condition, Definition};
use crate::evaluate::{Attempt, Evaluation, Surroundings};
use crate::subject::Subject;
use weir_event::predicate::Properties;
use weir_event::predicate::filter::{Filter, Scope};

/// The result of one condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConditionTrace {
    /// Index of the condition; -1 stands for early access, -2 for the holdout.
    pub index: i64,
    /// Its filters, in their order.
    pub properties: Vec<PropertyTrace>,
    /// In percent.
    pub rollout_percentage: f64,
    /// The variant of a match, whether it decides or not.
    pub variant: Option<String>,
    /// Whether it decides: its filters match, its rollout includes the subject, and no earlier
    /// condition decided. At most one condition of a flag does.
    pub matched: bool,
    /// Whether all its filters match, whichever condition decides.
    pub properties_matched: bool,
    /// Whether only the rollout excluded the subject.
    pub rollout_excluded: bool,
    /// An explanation for people.
    pub explanation: String,
}

/// The result of one filter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PropertyTrace {
    /// As stored.
    pub key: Value,
    /// As stored.
    pub operator: Value,
    /// As stored.
    pub value: Value,
    /// The kind of the filter.
    pub r#type: String,
    /// The value of the subject; null also if it has none.
    pub actual_value: Value,
    /// Whether it matches.
    pub matched: bool,
    /// An explanation for people.
    pub explanation: String,
}

/// Traces a flag. `filters` are the stored ones of `flag`.
pub fn trace(
    flag: &Definition,
    filters: &Value,
    subject: &Subject<'_>,
    surroundings: Surroundings<'_>,
) -> Vec<ConditionTrace> {
    let evaluation = Evaluation { flag, subject, surroundings };
    let mut traces = Vec::new();
    let mut is_decided = evaluation.obstacle().is_some();
    if let Some(verdict) = evaluation.enrollment() {
        let joined = if verdict.enabled { "joined" } else { "left" };
        let why = format!("The person {joined} the early access");
        traces.push(special(-1, 100.0, None, why, !is_decided));
        is_decided = true;
    }
    if let (Some(holdout), Some(_)) = (&flag.holdout, evaluation.holdout()) {
        let variant = Some(holdout.variant.to_string());
        let why = "The person is in the holdout".to_owned();
        traces.push(special(-2, holdout.rollout, variant, why, !is_decided));
        is_decided = true;
    }
    let stored = filters.get("groups").and_then(Value::as_array);
    for (index, condition) in flag.conditions.iter().enumerate() {
        let stored = stored.and_then(|stored| stored.get(index)).unwrap_or(filters);
        traces.push(evaluation.trace(index, condition, stored, &mut is_decided));
    }
    traces
}

fn special(
    index: i64,
    rollout: f64,
    variant: Option<String>,
    explanation: String,
    matched: bool,
) -> ConditionTrace {
    ConditionTrace {
        index,
        properties: Vec::new(),
        rollout_percentage: rollout,
        variant,
        matched,
        properties_matched: true,
        rollout_excluded: false,
        explanation,
    }
}

impl Evaluation<'_, '_> {
    /// Traces a condition, and sets `is_decided` if it ends the evaluation.
    fn trace(
        &self,
        index: usize,
        condition: &Condition,
        stored: &Value,
        is_decided: &mut bool,
    ) -> ConditionTrace {
        let stored = stored.get("properties").and_then(Value::as_array);
        let filters = condition.filters.iter().enumerate();
        let properties: Vec<PropertyTrace> = filters
            .map(|(place, filter)| {
                let stored = stored.and_then(|stored| stored.get(place)).unwrap_or(&Value::Null);
                self.trace_filter(condition, filter, stored)
            })
            .collect();
        let properties_matched = properties.iter().all(|property| property.matched);
        let attempt = self.attempt(condition);
        let (ends, explanation, variant) = match &attempt {
            Ok((Attempt::Match(variant), None)) if *is_decided => {
                (true, "Matches, but was decided before".to_owned(), *variant)
            }
            Ok((Attempt::Match(variant), None)) => {
                (true, format!("Matched condition set {}", index + 1), *variant)
            }
            Ok((Attempt::Match(_), Some(failed))) => {
                (false, format!("Depends on flag {failed}, which failed"), None)
            }
            Ok((Attempt::OutOfRollout, failed)) => {
                let ends = self.flag.early_exit && failed.is_none();
                (ends, "Out of rollout bound".to_owned(), None)
            }
            Ok((Attempt::NoMatch(reason), _)) => (false, reason.code().replace('_', " "), None),
            Err(failure) => (true, failure.description().into_owned(), None),
        };
        let is_match = matches!(attempt, Ok((Attempt::Match(_), None)));
        let matched = is_match && !*is_decided;
        *is_decided |= ends;
        ConditionTrace {
            index: i64::try_from(index).unwrap_or(i64::MAX),
            properties,
            rollout_percentage: condition.rollout,
            variant: variant.map(str::to_owned),
            matched,
            properties_matched,
            rollout_excluded: matches!(attempt, Ok((Attempt::OutOfRollout, _))),
            explanation,
        }
    }

    fn trace_filter(
        &self,
        condition: &Condition,
        filter: &Filter,
        stored: &Value,
    ) -> PropertyTrace {
        let matched = self.filter(filter, condition.aggregation).unwrap_or(false);
        let part = |name: &str| stored.get(name).cloned().unwrap_or_default();
        let actual = self.actual(filter, condition.aggregation);
        let verb = if matched { "matches" } else { "does not match" };
        PropertyTrace {
            key: part("key"),
            operator: part("operator"),
            value: part("value"),
            r#type: part("type").as_str().unwrap_or("person").to_owned(),
            actual_value: actual.as_deref().cloned().unwrap_or_default(),
            matched,
            explanation: match (filter, actual) {
                (Filter::Property { .. }, None) => format!("not set: {verb}"),
                (Filter::Property { .. }, Some(actual)) => format!("{actual} {verb}"),
                (Filter::Cohort { id, .. }, _) => format!("the person {verb} cohort {id}"),
                (Filter::Flag { id, .. }, _) => format!("flag {id} {verb}"),
            },
        }
    }

    /// The value that a filter on a property compares.
    fn actual(&self, filter: &Filter, aggregation: Aggregation) -> Option<Cow<'_, Value>> {
        let Filter::Property { scope, predicate } = filter else { return None };
        match (*scope, aggregation) {
            (Scope::Person, _) => self.subject.property(&predicate.key).map(Cow::Borrowed),
            (Scope::PersonMetadata, _) => self.subject.column(&predicate.key).map(Cow::Owned),
            (Scope::Group(Some(index)), _) | (Scope::Group(None), Aggregation::Group(index)) => {
                self.subject.group(index)?.property(&predicate.key).map(Cow::Borrowed)
            }
            (Scope::Group(None), Aggregation::Person)
            | (Scope::Event | Scope::EventMetadata | Scope::Session | Scope::Expression, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{ConditionTrace, trace};
    use crate::cohorts::{CohortSet, Memberships};
    use crate::definition::{Definition, Stored};
    use crate::evaluate::{Dependencies, Dependency, Surroundings};
    use crate::subject::Subject;
    use weir_base::clock::UnixMicros;
    use weir_event::predicate::moment::Now;

    struct Others(Dependency<'static>);

    impl Dependencies for Others {
        fn dependency(&self, _: i64) -> Dependency<'_> {
            self.0
        }
    }

    /// The traces of a flag for a person on plan `pro`, where every other flag is `other`.
    fn traced(filters: &Value, person: Value, other: Dependency<'static>) -> Vec<ConditionTrace> {
        let flag = Definition::parse(&Stored::new(1, "beta", filters)).expect("readable");
        let Value::Object(person) = person else { panic!("an object") };
        let person: Map<String, Value> = person;
        let mut subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
        subject.stored = Some(&person);
        let (none, uuids) = (CohortSet::default(), || None);
        let cohorts = Memberships::new(&none, &uuids);
        let surroundings = Surroundings { flags: &Others(other), cohorts: &cohorts };
        trace(&flag, filters, &subject, surroundings)
    }

    #[test]
    fn every_condition_and_filter_is_explained() {
        let filters = json!({"groups": [
            {"properties": [{"key": "plan", "value": "free", "type": "person"}]},
            {"properties": [{"key": "plan", "value": "pro"}, {"key": "seats", "operator": "is_not_set"}],
             "rollout_percentage": 0},
            {"properties": []},
        ]});
        let traces = traced(&filters, json!({"plan": "pro"}), Dependency::Off);
        let short: Vec<_> = traces
            .iter()
            .map(|t| (t.index, t.matched, t.properties_matched, t.rollout_excluded))
            .collect();
        assert_eq!(
            short,
            [(0, false, false, false), (1, false, true, true), (2, true, true, false)]
        );
        let first = &traces[0].properties[0];
        assert_eq!((&first.key, &first.actual_value), (&json!("plan"), &json!("pro")));
        assert!(!first.matched);
        let absent = &traces[1].properties[1];
        assert_eq!((&absent.actual_value, absent.matched), (&Value::Null, true));
    }

    /// "It is guaranteed to be set on at most one condition per flag": the one that decided, if
    /// any. `properties_matched` is reported for every condition.
    #[test]
    fn at_most_one_condition_is_marked() {
        let all = json!({"properties": [], "rollout_percentage": 100});
        let nobody = json!({"properties": [], "rollout_percentage": 0});
        let on = json!({"properties": [
            {"key": "7", "type": "flag", "operator": "flag_evaluates_to", "value": true}]});
        let cohort = json!({"properties": [{"key": "id", "type": "cohort", "value": 4}]});
        let enrolled = json!({"$feature_enrollment/beta": true});
        let left = json!({"$feature_enrollment/beta": false});
        let nothing = json!({});
        let holdout = json!({"id": 1, "exclusion_percentage": 100});
        for (filters, person, other, marked, matching) in [
            (json!({"groups": [all, all]}), &nothing, Dependency::Off, vec![0], 2),
            (json!({"groups": [nobody, all, all]}), &nothing, Dependency::Off, vec![1], 3),
            (
                json!({"groups": [nobody, all], "early_exit": true}),
                &nothing,
                Dependency::Off,
                vec![],
                2,
            ),
            (
                json!({"groups": [all], "feature_enrollment": true}),
                &enrolled,
                Dependency::Off,
                vec![-1],
                2,
            ),
            (
                json!({"groups": [all], "feature_enrollment": true}),
                &left,
                Dependency::Off,
                vec![-1],
                2,
            ),
            (
                json!({"groups": [all], "feature_enrollment": true}),
                &nothing,
                Dependency::Off,
                vec![0],
                1,
            ),
            (
                json!({"groups": [all], "feature_enrollment": true, "holdout": holdout}),
                &enrolled,
                Dependency::Off,
                vec![-1],
                3,
            ),
            (json!({"groups": [all], "holdout": holdout}), &nothing, Dependency::Off, vec![-2], 2),
            (json!({"groups": [on, all]}), &nothing, Dependency::On(None), vec![0], 2),
            (json!({"groups": [on, all]}), &nothing, Dependency::Failed, vec![1], 1),
            // A flag with a missing dependency is off, whatever its conditions are.
            (json!({"groups": [all, on]}), &nothing, Dependency::Missing, vec![], 1),
            // An unknown cohort fails the flag.
            (json!({"groups": [cohort, all]}), &nothing, Dependency::Off, vec![], 1),
        ] {
            let traces = traced(&filters, person.clone(), other);
            let of = |is: fn(&ConditionTrace) -> bool| {
                traces.iter().filter(move |trace| is(trace)).map(|t| t.index).collect::<Vec<_>>()
            };
            assert_eq!(of(|trace| trace.matched), marked, "{filters} {person} {other:?}");
            assert_eq!(
                of(|t| t.properties_matched).len(),
                matching,
                "{filters} {person} {other:?}"
            );
        }
    }
}
