//! Data of a project for pages of insights, as far as the key of the visitor may read it.

use std::sync::Arc;

use chrono_tz::Tz;
use serde_json::Value;

use crate::auth::Principal;
use crate::beside::beside;
use crate::response::Problem;
use crate::routes::store::problem;
use weir_app::App;
use weir_insights::saved::query_of;
use weir_metadata::documents::{Document, DocumentText, Kind};
use weir_metadata::error::MetadataError;
use weir_metadata::snapshot::Snapshot;
use weir_web::insight::form::fields::Suggestions;
use weir_web::insight::saved::Saved;
use weir_web::parts;

/// Most names of events, and of properties, that fields suggest.
const SUGGESTED: u32 = 500;

/// Most saved documents that one page lists.
pub(super) const LISTED: usize = 500;

/// The fields of a document that its row in a list needs.
const READ: [&str; 8] =
    ["name", "derived_name", "short_id", "description", "query", "filters", "favorited", "pinned"];

/// Suggestions of form fields; a list that the key may not read is empty.
pub(in crate::routes::pages) async fn suggestions(
    app: &App,
    asker: &Principal,
) -> Result<Suggestions, Problem> {
    let (project, may) = (asker.project.id, |scope: &str| asker.key.grants(scope));
    let events = match may("event_definition:read") {
        true => app.node.metadata.definitions(project, "", SUGGESTED).await.map_err(problem)?,
        false => Vec::new(),
    };
    let properties = match may("property_definition:read") {
        true => {
            let found = app.node.metadata.property_definitions(project, None, SUGGESTED).await;
            found.map_err(problem)?
        }
        false => Vec::new(),
    };
    let snapshot = app.node.metadata.snapshot();
    let groups = (0_u8..).zip(snapshot.group_types(project).iter().cloned());
    let groups = groups.filter(|_| may("group:read"));
    let mut names: Vec<String> = properties.into_iter().map(|own| own.name).collect();
    names.sort_unstable();
    names.dedup();
    Ok(Suggestions {
        events: events.into_iter().map(|own| own.name).collect(),
        properties: names,
        groups: groups.collect(),
    })
}

/// The saved documents of a kind, newest first; empty if the key may not read them. Their queries are reduced to the
/// parts that lists show.
pub(in crate::routes::pages) async fn saved_of(
    app: &App,
    asker: &Principal,
    kind: Kind,
) -> Result<Vec<Saved>, Problem> {
    let scope = match kind {
        Kind::Action => "action:read",
        Kind::Annotation => "annotation:read",
        Kind::Dashboard => "dashboard:read",
        Kind::Insight => "insight:read",
    };
    if !asker.key.grants(scope) {
        return Ok(Vec::new());
    }
    let (snapshot, mut found) = (app.node.metadata.snapshot(), Vec::new());
    let mut batches = app.node.metadata.document_batches(asker.project.id, kind, "%".to_owned());
    while found.len() < LISTED
        && let Some(some) = batches.next().await.map_err(problem)?
    {
        let snapshot = Arc::clone(&snapshot);
        let read = move || -> Result<Vec<Saved>, Problem> {
            some.iter().map(|one| listed(one, &snapshot).map_err(problem)).collect()
        };
        found.extend(beside(&app.node.cpu, read).await?);
    }
    found.truncate(LISTED);
    Ok(found)
}

/// A stored document in the form for lists.
pub(super) fn listed(one: &DocumentText, snapshot: &Snapshot) -> Result<Saved, MetadataError> {
    Ok(saved(&one.with(&READ.map(Box::from))?, snapshot).outlined())
}

/// A document in the form for its own page.
pub(in crate::routes) fn saved(document: &Document, snapshot: &Snapshot) -> Saved {
    let by = document.created_by.and_then(|id| snapshot.user(id));
    let zone = snapshot.project(document.project).and_then(|own| own.timezone.parse().ok());
    let name = [document.text("name"), document.text("derived_name")];
    Saved {
        id: document.id,
        short_id: document.text("short_id").to_owned(),
        name: name.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned(),
        description: document.text("description").to_owned(),
        query: query_of(&document.fields).ok().flatten().unwrap_or_default(),
        updated_at: parts::local(&document.updated_at.to_rfc3339(), zone.unwrap_or(Tz::UTC)),
        by: by.map_or(String::new(), |user| user.email.clone()),
        is_favourite: ["favorited", "pinned"]
            .iter()
            .any(|name| document.fields.get(*name) == Some(&Value::Bool(true))),
    }
}
