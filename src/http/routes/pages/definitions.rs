//! Pages of definitions: lists of event names and of property names, and one definition.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;
use uuid::Uuid;

use crate::fields::not_a_choice;
use crate::operation::input::InPath;
use crate::operation::output::Listed;
use crate::response::Problem;
use crate::routes::definition_parameters::Terms;
use crate::routes::event_definitions::EventDefinitionWrite;
use crate::routes::pages::files;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other};
use crate::routes::promoted_properties::{PromotedPropertyWrite, PropertyKey};
use crate::routes::property_definitions::PropertyDefinitionWrite;
use crate::routes::{event_definitions, promoted_properties, property_definitions, store};
use crate::{auth, page as part};
use weir_api::definitions as api;
use weir_event::promotion::{PROMOTIONS_MAX, PromotedTable};
use weir_event::schema::PropertyType;
use weir_metadata::members::Level;
use weir_metadata::promotions::check_key;
use weir_metadata::properties::{PropertyDefinition, PropertyKind, ValueType};
use weir_web::pages::definitions as shown;
use weir_web::pages::definitions::{PERSONS, Volume};
use weir_web::parts;
use weir_web::parts::{literal, page, query, search};
use weir_web::state::parameters::Parameters;

/// The kind of event definitions: its name in URLs, and the path of its list in the API.
const EVENTS: (&str, &str) = ("events", "event_definitions/");

/// The same for property definitions.
const PROPERTIES: (&str, &str) = ("properties", "property_definitions/");

/// Definitions per page.
const ROWS: usize = 100;

/// All promoted properties of a table.
const COLUMNS: part::Page = part::Page { limit: PROMOTIONS_MAX, offset: 0 };

/// Number of days for which events are counted, today included.
const DAYS: usize = 30;

/// `GET data-management/events`.
pub async fn events(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let list = |page| event_definitions::List {
        search: Terms::of(&visit.parameter("search")),
        page,
        ..event_definitions::List::default()
    };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&asking, list, (EVENTS.0, format)).await;
    }
    let found = asking.perform(list(rows(&visit))).await?;
    Ok(Sent::Page(begun(&visit, EVENTS.0).then(async move {
        let definitions = &found.results;
        let names: Vec<&str> = definitions.iter().map(|own| own.name.as_str()).collect();
        let volumes = match asking.may("query:read") {
            true => volumes(&asking, &names).await?,
            false => Vec::new(),
        };
        Ok(html! {
            (shown::events((asking.project(), asking.zone), definitions, &volumes))
            (around(&visit, EVENTS.1, &found))
        })
    })))
}

/// `GET data-management/properties?type=`: properties of events, or of persons.
pub async fn properties(visit: Visit) -> Result<Sent, Problem> {
    let kind = of(&visit);
    let of = match kind.as_str() {
        "" => property_definitions::owner("event", None)?,
        kind => property_definitions::owner(kind, None)?,
    };
    let list = |page| property_definitions::List {
        search: Terms::of(&visit.parameter("search")),
        of,
        page,
        ..property_definitions::List::default()
    };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, list, (PROPERTIES.0, format)).await;
    }
    let found = visit.asking.perform(list(rows(&visit))).await?;
    let table = match kind.as_str() {
        "" => Some(PromotedTable::Events),
        PERSONS => Some(PromotedTable::Persons),
        _ => None,
    };
    let columns = match table {
        Some(table) => columns(&visit.asking, table).await?,
        None => Vec::new(),
    };
    let mut page = begun(&visit, PROPERTIES.0);
    page.now = html! {
        (page.now)
        (shown::properties(visit.project(), &kind, &found.results, &columns))
        (around(&visit, PROPERTIES.1, &found))
    };
    Ok(Sent::Page(page))
}

/// The owner of the properties on a page; empty for events.
fn of(visit: &Visit) -> String {
    Some(visit.parameter("type")).filter(|of| of != "event").unwrap_or_default()
}

/// The part of the list that is shown.
fn rows(visit: &Visit) -> part::Page {
    part::Page { limit: ROWS, offset: visit.offset() }
}

/// The head of the page of a list.
fn begun(visit: &Visit, kind: &'static str) -> Page {
    let (project, wanted, of) = (visit.project(), visit.parameter("search"), of(visit));
    let now = html! {
        (shown::tabs(project, (kind, &of)))
        (search(project, &format!("data-management/{kind}"), ("Name", &wanted), &[("type", &of)]))
    };
    Page::new("Definitions", now)
}

/// The content below a list: pager, files, and source.
fn around<T>(visit: &Visit, path: &str, found: &Listed<T>) -> Markup {
    let (wanted, offset, of) = (visit.parameter("search"), visit.offset(), of(visit));
    let has_next = offset.saturating_add(ROWS) < found.count;
    let table = path.trim_end_matches('/');
    html! {
        (parts::pager(offset, ROWS, has_next, |offset| {
            format!("?{}", query(&[("search", &wanted), ("type", &of), ("offset", &offset.to_string())]))
        }))
        @if !found.results.is_empty() {
            (files::below(&visit.asking, (path, &[("search", &wanted), ("type", &of)]), Some(&shown::sql(table, &wanted, &of))))
        }
    }
}

/// The number of events of each name on each of the last days.
async fn volumes(asking: &Asking, names: &[&str]) -> Result<Vec<Volume>, Problem> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let zone = literal(asking.zone.name());
    let today = asking.app.node.clock.now().to_datetime().with_timezone(&asking.zone).date_naive();
    let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
    let sql = format!(
        "SELECT event, date_trunc('day', timestamp AT TIME ZONE {zone}) AS day, count(*) AS events FROM events \
         WHERE timestamp > now() - INTERVAL '{DAYS} days' AND event IN ({}) GROUP BY 1, 2",
        names.join(", ")
    );
    let found = asking.sql(&sql).await?;
    let mut volumes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in &found.results {
        let cell = |at: usize| row.get(at).and_then(Value::as_str).unwrap_or_default();
        let day = cell(1).get(..10).unwrap_or_default();
        let Ok(day) = chrono::NaiveDate::parse_from_str(day, "%Y-%m-%d") else { continue };
        let back = usize::try_from((today - day).num_days()).unwrap_or(usize::MAX);
        let days = volumes.entry(cell(0)).or_insert_with(|| vec![0.0; DAYS]);
        let count = row.get(2).and_then(Value::as_f64).unwrap_or_default();
        if let Some(own) = DAYS.checked_sub(back + 1).and_then(|at| days.get_mut(at)) {
            *own = count;
        }
    }
    let all = volumes.into_iter().map(|(name, days)| Volume { name: name.to_owned(), days });
    Ok(all.collect())
}

/// `GET data-management/events/:id`.
pub async fn event(visit: Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let definition = asking.perform(event_definitions::Retrieve { id: id(&visit)? }).await?;
    let volume = match asking.may("query:read") {
        true => volumes(asking, &[&definition.name]).await?.pop(),
        false => None,
    };
    let (volume, can_write) = (volume.unwrap_or_default(), asking.may("event_definition:write"));
    let place = (asking.project(), asking.zone);
    let content = shown::event(place, &definition, &volume, can_write);
    Ok(Sent::Page(Page::new(parts::clipped(&definition.name, 120), content)))
}

/// `POST data-management/events/:id`.
pub async fn change_event(mut visit: Visit) -> Result<Sent, Problem> {
    let sent = form(visit.take_request()?).await?;
    let change = EventDefinitionWrite {
        tags: Some(tags(&sent)),
        description: Some(Some(sent.get("description").trim().to_owned())),
        verified: Some(sent.get("verified") == "1"),
        hidden: Some(sent.get("hidden") == "1"),
        ..EventDefinitionWrite::default()
    };
    visit.asking.perform(event_definitions::Update { id: id(&visit)?, change }).await?;
    back(&visit, EVENTS.0)
}

/// `GET data-management/properties/:id`.
pub async fn property(visit: Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let definition = asking.perform(property_definitions::Retrieve { id: id(&visit)? }).await?;
    let can_write = asking.may("property_definition:write");
    let column = column(asking, id(&visit)?, &definition).await?;
    let content = html! {
        (shown::property(asking.project(), &definition, can_write))
        (column)
    };
    Ok(Sent::Page(Page::new(parts::clipped(&definition.name, 120), content)))
}

/// `POST data-management/properties/:id`.
pub async fn change_property(mut visit: Visit) -> Result<Sent, Problem> {
    let sent = form(visit.take_request()?).await?;
    let change = PropertyDefinitionWrite {
        property_type: Some(value_type(sent.get("property_type"))?),
        tags: Some(tags(&sent)),
        description: Some(Some(sent.get("description").trim().to_owned())),
        verified: Some(sent.get("verified") == "1"),
        hidden: Some(sent.get("hidden") == "1"),
    };
    visit.asking.perform(property_definitions::Update { id: id(&visit)?, change }).await?;
    back(&visit, PROPERTIES.0)
}

/// `POST data-management/properties/:id/column`: `do` is `promote`, to a column of the type `type`, or `stop`.
pub async fn change_column(mut visit: Visit) -> Result<Sent, Problem> {
    let sent = form(visit.take_request()?).await?;
    let own = table_and_key(&visit.asking, id(&visit)?).await?;
    let (table, key) = own.ok_or_else(|| Problem::not_found("Not found."))?;
    let table = Some(table);
    match sent.get("do") {
        "promote" => {
            let name = sent.get("type");
            let kind = PropertyType::named(name).ok_or_else(|| not_a_choice("type", name))?;
            let property = PromotedPropertyWrite { key: PropertyKey(key), r#type: kind, table };
            visit.asking.perform(promoted_properties::Create { property }).await?;
        }
        "stop" => {
            visit.asking.perform(promoted_properties::Delete { key, table }).await?;
        }
        other => return Err(not_a_choice("do", other)),
    }
    back(&visit, PROPERTIES.0)
}

/// The properties that the project has promoted to columns of a table.
async fn columns(
    asking: &Asking,
    table: PromotedTable,
) -> Result<Vec<api::PromotedProperty>, Problem> {
    let list = promoted_properties::List { table: Some(table), page: COLUMNS };
    Ok(asking.perform(list).await?.results)
}

/// The table whose column the property of a definition can become, and its key; `None` if it is one of groups.
async fn table_and_key(
    asking: &Asking,
    id: Uuid,
) -> Result<Option<(PromotedTable, String)>, Problem> {
    let (metadata, project) = (&asking.app.node.metadata, asking.asker.project.id);
    let found = metadata.definition::<PropertyDefinition>(project, id).await;
    let (own, _) = found.map_err(store::problem)?;
    let table = match own.kind {
        PropertyKind::Event => Some(PromotedTable::Events),
        PropertyKind::Person => Some(PromotedTable::Persons),
        PropertyKind::Group(_) => None,
    };
    Ok(table.map(|table| (table, own.name)))
}

/// The column of a property, and the form that changes it; nothing for one that cannot be promoted.
async fn column(
    asking: &Asking,
    id: Uuid,
    definition: &api::PropertyDefinition,
) -> Result<Markup, Problem> {
    let Some((table, key)) = table_and_key(asking, id).await? else { return Ok(html! {}) };
    if check_key(table, &key).is_err() {
        return Ok(html! {});
    }
    let columns = columns(asking, table).await?;
    let own = columns.iter().find(|own| own.key == definition.name);
    let is_admin = auth::require_level(&asking.asker.key, Level::Admin).is_ok();
    let can_write = is_admin && asking.may("property_definition:write");
    Ok(shown::column(asking.project(), (table, definition), own, can_write))
}

/// The id in the path.
fn id(visit: &Visit) -> Result<Uuid, Problem> {
    InPath::of(visit.id())
}

/// Parses the tags in a form, separated by commas.
fn tags(sent: &Parameters) -> Vec<String> {
    let tags = sent.get("tags").split(',').map(str::trim).filter(|tag| !tag.is_empty());
    tags.map(str::to_owned).collect()
}

/// Parses the type of values in a form; an unknown one is refused.
fn value_type(name: &str) -> Result<Option<ValueType>, Problem> {
    let wrong = || not_a_choice("property_type", name);
    let named = Some(name).filter(|name| !name.is_empty());
    named.map(|name| ValueType::parse(name).ok_or_else(wrong)).transpose()
}

/// Redirects to the changed definition.
fn back(visit: &Visit, kind: &str) -> Result<Sent, Problem> {
    let id = parts::part(visit.id());
    let own = page(visit.project(), &format!("data-management/{kind}/{id}"));
    Ok(Sent::Other(see_other(&own)?))
}
