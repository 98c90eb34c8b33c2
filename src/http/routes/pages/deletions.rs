//! The page of deletions: the requests, their status, and the files that still contain events of a person.

use maud::html;

use crate::operation::output::Items;
use crate::page;
use crate::response::Problem;
use crate::routes::pages::files;
use crate::routes::pages::visit::{Page, Sent, Visit};
use crate::routes::persons::deletions;
use crate::routes::persons::deletions::IsDone;
use crate::routes::query::problems;
use weir_query::events::places::Sought;
use weir_web::pages::deletions as shown;
use weir_web::pages::deletions::Proof;
use weir_web::parts;

/// Requests per page.
const ROWS: usize = 100;

/// `GET data-management/deletions?person=`: with the uuid of a person the files are searched for its events.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, offset) = (visit.project(), visit.asking.clone(), visit.offset());
    let person = visit.parameter("person");
    let list = |page| deletions::Status { status: IsDone(None), person_uuid: None, page };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&asking, list, ("deletions", format)).await;
    }
    let found = asking.perform(list(page::Page { limit: ROWS, offset })).await?;
    let (has_next, requests) = (found.has_next(), found.results);
    let now = html! {
        (shown::list(project, asking.zone, &requests))
        (parts::pager(offset, ROWS, has_next, |offset| format!("?offset={offset}")))
        @if !requests.is_empty() { (files::below(&asking, ("persons/deletion_status/", &[]), None)) }
    };
    let page = Page::new("Deletions", now);
    let Ok(uuid) = uuid::Uuid::try_parse(&person) else { return Ok(Sent::Page(page)) };
    Ok(Sent::Page(page.then(async move {
        let person = uuid.to_string();
        let sought = Sought::Person(&person);
        let places = asking.app.engine.places(asking.asker.project.id, sought).await;
        let places = places.map_err(problems::problem)?;
        Ok(shown::proof(
            project,
            &Proof {
                in_memory: places.in_memory,
                files: places.files,
                looked_into: places.looked_into,
                table: asking.app.shard.tables.name("events"),
                person,
            },
        ))
    })))
}
