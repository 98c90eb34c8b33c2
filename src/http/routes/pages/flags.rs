//! Pages of feature flags and early access features.

use std::sync::Arc;

use hyper::Method;
use maud::html;
use serde_json::{Value, json};

use crate::response::Problem;
use crate::routes::pages::visit::{Page, Sent, Visit, form, see_other};
use crate::routes::pages::{files, flag_calls};
use weir_web::pages::flag_form::snippets;
use weir_web::pages::flags as shown;
use weir_web::parts;
use weir_web::parts::{integer, items, page, query, search, text};

/// Flags of a page, and changes of a history.
const FLAGS: usize = 100;
const CHANGES: &str = "20";

/// `GET feature_flags`.
pub async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (wanted, offset, limit) = (visit.parameter("search"), visit.offset(), FLAGS.to_string());
    let own = [("search", &*wanted)];
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, ("feature_flags/", &own), ("flags", format)).await;
    }
    let asked = [("search", &*wanted), ("limit", &limit), ("offset", &offset.to_string())];
    let found = visit.asking.get("feature_flags/", &asked).await?;
    let is_empty = items(&found, "results").is_empty();
    let now = html! {
        @if visit.asking.may("feature_flag:write") {
            p class="actions" { a class="button main" href=(page(visit.project(), "feature_flags/new")) { "New flag" } }
        }
        @if !is_empty || !wanted.is_empty() { (search(visit.project(), "feature_flags", ("Key or description", &wanted), &[])) }
        @if is_empty { (shown::none((visit.project(), &visit.asking.server), !wanted.is_empty())) }
    };
    let asking = Arc::clone(&visit.asking);
    Ok(Sent::Page(Page::new("Feature flags", now).then(async move {
        let flags = items(&found, "results");
        // Flags are shown without the numbers, too.
        let calls = flag_calls::counts(&asking, flags).await;
        let has_next = found.get("next").is_some_and(Value::is_string);
        Ok(html! {
            @if !is_empty { (shown::list(asking.project(), asking.zone, flags, calls.as_ref())) }
            (parts::pager(offset, FLAGS, has_next, |offset| {
                format!("?{}", query(&[("search", &wanted), ("offset", &offset.to_string())]))
            }))
            @if !is_empty { (files::below(&asking, ("feature_flags/", &[("search", &wanted)]), None)) }
        })
    })))
}

/// `GET feature_flags/:id?distinct_id=`.
pub async fn one(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, distinct_id) =
        (visit.project(), visit.asking.clone(), visit.parameter("distinct_id"));
    let path = format!("feature_flags/{}/", parts::part(visit.id()));
    let flag = asking.get(&path, &[]).await?;
    let can_write = asking.may("feature_flag:write") && parts::is_true(&flag, "can_edit");
    let mut content = html! { (shown::one(project, asking.zone, &flag, can_write)) };
    if asking.may("person:read") {
        let trace = match distinct_id.is_empty() {
            true => None,
            false => {
                let body = json!({"distinct_id": distinct_id});
                Some(asking.send(Method::POST, &format!("{path}test_evaluation/"), &body).await)
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
    let id = integer(&flag, "id").unwrap_or_default().to_string();
    let wanted = [("model_name", "FeatureFlag"), ("record_id", &*id), ("limit", CHANGES)];
    let changes = asking.get("scheduled_changes/", &wanted).await?;
    let (own, zone) = ((&flag, can_write), asking.zone);
    let filters = flag.get("filters").unwrap_or(&Value::Null);
    let has_variants =
        filters.get("multivariate").is_some_and(|of| !items(of, "variants").is_empty());
    let token = &asking.asker.project.token;
    let mut rest = html! {
        (shown::schedule(project, zone, own, items(&changes, "results")))
        (snippets(text(&flag, "key"), &asking.server, token, has_variants))
    };
    if asking.may("activity_log:read") {
        let entries = asking.get(&format!("{path}activity/"), &[("limit", CHANGES)]).await?;
        rest = html! { (rest) (shown::activity(project, zone, own, items(&entries, "results"))) };
    }
    let key = text(&flag, "key").to_owned();
    let mut page = Page::new(parts::clipped(&key, 120), content);
    if asking.may("query:read") {
        let asking = Arc::clone(&asking);
        page = page.then(async move { Ok(flag_calls::chart(&asking, &key).await) });
    }
    page.end = rest;
    Ok(Sent::Page(page))
}

/// `POST feature_flags/:id`: turns the flag on or off.
pub async fn switch(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking) = (visit.project(), visit.asking.clone());
    let path = format!("feature_flags/{}/", parts::part(visit.id()));
    let form = form(visit.request).await?;
    let body = json!({"active": form.get("active") == "true"});
    let flag = asking.send(Method::PATCH, &path, &body).await?;
    let id = integer(&flag, "id").unwrap_or_default();
    Ok(Sent::Other(see_other(&page(project, &format!("feature_flags/{id}")))?))
}

/// `GET early_access_features`.
pub async fn early_access(visit: Visit) -> Result<Sent, Problem> {
    let path = ("early_access_feature/", [].as_slice());
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, path, ("features", format)).await;
    }
    let found = visit.asking.get(path.0, &[("limit", &FLAGS.to_string())]).await?;
    let features = items(&found, "results");
    let content = html! {
        @if visit.asking.may("early_access_feature:write") {
            p class="actions" { a class="button main" href=(page(visit.project(), "early_access_features/new")) { "New feature" } }
        }
        (shown::early_access(visit.project(), features))
        @if !features.is_empty() { (files::below(&visit.asking, path, None)) }
    };
    Ok(Sent::Page(Page::new("Early access features", content)))
}
