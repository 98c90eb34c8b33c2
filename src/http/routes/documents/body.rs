//! What clients get of a document: [`body`], in PostHog's format.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::http::routes::documents::boards;
use crate::http::routes::documents::form;
use crate::http::routes::documents::rights;
use crate::http::routes::documents::rights::Viewer;
use crate::http::routes::user_body::UserBody;
use crate::metadata::accounts::UserId;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;
use crate::metadata::snapshot::Snapshot;

/// Rights to an insight or a dashboard, as PostHog numbers them.
const MAY_READ: i64 = 21;
const MAY_EDIT: i64 = 37;

/// Fields of an insight that the list of basic facts lacks.
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

/// Leaves of the body of an insight the basic facts, none of which has to be computed.
pub(super) fn make_basic(body: &mut Value) {
    if let Value::Object(body) = body {
        body.retain(|name, _| !NOT_BASIC.contains(&name.as_str()));
    }
}

/// The tiles of an insight on its dashboards.
fn dashboard_tiles(insight: &Document) -> Value {
    let id = boards::tile_of_insight(insight.id);
    let boards = boards::boards_of(insight).into_iter();
    boards.map(|board| json!({"id": id, "dashboard_id": board, "deleted": false})).collect()
}

/// Says of a dashboard whether a link leads to it.
pub(super) fn set_shared(body: &mut Value, is_shared: bool) {
    if let Value::Object(body) = body {
        body.insert("is_shared".to_owned(), json!(is_shared));
    }
}

/// A document of a project as sent to clients; `snapshot` contains its users.
pub(super) fn body(document: &Document, snapshot: &Snapshot, viewer: Viewer<'_>) -> Value {
    let user =
        |id: Option<UserId>| id.and_then(|id| snapshot.user(id)).map(|user| UserBody::new(user));
    let mut body: Map<String, Value> = Map::new();
    body.insert("id".to_owned(), json!(document.id));
    // A document of before a field was there has what a new one would have.
    body.extend(form::defaults(document.kind).map(|(name, value)| (name.to_owned(), value)));
    body.extend(document.fields.clone());
    let may_edit = viewer.user.is_some_and(|user| rights::can_edit(document, user));
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
            "is_cached": false, "dashboard_tiles": dashboard_tiles(document),
        }),
        Kind::Annotation => json!({
            "updated_at": updated_at,
            "insight_short_id": document.fields.get("insight_short_id"),
        }),
        Kind::Dashboard => json!({
            "updated_at": updated_at, "last_modified_at": updated_at, "is_shared": false,
            "effective_restriction_level": rights::restriction(document),
            "effective_privilege_level": privilege, "last_refresh": null,
            "creation_mode": document.fields.get("creation_mode").unwrap_or(&json!("default")),
        }),
    };
    if document.kind == Kind::Dashboard {
        // Only a whole dashboard has its tiles; see `tiles`.
        boards::hide(&mut body);
    }
    if let Value::Object(more) = more {
        body.extend(more);
    }
    body.insert("created_by".to_owned(), json!(user(document.created_by)));
    body.insert("created_at".to_owned(), json!(document.created_at.to_rfc3339()));
    body.insert("deleted".to_owned(), json!(document.deleted));
    Value::Object(body)
}
