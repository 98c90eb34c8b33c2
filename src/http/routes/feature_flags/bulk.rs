//! Bulk operations on flags: their keys, the ids of a list, deletion, tags.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, check_length, refused};
use crate::openapi::{Description, INVALID, Parameter, REFUSED, by_hand};
use crate::response::{Problem, Response};
use crate::routes::feature_flags::filter;
use crate::routes::feature_flags::filter::Wanted;
use crate::routes::feature_flags::status::Rollout;
use crate::routes::store;
use weir_app::App;
use weir_base::error::Kind;
use weir_metadata::flags::tags::TagChange;
use weir_metadata::flags::{FlagId, FlagPatch, StoredFlag};

/// Most flags whose keys one request asks for.
const NAMED_MAX: usize = 10_000;

/// Most flags that one request may delete.
const DELETED_MAX: usize = 10_000;

/// Most flags or definitions of other bulk changes; PostHog's number.
const TAGGED_MAX: usize = 500;

pub(crate) const BULK_KEYS: Description =
    Description::ok::<by_hand::FeatureFlagsBulkKeysCreateAnswer>("The keys of some flags")
        .says("By their ids")
        .body::<by_hand::FeatureFlagsBulkKeysCreateBody>()
        .or(&[REFUSED]);

/// `POST feature_flags/bulk_keys/` with `ids`. Invalid ids are reported and ignored.
pub async fn bulk_keys(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let mut fields = Fields::read(request).await?;
    let given = match fields.nullable_value("ids").flatten() {
        Some(Value::Array(given)) => given,
        _ => Vec::new(),
    };
    check_length("ids", given.len(), NAMED_MAX)?;
    let (ids, wrong): (Vec<&Value>, Vec<&Value>) = given.iter().partition(|id| id_of(id).is_some());
    if ids.is_empty() && !wrong.is_empty() {
        return Ok(short_error("Invalid flag IDs provided"));
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

/// An error in PostHog's short format.
fn short_error(error: &str) -> Response {
    Response::json(StatusCode::BAD_REQUEST, &json!({"error": error}))
}

/// The id of a flag, as a number or text of digits.
fn id_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().filter(|id| *id >= 0),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

pub(crate) const MATCHING_IDS: Description =
    Description::ok::<by_hand::FeatureFlagsMatchingIdsRetrieveAnswer>("The ids of the whole list")
        .query(&[
            Parameter::one_of("active", &["true", "false", "STALE"]),
            Parameter::one_of("archived", &["true", "false"]),
            Parameter::text("created_by_id").about("An id, or a list"),
            Parameter::shared("search"),
            Parameter::text("key"),
            Parameter::one_of("type", &["boolean", "multivariant", "remote_config", "experiment"]),
            Parameter::one_of("evaluation_runtime", &["server", "client", "all"]),
            Parameter::text("tags").about("A JSON list"),
            Parameter::text("excluded_tags").about("A JSON list"),
            Parameter::text("excluded_properties").about("A JSON list of keys of flags"),
            Parameter::one_of("has_evaluation_contexts", &["true", "false"]),
            Parameter::one_of("eligible_for_experiment", &["true", "false"])
                .about("Only flags of two variants or more, control first"),
            Parameter::text("order").about("Such as -created_at"),
        ])
        .or(&[INVALID]);

/// `GET feature_flags/matching_ids/`: the ids of all flags that match a query of the list and that the
/// caller may change.
pub async fn matching_ids(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let wanted = Wanted::of_request(app, &asker, &request).await?;
    let flags = snapshot.flags(asker.project.id).iter();
    let flags = flags.filter(|flag| wanted.includes(flag) && snapshot.may_edit(&asker.user, flag));
    let ids: Vec<i64> = flags.map(|flag| flag.id.0).collect();
    Ok(Response::json(StatusCode::OK, &json!({"ids": ids, "total": ids.len()})))
}

pub(crate) const BULK_DELETE: Description =
    Description::ok::<by_hand::BulkDeleted>("Delete many flags")
        .says("What was deleted")
        .body::<by_hand::BulkDelete>()
        .or(&[REFUSED]);

/// `POST feature_flags/bulk_delete/` with `ids`, or with `filters` similar to those of the list. Empty
/// values count as absent.
pub async fn bulk_delete(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    let Call { asker, request, .. } = call;
    let snapshot = app.node.metadata.snapshot();
    let mut fields = Fields::read(request).await?;
    let is_given = |fields: &Fields, name: &str| fields.peek(name).is_some_and(|it| !it.is_null());
    let ids = if is_given(&fields, "ids") { fields.ids_within("ids", usize::MAX)? } else { None };
    let filters = if is_given(&fields, "filters") { fields.object("filters")? } else { None };
    let ids = ids.filter(|ids| !ids.is_empty());
    let filters = filters.filter(|filters| !filters.is_empty());
    let mut ids: Vec<i64> = match (ids, filters) {
        (Some(_), Some(_)) => return Ok(short_error("Provide either filters or ids, not both")),
        (None, None) => return Ok(short_error("Must provide either filters or ids")),
        (Some(ids), None) => ids,
        (None, Some(filters)) => {
            let unknown = filter::unknown_names(&filters);
            if !unknown.is_empty() {
                return Ok(short_error(&format!("Unknown filter keys: {}", unknown.join(", "))));
            }
            let wanted = Wanted::of_filters(app, &asker, &filters).await?;
            let flags = snapshot.flags(asker.project.id).iter();
            flags.filter(|flag| wanted.includes(flag)).map(|flag| flag.id.0).collect()
        }
    };
    if ids.len() > DELETED_MAX {
        let detail = format!("At most {DELETED_MAX} flags can be deleted at once.");
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    let mut seen = HashSet::with_capacity(ids.len());
    ids.retain(|id| seen.insert(*id));
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    let flags = snapshot.flags(asker.project.id).iter();
    let flags: HashMap<i64, &Arc<StoredFlag>> = flags.map(|flag| (flag.id.0, flag)).collect();
    for id in ids {
        let Some(flag) = flags.get(&id) else {
            errors.push(json!({"id": id, "reason": "Flag not found"}));
            continue;
        };
        let (metadata, project, user) =
            (app.node.metadata.clone(), asker.project.id, asker.user.id);
        let patch = FlagPatch { deleted: Some(true), ..FlagPatch::default() };
        let write = async move { metadata.update_flag(project, user, FlagId(id), patch).await };
        match store::attempt(app, "delete-flag", write).await? {
            Ok(_) => {
                let rollout = Rollout::of(flag);
                deleted.push(json!({
                    "id": id,
                    "key": flag.key,
                    "rollout_state": rollout_state(&rollout),
                    "active_variant": rollout.variant,
                }));
            }
            Err(error) => {
                errors.push(json!({"id": id, "key": flag.key, "reason": error.to_string()}));
            }
        }
    }
    Ok(Response::json(StatusCode::OK, &json!({"deleted": deleted, "errors": errors})))
}

fn rollout_state(rollout: &Rollout<'_>) -> &'static str {
    match rollout.max {
        _ if rollout.is_full => "fully_rolled_out",
        Some(max) if max > 0.0 => "partial",
        _ => "not_rolled_out",
    }
}

pub(crate) const BULK_UPDATE_TAGS: Description =
    Description::ok::<by_hand::BulkTagged>("Change the tags of many flags")
        .says("What was changed")
        .body::<by_hand::BulkTags>();

/// `POST feature_flags/bulk_update_tags/` with `ids`, `action` (`add`, `remove` or `set`) and `tags`:
/// changes all flags that the caller may change, in one transaction, and reports the others.
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
    let (metadata, project, user) = (app.node.metadata.clone(), asker.project.id, asker.user.id);
    let write = async move { metadata.change_tags(project, user, &wanted, change).await };
    let tagged = store::write(app, "change-tags", write).await?;
    let updated = tagged.flags.iter().map(|flag| json!({"id": flag.id.0, "tags": flag.plain.tags}));
    let updated: Vec<Value> = updated.collect();
    let skipped = tagged.skipped.iter();
    let skipped: Vec<Value> =
        skipped.map(|(id, reason)| json!({"id": id.0, "reason": reason})).collect();
    Ok(Response::json(StatusCode::OK, &json!({"updated": updated, "skipped": skipped})))
}

/// An error for a list of ids that is empty or too long.
pub(in crate::routes) fn check_count(ids: usize) -> Result<(), Problem> {
    if ids == 0 {
        return Err(refused("ids", "empty", "This list may not be empty."));
    }
    if ids > TAGGED_MAX {
        let detail = format!("Ensure this field has no more than {TAGGED_MAX} elements.");
        return Err(refused("ids", "max_length", detail));
    }
    Ok(())
}

/// The change in `action` and `tags` of a body.
pub(in crate::routes) fn tag_change(fields: &mut Fields) -> Result<TagChange, Problem> {
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
