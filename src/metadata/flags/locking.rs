//! Changes that meet: a client that says which version it saw does not overwrite what somebody else
//! changed since. Also the one rule that ties two fields of a flag together.

use serde_json::Map;
use serde_json::Value;

use crate::metadata::MetadataError;
use crate::metadata::flag_rules;
use crate::metadata::flag_rules::Violation;
use crate::metadata::flags::FlagPatch;
use crate::metadata::flags::StoredFlag;
use crate::metadata::snapshot::Snapshot;

/// Checks that nobody changed since what the patch changes.
pub(super) fn check(
    stored: &StoredFlag,
    patch: &FlagPatch,
    base: &Snapshot,
) -> Result<(), MetadataError> {
    let Some(seen) = patch.seen.as_ref().filter(|seen| seen.version < stored.version) else {
        return Ok(());
    };
    let (now, wanted) = (stored.logged(), wanted(stored, patch));
    let is_conflict = |(name, wanted): (&String, &Value)| {
        let current = now.get(name).unwrap_or(&Value::Null);
        let original = seen.fields.as_ref().and_then(|fields| fields.get(name));
        current != wanted && original.is_none_or(|original| original != current)
    };
    if !wanted.iter().any(is_conflict) {
        return Ok(());
    }
    let user = stored.last_modified_by.and_then(|user| base.user(user));
    let who = user.map_or("another user", |user| user.email.as_str());
    Err(MetadataError::Conflict(format!(
        "The feature flag was updated by {who} since you started editing it. Please refresh and \
         try again."
    )))
}

/// The fields that the patch names, as they would become.
fn wanted(stored: &StoredFlag, patch: &FlagPatch) -> Map<String, Value> {
    let mut wanted = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            wanted.insert(name.to_owned(), value);
        }
    };
    put("name", patch.name.clone().map(Value::from));
    put("key", patch.key.clone().map(Value::from));
    let filters = patch.filters.clone();
    put("filters", filters.map(|filters| flag_rules::updated(&stored.filters, filters)));
    put("active", patch.active.map(Value::from));
    put("deleted", patch.deleted.map(Value::from));
    let continuity = patch.ensure_experience_continuity;
    put("ensure_experience_continuity", continuity.map(Value::from));
    put("rollback_conditions", patch.rollback_conditions.clone().map(Value::from));
    put("tags", patch.tags.clone().map(Value::from));
    wanted
}

/// A flag that hashes devices has nothing to keep across a login.
pub(super) fn check_bucketing(bucketing: Option<&str>, continuity: bool) -> Result<(), Violation> {
    if bucketing != Some("device_id") || !continuity {
        return Ok(());
    }
    let detail = "Cannot use device_id bucketing with experience continuity: the two are \
                  incompatible.";
    Err(Violation::general(detail))
}
