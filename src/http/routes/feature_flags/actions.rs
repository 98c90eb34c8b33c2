//! Actions on one flag besides editing: dashboards, on and off, dependent flags, versions.

use std::sync::Arc;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::auth;
use crate::auth::Principal;
use crate::call::Call;
use crate::fields::Fields;
use crate::openapi::{Description, INVALID, by_hand};
use crate::response::{Problem, Response};
use crate::routes::feature_flags::status::Calls;
use crate::routes::feature_flags::{change, find, flag_id, shown};
use crate::routes::store::problem;
use crate::routes::{cohorts, query, store};
use weir_app::App;
use weir_evaluation::membership::with_subject;
use weir_flags::cohorts::Memberships;
use weir_flags::set::Selection;
use weir_insights::audience;
use weir_metadata::activity::{Asked, Scope};
use weir_metadata::cohorts::{MEMBERS_MAX, NewCohort};
use weir_metadata::error::MetadataError;
use weir_metadata::flag_rights::NO_EDITOR;
use weir_metadata::flag_rules::dependencies;
use weir_metadata::flags::plain::PlainPatch;
use weir_metadata::flags::{FlagPatch, StoredFlag};

/// Entries of the activity log that the look-up of an old version reads at once.
const HISTORY_PAGE: usize = 20;

pub(crate) const DASHBOARD: Description = Description::ok::<by_hand::Success>(
    "Make the dashboard of a flag's use; needs dashboard:write besides",
)
.says("Whether it was done")
.or(&[("400", "Success")]);

/// `POST feature_flags/:id/dashboard/`.
pub async fn dashboard(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    auth::require(&call.asker.key, "dashboard:write")?;
    let id = flag_id(call.id())?;
    let (project, user) = (call.asker.project.id, call.asker.user.id);
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.create_usage_dashboard(project, user, id).await };
    match store::attempt(app, "create-dashboard", write).await? {
        Ok(_) => Ok(Response::json(StatusCode::OK, &json!({"success": true}))),
        Err(MetadataError::Rejected(_)) => Ok(unsuccessful("Unable to generate usage dashboard")),
        Err(error) => Err(problem(error)),
    }
}

pub(crate) const ENRICH: Description = Description::ok::<by_hand::Success>(
    "Add enriched analytics to the dashboard of a flag; needs dashboard:write besides",
)
.says("Whether it was done")
.or(&[("400", "Success")]);

/// `POST feature_flags/:id/enrich_usage_dashboard/`.
pub async fn enrich(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    auth::require(&call.asker.key, "dashboard:write")?;
    let id = flag_id(call.id())?;
    let (project, user) = (call.asker.project.id, call.asker.user.id);
    let metadata = app.node.metadata.clone();
    let write = async move { metadata.enrich_usage_dashboard(project, user, id).await };
    match store::attempt(app, "enrich-dashboard", write).await? {
        Ok(()) => Ok(Response::json(StatusCode::OK, &json!({"success": true}))),
        Err(MetadataError::Rejected(violation)) => Ok(unsuccessful(&violation.detail)),
        Err(error) => Err(problem(error)),
    }
}

pub(super) fn unsuccessful(error: &str) -> Response {
    Response::json(StatusCode::BAD_REQUEST, &json!({"success": false, "error": error}))
}

pub(crate) const SWITCH: Description =
    Description::ok::<by_hand::Flag>("Switch a flag on").or(&[("400", "NotSwitched")]);

pub(crate) const DISABLE: Description =
    Description::ok::<by_hand::Flag>("Switch a flag off").or(&[("400", "NotSwitched")]);

pub(crate) const ARCHIVE: Description =
    Description::ok::<by_hand::Flag>("Archive a flag").or(&[("400", "NotSwitched")]);

pub(crate) const UNARCHIVE: Description =
    Description::ok::<by_hand::Flag>("Take a flag out of the archive")
        .or(&[("400", "NotSwitched")]);

/// `POST feature_flags/:id/enable/`, `disable/`, `archive/`, `unarchive/`: the last segment is the
/// action. A flag that already has the state is not written.
pub async fn switch(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = find(app, call.asker.project.id, call.id()).await?;
    let Call { asker, request, .. } = call;
    if !app.node.metadata.snapshot().may_edit(&asker.user, &flag) {
        return Err(problem(MetadataError::Forbidden(NO_EDITOR)));
    }
    let word = request.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let none = FlagPatch::default;
    let archived = |archived| PlainPatch { archived: Some(archived), ..PlainPatch::default() };
    let (doing, is_done, patch) = match word {
        "enable" => ("enabling", flag.active, FlagPatch { active: Some(true), ..none() }),
        "disable" => ("disabling", !flag.active, FlagPatch { active: Some(false), ..none() }),
        "archive" => {
            let patch = FlagPatch { plain: archived(true), active: Some(false), ..none() };
            ("archiving", flag.plain.archived, patch)
        }
        _ => {
            let patch = FlagPatch { plain: archived(false), ..none() };
            ("unarchiving", !flag.plain.archived, patch)
        }
    };
    if flag.deleted {
        let error = format!("This feature flag has been deleted. Restore it before {doing} it.");
        return Ok(unsuccessful(&error));
    }
    let calls = Calls::of_flag(app, flag.id).await?;
    let flag = if is_done { flag } else { change(app, &asker, flag.id, patch).await? };
    Ok(shown(app, StatusCode::OK, &flag, &asker, &calls))
}

/// The cohort of those for whom a flag is on, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "CohortOfFlag")]
struct NewCohortBody {
    cohort: weir_api::cohorts::Cohort,
}

/// A flag among others, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "FlagKey")]
struct FlagKeyBody<'a> {
    id: i64,
    key: &'a str,
    name: &'a str,
}

pub(crate) const DEPENDENTS: Description =
    Description::ok::<Vec<FlagKeyBody<'static>>>("Flags whose conditions ask for this one");

/// `GET feature_flags/:id/dependent_flags/`: flags that are on and have a condition on this one.
pub async fn dependents(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let project = call.asker.project.id;
    let id = find(app, project, call.id()).await?.id;
    let flags = snapshot.flags(project).iter();
    let needs = |flag: &&Arc<StoredFlag>| {
        flag.active && dependencies::of(&flag.filters).any(|needed| needed == id)
    };
    let mut dependents: Vec<&Arc<StoredFlag>> = flags.filter(needs).collect();
    dependents.sort_by(|a, b| a.key.cmp(&b.key));
    let bodies = dependents.iter().map(|flag| {
        let name = if flag.name.is_empty() { &flag.key } else { &flag.name };
        FlagKeyBody { id: flag.id.0, key: &flag.key, name }
    });
    Ok(Response::json(StatusCode::OK, &bodies.collect::<Vec<_>>()))
}

pub(crate) const VERSION: Description = Description::ok::<by_hand::FlagVersion>("A flag as it was");

/// `GET feature_flags/:id/versions/:n/`: the flag at that version, from the activity log.
pub async fn version(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = find(app, call.asker.project.id, call.id()).await?;
    let version = call.second_id();
    let fields = at_version(app, &flag, version).await?;
    let mut body = Map::from_iter([
        ("id".to_owned(), flag.id.0.into()),
        ("version".to_owned(), version.parse::<i64>().unwrap_or(0).into()),
        ("current_version".to_owned(), flag.version.into()),
    ]);
    body.extend(fields);
    Ok(Response::json(StatusCode::OK, &body))
}

pub(crate) const REVERT: Description =
    Description::ok::<by_hand::Flag>("Make a flag again what it was").or(&[INVALID]);

/// `POST feature_flags/:id/versions/:n/revert/`: restores the flag of that version, as a new version.
pub async fn revert(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let flag = find(app, call.asker.project.id, call.id()).await?;
    let mut fields = at_version(app, &flag, call.second_id()).await?;
    // Fields set by the server, and fields that only grow, keep their value.
    for name in ["usage_dashboard", "performed_rollback", "analytics_dashboards"] {
        fields.remove(name);
    }
    let fields = Fields::parse("application/json", Value::Object(fields).to_string().as_bytes())?;
    let mut patch = super::body::flag_patch(fields, super::body::Required::Nothing)?;
    patch.replaces_filters = true;
    let calls = Calls::of_flag(app, flag.id).await?;
    let flag = change(app, &call.asker, flag.id, patch).await?;
    Ok(shown(app, StatusCode::OK, &flag, &call.asker, &calls))
}

/// The fields of a flag at a version: the current ones, with every later change undone.
async fn at_version(
    app: &App,
    flag: &StoredFlag,
    version: &str,
) -> Result<Map<String, Value>, Problem> {
    let not_found = || Problem::not_found("Not found.");
    let wanted = version.parse::<i64>().map_err(|_| not_found())?;
    if !(1..=flag.version).contains(&wanted) {
        return Err(not_found());
    }
    let (mut fields, mut at, mut offset) = (flag.logged(), flag.version, 0);
    let asked =
        Asked { scopes: vec![Scope::FeatureFlag], item: Some(flag.id.to_string()), user: None };
    while at > wanted {
        let page = app.node.metadata.activity(flag.project, &asked, HISTORY_PAGE, offset).await;
        let page = page.map_err(problem)?;
        if page.entries.is_empty() {
            return Err(not_found());
        }
        offset += page.entries.len();
        for entry in page.entries {
            let all = entry.detail.get("changes").and_then(Value::as_array);
            let all = all.map_or(&[][..], Vec::as_slice);
            let is_of_flag = |change: &&Value| {
                change.get("field").and_then(Value::as_str) != Some("role_access")
            };
            let changes: Vec<&Value> = all.iter().filter(is_of_flag).collect();
            // A change of rights does not create a version.
            let is_version = entry.activity == "updated" && (!changes.is_empty() || all.is_empty());
            if !is_version || at == wanted {
                continue;
            }
            for change in changes {
                if let Some(name) = change.get("field").and_then(Value::as_str) {
                    let before = change.get("before").cloned().unwrap_or_default();
                    fields.insert(name.to_owned(), before);
                }
            }
            at -= 1;
        }
    }
    Ok(fields)
}

pub(crate) const STATIC_COHORT: Description = Description::created::<NewCohortBody>(
    "Make a list of those for whom the flag is on; needs cohort:write besides",
)
.or(&[INVALID]);

/// `POST feature_flags/:id/create_static_cohort_for_flag/`: a static cohort of the persons for whom the
/// flag is on.
pub async fn static_cohort(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    auth::require(&call.asker.key, "cohort:write")?;
    let project = call.asker.project.id;
    let flag = find(app, project, call.id()).await?;
    let flags = snapshot.flag_set(project).cloned().unwrap_or_default();
    let set = snapshot.cohort_set(project).cloned().unwrap_or_default();
    let (at, key) = (app.node.clock.now(), flag.key.clone());
    let now = snapshot.now(project, at);
    let members = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let found = Arc::clone(&members);
    let visited = audience::visit_persons(&app.engine, project, move |view, person| {
        let keys = [key.clone()];
        let selection = Selection { keys: Some(&keys), ..Selection::default() };
        // Persons are hashed by their first distinct id, as in PostHog.
        let ids = view.distinct_ids(project, person.uuid).unwrap_or_default();
        let first = ids.into_iter().next().unwrap_or_default();
        let is_on = with_subject(view, project, person, first, now, |subject, uuids| {
            let answers = flags.evaluate(subject, &selection, &Memberships::new(&set, uuids));
            answers.flags.iter().any(|a| a.result.as_ref().is_ok_and(|verdict| verdict.enabled))
        });
        let mut members = found.lock();
        if is_on && members.len() <= MEMBERS_MAX {
            members.push(person.uuid);
        }
    });
    visited.await.map_err(query::problem)?;
    let members = std::mem::take(&mut *members.lock());
    let new = NewCohort {
        name: format!("Users with feature flag {} enabled at {}", flag.key, at.to_rfc3339()),
        is_static: true,
        members,
        ..NewCohort::default()
    };
    let cohort = cohorts::add(app, project, call.asker.user.id, new).await?.map_err(problem)?;
    let snapshot = app.node.metadata.snapshot();
    let body = NewCohortBody { cohort: cohorts::shown(&cohort, &snapshot) };
    Ok(Response::json(StatusCode::CREATED, &body))
}
