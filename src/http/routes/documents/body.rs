//! The JSON form of documents: [`bodies`], in PostHog's format.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::beside::beside;
use crate::members::{Member, Members};
use crate::response::Problem;
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::{boards, form, rights};
use crate::routes::store::problem;
use crate::routes::user_body::user;
use weir_app::App;
use weir_metadata::accounts::UserId;
use weir_metadata::documents::{Document, DocumentText, Kind};
use weir_metadata::snapshot::Snapshot;

/// Levels of rights to an insight or a dashboard, with PostHog's numbers.
const MAY_READ: i64 = 21;
const MAY_EDIT: i64 = 37;

/// Fields of an insight that a list of basic fields omits.
const NOT_BASIC: [&str; 14] = [
    "result",
    "hasMore",
    "columns",
    "types",
    "query_status",
    "cache_target_age",
    "next_allowed_client_refresh",
    "is_cached",
    "is_sample",
    "timezone",
    "last_modified_by",
    "effective_restriction_level",
    "effective_privilege_level",
    "order",
];

/// The fields that this file reads.
const READ: [&str; 4] = ["dashboards", "restriction_level", "creation_mode", "insight_short_id"];

/// Reduces the body of an insight to its basic fields, none of which has to be computed.
pub(super) fn make_basic(body: &mut Members) {
    body.retain(|name| !NOT_BASIC.contains(&name));
}

/// The tiles of an insight on its dashboards.
fn dashboard_tiles(insight: &Document) -> Value {
    let id = boards::tile_of_insight(insight.id);
    let boards = boards::boards_of(insight).into_iter();
    boards.map(|board| json!({"id": id, "dashboard_id": board, "deleted": false})).collect()
}

/// Sets whether a dashboard has an enabled link.
pub(super) fn set_shared(body: &mut Members, is_shared: bool) {
    body.set("is_shared", json!(is_shared));
}

/// Documents that are converted in one step, outside the threads of sockets.
const AT_ONCE: usize = 16;

/// Converts documents of a project to the form that clients get; their fields are copied as they are stored.
pub(super) async fn bodies(
    app: &App,
    documents: &[DocumentText],
    viewer: &Viewer,
) -> Result<Vec<Members>, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let mut bodies = Vec::with_capacity(documents.len());
    for some in documents.chunks(AT_ONCE) {
        let (some, snapshot, viewer) = (some.to_vec(), Arc::clone(&snapshot), viewer.clone());
        let make = move || -> Result<Vec<Members>, Problem> {
            some.iter().map(|document| body(document, &snapshot, &viewer)).collect()
        };
        bodies.append(&mut beside(&app.node.cpu, make).await?);
    }
    Ok(bodies)
}

/// As [`bodies`], for one document.
pub(super) async fn one(
    app: &App,
    document: &DocumentText,
    viewer: &Viewer,
) -> Result<Members, Problem> {
    let bodies = bodies(app, std::slice::from_ref(document), viewer).await?;
    Ok(bodies.into_iter().next().unwrap_or_default())
}

/// The body of one document; `snapshot` contains its users.
fn body(stored: &DocumentText, snapshot: &Snapshot, viewer: &Viewer) -> Result<Members, Problem> {
    let user = |id: Option<UserId>| id.and_then(|id| snapshot.user(id)).map(|found| user(found));
    let document = stored.with(&READ.map(Box::from)).map_err(problem)?;
    let mut body = Members::default();
    body.set("id", json!(document.id));
    // A document from before a field was introduced has the default of that field.
    for (name, value) in form::defaults(document.kind) {
        body.set(name, value);
    }
    let fields = stored.members().map_err(problem)?;
    body.extend(fields.into_iter().map(|(name, text)| (name, Member::Stored(text))));
    let viewed = viewer.user.as_ref();
    let may_edit = viewed.is_some_and(|user| rights::can_edit(&document, user));
    let privilege = if may_edit { MAY_EDIT } else { MAY_READ };
    let updated_at = document.updated_at.to_rfc3339();
    let more = match document.kind {
        Kind::Action => json!({
            "is_calculating": false, "last_calculated_at": document.created_at.to_rfc3339(),
            "is_action": true, "bytecode_error": null, "creation_context": null,
            "team_id": document.project.0,
        }),
        Kind::Insight => json!({
            "last_refresh": null, "refreshing": false, "result": null, "hasMore": false,
            "columns": null, "types": null, "query_status": null, "cache_target_age": null,
            "next_allowed_client_refresh": null, "updated_at": updated_at,
            "last_modified_at": updated_at, "last_modified_by": user(document.updated_by),
            "is_sample": false, "effective_restriction_level": form::ANYBODY_EDITS,
            "effective_privilege_level": privilege, "timezone": viewer.project.timezone,
            "is_cached": false, "dashboard_tiles": dashboard_tiles(&document),
        }),
        Kind::Annotation => json!({
            "updated_at": updated_at,
            "insight_short_id": document.fields.get("insight_short_id"),
        }),
        Kind::Dashboard => json!({
            "updated_at": updated_at, "last_modified_at": updated_at, "is_shared": false,
            "effective_restriction_level": rights::restriction(&document),
            "effective_privilege_level": privilege, "last_refresh": null,
            "creation_mode": document.fields.get("creation_mode").unwrap_or(&json!("default")),
        }),
    };
    if document.kind == Kind::Dashboard {
        // Tiles are only in the response of a single dashboard; see `tiles`.
        boards::HIDDEN.iter().for_each(|name| _ = body.remove(name));
    }
    body.extend(more_members(more));
    body.set("created_by", json!(user(document.created_by)));
    body.set("created_at", json!(document.created_at.to_rfc3339()));
    body.set("deleted", json!(document.deleted));
    Ok(body)
}

fn more_members(more: Value) -> impl Iterator<Item = (String, Member)> {
    let members = match more {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    members.into_iter().map(|(name, value)| (name, Member::Value(value)))
}
