//! Pages of definitions.

use maud::Markup;
use maud::html;
use serde_json::Value;

use crate::http::response::Problem;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::web::pages::definitions as shown;
use crate::web::parts;
use crate::web::parts::items;
use crate::web::parts::query;
use crate::web::parts::search;

/// Definitions of a page.
const ROWS: usize = 100;

/// `GET data-management/events`.
pub async fn events(visit: Visit) -> Result<Sent, Problem> {
    let (project, zone) = (visit.project(), visit.asking.zone);
    list(visit, ("events", "event_definitions/"), |found| shown::events(project, zone, found)).await
}

/// `GET data-management/properties`.
pub async fn properties(visit: Visit) -> Result<Sent, Problem> {
    list(visit, ("properties", "property_definitions/"), shown::properties).await
}

async fn list(
    visit: Visit,
    (kind, path): (&'static str, &'static str),
    show: impl Fn(&[Value]) -> Markup,
) -> Result<Sent, Problem> {
    let (project, wanted, offset) = (visit.project(), visit.parameter("search"), visit.offset());
    let asked =
        [("search", &*wanted), ("limit", &ROWS.to_string()), ("offset", &offset.to_string())];
    let found = visit.asking.get(path, &asked).await?;
    let has_next = found.get("next").is_some_and(Value::is_string);
    let content = html! {
        (shown::tabs(project, kind))
        (search(project, &format!("data-management/{kind}"), "Name", &wanted))
        (show(items(&found, "results")))
        (parts::pager(offset, ROWS, has_next, |offset| {
            format!("?{}", query(&[("search", &wanted), ("offset", &offset.to_string())]))
        }))
    };
    Ok(Sent::Page(Page::new("Definitions", content)))
}
