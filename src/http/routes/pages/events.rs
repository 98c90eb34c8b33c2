//! Pages of events: the list, and one event.

use chrono::DateTime;
use maud::{Markup, html};

use crate::beside::beside;
use crate::operation::input::Shared;
use crate::operation::output::{Items, Long};
use crate::page as part;
use crate::response::Problem;
use crate::routes::events::{List, OfProperties, Retrieve};
use crate::routes::pages::files;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit};
use crate::routes::query::problems;
use crate::routes::{event_definitions, ingestion_warnings};
use weir_api::warnings::Kind;
use weir_base::clock::UnixMicros;
use weir_query::events::places::Sought;
use weir_web::pages::events as shown;
use weir_web::pages::events::{Drawn, Journey, Wanted};
use weir_web::parts;
use weir_web::parts::page;

/// Events per page.
const EVENTS: usize = 100;

/// Most names of events that a form suggests.
const NAMES: usize = 200;

/// Reads the filters of the form.
pub(super) fn wanted(visit: &Visit) -> Wanted {
    Wanted {
        event: visit.parameter("event"),
        distinct_id: visit.parameter("distinct_id"),
        property: (visit.parameter("key"), visit.parameter("value")),
        after: visit.parameter("after"),
        columns: visit.parameter("columns"),
    }
}

/// The filters as parameters of the API.
fn parameters(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let property = wanted.properties().map(|filters| filters.to_string()).unwrap_or_default();
    vec![
        ("event", wanted.event.clone()),
        ("distinct_id", wanted.distinct_id.clone()),
        ("properties", property),
        ("after", wanted.after.clone()),
    ]
}

/// The list of the API with these filters.
fn list_of(wanted: &Wanted, page: part::Page) -> Result<List, Problem> {
    let properties = wanted.properties().map(|list| OfProperties::of(&list)).transpose()?;
    Ok(List {
        page,
        event: Some(wanted.event.clone()),
        distinct_id: Shared(wanted.distinct_id.clone()),
        properties: properties.unwrap_or_default(),
        after: Some(wanted.after.clone()),
        ..List::default()
    })
}

/// The events of a list, and whether there may be more after them.
pub(in crate::routes) async fn load(
    asking: &Asking,
    list: List,
) -> Result<(Vec<Drawn>, bool), Problem> {
    let found = asking.perform(list).await?;
    let has_next = found.has_next();
    let mut held = asking.memory().reservation();
    let read = move || {
        let mut drawn = Vec::new();
        for event in found.into_events() {
            held.hold_parsed(event.properties.get().as_bytes())?;
            drawn.push(Drawn::from(event));
        }
        Ok((drawn, held))
    };
    let (drawn, held) = beside(&asking.app.node.cpu, read).await?;
    asking.keep(held);
    Ok((drawn, has_next))
}

/// Names of events, for the suggestions of a form; empty if the key may not read them.
pub(super) async fn names(asking: &Asking) -> Vec<String> {
    let page = part::Page { limit: NAMES, offset: 0 };
    let list = event_definitions::List { page, ..event_definitions::List::default() };
    let found = asking.perform(list).await.map(|found| found.results).unwrap_or_default();
    found.into_iter().map(|definition| definition.name).collect()
}

/// `GET activity/explore`.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, wanted) = (visit.project(), visit.asking.clone(), wanted(&visit));
    let offset = visit.offset();
    let own = parameters(&wanted);
    let api: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if let Some(format) = files::wanted(&visit)? {
        let named = ("events", format);
        // Files of SQL have all rows, and columns with types.
        let sql = shown::sql(&wanted, files::ROWS).filter(|_| files::is_of_sql(format));
        if let Some(sql) = sql {
            return files::of_sql(&asking, &sql, named).await;
        }
        let list = list_of(&wanted, part::Page::default())?;
        let list = |page| List { page, ..list.clone() };
        return files::of_list(&asking, list, named).await;
    }
    let names = names(&asking).await;
    let now = html! {
        (shown::form(project, "activity/explore", &wanted, &names))
        div class="actions above" {
            a class="button small" href=(format!("{}?{}", page(project, "activity/live"), wanted.query(&[]))) { "Live" }
            (parts::files(|format| format!("?{}", wanted.query(&[("format", format)]))))
        }
    };
    let api_query = parts::query(&api);
    let table = asking.app.shard.tables.name("events");
    Ok(Sent::Page(Page::new("Events", now).then(async move {
        let page = part::Page { limit: EVENTS, offset };
        let (events, has_next) = load(&asking, list_of(&wanted, page)?).await?;
        let columns = wanted.shown();
        let is_limited = offset > 0 || !wanted.query(&[]).is_empty();
        Ok(html! {
            section id="result" {
                @if events.is_empty() { (shown::none(project, is_limited)) } @else {
                    (shown::table(&columns, None, &shown::rows(project, asking.zone, &events, &columns)))
                    (parts::pager(offset, EVENTS, has_next, |offset| {
                        format!("?{}", wanted.query(&[("offset", &offset.to_string())]))
                    }))
                }
                (shown::source((project, &asking.server, &table), &wanted, &api_query))
            }
        })
    })))
}

/// `GET events/:uuid`.
pub async fn one(visit: Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let Long(event) = asking.perform(Retrieve { uuid: visit.id().to_owned() }).await?;
    let event = beside(&asking.app.node.cpu, move || Ok(Drawn::from(event))).await?;
    let title = parts::clipped(&event.event, 120);
    let (project, zone) = (visit.project(), asking.zone);
    let show = move || Ok((shown::one(project, zone, &event), event));
    let (now, event) = beside(&asking.app.node.cpu, show).await?;
    let page = Page::new(title, now);
    let asking = asking.clone();
    Ok(Sent::Page(page.then(async move { journey(&asking, &event).await })))
}

/// The processing of an event since it was received: its person, its warnings, and the current place of its row.
async fn journey(asking: &Asking, event: &Drawn) -> Result<Markup, Problem> {
    let id = event.id.as_str();
    let own = parts::literal(id);
    let sql = format!("SELECT received_at, person_id FROM events WHERE uuid = {own} LIMIT 1");
    let found = asking.sql(&sql).await?;
    let row = found.results.first();
    let cell = |at: usize| row.and_then(|row| row.get(at)).map(parts::plain).unwrap_or_default();
    let warnings = asking.if_may(ingestion_warnings::List {}).await?;
    let warnings = warnings.map(|found| found.results).unwrap_or_default();
    let at = DateTime::parse_from_rfc3339(&event.timestamp).ok();
    let places = match at {
        Some(at) => {
            let sought = Sought::Event(id, UnixMicros(at.timestamp_micros()));
            let found = asking.app.engine.places(asking.asker.project.id, sought).await;
            Some(found.map_err(problems::problem)?)
        }
        None => None,
    };
    let (in_memory, files) = places.map_or((false, Vec::new()), |own| {
        (own.in_memory > 0, own.files.into_iter().map(|(path, _)| path).collect())
    });
    Ok(shown::journey(
        (asking.project(), asking.zone),
        event,
        &Journey {
            received_at: cell(0),
            person_id: cell(1),
            warnings: about(&warnings, id),
            in_memory,
            files,
            table: asking.app.shard.tables.place("events"),
        },
    ))
}

/// The kinds of warnings about an event.
fn about(warnings: &[Kind], id: &str) -> Vec<String> {
    let is_about = |kind: &&Kind| {
        let mut samples = kind.warnings.iter();
        samples.any(|sample| sample.details.get("eventUuid").and_then(|id| id.as_str()) == Some(id))
    };
    let own = warnings.iter().filter(is_about);
    own.map(|kind| kind.r#type.replace('_', " ")).collect()
}
