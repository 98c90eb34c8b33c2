//! Pages of groups and cohorts.

use maud::html;

use crate::beside::beside;
use crate::operation::input::Shared;
use crate::operation::output::Items;
use crate::page;
use crate::response::Problem;
use crate::routes::groups::{Key, TypeIndex};
use crate::routes::pages::files;
use crate::routes::pages::visit::{Page, Sent, Visit};
use crate::routes::{cohorts, groups};
use weir_web::pages::cohort_form::actions;
use weir_web::pages::{person_list, persons as shown};
use weir_web::parts;
use weir_web::parts::query;
use weir_web::sentences::conditions;
use weir_web::state::rules::Conditions;

/// Groups, cohorts or members per page.
const ROWS: usize = 100;

/// `GET groups?index=`.
pub async fn groups(visit: Visit) -> Result<Sent, Problem> {
    let (asking, search, offset) = (&visit.asking, visit.parameter("search"), visit.offset());
    let sent = [visit.parameter("index"), visit.parameter("group_type_index")];
    let index = sent.iter().find_map(|own| own.parse::<i64>().ok()).unwrap_or(0).clamp(0, 4);
    let index = u8::try_from(index).unwrap_or_default();
    let types = asking.perform(groups::Types {}).await?;
    let number = index.to_string();
    let own = [("group_type_index", &*number), ("search", &*search)];
    let list = |page| {
        let group_type_index = TypeIndex(index);
        groups::List { group_type_index, search: Shared(search.clone()), page }
    };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(asking, list, ("groups", format)).await;
    }
    let (has_next, groups) = match types.is_empty() {
        true => (false, Vec::new()),
        false => {
            let found = asking.perform(list(page::Page { limit: ROWS, offset })).await?;
            (found.has_next(), found.rows.into_values())
        }
    };
    let content = html! {
        @if !types.is_empty() { (parts::search(visit.project(), "groups", ("Key or name", &search), &[("index", &number)])) }
        (shown::groups(visit.project(), asking.zone, &types, index, &groups))
        (parts::pager(offset, ROWS, has_next, |offset| {
            format!("?{}", query(&[("index", &number), ("search", &search), ("offset", &offset.to_string())]))
        }))
        @if !groups.is_empty() {
            (files::below(asking, ("groups/", &own), Some(&shown::sql_of_groups(index, &search))))
        }
    };
    Ok(Sent::Page(Page::new("Groups", content)))
}

/// `GET groups/:index/:key`.
pub async fn group(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let key = visit.parameters.get(1).cloned().unwrap_or_default();
    let index = visit.id().parse().map_err(|_| Problem::not_found("Not found."))?;
    let find = groups::Find { group_type_index: TypeIndex(index), group_key: Key(key.clone()) };
    let group = asking.perform(find).await?;
    let zone = asking.zone;
    let show = move || {
        Ok(html! {
            div class="card" { dl class="facts" {
                dt { "First seen" } dd { (parts::time(&group.created_at, zone)) }
            } }
            (parts::properties_of(&group.group_properties))
        })
    };
    let content = beside(&asking.app.node.cpu, show).await?;
    let page = Page::new(parts::clipped(&key, 120), content);
    if !asking.may("query:read") {
        return Ok(Sent::Page(page));
    }
    Ok(Sent::Page(page.then(async move {
        let own = shown::of_group(index, &key);
        let events = asking.sql(&own.events).await?;
        let persons = match asking.may("person:read") {
            true => Some(asking.sql(&own.persons).await?),
            false => None,
        };
        let place = (asking.project(), asking.zone);
        Ok(shown::deeds_of_group(place, &events, persons.as_ref()))
    })))
}

/// `GET cohorts`.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let offset = visit.offset();
    let list = |page| cohorts::List { search: Shared::default(), kind: None, page };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, list, ("cohorts", format)).await;
    }
    let found = visit.asking.perform(list(page::Page { limit: ROWS, offset })).await?;
    let (has_next, cohorts) = (found.has_next(), found.rows.into_values());
    let content = html! {
        @if visit.asking.may("cohort:write") {
            p class="actions" { a class="button main" href=(parts::page(visit.project(), "cohorts/new")) { "New cohort" } }
        }
        (shown::cohorts(visit.project(), visit.asking.zone, &cohorts))
        (parts::pager(offset, ROWS, has_next, |offset| format!("?offset={offset}")))
        @if !cohorts.is_empty() { (files::below(&visit.asking, ("cohorts/", &[]), None)) }
    };
    Ok(Sent::Page(Page::new("Cohorts", content)))
}

/// The id of the cohort in the path.
pub(super) fn number(visit: &Visit) -> Result<i64, Problem> {
    visit.id().parse().map_err(|_| Problem::not_found("Not found."))
}

/// `GET cohorts/:id`.
pub async fn one(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, offset) = (visit.project(), visit.asking.clone(), visit.offset());
    let path = format!("cohorts/{}/", parts::part(visit.id()));
    let id = number(&visit)?;
    if let Some(format) = files::wanted(&visit)? {
        let list = |page| cohorts::Members { id, page };
        return files::of_list(&asking, list, ("members", format)).await;
    }
    let cohort = asking.perform(cohorts::Retrieve { id }).await?;
    let now = html! {
        @if asking.may("cohort:write") { (actions(project, &cohort)) }
        div class="card" {
            @if !cohort.description.is_empty() { p { (parts::clipped(&cohort.description, 2000)) } }
            @if cohort.is_static {
                p { "A static list of persons." }
            } @else {
                h2 { "Criteria" }
                (conditions(&Conditions::of(&cohort.filters)))
            }
        }
    };
    let mut page = Page::new(parts::title(&cohort.name), now);
    if asking.may("person:read") {
        page = page.then(async move {
            let page = page::Page { limit: ROWS, offset };
            let found = asking.perform(cohorts::Members { id, page }).await?;
            let (has_next, members) = (found.has_next(), found.rows.into_values());
            Ok(html! {
                h2 { "Persons" }
                @if offset == 0 && members.is_empty() { (shown::no_members(&cohort)) }
                @else if shown::is_being_counted(&cohort) { p class="quiet" { "It is being counted again. " (shown::COUNTING) } }
                @if !members.is_empty() || offset > 0 { (person_list::table(project, asking.zone, &members, &[])) }
                (parts::pager(offset, ROWS, has_next, |offset| format!("?offset={offset}")))
                (files::below(&asking, (&format!("{path}persons/"), &[]), None))
            })
        });
    }
    Ok(Sent::Page(page))
}
