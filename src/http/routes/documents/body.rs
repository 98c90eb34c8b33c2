//! What clients get of a document: [`body`], in PostHog's format.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::http::routes::documents::form;
use crate::http::routes::user_body::UserBody;
use crate::metadata::accounts::Project;
use crate::metadata::accounts::UserId;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind;
use crate::metadata::snapshot::Snapshot;

/// Levels of rights to an insight or a dashboard, as PostHog numbers them: everybody of the project may edit.
const RESTRICTION_LEVEL: u8 = 21;
const PRIVILEGE_LEVEL: u8 = 37;

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

/// A document of a project as sent to clients; `snapshot` contains its users.
pub(super) fn body(document: &Document, snapshot: &Snapshot, project: &Project) -> Value {
    let user =
        |id: Option<UserId>| id.and_then(|id| snapshot.user(id)).map(|user| UserBody::new(user));
    let mut body: Map<String, Value> = Map::new();
    body.insert("id".to_owned(), json!(document.id));
    // A document of before a field was there has what a new one would have.
    body.extend(form::defaults(document.kind).map(|(name, value)| (name.to_owned(), value)));
    body.extend(document.fields.clone());
    // Of a whole dashboard only; see `tiles`.
    body.remove("tiles");
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
            "is_sample": false, "effective_restriction_level": RESTRICTION_LEVEL,
            "effective_privilege_level": PRIVILEGE_LEVEL, "timezone": project.timezone,
            "is_cached": false,
        }),
        Kind::Annotation => json!({
            "updated_at": updated_at,
            "insight_short_id": document.fields.get("insight_short_id"),
        }),
        Kind::Dashboard => json!({
            "updated_at": updated_at, "last_modified_at": updated_at, "is_shared": false,
            "effective_restriction_level": RESTRICTION_LEVEL,
            "effective_privilege_level": PRIVILEGE_LEVEL, "last_refresh": null,
        }),
    };
    if let Value::Object(more) = more {
        body.extend(more);
    }
    body.insert("created_by".to_owned(), json!(user(document.created_by)));
    body.insert("created_at".to_owned(), json!(document.created_at.to_rfc3339()));
    body.insert("deleted".to_owned(), json!(document.deleted));
    Value::Object(body)
}
