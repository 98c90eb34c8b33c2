//! Who asks: a personal key becomes a [`Principal`]. Tokens of the public endpoints stand in
//! bodies, and are looked up where those are read.

use std::sync::Arc;

use crate::event::id::ProjectId;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::metadata::accounts::PersonalKey;
use crate::metadata::accounts::Project;
use crate::metadata::accounts::User;
use crate::metadata::snapshot::Snapshot;

/// Who asks, and of which project.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The key that was presented.
    pub key: Arc<PersonalKey>,
    /// Whose key it is.
    pub user: Arc<User>,
    /// The project that the path names.
    pub project: Arc<Project>,
}

/// Checks the request's key and its right to the project that the path calls `project`: a number,
/// or `@current`.
///
/// # Errors
///
/// 401 without a valid key, 404 for what names no project, 403 for another organization's.
pub fn principal(
    snapshot: &Snapshot,
    request: &Request,
    project: &str,
) -> Result<Principal, Problem> {
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let query = request.query("personal_api_key");
    let value = bearer.map(str::trim).or(query.as_deref()).filter(|value| !value.is_empty());
    let value = value.ok_or_else(Problem::not_authenticated)?;
    let key = snapshot.key_by_value(value).ok_or_else(Problem::invalid_personal_api_key)?;
    let user = Arc::clone(&key.user);
    let not_found = || Problem::not_found("Project not found.");
    let id = match project {
        "@current" => user.current_project.or_else(|| Some(snapshot.projects().next()?.id)),
        number => number.parse().ok().map(ProjectId),
    };
    let project = snapshot.project(id.ok_or_else(not_found)?).ok_or_else(not_found)?;
    if project.organization != user.organization {
        return Err(Problem::permission_denied("You don't have access to the project."));
    }
    Ok(Principal { key: Arc::clone(key), user, project: Arc::clone(project) })
}

/// Checks that the key may do `action` (`read` or `write`) on `object`, such as `person`. Write
/// implies read; a key without scopes may do everything.
///
/// # Errors
///
/// 403 naming the scope that is missing.
pub fn require(principal: &Principal, object: &str, action: &str) -> Result<(), Problem> {
    let Some(scopes) = &principal.key.scopes else { return Ok(()) };
    let grants = |scope: &str| {
        let (on, may) = scope.split_once(':').unwrap_or((scope, "write"));
        (on == object || on == "*") && (may == action || may == "write")
    };
    if scopes.iter().any(|scope| grants(scope)) {
        return Ok(());
    }
    let detail = format!("API key missing required scope '{object}:{action}'");
    Err(Problem::permission_denied(detail))
}
