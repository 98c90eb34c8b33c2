//! Retention: of the actors that did something in an interval, how many return in each later interval. [`Retention`]
//! is a parsed request; `spans` defines the intervals of a cell, `rolling` the windows that begin with an actor's
//! first event, `rows` computes the rows and cells of an actor, `sums` the numbers that its events add to these,
//! `split` does so for each breakdown value, `plan` compiles the plan of the events, `answer` counts the actors of
//! each cell in `tables`, `actors` lists the persons of a row, and `legacy` converts the filters of older clients.

pub mod actors;
pub(crate) mod answer;
pub mod legacy;
mod plan;
mod rolling;
mod rows;
mod spans;
mod split;
mod sums;
mod tables;

use serde_json::Value;

use crate::breakdown::Breakdown;
use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::interval::Interval;
use crate::property::{Owner, Property};
use crate::retention::spans::{INTERVALS_MAX, Spans};
use crate::selection::Selection;
use weir_api::node::{NodeError, shortened};
use weir_api::nodes::base::BreakdownFilter;
use weir_api::nodes::check::parse;
use weir_api::nodes::insights::{
    AggregationOwner, AggregationType, RetentionFilter, RetentionQuery, RetentionType,
    TimeWindowMode,
};
use weir_api::nodes::series as nodes;

/// Default number of rows and cells (PostHog's figure).
const INTERVALS: usize = 7;

/// Largest `minimumOccurrences`: events that are required in one interval.
const OCCURRENCES_MAX: usize = 1_000_000;

/// Default of the target event and of the returning event (PostHog's).
const EVENT: &str = "$pageview";

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Retention {
    selection: Selection,
    period: Interval,
    /// The number of rows without `date_from`.
    rows: usize,
    /// The cells of a row.
    spans: Spans,
    breakdown: Breakdown,
    kind: RetentionType,
    target: Entity,
    returning: Entity,
    /// Whether an actor that returns also counts in all earlier cells.
    is_cumulative: bool,
    /// Whether cells are windows that begin with an actor's first event.
    is_rolling: bool,
    /// The number of events that an interval needs to count as a return.
    occurrences: usize,
    /// The aggregation of a property, besides the number of actors.
    measure: Option<Measure>,
}

/// Aggregation of a property over the events that are counted in a cell.
#[derive(Clone, Debug, PartialEq)]
struct Measure {
    property: Property,
    /// Whether the sum is divided by the number of actors of the cell.
    is_mean: bool,
    /// Whether the target and the returning events are the same.
    is_same: bool,
}

impl Retention {
    /// Parses a `RetentionQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<RetentionQuery>(query)?;
        let options = sent.retention_filter;
        let refused = |name: &str, detail: &str| Err(NodeError::new(field(name), detail));
        let is_rolling = options.time_window_mode == Some(TimeWindowMode::Rolling);
        if is_rolling && options.cumulative {
            return refused("cumulative", "24_hour_windows cannot be cumulative.");
        }
        let number = |(name, sent): (&str, Option<usize>), usual: usize, most: usize| {
            let number = Some(sent.unwrap_or(usual)).filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| NodeError::new(field(name), format!("Expected 1 to {most}.")))
        };
        let rows = number(("totalIntervals", options.total_intervals), INTERVALS, INTERVALS_MAX)?;
        let occurrences =
            number(("minimumOccurrences", options.minimum_occurrences), 1, OCCURRENCES_MAX)?;
        let measure = Measure::of(&options)?;
        if measure.is_some() && occurrences > 1 {
            let detail = "Sums and averages count all events: they have no minimumOccurrences.";
            return refused("minimumOccurrences", detail);
        }
        let entity = |name: &str, sent: Option<nodes::Entity>| match sent {
            Some(sent) => Entity::of(sent, &field(name)),
            None => Ok(Entity::named(EVENT)),
        };
        let period = period(options.period.as_deref())?;
        let spans = Spans::of(&options.retention_custom_brackets, rows)?;
        let target = entity("targetEntity", options.target_entity)?;
        let returning = entity("returningEntity", options.returning_entity)?;
        let is_same = target.is_same(&returning);
        Ok(Self {
            selection: Selection::of(sent.base)?,
            period,
            rows,
            spans,
            breakdown: breakdown(sent.breakdown_filter)?,
            kind: options.retention_type.unwrap_or(RetentionType::Recurring),
            target,
            returning,
            is_cumulative: options.cumulative,
            is_rolling,
            occurrences,
            measure: measure.map(|measure| Measure { is_same, ..measure }),
        })
    }

    /// The number of rows without `date_from`, and of cells of a row without brackets.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Its selection: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The target entity and the returning entity.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        [&self.target, &self.returning].into_iter()
    }
}

/// The path of a field of `retentionFilter`.
fn field(name: &str) -> String {
    format!("retentionFilter.{name}")
}

/// Parses the breakdown. Histogram bins are not available, as in PostHog.
fn breakdown(sent: BreakdownFilter) -> Result<Breakdown, NodeError> {
    if sent.breakdown_histogram_bin_count.is_some() {
        let field = "breakdownFilter.breakdown_histogram_bin_count";
        return Err(NodeError::new(field, "breakdown_histogram_bin_count is not available."));
    }
    let breakdown = Breakdown::unpaged(sent)?;
    if let Breakdown::Properties { properties, .. } = &breakdown
        && let Some(at) = properties.iter().position(|property| property.bins.is_some())
    {
        let field = format!("breakdownFilter.breakdowns.{at}.histogram_bin_count");
        return Err(NodeError::new(field, "histogram_bin_count is not available in a retention."));
    }
    Ok(breakdown)
}

/// Parses the interval of rows and cells.
fn period(name: Option<&str>) -> Result<Interval, NodeError> {
    let Some(name) = name else { return Ok(Interval::Day) };
    match Interval::of(&name.to_lowercase()) {
        Some(interval) if interval != Interval::Minute => Ok(interval),
        _ => {
            let detail = format!("Period {} is unsupported.", shortened(name));
            Err(NodeError::new(field("period"), detail))
        }
    }
}

impl Measure {
    /// Parses `aggregationType` and its property; `None` if only actors are counted. `is_same` is set later.
    fn of(options: &RetentionFilter) -> Result<Option<Self>, NodeError> {
        let is_mean = match options.aggregation_type {
            None | Some(AggregationType::Count) => return Ok(None),
            Some(AggregationType::Sum) => false,
            Some(AggregationType::Average) => true,
        };
        // As in PostHog, without a property nothing is aggregated.
        let Some(key) = &options.aggregation_property else { return Ok(None) };
        let owner = match options.aggregation_property_type {
            None | Some(AggregationOwner::Event) => Owner::Event,
            Some(AggregationOwner::Person) => Owner::Person,
        };
        if options.time_window_mode == Some(TimeWindowMode::Rolling) {
            let detail = "Sums and averages are not available for 24_hour_windows.";
            return Err(NodeError::new(field("aggregationType"), detail));
        }
        if options.cumulative {
            let detail = "Sums and averages cannot be cumulative.";
            return Err(NodeError::new(field("cumulative"), detail));
        }
        let property = Property::plain(owner, key);
        Ok(Some(Self { property, is_mean, is_same: false }))
    }
}

impl Retention {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self {
            selection,
            period,
            rows: _,
            spans: _,
            breakdown,
            kind: _,
            target,
            returning,
            is_cumulative: _,
            is_rolling: _,
            occurrences: _,
            measure,
        } = self;
        on.selection(selection, *period);
        on.breakdown(breakdown);
        on.entity(target);
        on.entity(returning);
        if let Some(Measure { property, is_mean: _, is_same: _ }) = measure {
            on.property(property);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Interval, Owner, Retention, RetentionType};

    #[test]
    fn what_is_left_out_has_the_usual_value() {
        let parsed = Retention::parse(&json!({"kind": "RetentionQuery"})).unwrap();
        let events = [&parsed.target, &parsed.returning].map(|entity| entity.event.as_deref());
        assert_eq!(events, [Some("$pageview"); 2]);
        assert_eq!((parsed.period, parsed.rows), (Interval::Day, 7));
        assert_eq!((parsed.kind, parsed.occurrences), (RetentionType::Recurring, 1));
        let all = json!({"retentionFilter": {
            "period": "Week", "totalIntervals": 3, "retentionType": "retention_first_ever_occurrence",
            "targetEntity": {"id": null, "type": "events"}, "minimumOccurrences": 2,
            "returningEntity": {"id": "buy", "type": "events", "properties": []},
            "retentionReference": "previous", "showMean": true, "timeWindowMode": "strict_calendar_dates",
        }});
        let parsed = Retention::parse(&all).unwrap();
        let events = [&parsed.target, &parsed.returning].map(|entity| entity.event.as_deref());
        assert_eq!(events, [None, Some("buy")]);
        assert_eq!((parsed.period, parsed.rows), (Interval::Week, 3));
        assert_eq!((parsed.kind, parsed.occurrences), (RetentionType::FirstEver, 2));
    }

    #[test]
    fn numbers_are_of_events_or_persons() {
        let measure = |options: serde_json::Value| {
            Retention::parse(&json!({"retentionFilter": options})).unwrap().measure
        };
        for (options, expected) in [
            (json!({"aggregationType": "count", "aggregationProperty": "a"}), None),
            (json!({"aggregationType": "sum"}), None),
            (json!({"aggregationPropertyType": "event"}), None),
            (
                json!({"aggregationType": "sum", "aggregationProperty": "a"}),
                Some((Owner::Event, false, true)),
            ),
            (
                json!({"aggregationType": "avg", "aggregationProperty": "a", "aggregationPropertyType": "person",
                       "returningEntity": {"id": "buy"}}),
                Some((Owner::Person, true, false)),
            ),
        ] {
            let found = measure(options.clone());
            let found = found.map(|own| (own.property.owner, own.is_mean, own.is_same));
            assert_eq!(found, expected, "{options}");
        }
    }

    #[test]
    fn what_is_wrong_or_not_available_is_refused_by_its_name() {
        for (options, field) in [
            (json!({"period": "Decade"}), "period"),
            (json!({"period": "minute"}), "period"),
            (json!({"totalIntervals": 0}), "totalIntervals"),
            (json!({"totalIntervals": 401}), "totalIntervals"),
            (json!({"totalIntervals": 1.5}), "totalIntervals"),
            (json!({"minimumOccurrences": 0}), "minimumOccurrences"),
            (json!({"retentionType": "often"}), "retentionType"),
            (json!({"retentionCustomBrackets": [1, 0]}), "retentionCustomBrackets"),
            (json!({"aggregationType": "max", "aggregationProperty": "a"}), "aggregationType"),
            (
                json!({"aggregationType": "sum", "aggregationProperty": "a", "timeWindowMode": "24_hour_windows"}),
                "aggregationType",
            ),
            (
                json!({"aggregationType": "avg", "aggregationProperty": "a", "cumulative": true}),
                "cumulative",
            ),
            (
                json!({"aggregationType": "avg", "aggregationProperty": "a", "minimumOccurrences": 2}),
                "minimumOccurrences",
            ),
            (
                json!({"aggregationType": "sum", "aggregationProperty": "a", "aggregationPropertyType": "group"}),
                "aggregationPropertyType",
            ),
            (json!({"aggregationType": "sum", "aggregationProperty": 1}), "aggregationProperty"),
            (json!({"timeWindowMode": "48_hour_windows"}), "timeWindowMode"),
            (json!({"timeWindowMode": "24_hour_windows", "cumulative": true}), "cumulative"),
            (json!({"targetEntity": {"id": "x", "type": "actions"}}), "targetEntity.id"),
            (json!({"returningEntity": []}), "returningEntity"),
            (json!({"cumulative": "yes"}), "cumulative"),
        ] {
            let error = Retention::parse(&json!({"retentionFilter": options})).unwrap_err();
            assert_eq!(error.field, format!("retentionFilter.{field}"), "{options}");
        }
        let split = json!({"breakdownFilter": {"breakdown": "$browser", "breakdown_limit": 0}});
        let error = Retention::parse(&split).unwrap_err();
        assert_eq!(error.field, "breakdownFilter.breakdown_limit");
    }
}
