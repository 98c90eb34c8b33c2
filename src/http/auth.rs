//! Authentication and authorization: a personal key becomes an [`Asker`], and with a project a
//! [`Principal`]. Tokens of the public endpoints are in bodies, and are looked up where those are read.

use std::sync::Arc;

use hyper::Method;
use hyper::header::AUTHORIZATION;
use uuid::Uuid;

use crate::fields::Fields;
use crate::request::Request;
use crate::response::Problem;
use weir_event::id::ProjectId;
use weir_event::key_kind::KeyKind;
use weir_metadata::accounts::{PersonalKey, Project, User};
use weir_metadata::members::{Level, Organization};
use weir_metadata::secrets::Seed;
use weir_metadata::snapshot::Snapshot;

/// In a path, the current project or organization of the user.
pub const CURRENT: &str = "@current";

/// The body field or query parameter that contains a key.
const KEY: &str = "personal_api_key";

/// The authenticated caller.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The key that was sent.
    pub key: Arc<PersonalKey>,
    /// The owner of the key.
    pub user: Arc<User>,
}

/// The authenticated caller, and the project of the request.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The key that was sent.
    pub key: Arc<PersonalKey>,
    /// The owner of the key.
    pub user: Arc<User>,
    /// The project that the path names.
    pub project: Arc<Project>,
}

impl Principal {
    /// The caller without the project.
    pub fn asker(&self) -> Asker {
        Asker { key: Arc::clone(&self.key), user: Arc::clone(&self.user) }
    }
}

/// The key in the body of `request`, unless the header has one, which takes precedence. The body can be
/// read afterwards.
pub async fn key_in_body(request: &mut Request) -> Option<String> {
    if request.method == Method::GET || bearer(request).is_some() {
        return None;
    }
    Fields::peek_text(request, KEY).await
}

/// Authenticates the request by the key of the header, else of the body (`in_body`), else of the query.
/// If the first of these is wrong, no other is tried.
///
/// # Errors
///
/// 401 without a valid key.
pub fn asker(
    snapshot: &Snapshot,
    request: &Request,
    in_body: Option<&str>,
) -> Result<Asker, Problem> {
    match bearer(request).or(in_body) {
        Some(value) => asker_of(snapshot, value),
        None => asker_of(snapshot, &request.query(KEY).unwrap_or_default()),
    }
}

/// The token after `Bearer` in the header.
pub fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim)
}

/// The project token in `Authorization`: after `Bearer` in any case, or alone, as some clients send it.
pub fn project_token(request: &Request) -> Option<&str> {
    let value = request.header("authorization")?.trim();
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
        _ => Some(value),
    }
}

/// Authenticates a key; an empty one counts as absent.
///
/// # Errors
///
/// 401 without a valid key.
pub fn asker_of(snapshot: &Snapshot, value: &str) -> Result<Asker, Problem> {
    let value = Some(value).filter(|value| !value.is_empty());
    let value = value.ok_or_else(Problem::not_authenticated)?;
    let key = snapshot
        .key_by_value(value)
        .ok_or_else(|| Problem::invalid_personal_api_key(KeyKind::of(value)))?;
    Ok(Asker { key: Arc::clone(key), user: Arc::clone(&key.user) })
}

/// Checks the access of `asker` to `project` of the path: a number, or `@current`. With `@current`, a
/// project token in the query selects the project.
///
/// # Errors
///
/// 404 for an unknown project, 403 for a project of another organization, 401 for an unknown token.
pub fn principal(
    snapshot: &Snapshot,
    request: &Request,
    asker: Asker,
    project: &str,
) -> Result<Principal, Problem> {
    let not_found = || Problem::not_found("Project not found.");
    let token = || request.query("token").or_else(|| request.query("api_key"));
    let project = match project {
        CURRENT => match token() {
            Some(token) => Some(snapshot.project_by_token(&token).ok_or_else(|| {
                Problem::authentication_failed("Incorrect authentication credentials.")
            })?),
            None => current(snapshot, &asker.user),
        },
        number => number.parse().ok().and_then(|id| snapshot.project(ProjectId(id))),
    };
    check_project(asker, project.ok_or_else(not_found)?)
}

/// Checks the access of `asker` to a project.
///
/// # Errors
///
/// 403 if it belongs to another organization, or the key is not valid for it.
pub fn check_project(asker: Asker, project: &Arc<Project>) -> Result<Principal, Problem> {
    if project.organization != asker.user.organization {
        return Err(Problem::permission_denied("You don't have access to the project."));
    }
    if asker.key.projects.as_ref().is_some_and(|own| !own.contains(&project.id)) {
        let id = project.id;
        let detail = format!("API key does not have access to the requested project: ID {id}.");
        return Err(Problem::permission_denied(detail));
    }
    let Asker { key, user } = asker;
    Ok(Principal { key, user, project: Arc::clone(project) })
}

/// The project that a path names, whether the user may use it or not.
pub fn named(snapshot: &Snapshot, user: &User, project: &str) -> Option<ProjectId> {
    match project {
        CURRENT => current(snapshot, user).map(|project| project.id),
        number => number.parse().ok().map(ProjectId),
    }
}

/// The user's current project: the selected one, else the first of the organization.
fn current<'a>(snapshot: &'a Snapshot, user: &User) -> Option<&'a Arc<Project>> {
    let chosen = user.current_project.and_then(|id| snapshot.project(id));
    let own = |project: &&Arc<Project>| project.organization == user.organization;
    chosen.filter(own).or_else(|| snapshot.projects().find(own))
}

/// The organization of this id or `@current`, if it is the user's.
///
/// # Errors
///
/// 404; the existence of other organizations is not disclosed.
pub fn organization(
    snapshot: &Snapshot,
    user: &User,
    id: &str,
) -> Result<Arc<Organization>, Problem> {
    let not_found = || Problem::not_found("Organization not found.");
    let id = match id {
        CURRENT => user.organization,
        text => Uuid::try_parse(text).map_err(|_| not_found())?,
    };
    let organization = snapshot.organization(id).filter(|own| own.id == user.organization);
    organization.cloned().ok_or_else(not_found)
}

/// Checks that the user has at least `level` in the organization, and that the key is not restricted to
/// some projects.
///
/// # Errors
///
/// 403.
pub fn require_level(key: &PersonalKey, level: Level) -> Result<(), Problem> {
    if key.user.level < level {
        let detail = "Your organization access level is insufficient.";
        return Err(Problem::permission_denied(detail));
    }
    if key.projects.is_some() {
        let detail = "API keys that are limited to projects cannot do this.";
        return Err(Problem::permission_denied(detail));
    }
    Ok(())
}

/// Randomness for one secret that a request creates.
pub fn seed() -> Seed {
    Seed::new(&mut rand::rng())
}

/// Checks that the key grants `scope`, such as `person:read`. Write implies read; a key without scopes
/// grants everything.
///
/// # Errors
///
/// 403 that names the missing scope.
pub fn require(key: &PersonalKey, scope: &str) -> Result<(), Problem> {
    if key.grants(scope) {
        return Ok(());
    }
    let detail = format!("API key missing required scope '{scope}'");
    Err(Problem::permission_denied(detail))
}
