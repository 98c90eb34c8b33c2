//! Rights to documents: [`Viewer`], and [`check_change`] for changes. A dashboard may be restricted to its creator and
//! the admins of the organization.
//!
//! Documents are returned to other callers than the one who saved them: to all who may read them, or have a link. These
//! scopes prevent that a key obtains through a document what it may not query or share directly:
//!
//! | saved content | required scope besides that of the document |
//! |---|---|
//! | a query of rows, such as SQL | `query:read` |
//! | adding an insight to a dashboard, or removing it | `dashboard:write` |
//! | adding an insight to a dashboard by a change of the dashboard | `insight:read` |
//! | copies of the insights of a dashboard, or their deletion with it | `insight:write` |
//! | content that an enabled link shows | `sharing_configuration:write` |

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::auth;
use crate::auth::Principal;
use crate::response::Problem;
use crate::routes::documents::boards::Edit;
use crate::routes::documents::form::{ANYBODY_EDITS, CREATOR_EDITS};
use crate::routes::documents::{boards, form};
use crate::routes::store::problem;
use weir_app::App;
use weir_insights::insight::KINDS;
use weir_metadata::accounts::{KeyId, PersonalKey, Project, User};
use weir_metadata::documents::{Document, Kind};
use weir_metadata::members::Level;
use weir_wire::query_node;

/// The scope for deciding what links show.
const SHARE: &str = "sharing_configuration:write";

/// Fields of an insight that links show, or that the result is computed from. Other fields, such as tags, are only for
/// users of the project.
const SHOWN_OF_INSIGHTS: [&str; 5] = ["name", "derived_name", "description", "query", "filters"];

/// The same fields of a dashboard.
const SHOWN_OF_DASHBOARDS: [&str; 7] = [
    "name",
    "description",
    "filters",
    "variables",
    "breakdown_colors",
    "data_color_theme_id",
    "tiles",
];

/// The field of a dashboard with its restriction level.
pub(super) const RESTRICTION: &str = "restriction_level";

/// The viewer of documents of a project.
#[derive(Clone, Debug)]
pub(in crate::routes) struct Viewer {
    pub(in crate::routes) project: Arc<Project>,
    /// `None` for a visitor with a link.
    pub(in crate::routes) user: Option<Arc<User>>,
    pub(in crate::routes) key: Option<KeyId>,
}

impl From<&Principal> for Viewer {
    fn from(asker: &Principal) -> Self {
        let Principal { key, user, project } = asker;
        let (project, user) = (Arc::clone(project), Some(Arc::clone(user)));
        Self { project, user, key: Some(key.id) }
    }
}

/// The restriction level of a document.
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

/// Refuses a change of a document by a user without the right to it.
pub(super) fn check_edit(document: &Document, user: &User) -> Result<(), Problem> {
    if can_edit(document, user) {
        return Ok(());
    }
    Err(Problem::permission_denied("You don't have edit permissions for this dashboard."))
}

/// Refuses a change of the restriction level by a user without the right to it.
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

/// Checks that a key may save these fields of a document: a query of rows requires `query:read`. A query of an unknown
/// kind counts as such, since a later version may support it.
///
/// # Errors
///
/// 403.
pub(super) fn check_saving(key: &PersonalKey, fields: &Map<String, Value>) -> Result<(), Problem> {
    let asks = |query: &&Value| query.as_object().is_some_and(|query| !query.is_empty());
    let query = fields.get("query").filter(asks);
    let kind = query.map(|query| query_node::kind_of(query).0);
    match kind {
        None => Ok(()),
        Some(kind) if kind.is_some_and(|kind| KINDS.contains(&kind)) => Ok(()),
        Some(_) => auth::require(key, "query:read"),
    }
}

/// Checks that the caller may create a document with these fields.
///
/// # Errors
///
/// 403.
pub(super) async fn check_new(
    app: &App,
    asker: &Principal,
    (kind, fields): (Kind, &Map<String, Value>),
) -> Result<(), Problem> {
    check_saving(&asker.key, fields)?;
    let ids = |name: &str| fields.get(name).map(form::ids).unwrap_or_default();
    match kind {
        Kind::Insight => check_boards(app, asker, &ids("dashboards")).await,
        Kind::Dashboard if !ids("tiles").is_empty() => auth::require(&asker.key, "insight:read"),
        _ => Ok(()),
    }
}

/// Checks that the caller may make this change to a document.
///
/// # Errors
///
/// 403.
pub(super) async fn check_change(
    app: &App,
    asker: &Principal,
    (before, edit): (&Document, &Edit),
) -> Result<(), Problem> {
    check_saving(&asker.key, &edit.fields)?;
    let is_other = |name: &&str| {
        edit.fields.get(*name).is_some_and(|after| before.fields.get(*name) != Some(after))
    };
    let is_restored = before.deleted && edit.deleted == Some(false);
    match before.kind {
        Kind::Insight => {
            let own: BTreeSet<i64> = boards::boards_of(before).into_iter().collect();
            let after = edit.fields.get("dashboards").map(form::ids);
            let after = after.map_or_else(|| own.clone(), |after| after.into_iter().collect());
            let moved: Vec<i64> = own.symmetric_difference(&after).copied().collect();
            check_boards(app, asker, &moved).await?;
            if is_restored || SHOWN_OF_INSIGHTS.iter().any(is_other) {
                check_shown(app, asker, (Kind::Insight, &[before.id])).await?;
                let all: Vec<i64> = own.union(&after).copied().collect();
                check_shown(app, asker, (Kind::Dashboard, &all)).await?;
            }
            Ok(())
        }
        Kind::Dashboard => {
            let placed: Vec<i64> = boards::tiles(before).iter().filter_map(insight_of).collect();
            let sent = edit.fields.get("tiles").and_then(Value::as_array).into_iter().flatten();
            if sent.filter_map(insight_of).any(|insight| !placed.contains(&insight)) {
                auth::require(&asker.key, "insight:read")?;
            }
            if edit.is_with_insights {
                auth::require(&asker.key, "insight:write")?;
            }
            match is_restored || SHOWN_OF_DASHBOARDS.iter().any(is_other) {
                true => check_shown(app, asker, (Kind::Dashboard, &[before.id])).await,
                false => Ok(()),
            }
        }
        Kind::Action | Kind::Annotation => Ok(()),
    }
}

fn insight_of(tile: &Value) -> Option<i64> {
    tile.get("insight")?.as_i64()
}

/// Checks that the caller may add an insight to these dashboards, or remove it.
async fn check_boards(app: &App, asker: &Principal, ids: &[i64]) -> Result<(), Problem> {
    if ids.is_empty() {
        return Ok(());
    }
    auth::require(&asker.key, "dashboard:write")?;
    check_shown(app, asker, (Kind::Dashboard, ids)).await
}

/// Checks that the caller may change what these documents show: without the right to share, a document with an enabled
/// link cannot be changed.
///
/// # Errors
///
/// 403; the metadata cannot be read.
pub(super) async fn check_shown(
    app: &App,
    asker: &Principal,
    (kind, ids): (Kind, &[i64]),
) -> Result<(), Problem> {
    if ids.is_empty() || asker.key.grants(SHARE) {
        return Ok(());
    }
    let shared =
        app.node.metadata.shared_documents(asker.project.id, kind).await.map_err(problem)?;
    match ids.iter().any(|id| shared.contains(id)) {
        true => auth::require(&asker.key, SHARE),
        false => Ok(()),
    }
}
