//! Bulk operations on flags: their keys, the ids of a list, deletion, tags.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::body::{Field, body};
use crate::fields::{Fields, check_length, empty, null, refused};
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::feature_flags::filter::{Filters, Wanted};
use crate::routes::feature_flags::status::Rollout;
use crate::routes::feature_flags::{filter, short_error};
use crate::routes::store;
use weir_api::flags as api;
use weir_base::error::Kind;
use weir_metadata::Metadata;
use weir_metadata::flags::tags::TagChange;
use weir_metadata::flags::{FlagId, FlagPatch, StoredFlag};

/// Most flags whose keys one request reads.
const NAMED_MAX: usize = 10_000;

/// Most flags that one request may delete.
const DELETED_MAX: usize = 10_000;

/// Most flags or definitions of other bulk changes; PostHog's number.
const TAGGED_MAX: usize = 500;

input! {
    /// The keys of some flags. Invalid ids are reported and ignored.
    pub struct Keys {
        body flags: FlagKeysQuestion,
    }
}

body! {
    /// Flags whose keys are asked for.
    pub struct FlagKeysQuestion {
        /// Their ids
        ids: Option<Option<Value>> = {"type": "array", "items": {"type": "integer"}},
    }
}

impl Operation for Keys {
    type Who = Principal;
    type Out = api::FlagKeys;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let given = match self.flags.ids.flatten() {
            Some(Value::Array(given)) => given,
            _ => Vec::new(),
        };
        check_length("ids", given.len(), NAMED_MAX)?;
        let (ids, wrong): (Vec<&Value>, Vec<&Value>) =
            given.iter().partition(|id| id_of(id).is_some());
        if ids.is_empty() && !wrong.is_empty() {
            return Err(short_error("Invalid flag IDs provided"));
        }
        let ids: HashSet<i64> = ids.into_iter().filter_map(id_of).collect();
        let snapshot = cx.snapshot();
        let flags = snapshot.flags(cx.who.project.id).iter();
        let found = flags.filter(|flag| ids.contains(&flag.id.0));
        let keys = found.map(|flag| (flag.id.to_string(), flag.key.clone())).collect();
        let warning = (!wrong.is_empty()).then(|| {
            let wrong = Value::from_iter(wrong.into_iter().cloned());
            format!("Invalid flag IDs ignored: {wrong}")
        });
        Ok(api::FlagKeys { keys, warning })
    }
}

/// The id of a flag, as a number or text of digits.
fn id_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().filter(|id| *id >= 0),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

input! {
    /// The ids of all flags that match a query of the list and that the caller may change.
    pub struct MatchingIds {
        query filters: Filters,
        /// Such as -created_at
        query order: Option<String>,
    }
}

impl Operation for MatchingIds {
    type Who = Principal;
    type Out = api::FlagIds;
    const SCOPE: &'static str = "feature_flag:read";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let wanted = Wanted::of_query(cx, &self.filters).await?;
        let flags = snapshot.flags(cx.who.project.id).iter();
        let may_edit = |flag: &&Arc<StoredFlag>| snapshot.may_edit(&cx.who.user, flag);
        let flags = flags.filter(|flag| wanted.includes(flag)).filter(may_edit);
        let ids: Vec<i64> = flags.map(|flag| flag.id.0).collect();
        Ok(api::FlagIds { total: ids.len(), ids })
    }
}

input! {
    /// Deletes many flags: those with `ids`, or those that match `filters` similar to those of the list.
    pub struct Delete {
        body flags: BulkDelete,
    }
}

body! {
    /// Flags to delete.
    pub struct BulkDelete {
        /// Either these, or filters that say something; what is empty is as if it were not there
        ids: Option<GivenIds>,
        /// Those of the list
        filters: Option<GivenFilters>,
    }
}

/// Ids of flags; null counts as absent.
#[derive(Debug)]
pub struct GivenIds(Vec<i64>);

impl Field for Option<GivenIds> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        if fields.peek(name).is_none_or(Value::is_null) {
            return Ok(None);
        }
        Ok(fields.ids_within(name, usize::MAX)?.map(GivenIds))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "integer"}})
    }
}

/// Filters of flags; null counts as absent.
#[derive(Debug)]
pub struct GivenFilters(Map<String, Value>);

impl Field for Option<GivenFilters> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        if fields.peek(name).is_none_or(Value::is_null) {
            return Ok(None);
        }
        Ok(fields.object(name)?.map(GivenFilters))
    }

    fn schema() -> Value {
        let is = json!(["true", "false", true, false]);
        let list = json!({"type": ["array", "string"]});
        let kinds = ["boolean", "multivariant", "remote_config", "experiment"];
        let properties = json!({
            "active": {"enum": ["true", "false", "STALE", true, false]},
            "archived": {"enum": is},
            "created_by_id": {"type": ["integer", "string", "array"]},
            "search": {"type": "string", "minLength": 1},
            "type": {"type": "string", "enum": kinds},
            "evaluation_runtime": {"type": "string", "enum": ["server", "client", "all"]},
            "tags": list,
            "excluded_tags": list,
            "excluded_properties": {"type": ["array", "string"], "description": "Keys of flags"},
            "has_evaluation_contexts": {"enum": is},
        });
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    }
}

impl Operation for Delete {
    type Who = Principal;
    type Out = api::BulkDeleted;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let snapshot = cx.snapshot();
        let (project, user) = (cx.who.project.id, cx.user());
        let ids = chosen(cx, self.flags).await?;
        let flags = snapshot.flags(project).iter();
        let flags: HashMap<i64, &Arc<StoredFlag>> = flags.map(|flag| (flag.id.0, flag)).collect();
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for id in ids {
            let Some(flag) = flags.get(&id) else {
                errors.push(api::KeptFlag { id, key: None, reason: "Flag not found".to_owned() });
                continue;
            };
            let metadata = cx.metadata().clone();
            let patch = FlagPatch { deleted: Some(true), ..FlagPatch::default() };
            let write = async move { metadata.update_flag(project, user, FlagId(id), patch).await };
            let key = flag.key.clone();
            match store::attempt(&cx.app, "delete-flag", write).await? {
                Ok(_) => {
                    let rollout = Rollout::of(flag);
                    let active_variant = rollout.variant.map(str::to_owned);
                    let rollout_state = rollout_state(&rollout).to_owned();
                    deleted.push(api::DeletedFlag { active_variant, id, key, rollout_state });
                }
                Err(error) => {
                    let (key, reason) = (Some(key), error.to_string());
                    errors.push(api::KeptFlag { id, key, reason });
                }
            }
        }
        Ok(api::BulkDeleted { deleted, errors })
    }
}

/// The ids of the flags to delete, without duplicates. Empty values count as absent.
async fn chosen(cx: &Context<Principal>, flags: BulkDelete) -> Result<Vec<i64>, Problem> {
    let ids = flags.ids.map(|ids| ids.0).filter(|ids| !ids.is_empty());
    let filters = flags.filters.map(|filters| filters.0).filter(|filters| !filters.is_empty());
    let mut ids: Vec<i64> = match (ids, filters) {
        (Some(_), Some(_)) => return Err(short_error("Provide either filters or ids, not both")),
        (None, None) => return Err(short_error("Must provide either filters or ids")),
        (Some(ids), None) => ids,
        (None, Some(filters)) => {
            let unknown = filter::unknown_names(&filters);
            if !unknown.is_empty() {
                let error = format!("Unknown filter keys: {}", unknown.join(", "));
                return Err(short_error(&error));
            }
            let snapshot = cx.snapshot();
            let wanted = Wanted::of_filters(cx, &filters).await?;
            let flags = snapshot.flags(cx.who.project.id).iter();
            flags.filter(|flag| wanted.includes(flag)).map(|flag| flag.id.0).collect()
        }
    };
    if ids.len() > DELETED_MAX {
        let detail = format!("At most {DELETED_MAX} flags can be deleted at once.");
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    let mut seen = HashSet::with_capacity(ids.len());
    ids.retain(|id| seen.insert(*id));
    Ok(ids)
}

fn rollout_state(rollout: &Rollout<'_>) -> &'static str {
    match rollout.max {
        _ if rollout.is_full => "fully_rolled_out",
        Some(max) if max > 0.0 => "partial",
        _ => "not_rolled_out",
    }
}

input! {
    /// Changes the tags of all given flags that the caller may change, in one transaction, and reports the others.
    pub struct UpdateTags {
        body change: BulkTags,
    }
}

body! {
    /// A change of the tags of many flags.
    pub struct BulkTags {
        /// Those that get other tags
        ids: TaggedIds,
        /// What is done with the tags
        action: TagAction,
        /// Empty only to be set
        tags: Tags,
    }
}

impl Operation for UpdateTags {
    type Who = Principal;
    type Out = api::BulkTagged;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let BulkTags { ids, action, tags } = self.change;
        let change = action.of(tags)?;
        let mut wanted: Vec<FlagId> = Vec::with_capacity(ids.0.len());
        for id in ids.0.into_iter().map(FlagId) {
            if !wanted.contains(&id) {
                wanted.push(id);
            }
        }
        let (project, user) = (cx.who.project.id, cx.user());
        let write = |metadata: Metadata| async move {
            metadata.change_tags(project, user, &wanted, change).await
        };
        let tagged = cx.write("change-tags", write).await?;
        let updated = tagged.flags.iter();
        let updated = updated
            .map(|flag| api::TaggedFlag { id: flag.id.0, tags: flag.plain.tags.clone() })
            .collect();
        let skipped = tagged.skipped.into_iter();
        let skipped = skipped.map(|(id, reason)| api::SkippedFlag { id: id.0, reason }).collect();
        Ok(api::BulkTagged { skipped, updated })
    }
}

/// The ids of flags whose tags change.
#[derive(Debug)]
pub struct TaggedIds(Vec<i64>);

impl Field for TaggedIds {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let ids = fields.ids(name)?.unwrap_or_default();
        check_count(ids.len())?;
        Ok(Self(ids))
    }

    fn schema() -> Value {
        let items = json!({"type": "integer"});
        json!({"type": "array", "items": items, "minItems": 1, "maxItems": TAGGED_MAX})
    }
}

/// An error for a list of ids that is empty or too long.
pub(in crate::routes) fn check_count(ids: usize) -> Result<(), Problem> {
    if ids == 0 {
        return Err(empty("ids"));
    }
    check_length("ids", ids, TAGGED_MAX)
}

/// Action on tags: `add`, `remove` or `set`.
#[derive(Debug)]
pub struct TagAction(String);

impl TagAction {
    /// The change of tags that this action makes with these tags.
    fn of(self, Tags(tags): Tags) -> Result<TagChange, Problem> {
        let Self(action) = self;
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
}

impl Field for TagAction {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        let action = fields.nullable_choice(name, &["add", "remove", "set"])?.flatten();
        action.map(Self).ok_or_else(|| null(name))
    }

    fn schema() -> Value {
        json!({"type": "string", "enum": ["add", "remove", "set"]})
    }
}

/// Tags.
#[derive(Debug)]
pub struct Tags(Vec<String>);

impl Field for Tags {
    const IS_REQUIRED: bool = true;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        fields.require(name)?;
        Ok(Self(fields.texts(name)?.unwrap_or_default()))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string"}})
    }
}
