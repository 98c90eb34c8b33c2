//! `GET persons/:id/properties_timeline/`: when the properties in a query changed for a person, or with
//! `aggregation_group_type_index` for the groups of its events, and how many events of the query lie
//! between two changes.
//!
//! Events do not contain the properties of their person or group. The properties of a person at an event
//! are computed by a replay of its events up to then ([`property_replay`]), those of a group from the
//! events that set them. As in PostHog, the names of the series select the events, and their filters
//! only determine which properties are crucial.

mod range;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::collections::HashSet;

use hyper::StatusCode;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

use crate::app::App;
use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::event::json;
use crate::event::schema::GROUP_TYPES_MAX;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::csv;
use crate::http::fields::refused;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons;
use crate::http::routes::persons::timeline::range::Range;
use crate::http::routes::persons::timeline::walk::Point;
use crate::http::routes::persons::timeline::walk::Walk;
use crate::http::routes::query;
use crate::identity::person::Person;
use crate::ingest::normalize::property_replay;
use crate::ingest::normalize::property_replay::PropertyReplay;
use crate::query::QueryError;
use crate::query::latest::EventRow;

/// Deepest nesting of groups of filters.
const DEPTH_MAX: usize = 20;

/// Most groups in one timeline.
const GROUPS_MAX: usize = 100;

/// Most events in one timeline of groups.
const GROUP_EVENTS_MAX: usize = 1_000_000;

/// The response; the names are PostHog's.
#[derive(Debug, Serialize)]
struct TimelineBody {
    points: Vec<Point>,
    crucial_property_keys: BTreeSet<String>,
    effective_date_from: String,
    effective_date_to: String,
}

/// The parsed query of a timeline.
#[derive(Debug, Default, PartialEq)]
struct Question {
    /// Names of the events that are counted; `None` for all.
    events: Option<HashSet<String>>,
    /// Properties that are filtered or broken down by.
    keys: BTreeSet<String>,
    /// The type of the groups whose properties they are; `None` for those of the person.
    group_type: Option<u8>,
}

/// The timeline of one person.
pub async fn timeline(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = &call.asker.project;
    let (person, _) = persons::find_one(app, project.id, call.id()).await?;
    let question = Question::of(&call.request)?;
    let range = Range::of(&call.request, project, app.clock.now())?;
    app.engine.note_events_named(project.id, question.events.iter().flatten().map(String::as_str));
    let points = match question.group_type {
        Some(index) => of_groups(app, (project.id, &person), (&question, index), &range).await?,
        None => of_person(app, (project.id, &person), &question, &range).await?,
    };
    let body = TimelineBody {
        points,
        crucial_property_keys: question.keys,
        effective_date_from: range.written(range.from),
        effective_date_to: range.written(range.to),
    };
    Ok(csv::render(StatusCode::OK, call.rendering, &body))
}

/// The changes of the person's own properties.
async fn of_person(
    app: &App,
    (project, person): (ProjectId, &Person),
    question: &Question,
    range: &Range,
) -> Result<Vec<Point>, Problem> {
    let (mut walk, mut told) = (Walk::new(&question.keys), PropertyReplay::default());
    let events = app.engine.history(project, person.uuid, range.to).await;
    let mut events = events.map_err(query::problem)?;
    while let Some(rows) = events.next().await {
        for row in rows.map_err(query::problem)? {
            if let Some(update) = property_replay::update(&row.event, &properties(&row)) {
                told.step(update);
            }
            if question.counts(&row, range) {
                walk.count(row.timestamp, told.properties())?;
            }
        }
    }
    Ok(walk.points())
}

/// The changes of the properties of the groups of one type that the person's events belong to. An event
/// without a group has no properties.
async fn of_groups(
    app: &App,
    (project, person): (ProjectId, &Person),
    (question, index): (&Question, u8),
    range: &Range,
) -> Result<Vec<Point>, Problem> {
    let (seen, keys) = groups_seen(app, (project, person), (question, index), range).await?;
    let places: HashMap<&str, usize> = keys.iter().map(String::as_str).zip(0..).collect();
    let (mut groups, nobody) = (vec![Map::new(); keys.len()], Map::new());
    let (mut walk, mut seen) = (Walk::new(&question.keys), seen.into_iter().peekable());
    let snapshot = app.metadata.snapshot();
    let types = snapshot.group_types(project);
    if let Some(name) = types.get(usize::from(index)).filter(|_| !keys.is_empty()) {
        let says = app.engine.group_history(project, (name, &keys), range.to).await;
        let mut says = says.map_err(query::problem)?;
        while let Some(rows) = says.next().await {
            for row in rows.map_err(query::problem)? {
                while let Some((at, place)) = seen.next_if(|(at, _)| *at < row.timestamp) {
                    walk.count(at, place.and_then(|place| groups.get(place)).unwrap_or(&nobody))?;
                }
                let event = properties(&row);
                let place = text(event.get("$group_key")).and_then(|key| places.get(&*key));
                if let (Some(group), Some(Value::Object(set))) =
                    (place.and_then(|place| groups.get_mut(*place)), event.get("$group_set"))
                {
                    group.extend(set.clone());
                }
            }
        }
    }
    for (at, place) in seen {
        walk.count(at, place.and_then(|place| groups.get(place)).unwrap_or(&nobody))?;
    }
    Ok(walk.points())
}

/// Time of an event, and the index of its group among the keys.
type Seen = (UnixMicros, Option<usize>);

/// The counted events of a person, and the keys of their groups of one type.
async fn groups_seen(
    app: &App,
    (project, person): (ProjectId, &Person),
    (question, index): (&Question, u8),
    range: &Range,
) -> Result<(Vec<Seen>, Vec<String>), Problem> {
    let (mut seen, mut places) = (Vec::new(), HashMap::new());
    let property = format!("$group_{index}");
    let events = app.engine.history(project, person.uuid, range.to).await;
    let mut events = events.map_err(query::problem)?;
    while let Some(rows) = events.next().await {
        for row in rows.map_err(query::problem)? {
            if !question.counts(&row, range) {
                continue;
            }
            let next = places.len();
            let place = text(properties(&row).get(&property))
                .map(|key| *places.entry(key.into_owned()).or_insert(next));
            seen.push((row.timestamp, place));
            if places.len() > GROUPS_MAX {
                let detail =
                    format!("The events of the person are of more than {GROUPS_MAX} groups.");
                return Err(refused("aggregation_group_type_index", "invalid_input", detail));
            }
            if seen.len() > GROUP_EVENTS_MAX {
                return Err(query::problem(QueryError::TooManyRows(GROUP_EVENTS_MAX)));
            }
        }
    }
    let mut keys: Vec<(String, usize)> = places.into_iter().collect();
    keys.sort_unstable_by_key(|(_, place)| *place);
    Ok((seen, keys.into_iter().map(|(key, _)| key).collect()))
}

/// The stored properties of an event.
fn properties(row: &EventRow) -> Map<String, Value> {
    json::read(row.properties.as_bytes()).unwrap_or_default()
}

/// The key of a group: a text, or a number as text.
fn text(key: Option<&Value>) -> Option<Cow<'_, str>> {
    match key? {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

impl Question {
    /// Parses the relevant parts of an insight's filter.
    fn of(request: &Request) -> Result<Self, Problem> {
        let sent = |name: &'static str| {
            let text = request.query(name).filter(|text| !text.is_empty());
            let read = |text: Cow<'_, str>| json::read::<Value>(text.as_bytes());
            text.map(read).transpose().map_err(|_| refused(name, "invalid_input", "Expected JSON."))
        };
        let index = request.query("aggregation_group_type_index");
        let group_type = index.filter(|text| !text.is_empty()).map(|text| group_type(&text));
        let mut question = Self { group_type: group_type.transpose()?, ..Self::default() };
        for name in ["events", "actions"] {
            if let Some(series) = sent(name)? {
                question.note_series(name, &series)?;
            }
        }
        if let Some(properties) = sent("properties")? {
            question.note_keys("properties", &properties, DEPTH_MAX)?;
        }
        if request.query("breakdown_type").as_deref() == Some("person")
            && let Some(breakdown) = request.query("breakdown").filter(|key| !key.is_empty())
        {
            match json::read::<Vec<String>>(breakdown.as_bytes()) {
                Ok(keys) => question.keys.extend(keys),
                Err(_) => _ = question.keys.insert(breakdown.into_owned()),
            }
        }
        Ok(question)
    }

    /// Adds the events and the filters of the series.
    fn note_series(&mut self, name: &'static str, series: &Value) -> Result<(), Problem> {
        let Some(series) = series.as_array() else {
            return Err(refused(name, "invalid_input", "Expected a JSON list of series."));
        };
        for one in series {
            if name == "actions" || one.get("type").and_then(Value::as_str) == Some("actions") {
                let detail = "Actions are not available. Name the events instead.";
                return Err(refused(name, "invalid_input", detail));
            }
            if let Some(properties) = one.get("properties") {
                self.note_keys(name, properties, DEPTH_MAX)?;
            }
        }
        let named = |one: &Value| {
            ["id", "name"].iter().find_map(|key| one.get(*key)?.as_str().map(str::to_owned))
        };
        // A series without a name selects all events.
        let names: Option<HashSet<String>> = series.iter().map(named).collect();
        self.events = names.filter(|names| !names.is_empty());
        Ok(())
    }

    /// Adds the properties in filters that belong to the person, or to the group type of the query.
    fn note_keys(
        &mut self,
        name: &'static str,
        filters: &Value,
        depth: usize,
    ) -> Result<(), Problem> {
        let unparsable = || refused(name, "invalid_input", "Properties are unparsable!");
        let inner = depth.checked_sub(1).ok_or_else(unparsable)?;
        match filters {
            Value::Array(filters) => {
                filters.iter().try_for_each(|filter| self.note_keys(name, filter, inner))
            }
            Value::Object(filter) => {
                if let Some(values) = filter.get("values") {
                    return self.note_keys(name, values, inner);
                }
                let kind = filter.get("type").and_then(Value::as_str);
                let index = filter.get("group_type_index").and_then(Value::as_u64);
                let is_crucial = match self.group_type {
                    None => kind == Some("person"),
                    Some(own) => kind == Some("group") && index == Some(own.into()),
                };
                let key = filter.get("key").and_then(Value::as_str).filter(|_| is_crucial);
                self.keys.extend(key.map(str::to_owned));
                Ok(())
            }
            _ => Err(unparsable()),
        }
    }

    /// Whether the query counts this event.
    fn counts(&self, row: &EventRow, range: &Range) -> bool {
        self.events.as_ref().is_none_or(|names| names.contains(&row.event))
            && row.timestamp >= range.from
            && row.timestamp <= range.to
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
    use serde_json::Value;
    use serde_json::json;

    use super::DEPTH_MAX;
    use super::Question;

    fn keys(group_type: Option<u8>, filters: &Value) -> Option<Vec<String>> {
        let mut question = Question { group_type, ..Question::default() };
        question.note_keys("properties", filters, DEPTH_MAX).ok()?;
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
            let mut question = Question::default();
            question.note_series("events", series).ok()?;
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
