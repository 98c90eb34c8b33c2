//! Retention: of those who did something in an interval, how many come back in each interval after it.
//! [`Retention`] is a parsed request; `spans` says which intervals a cell has, `rolling` which windows
//! those have that begin with the first event, `rows` which rows and cells an actor
//! is in, `sums` what its events add to these, `split` does so for each value of the breakdown, `plan` makes the plan of the events, `answer` counts the
//! actors of each cell in `tables`, `actors` finds the persons of a row, and `legacy` reads the filters of older
//! clients.

pub mod actors;
mod answer;
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
use crate::node::{Node, NodeError};
use crate::property::{Owner, Property};
use crate::retention::spans::{INTERVALS_MAX, Spans};
use crate::selection::Selection;

/// Rows and cells unless a request says otherwise (PostHog's figure).
const INTERVALS: usize = 7;

/// Most events of one interval that a return may need.
const OCCURRENCES_MAX: usize = 1_000_000;

/// The event of a side that a request says nothing of (PostHog's).
const EVENT: &str = "$pageview";

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Retention {
    selection: Selection,
    period: Interval,
    /// Rows without `date_from`.
    rows: usize,
    /// Cells of a row.
    spans: Spans,
    breakdown: Breakdown,
    kind: Kind,
    target: Entity,
    returning: Entity,
    /// Whether one who comes back counts in all cells before, too.
    is_cumulative: bool,
    /// Whether cells are windows from an actor's first event on.
    is_rolling: bool,
    /// Events of an interval without which nobody has come back in it.
    occurrences: usize,
    /// What is told of the numbers of events, besides how many actors there are.
    measure: Option<Measure>,
}

/// What is told of the numbers of the events that are counted in a cell.
#[derive(Clone, Debug, PartialEq)]
struct Measure {
    property: Property,
    /// Whether it is their sum for each actor of the cell, or just the sum.
    is_mean: bool,
    /// Whether coming back is doing the same again.
    is_same: bool,
}

/// In which rows an actor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In those of all intervals with a target event.
    Recurring,
    /// In that of its first target event.
    FirstTime,
    /// In that of its first event of the target's name, if this event is a target event.
    FirstEver,
}

impl Retention {
    /// Reads a `RetentionQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let node = Node::new(Some(query), "")?;
        let options = Node::new(node.value("retentionFilter"), "retentionFilter")?;
        let is_rolling = match options.text("timeWindowMode")? {
            None | Some("strict_calendar_dates") => false,
            Some("24_hour_windows") => true,
            Some(other) => return Err(unavailable(&options, "timeWindowMode", other)),
        };
        if is_rolling && options.truth("cumulative")? {
            let detail = "24_hour_windows cannot be cumulative.";
            return Err(options.refuse("cumulative", detail));
        }
        let number = |name: &str, usual: usize, most: usize| {
            let number = options.number(name)?.unwrap_or(usual);
            let wrong = || options.refuse(name, format!("Expected 1 to {most}."));
            Some(number).filter(|number| (1..=most).contains(number)).ok_or_else(wrong)
        };
        let entity = |name: &str| match options.value(name) {
            Some(entity) => Entity::parse(entity, &format!("retentionFilter.{name}")),
            None => Ok(Entity::named(EVENT)),
        };
        let rows = number("totalIntervals", INTERVALS, INTERVALS_MAX)?;
        let occurrences = number("minimumOccurrences", 1, OCCURRENCES_MAX)?;
        let (target, returning) = (entity("targetEntity")?, entity("returningEntity")?);
        let measure = Measure::parse(&options, target.is_same(&returning))?;
        if measure.is_some() && occurrences > 1 {
            let detail = "Sums and averages count all events: they have no minimumOccurrences.";
            return Err(options.refuse("minimumOccurrences", detail));
        }
        Ok(Self {
            selection: Selection::parse(&node)?,
            period: period(&options)?,
            rows,
            spans: Spans::parse(&options, rows)?,
            breakdown: breakdown(node.value("breakdownFilter"))?,
            kind: Kind::parse(&options)?,
            target,
            returning,
            is_cumulative: options.truth("cumulative")?,
            is_rolling,
            occurrences,
            measure,
        })
    }

    /// How many rows there are without `date_from`, and how many cells a row has without brackets.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The events that it is about.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        [&self.target, &self.returning].into_iter()
    }
}

/// What it is split by. Numbers have no bins in it, in PostHog neither.
fn breakdown(filter: Option<&Value>) -> Result<Breakdown, NodeError> {
    Node::new(filter, "breakdownFilter")?.without(&["breakdown_histogram_bin_count"])?;
    let breakdown = Breakdown::unpaged(filter)?;
    if let Breakdown::Properties { properties, .. } = &breakdown
        && let Some(at) = properties.iter().position(|property| property.bins.is_some())
    {
        let field = format!("breakdownFilter.breakdowns.{at}.histogram_bin_count");
        let detail = "histogram_bin_count is not available in a retention.".to_owned();
        return Err(NodeError { field, detail });
    }
    Ok(breakdown)
}

/// The refusal of an option's value.
fn unavailable(options: &Node<'_>, name: &str, value: &str) -> NodeError {
    let value: String = value.chars().take(100).collect();
    options.refuse(name, format!("{value} is not available."))
}

/// The interval of rows and cells.
fn period(options: &Node<'_>) -> Result<Interval, NodeError> {
    let Some(name) = options.text("period")? else { return Ok(Interval::Day) };
    match Interval::of(&name.to_lowercase()) {
        Some(interval) if interval != Interval::Minute => Ok(interval),
        _ => {
            let name: String = name.chars().take(100).collect();
            Err(options.refuse("period", format!("Period {name} is unsupported.")))
        }
    }
}

impl Measure {
    /// Reads `aggregationType` and what it is of; `None` where actors are counted alone.
    fn parse(options: &Node<'_>, is_same: bool) -> Result<Option<Self>, NodeError> {
        let is_mean = match options.text("aggregationType")? {
            None | Some("count") => return Ok(None),
            Some("sum") => false,
            Some("avg") => true,
            Some(other) => return Err(unavailable(options, "aggregationType", other)),
        };
        // As in PostHog, there is nothing to sum up then.
        let Some(key) = options.text("aggregationProperty")? else { return Ok(None) };
        let owner = match options.text("aggregationPropertyType")? {
            None | Some("event") => Owner::Event,
            Some("person") => Owner::Person,
            Some(other) => return Err(unavailable(options, "aggregationPropertyType", other)),
        };
        if options.text("timeWindowMode")? == Some("24_hour_windows") {
            let detail = "Sums and averages are not available for 24_hour_windows.";
            return Err(options.refuse("aggregationType", detail));
        }
        if options.truth("cumulative")? {
            return Err(options.refuse("cumulative", "Sums and averages cannot be cumulative."));
        }
        let property = Property { owner, key: key.to_owned(), is_url: false, bins: None };
        Ok(Some(Self { property, is_mean, is_same }))
    }
}

impl Kind {
    fn parse(options: &Node<'_>) -> Result<Self, NodeError> {
        match options.text("retentionType")? {
            None | Some("retention_recurring") => Ok(Self::Recurring),
            Some("retention_first_time") => Ok(Self::FirstTime),
            Some("retention_first_ever_occurrence") => Ok(Self::FirstEver),
            Some(other) => {
                let other: String = other.chars().take(100).collect();
                let detail = format!("\"{other}\" is not a valid choice.");
                Err(options.refuse("retentionType", detail))
            }
        }
    }
}

impl Retention {
    /// Adds what its answer depends on.
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

    use super::{Interval, Kind, Owner, Retention};

    #[test]
    fn what_is_left_out_has_the_usual_value() {
        let parsed = Retention::parse(&json!({"kind": "RetentionQuery"})).unwrap();
        let events = [&parsed.target, &parsed.returning].map(|entity| entity.event.as_deref());
        assert_eq!(events, [Some("$pageview"); 2]);
        assert_eq!((parsed.period, parsed.rows), (Interval::Day, 7));
        assert_eq!((parsed.kind, parsed.occurrences), (Kind::Recurring, 1));
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
        assert_eq!((parsed.kind, parsed.occurrences), (Kind::FirstEver, 2));
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
