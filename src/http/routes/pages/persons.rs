//! Pages of persons: the list, and one person.

use hyper::StatusCode;
use maud::html;
use uuid::Uuid;

use crate::beside::beside;
use crate::operation::input::{Needed, Shared};
use crate::operation::output::{Items, Long};
use crate::page as part;
use crate::response::Problem;
use crate::routes::events::PersonId;
use crate::routes::feature_flags::evaluations::Reasons;
use crate::routes::pages::events::load;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other};
use crate::routes::pages::{files, origins};
use crate::routes::persons::deletions::{DeletionWrite, IsYes};
use crate::routes::persons::split::{Leaving, Split};
use crate::routes::persons::{Filters, deletions, split};
use crate::routes::{events, persons};
use weir_api::persons::Cohorts;
use weir_api::query::Rows;
use weir_web::pages::person_list::Wanted;
use weir_web::pages::{person_list, persons as shown};
use weir_web::parts;
use weir_web::parts::query;

/// Persons per page.
const PERSONS: usize = 100;

/// Longest title of a page, in characters.
const TITLE_MAX_CHARS: usize = 120;

/// Most events in a timeline.
const EVENTS: usize = 200;

/// `GET persons`.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let wanted = Wanted {
        search: visit.parameter("search"),
        property: (visit.parameter("key"), visit.parameter("value")),
        columns: visit.parameter("columns"),
    };
    let offset = visit.offset();
    if let Some(format) = files::wanted(&visit)? {
        let named = ("persons", format);
        // Files of SQL have all rows, and columns with types.
        let sql = wanted.sql(files::ROWS).filter(|_| files::is_of_sql(format));
        if let Some(sql) = sql {
            return files::of_sql(&asking, &sql, named).await;
        }
        let [(_, search), (_, properties)] = wanted.parameters();
        Filters::of_search(&search, &properties)?;
        let list = |page| {
            let filters = Filters::of_search(&search, &properties).unwrap_or_default();
            persons::List { filters, page }
        };
        return files::of_list(&asking, list, named).await;
    }
    let now = html! {
        (person_list::form(project, &wanted))
        div class="actions above" { (parts::files(|format| format!("?{}", wanted.query(&[("format", format)])))) }
    };
    Ok(Sent::Page(Page::new("Persons", now).then(async move {
        let [(_, search), (_, properties)] = wanted.parameters();
        let filters = Filters::of_search(&search, &properties)?;
        let page = part::Page { limit: PERSONS, offset };
        let found = asking.perform(persons::List { filters, page }).await?.page()?;
        let (count, has_next) = (found.count, found.has_next());
        let (persons, columns) = (found.rows.into_values(), wanted.shown());
        let table = asking.app.shard.tables.name("persons");
        Ok(html! {
            section id="result" {
                @if count > 0 { p class="quiet" { (parts::number(i64::try_from(count).unwrap_or(i64::MAX))) " persons" } }
                @if persons.is_empty() { (person_list::none(project, wanted.is_limited() || offset > 0)) }
                @else { (person_list::table(project, asking.zone, &persons, &columns)) }
                (parts::pager(offset, PERSONS, has_next, |offset| {
                    format!("?{}", wanted.query(&[("offset", &offset.to_string())]))
                }))
                (wanted.source((project, &asking.server, &table)))
            }
        })
    })))
}

/// `GET person/:id`: by a distinct id, else by the uuid.
pub async fn one(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let id = visit.id();
    let filters = Filters::of_distinct_id(id);
    let page = part::Page { limit: 1, offset: 0 };
    let found = asking.perform(persons::List { filters, page }).await?.page()?;
    let person = match found.rows.into_values().into_iter().next() {
        Some(person) => person,
        None if uuid::Uuid::try_parse(id).is_ok() => {
            match asking.perform(persons::Retrieve { id: id.to_owned() }).await {
                // The uuid may be a distinct id, because SDKs in browsers generate uuids as distinct ids.
                Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
                    return visitor(&asking, id).await;
                }
                found => found?.0,
            }
        }
        None => return visitor(&asking, id).await,
    };
    let cohorts = match asking.may("cohort:read") {
        true => asking.perform(persons::Cohorts { person_id: Needed(person.uuid.clone()) }).await,
        false => Ok(Long(Cohorts { results: Vec::new() })),
    };
    let cohorts = cohorts.map(|Long(own)| own.results).unwrap_or_default();
    // Flags are rolled out by distinct id, so a person with several may get another value for each.
    let ids = person.distinct_ids.clone();
    let asked = visit.parameter("flags_of");
    let wanted = if asked.is_empty() { id } else { asked.as_str() };
    let distinct_id = ids.iter().find(|own| *own == wanted).or_else(|| ids.first()).cloned();
    let zone = asking.zone;
    let show = move || Ok((shown::one(project, zone, &person, &cohorts), person));
    let (now, person) = beside(&asking.app.node.cpu, show).await?;
    let now = match asking.may("person:write") {
        true => html! { (now) (shown::changes(project, &person)) },
        false => now,
    };
    let mut page = Page::new(shown::name(&person), now);
    if let Some(distinct_id) = distinct_id.filter(|_| asking.may("feature_flag:read")) {
        let asking = asking.clone();
        let uuid = person.uuid.clone();
        page = page.then(async move { flags(&asking, (&distinct_id, &ids), &uuid).await });
    }
    if asking.may("query:read") {
        let uuid = person.uuid.clone();
        let (own, other) = (asking.clone(), uuid.clone());
        page = page.then(async move {
            let person_id = Uuid::try_parse(&other).ok().map(PersonId::Uuid);
            let page = part::Page { limit: EVENTS, offset: 0 };
            let list = events::List { person_id, page, ..Default::default() };
            let (events, _) = load(&own, list).await?;
            Ok(shown::timeline(project, own.zone, &events))
        });
        page = page.then(async move {
            let found = origins::find(&asking, &uuid, &person.properties).await?;
            Ok(shown::origins(project, asking.zone, &found))
        });
    }
    Ok(Sent::Page(page))
}

/// The events of a distinct id without a person: SDKs in browsers create a person only when a user is identified.
async fn visitor(asking: &Asking, id: &str) -> Result<Sent, Problem> {
    let missing = || Problem::not_found("No person has this distinct id.");
    if !asking.may("query:read") {
        return Err(missing());
    }
    let (distinct_id, page) = (Shared(id.to_owned()), part::Page { limit: EVENTS, offset: 0 });
    let (events, _) =
        load(asking, events::List { distinct_id, page, ..Default::default() }).await?;
    if events.is_empty() {
        return Err(missing());
    }
    let now = html! {
        (shown::nobody())
        (shown::timeline(asking.project(), asking.zone, &events))
    };
    Ok(Sent::Page(Page::new(parts::clipped(id, TITLE_MAX_CHARS), now)))
}

/// `POST person/:id/delete`, where the id is the uuid.
pub async fn delete(mut visit: Visit) -> Result<Sent, Problem> {
    let sent = form(visit.take_request()?).await?;
    let id = visit.id().to_owned();
    match sent.get("what") {
        "events" => visit.asking.perform(deletions::DeleteEvents { id }).await?,
        what => {
            let delete_events = IsYes(what == "both");
            let (keep_person, deletion) = (IsYes(false), DeletionWrite::default());
            let delete = deletions::Delete { id, delete_events, keep_person, deletion };
            visit.asking.perform(delete).await?
        }
    };
    let place = match sent.get("what") {
        "person" => "persons".to_owned(),
        _ => format!("data-management/deletions?{}", query(&[("person", visit.id())])),
    };
    Ok(Sent::Other(see_other(&parts::page(visit.project(), &place))?))
}

/// `POST person/:id/split`, where the id is the uuid: the sent ids are split off the person.
pub async fn split(mut visit: Visit) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let leaving = Leaving(sent.take_all("id"));
    let split = Split { distinct_ids_to_split: Some(leaving), ..Split::default() };
    visit.asking.perform(split::Perform { id: visit.id().to_owned(), split }).await?;
    let own = parts::page(visit.project(), &format!("person/{}", parts::part(visit.id())));
    Ok(Sent::Other(see_other(&own)?))
}

async fn flags(
    asking: &Asking,
    (distinct_id, ids): (&str, &[String]),
    uuid: &str,
) -> Result<maud::Markup, Problem> {
    let Long(found) = asking.perform(Reasons::of(distinct_id)).await?;
    let flags = asking.app.node.metadata.snapshot();
    let known: Vec<(String, i64)> = flags
        .flags(asking.asker.project.id)
        .iter()
        .map(|flag| (flag.key.clone(), flag.id.0))
        .collect();
    let told = match asking.may("query:read") {
        true => asking.sql(&told_sql(uuid)).await?,
        false => Rows::default(),
    };
    let of = (distinct_id, ids);
    Ok(shown::flags((asking.project(), asking.zone), of, &found, &known, &told))
}

/// SQL for the last value of each flag that the person's clients received, as reported by SDKs: rows of key, value,
/// time.
fn told_sql(uuid: &str) -> String {
    let (key, value) = ("properties['$feature_flag']", "properties['$feature_flag_response']");
    format!(
        "SELECT {key} AS flag, last_value({value} ORDER BY timestamp) AS value, max(timestamp) AS at FROM events \
         WHERE event = '$feature_flag_called' AND person_id = {} GROUP BY {key} LIMIT 1000",
        parts::literal(uuid)
    )
}
