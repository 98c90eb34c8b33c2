//! Stored feature flags, and what is written of them. The rules for their fields are in `flag_rules`, creating and
//! changing them in `operations`; evaluation is not here.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::accounts::UserId;
use crate::activity;
use crate::activity::{Change, Scope, Verb};
use crate::flags::plain::{PlainFields, PlainPatch};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

mod locking;
mod operations;
pub mod plain;
pub(super) mod rows;
pub mod tags;

/// The id of a flag. Positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlagId(pub i64);

impl fmt::Display for FlagId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A feature flag as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFlag {
    /// The id.
    pub id: FlagId,
    /// The project that it belongs to.
    pub project: ProjectId,
    /// Its description; the API calls it `name`.
    pub name: String,
    /// The name that SDKs use.
    pub key: String,
    /// Release conditions, variants and payloads; `flag_rules` describes the shape. Always has
    /// `groups`. Payloads are strings of JSON.
    pub filters: Value,
    /// Whether it is evaluated.
    pub active: bool,
    /// Whether it was deleted; it can be restored.
    pub deleted: bool,
    /// The user who created it.
    pub created_by: Option<UserId>,
    /// Time of creation; the client may set it.
    pub created_at: UnixMicros,
    /// Time of the last change.
    pub updated_at: UnixMicros,
    /// 1 at creation, plus 1 with every update.
    pub version: i64,
    /// The dashboard of its usage.
    pub usage_dashboard: Option<i64>,
    /// Everything else about it.
    pub plain: PlainFields,
    /// The user of the last change.
    pub last_modified_by: Option<UserId>,
}

impl StoredFlag {
    /// A flag for tests: active for every person.
    #[cfg(test)]
    pub(crate) fn sample(id: i64, key: &str) -> Self {
        Self {
            id: FlagId(id),
            project: ProjectId(1),
            name: String::new(),
            key: key.to_owned(),
            filters: json!({"groups": [{"properties": [], "rollout_percentage": null}]}),
            active: true,
            deleted: false,
            created_by: None,
            created_at: UnixMicros(0),
            updated_at: UnixMicros(0),
            version: 1,
            usage_dashboard: None,
            plain: PlainFields::default(),
            last_modified_by: None,
        }
    }

    /// The fields that the activity log compares.
    pub fn logged(&self) -> Map<String, Value> {
        let mut fields = activity::fields(json!({
            "name": self.name,
            "key": self.key,
            "filters": self.filters,
            "active": self.active,
            "deleted": self.deleted,
            "usage_dashboard": self.usage_dashboard,
        }));
        fields.extend(self.plain.entries().map(|(name, value)| (name.to_owned(), value)));
        fields
    }

    pub(super) fn change(&self, verb: Verb, fields: Vec<Value>) -> Change {
        let (item, name) = (self.id.to_string(), self.key.clone());
        Change { scope: Scope::FeatureFlag, item, verb, name, fields }
    }

    /// Whether it has one condition without properties, for persons.
    pub fn is_simple(&self) -> bool {
        is_simple(&self.filters)
    }

    /// The percentage of a simple flag's condition, as stored: a number, or null for everyone. Null
    /// for flags that are not simple.
    pub fn rollout_percentage(&self) -> &Value {
        let percentage = self.filters.pointer("/groups/0/rollout_percentage");
        percentage.filter(|_| self.is_simple()).unwrap_or(&Value::Null)
    }
}

/// A client's data for a new flag.
#[derive(Clone, Debug, Default)]
pub struct NewFlag {
    /// The description.
    pub name: String,
    /// The key; required.
    pub key: String,
    /// `None`, or an empty object, for a flag that matches everyone.
    pub filters: Option<Value>,
    /// `None` for true.
    pub active: Option<bool>,
    /// Whether to create it deleted.
    pub deleted: bool,
    /// `None` for now.
    pub created_at: Option<UnixMicros>,
    /// The other fields; `None` for their defaults.
    pub plain: PlainPatch,
}

/// Changes to a flag; `None` leaves a field unchanged, `Some(None)` empties it.
#[derive(Clone, Debug, Default)]
pub struct FlagPatch {
    /// Another description.
    pub name: Option<String>,
    /// Another key.
    pub key: Option<String>,
    /// Filters to merge over the stored ones: keys that they lack stay unchanged.
    pub filters: Option<Value>,
    /// Whether `filters` replace the stored ones instead.
    pub replaces_filters: bool,
    /// Activates or deactivates the flag.
    pub active: Option<bool>,
    /// Deletes or restores the flag.
    pub deleted: Option<bool>,
    /// Another time of creation.
    pub created_at: Option<UnixMicros>,
    /// Another dashboard of its usage; set by the server, not by clients.
    pub usage_dashboard: Option<Option<i64>>,
    /// The other fields.
    pub plain: PlainPatch,
    /// The state of the flag that the client saw before the change.
    pub seen: Option<Seen>,
    /// The version that the change applies to: with any other it is a conflict.
    pub only_version: Option<i64>,
}

/// The state of a flag that a client saw before its change.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its version.
    pub version: i64,
    /// Its fields as the API shows them, if the client sends them.
    pub fields: Option<Map<String, Value>>,
}

/// A flag before and after an update; the activity log shows the difference.
#[derive(Clone, Debug)]
pub struct FlagUpdate {
    /// Before the update.
    pub before: Arc<StoredFlag>,
    /// After the update.
    pub after: Arc<StoredFlag>,
}

/// Whether a flag has one condition without properties, for persons.
pub(super) fn is_simple(filters: &Value) -> bool {
    let is_about_persons = filters.get("aggregation_group_type_index").is_none_or(Value::is_null);
    let groups = filters.get("groups").and_then(Value::as_array).map(Vec::as_slice);
    let [group] = groups.unwrap_or_default() else {
        return false;
    };
    let properties = group.get("properties").and_then(Value::as_array);
    is_about_persons && properties.is_none_or(Vec::is_empty)
}
