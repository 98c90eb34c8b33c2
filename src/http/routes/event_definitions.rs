//! Event definitions: list, create, retrieve, edit, delete. Most are created by events.

mod body;
pub mod bulk;
mod choice;

use std::collections::HashSet;

use hyper::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::csv;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::page::Page;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::activity;
use crate::http::routes::definition_questions::id;
use crate::http::routes::event_definitions::body::DefinitionBody;
use crate::http::routes::event_definitions::choice::Choice;
use crate::http::routes::query;
use crate::http::routes::store;
use crate::http::routes::store::problem;
use crate::metadata::accounts::UserId;
use crate::metadata::activity::Scope;
use crate::metadata::annotations::NotesPatch;
use crate::metadata::definitions::DefinitionPatch;

/// `GET event_definitions/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let (choice, page) = (Choice::read(&request, app.clock.now())?, Page::of(&request));
    // Definitions are derived from the log, like persons.
    app.engine.wait().await.map_err(query::problem)?;
    let project = asker.project.id;
    let definitions = app.metadata.all_definitions(project).await.map_err(problem)?;
    let notes = app.metadata.annotations(project).await.map_err(problem)?;
    // Filters and sorts thousands of names: too slow for an async thread.
    let chosen = app.cpu.run(move || choice.choose(definitions, notes)).await;
    let mut chosen = chosen.map_err(|error| Problem::of(error.kind(), &error))?;
    let count = chosen.len();
    let snapshot = app.metadata.snapshot();
    let shown = chosen.drain(page.offset.min(count)..).take(page.limit);
    let bodies = shown.map(|(own, notes)| DefinitionBody::new(own, notes, &snapshot)).collect();
    Ok(page.answer(app, &request, rendering, count, bodies))
}

/// `POST event_definitions/`: a definition for future events. `created_at` is the time of the request,
/// and `last_seen_at` is null until such an event arrives, whatever the body contains.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let fields = Fields::read(request).await?;
    fields.require("name")?;
    let patch = patch(fields)?;
    // An event acknowledged before this request has created its definition.
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project, by) = (app.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.create_definition(project, patch, by).await };
    let (own, notes) = store::write(app, "create-event-definition", write).await?;
    let body = DefinitionBody::new(own, notes, &app.metadata.snapshot());
    Ok(Response::json(StatusCode::CREATED, &body))
}

/// `GET event_definitions/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    app.engine.wait().await.map_err(query::problem)?;
    let found = app.metadata.definition(call.asker.project.id, id).await;
    let (own, notes) = found.map_err(problem)?;
    let body = DefinitionBody::new(own, notes, &app.metadata.snapshot());
    Ok(csv::render(StatusCode::OK, call.rendering, &body))
}

/// `GET event_definitions/by_name/?name=`: exact match of the name.
pub async fn by_name(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Some(name) = call.request.query("name").filter(|name| !name.is_empty()) else {
        return Err(refused("name", "required", "This field is required."));
    };
    app.engine.wait().await.map_err(query::problem)?;
    let found = app.metadata.definition_by_name(call.asker.project.id, &name).await;
    let (own, notes) = found.map_err(problem)?;
    let body = DefinitionBody::new(own, notes, &app.metadata.snapshot());
    Ok(csv::render(StatusCode::OK, call.rendering, &body))
}

/// `PATCH event_definitions/:id/`, and `PUT`, which requires no more fields: an absent field keeps its
/// value.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    let Call { asker, request, .. } = call;
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project) = (app.metadata.clone(), asker.project.id);
    // 404 for an unknown definition precedes 400 for a bad body.
    metadata.definition(project, id).await.map_err(problem)?;
    let patch = patch(Fields::read(request).await?)?;
    let by = asker.user.id;
    let write = async move { metadata.update_definition(project, id, patch, by).await };
    let (own, notes) = store::write(app, "update-event-definition", write).await?;
    let body = DefinitionBody::new(own, notes, &app.metadata.snapshot());
    Ok(Response::json(StatusCode::OK, &body))
}

/// `DELETE event_definitions/:id/`. The definition returns when such an event arrives.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (id, project, by) = (id(call.id())?, call.asker.project.id, call.asker.user.id);
    app.engine.wait().await.map_err(query::problem)?;
    let metadata = app.metadata.clone();
    let write = async move { metadata.delete_definition(project, id, by).await };
    store::write(app, "delete-event-definition", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

/// `GET event_definitions/activity/` and `event_definitions/:id/activity/`: changes of definitions by
/// users, also of a deleted one.
pub async fn activity(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let item = match call.parameters.is_empty() {
        true => None,
        false => Some(id(call.id())?.to_string()),
    };
    activity::of_item(app, call, Scope::EventDefinition, item).await
}

/// `GET event_definitions/:id/metrics/`: number of queries that named the event in the last 30 days,
/// today included; see [`usage`](crate::query::usage).
pub async fn metrics(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    app.engine.wait().await.map_err(query::problem)?;
    app.metadata.definition(call.asker.project.id, id).await.map_err(problem)?;
    // Includes the queries just before this request.
    let engine = app.engine.clone();
    store::write(app, "write-usage", async move { engine.write_usage().await }).await?;
    let count = app.metadata.event_usage(id).await.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &json!({"query_usage_30_day": count})))
}

/// `GET event_definitions/primary_properties/`: the property that is displayed with the events of a
/// name, for all names that have one, or for `names`, which may be repeated.
pub async fn primary_properties(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let wanted: HashSet<String> = choice::names_wanted(&call.request);
    app.engine.wait().await.map_err(query::problem)?;
    let mut found =
        app.metadata.primary_properties(call.asker.project.id).await.map_err(problem)?;
    found.retain(|name, _| wanted.is_empty() || wanted.contains(name));
    Ok(Response::json(StatusCode::OK, &json!({"primary_properties": found})))
}

/// Reads a change. The first invalid field is the error.
fn patch(mut fields: Fields) -> Result<DefinitionPatch, Problem> {
    Ok(DefinitionPatch {
        name: fields.text("name")?,
        created_at: fields.time("created_at")?,
        last_seen_at: fields.time("last_seen_at")?,
        tags: fields.texts("tags")?,
        post_to_slack: fields.boolean("post_to_slack")?,
        notes: NotesPatch {
            description: fields.nullable_text("description")?,
            owner: fields.nullable_integer("owner")?.map(|owner| owner.map(UserId)),
            verified: fields.boolean("verified")?,
            hidden: fields.boolean("hidden")?,
            default_columns: fields.texts("default_columns")?,
            primary_property: fields.nullable_text("primary_property")?,
        },
    })
}
