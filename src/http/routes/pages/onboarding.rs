//! The page that shows how to send events, and whether one has arrived.

use bytes::Bytes;
use hyper::Method;
use maud::html;
use serde_json::json;

use crate::page as part;
use crate::response::Problem;
use crate::routes::capture;
use crate::routes::events::List;
use crate::routes::pages::events::load;
use crate::routes::pages::visit::{Page, Sent, Visit, see_other};
use weir_web::pages::onboarding as shown;
use weir_web::parts::page;

/// `GET onboarding`.
pub async fn onboarding(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let now = shown::snippets(
        &asking.server,
        &asking.asker.project.token,
        asking.app.node.config.http.static_dir.is_some(),
    );
    let page = Page::new("Add events", html! {});
    let page = match asking.may("query:read") {
        true => page.then(async move {
            let page = part::Page { limit: 1, offset: 0 };
            let (events, _) = load(&asking, List { page, ..List::default() }).await?;
            Ok(match events.first() {
                Some(event) => shown::arrived(project, asking.zone, event),
                None => shown::waiting(project, asking.may("project:write")),
            })
        }),
        false => page,
    };
    Ok(Sent::Page(Page { end: now, ..page }))
}

/// `POST onboarding`: sends an event like an SDK, through the whole ingestion path.
pub async fn send_test(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), &visit.asking);
    let event = json!({
        "api_key": asking.asker.project.token,
        "event": "test event",
        "distinct_id": asking.asker.user.email,
        "properties": {"$lib": "weir", "$process_person_profile": false},
    });
    let body = Bytes::from(event.to_string());
    let request = visit.request.derived(Method::POST, "/i/v0/e/", body);
    let request = request.ok_or_else(|| Problem::not_found("Not found."))?;
    capture::capture(&asking.app, capture::Kind::Modern, request).await?;
    Ok(Sent::Other(see_other(&page(project, "onboarding"))?))
}
