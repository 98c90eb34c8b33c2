//! Flags of all projects of an organization that the caller may see: by key, and the list of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::Asker;
use crate::call::{Call, Rendering};
use crate::openapi::{Description, Parameter, REFUSED, by_hand};
use crate::page::Page;
use crate::response::{Problem, Response};
use crate::routes::user_body::user;
use crate::rows::Rows;
use crate::{auth, csv};
use weir_app::App;
use weir_event::id::ProjectId;
use weir_insights::flag_calls::calls;
use weir_metadata::flags::StoredFlag;
use weir_metadata::snapshot::Snapshot;

/// Most keys of a page, which is also the default; PostHog's number.
const KEYS_MAX: usize = 100;
const KEYS_DEFAULT: usize = 25;

pub(crate) const BY_KEY: Description =
    Description::list::<FlagOfProjectBody>("The flags of a key in all projects");

/// `GET /api/organizations/:organization/feature_flags/:key/`: the flags of that key in all projects,
/// with the number of calls that SDKs reported in the last 7 days; null if that cannot be counted.
pub async fn by_key(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    auth::organization(&app.node.metadata.snapshot(), &call.asker.user, call.id())?;
    let (snapshot, asker) = (app.node.metadata.snapshot(), &call.asker);
    let key = call.second_id();
    let mut bodies = Vec::new();
    for flag in flags_of(&snapshot, asker).filter(|flag| flag.key == key) {
        let created_by = flag.created_by.and_then(|user| snapshot.user(user));
        let calls = calls(&app.engine, flag.project, &[key]).await;
        bodies.push(FlagOfProjectBody {
            flag_id: flag.id.0,
            team_id: flag.project.0,
            created_by: created_by.map(|found| user(found)),
            filters: flag.filters.clone(),
            created_at: flag.created_at.to_rfc3339(),
            active: flag.active,
            evaluations_7d: calls.ok().map(|calls| calls.get(key).copied().unwrap_or(0)),
        });
    }
    csv::answer(&app.node.cpu, StatusCode::OK, Rendering::Json, bodies).await
}

/// The flag of a key in one project, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "FlagOfProject")]
struct FlagOfProjectBody {
    flag_id: i64,
    team_id: i64,
    created_by: Option<weir_api::accounts::User>,
    #[schemars(with = "by_hand::AnyObject")]
    filters: Value,
    created_at: String,
    active: bool,
    /// How often SDKs said that they called it; null if that cannot be counted.
    evaluations_7d: Option<i64>,
}

/// The flag that stands for a key, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "FlagOfKey")]
struct FlagOfKeyBody {
    key: String,
    name: String,
    flag_id: i64,
    team_id: i64,
    #[schemars(with = "by_hand::AnyObject")]
    filters: Value,
    active: bool,
}

pub(crate) const KEYS: Description =
    Description::page::<FlagOfKeyBody>("The keys of flags in all projects, each once")
        .query(&[
            Parameter::shared("search"),
            Parameter::text("team_ids").about("Ids of projects with commas; all if it is absent"),
            Parameter::integer("current_team_id")
                .about("The project whose flag stands for a key, if it has one"),
        ])
        .or(&[REFUSED]);

/// `GET /api/organizations/:organization/feature_flags/keys/`: the keys of all projects, or of those in
/// `team_ids`, each once with one of its flags, preferably that of `current_team_id`; `search` matches
/// keys and names.
pub async fn keys(app: &App, call: Call<Asker>) -> Result<Response, Problem> {
    auth::organization(&app.node.metadata.snapshot(), &call.asker.user, call.id())?;
    let (snapshot, asker) = (app.node.metadata.snapshot(), &call.asker);
    let request = &call.request;
    let refused =
        |error: &str| Ok(Response::json(StatusCode::BAD_REQUEST, &json!({"error": error})));
    let Ok(projects) = ids(request.query("team_ids").as_deref().unwrap_or_default()) else {
        return refused("team_ids must be a comma-separated list of integers.");
    };
    let number =
        |name: &str| request.query(name).map(|text| text.trim().parse::<i64>()).transpose();
    let (Ok(limit), Ok(offset)) = (number("limit"), number("offset")) else {
        return refused("limit and offset must be integers.");
    };
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let page = Page {
        limit: limit.unwrap_or(KEYS_DEFAULT).min(KEYS_MAX),
        offset: offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0),
    };
    let preferred = request.query("current_team_id").and_then(|id| id.parse().ok()).map(ProjectId);
    let search = request.query("search").unwrap_or_default().trim().to_lowercase();
    let is_asked = |flag: &&Arc<StoredFlag>| {
        let texts = [&flag.key, &flag.name];
        (projects.is_empty() || projects.contains(&flag.project.0))
            && texts.iter().any(|text| text.to_lowercase().contains(&search))
    };
    let mut by_key: BTreeMap<&str, &Arc<StoredFlag>> = BTreeMap::new();
    for flag in flags_of(&snapshot, asker).filter(is_asked) {
        let known = by_key.entry(&flag.key).or_insert(flag);
        if Some(flag.project) == preferred {
            *known = flag;
        }
    }
    let shown = by_key.values().skip(page.offset).take(page.limit);
    let shown: Vec<Arc<StoredFlag>> = shown.map(|flag| Arc::clone(flag)).collect();
    let rows = (by_key.len(), Rows::new(&request.memory()));
    let body = |flag: &Arc<StoredFlag>| FlagOfKeyBody {
        key: flag.key.clone(),
        name: flag.name.clone(),
        flag_id: flag.id.0,
        team_id: flag.project.0,
        filters: flag.filters.clone(),
        active: flag.active,
    };
    let write = move |rows: &mut Rows| rows.add_all(shown.iter().map(body));
    page.written(app, request, rows, write).await
}

/// Integers separated by commas.
fn ids(text: &str) -> Result<Vec<i64>, std::num::ParseIntError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::parse).collect()
}

/// Whether the project belongs to the caller's organization, and the caller's key may use it.
pub(super) fn is_own(snapshot: &Snapshot, asker: &Asker, project: ProjectId) -> bool {
    let of_key = asker.key.projects.as_ref().is_none_or(|own| own.contains(&project));
    let project = snapshot.project(project);
    of_key && project.is_some_and(|project| project.organization == asker.user.organization)
}

/// The live flags of all projects that the caller may see, by project.
fn flags_of<'s>(
    snapshot: &'s Snapshot,
    asker: &'s Asker,
) -> impl Iterator<Item = &'s Arc<StoredFlag>> {
    let projects = snapshot.projects().map(|project| project.id);
    let projects = projects.filter(move |project| is_own(snapshot, asker, *project));
    projects.flat_map(|project| snapshot.flags(project))
}
