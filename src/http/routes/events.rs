//! Single events: the newest, one by its id, values of a property. A live view polls the newest
//! every few seconds.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::Duration;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::auth::Principal;
use crate::beside::beside;
use crate::call::{Call, Rendering};
use crate::openapi::{Description, Either, INVALID, Parameter};
use crate::page::Page;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::query;
use crate::rows::{LONG_PAGE_MAX_BYTES, Rows};
use crate::{csv, fields};
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_event::predicate::moment::Moment;
use weir_insights::events;
use weir_insights::events::{EventRow, EventsQuestion, ValuesQuestion};
use weir_insights::filters::Filters;
use weir_insights::known::check_filters;

/// How far back values of properties are searched (PostHog's figure), from the start of the day.
const VALUES_SPAN: Duration = Duration::from_hours(7 * 24);

/// Most values in a response.
const VALUES_MAX: usize = 20;

/// Properties of the person that are returned with an event (PostHog's choice).
const PERSON_KEYS: [&str; 3] = ["email", "name", "username"];

/// An event as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Event")]
struct EventBody {
    id: String,
    distinct_id: String,
    /// Unchanged JSON of the sender.
    #[schemars(with = "Map<String, Value>")]
    properties: Box<RawValue>,
    event: String,
    timestamp: String,
    person: Option<PersonPart>,
    elements_chain: String,
}

/// The person of an event, as sent to clients.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "EventPerson")]
struct PersonPart {
    uuid: String,
    is_identified: bool,
    distinct_ids: [String; 1],
    properties: Map<String, Value>,
}

/// A list of events. It has no count, which would take longer than everything else.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Events")]
struct EventsBody {
    next: Option<String>,
    results: Vec<EventBody>,
}

/// Selected columns of events.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "EventTable")]
struct TableBody {
    columns: Vec<String>,
    next: Option<String>,
    results: Vec<Vec<Value>>,
}

/// One value of a property.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Name")]
struct ValueBody {
    name: String,
}

pub(crate) const LIST: Description =
    Description::ok::<Either<EventsBody, TableBody>>("The newest events")
        .query(&[
            Parameter::shared("limit"),
            Parameter::shared("offset"),
            Parameter::text("event"),
            Parameter::shared("distinct_id"),
            Parameter::text("person_id"),
            Parameter::text("properties").about("A JSON list of property filters"),
            Parameter::text("after").about("A time, or a span such as -7d"),
            Parameter::text("before"),
            Parameter::text("select").about("A JSON list of columns"),
            Parameter::one_of("orderBy", &["-timestamp", "[\"-timestamp\"]"]),
        ])
        .or(&[INVALID]);

/// `GET events/`: newest first.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let (page, project) = (Page::of(&request), asker.project.id);
    let question = question(app, project, &request).await?;
    let columns = columns(&request)?;
    let part = (page.offset, page.limit);
    let Some(question) = question else {
        let none = EventsBody { next: None, results: Vec::new() };
        return Ok(csv::render(StatusCode::OK, rendering, &none));
    };
    let rows =
        events::latest(&app.engine, project, question, part).await.map_err(query::problem)?;
    let public_url = app.node.config.http.public_url.as_deref();
    let last = rows.last().filter(|_| rows.len() == page.limit);
    let next =
        last.map(|_| page.link(&request, public_url, page.offset.saturating_add(page.limit)));
    if let Some(columns) = columns {
        let table = move || {
            let results = rows.iter().map(|row| cells(row, &columns)).collect();
            Ok(csv::render(StatusCode::OK, rendering, &TableBody { columns, next, results }))
        };
        return beside(&app.node.cpu, table).await;
    }
    let results = bodies(app, project, rows).await?;
    if rendering == Rendering::Csv {
        let body = EventsBody { next, results };
        return csv::answer(&app.node.cpu, StatusCode::OK, rendering, body).await;
    }
    let found = results.len();
    let rows = Rows::within(&request.memory(), LONG_PAGE_MAX_BYTES);
    let (rows, _) = rows.add_on(&app.node.cpu, move |rows| rows.add_all(results)).await?;
    let next = match rows.count() < found {
        true => Some(page.link(&request, public_url, page.offset.saturating_add(rows.count()))),
        false => next,
    };
    let head = json!({"next": next}).to_string();
    Ok(Response::counted_json(StatusCode::OK, &rows.within_object(&head)?))
}

pub(crate) const RETRIEVE: Description =
    Description::ok::<EventBody>("One event").named("events_of_id").or(&[INVALID]);

/// `GET events/:uuid/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let project = call.asker.project.id;
    let id = Uuid::try_parse(call.id())
        .map_err(|_| Problem::new(Kind::Invalid, "invalid", "Invalid UUID"))?;
    let row = events::by_id(&app.engine, project, id).await.map_err(query::problem)?;
    let missing = || Problem::not_found(format!("No events exist for event UUID {id}"));
    let bodies = bodies(app, project, vec![row.ok_or_else(missing)?]).await?;
    let body = bodies.into_iter().next().ok_or_else(missing)?;
    csv::answer(&app.node.cpu, StatusCode::OK, call.rendering, body).await
}

pub(crate) const VALUES: Description =
    Description::ok::<Vec<ValueBody>>("Values of a property of events").query(&[
        Parameter::text("key"),
        Parameter::text("value").about("Part of the values"),
        Parameter::texts("event_name"),
    ]);

/// `GET events/values/`: values that a property had in the last days, for the editor of a filter.
/// The names of events are the values of `custom_event`.
pub async fn values(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (project, request) = (call.asker.project.id, &call.request);
    let text = |name: &str| request.query(name).unwrap_or_default().into_owned();
    let (key, part) = (text("key"), text("value"));
    let found = match key.as_str() {
        "" => Vec::new(),
        "custom_event" => event_names(app, project, &part).await?,
        _ => {
            let events = request.query_all().filter(|(name, _)| name == "event_name");
            let events = events.map(|(_, value)| value.into_owned()).collect();
            let day = Duration::from_hours(24).as_micros();
            let now = app.node.clock.now().0;
            let today = now - now.rem_euclid(i64::try_from(day).unwrap_or(i64::MAX));
            let span = i64::try_from(VALUES_SPAN.as_micros()).unwrap_or(i64::MAX);
            let after = Some(UnixMicros(today - span - 1));
            let question = ValuesQuestion { key, part: part.clone(), events, after };
            events::values(&app.engine, project, question).await.map_err(query::problem)?
        }
    };
    let rendering = call.rendering;
    let told = move || Ok(csv::render(StatusCode::OK, rendering, &top_values(found, &part)));
    beside(&app.node.cpu, told).await
}

/// The most frequent values; if `part` is given, the shortest that contain it.
fn top_values(found: Vec<String>, part: &str) -> Vec<ValueBody> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for value in found.into_iter().filter(|value| !value.is_empty() && value != "null") {
        *counts.entry(value).or_insert(0) += 1;
    }
    let mut values: Vec<_> = counts.into_iter().collect();
    values.sort_unstable_by(|(a, a_count), (b, b_count)| {
        let shorter =
            if part.is_empty() { std::cmp::Ordering::Equal } else { a.len().cmp(&b.len()) };
        shorter.then_with(|| b_count.cmp(a_count)).then_with(|| a.cmp(b))
    });
    values.truncate(VALUES_MAX);
    values.into_iter().map(|(name, _)| ValueBody { name }).collect()
}

/// Names of events that are not built in.
async fn event_names(app: &App, project: ProjectId, part: &str) -> Result<Vec<String>, Problem> {
    app.engine.wait().await.map_err(query::problem)?;
    let definitions = app.node.metadata.all_definitions(project).await;
    let definitions = definitions.map_err(|error| Problem::of(error.kind(), &error))?;
    let part = part.to_lowercase();
    let names = definitions.into_iter().map(|definition| definition.name);
    Ok(names.filter(|name| !name.starts_with('$') && name.to_lowercase().contains(&part)).collect())
}

/// The query of a request; `None` if no event can match.
async fn question(
    app: &App,
    project: ProjectId,
    request: &Request,
) -> Result<Option<EventsQuestion>, Problem> {
    let text =
        |name: &str| request.query(name).filter(|text| !text.is_empty()).map(Cow::into_owned);
    let now = app.node.metadata.snapshot().now(project, app.node.clock.now());
    let time = |name: &'static str| {
        let time = |text: String| Moment::parse(&text).and_then(|moment| moment.resolve(now));
        let wrong = || wrong(name, "Expected a date and time, or a span such as -7d.");
        text(name).map(|text| time(text).ok_or_else(wrong)).transpose()
    };
    if text("orderBy").is_some_and(|order| !["[\"-timestamp\"]", "-timestamp"].contains(&&*order)) {
        return Err(wrong("orderBy", "Events can be ordered by -timestamp only."));
    }
    let mut question = EventsQuestion {
        event: text("event"),
        distinct_id: text("distinct_id"),
        person: None,
        properties: text("properties")
            .map(|json| properties(&json))
            .transpose()?
            .unwrap_or_default(),
        after: time("after")?,
        before: time("before")?,
    };
    if let (Some(after), Some(before)) = (question.after, question.before)
        && after > before
    {
        return Err(wrong("after", "It is after `before`, so that no event can be between them."));
    }
    if let Some(id) = text("person_id") {
        app.engine.wait().await.map_err(query::problem)?;
        let failed = |error: weir_identity::IdentityError| Problem::of(error.kind(), &error);
        let person = match (id.parse::<i64>(), Uuid::try_parse(&id)) {
            (Ok(number), _) => {
                let person =
                    app.shard.identities.person_by_number(project, number).map_err(failed)?;
                person.map(|person| person.uuid)
            }
            // A person that was merged away is now another person.
            (_, Ok(uuid)) => {
                Some(app.shard.identities.overrides().resolve(project, uuid).map_err(failed)?)
            }
            _ => return Err(wrong("person_id", "Expected the id or the uuid of a person.")),
        };
        if person.is_none() {
            return Ok(None);
        }
        question.person = person;
    }
    Ok(Some(question))
}

/// Events as they are told to pages: as to clients, and when they were received.
pub(super) async fn told(
    app: &App,
    project: ProjectId,
    rows: Vec<EventRow>,
) -> Result<Vec<Value>, Problem> {
    let arrivals: Vec<String> = rows.iter().map(|row| row.received_at.to_rfc3339()).collect();
    let bodies = bodies(app, project, rows).await?;
    let one = |(body, received_at): (&EventBody, String)| {
        let text = serde_json::to_vec(body).unwrap_or_default();
        let mut event: Value =
            json::restore(&text).map_err(|error| Problem::of(Kind::Internal, &error))?;
        if let Some(event) = event.as_object_mut() {
            event.insert("received_at".to_owned(), received_at.into());
        }
        Ok(event)
    };
    beside(&app.node.cpu, move || bodies.iter().zip(arrivals).map(one).collect()).await
}

/// Filters on events, on their persons, on the cohorts of these, and on their groups.
pub(super) fn properties(text: &str) -> Result<Filters, Problem> {
    let sent: Value = json::read(text.as_bytes())
        .map_err(|_| wrong("properties", "Properties are unparsable!"))?;
    let mut filters = Filters::default();
    let known = check_filters(&sent, "properties");
    let added = known.and_then(|()| filters.add(&sent, "properties"));
    added.map_err(|error| wrong("properties", error.detail))?;
    if filters.ask_beside_events() {
        let detail =
            "Lists of events have no filters of the types session and hogql; an EventsQuery has.";
        return Err(wrong("properties", detail));
    }
    Ok(filters)
}

fn wrong(name: &'static str, detail: impl Into<Cow<'static, str>>) -> Problem {
    fields::refused(name, "invalid_input", detail)
}

/// The columns in `select`, a JSON array.
fn columns(request: &Request) -> Result<Option<Vec<String>>, Problem> {
    let Some(text) = request.query("select").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let columns: Vec<String> = json::read(text.as_bytes())
        .map_err(|_| wrong("select", "Expected a JSON list of columns."))?;
    for name in &columns {
        let is_property = name.strip_prefix("properties.").is_some_and(|key| !key.is_empty());
        if !is_property && !SELECTABLE.contains(&name.as_str()) {
            return Err(wrong("select", format!("There is no column \"{name}\".")));
        }
    }
    Ok(Some(columns).filter(|columns| !columns.is_empty()))
}

/// Columns that can be selected, besides `properties.<key>`.
const SELECTABLE: [&str; 8] =
    ["uuid", "event", "distinct_id", "person_id", "timestamp", "elements_chain", "properties", "*"];

fn cells(row: &EventRow, columns: &[String]) -> Vec<Value> {
    // Parsed once, however many columns are properties.
    let parsed = OnceCell::new();
    let read = || json::read(row.properties.as_bytes()).unwrap_or(Value::Null);
    let properties = || parsed.get_or_init(read);
    let cell = |name: &str| match name {
        "uuid" => row.uuid.as_str().into(),
        "event" => row.event.as_str().into(),
        "distinct_id" => row.distinct_id.as_str().into(),
        "person_id" => row.person.as_str().into(),
        "timestamp" => row.timestamp.to_rfc3339().into(),
        "elements_chain" => row.elements_chain.as_deref().unwrap_or_default().into(),
        "properties" => properties().clone(),
        "*" => serde_json::json!({
            "uuid": row.uuid, "event": row.event, "distinct_id": row.distinct_id,
            "person_id": row.person, "timestamp": row.timestamp.to_rfc3339(),
            "elements_chain": row.elements_chain.as_deref().unwrap_or_default(),
            "properties": properties(),
        }),
        other => {
            let key = other.strip_prefix("properties.").unwrap_or_default();
            properties().get(key).cloned().unwrap_or(Value::Null)
        }
    };
    columns.iter().map(|name| cell(name)).collect()
}

/// Events with their persons.
async fn bodies(
    app: &App,
    project: ProjectId,
    rows: Vec<EventRow>,
) -> Result<Vec<EventBody>, Problem> {
    let read = app.engine.read(move |view, _| {
        let mut known: HashMap<String, Option<PersonPart>> = HashMap::new();
        let mut bodies = Vec::with_capacity(rows.len());
        for row in rows {
            if !known.contains_key(&row.person) {
                let person = match Uuid::try_parse(&row.person) {
                    Ok(uuid) => view.person_by_uuid(project, uuid)?,
                    Err(_) => None,
                };
                let part = person.map(|person| PersonPart {
                    uuid: person.uuid.to_string(),
                    is_identified: person.is_identified,
                    distinct_ids: [String::new()],
                    properties: PERSON_KEYS
                        .iter()
                        .filter_map(|key| person.properties.get_key_value(*key))
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect(),
                });
                known.insert(row.person.clone(), part);
            }
            let mut person = known.get(&row.person).cloned().flatten();
            if let Some(person) = &mut person {
                person.distinct_ids = [row.distinct_id.clone()];
            }
            bodies.push((row, person));
        }
        Ok(bodies)
    });
    let read = read.await.map_err(query::problem)?;
    let body = |(row, person): (EventRow, Option<PersonPart>)| {
        let properties = RawValue::from_string(row.properties)
            .map_err(|error| Problem::of(Kind::Internal, &error))?;
        Ok(EventBody {
            id: row.uuid,
            distinct_id: row.distinct_id,
            properties,
            event: row.event,
            timestamp: row.timestamp.to_rfc3339(),
            person,
            elements_chain: row.elements_chain.unwrap_or_default(),
        })
    };
    beside(&app.node.cpu, move || read.into_iter().map(body).collect()).await
}
