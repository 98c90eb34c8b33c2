//! Rollout of a flag without sending its filters: the percentage of one condition, or a rollout to
//! everybody. Both require the version of the flag that the caller has seen, and change nothing else.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Number, Value, json};

use crate::auth::Principal;
use crate::call::Call;
use crate::fields::{Fields, refused};
use crate::openapi::{Description, by_hand};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::feature_flags::actions::unsuccessful;
use crate::routes::feature_flags::status::Calls;
use crate::routes::feature_flags::{change, find, shown};
use crate::routes::store::problem;
use weir_app::App;
use weir_metadata::error::MetadataError;
use weir_metadata::flag_rights::NO_EDITOR;
use weir_metadata::flags::{FlagPatch, StoredFlag};

pub(crate) const SET_CONDITION: Description =
    Description::ok::<by_hand::Flag>("Change the percentage of one condition")
        .body::<by_hand::FeatureFlagsSetReleaseConditionRolloutCreateBody>()
        .or(&[("400", "NotSwitched"), ("409", "Outdated")]);

/// `POST feature_flags/:id/set_release_condition_rollout/` with `condition_index`, `rollout_percentage`
/// and `version`.
pub async fn set_condition(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    roll_out(app, call, |fields, filters| {
        let index = integer(fields, "condition_index")?;
        let index = usize::try_from(index).map_err(|_| {
            let detail = "Ensure this value is greater than or equal to 0.";
            refused("condition_index", "min_value", detail)
        })?;
        with_percentage(filters, index, percentage(fields)?)
    })
    .await
}

pub(crate) const OPEN: Description =
    Description::ok::<by_hand::Flag>("Put a condition for everybody before the others")
        .body::<by_hand::FeatureFlagsRollOutToEveryoneCreateBody>()
        .or(&[("400", "NotSwitched"), ("409", "Outdated")]);

/// `POST feature_flags/:id/roll_out_to_everyone/` with `version`, and for a flag with variants
/// `variant_key`.
pub async fn open(app: &App, call: Call<Principal>) -> Result<Response, Problem> {
    roll_out(app, call, |fields, filters| {
        let variant = fields.exact_text_if_any("variant_key")?;
        for_everyone(filters, variant.as_deref())
    })
    .await
}

/// Changes the filters of the flag in the path. Unchanged filters are not written.
async fn roll_out(
    app: &App,
    call: Call<Principal>,
    change_of: impl Fn(&mut Fields, &Value) -> Result<Value, Problem>,
) -> Result<Response, Problem> {
    let flag = find(app, call.asker.project.id, call.id()).await?;
    let Call { asker, request, .. } = call;
    if !app.node.metadata.snapshot().may_edit(&asker.user, &flag) {
        return Err(problem(MetadataError::Forbidden(NO_EDITOR)));
    }
    let (version, filters) = read(request, &flag, change_of).await?;
    if flag.deleted {
        let error = "This feature flag has been deleted. Restore it before rolling it out.";
        return Ok(unsuccessful(error));
    }
    if version != flag.version {
        return Err(problem(MetadataError::changed_since(version)));
    }
    let filters = filters?;
    let calls = Calls::of_flag(app, flag.id).await?;
    let flag = match filters == flag.filters {
        true => flag,
        false => {
            let patch = FlagPatch {
                filters: Some(filters),
                replaces_filters: true,
                only_version: Some(version),
                ..FlagPatch::default()
            };
            change(app, &asker, flag.id, patch).await?
        }
    };
    Ok(shown(app, StatusCode::OK, &flag, &asker, &calls))
}

/// The version that the caller has seen, and the new filters or their error. An error of the version
/// takes precedence.
async fn read(
    request: Request,
    flag: &Arc<StoredFlag>,
    change_of: impl Fn(&mut Fields, &Value) -> Result<Value, Problem>,
) -> Result<(i64, Result<Value, Problem>), Problem> {
    let mut fields = Fields::read(request).await?;
    let version = integer(&mut fields, "version")?;
    Ok((version, change_of(&mut fields, &flag.filters)))
}

fn integer(fields: &mut Fields, name: &'static str) -> Result<i64, Problem> {
    fields.require(name)?;
    let number = fields.nullable_integer(name)?.flatten();
    number.ok_or_else(|| refused(name, "null", "This field may not be null."))
}

/// A percentage, as a number or a text.
fn percentage(fields: &mut Fields) -> Result<Number, Problem> {
    const NAME: &str = "rollout_percentage";
    fields.require(NAME)?;
    let number = match fields.value(NAME)? {
        Some(Value::Number(number)) => Some(number),
        Some(Value::String(text)) => {
            let float = || text.trim().parse().ok().and_then(Number::from_f64);
            text.trim().parse::<i64>().ok().map(Number::from).or_else(float)
        }
        _ => None,
    };
    let wrong = || refused(NAME, "invalid_input", "A valid number is required.");
    let number = number.ok_or_else(wrong)?;
    let value = number.as_f64().ok_or_else(wrong)?;
    let bound =
        |word: &str, limit: u8| format!("Ensure this value is {word} than or equal to {limit}.");
    if value < 0.0 {
        return Err(refused(NAME, "min_value", bound("greater", 0)));
    }
    if value > 100.0 {
        return Err(refused(NAME, "max_value", bound("less", 100)));
    }
    Ok(number)
}

/// The filters with another percentage in the condition at `index`.
fn with_percentage(filters: &Value, index: usize, percentage: Number) -> Result<Value, Problem> {
    let mut filters = filters.clone();
    let conditions = filters.get_mut("groups").and_then(Value::as_array_mut);
    let count = conditions.as_ref().map_or(0, |conditions| conditions.len());
    let condition = conditions.and_then(|conditions| conditions.get_mut(index)?.as_object_mut());
    let Some(condition) = condition else {
        let detail = match count {
            0 => "This feature flag has no release conditions.".to_owned(),
            _ => format!("This feature flag has no release condition {index}. It has {count}."),
        };
        return Err(refused("condition_index", "invalid_input", detail));
    };
    condition.insert("rollout_percentage".to_owned(), Value::Number(percentage));
    Ok(filters)
}

/// The filters with a first condition that matches everybody, and with everybody in one variant.
fn for_everyone(filters: &Value, variant: Option<&str>) -> Result<Value, Problem> {
    let mut filters = filters.as_object().cloned().unwrap_or_default();
    let variants = filters.get_mut("multivariate").and_then(|of| of.get_mut("variants"));
    let variants: &mut [Value] = match variants.and_then(Value::as_array_mut) {
        Some(variants) => variants,
        None => &mut [],
    };
    check_variant(variants, variant)?;
    for one in variants.iter_mut().filter_map(Value::as_object_mut) {
        let share = if key_of(one) == variant { 100 } else { 0 };
        one.insert("rollout_percentage".to_owned(), share.into());
    }
    let conditions = filters.entry("groups").or_insert_with(|| json!([]));
    if let Value::Array(conditions) = conditions
        && !conditions.first().is_some_and(is_for_everyone)
    {
        conditions.insert(0, json!({"properties": [], "rollout_percentage": 100}));
    }
    Ok(Value::Object(filters))
}

/// Checks that a variant is named if the flag has variants, and that it exists.
fn check_variant(variants: &[Value], wanted: Option<&str>) -> Result<(), Problem> {
    let keys = variants.iter().filter_map(Value::as_object).filter_map(key_of);
    let keys: Vec<&str> = keys.collect();
    let (code, detail) = match wanted {
        None if keys.is_empty() => return Ok(()),
        Some(wanted) if keys.contains(&wanted) => return Ok(()),
        None => {
            let keys = keys.join(", ");
            ("required", format!("Name the variant that everybody is to get: one of {keys}."))
        }
        Some(_) if keys.is_empty() => {
            ("invalid_input", "This feature flag has no variants.".to_owned())
        }
        Some(wanted) => {
            let keys = keys.join(", ");
            let detail = format!("This feature flag has no variant '{wanted}'. It has {keys}.");
            ("invalid_input", detail)
        }
    };
    Err(refused("variant_key", code, detail))
}

fn key_of(variant: &Map<String, Value>) -> Option<&str> {
    variant.get("key").and_then(Value::as_str)
}

/// Whether a condition has no filters, is rolled out to 100 % and does not fix the variant.
fn is_for_everyone(condition: &Value) -> bool {
    let is_empty = |name: &str| match condition.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    let percentage = condition.get("rollout_percentage").filter(|share| !share.is_null());
    let is_full = percentage.is_none_or(|share| share.as_f64().is_some_and(|share| share >= 100.0));
    is_full && is_empty("properties") && is_empty("variant")
}
