//! The activity log: who changed what, when, from which value to which.
//!
//! An entry is written in the transaction of its change ([`Write::log`]), so there is no change
//! without an entry. Changes outside of the metadata store, for example of persons, are logged
//! before they take effect, under an id that is the same at every attempt
//! ([`Metadata::record_activity`]). Entries are immutable, and not part of the snapshot.
//!
//! [`Metadata::record_activity`]: crate::Metadata::record_activity
//! [`Write::log`]: crate::Write::log

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::sql::Builder;
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;

mod operations;

const TABLE: &str = "activity";

/// Namespace of the ids of entries, drawn at random once for this purpose.
const NAMESPACE: Uuid = Uuid::from_u128(0x1d0f_6a39_8c2e_4f61_9e0b_54a7_7d3c_21f8);

/// The kind of the changed object, named as in PostHog's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A feature flag.
    FeatureFlag,
    /// An early access feature.
    EarlyAccessFeature,
    /// A cohort.
    Cohort,
    /// A role or its members.
    Role,
    /// A person.
    Person,
    /// A group or a group type.
    Group,
    /// An event definition.
    EventDefinition,
    /// A property definition.
    PropertyDefinition,
    /// The project itself.
    Project,
    /// The organization that owns the project.
    Organization,
    /// An action.
    Action,
    /// A saved insight.
    Insight,
    /// An annotation.
    Annotation,
    /// A dashboard.
    Dashboard,
}

/// What was done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// It was created.
    Created,
    /// It was changed.
    Updated,
    /// It was changed; PostHog's word for definitions.
    Changed,
    /// A person was split.
    SplitPerson,
    /// Properties of a person were removed.
    DeleteProperty,
    /// A group was created.
    CreateGroup,
    /// A property of a group was added.
    CreateProperty,
    /// A property of a group was changed or removed.
    UpdateProperty,
    /// A link to it was turned on.
    SharingEnabled,
    /// The link to it was turned off.
    SharingDisabled,
    /// The link to it got another token.
    SharingTokenRefreshed,
    /// The link to it got another password.
    SharingPasswordAdded,
    /// A password of the link to it was removed.
    SharingPasswordRemoved,
    /// It was deleted permanently. An object that can be restored was `Updated` instead.
    Deleted,
}

/// A change to be logged.
#[derive(Clone, Debug)]
pub struct Change {
    /// The kind of the object.
    pub scope: Scope,
    /// Its id.
    pub item: String,
    /// What was done to it.
    pub verb: Verb,
    /// Its name at that time, for people; empty for none.
    pub name: String,
    /// The fields that changed, from [`diff`]; empty for a new object.
    pub fields: Vec<Value>,
}

/// A deleted person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Its uuids: its own, and those of persons that were merged into it.
    pub uuids: Vec<Uuid>,
    /// Its distinct ids.
    pub distinct_ids: Vec<String>,
}

/// A change outside of the metadata store.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The id of the entry, the same at every attempt.
    pub id: Uuid,
    /// The project of the object.
    pub project: ProjectId,
    /// The user; `None` if unknown.
    pub user: Option<UserId>,
    /// The time.
    pub at: UnixMicros,
    /// The change.
    pub change: Change,
    /// The person that the change deletes.
    pub forgotten: Option<Forgotten>,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The id of the entry.
    pub id: Uuid,
    /// The user; `None` for the server itself.
    pub user: Option<UserId>,
    /// What was done, such as `created`, `updated` or `deleted`.
    pub activity: String,
    /// The kind of the object, as in [`Scope::name`].
    pub scope: String,
    /// The id of the object.
    pub item: String,
    /// `{"name", "changes"}`, and `trigger` if a job made the change in the user's name.
    pub detail: Map<String, Value>,
    /// The time.
    pub created_at: UnixMicros,
}

/// An entry with its detail as it is stored, which is as long as what was changed.
#[derive(Clone, Debug)]
pub struct EntryText {
    /// The entry without its detail.
    pub entry: Entry,
    /// The text of a JSON object; see [`Entry::detail`].
    pub detail: String,
    /// Its position in the log.
    pub position: i64,
}

impl EntryText {
    /// The texts of the members of the detail.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Corrupt`].
    pub fn members(&self) -> Result<BTreeMap<String, Box<RawValue>>, MetadataError> {
        let corrupt = |error: serde_json::Error| MetadataError::Corrupt {
            table: TABLE,
            problem: error.to_string(),
        };
        json::members(self.detail.as_bytes()).map_err(corrupt)
    }
}

/// Where a part of the log begins, which is newest first.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// After so many entries.
    Offset(usize),
    /// Before the entry at this position.
    Before(i64),
}

/// A filter of entries.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Only entries of these kinds. Empty: all.
    pub scopes: Vec<Scope>,
    /// Only entries of the object with this id. `None`: all.
    pub item: Option<String>,
    /// Only entries of this user. `None`: all.
    pub user: Option<UserId>,
}

/// One page of the log.
#[derive(Clone, Debug)]
pub struct EntryPage {
    /// Number of all entries that match.
    pub count: usize,
    /// The entries of this page, newest first.
    pub entries: Vec<Entry>,
}

impl Scope {
    const ALL: [Self; 14] = [
        Self::FeatureFlag,
        Self::EarlyAccessFeature,
        Self::Cohort,
        Self::Role,
        Self::Person,
        Self::Group,
        Self::EventDefinition,
        Self::PropertyDefinition,
        Self::Project,
        Self::Organization,
        Self::Action,
        Self::Insight,
        Self::Annotation,
        Self::Dashboard,
    ];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::FeatureFlag => "FeatureFlag",
            Self::EarlyAccessFeature => "EarlyAccessFeature",
            Self::Cohort => "Cohort",
            Self::Role => "Role",
            Self::Person => "Person",
            Self::Group => "Group",
            Self::EventDefinition => "EventDefinition",
            Self::PropertyDefinition => "PropertyDefinition",
            Self::Project => "Project",
            Self::Organization => "Organization",
            Self::Action => "Action",
            Self::Insight => "Insight",
            Self::Annotation => "Annotation",
            Self::Dashboard => "Dashboard",
        }
    }

    /// The scope with this wire name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Changed => "changed",
            Self::SplitPerson => "split_person",
            Self::DeleteProperty => "delete_property",
            Self::CreateGroup => "create_group",
            Self::CreateProperty => "create_property",
            Self::UpdateProperty => "update_property",
            Self::SharingEnabled => "sharing enabled",
            Self::SharingDisabled => "sharing disabled",
            Self::SharingTokenRefreshed => "sharing access token refreshed",
            Self::SharingPasswordAdded => "sharing password added",
            Self::SharingPasswordRemoved => "sharing password removed",
            Self::Deleted => "deleted",
        }
    }
}

/// The fields that differ, as the API shows them: `{"type", "action", "field", "before", "after"}`.
pub fn diff(scope: Scope, before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Value> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    names
        .filter_map(|name| {
            let (before, after) = (before.get(name), after.get(name));
            let is_none = |value: Option<&Value>| value.is_none_or(Value::is_null);
            let action = match (is_none(before), is_none(after)) {
                (true, true) => return None,
                (false, false) if before == after => return None,
                (false, false) => "changed",
                (true, false) => "created",
                (false, true) => "deleted",
            };
            Some(json!({
                "type": scope.name(),
                "action": action,
                "field": name,
                "before": before,
                "after": after,
            }))
        })
        .collect()
}

/// The fields of an object, for [`diff`].
pub(super) fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl Asked {
    /// Selects `columns` of the entries of `project` that match, unordered.
    fn select(&self, columns: &'static str, project: ProjectId) -> Builder {
        let mut select = Builder::new("SELECT ");
        select.push(columns).push(" FROM activity WHERE project_id = ").push_bind(project.0);
        if !self.scopes.is_empty() {
            let scopes = self.scopes.iter().map(|scope| scope.name());
            select.push(" AND scope IN ").push_list(scopes);
        }
        if let Some(item) = self.item.as_deref().filter(|item| !item.is_empty()) {
            select.push(" AND item = ").push_bind(item);
        }
        if let Some(user) = self.user {
            select.push(" AND user_id = ").push_bind(user.0);
        }
        select
    }
}

async fn next_position(connection: &mut Conn) -> Result<i64, MetadataError> {
    disk::next_id(connection, "SELECT COALESCE(MAX(position), 0) + 1 FROM activity").await
}

/// Inserts an entry; false if there is one with its id.
async fn insert(
    connection: &mut Conn,
    position: i64,
    made: &Elsewhere,
    trigger: Option<Value>,
) -> Result<bool, MetadataError> {
    let Change { scope, item, verb, name, fields } = &made.change;
    let name = Some(name).filter(|name| !name.is_empty());
    // The entry of a deleted person contains no values of it: `changes` is null.
    let has_changes = *scope != Scope::Person || !fields.is_empty();
    let mut detail = json!({"name": name, "changes": has_changes.then_some(fields)});
    if let (Some(trigger), Value::Object(detail)) = (trigger, &mut detail) {
        detail.insert("trigger".to_owned(), trigger);
    }
    let done = sql::query(
        "INSERT INTO activity
         (position, id, project_id, user_id, scope, item, activity, detail, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(position)
    .bind(made.id.to_string())
    .bind(made.project.0)
    .bind(made.user.map(|user| user.0))
    .bind(scope.name())
    .bind(item)
    .bind(verb.name())
    .bind(detail.to_string())
    .bind(made.at.0)
    .execute(connection)
    .await?;
    Ok(done > 0)
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    position: i64,
    id: String,
    user_id: Option<i64>,
    scope: String,
    item: String,
    activity: String,
    detail: String,
    created_at: i64,
}

impl TryFrom<Row> for EntryText {
    type Error = MetadataError;

    fn try_from(row: Row) -> Result<Self, MetadataError> {
        let entry = Entry {
            id: disk::from_uuid(TABLE, &row.id)?,
            user: row.user_id.map(UserId),
            activity: row.activity,
            scope: row.scope,
            item: row.item,
            detail: Map::new(),
            created_at: UnixMicros(row.created_at),
        };
        Ok(Self { entry, detail: row.detail, position: row.position })
    }
}

impl TryFrom<Row> for Entry {
    type Error = MetadataError;

    fn try_from(row: Row) -> Result<Self, MetadataError> {
        let EntryText { entry, detail, .. } = EntryText::try_from(row)?;
        Ok(Self { detail: disk::from_json(TABLE, &detail)?, ..entry })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Scope, diff};

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("not an object") };
        object
    }

    #[test]
    fn differences_name_the_field_and_both_values() {
        let before = object(json!({"a": 1, "b": null, "c": "x", "d": [1], "e": null}));
        let after = object(json!({"a": 2, "b": "new", "c": null, "d": [1], "f": true}));
        let change = |action: &str, field: &str, before: Value, after: Value| {
            json!({"type": "Cohort", "action": action, "field": field, "before": before,
                "after": after})
        };
        assert_eq!(
            diff(Scope::Cohort, &before, &after),
            [
                change("changed", "a", json!(1), json!(2)),
                change("created", "b", json!(null), json!("new")),
                change("deleted", "c", json!("x"), json!(null)),
                change("created", "f", json!(null), json!(true)),
            ]
        );
    }

    #[test]
    fn scopes_have_their_names() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.name()), Some(scope));
        }
        assert_eq!(Scope::parse("Survey"), None);
    }
}
