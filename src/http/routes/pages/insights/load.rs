//! What pages of insights need to know of a project.

use chrono_tz::Tz;
use serde_json::Value;

use crate::app::App;
use crate::event::id::ProjectId;
use crate::http::response::Problem;
use crate::http::routes::store::problem;
use crate::insights::saved::query_of;
use crate::metadata::accounts::Project;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;
use crate::metadata::snapshot::Snapshot;
use crate::web::insight::form::fields::Suggestions;
use crate::web::insight::saved::Saved;
use crate::web::parts;

/// Most names of events, and of properties, that fields suggest.
const SUGGESTED: u32 = 500;

/// Most saved documents that one page lists.
pub(super) const LISTED: usize = 500;

/// What the fields of a form suggest.
pub(in crate::http::routes::pages) async fn suggestions(
    app: &App,
    project: &Project,
) -> Result<Suggestions, Problem> {
    let events = app.metadata.definitions(project.id, "", SUGGESTED).await.map_err(problem)?;
    let properties = app.metadata.property_definitions(project.id, None, SUGGESTED);
    let properties = properties.await.map_err(problem)?;
    let snapshot = app.metadata.snapshot();
    let groups =
        (0_u8..).zip(snapshot.group_types(project.id)).map(|(at, name)| (at, name.clone()));
    let mut names: Vec<String> = properties.into_iter().map(|own| own.name).collect();
    names.sort_unstable();
    names.dedup();
    Ok(Suggestions {
        events: events.into_iter().map(|own| own.name).collect(),
        properties: names,
        groups: groups.collect(),
    })
}

/// The saved documents of a kind, newest first.
pub(in crate::http::routes::pages) async fn saved_of(
    app: &App,
    project: ProjectId,
    kind: Kind,
) -> Result<Vec<Saved>, Problem> {
    let (snapshot, mut found) = (app.metadata.snapshot(), Vec::new());
    let visit = |document: Document| {
        if found.len() < LISTED {
            found.push(saved(&document, &snapshot));
        }
    };
    app.metadata.visit_documents(project, kind, visit).await.map_err(problem)?;
    Ok(found)
}

/// A document as lists show it.
pub(super) fn saved(document: &Document, snapshot: &Snapshot) -> Saved {
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
