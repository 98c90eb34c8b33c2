//! Changes of persons by operators: set and delete properties. Each is an operation in the log, like
//! a split: it is ordered among the events, survives a crash like an event, and is answered when it
//! has taken effect.

use std::borrow::Cow;
use std::collections::HashSet;

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::call::{Call, Rendering};
use crate::fields::{Fields, refused};
use crate::openapi::{Parameter, by_hand};
use crate::response::{Attr, Problem, Response};
use crate::routes::persons::body::PersonBody;
use crate::routes::store::problem;
use crate::routes::{persons, query};
use crate::{csv, openapi};
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_ingest::activity;
use weir_ingest::operation::{Action, Operation};

pub(crate) const UPDATE: openapi::Description =
    openapi::Description::accepted::<PersonBody>("Set properties").body::<by_hand::PersonPatch>();

/// `PATCH persons/:id/`, and `PUT`, which does the same: sets the properties of the body and keeps
/// all others.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = call.id().to_owned();
    let Call { asker, request, rendering, .. } = call;
    // 404 for an unknown person precedes 400 for a bad body.
    persons::find_one(app, asker.project.id, &id).await?;
    let mut fields = Fields::read(request).await?;
    if fields.peek("properties").is_none_or(Value::is_null) {
        return Err(missing("properties"));
    }
    let set = fields.object("properties")?.unwrap_or_default();
    change(app, &asker, &id, Edit { set, ..Edit::default() }, rendering).await
}

pub(crate) const UPDATE_PROPERTY: openapi::Description =
    openapi::Description::accepted::<PersonBody>("Set one property")
        .query(&[Parameter::text("key"), Parameter::text("value")])
        .optional_body::<by_hand::PropertyWrite>();

/// `POST persons/:id/update_property/` with `key` and `value`, in the body or in the query.
pub async fn update_property(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = call.id().to_owned();
    let Call { asker, request, rendering, .. } = call;
    persons::find_one(app, asker.project.id, &id).await?;
    let text = |name: &str| request.query(name).map(|text| Value::from(text.into_owned()));
    let (key, value) = (text("key"), text("value"));
    let mut fields = Fields::read(request).await?;
    let value = fields.nullable_value("value").flatten().or(value);
    let value = value.ok_or_else(|| missing("value"))?;
    let key = fields.exact_text_if_any("key")?.map(Value::from).or(key);
    let key = key.as_ref().and_then(Value::as_str).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| missing("key"))?.to_owned();
    let set = Map::from_iter([(key, value)]);
    change(app, &asker, &id, Edit { set, ..Edit::default() }, rendering).await
}

pub(crate) const DELETE_PROPERTY: openapi::Description =
    openapi::Description::created::<PersonBody>("Remove one property")
        .query(&[Parameter::text("$unset")])
        .optional_body::<by_hand::PropertyUnset>();

/// `POST persons/:id/delete_property/` with `$unset`, one key, in the body or in the query.
pub async fn delete_property(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = call.id().to_owned();
    let Call { asker, request, rendering, .. } = call;
    persons::find_one(app, asker.project.id, &id).await?;
    let in_query = request.query("$unset").map(Cow::into_owned);
    let mut fields = Fields::read(request).await?;
    let key = fields.exact_text("$unset")?.or(in_query).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| refused("$unset", "required", "This field is required."))?;
    let edit = Edit { unset: vec![key], ..Edit::default() };
    change(app, &asker, &id, edit, rendering).await
}

pub(crate) const RESET_DISTINCT_ID: openapi::Description =
    openapi::Description::empty("202", "Let a distinct id of a deleted person be used again")
        .body::<by_hand::PersonsResetPersonDistinctIdCreateBody>();

/// `POST persons/reset_person_distinct_id/` with `distinct_id`: makes a distinct id usable again
/// after its person was deleted. In Weir it is usable at once; the request is only validated.
pub async fn reset_distinct_id(_app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let mut fields = Fields::read(call.request).await?;
    let given = match fields.peek("distinct_id") {
        Some(Value::String(_)) => fields.exact_text("distinct_id")?,
        _ => None,
    };
    if given.is_none_or(|id| id.is_empty()) {
        let detail = "distinct_id is required";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    Ok(Response::empty(StatusCode::ACCEPTED))
}

/// Logs an operation on `persons` persons, and waits until it has taken effect. Returns the numbers
/// of the persons that it changed. It does not change a person that was merged away or deleted
/// before the operation was logged, or that already has the requested state.
pub(super) async fn operate(
    app: &App,
    asker: &Principal,
    action: Action,
    persons: usize,
) -> Result<HashSet<i64>, Problem> {
    let changed = carry_out(app, asker, action, persons).await?;
    Ok(changed.iter().filter_map(|number| number.parse().ok()).collect())
}

/// As [`operate`], for persons or groups. Returns their items in the activity log.
pub(in crate::routes) async fn carry_out(
    app: &App,
    asker: &Principal,
    action: Action,
    subjects: usize,
) -> Result<HashSet<String>, Problem> {
    let (project, by, at) = (asker.project.id, Some(asker.user.id), app.node.clock.now());
    let operation = Operation { project, at, by, action };
    let pipeline = app.shard.pipeline.clone();
    let operating = app
        .node
        .tasks
        .0
        .detach("operate-on-persons", async move { pipeline.operate(operation).await });
    let done = operating.await.map_err(|error| Problem::of(error.kind(), &error))?;
    let sequence = done.map_err(|error| Problem::of(error.kind(), &error))?;
    app.engine.wait().await.map_err(query::problem)?;
    // Each effect has an activity entry, which is written before it.
    let entries = activity::entry_ids(project, at, sequence, subjects);
    app.node.metadata.items_logged(&entries).await.map_err(problem)
}

/// A person after an operation has changed it: its current state, or the person that it was merged
/// into since.
pub(super) async fn find_again(
    app: &App,
    project: ProjectId,
    person: &Person,
) -> Result<(Person, Vec<String>), Problem> {
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    let survivor = app.shard.identities.overrides().get(project, person.uuid).map_err(failed)?;
    let is_here = app.shard.identities.view().person_by_number(project, person.number);
    let is_here = is_here.map_err(failed)?.is_some();
    match survivor.filter(|_| !is_here) {
        Some(survivor) => persons::find_one(app, project, &survivor.to_string()).await,
        None => persons::find_one(app, project, &person.number.to_string()).await,
    }
}

/// A change of a person's properties.
#[derive(Debug, Default)]
struct Edit {
    set: Map<String, Value>,
    unset: Vec<String>,
}

async fn change(
    app: &App,
    asker: &Principal,
    id: &str,
    Edit { set, unset }: Edit,
    rendering: Rendering,
) -> Result<Response, Problem> {
    let project = asker.project.id;
    let is_removal = !unset.is_empty();
    let (person, _) = persons::find_one(app, project, id).await?;
    let action = Action::ChangePerson { person: person.uuid.to_string(), set, unset };
    let changed = operate(app, asker, action, 1).await?;
    let (person, ids) = match changed.contains(&person.number) {
        true => find_again(app, project, &person).await?,
        // The person already has the requested state, or no longer exists, which is a 404.
        false => persons::find_one(app, project, &person.number.to_string()).await?,
    };
    let body = PersonBody::retrieved(&asker.project, person, ids);
    let (status, body) = match is_removal {
        true => (StatusCode::CREATED, body.succeeded()),
        false => (StatusCode::ACCEPTED, body),
    };
    csv::answer(&app.node.cpu, status, rendering, body).await
}

/// The error format that clients of PostHog expect: code and detail are swapped.
fn missing(name: &'static str) -> Problem {
    Problem::new(Kind::Invalid, "This field is required.", "required")
        .with_attr(Attr::Name(name.into()))
}
