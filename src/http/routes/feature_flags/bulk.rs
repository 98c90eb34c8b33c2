//! Many flags at once: their keys, which ones a list has, deleting them, their tags.

use std::collections::HashSet;

use hyper::StatusCode;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::error::Kind;
use crate::http::auth::Principal;
use crate::http::call::Call;
use crate::http::fields::Fields;
use crate::http::fields::refused;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::feature_flags::filter::Wanted;
use crate::http::routes::feature_flags::status::Rollout;
use crate::http::routes::store;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::FlagPatch;
use crate::metadata::flags::StoredFlag;
use crate::metadata::flags::tags::TagChange;

/// Flags that one request may delete.
const DELETED_MAX: usize = 10_000;

/// Flags or definitions that one request may change besides; PostHog's number.
const TAGGED_MAX: usize = 500;

/// `POST feature_flags/bulk_keys/` with `ids`. What is no id is told and left out.
pub async fn bulk_keys(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.metadata.snapshot();
    let mut fields = Fields::read(request).await?;
    let given = match fields.nullable_value("ids").flatten() {
        Some(Value::Array(given)) => given,
        _ => Vec::new(),
    };
    let (ids, wrong): (Vec<&Value>, Vec<&Value>) = given.iter().partition(|id| id_of(id).is_some());
    if ids.is_empty() && !wrong.is_empty() {
        let error = json!({"error": "Invalid flag IDs provided"});
        return Ok(Response::json(StatusCode::BAD_REQUEST, &error));
    }
    let ids: HashSet<i64> = ids.into_iter().filter_map(id_of).collect();
    let flags = snapshot.flags(asker.project.id).iter();
    let found = flags.filter(|flag| ids.contains(&flag.id.0));
    let keys: Map<String, Value> =
        found.map(|flag| (flag.id.to_string(), Value::String(flag.key.clone()))).collect();
    let mut body = Map::from_iter([("keys".to_owned(), Value::Object(keys))]);
    if !wrong.is_empty() {
        let wrong = Value::from_iter(wrong.into_iter().cloned());
        body.insert("warning".to_owned(), format!("Invalid flag IDs ignored: {wrong}").into());
    }
    Ok(Response::json(StatusCode::OK, &body))
}

/// The id of a flag, as a number or text of digits.
fn id_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().filter(|id| *id >= 0),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// `GET feature_flags/matching_ids/`: the ids of the whole list that the same query would page.
pub async fn matching_ids(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.metadata.snapshot();
    let wanted = Wanted::of_request(app, &asker, &request).await?;
    let flags = snapshot.flags(asker.project.id).iter();
    let ids: Vec<i64> = flags.filter(|f| wanted.includes(f)).map(|flag| flag.id.0).collect();
    Ok(Response::json(StatusCode::OK, &json!({"ids": ids, "total": ids.len()})))
}

/// `POST feature_flags/bulk_delete/` with `ids`, or with `filters` as the list takes them.
pub async fn bulk_delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.metadata.snapshot();
    let mut fields = Fields::read(request).await?;
    let invalid = |detail: &str| Problem::new(Kind::Invalid, "invalid_input", detail.to_owned());
    let filters = fields.nullable_value("filters").flatten();
    let ids = match (fields.ids("ids")?, filters) {
        (Some(_), Some(_)) => return Err(invalid("Provide either filters or ids, not both")),
        (Some(ids), None) if !ids.is_empty() => ids,
        (None, Some(Value::Object(filters))) => {
            let wanted = Wanted::of_filters(app, &asker, &filters).await?;
            let flags = snapshot.flags(asker.project.id).iter();
            flags.filter(|flag| wanted.includes(flag)).map(|flag| flag.id.0).collect()
        }
        _ => return Err(invalid("Must provide either filters or ids")),
    };
    if ids.len() > DELETED_MAX {
        return Err(invalid(&format!("At most {DELETED_MAX} flags can be deleted at once.")));
    }
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for id in ids {
        let found = snapshot.flags(asker.project.id).iter().find(|flag| flag.id.0 == id);
        let Some(flag) = found else {
            errors.push(json!({"id": id, "reason": "Flag not found"}));
            continue;
        };
        let (metadata, project, user) = (app.metadata.clone(), asker.project.id, asker.user.id);
        let patch = FlagPatch { deleted: Some(true), ..FlagPatch::default() };
        let write = async move { metadata.update_flag(project, user, FlagId(id), patch).await };
        match store::attempt(app, "delete-flag", write).await? {
            Ok(_) => deleted.push(json!({
                "id": id,
                "key": flag.key,
                "rollout_state": rollout_state(flag),
                "active_variant": active_variant(flag),
            })),
            Err(error) => {
                errors.push(json!({"id": id, "key": flag.key, "reason": error.to_string()}));
            }
        }
    }
    Ok(Response::json(StatusCode::OK, &json!({"deleted": deleted, "errors": errors})))
}

/// The variant that everybody gets, of a flag that everybody has.
fn active_variant(flag: &StoredFlag) -> Option<&str> {
    let variants = flag.filters.pointer("/multivariate/variants")?.as_array()?;
    let has_all =
        |variant: &&Value| variant.get("rollout_percentage").and_then(Value::as_f64) == Some(100.0);
    variants.iter().find(has_all)?.get("key")?.as_str().filter(|_| Rollout::of(flag).is_full)
}

fn rollout_state(flag: &StoredFlag) -> &'static str {
    match Rollout::of(flag) {
        rollout if rollout.is_full => "fully_rolled_out",
        rollout if rollout.max == 0.0 || !flag.active => "not_rolled_out",
        _ => "partial",
    }
}

/// `POST feature_flags/bulk_update_tags/` with `ids`, `action` (`add`, `remove` or `set`) and `tags`: of
/// all that the asker may change, in one transaction; the others are told.
pub async fn bulk_update_tags(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let mut fields = Fields::read(request).await?;
    fields.require("ids")?;
    let ids = fields.ids("ids")?.unwrap_or_default();
    check_count(ids.len())?;
    let change = tag_change(&mut fields)?;
    let mut wanted: Vec<FlagId> = Vec::with_capacity(ids.len());
    for id in ids.into_iter().map(FlagId) {
        if !wanted.contains(&id) {
            wanted.push(id);
        }
    }
    let (metadata, project, user) = (app.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.change_tags(project, user, &wanted, change).await };
    let tagged = store::write(app, "change-tags", write).await?;
    let updated = tagged.flags.iter().map(|flag| json!({"id": flag.id.0, "tags": flag.tags}));
    let updated: Vec<Value> = updated.collect();
    let skipped = tagged.skipped.iter();
    let skipped: Vec<Value> =
        skipped.map(|(id, reason)| json!({"id": id.0, "reason": reason})).collect();
    Ok(Response::json(StatusCode::OK, &json!({"updated": updated, "skipped": skipped})))
}

/// Refuses a list of ids that is empty or too long.
pub(in crate::http::routes) fn check_count(ids: usize) -> Result<(), Problem> {
    if ids == 0 {
        return Err(refused("ids", "empty", "This list may not be empty."));
    }
    if ids > TAGGED_MAX {
        let detail = format!("Ensure this field has no more than {TAGGED_MAX} elements.");
        return Err(refused("ids", "max_length", detail));
    }
    Ok(())
}

/// What `action` and `tags` of a body say.
pub(in crate::http::routes) fn tag_change(fields: &mut Fields) -> Result<TagChange, Problem> {
    fields.require("action")?;
    if fields.peek("action").is_some_and(Value::is_null) {
        return Err(refused("action", "null", "This field may not be null."));
    }
    let action = fields.nullable_choice("action", &["add", "remove", "set"])?.flatten();
    let action = action.unwrap_or_default();
    fields.require("tags")?;
    let tags = fields.texts("tags")?.unwrap_or_default();
    if tags.is_empty() && action != "set" {
        let detail = format!("tags must not be empty for action '{action}'.");
        return Err(refused("tags", "invalid_input", detail));
    }
    Ok(match action.as_str() {
        "add" => TagChange::Add(tags),
        "remove" => TagChange::Remove(tags),
        _ => TagChange::Set(tags),
    })
}
