//! Pages of events: the list, and one of them.

use bytes::Bytes;
use hyper::Method;
use maud::html;
use serde_json::Value;
use serde_json::json;

use crate::http::response::Problem;
use crate::http::routes::pages::visit::Asking;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::http::routes::pages::visit::file;
use crate::web::pages::events as shown;
use crate::web::pages::events::Wanted;
use crate::web::parts;
use crate::web::parts::page;

/// Events of a page, and of a file.
const EVENTS: usize = 100;
const FILE_EVENTS: &str = "10000";

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
    let (key, value) = &wanted.property;
    let property = match key.is_empty() {
        true => String::new(),
        false => {
            json!([{"key": key, "value": value, "operator": "exact", "type": "event"}]).to_string()
        }
    };
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
    let (offset, format) = (visit.offset(), visit.parameter("format"));
    let own = parameters(&wanted);
    let api: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if format == "csv" || format == "json" {
        let query =
            parts::query(&[&api[..], &[("limit", FILE_EVENTS), ("format", &format)]].concat());
        let path = format!("events/?{query}");
        let response = asking.response(Method::GET, &path, Bytes::new()).await?;
        return Ok(Sent::Other(file(response, &format!("events.{format}"))));
    }
    let names = names(&asking).await;
    let now = html! {
        (shown::form(project, "activity/explore", &wanted, &names))
        div class="actions" {
            a class="button small" href=(format!("?{}", wanted.query(&[("format", "csv")]))) { "CSV" }
            a class="button small" href=(format!("?{}", wanted.query(&[("format", "json")]))) { "JSON" }
            a class="button small" href=(format!("{}?{}", page(project, "activity/live"), wanted.query(&[]))) { "Live" }
        }
        br;
    };
    let api_query = parts::query(&api);
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
                (shown::source(project, &asking.server, &wanted, &api_query))
            }
        })
    })))
}

/// `GET events/:uuid`.
pub async fn one(visit: Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let event = asking.get(&format!("events/{}/", parts::part(visit.id())), &[]).await?;
    let title = parts::clipped(parts::text(&event, "event"), 120);
    Ok(Sent::Page(Page::new(title, shown::one(visit.project(), asking.zone, &event))))
}
