//! Cohort management: list, create, retrieve, change, members. `metadata` validates rules, `flags` evaluates
//! membership.
//!
//! The size of a cohort with a rule is counted after each change, in the background, and at intervals
//! (`maintenance`); later responses contain it. A cohort is deleted by setting `deleted`; DELETE is refused.

mod body;
mod upload;

use std::collections::BTreeSet;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use uuid::Uuid;

use crate::auth;
use crate::auth::Principal;
use crate::beside::beside;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, Parameter, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
pub(in crate::routes) use crate::routes::cohorts::body::CohortBody;
use crate::routes::cohorts::body::MemberBody;
use crate::routes::store::problem;
use crate::routes::{activity, feature_flags, query, store};
use crate::rows::{Added, LONG_PAGE_MAX_BYTES, Rows};
use weir_app::App;
use weir_base::error::Kind;
use weir_evaluation::membership;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_insights::audience;
use weir_metadata::accounts::UserId;
use weir_metadata::activity::Scope;
use weir_metadata::cohorts::{CohortId, CohortPatch, NewCohort, StoredCohort};
use weir_metadata::error::MetadataError;
use weir_query::persons::people::InCohort;

pub(crate) const LIST: Description =
    Description::page::<CohortBody<'static>>("Cohorts that are not deleted, newest first")
        .query(&[Parameter::shared("search"), Parameter::one_of("type", &["static", "dynamic"])]);

/// `GET cohorts/`: cohorts that are not deleted, newest first. `search` filters by name, `type` by `static`
/// or `dynamic`.
pub async fn list(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let search = request.query("search").unwrap_or_default().to_lowercase();
    let kind = request.query("type");
    let is_asked = |cohort: &StoredCohort| {
        let kind = kind.as_deref().is_none_or(|kind| (kind == "static") == cohort.is_static);
        kind && cohort.name.to_lowercase().contains(&search)
    };
    let found: Vec<_> =
        snapshot.cohorts(asker.project.id).iter().filter(|cohort| is_asked(cohort)).collect();
    let page = Page::of(&request);
    let shown = found.iter().skip(page.offset).take(page.limit);
    let (count, shown) = (found.len(), shown.map(|own| Arc::clone(own)).collect::<Vec<_>>());
    let users = Arc::clone(&snapshot);
    let write = move |rows: &mut Rows| {
        rows.add_all(shown.iter().map(|cohort| CohortBody::new(cohort, &users)))
    };
    page.written(app, &request, (count, Rows::new(&request.memory())), write).await
}

pub(crate) const CREATE: Description = Description::created::<CohortBody<'static>>(
    "Make a cohort; the persons of a static one may also be a file `csv` of a multipart form",
)
.optional_body::<by_hand::CohortWrite>()
.requires(&["name"]);

/// `POST cohorts/`. A static cohort may have initial members, as uuids of persons or as distinct ids.
pub async fn create(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let (mut fields, csv) = upload::read(app, request).await?;
    fields.require("name")?;
    let patch = body::patch(&mut fields)?;
    let is_static = fields.boolean("is_static")?.unwrap_or_default();
    let listed = body::members(&mut fields)?;
    let mut members = persons(app, asker.project.id, &listed).await?;
    if let Some(csv) = csv {
        require_static(is_static)?;
        members.extend(upload::persons(app, asker.project.id, csv).await?);
    }
    let new = NewCohort {
        name: patch.name.unwrap_or_default(),
        description: patch.description.unwrap_or_default(),
        filters: patch.filters,
        is_static,
        members,
    };
    let cohort = add(app, asker.project.id, asker.user.id, new).await?.map_err(problem)?;
    Ok(Response::json(StatusCode::CREATED, &CohortBody::new(&cohort, &snapshot)))
}

/// Stores a new cohort and starts its count. The caller maps errors of the store.
pub(super) async fn add(
    app: &App,
    project: ProjectId,
    user: UserId,
    new: NewCohort,
) -> Result<Result<Arc<StoredCohort>, MetadataError>, Problem> {
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.create_cohort(project, user, new).await };
    let cohort = store::attempt(app, "create-cohort", write).await?;
    if let Ok(cohort) = &cohort {
        begin_count(app, cohort);
    }
    Ok(cohort)
}

pub(crate) const RETRIEVE: Description = Description::ok::<CohortBody<'static>>("One cohort");

/// `GET cohorts/:id/`, also for a deleted cohort.
pub async fn retrieve(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let (project, id) = (call.asker.project.id, cohort_id(call.id())?);
    let cohort = app.node.metadata.cohort(project, id).await.map_err(problem)?;
    Ok(Response::json(StatusCode::OK, &CohortBody::new(&cohort, &snapshot)))
}

pub(crate) const UPDATE: Description = Description::ok::<CohortBody<'static>>(
    "Change a cohort; a file `csv` of a multipart form adds its persons to a static one",
)
.optional_body::<by_hand::CohortWrite>()
.requires(&["name"]);

/// `PATCH cohorts/:id/`, and `PUT`, which requires the name.
pub async fn update(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let id = cohort_id(call.id())?;
    let Call { asker, request, .. } = call;
    let before = app.node.metadata.cohort(asker.project.id, id).await.map_err(problem)?;
    let is_put = request.method == Method::PUT;
    let (mut fields, csv) = upload::read(app, request).await?;
    if is_put {
        fields.require("name")?;
    }
    let patch = body::patch(&mut fields)?;
    let is_another_rule = patch.filters.is_some() || patch.deleted == Some(false);
    let added = match csv {
        Some(csv) => {
            require_static(before.is_static)?;
            Some(upload::persons(app, asker.project.id, csv).await?)
        }
        None => None,
    };
    let mut cohort = change(app, &asker, id, patch).await?;
    if let Some(added) = added.filter(|_| !cohort.deleted) {
        let (metadata, project, user) =
            (app.node.metadata.clone(), asker.project.id, asker.user.id);
        let write = async move { metadata.change_members((project, user), id, &added, &[]).await };
        cohort = store::write(app, "change-members", write).await?;
    }
    if is_another_rule {
        begin_count(app, &cohort);
    }
    Ok(Response::json(StatusCode::OK, &CohortBody::new(&cohort, &snapshot)))
}

/// Checks that a cohort takes a file with a list of persons.
fn require_static(is_static: bool) -> Result<(), Problem> {
    if is_static {
        return Ok(());
    }
    let detail = "Only a static cohort takes a list of persons; send is_static.";
    Err(refused("csv", "invalid_input", detail))
}

async fn change(
    app: &App,
    asker: &Principal,
    id: CohortId,
    patch: CohortPatch,
) -> Result<Arc<StoredCohort>, Problem> {
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.update_cohort(project, user, id, patch).await };
    store::write(app, "update-cohort", write).await
}

pub(crate) const DELETE: Description = Description::refused("Refused", &[("405", "DeleteRefused")]);

/// `DELETE cohorts/:id/`: refused without a body, as for flags.
pub async fn delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    feature_flags::delete(app, call).await
}

pub(crate) const CHANGE_MEMBERS: Description =
    Description::ok::<by_hand::AnyObject>("Add members to a list").body::<by_hand::CohortMembers>();

pub(crate) const REMOVE_PERSON_FROM_STATIC_COHORT: Description =
    Description::ok::<by_hand::AnyObject>("Remove members from a list")
        .body::<by_hand::CohortMembers>();

/// `PATCH` or `POST cohorts/:id/add_persons_to_static_cohort/` with `person_ids` (uuids) or
/// `distinct_ids`, and `remove_person_from_static_cohort/` with `person_id`.
pub async fn change_members(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let id = cohort_id(call.id())?;
    let Call { asker, request, .. } = call;
    let (project, user) = (asker.project.id, asker.user.id);
    let is_removal = request.path().contains("/remove_person");
    let mut fields = Fields::read(request).await?;
    let listed = body::members(&mut fields)?;
    if listed.is_empty() {
        let detail = if is_removal { "person_id is required" } else { "person_ids is required" };
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    let persons = persons(app, project, &listed).await?;
    let metadata = app.node.metadata.clone();
    let write = async move {
        match is_removal {
            true => metadata.change_members((project, user), id, &[], &persons).await,
            false => metadata.change_members((project, user), id, &persons, &[]).await,
        }
    };
    store::write(app, "change-members", write).await?;
    Ok(Response::json(StatusCode::OK, &json!({})))
}

pub(crate) const MEMBERS: Description =
    Description::page::<MemberBody>("Members; needs person:read besides");

/// `GET cohorts/:id/persons/`: one page of the members, found by a scan. Who they are is told to those who may see persons.
pub async fn members(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    auth::require(&call.asker.key, "person:read")?;
    let snapshot = app.node.metadata.snapshot();
    let id = cohort_id(call.id())?;
    let Call { asker, request, .. } = call;
    let project = asker.project.id;
    snapshot.cohort(project, id).ok_or_else(|| Problem::not_found("Not found."))?;
    let page = Page::of(&request);
    let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
    let is_inside =
        membership::membership(set, project, id, snapshot.now(project, app.node.clock.now()));
    let rows = Rows::within(&request.memory(), LONG_PAGE_MAX_BYTES);
    let collector = Arc::new(Mutex::new((0, Ok((rows, Added::Yes)))));
    let collected = Arc::clone(&collector);
    let visited = audience::visit_persons(&app.engine, project, move |view, person| {
        if !is_inside(view, person) {
            return;
        }
        let mut collected = collected.lock();
        let place = collected.0;
        collected.0 += 1;
        if place >= page.offset
            && place - page.offset < page.limit
            && let Ok((rows, added @ Added::Yes)) = &mut collected.1
        {
            let ids = view.distinct_ids(project, person.uuid).unwrap_or_default();
            match rows.add(&MemberBody::new(person, ids)) {
                Ok(now) => *added = now,
                Err(problem) => collected.1 = Err(problem),
            }
        }
    });
    visited.await.map_err(query::problem)?;
    let none = (0, Err(Problem::not_found("Not found.")));
    let (count, rows) = std::mem::replace(&mut *collector.lock(), none);
    page.finished(app, &request, count, rows?.0)
}

/// Tests membership in the current cohorts, as flags evaluate it. An unknown cohort has no members.
pub(super) fn memberships(app: &App, project: ProjectId) -> InCohort {
    let snapshot = app.node.metadata.snapshot();
    let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
    Box::new(membership::memberships(set, project, snapshot.now(project, app.node.clock.now())))
}

pub(crate) const ACTIVITY: Description = Description::activity("What was changed of cohorts");

pub(crate) const ACTIVITY_OF_ONE: Description =
    Description::activity("What was changed of a cohort");

/// `GET cohorts/:id/activity/`; without an id, of all cohorts.
pub async fn activity(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    if !call.parameters.is_empty() {
        let (project, id) = (call.asker.project.id, cohort_id(call.id())?);
        app.node.metadata.cohort(project, id).await.map_err(problem)?;
    }
    activity::of_scope(app, call, Scope::Cohort).await
}

/// Counts the members of a cohort with a rule in the background.
fn begin_count(app: &App, cohort: &StoredCohort) {
    let (project, id) = (cohort.project, cohort.id);
    if cohort.is_static || cohort.deleted {
        return;
    }
    let engine = app.engine.clone();
    app.node.tasks.0.spawn("count-cohort", async move {
        if let Err(error) = weir_insights::cohorts::recount(&engine, project, id).await {
            tracing::warn!(cohort = id.0, %error, "the size of a cohort was not noted");
        }
    });
}

/// The uuids of the persons that a request names by uuid or distinct id. Unknown persons are ignored.
async fn persons(
    app: &App,
    project: ProjectId,
    listed: &body::Listed,
) -> Result<Vec<Uuid>, Problem> {
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    app.engine.wait().await.map_err(query::problem)?;
    let view = app.shard.identities.view();
    let uuids: BTreeSet<Uuid> = listed.uuids.iter().copied().collect();
    let distinct_ids: BTreeSet<String> = listed.distinct_ids.iter().cloned().collect();
    let look_up = move || -> Result<Vec<Uuid>, IdentityError> {
        let mut persons = BTreeSet::new();
        for uuid in uuids {
            persons.extend(view.person_by_uuid(project, uuid)?.map(|person| person.uuid));
        }
        for distinct_id in distinct_ids {
            persons.extend(view.person_of(project, &distinct_id)?.map(|person| person.uuid));
        }
        Ok(persons.into_iter().collect())
    };
    let failed = |error: IdentityError| Problem::of(error.kind(), &error);
    beside(&app.node.cpu, move || look_up().map_err(failed)).await
}

fn cohort_id(text: &str) -> Result<CohortId, Problem> {
    text.parse().map(CohortId).map_err(|_| Problem::not_found("Not found."))
}
