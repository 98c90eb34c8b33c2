//! Rollout of a flag without sending its filters: the percentage of one condition, or a rollout to all persons. Both
//! require the version of the flag that the caller has seen, and change nothing else.

use serde_json::{Map, Number, Value, json};

use crate::auth::Principal;
use crate::body::{Exact, Field, Later, body};
use crate::fields::{Fields, null, refused};
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::feature_flags::status::Calls;
use crate::routes::feature_flags::{changed, find, shown, unsuccessful};
use crate::routes::store::problem;
use weir_api::flags as api;
use weir_metadata::error::MetadataError;
use weir_metadata::flag_rights::NO_EDITOR;
use weir_metadata::flags::FlagPatch;

input! {
    /// Changes the percentage of one condition.
    pub struct SetCondition {
        path id: i64,
        body rollout: ConditionRollout,
    }
}

impl Operation for SetCondition {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let ConditionRollout { condition_index, rollout_percentage, version } = self.rollout;
        roll_out(cx, self.id, version, |filters| {
            let index = condition_index.0?;
            with_percentage(filters, index.0, rollout_percentage.0?.0)
        })
        .await
    }
}

input! {
    /// Puts a condition for everybody before the others.
    pub struct Open {
        path id: i64,
        body rollout: FullRollout,
    }
}

impl Operation for Open {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let FullRollout { variant_key, version } = self.rollout;
        roll_out(cx, self.id, version, |filters| {
            let variant = variant_key.0?.map(|variant| variant.0);
            for_everyone(filters, variant.as_deref())
        })
        .await
    }
}

body! {
    /// Another percentage of a condition.
    pub struct ConditionRollout {
        /// Which condition, from 0
        condition_index: Later<ConditionIndex>,
        /// Its new percentage
        rollout_percentage: Later<Percentage>,
        /// That the caller has seen
        version: Later<SeenVersion>,
    }
}

body! {
    /// A rollout to everybody.
    pub struct FullRollout {
        /// The variant for everybody; required if there are variants
        variant_key: Later<Option<Exact>>,
        /// That the caller has seen
        version: Later<SeenVersion>,
    }
}

/// Changes the filters of a flag. Unchanged filters are not written.
async fn roll_out(
    cx: &Context<Principal>,
    id: i64,
    version: Later<SeenVersion>,
    change_of: impl FnOnce(&Value) -> Result<Value, Problem>,
) -> Result<api::Flag, Problem> {
    let flag = find(cx, id).await?;
    if !cx.snapshot().may_edit(&cx.who.user, &flag) {
        return Err(problem(MetadataError::Forbidden(NO_EDITOR)));
    }
    let SeenVersion(version) = version.0?;
    if flag.deleted {
        let error = "This feature flag has been deleted. Restore it before rolling it out.";
        return Err(unsuccessful(error));
    }
    if version != flag.version {
        return Err(problem(MetadataError::changed_since(version)));
    }
    let filters = change_of(&flag.filters)?;
    if filters == flag.filters {
        let calls = Calls::of_flag(&cx.app, flag.id).await?;
        return Ok(shown(cx, &flag, &calls));
    }
    let patch = FlagPatch {
        filters: Some(filters),
        replaces_filters: true,
        only_version: Some(version),
        ..FlagPatch::default()
    };
    changed(cx, &flag, patch).await
}

/// The version of a flag that the caller has seen.
#[derive(Clone, Copy, Debug)]
pub struct SeenVersion(i64);

impl Field for SeenVersion {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        integer(fields, name).map(Self)
    }

    fn schema() -> Value {
        json!({"type": "integer"})
    }
}

/// Index of a condition of a flag, from 0 on.
#[derive(Clone, Copy, Debug)]
pub struct ConditionIndex(usize);

impl Field for ConditionIndex {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        usize::try_from(integer(fields, name)?).map(Self).map_err(|_| {
            let detail = "Ensure this value is greater than or equal to 0.";
            refused(name, "min_value", detail)
        })
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }
}

fn integer(fields: &mut Fields, name: &'static str) -> Result<i64, Problem> {
    fields.require(name)?;
    let number = fields.nullable_integer(name)?.flatten();
    number.ok_or_else(|| null(name))
}

/// A percentage, as a number or a text.
#[derive(Debug)]
pub struct Percentage(Number);

impl Field for Percentage {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let number = match fields.value(name)? {
            Some(Value::Number(number)) => Some(number),
            Some(Value::String(text)) => {
                let float = || text.trim().parse().ok().and_then(Number::from_f64);
                text.trim().parse::<i64>().ok().map(Number::from).or_else(float)
            }
            _ => None,
        };
        let wrong = || refused(name, "invalid_input", "A valid number is required.");
        let number = number.ok_or_else(wrong)?;
        let value = number.as_f64().ok_or_else(wrong)?;
        let bound = |word: &str, limit: u8| {
            format!("Ensure this value is {word} than or equal to {limit}.")
        };
        if value < 0.0 {
            return Err(refused(name, "min_value", bound("greater", 0)));
        }
        if value > 100.0 {
            return Err(refused(name, "max_value", bound("less", 100)));
        }
        Ok(Self(number))
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0, "maximum": 100})
    }
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

/// The filters with a first condition that matches all persons, and with all of them in one variant.
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
