//! Pages of definitions: names of events and of properties, and one of them.

use std::collections::BTreeMap;

use hyper::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::response::Problem;
use crate::routes::pages::files;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other};
use weir_web::pages::definitions as shown;
use weir_web::pages::definitions::Volume;
use weir_web::parts;
use weir_web::parts::{items, literal, page, query, search, text};

/// Definitions of a page.
const ROWS: usize = 100;

/// Days of which events are counted, today included.
const DAYS: usize = 30;

/// `GET data-management/events`.
pub async fn events(visit: Visit) -> Result<Sent, Problem> {
    let own = ("events", "event_definitions/");
    if let Some(format) = files::wanted(&visit)? {
        return as_file(&visit, own, format).await;
    }
    let (found, page) = found(&visit, own).await?;
    let asking = visit.asking.clone();
    let later = visit.asking.clone();
    let place = (asking.project(), asking.zone);
    Ok(Sent::Page(page.then(async move {
        let definitions = items(&found, "results");
        let names: Vec<&str> = definitions.iter().map(|own| text(own, "name")).collect();
        let volumes = match later.may("query:read") {
            true => volumes(&later, &names).await?,
            false => Vec::new(),
        };
        Ok(html! {
            (shown::events(place, definitions, &volumes))
            (around(&visit, own, &found))
        })
    })))
}

/// `GET data-management/properties?type=`: those of events, or of persons.
pub async fn properties(visit: Visit) -> Result<Sent, Problem> {
    let own = ("properties", "property_definitions/");
    if let Some(format) = files::wanted(&visit)? {
        return as_file(&visit, own, format).await;
    }
    let (found, mut page) = found(&visit, own).await?;
    page.now = html! {
        (page.now)
        (shown::properties(visit.project(), &of(&visit), items(&found, "results")))
        (around(&visit, own, &found))
    };
    Ok(Sent::Page(page))
}

/// Whose properties a page is about; empty for those of events.
fn of(visit: &Visit) -> String {
    Some(visit.parameter("type")).filter(|of| of != "event").unwrap_or_default()
}

async fn as_file(
    visit: &Visit,
    (kind, path): (&'static str, &'static str),
    format: &'static str,
) -> Result<Sent, Problem> {
    let (wanted, of) = (visit.parameter("search"), of(visit));
    let asked = [("search", &*wanted), ("type", &*of)];
    files::of_list(&visit.asking, (path, &asked), (kind, format)).await
}

/// The definitions that a page is about, and its beginning.
async fn found(
    visit: &Visit,
    (kind, path): (&'static str, &'static str),
) -> Result<(Value, Page), Problem> {
    let (project, wanted, offset) = (visit.project(), visit.parameter("search"), visit.offset());
    let (of, limit, offset) = (of(visit), ROWS.to_string(), offset.to_string());
    let asked = [("search", &*wanted), ("type", &*of), ("limit", &*limit), ("offset", &*offset)];
    let found = visit.asking.get(path, &asked).await?;
    let now = html! {
        (shown::tabs(project, (kind, &of)))
        (search(project, &format!("data-management/{kind}"), ("Name", &wanted), &[("type", &of)]))
    };
    Ok((found, Page::new("Definitions", now)))
}

/// What is below a list.
fn around(visit: &Visit, (_, path): (&'static str, &'static str), found: &Value) -> Markup {
    let (wanted, offset, of) = (visit.parameter("search"), visit.offset(), of(visit));
    let has_next = found.get("next").is_some_and(Value::is_string);
    let table = path.trim_end_matches('/');
    html! {
        (parts::pager(offset, ROWS, has_next, |offset| {
            format!("?{}", query(&[("search", &wanted), ("type", &of), ("offset", &offset.to_string())]))
        }))
        @if !items(found, "results").is_empty() {
            (files::below(&visit.asking, (path, &[("search", &wanted), ("type", &of)]), Some(&shown::sql(table, &wanted, &of))))
        }
    }
}

/// How many events of each name came on each of the last days.
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
    for row in items(&found, "results") {
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
    let path = format!("event_definitions/{}/", parts::part(visit.id()));
    let definition = asking.get(&path, &[]).await?;
    let name = text(&definition, "name");
    let volume = match asking.may("query:read") {
        true => volumes(asking, &[name]).await?.pop(),
        false => None,
    };
    let (volume, can_write) = (volume.unwrap_or_default(), asking.may("event_definition:write"));
    let place = (asking.project(), asking.zone);
    let content = shown::event(place, &definition, &volume, can_write);
    Ok(Sent::Page(Page::new(parts::clipped(name, 120), content)))
}

/// `POST data-management/events/:id`.
pub async fn change_event(visit: Visit) -> Result<Sent, Problem> {
    change(visit, ("events", "event_definitions")).await
}

/// `GET data-management/properties/:id`.
pub async fn property(visit: Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let path = format!("property_definitions/{}/", parts::part(visit.id()));
    let definition = asking.get(&path, &[]).await?;
    let can_write = asking.may("property_definition:write");
    let content = shown::property(asking.project(), &definition, can_write);
    Ok(Sent::Page(Page::new(parts::clipped(text(&definition, "name"), 120), content)))
}

/// `POST data-management/properties/:id`.
pub async fn change_property(visit: Visit) -> Result<Sent, Problem> {
    change(visit, ("properties", "property_definitions")).await
}

/// Changes a definition as a form says, and shows it.
async fn change(mut visit: Visit, (kind, path): (&str, &str)) -> Result<Sent, Problem> {
    let sent = form(visit.take_request()?).await?;
    let tags = sent.get("tags").split(',').map(str::trim).filter(|tag| !tag.is_empty());
    let mut body = Map::from_iter([
        ("description".to_owned(), json!(sent.get("description"))),
        ("tags".to_owned(), json!(tags.collect::<Vec<_>>())),
        ("verified".to_owned(), json!(sent.get("verified") == "1")),
        ("hidden".to_owned(), json!(sent.get("hidden") == "1")),
    ]);
    if kind == "properties" {
        let own = Some(sent.get("property_type")).filter(|name| !name.is_empty());
        body.insert("property_type".to_owned(), json!(own));
    }
    let id = parts::part(visit.id());
    visit.asking.send(Method::PATCH, &format!("{path}/{id}/"), &Value::Object(body)).await?;
    let own = page(visit.project(), &format!("data-management/{kind}/{id}"));
    Ok(Sent::Other(see_other(&own)?))
}
