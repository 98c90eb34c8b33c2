//! Who sees documents, and who may change dashboards: [`Viewer`]. A dashboard may be restricted to its creator and the
//! admins of the organization.

use serde_json::Map;
use serde_json::Value;

use crate::http::auth::Principal;
use crate::http::response::Problem;
use crate::http::routes::documents::form::ANYBODY_EDITS;
use crate::http::routes::documents::form::CREATOR_EDITS;
use crate::metadata::accounts::KeyId;
use crate::metadata::accounts::Project;
use crate::metadata::accounts::User;
use crate::metadata::documents::Document;
use crate::metadata::members::Level;

/// The field of a dashboard that restricts it.
const RESTRICTION: &str = "restriction_level";

/// Who sees documents of a project.
#[derive(Clone, Copy, Debug)]
pub(in crate::http::routes) struct Viewer<'a> {
    pub(in crate::http::routes) project: &'a Project,
    /// `None` for whoever has a link.
    pub(in crate::http::routes) user: Option<&'a User>,
    pub(in crate::http::routes) key: Option<KeyId>,
}

impl<'a> From<&'a Principal> for Viewer<'a> {
    fn from(asker: &'a Principal) -> Self {
        Self { project: &asker.project, user: Some(&asker.user), key: Some(asker.key.id) }
    }
}

/// How a document is restricted.
pub(super) fn restriction(document: &Document) -> i64 {
    document.fields.get(RESTRICTION).and_then(Value::as_i64).unwrap_or(ANYBODY_EDITS)
}

/// Whether a user may change a document.
pub(super) fn can_edit(document: &Document, user: &User) -> bool {
    restriction(document) < CREATOR_EDITS || owns(document, user)
}

fn owns(document: &Document, user: &User) -> bool {
    document.created_by == Some(user.id) || user.level.number() >= Level::Admin.number()
}

/// Refuses a change of a document by a user who may not make it.
pub(super) fn check_edit(document: &Document, user: &User) -> Result<(), Problem> {
    if can_edit(document, user) {
        return Ok(());
    }
    Err(Problem::permission_denied("You don't have edit permissions for this dashboard."))
}

/// Refuses another restriction by a user who may not set it.
pub(super) fn check_restriction(
    document: &Document,
    fields: &Map<String, Value>,
    user: &User,
) -> Result<(), Problem> {
    let level = fields.get(RESTRICTION).and_then(Value::as_i64);
    if level.is_none_or(|level| level == restriction(document)) || owns(document, user) {
        return Ok(());
    }
    let detail = "Only the creator of a dashboard and admins may change its restriction level.";
    Err(Problem::permission_denied(detail))
}
