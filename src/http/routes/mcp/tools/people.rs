//! Tools for persons: `persons_find`, and `person` with a timeline.

use hyper::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::operation::input::Shared;
use crate::page::Page;
use crate::response::Problem;
use crate::routes::events::PersonId;
use crate::routes::mcp::said::{Grid, Said};
use crate::routes::mcp::talk::{Talk, limit, of_argument};
use crate::routes::pages::events::load;
use crate::routes::persons::Filters;
use crate::routes::{events, persons};
use weir_api::node::Node;
use weir_api::nodes::tools::{PersonArguments, PersonsFindArguments};
use weir_api::persons::Person;
use weir_web::pages::events::Drawn;
use weir_web::parts;

/// Persons of a list, usual and most.
const PERSONS: (usize, usize) = (20, 100);

/// Events of a timeline, usual and most.
const EVENTS: (usize, usize) = (50, 200);

/// Most properties of a person, and most distinct ids.
const PROPERTIES_MAX: usize = 200;
const IDS_MAX: usize = 20;

/// The tool `persons_find`.
pub(in crate::routes::mcp) async fn find(
    talk: &Talk,
    own: PersonsFindArguments,
) -> Result<Said, Problem> {
    let search = own.search.unwrap_or_default();
    let filters: Value = own.filters.iter().map(Node::query).collect();
    let filters = if own.filters.is_empty() { String::new() } else { filters.to_string() };
    let filters = Filters::of_search(&search, &filters)?;
    let (most, offset) = (limit(own.limit, PERSONS.0, PERSONS.1), own.offset.unwrap_or_default());
    let list = persons::List { filters, page: Page { limit: most, offset } };
    let found = talk.asking.perform(list).await?.page()?;
    let count = found.count;
    let rows = found.rows.into_values().into_iter().map(|own| {
        let id = own.distinct_ids.first().cloned();
        let properties = Value::Object(own.properties);
        vec![json!(own.name), json!(id), json!(own.uuid), json!(own.created_at), properties]
    });
    let head = ["name", "distinct id", "uuid", "first seen", "properties"];
    let mut grid = Grid::new("", &head, rows, most);
    grid.total = Some(count);
    let query = parts::query(&[("search", &search)]);
    let path = if query.is_empty() { "persons".to_owned() } else { format!("persons?{query}") };
    Ok(Said::new(format!("{count} persons")).with(grid).at(talk.page(&path)))
}

/// The tool `person`.
pub(in crate::routes::mcp) async fn one(
    talk: &Talk,
    own: PersonArguments,
) -> Result<Said, Problem> {
    let asking = &talk.asking;
    let (id, most) = (own.id.unwrap_or_default(), limit(own.events, EVENTS.0, EVENTS.1));
    let page = Page { limit: most, offset: 0 };
    let Some(person) = person(talk, &id).await? else { return visitor(talk, &id, page).await };
    let mut said =
        Said::new(format!("{} ({}), first seen {}", person.name, person.uuid, person.created_at));
    let ids = person.distinct_ids.iter().map(|id| vec![json!(id)]);
    said = said.with(Grid::new("Distinct ids", &["distinct id"], ids, IDS_MAX));
    let properties = person.properties.into_iter().map(|(name, value)| vec![json!(name), value]);
    said = said.with(Grid::new("Properties", &["property", "value"], properties, PROPERTIES_MAX));
    if asking.may("query:read") {
        let person_id = Uuid::try_parse(&person.uuid).ok().map(PersonId::Uuid);
        let list = events::List { person_id, page, ..Default::default() };
        said = said.with(timeline(talk, list, most).await?);
    } else {
        said = said.noting("The key lacks the scope query:read, which events need.");
    }
    Ok(said.at(talk.address(&parts::person(asking.project(), &person.uuid))))
}

/// The person of a distinct id, else of a uuid.
async fn person(talk: &Talk, id: &str) -> Result<Option<Person>, Problem> {
    let asking = &talk.asking;
    let (filters, page) = (Filters::of_distinct_id(id), Page { limit: 1, offset: 0 });
    let found = asking.perform(persons::List { filters, page }).await?.page()?;
    if let Some(person) = found.rows.into_values().into_iter().next() {
        return Ok(Some(person));
    }
    if Uuid::try_parse(id).is_err() {
        return Ok(None);
    }
    match asking.perform(persons::Retrieve { id: id.to_owned() }).await {
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => Ok(None),
        found => found.map(|long| Some(long.0)),
    }
}

/// The events of a distinct id without a person: SDKs in browsers make a person only when a user is identified.
async fn visitor(talk: &Talk, id: &str, page: Page) -> Result<Said, Problem> {
    let unknown = || {
        let id = parts::clipped(id, 200);
        let detail =
            format!("Nobody has the distinct id or uuid \"{id}\": the tool persons_find searches.");
        of_argument("id", detail)
    };
    if !talk.asking.may("query:read") {
        return Err(unknown());
    }
    let (distinct_id, most) = (Shared(id.to_owned()), page.limit);
    let list = events::List { distinct_id, page, ..Default::default() };
    let events = timeline(talk, list, most).await?;
    if events.rows.is_empty() {
        return Err(unknown());
    }
    let said = Said::new("No person was identified by this distinct id so far, which has events.");
    Ok(said.with(events).at(talk.address(&parts::person(talk.asking.project(), id))))
}

/// The newest events of a list.
async fn timeline(talk: &Talk, list: events::List, most: usize) -> Result<Grid, Problem> {
    let (found, has_more) = load(&talk.asking, list).await?;
    let count = found.len();
    let row =
        |own: Drawn| vec![json!(own.timestamp), json!(own.event), own.properties, json!(own.id)];
    let head = ["time", "event", "properties", "id"];
    let title = if has_more { "The newest events" } else { "Events, the newest first" };
    let mut grid = Grid::new(title, &head, found.into_iter().map(row), most);
    grid.total = Some(count);
    Ok(grid)
}
