//! One flag in several projects of an organization: copied, and looked up by key.

use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::event::id::ProjectId;
use crate::http::auth::Asker;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::feature_flags::body::FlagBody;
use crate::http::routes::roles;
use crate::http::routes::store;
use crate::http::routes::store::problem;
use crate::http::routes::user_body::UserBody;
use crate::metadata::MetadataError;
use crate::metadata::flags::FlagPatch;
use crate::metadata::flags::NewFlag;
use crate::metadata::flags::StoredFlag;
use crate::metadata::snapshot::Snapshot;

/// Projects that one request may copy to; PostHog's number.
const TARGETS_MAX: usize = 50;

/// `POST /api/organizations/:organization/feature_flags/copy_flags/`: a flag of the same key in a
/// target is overwritten. Cohorts and other flags that the conditions ask for are not copied; a target
/// that has none of these ids refuses the flag.
pub async fn copy(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = roles::member(&snapshot, &call)?;
    let mut fields = Fields::read(call.request).await?;
    let key = fields.text("feature_flag_key")?.filter(|key| !key.is_empty());
    let from = fields.nullable_value("from_project").flatten();
    let from = from.as_ref().and_then(project_id);
    let targets = fields.nullable_value("target_project_ids").flatten();
    let is_disabled = fields.boolean("disable_copied_flag")?.unwrap_or_default();
    let targets = targets.as_ref().and_then(Value::as_array).filter(|ids| !ids.is_empty());
    let (Some(key), Some(from), Some(targets)) = (key, from, targets) else {
        return Ok(refused("Missing required fields"));
    };
    if targets.len() > TARGETS_MAX {
        return Ok(refused("A flag is copied to at most 50 projects at once."));
    }
    let is_own = |project: ProjectId| {
        let project = snapshot.project(project);
        project.is_some_and(|project| project.organization == asker.user.organization)
    };
    let source = snapshot.flags(from).iter().find(|flag| flag.key == key && is_own(from));
    let Some(source) = source else {
        return Ok(refused("Feature flag to copy does not exist."));
    };
    let (mut success, mut failed) = (Vec::new(), Vec::new());
    for target in targets {
        let project = project_id(target).filter(|project| is_own(*project));
        let copied = match project {
            Some(project) => copy_to(app, &asker, source, project, is_disabled).await?,
            None => Err("Project not found.".to_owned()),
        };
        match copied {
            Ok(flag) => {
                let body = serde_json::to_value(FlagBody::new(&flag, &snapshot, &asker));
                success.push(body.unwrap_or_default());
            }
            Err(message) => failed.push(json!({"project_id": target, "error_message": message})),
        }
    }
    Ok(Response::json(StatusCode::OK, &json!({"success": success, "failed": failed})))
}

fn refused(error: &str) -> Response {
    Response::json(StatusCode::BAD_REQUEST, &json!({"error": error}))
}

fn project_id(value: &Value) -> Option<ProjectId> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).map(ProjectId)
}

/// The copy, or why there is none.
async fn copy_to(
    app: &App,
    asker: &Principal,
    source: &StoredFlag,
    project: ProjectId,
    is_disabled: bool,
) -> Result<Result<std::sync::Arc<StoredFlag>, String>, Problem> {
    let snapshot = app.metadata.snapshot();
    let known = snapshot.flags(project).iter().find(|flag| flag.key == source.key);
    let known = known.map(|flag| flag.id);
    let (metadata, user, source) = (app.metadata.clone(), asker.user.id, source.clone());
    let is_active = source.active && !is_disabled;
    let write = async move {
        let Some(id) = known else {
            let new = NewFlag {
                name: source.name,
                key: source.key,
                filters: Some(source.filters),
                active: Some(is_active),
                ensure_experience_continuity: source.ensure_experience_continuity,
                tags: source.tags,
                bucketing_identifier: source.bucketing_identifier,
                evaluation_runtime: source.evaluation_runtime,
                evaluation_contexts: source.evaluation_contexts,
                is_remote_configuration: source.is_remote_configuration,
                ..NewFlag::default()
            };
            return metadata.create_flag(project, user, new).await;
        };
        let patch = FlagPatch {
            name: Some(source.name),
            filters: Some(source.filters),
            active: Some(is_active),
            ensure_experience_continuity: Some(source.ensure_experience_continuity),
            tags: Some(source.tags),
            bucketing_identifier: Some(source.bucketing_identifier),
            evaluation_runtime: Some(source.evaluation_runtime),
            evaluation_contexts: Some(source.evaluation_contexts),
            is_remote_configuration: Some(source.is_remote_configuration),
            ..FlagPatch::default()
        };
        Ok(metadata.update_flag(project, user, id, patch).await?.after)
    };
    match store::attempt(app, "copy-flag", write).await? {
        Ok(flag) => Ok(Ok(flag)),
        Err(MetadataError::Rejected(violation)) => Ok(Err(violation.detail)),
        Err(error) => Err(problem(error)),
    }
}

/// `GET /api/organizations/:organization/feature_flags/:key/`: the flags of that key in all projects.
pub async fn by_key(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let asker = roles::member(&snapshot, &call)?;
    let flags = flags_of(&snapshot, &asker).filter(|flag| flag.key == call.second_id());
    let bodies = flags.map(|flag| {
        let created_by = flag.created_by.and_then(|user| snapshot.user(user));
        json!({
            "flag_id": flag.id.0,
            "team_id": flag.project.0,
            "created_by": created_by.map(|user| UserBody::new(user)),
            "filters": flag.filters,
            "created_at": flag.created_at.to_rfc3339(),
            "active": flag.active,
        })
    });
    Ok(Response::json(StatusCode::OK, &bodies.collect::<Vec<_>>()))
}

/// The live flags of all projects of the asker's organization.
fn flags_of<'s>(
    snapshot: &'s Snapshot,
    asker: &Principal,
) -> impl Iterator<Item = &'s std::sync::Arc<StoredFlag>> {
    let organization = asker.user.organization;
    let projects = snapshot.projects().filter(move |project| project.organization == organization);
    projects.flat_map(|project| snapshot.flags(project.id))
}
