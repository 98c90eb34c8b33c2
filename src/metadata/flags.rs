//! Stored feature flags, and what is written of them. The rules for their fields are in `flag_rules`, creating and
//! changing them in `operations`; evaluation is not here.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::activity::{Logged, Scope, Subject};
use crate::entity::{Columns, entity, stored};
use crate::flags::plain::{PlainFields, PlainPatch};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

mod locking;
mod operations;
pub mod plain;
pub(super) mod rows;
pub mod tags;

/// The id of a flag. Positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlagId(pub i64);

impl fmt::Display for FlagId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

stored! { FlagId as i64: |id| id.0, |raw| Ok(Self(raw)); }

entity! {
    /// A feature flag as stored.
    #[derive(Default)]
    pub struct StoredFlag in "feature_flags" {
        /// The id.
        id: FlagId [key],
        /// The project that it belongs to.
        project: ProjectId as "project_id" [once],
        /// The user who created it.
        created_by: Option<UserId> [once],
        /// Time of the last change.
        updated_at: UnixMicros,
        /// 1 at creation, plus 1 with every update.
        version: i64,
        /// Everything else about it.
        plain: PlainFields as "body",
        /// The user of the last change.
        last_modified_by: Option<UserId>,
    }
    /// A client's data for a flag; `None` leaves a field unchanged, or a new flag with its default, and `Some(None)` empties it.
    pub struct FlagPatch: retain {
        /// Its description; the API calls it `name`.
        name: String [logged],
        /// The name that SDKs use.
        key: String [logged],
        /// Release conditions, variants and payloads; `flag_rules` describes the shape. Always has
        /// `groups`. Payloads are strings of JSON. Those of a patch are merged over the stored ones: keys that they
        /// lack stay unchanged.
        filters: Value [logged],
        /// Whether it is evaluated.
        active: bool [logged],
        /// Whether it was deleted; it can be restored.
        deleted: bool [logged],
        /// Time of creation; the client may set it.
        created_at: UnixMicros,
        /// The dashboard of its usage; set by the server, not by clients.
        usage_dashboard: Option<i64> [logged],
    }
    with {
        /// Whether `filters` replace the stored ones instead.
        replaces_filters: bool,
        /// The other fields.
        plain: PlainPatch,
        /// The state of the flag that the client saw before the change.
        seen: Option<Seen>,
        /// The version that the change applies to: with any other it is a conflict.
        only_version: Option<i64>,
    }
}

impl Logged for StoredFlag {
    const HAS_VERSIONS: bool = true;

    fn subject(&self) -> Subject {
        let (item, name) = (self.id.to_string(), self.key.clone());
        Subject { scope: Scope::FeatureFlag, item, name, project: Some(self.project) }
    }

    fn logged(&self) -> Map<String, Value> {
        self.compared()
    }
}

impl StoredFlag {
    /// A flag for tests: active for every person.
    #[cfg(test)]
    pub(crate) fn sample(id: i64, key: &str) -> Self {
        Self {
            id: FlagId(id),
            project: ProjectId(1),
            key: key.to_owned(),
            filters: serde_json::json!({"groups": [{"properties": [], "rollout_percentage": null}]}),
            active: true,
            version: 1,
            ..Self::default()
        }
    }

    /// The fields that the activity log compares.
    pub fn compared(&self) -> Map<String, Value> {
        let mut fields = self.logged_cells();
        fields.extend(self.plain.entries().map(|(name, value)| (name.to_owned(), value)));
        fields
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
