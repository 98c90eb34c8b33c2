//! Pages of events: the list, and one of them.

use chrono::DateTime;
use maud::{Markup, html};
use serde_json::Value;

use crate::beside::beside;
use crate::response::Problem;
use crate::routes::pages::files;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit};
use crate::routes::query;
use weir_base::clock::UnixMicros;
use weir_query::events::places::Sought;
use weir_web::pages::events as shown;
use weir_web::pages::events::{Journey, Wanted};
use weir_web::parts;
use weir_web::parts::page;

/// Events of a page.
const EVENTS: usize = 100;

/// Names of events that a form offers.
const NAMES: &str = "200";

/// What the form asks for.
pub(super) fn wanted(visit: &Visit) -> Wanted {
    Wanted {
        event: visit.parameter("event"),
        distinct_id: visit.parameter("distinct_id"),
        property: (visit.parameter("key"), visit.parameter("value")),
        after: visit.parameter("after"),
        columns: visit.parameter("columns"),
    }
}

/// The parameters of the API for what is wanted.
pub(super) fn parameters(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let property = wanted.properties().map(|filters| filters.to_string()).unwrap_or_default();
    vec![
        ("event", wanted.event.clone()),
        ("distinct_id", wanted.distinct_id.clone()),
        ("properties", property),
        ("after", wanted.after.clone()),
    ]
}

/// The events that are wanted, newest first.
pub(super) async fn load(
    asking: &Asking,
    wanted: &Wanted,
    (limit, offset): (usize, usize),
) -> Result<Value, Problem> {
    let (limit, offset) = (limit.to_string(), offset.to_string());
    let own = parameters(wanted);
    let mut query: Vec<(&str, &str)> =
        own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    query.extend([("limit", limit.as_str()), ("offset", offset.as_str())]);
    asking.get("events/", &query).await
}

/// Names of events, for a form; none if the key may not read them.
pub(super) async fn names(asking: &Asking) -> Vec<String> {
    let found = asking.get("event_definitions/", &[("limit", NAMES)]).await.unwrap_or_default();
    let all = parts::items(&found, "results").iter();
    all.map(|definition| parts::text(definition, "name").to_owned()).collect()
}

/// `GET activity/explore`.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, wanted) = (visit.project(), visit.asking.clone(), wanted(&visit));
    let offset = visit.offset();
    let own = parameters(&wanted);
    let api: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if let Some(format) = files::wanted(&visit)? {
        let named = ("events", format);
        // Columns of SQL keep their types.
        let sql = shown::sql(&wanted, files::ROWS).filter(|_| files::has_types(format));
        if let Some(sql) = sql {
            return files::of_sql(&asking, &sql, named).await;
        }
        return files::of_list(&asking, ("events/", &api), named).await;
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
        let found = load(&asking, &wanted, (EVENTS, offset)).await?;
        let events = shown::of(&found);
        let columns = wanted.shown();
        let has_next = found.get("next").is_some_and(Value::is_string);
        let is_limited = offset > 0 || !wanted.query(&[]).is_empty();
        Ok(html! {
            section id="result" {
                @if events.is_empty() { (shown::none(project, is_limited)) } @else {
                    (shown::table(&columns, None, &shown::rows(project, asking.zone, events, &columns)))
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
    let event = asking.get(&format!("events/{}/", parts::part(visit.id())), &[]).await?;
    let title = parts::clipped(parts::text(&event, "event"), 120);
    let (project, zone) = (visit.project(), asking.zone);
    let show = move || Ok((shown::one(project, zone, &event), event));
    let (now, event) = beside(&asking.app.node.cpu, show).await?;
    let page = Page::new(title, now);
    let asking = asking.clone();
    Ok(Sent::Page(page.then(async move { journey(&asking, &event).await })))
}

/// What became of an event since it was received: its person, its warnings, and where its row is now.
async fn journey(asking: &Asking, event: &Value) -> Result<Markup, Problem> {
    let id = parts::text(event, "id");
    let own = parts::literal(id);
    let sql = format!("SELECT received_at, person_id FROM events WHERE uuid = {own} LIMIT 1");
    let found = asking.sql(&sql).await?;
    let row = parts::items(&found, "results").first();
    let cell = |at: usize| row.and_then(|row| row.get(at)).map(parts::plain).unwrap_or_default();
    let warnings = match asking.may("ingestion_warning:read") {
        true => asking.get("ingestion_warnings/", &[]).await?,
        false => Value::Null,
    };
    let at = DateTime::parse_from_rfc3339(parts::text(event, "timestamp")).ok();
    let places = match at {
        Some(at) => {
            let sought = Sought::Event(id, UnixMicros(at.timestamp_micros()));
            let found = asking.app.engine.places(asking.asker.project.id, sought).await;
            Some(found.map_err(query::problem)?)
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
fn about(warnings: &Value, id: &str) -> Vec<String> {
    let is_about = |warning: &&Value| {
        let samples = parts::items(warning, "warnings").iter();
        let mut details = samples.filter_map(|sample| sample.get("details"));
        details.any(|details| parts::text(details, "eventUuid") == id)
    };
    let own = parts::items(warnings, "results").iter().filter(is_about);
    own.map(|warning| parts::text(warning, "type").replace('_', " ")).collect()
}
