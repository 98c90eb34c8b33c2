//! Pages of feature flags and early access features.

use std::sync::Arc;

use maud::{Markup, html};

use crate::page::Page as Part;
use crate::response::Problem;
use crate::routes::activity::{EntryRange, OfOne};
use crate::routes::feature_flags::body::FlagWrite;
use crate::routes::feature_flags::filter::Filters;
use crate::routes::feature_flags::test_evaluation::{Test, TestEvaluation};
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other};
use crate::routes::pages::{files, flag_calls};
use crate::routes::{early_access_features, feature_flags, scheduled_changes};
use weir_api::flags::Flag;
use weir_metadata::flags::StoredFlag;
use weir_web::pages::flag_form::snippets;
use weir_web::pages::flags as shown;
use weir_web::parts;
use weir_web::parts::{page, query, search};
use weir_web::state::flag_filters::FlagFilters;

/// Flags per page, and changes in a history.
const FLAGS: usize = 100;
const CHANGES: usize = 20;

/// `GET feature_flags`.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (wanted, offset) = (visit.parameter("search"), visit.offset());
    let list =
        |page| feature_flags::List { filters: Filters::searching(&wanted), order: None, page };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, list, ("flags", format)).await;
    }
    let found = visit.asking.perform(list(Part { limit: FLAGS, offset })).await?;
    let (count, flags) = (found.count, found.rows.into_values());
    let is_empty = flags.is_empty();
    let now = html! {
        @if visit.asking.may("feature_flag:write") {
            p class="actions" { a class="button main" href=(page(visit.project(), "feature_flags/new")) { "New flag" } }
        }
        @if !is_empty || !wanted.is_empty() { (search(visit.project(), "feature_flags", ("Key or description", &wanted), &[])) }
        @if is_empty { (shown::none((visit.project(), &visit.asking.server), !wanted.is_empty())) }
    };
    let asking = Arc::clone(&visit.asking);
    Ok(Sent::Page(Page::new("Feature flags", now).then(async move {
        // Without the counts, the flags are shown all the same.
        let calls = flag_calls::counts(&asking, &flags).await;
        let has_next = !is_empty && offset + flags.len() < count;
        Ok(html! {
            @if !is_empty { (shown::list(asking.project(), asking.zone, &flags, calls.as_ref())) }
            (parts::pager(offset, FLAGS, has_next, |offset| {
                format!("?{}", query(&[("search", &wanted), ("offset", &offset.to_string())]))
            }))
            @if !is_empty { (files::below(&asking, ("feature_flags/", &[("search", &wanted)]), None)) }
        })
    })))
}

/// The flag of the page.
pub(super) async fn flag_of(visit: &Visit) -> Result<Flag, Problem> {
    visit.asking.perform(feature_flags::Retrieve { id: id_of(visit)? }).await
}

/// The id of the flag of the page.
pub(super) fn id_of(visit: &Visit) -> Result<i64, Problem> {
    visit.id().parse().map_err(|_| Problem::not_found("Not found."))
}

/// Changes the flag of the page.
pub(super) async fn changed(visit: &Visit, flag: FlagWrite) -> Result<Flag, Problem> {
    visit.asking.perform(feature_flags::Update { id: id_of(visit)?, flag }).await
}

/// `GET feature_flags/:id?distinct_id=`.
pub async fn one(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, distinct_id) =
        (visit.project(), visit.asking.clone(), visit.parameter("distinct_id"));
    let flag = flag_of(&visit).await?;
    let can_write = asking.may("feature_flag:write") && flag.can_edit;
    let mut content = html! { (shown::one(project, asking.zone, &flag, can_write)) };
    if asking.may("person:read") {
        let trace = match distinct_id.is_empty() {
            true => None,
            false => {
                let question = TestEvaluation::of(distinct_id.clone());
                Some(asking.perform(Test { id: flag.id, question }).await)
            }
        };
        content = html! {
            (content)
            (shown::test_form(&distinct_id))
            @match &trace {
                Some(Ok(trace)) => div class="card" { (shown::trace(trace)) },
                Some(Err(problem)) => (parts::failed(problem.detail())),
                None => {},
            }
        };
    }
    let end = below(&asking, &flag, can_write).await?;
    let key = flag.key;
    let mut page = Page::new(parts::clipped(&key, 120), content);
    if asking.may("query:read") {
        let asking = Arc::clone(&asking);
        page = page.then(async move { Ok(flag_calls::chart(&asking, &key).await) });
    }
    page.end = end;
    Ok(Sent::Page(page))
}

/// The end of the page of a flag: scheduled changes, code to evaluate it, and its history.
async fn below(asking: &Asking, flag: &Flag, can_write: bool) -> Result<Markup, Problem> {
    let (project, zone, id) = (asking.project(), asking.zone, flag.id.to_string());
    let changes = scheduled_changes::List {
        model_name: Some("FeatureFlag".to_owned()),
        record_id: Some(id.clone()),
        page: Part { limit: CHANGES, offset: 0 },
    };
    let changes = asking.perform(changes).await?.rows.into_values();
    let has_variants = !FlagFilters::of(&flag.filters).variants.is_empty();
    let (own, token) = ((flag, can_write), &asking.asker.project.token);
    let place = EntryRange::newest(CHANGES);
    let entries = asking.if_may(OfOne::<StoredFlag> { id, place }).await?;
    Ok(html! {
        (shown::schedule(project, zone, own, &changes))
        (snippets(&flag.key, &asking.server, token, has_variants))
        @if let Some(entries) = entries { (shown::activity(project, zone, own, &entries.into_values())) }
    })
}

/// `POST feature_flags/:id`: turns the flag on or off.
pub async fn switch(mut visit: Visit) -> Result<Sent, Problem> {
    let form = form(visit.take_request()?).await?;
    let active = Some(form.get("active") == "true");
    let flag = changed(&visit, FlagWrite { active, ..FlagWrite::default() }).await?;
    let address = page(visit.project(), &format!("feature_flags/{}", flag.id));
    Ok(Sent::Other(see_other(&address)?))
}

/// `GET early_access_features`.
pub async fn early_access(visit: Visit) -> Result<Sent, Problem> {
    let list = |page| early_access_features::List { page };
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, list, ("features", format)).await;
    }
    let found = visit.asking.perform(list(Part { limit: FLAGS, offset: 0 })).await?;
    let features = found.rows.into_values();
    let content = html! {
        @if visit.asking.may("early_access_feature:write") {
            p class="actions" { a class="button main" href=(page(visit.project(), "early_access_features/new")) { "New feature" } }
        }
        (shown::early_access(visit.project(), &features))
        @if !features.is_empty() { (files::below(&visit.asking, ("early_access_feature/", &[]), None)) }
    };
    Ok(Sent::Page(Page::new("Early access features", content)))
}
