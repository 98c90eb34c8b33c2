//! Cohorts with behavioral filters: the rule of such a cohort ([`BehavioralRule`]), and the persons that match it now. Each
//! behavioral filter is evaluated as an actors query of a trend. In the rule it is replaced by a filter on a
//! placeholder cohort with these persons, so that everything else is evaluated as in flags.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::trends::Trends;
use crate::trends::actors::Point;
use crate::{InsightError, ProjectSettings, Who};
use weir_base::clock::UnixMicros;
use weir_evaluation::membership::with_subject;
use weir_event::predicate::Matching;
use weir_event::predicate::moment::{Moment, Now, Unit};
use weir_flags::cohorts::{CohortSet, Memberships, Rule};
use weir_flags::evaluate::{Cohorts, UnknownCohort};
use weir_flags::subject::Subject;
use weir_identity::view::Flow;
use weir_metadata::cohorts::MEMBERS_MAX;
use weir_query::kernel::engine::Engine;
use weir_query::persons::people::Part;

/// Most behavioral filters of a rule. Each is a query.
const BEHAVIORAL_MAX: usize = 20;

/// Most persons that match the behavioral filters of a rule, summed over the filters: about 64 MiB.
const PERSONS_MAX: usize = 2 * MEMBERS_MAX;

/// Largest `time_value`: how many units of time a filter goes back.
const TIME_MAX: i64 = 10_000;

/// Why the members of a cohort cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum BehavioralError {
    /// The rule is malformed, or requests something that is not available.
    #[error("{0}")]
    Unavailable(String),
    /// More persons match than a cohort may have.
    #[error("more than {MEMBERS_MAX} persons match")]
    TooMany,
    /// The query of a behavioral filter failed.
    #[error(transparent)]
    Insight(#[from] InsightError),
}

/// A parsed rule with behavioral filters.
#[derive(Debug)]
pub struct BehavioralRule {
    /// The rule, in which each behavioral filter is replaced by a cohort filter with a negative id: see [`place`].
    rule: Rule,
    filters: Vec<BehavioralFilter>,
}

/// A behavioral filter: persons that performed an event, and how often.
#[derive(Debug)]
struct BehavioralFilter {
    trends: Trends,
    times: Times,
}

/// Condition on how often a person performed the event, for persons that performed it at all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Times {
    MoreThan(f64),
    AtLeast(f64),
    AtMost(f64),
    LessThan(f64),
    Exactly(f64),
}

/// Cohorts of one person during evaluation of a rule: the real ones, and the placeholders of behavioral filters.
struct Answered<'a> {
    memberships: Memberships<'a>,
    did: &'a [HashSet<Uuid>],
    person: Uuid,
}

impl BehavioralRule {
    /// Parses the rule of a cohort. Relative times are resolved as of `now`.
    ///
    /// # Errors
    ///
    /// [`BehavioralError::Unavailable`]
    pub fn parse(
        rule: &Value,
        matching: Matching,
        now: UnixMicros,
    ) -> Result<Self, BehavioralError> {
        let mut filters = Vec::new();
        let rule = replaced(rule, now, &mut filters)?;
        let rule =
            Rule::parse(&rule, matching).map_err(|_| unavailable("the rule is malformed"))?;
        Ok(Self { rule, filters })
    }

    /// The persons that match, in ascending order; `set` has the cohorts that the rule names.
    pub async fn members(
        self,
        engine: &Engine,
        owner: &ProjectSettings,
        set: Arc<CohortSet>,
    ) -> Result<Vec<Uuid>, BehavioralError> {
        let (project, Self { rule, filters }) = (owner.project, self);
        let now = engine.present(project);
        let mut did = Vec::new();
        let mut count = 0;
        for filter in &filters {
            let persons = filter.persons(engine, owner).await?;
            count += persons.len();
            if count > PERSONS_MAX {
                return Err(BehavioralError::TooMany);
            }
            did.push(persons);
        }
        let find = engine.read(move |view, stop| {
            let mut found = Vec::new();
            view.scan_persons(project, |person| {
                let holds =
                    with_subject(&view, project, &person, String::new(), now, |subject, uuids| {
                        let memberships = Memberships::new(&set, uuids);
                        let cohorts = Answered { memberships, did: &did, person: person.uuid };
                        rule.holds(subject, &cohorts).unwrap_or(false)
                    });
                found.extend(holds.then_some(person.uuid));
                let is_over = found.len() > MEMBERS_MAX || stop.load(Ordering::Relaxed);
                if is_over { Flow::Break(()) } else { Flow::Continue(()) }
            })?;
            Ok(found)
        });
        let mut found = find.await.map_err(InsightError::from)?;
        if found.len() > MEMBERS_MAX {
            return Err(BehavioralError::TooMany);
        }
        found.sort_unstable();
        Ok(found)
    }
}

impl BehavioralFilter {
    fn parse(filter: &Map<String, Value>, now: UnixMicros) -> Result<Self, BehavioralError> {
        let text = |name: &str| filter.get(name).and_then(Value::as_str);
        let times = match text("value") {
            Some("performed_event") => Times::AtLeast(1.0),
            Some("performed_event_multiple") => {
                let count = filter.get("operator_value").and_then(number);
                let count = count.ok_or_else(|| unavailable("operator_value is not a number"))?;
                Times::parse(text("operator"), count as f64)?
            }
            other => {
                let other: String = other.unwrap_or("null").chars().take(100).collect();
                return Err(unavailable(&format!("{other} is not available")));
            }
        };
        // Without a key the filter would match all events.
        let key = filter.get("key").filter(|key| !key.is_null());
        let key = key.ok_or_else(|| unavailable("key is missing"))?;
        let properties = filter.get("event_filters").cloned().unwrap_or_else(|| json!([]));
        let series = match text("event_type") {
            Some("actions") => json!({"kind": "ActionsNode", "id": key.as_str().map_or_else(
                || key.clone(), |text| text.parse::<i64>().map_or_else(|_| key.clone(), Value::from)),
                "properties": properties}),
            _ => json!({"kind": "EventsNode", "event": key, "properties": properties}),
        };
        let from = match text("explicit_datetime") {
            Some(date) => date.to_owned(),
            None => since(filter, now)
                .ok_or_else(|| unavailable("Expected time_value and time_interval"))?,
        };
        // Weeks, because their first bucket begins at the exact start of the range, not at the beginning of its day.
        let trend = json!({
            "kind": "TrendsQuery", "series": [series], "interval": "week",
            "dateRange": {"date_from": from, "date_to": text("explicit_datetime_to"), "explicitDate": true},
            "trendsFilter": {"display": "BoldNumber"},
        });
        let trends = Trends::parse(&trend).map_err(InsightError::from)?;
        Ok(Self { trends, times })
    }

    /// The persons that performed the event as often as required.
    async fn persons(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<HashSet<Uuid>, BehavioralError> {
        let (point, all) = (Point::default(), Part { offset: 0, limit: MEMBERS_MAX });
        let actors = engine.within_time(self.trends.actors(engine, owner, &point, all)).await;
        let actors = actors.map_err(InsightError::from)??;
        if actors.len() > MEMBERS_MAX {
            return Err(BehavioralError::TooMany);
        }
        let did = actors.into_iter().filter(|actor| self.times.accepts(actor.value));
        Ok(did
            .filter_map(|actor| match actor.who {
                Who::Person(uuid) => Some(uuid),
                Who::Group(..) => None,
            })
            .collect())
    }
}

impl Times {
    fn parse(operator: Option<&str>, count: f64) -> Result<Self, BehavioralError> {
        match operator {
            Some("gt") => Ok(Self::MoreThan(count)),
            Some("gte") => Ok(Self::AtLeast(count)),
            Some("lt") => Ok(Self::LessThan(count)),
            Some("lte") => Ok(Self::AtMost(count)),
            None | Some("exact" | "eq") => Ok(Self::Exactly(count)),
            Some(_) => Err(unavailable("operator is none of gt, gte, lt, lte, exact")),
        }
    }

    fn accepts(self, number: f64) -> bool {
        match self {
            Self::MoreThan(count) => number > count,
            Self::AtLeast(count) => number >= count,
            Self::LessThan(count) => number < count,
            Self::AtMost(count) => number <= count,
            Self::Exactly(count) => number == count,
        }
    }
}

impl Cohorts for Answered<'_> {
    fn contains(&self, cohort_id: i64, person: &Subject<'_>) -> Result<bool, UnknownCohort> {
        match place(cohort_id) {
            Some(filter) => {
                let did = self.did.get(filter).ok_or(UnknownCohort)?;
                Ok(did.contains(&self.person))
            }
            None => self.memberships.contains(cohort_id, person),
        }
    }
}

/// The index of the behavioral filter that a placeholder cohort represents.
fn place(cohort: i64) -> Option<usize> {
    cohort.checked_add(1).and_then(i64::checked_neg).and_then(|at| usize::try_from(at).ok())
}

/// Replaces the behavioral filters of a rule by placeholder cohorts, and adds them to `filters`.
fn replaced(
    rule: &Value,
    now: UnixMicros,
    filters: &mut Vec<BehavioralFilter>,
) -> Result<Value, BehavioralError> {
    let Value::Object(fields) = rule else { return Ok(rule.clone()) };
    if let Some(Value::Array(values)) = fields.get("values") {
        let values = values.iter().map(|value| replaced(value, now, filters));
        let values = values.collect::<Result<Vec<Value>, BehavioralError>>()?;
        let mut group = fields.clone();
        group.insert("values".to_owned(), Value::Array(values));
        return Ok(Value::Object(group));
    }
    if !matches!(fields.get("type").and_then(Value::as_str), Some("behavioral" | "event")) {
        return Ok(rule.clone());
    }
    if filters.len() >= BEHAVIORAL_MAX {
        return Err(unavailable(&format!("a rule has at most {BEHAVIORAL_MAX} filters by events")));
    }
    filters.push(BehavioralFilter::parse(fields, now)?);
    let id = i64::try_from(filters.len()).unwrap_or(i64::MAX);
    let negation = fields.get("negation").cloned().unwrap_or(Value::Bool(false));
    Ok(json!({"key": "id", "type": "cohort", "value": -id, "negation": negation}))
}

/// The start of the period that a filter covers, from `time_value` and `time_interval`.
fn since(filter: &Map<String, Value>, now: UnixMicros) -> Option<String> {
    let count = number(filter.get("time_value")?).filter(|count| (0..=TIME_MAX).contains(count))?;
    let unit = match filter.get("time_interval")?.as_str()? {
        "minute" => Unit::Minutes,
        "hour" => Unit::Hours,
        "day" => Unit::Days,
        "week" => Unit::Weeks,
        "month" => Unit::Months,
        "year" => Unit::Years,
        _ => return None,
    };
    let from = Moment::Ago { count: u32::try_from(count).ok()?, unit }.resolve(Now::utc(now))?;
    Some(from.to_datetime().to_rfc3339())
}

/// An integer, or its text as older clients send it.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn unavailable(detail: &str) -> BehavioralError {
    BehavioralError::Unavailable(detail.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{BehavioralRule, Times, place, replaced, since};
    use weir_base::clock::UnixMicros;
    use weir_event::predicate::Matching;

    fn filter(fields: Value) -> Value {
        let mut own = json!({"type": "behavioral", "key": "buy", "value": "performed_event",
            "event_type": "events", "time_value": 30, "time_interval": "day"});
        own.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        own
    }

    #[test]
    fn filters_by_events_become_cohorts() {
        let plan = json!({"type": "person", "key": "plan", "value": "pro", "operator": "exact"});
        let rule = json!({"type": "OR", "values": [
            {"type": "AND", "values": [plan, filter(json!({}))]}, filter(json!({"negation": true}))]});
        let mut filters = Vec::new();
        let replaced = replaced(&rule, UnixMicros(0), &mut filters).unwrap();
        assert_eq!(filters.len(), 2);
        assert_eq!(replaced["values"][0]["values"][0], plan);
        assert_eq!(replaced["values"][0]["values"][1]["value"], -1);
        assert_eq!(replaced["values"][1]["value"], -2);
        assert_eq!(replaced["values"][1]["negation"], true);
        assert_eq!((place(-1), place(-2), place(0), place(7)), (Some(0), Some(1), None, None));
    }

    #[test]
    fn what_is_not_available_is_refused() {
        for (fields, is_available) in [
            (json!({}), true),
            (json!({"time_value": "7"}), true),
            (json!({"explicit_datetime": "-14d", "time_value": null}), true),
            (json!({"event_type": "actions", "key": "3"}), true),
            (json!({"event_filters": [{"key": "a", "value": "b", "type": "event"}]}), true),
            (
                json!({"value": "performed_event_multiple", "operator": "gte", "operator_value": "3"}),
                true,
            ),
            (
                json!({"value": "performed_event_multiple", "operator": "in", "operator_value": 3}),
                false,
            ),
            (json!({"value": "performed_event_multiple"}), false),
            (json!({"value": "performed_event_first_time"}), false),
            (json!({"value": null}), false),
            (json!({"time_interval": "century"}), false),
            (json!({"time_value": -1}), false),
            (json!({"time_value": i64::MAX}), false),
            (json!({"time_value": null}), false),
            (json!({"key": {"a": 1}}), false),
            (json!({"key": null}), false),
            (json!({"event_filters": "all"}), false),
        ] {
            let rule = json!({"type": "AND", "values": [filter(fields)]});
            let parsed =
                BehavioralRule::parse(&rule, Matching::Legacy, UnixMicros(1_700_000_000_000_000));
            assert_eq!(parsed.is_ok(), is_available, "{rule} {:?}", parsed.err());
        }
        let many: Vec<Value> = (0..21).map(|_| filter(json!({}))).collect();
        let rule = json!({"type": "AND", "values": many});
        assert!(BehavioralRule::parse(&rule, Matching::Legacy, UnixMicros(0)).is_err());
    }

    #[test]
    fn times_go_back_by_the_calendar() {
        // 2024-03-31 12:00 UTC.
        let now = UnixMicros(1_711_886_400_000_000);
        for (count, interval, expected) in [
            (90, "minute", "2024-03-31T10:30:00+00:00"),
            (1, "day", "2024-03-30T12:00:00+00:00"),
            (2, "week", "2024-03-17T12:00:00+00:00"),
            (1, "month", "2024-02-29T12:00:00+00:00"),
            (1, "year", "2023-03-31T12:00:00+00:00"),
        ] {
            let filter = json!({"time_value": count, "time_interval": interval});
            let from = since(filter.as_object().unwrap(), now);
            assert_eq!(from.as_deref(), Some(expected), "{count} {interval}");
        }
    }

    #[test]
    fn how_often_is_compared() {
        for (operator, expected) in [
            (Some("gt"), [false, false, true]),
            (Some("gte"), [false, true, true]),
            (Some("lt"), [true, false, false]),
            (Some("lte"), [true, true, false]),
            (Some("exact"), [false, true, false]),
            (None, [false, true, false]),
        ] {
            let times = Times::parse(operator, 2.0).unwrap();
            assert_eq!(
                [1.0, 2.0, 3.0].map(|number| times.accepts(number)),
                expected,
                "{operator:?}"
            );
        }
    }
}
