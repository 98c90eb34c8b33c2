//! Event definitions: list, create, retrieve, edit, delete. Most are created by events.

mod body;
pub mod bulk;
mod choice;

use std::collections::{BTreeMap, HashSet};

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Principal;
use crate::beside::beside;
use crate::body::body;
use crate::call::Call;
use crate::csv;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, INVALID, Parameter};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::definition_parameters::id;
use crate::routes::event_definitions::body::DefinitionBody;
use crate::routes::event_definitions::choice::Choice;
use crate::routes::store::problem;
use crate::routes::{activity, query, store};
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_metadata::accounts::UserId;
use weir_metadata::activity::Scope;
use weir_metadata::annotations::NotesPatch;
use weir_metadata::definitions::DefinitionPatch;

pub(crate) const LIST: Description = Description::page::<DefinitionBody>("Events that were seen")
    .query(&[
        Parameter::shared("search"),
        Parameter::one_of(
            "event_type",
            &["event", "all", "action_event", "event_custom", "event_posthog"],
        ),
        Parameter::text("ordering")
            .about("Such as name or -last_seen_at; several with commas, or several times"),
        Parameter::boolean("exclude_hidden"),
        Parameter::boolean("exclude_stale").about("Leave out what was last seen over 30 days ago"),
        Parameter::boolean("verified"),
        Parameter::text("names").about("These alone; several with commas, or several times"),
        Parameter::text("excluded_properties").about("A JSON list of names"),
        Parameter::text("tags").about("A JSON list"),
    ])
    .or(&[INVALID]);

/// `GET event_definitions/`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, rendering, request, .. } = call;
    let (choice, page) = (Choice::read(&request, app.node.clock.now())?, Page::of(&request));
    // Definitions are derived from the log, like persons.
    app.engine.wait().await.map_err(query::problem)?;
    let project = asker.project.id;
    let definitions = app.node.metadata.all_definitions(project).await.map_err(problem)?;
    let notes = app.node.metadata.annotations(project).await.map_err(problem)?;
    // Filters and sorts thousands of names: too slow for an async thread.
    let mut chosen = beside(&app.node.cpu, move || Ok(choice.choose(definitions, notes))).await?;
    let count = chosen.len();
    let snapshot = app.node.metadata.snapshot();
    let shown = chosen.drain(page.offset.min(count)..).take(page.limit);
    let bodies = shown.map(|(own, notes)| DefinitionBody::new(own, notes, &snapshot)).collect();
    page.answer(app, &request, rendering, (count, bodies)).await
}

pub(crate) const CREATE: Description =
    Description::created::<DefinitionBody>("Define events that are still to come")
        .optional_body::<EventDefinitionWrite>()
        .requires(&["name"]);

/// `POST event_definitions/`: a definition for future events. `created_at` is the time of the request,
/// and `last_seen_at` is null until such an event arrives, whatever the body contains.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let fields = Fields::read(request).await?;
    fields.require("name")?;
    let patch = patch(fields)?;
    // An event acknowledged before this request has created its definition.
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project, by) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.create_definition(project, patch, by).await };
    let (own, notes) = store::write(app, "create-event-definition", write).await?;
    let body = DefinitionBody::new(own, notes, &app.node.metadata.snapshot());
    Ok(Response::json(StatusCode::CREATED, &body))
}

pub(crate) const RETRIEVE: Description = Description::ok::<DefinitionBody>("One definition");

/// `GET event_definitions/:id/`.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    app.engine.wait().await.map_err(query::problem)?;
    let found = app.node.metadata.definition(call.asker.project.id, id).await;
    let (own, notes) = found.map_err(problem)?;
    let body = DefinitionBody::new(own, notes, &app.node.metadata.snapshot());
    csv::answer(&app.node.cpu, StatusCode::OK, call.rendering, body).await
}

pub(crate) const BY_NAME: Description =
    Description::ok::<DefinitionBody>("The definition of a name")
        .query(&[Parameter::text("name").required()])
        .or(&[INVALID]);

/// `GET event_definitions/by_name/?name=`: exact match of the name.
pub async fn by_name(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Some(name) = call.request.query("name").filter(|name| !name.is_empty()) else {
        return Err(refused("name", "required", "This field is required."));
    };
    app.engine.wait().await.map_err(query::problem)?;
    let found = app.node.metadata.definition_by_name(call.asker.project.id, &name).await;
    let (own, notes) = found.map_err(problem)?;
    let body = DefinitionBody::new(own, notes, &app.node.metadata.snapshot());
    csv::answer(&app.node.cpu, StatusCode::OK, call.rendering, body).await
}

pub(crate) const UPDATE: Description = Description::ok::<DefinitionBody>("Change a definition")
    .optional_body::<EventDefinitionWrite>();

/// `PATCH event_definitions/:id/`, and `PUT`, which requires no more fields: an absent field keeps its
/// value, and so does a time that is null, as that of an event that nobody sent yet.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    let Call { asker, request, .. } = call;
    app.engine.wait().await.map_err(query::problem)?;
    let (metadata, project) = (app.node.metadata.clone(), asker.project.id);
    // 404 for an unknown definition precedes 400 for a bad body.
    metadata.definition(project, id).await.map_err(problem)?;
    let patch = patch(Fields::read(request).await?)?;
    let by = asker.user.id;
    let write = async move { metadata.update_definition(project, id, patch, by).await };
    let (own, notes) = store::write(app, "update-event-definition", write).await?;
    let body = DefinitionBody::new(own, notes, &app.node.metadata.snapshot());
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const DELETE: Description =
    Description::empty("204", "Forget a definition, until such an event arrives");

/// `DELETE event_definitions/:id/`. The definition returns when such an event arrives.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let (id, project, by) = (id(call.id())?, call.asker.project.id, call.asker.user.id);
    app.engine.wait().await.map_err(query::problem)?;
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.delete_definition(project, id, by).await };
    store::write(app, "delete-event-definition", write).await?;
    Ok(Response::empty(StatusCode::NO_CONTENT))
}

pub(crate) const ACTIVITY: Description =
    Description::activity("What was changed of definitions of events");

pub(crate) const ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of a definition, also of one that is gone");

/// `GET event_definitions/activity/` and `event_definitions/:id/activity/`: changes of definitions by
/// users, also of a deleted one.
pub async fn activity(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let item = match call.parameters.is_empty() {
        true => None,
        false => Some(id(call.id())?.to_string()),
    };
    activity::of_call(app, call, Scope::EventDefinition, item).await
}

pub(crate) const METRICS: Description =
    Description::ok::<EventMetrics>("How many questions named the event in the last 30 days");

/// `GET event_definitions/:id/metrics/`: number of queries that named the event in the last 30 days,
/// today included; see [`usage`](weir_query::kernel::usage).
pub async fn metrics(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = id(call.id())?;
    app.engine.wait().await.map_err(query::problem)?;
    app.node.metadata.definition(call.asker.project.id, id).await.map_err(problem)?;
    // Includes the queries just before this request.
    let engine = app.engine.clone();
    store::write(app, "write-usage", async move { engine.write_usage().await }).await?;
    let query_usage_30_day = app.node.metadata.event_usage(id).await.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &EventMetrics { query_usage_30_day }))
}

pub(crate) const PRIMARY_PROPERTIES: Description = Description::ok::<PrimaryProperties>(
    "The property that is shown beside events, by the name of the events",
)
.says("Those that have one")
.query(&[Parameter::text("names").about("Names of events; may come several times")]);

/// `GET event_definitions/primary_properties/`: the property that is displayed with the events of a
/// name, for all names that have one, or for `names`, which may be repeated.
pub async fn primary_properties(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let wanted: HashSet<String> = choice::names_wanted(&call.request);
    app.engine.wait().await.map_err(query::problem)?;
    let mut primary_properties =
        app.node.metadata.primary_properties(call.asker.project.id).await.map_err(problem)?;
    primary_properties.retain(|name, _| wanted.is_empty() || wanted.contains(name));
    Ok(Response::json(StatusCode::OK, &PrimaryProperties { primary_properties }))
}

body! {
    /// A new definition of an event, or a change of one.
    struct EventDefinitionWrite {
        name: Option<String>,
        created_at: Option<Option<UnixMicros>>,
        last_seen_at: Option<Option<UnixMicros>>,
        tags: Option<Vec<String>>,
        post_to_slack: Option<bool>,
        description: Option<Option<String>>,
        owner: Option<Option<i64>>,
        verified: Option<bool>,
        hidden: Option<bool>,
        default_columns: Option<Vec<String>>,
        primary_property: Option<Option<String>> = {"maxLength": 400},
    }
}

/// How often an event was asked for, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
struct EventMetrics {
    query_usage_30_day: u64,
}

/// The properties that are shown beside events, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
struct PrimaryProperties {
    primary_properties: BTreeMap<String, String>,
}

/// Reads a change. The first invalid field is the error.
fn patch(mut fields: Fields) -> Result<DefinitionPatch, Problem> {
    let sent = EventDefinitionWrite::read(&mut fields)?;
    Ok(DefinitionPatch {
        name: sent.name,
        created_at: sent.created_at.flatten(),
        last_seen_at: sent.last_seen_at.flatten(),
        tags: sent.tags,
        post_to_slack: sent.post_to_slack,
        notes: NotesPatch {
            description: sent.description,
            owner: sent.owner.map(|owner| owner.map(UserId)),
            verified: sent.verified,
            hidden: sent.hidden,
            default_columns: sent.default_columns,
            primary_property: sent.primary_property,
        },
    })
}
