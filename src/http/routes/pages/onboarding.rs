//! The page that shows how to send events, and whether one has come.

use maud::html;

use crate::http::response::Problem;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::web::pages::onboarding as shown;
use crate::web::parts::items;

/// `GET onboarding`.
pub async fn onboarding(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let now = shown::snippets(
        &asking.server,
        &asking.asker.project.token,
        asking.app.config.http.static_dir.is_some(),
    );
    let page = Page::new("Add events", html! {});
    let page = match asking.may("query:read") {
        true => page.then(async move {
            let found = asking.get("events/", &[("limit", "1")]).await?;
            Ok(match items(&found, "results").first() {
                Some(event) => shown::arrived(project, asking.zone, event),
                None => shown::waiting(project),
            })
        }),
        false => page,
    };
    Ok(Sent::Page(Page { end: now, ..page }))
}
