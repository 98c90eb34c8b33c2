//! `GET persons/:id/properties_timeline/`: when the properties that a question asks about changed for
//! a person, and how many of the question's events fall between two changes.
//!
//! Events do not carry the properties that their person had. What a person was like at an event is
//! told by the `$set`, `$set_once` and `$unset` of its events up to then.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use chrono::Months;
use hyper::StatusCode;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

use crate::app::App;
use crate::clock::UnixMicros;
use crate::event::json;
use crate::event::predicate::Matching;
use crate::event::predicate::filter::Filter;
use crate::event::predicate::filter::Scope;
use crate::event::predicate::moment::Moment;
use crate::event::predicate::tree::Tree;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::csv;
use crate::http::fields::refused;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::persons;
use crate::http::routes::query;
use crate::query::latest::EventRow;

/// How far back the timeline goes unless the request says otherwise (PostHog's figure).
const FROM_DEFAULT: &str = "-7d";

/// Changes that are told at most.
const POINTS_MAX: usize = 10_000;

/// The answer; the names are PostHog's.
#[derive(Debug, Serialize)]
struct TimelineBody {
    points: Vec<Point>,
    crucial_property_keys: Vec<String>,
    effective_date_from: String,
    effective_date_to: String,
}

/// From here on the crucial properties were these.
#[derive(Debug, PartialEq, Serialize)]
struct Point {
    timestamp: String,
    properties: Map<String, Value>,
    relevant_event_count: usize,
}

/// What the question asks about.
#[derive(Debug, Default)]
struct Question {
    /// Names of the events that count; none takes all.
    events: Vec<String>,
    /// Person properties that are filtered or broken down by.
    keys: BTreeSet<String>,
}

/// The timeline of one person.
pub async fn timeline(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let (person, _) = persons::find_one(app, project, call.id()).await?;
    let question = question(&call.request)?;
    app.engine.note_events_named(project, question.events.iter().map(String::as_str));
    let (from, to) = range(&call.request, app.clock.now())?;
    let mut walk = Walk::new(question, (from, to));
    let mut events = app.engine.history(project, person.uuid, to).await.map_err(query::problem)?;
    while let Some(rows) = events.next().await {
        rows.map_err(query::problem)?.iter().for_each(|row| walk.step(row));
    }
    let body = TimelineBody {
        points: walk.points,
        crucial_property_keys: walk.question.keys.into_iter().collect(),
        effective_date_from: from.to_rfc3339(),
        effective_date_to: to.to_rfc3339(),
    };
    Ok(csv::render(StatusCode::OK, call.rendering, &body))
}

/// The way along the events of a person, oldest first.
#[derive(Debug)]
struct Walk {
    question: Question,
    range: (UnixMicros, UnixMicros),
    /// The crucial properties as of the last event.
    now: Map<String, Value>,
    points: Vec<Point>,
}

impl Walk {
    fn new(question: Question, range: (UnixMicros, UnixMicros)) -> Self {
        Self { question, range, now: Map::new(), points: Vec::new() }
    }

    fn step(&mut self, row: &EventRow) {
        let properties: Map<String, Value> =
            json::read(row.properties.as_bytes()).unwrap_or_default();
        self.change(&properties);
        let counts = self.question.events.is_empty() || self.question.events.contains(&row.event);
        if !counts || row.timestamp < self.range.0 || row.timestamp > self.range.1 {
            return;
        }
        let is_full = self.points.len() >= POINTS_MAX;
        match self.points.last_mut() {
            Some(point) if point.properties == self.now => point.relevant_event_count += 1,
            _ if is_full => {}
            _ => self.points.push(Point {
                timestamp: row.timestamp.to_rfc3339(),
                properties: self.now.clone(),
                relevant_event_count: 1,
            }),
        }
    }

    /// What an event does to the crucial properties.
    fn change(&mut self, properties: &Map<String, Value>) {
        let object = |name: &str| properties.get(name).and_then(Value::as_object);
        for key in &self.question.keys {
            if let Some(value) = object("$set_once").and_then(|set| set.get(key))
                && !self.now.contains_key(key)
            {
                self.now.insert(key.clone(), value.clone());
            }
            if let Some(value) = object("$set").and_then(|set| set.get(key)) {
                self.now.insert(key.clone(), value.clone());
            }
            let is_unset = match properties.get("$unset") {
                Some(Value::Array(keys)) => keys.iter().any(|unset| unset == key.as_str()),
                Some(Value::Object(keys)) => keys.contains_key(key),
                _ => false,
            };
            if is_unset {
                self.now.remove(key);
            }
        }
    }
}

/// Reads the parts of an insight's filter that matter here.
fn question(request: &Request) -> Result<Question, Problem> {
    let sent = |name: &'static str| {
        let text = request.query(name).filter(|text| !text.is_empty());
        let read = |text: Cow<'_, str>| json::read::<Value>(text.as_bytes());
        text.map(read).transpose().map_err(|_| refused(name, "invalid_input", "Expected JSON."))
    };
    let mut question = Question::default();
    if let Some(properties) = sent("properties")? {
        note_keys(&mut question, "properties", &properties)?;
    }
    let series = sent("events")?;
    let series = series.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for event in series {
        // A series without a name is about all events.
        let name = ["id", "name"].iter().find_map(|key| event.get(*key)?.as_str());
        question.events.extend(name.map(str::to_owned));
        if let Some(properties) = event.get("properties") {
            note_keys(&mut question, "events", properties)?;
        }
    }
    let is_of_person = request.query("breakdown_type").as_deref() == Some("person");
    if let Some(key) = request.query("breakdown").filter(|key| is_of_person && !key.is_empty()) {
        question.keys.insert(key.into_owned());
    }
    Ok(question)
}

fn note_keys(
    question: &mut Question,
    name: &'static str,
    properties: &Value,
) -> Result<(), Problem> {
    let tree = Tree::parse(properties, "event", Matching::Legacy)
        .map_err(|error| refused(name, "invalid_input", error.to_string()))?;
    for filter in tree.filters() {
        if let Filter::Property { scope: Scope::Person, predicate } = filter {
            question.keys.insert(predicate.key.to_string());
        }
    }
    Ok(())
}

/// `date_from` and `date_to`: dates, or spans back from now; `all` is from the first event. If both are the
/// same it is one `interval` from there, as in PostHog.
fn range(request: &Request, now: UnixMicros) -> Result<(UnixMicros, UnixMicros), Problem> {
    let time = |name: &'static str, default: &str| {
        let text = request.query(name).filter(|text| !text.is_empty());
        let text = text.unwrap_or(Cow::Borrowed(default));
        if text == "all" {
            return Ok(UnixMicros(0));
        }
        let time = Moment::parse(&text).and_then(|moment| moment.resolve(now));
        time.ok_or_else(|| refused(name, "invalid_input", "Expected a date or a span such as -7d."))
    };
    let (from, to) = (time("date_from", FROM_DEFAULT)?, time("date_to", "-0d")?);
    // One point in time is the interval that begins with it.
    let to = if from == to { after(to, request.query("interval").as_deref()) } else { to };
    Ok((from, to))
}

/// The time one interval later; a day unless it is a known one.
fn after(time: UnixMicros, interval: Option<&str>) -> UnixMicros {
    let span = match interval {
        Some("month") => {
            let later = time.to_datetime().checked_add_months(Months::new(1));
            return later.map_or(time, UnixMicros::from);
        }
        Some("minute") => Duration::from_mins(1),
        Some("hour") => Duration::from_hours(1),
        Some("week") => Duration::from_hours(7 * 24),
        _ => Duration::from_hours(24),
    };
    time.saturating_add(span)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use super::Question;
    use super::Walk;
    use crate::clock::UnixMicros;
    use crate::query::latest::EventRow;

    fn points(keys: &[&str], events: &[&str]) -> Vec<(i64, Value, usize)> {
        let question = Question {
            events: events.iter().map(|name| (*name).to_owned()).collect(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let mut walk = Walk::new(question, (UnixMicros(2_000_000), UnixMicros(9_000_000)));
        for (second, event, properties) in [
            (1, "view", json!({"$set": {"plan": "free"}})),
            (2, "view", json!({})),
            (3, "buy", json!({"$set": {"plan": "pro", "age": 3}})),
            (4, "view", json!({"$set_once": {"plan": "never"}})),
            (5, "view", json!({"$unset": ["plan"]})),
            (6, "view", json!({"$set": {"plan": "pro"}})),
            (10, "view", json!({})),
        ] {
            walk.step(&EventRow {
                uuid: String::new(),
                event: event.to_owned(),
                distinct_id: String::new(),
                person: String::new(),
                timestamp: UnixMicros(second * 1_000_000),
                elements_chain: None,
                properties: properties.to_string(),
            });
        }
        let second = |text: &str| text[17..19].parse().unwrap();
        let told = walk.points.into_iter();
        told.map(|p| (second(&p.timestamp), Value::Object(p.properties), p.relevant_event_count))
            .collect()
    }

    /// PostHog's rule: a point wherever the crucial values differ from those of the event before.
    #[test]
    fn points_begin_where_crucial_properties_change() {
        assert_eq!(
            points(&["plan"], &[]),
            [
                (2, json!({"plan": "free"}), 1),
                (3, json!({"plan": "pro"}), 2),
                (5, json!({}), 1),
                (6, json!({"plan": "pro"}), 1),
            ]
        );
        assert_eq!(points(&[], &[]), [(2, json!({}), 5)], "one point without crucial keys");
        assert_eq!(points(&["plan"], &["buy"]), [(3, json!({"plan": "pro"}), 1)]);
        assert_eq!(points(&["age"], &["view"]).len(), 2);
    }
}
