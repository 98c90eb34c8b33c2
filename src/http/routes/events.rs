//! Single events: the newest, one by its id, values of a property. A live view polls the newest
//! every few seconds.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::auth::Principal;
use crate::beside::beside;
use crate::budget::Reservation;
use crate::openapi::{Either, Parameter, Shape, Success};
use crate::operation::input::{Each, InQuery, Shared, input};
use crate::operation::output::{Items, Long, Output, PageRows, Reply, as_values};
use crate::operation::{Context, Operation};
use crate::page::Page;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::query::{answer, problems};
use crate::rows::LONG_PAGE_MAX_BYTES;
use crate::{fields, objects};
use weir_api::events as api;
use weir_api::nodes::check::check_filters;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_event::predicate::moment::{Moment, Now};
use weir_insights::events;
use weir_insights::events::{EventRow, EventsQuestion, ValuesQuestion};
use weir_insights::filters::Filters;
use weir_query::kernel::files::File;
use weir_query::output::format::Format;

/// How far back values of properties are searched (PostHog's figure), from the start of the day.
const VALUES_SPAN: Duration = Duration::from_hours(7 * 24);

/// Most values in a response.
const VALUES_MAX: usize = 20;

/// Properties of the person that are returned with an event (PostHog's choice).
const PERSON_KEYS: [&str; 3] = ["email", "name", "username"];

input! {
    /// The newest events.
    #[derive(Clone, Default)]
    #[expect(non_snake_case, reason = "the name of a parameter")]
    pub struct List {
        query page: Page,
        query event: Option<String>,
        query distinct_id: Shared,
        query person_id: Option<PersonId>,
        /// A JSON list of property filters
        query properties: OfProperties,
        /// A time, or a span such as -7d
        query after: Option<String>,
        query before: Option<String>,
        /// A JSON list of columns
        query select: Columns,
        query orderBy: NewestFirst,
        query is_limited: IsLimited,
    }
}

/// Whether the request has a `limit`, without which a file has all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsLimited(bool);

impl InQuery for IsLimited {
    /// The parameter is that of the page.
    fn describe(_: &'static str, _: &'static str, _: &mut Shape) {}

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(Self(sent(request, "limit").is_some()))
    }
}

/// A page of events.
#[derive(Debug)]
pub enum Newest {
    /// As JSON.
    Page {
        /// The requested page.
        page: Page,
        /// How many events were found for it.
        found: usize,
        /// The events that fit into the page.
        rows: PageRows<api::Event>,
    },
    /// As CSV in PostHog's form, which has a page.
    File(api::Events),
    /// As a file of all of them.
    All(Format, File),
    /// Selected columns.
    Table(Page, api::Table),
}

impl Items for Newest {
    fn into_items(self, held: &mut Reservation) -> Result<Vec<Value>, Problem> {
        as_values(self.into_events(), held)
    }

    fn has_next(&self) -> bool {
        match self {
            Self::Page { page, found, rows } => rows.count() < *found || *found == page.limit,
            Self::File(_) | Self::All(..) => false,
            Self::Table(page, table) => table.results.len() == page.limit,
        }
    }
}

impl Newest {
    /// The events, for a page that renders them.
    pub fn into_events(self) -> Vec<api::Event> {
        match self {
            Self::Page { rows, .. } => rows.into_values(),
            Self::File(events) => events.results,
            Self::All(..) | Self::Table(..) => Vec::new(),
        }
    }
}

impl Output for Newest {
    fn describe(shape: &mut Shape) {
        let says = "The answer";
        shape.success = Some(Success::of::<Either<api::Events, api::Table>>(StatusCode::OK, says));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let public_url = reply.app.node.config.http.public_url.as_deref();
        let has_next = self.has_next();
        let next = |page: &Page, shown: usize| {
            let offset = page.offset.saturating_add(shown);
            has_next.then(|| page.link(reply.request, public_url, offset))
        };
        let cpu = &reply.app.node.cpu;
        match self {
            Self::Page { page, rows, .. } => {
                let events = api::Events { next: next(&page, rows.count()), results: Vec::new() };
                Ok(Response::counted_json(StatusCode::OK, &rows.within(&events)?))
            }
            Self::All(format, file) => Ok(answer::file(format, file)),
            Self::File(events) => {
                objects::answer(cpu, StatusCode::OK, reply.rendering, events).await
            }
            Self::Table(page, table) => {
                let format = reply.rendering.format().filter(|format| *format != Format::Csv);
                if let Some(format) = format {
                    let file = move || objects::of_rows(format, &table.columns, &table.results);
                    return beside(cpu, file).await;
                }
                let table = api::Table { next: next(&page, page.limit), ..table };
                objects::answer(cpu, StatusCode::OK, reply.rendering, table).await
            }
        }
    }
}

impl Operation for List {
    type Who = Principal;
    type Out = Newest;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (page, columns) = (self.page, self.select.0.clone());
        let (app, project) = (&cx.app, cx.who.project.id);
        let format = cx.rendering.format().filter(|format| *format != Format::Csv);
        if let Some(format) = format.filter(|_| columns.is_empty()) {
            let part = (page.offset, self.is_limited.0.then_some(page.limit));
            let question = self.question(app, project).await?;
            let question = question.unwrap_or_else(EventsQuestion::of_nothing);
            let file = events::file(&app.engine, project, question, part, format).await;
            return Ok(Newest::All(format, file.map_err(problems::problem)?));
        }
        let rows = match self.question(app, project).await? {
            Some(question) => {
                let part = (page.offset, page.limit);
                let rows = events::latest(&app.engine, project, question, part).await;
                rows.map_err(problems::problem)?
            }
            None => Vec::new(),
        };
        if !columns.is_empty() {
            let table = move || {
                let results = rows.iter().map(|row| cells(row, &columns)).collect();
                Ok(Newest::Table(page, api::Table { columns, next: None, results }))
            };
            return beside(&app.node.cpu, table).await;
        }
        let results = bodies(app, project, rows).await?;
        if cx.rendering == Rendering::Csv {
            return Ok(Newest::File(api::Events { next: None, results }));
        }
        let found = results.len();
        let rows = cx.rows(LONG_PAGE_MAX_BYTES);
        let rows = rows.add_on(&app.node.cpu, move |rows| rows.add_all(results));
        let (rows, _) = rows.await?;
        Ok(Newest::Page { page, found, rows })
    }
}

impl List {
    /// The query for the events; `None` if none can match.
    async fn question(
        self,
        app: &App,
        project: ProjectId,
    ) -> Result<Option<EventsQuestion>, Problem> {
        let now = app.node.metadata.snapshot().now(project, app.node.clock.now());
        let after = time("after", self.after, now)?;
        let before = time("before", self.before, now)?;
        if let (Some(after), Some(before)) = (after, before)
            && after > before
        {
            let detail = "It is after `before`, so that no event can be between them.";
            return Err(wrong("after", detail));
        }
        let person = match self.person_id {
            None => None,
            Some(id) => match id.resolve(app, project).await? {
                None => return Ok(None),
                found => found,
            },
        };
        Ok(Some(EventsQuestion {
            event: self.event.filter(|name| !name.is_empty()),
            distinct_id: Some(self.distinct_id.0).filter(|id| !id.is_empty()),
            person,
            properties: self.properties.0,
            after,
            before,
        }))
    }
}

/// A person by number or by uuid.
#[derive(Clone, Copy, Debug)]
pub enum PersonId {
    /// The number.
    Number(i64),
    /// The uuid.
    Uuid(Uuid),
}

impl PersonId {
    /// The uuid of the current person, after merges; `None` if no person has the number.
    async fn resolve(self, app: &App, project: ProjectId) -> Result<Option<Uuid>, Problem> {
        app.engine.wait().await.map_err(problems::problem)?;
        let identities = &app.shard.identities;
        let found = match self {
            Self::Number(number) => identities
                .person_by_number(project, number)
                .map(|person| person.map(|person| person.uuid)),
            // A merged person is resolved to the person that it is part of now.
            Self::Uuid(uuid) => identities.overrides().resolve(project, uuid).map(Some),
        };
        found.map_err(|error| Problem::of(error.kind(), &error))
    }
}

impl InQuery for Option<PersonId> {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let Some(id) = sent(request, name) else { return Ok(None) };
        match (id.parse(), Uuid::try_parse(&id)) {
            (Ok(number), _) => Ok(Some(PersonId::Number(number))),
            (_, Ok(uuid)) => Ok(Some(PersonId::Uuid(uuid))),
            _ => Err(wrong(name, "Expected the id or the uuid of a person.")),
        }
    }
}

/// Filters on properties of events, of their persons and of their groups, and on cohorts of their persons.
#[derive(Clone, Debug, Default)]
pub struct OfProperties(pub Filters);

impl OfProperties {
    /// Parses a JSON list of filters.
    ///
    /// # Errors
    ///
    /// 400.
    pub fn of(list: &Value) -> Result<Self, Problem> {
        let mut filters = Filters::default();
        let known = check_filters(list, "properties");
        let added = known.and_then(|()| filters.add(list, "properties"));
        added.map_err(|error| wrong("properties", error.detail))?;
        if filters.ask_beside_events() {
            let detail = "Lists of events have no filters of the types session and hogql; an EventsQuery has.";
            return Err(wrong("properties", detail));
        }
        Ok(Self(filters))
    }
}

impl InQuery for OfProperties {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let Some(text) = sent(request, name) else { return Ok(Self::default()) };
        let list = json::read(text.as_bytes());
        Self::of(&list.map_err(|_| wrong(name, "Properties are unparsable!"))?)
    }
}

/// Parses a time, or a span before now; `None` without a text.
fn time(name: &'static str, text: Option<String>, now: Now) -> Result<Option<UnixMicros>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let time = Moment::parse(&text).and_then(|moment| moment.resolve(now));
    let wrong = || wrong(name, "Expected a date and time, or a span such as -7d.");
    time.map(Some).ok_or_else(wrong)
}

/// The selected columns of a table; without any, the response has events.
#[derive(Clone, Debug, Default)]
pub struct Columns(Vec<String>);

impl InQuery for Columns {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let Some(text) = sent(request, name) else { return Ok(Self::default()) };
        let columns: Vec<String> = json::read(text.as_bytes())
            .map_err(|_| wrong(name, "Expected a JSON list of columns."))?;
        for column in &columns {
            let is_property = column.strip_prefix("properties.").is_some_and(|key| !key.is_empty());
            if !is_property && !SELECTABLE.contains(&column.as_str()) {
                return Err(wrong(name, format!("There is no column \"{column}\".")));
            }
        }
        Ok(Self(columns))
    }
}

/// The only order of lists of events: newest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewestFirst;

/// Its names in requests.
const NEWEST_FIRST: [&str; 2] = ["-timestamp", "[\"-timestamp\"]"];

impl InQuery for NewestFirst {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of(name, &NEWEST_FIRST).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        match sent(request, name) {
            Some(order) if !NEWEST_FIRST.contains(&&*order) => {
                Err(wrong(name, "Events can be ordered by -timestamp only."))
            }
            _ => Ok(Self),
        }
    }
}

/// A parameter that is not empty.
fn sent<'r>(request: &'r Request, name: &str) -> Option<Cow<'r, str>> {
    request.query(name).filter(|text| !text.is_empty())
}

fn wrong(name: &'static str, detail: impl Into<Cow<'static, str>>) -> Problem {
    fields::refused(name, "invalid_input", detail)
}

input! {
    /// One event.
    pub struct Retrieve {
        path uuid: String,
    }
}

impl Operation for Retrieve {
    type Who = Principal;
    type Out = Long<api::Event>;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project) = (&cx.app, cx.who.project.id);
        let id = Uuid::try_parse(&self.uuid)
            .map_err(|_| Problem::new(Kind::Invalid, "invalid", "Invalid UUID"))?;
        let row = events::by_id(&app.engine, project, id).await.map_err(problems::problem)?;
        let missing = || Problem::not_found(format!("No events exist for event UUID {id}"));
        let bodies = bodies(app, project, vec![row.ok_or_else(missing)?]).await?;
        bodies.into_iter().next().map(Long).ok_or_else(missing)
    }
}

input! {
    /// Values that a property had in the last days, for the editor of a filter. The names of events are the values of
    /// `custom_event`.
    pub struct Values {
        query key: Option<String>,
        /// Part of the values
        query value: Option<String>,
        query event_name: Each,
    }
}

impl Operation for Values {
    type Who = Principal;
    type Out = Long<Vec<api::Name>>;
    const SCOPE: &'static str = "query:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (app, project) = (&cx.app, cx.who.project.id);
        let part = self.value.unwrap_or_default();
        let found = match self.key.unwrap_or_default() {
            key if key.is_empty() => Vec::new(),
            key if key == "custom_event" => event_names(app, project, &part).await?,
            key => {
                let day = Duration::from_hours(24).as_micros();
                let now = app.node.clock.now().0;
                let today = now - now.rem_euclid(i64::try_from(day).unwrap_or(i64::MAX));
                let span = i64::try_from(VALUES_SPAN.as_micros()).unwrap_or(i64::MAX);
                let after = Some(UnixMicros(today - span - 1));
                let events = self.event_name.0;
                let question = ValuesQuestion { key, part: part.clone(), events, after };
                events::values(&app.engine, project, question).await.map_err(problems::problem)?
            }
        };
        beside(&app.node.cpu, move || Ok(Long(top_values(found, &part)))).await
    }
}

/// The most frequent values; if `part` is given, the shortest that contain it.
fn top_values(found: Vec<String>, part: &str) -> Vec<api::Name> {
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
    values.into_iter().map(|(name, _)| api::Name { name }).collect()
}

/// Names of events that are not built in.
async fn event_names(app: &App, project: ProjectId, part: &str) -> Result<Vec<String>, Problem> {
    app.engine.wait().await.map_err(problems::problem)?;
    let definitions = app.node.metadata.all_definitions(project).await;
    let definitions = definitions.map_err(|error| Problem::of(error.kind(), &error))?;
    let part = part.to_lowercase();
    let names = definitions.into_iter().map(|definition| definition.name);
    Ok(names.filter(|name| !name.starts_with('$') && name.to_lowercase().contains(&part)).collect())
}

/// Events with the times at which they were received, for pages.
pub(super) async fn received(
    app: &App,
    project: ProjectId,
    rows: Vec<EventRow>,
) -> Result<Vec<(api::Event, String)>, Problem> {
    let arrivals: Vec<String> = rows.iter().map(|row| row.received_at.to_rfc3339()).collect();
    Ok(bodies(app, project, rows).await?.into_iter().zip(arrivals).collect())
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
) -> Result<Vec<api::Event>, Problem> {
    let read = app.engine.read(move |view, _| {
        let mut known: HashMap<String, Option<api::Person>> = HashMap::new();
        let mut bodies = Vec::with_capacity(rows.len());
        for row in rows {
            if !known.contains_key(&row.person) {
                let person = match Uuid::try_parse(&row.person) {
                    Ok(uuid) => view.person_by_uuid(project, uuid)?,
                    Err(_) => None,
                };
                let part = person.map(|person| api::Person {
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
    let read = read.await.map_err(problems::problem)?;
    let body = |(row, person): (EventRow, Option<api::Person>)| {
        let properties = RawValue::from_string(row.properties)
            .map_err(|error| Problem::of(Kind::Internal, &error))?;
        Ok(api::Event {
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
