//! `GET persons/:id/properties_timeline/`: when the properties in a query changed for a person, or with
//! `aggregation_group_type_index` for the groups of its events, and how many events of the query lie between two
//! changes.
//!
//! As in PostHog, the names of the series select the events, and their filters only determine which properties are
//! crucial. The changes are computed in [`timeline`](weir_insights::timeline).

use std::borrow::Cow;
use std::collections::HashSet;

use chrono_tz::Tz;
use serde_json::Value;

use crate::auth::Principal;
use crate::fields::refused;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::{InQuery, input};
use crate::operation::output::Long;
use crate::operation::{Context, Operation};
use crate::request::Request;
use crate::response::Problem;
use crate::routes::definition_parameters::boolean;
use crate::routes::persons;
use crate::routes::query::problems;
use weir_api::persons as api;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::json;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_insights::date_range::{DateRange, Parameters};
use weir_insights::timeline::walk::Point;
use weir_insights::timeline::{Timeline, TimelineError};
use weir_metadata::accounts::Project;

/// Deepest nesting of groups of filters.
const DEPTH_MAX: usize = 20;

input! {
    /// The timeline of one person.
    pub struct Retrieve {
        path id: String,
        query filters: Filters,
    }
}

/// The relevant parts of an insight's filter.
#[derive(Debug)]
pub struct Filters {
    timeline: Timeline,
    from: Option<String>,
    to: Option<String>,
    interval: Option<String>,
    is_explicit: bool,
}

impl InQuery for Filters {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.extend([
            Parameter::text("events").about("A JSON list of series"),
            Parameter::text("properties").about("A JSON list of property filters"),
            Parameter::text("breakdown").about("A name, or a JSON list"),
            Parameter::text("breakdown_type"),
            Parameter::between("aggregation_group_type_index", 0, 4).about(
                "Of the groups of this type that the events belong to, instead of the person",
            ),
            Parameter::text("date_from").about(
                "A date, a span such as -7d or -1mStart, or all; in the time zone of the project",
            ),
            Parameter::text("date_to"),
            Parameter::text("interval").about("minute, hour, day, week or month"),
            Parameter::boolean("explicit_date").about("Whether dates are not to be rounded"),
        ]);
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        let text =
            |name: &str| request.query(name).filter(|text| !text.is_empty()).map(Cow::into_owned);
        Ok(Self {
            timeline: timeline_of(request)?,
            from: text("date_from"),
            to: text("date_to"),
            interval: text("interval"),
            is_explicit: boolean(request, "explicit_date")?.unwrap_or(false),
        })
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = Long<api::Timeline>;
    const SCOPE: &'static str = "person:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project) = (&cx.app, &cx.who.project);
        let (person, _) = persons::find_one(app, project.id, &self.id).await?;
        let range = self.filters.range(project, app.node.clock.now())?;
        let timeline = self.filters.timeline;
        let points = timeline.points(&app.engine, project.id, &person, &range).await;
        let points = points.map_err(|error| match error {
            TimelineError::Query(error) => problems::problem(error),
            TimelineError::TooManyGroups => {
                refused("aggregation_group_type_index", "invalid_input", error.to_string())
            }
            TimelineError::Json(error) => Problem::of(Kind::Internal, &error),
        })?;
        let point = |own: Point| api::Point {
            timestamp: own.timestamp,
            properties: own.properties,
            relevant_event_count: own.relevant_event_count,
        };
        Ok(Long(api::Timeline {
            points: points.into_iter().map(point).collect(),
            crucial_property_keys: timeline.keys.into_iter().collect(),
            effective_date_from: range.written(range.from),
            effective_date_to: range.written(range.to),
        }))
    }
}

/// Parses the relevant parts of an insight's filter.
fn timeline_of(request: &Request) -> Result<Timeline, Problem> {
    let sent = |name: &'static str| {
        let text = request.query(name).filter(|text| !text.is_empty());
        let read = |text: Cow<'_, str>| json::read::<Value>(text.as_bytes());
        text.map(read).transpose().map_err(|_| refused(name, "invalid_input", "Expected JSON."))
    };
    let index = request.query("aggregation_group_type_index");
    let group_type = index.filter(|text| !text.is_empty()).map(|text| group_type(&text));
    let mut timeline = Timeline { group_type: group_type.transpose()?, ..Timeline::default() };
    for name in ["events", "actions"] {
        if let Some(series) = sent(name)? {
            note_series(&mut timeline, name, &series)?;
        }
    }
    if let Some(properties) = sent("properties")? {
        note_keys(&mut timeline, "properties", &properties, DEPTH_MAX)?;
    }
    if request.query("breakdown_type").as_deref() == Some("person")
        && let Some(breakdown) = request.query("breakdown").filter(|key| !key.is_empty())
    {
        match json::read::<Vec<String>>(breakdown.as_bytes()) {
            Ok(keys) => timeline.keys.extend(keys),
            Err(_) => _ = timeline.keys.insert(breakdown.into_owned()),
        }
    }
    Ok(timeline)
}

/// Adds the events and the filters of the series.
fn note_series(timeline: &mut Timeline, name: &'static str, series: &Value) -> Result<(), Problem> {
    let Some(series) = series.as_array() else {
        return Err(refused(name, "invalid_input", "Expected a JSON list of series."));
    };
    for one in series {
        if name == "actions" || one.get("type").and_then(Value::as_str) == Some("actions") {
            let detail = "Actions are not available. Name the events instead.";
            return Err(refused(name, "invalid_input", detail));
        }
        if let Some(properties) = one.get("properties") {
            note_keys(timeline, name, properties, DEPTH_MAX)?;
        }
    }
    let named = |one: &Value| {
        ["id", "name"].iter().find_map(|key| one.get(*key)?.as_str().map(str::to_owned))
    };
    // A series without a name selects all events.
    let names: Option<HashSet<String>> = series.iter().map(named).collect();
    timeline.events = names.filter(|names| !names.is_empty());
    Ok(())
}

/// Adds the properties in filters that belong to the person, or to the group type of the query.
fn note_keys(
    timeline: &mut Timeline,
    name: &'static str,
    filters: &Value,
    depth: usize,
) -> Result<(), Problem> {
    let unparsable = || refused(name, "invalid_input", "Properties are unparsable!");
    let inner = depth.checked_sub(1).ok_or_else(unparsable)?;
    match filters {
        Value::Array(filters) => {
            filters.iter().try_for_each(|filter| note_keys(timeline, name, filter, inner))
        }
        Value::Object(filter) => {
            if let Some(values) = filter.get("values") {
                return note_keys(timeline, name, values, inner);
            }
            let kind = filter.get("type").and_then(Value::as_str);
            let index = filter.get("group_type_index").and_then(Value::as_u64);
            let is_crucial = match timeline.group_type {
                None => kind == Some("person"),
                Some(own) => kind == Some("group") && index == Some(own.into()),
            };
            let key = filter.get("key").and_then(Value::as_str).filter(|_| is_crucial);
            timeline.keys.extend(key.map(str::to_owned));
            Ok(())
        }
        _ => Err(unparsable()),
    }
}

impl Filters {
    fn range(&self, project: &Project, now: UnixMicros) -> Result<DateRange, Problem> {
        let zone = project.timezone.parse::<Tz>();
        let zone = zone.map_err(|error| Problem::of(Kind::Internal, &error))?;
        let parameters = Parameters {
            from: self.from.as_deref(),
            to: self.to.as_deref(),
            interval: self.interval.as_deref(),
            is_explicit: self.is_explicit,
            is_one_interval: true,
            is_monday_first: project.week_start_day == 1,
        };
        let wrong =
            |name| refused(name, "invalid_input", "Expected a date, or a span such as -7d.");
        let range = parameters.range(zone, now).map_err(wrong)?;
        match range.reversed() {
            None => Ok(range),
            Some(detail) => Err(refused("date_from", "invalid_input", detail)),
        }
    }
}

fn group_type(text: &str) -> Result<u8, Problem> {
    let index = text.parse::<u8>().ok();
    index.filter(|index| usize::from(*index) < GROUP_TYPES_MAX).ok_or_else(|| {
        let detail = "A valid group type index is required.";
        refused("aggregation_group_type_index", "invalid_input", detail)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DEPTH_MAX, Timeline, note_keys, note_series};

    fn keys(group_type: Option<u8>, filters: &Value) -> Option<Vec<String>> {
        let mut question = Timeline { group_type, ..Timeline::default() };
        note_keys(&mut question, "properties", filters, DEPTH_MAX).ok()?;
        Some(question.keys.into_iter().collect())
    }

    #[test]
    fn crucial_keys_are_those_of_whom_is_asked_about() {
        let of = |kind: &str, key: &str| json!({"key": key, "type": kind, "value": 1});
        let group =
            |key: &str, index: u8| json!({"key": key, "type": "group", "group_type_index": index});
        let filters = json!({"type": "AND", "values": [
            {"type": "OR", "values": [of("person", "plan"), of("event", "price"), of("person", "age")]},
            {"type": "AND", "values": [of("hogql", "1 = 1"), group("size", 1), group("seats", 0)]},
            {"key": "of events unless said otherwise", "value": 1},
        ]});
        for (group_type, expected) in
            [(None, vec!["age", "plan"]), (Some(0), vec!["seats"]), (Some(1), vec!["size"])]
        {
            assert_eq!(keys(group_type, &filters).unwrap(), expected);
        }
        assert_eq!(keys(None, &json!([])), Some(Vec::new()));
        let deep = (0..30).fold(json!([]), |inside, _| json!([inside]));
        for filters in [json!("x"), json!([1]), deep, json!({"values": 1})] {
            assert_eq!(keys(None, &filters), None, "{filters}");
        }
    }

    #[test]
    fn series_name_the_events_that_count() {
        let events = |series: &Value| {
            let mut question = Timeline::default();
            note_series(&mut question, "events", series).ok()?;
            let mut names: Vec<_> = question.events.into_iter().flatten().collect();
            names.sort_unstable();
            Some(names)
        };
        for (series, expected) in [
            (json!([]), Some(vec![])),
            (json!([{"id": "buy"}, {"id": "view", "type": "events"}]), Some(vec!["buy", "view"])),
            (json!([{"name": "buy"}]), Some(vec!["buy"])),
            // One series selects all events, and so do both together.
            (json!([{"id": "buy"}, {"id": null}]), Some(vec![])),
            (json!([{"id": 4, "type": "actions"}]), None),
            (json!({"id": "buy"}), None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(events(&series), expected, "{series}");
        }
    }
}
