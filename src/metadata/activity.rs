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
use crate::entity::{Columns, Entity, entity, named};
use crate::error::MetadataError;
use crate::sql;
use crate::sql::{Builder, QueryScalar};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;

mod operations;

/// Namespace of the ids of entries, drawn at random once for this purpose.
const NAMESPACE: Uuid = Uuid::from_u128(0x1d0f_6a39_8c2e_4f61_9e0b_54a7_7d3c_21f8);

named! {
    /// The kind of the changed object, named as in PostHog's API.
    pub enum Scope: parse {
        /// A feature flag.
        FeatureFlag = "FeatureFlag",
        /// An early access feature.
        EarlyAccessFeature = "EarlyAccessFeature",
        /// A cohort.
        Cohort = "Cohort",
        /// A role or its members.
        Role = "Role",
        /// A person.
        Person = "Person",
        /// A group or a group type.
        Group = "Group",
        /// An event definition.
        EventDefinition = "EventDefinition",
        /// A property definition.
        PropertyDefinition = "PropertyDefinition",
        /// The project itself.
        Project = "Project",
        /// The organization that owns the project.
        Organization = "Organization",
        /// An action.
        Action = "Action",
        /// A saved insight.
        Insight = "Insight",
        /// An annotation.
        Annotation = "Annotation",
        /// A dashboard.
        Dashboard = "Dashboard",
    }
}

named! {
    /// What was done to the object.
    pub enum Verb {
        /// It was created.
        Created = "created",
        /// It was changed.
        Updated = "updated",
        /// It was changed; PostHog's word for definitions.
        Changed = "changed",
        /// A person was split.
        SplitPerson = "split_person",
        /// Properties of a person were removed.
        DeleteProperty = "delete_property",
        /// A group was created.
        CreateGroup = "create_group",
        /// A property of a group was added.
        CreateProperty = "create_property",
        /// A property of a group was changed or removed.
        UpdateProperty = "update_property",
        /// A link to it was turned on.
        SharingEnabled = "sharing enabled",
        /// The link to it was turned off.
        SharingDisabled = "sharing disabled",
        /// The link to it got another token.
        SharingTokenRefreshed = "sharing access token refreshed",
        /// The link to it got another password.
        SharingPasswordAdded = "sharing password added",
        /// A password of the link to it was removed.
        SharingPasswordRemoved = "sharing password removed",
        /// It was deleted permanently. An object that can be restored was `Updated` instead.
        Deleted = "deleted",
    }
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

entity! {
    /// An entry of the log.
    pub struct Entry of "activity" {
        /// The id of the entry.
        id: Uuid [once, unique],
        /// The project of the object.
        project: ProjectId as "project_id" [once],
        /// The user; `None` for the server itself.
        user: Option<UserId> as "user_id" [once],
        /// What was done, such as `created`, `updated` or `deleted`.
        activity: String [once],
        /// The kind of the object, as in [`Scope::name`].
        scope: String [once],
        /// The id of the object.
        item: String [once],
        /// The time.
        created_at: UnixMicros [once],
    }
    apart {
        /// `{"name", "changes"}`, and `trigger` if a job made the change in the user's name. An [`EntryText`] has it as
        /// its row does.
        detail: Map<String, Value>,
    }
}

entity! {
    /// An entry with its detail as it is stored, which is as long as what was changed.
    pub struct EntryText in "activity" {
        /// The text of a JSON object; see [`Entry::detail`].
        detail: String [once],
        /// Its position in the log.
        position: i64 [key],
    }
    parts {
        /// The entry without its detail.
        entry: Entry,
    }
}

impl EntryText {
    /// The texts of the members of the detail.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Corrupt`].
    pub fn members(&self) -> Result<BTreeMap<String, Box<RawValue>>, MetadataError> {
        json::members(self.detail.as_bytes()).map_err(corrupt)
    }

    /// The entry with its detail.
    fn whole(self) -> Result<Entry, MetadataError> {
        let detail = json::restore(self.detail.as_bytes()).map_err(corrupt)?;
        Ok(Entry { detail, ..self.entry })
    }
}

fn corrupt(error: serde_json::Error) -> MetadataError {
    MetadataError::Corrupt { table: Entry::TABLE, problem: error.to_string() }
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
pub struct ActivityFilter {
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

/// The object of an entry.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) scope: Scope,
    /// Its id.
    pub(super) item: String,
    /// Its name for people.
    pub(super) name: String,
    /// Its project; `None` for an object of an organization, which is logged in each of its projects.
    pub(super) project: Option<ProjectId>,
}

/// What is logged when it changes; [`Write::create`], [`Write::change`] and [`Write::remove`] write and log an entity.
///
/// [`Write::create`]: crate::Write::create
/// [`Write::change`]: crate::Write::change
/// [`Write::remove`]: crate::Write::remove
pub(super) trait Logged: Columns {
    /// What was done by a change.
    const CHANGED: Verb = Verb::Updated;

    /// Whether a change is logged even if no compared field differs: it makes a new version.
    const HAS_VERSIONS: bool = false;

    fn subject(&self) -> Subject;

    /// The fields that the log compares.
    fn logged(&self) -> Map<String, Value> {
        self.logged_cells()
    }

    fn entry(&self, verb: Verb, fields: Vec<Value>) -> Change {
        let Subject { scope, item, name, .. } = self.subject();
        Change { scope, item, verb, name, fields }
    }

    /// The entry for a change from `before`, if there is one.
    fn changed(&self, before: &Self) -> Option<Change> {
        let fields = diff(self.subject().scope, &before.logged(), &self.logged());
        let is_logged = Self::HAS_VERSIONS || !fields.is_empty();
        is_logged.then(|| self.entry(Self::CHANGED, fields))
    }
}

impl ActivityFilter {
    /// Counts the entries of `project` that match.
    fn count(&self, project: ProjectId) -> QueryScalar<i64> {
        self.of(Builder::new("SELECT COUNT(*) FROM activity WHERE project_id = "), project)
            .build_scalar()
    }

    /// Selects the entries of `project` that match, unordered.
    fn select(&self, project: ProjectId) -> Builder {
        self.of(EntryText::selecting("WHERE project_id = "), project)
    }

    /// Completes a statement that ends before the project.
    fn of(&self, mut select: Builder, project: ProjectId) -> Builder {
        select.push_bind(project.0);
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
    let entry = Entry {
        id: made.id,
        project: made.project,
        user: made.user,
        activity: verb.name().to_owned(),
        scope: scope.name().to_owned(),
        item: item.clone(),
        created_at: made.at,
        detail: Map::new(),
    };
    let entry = EntryText { detail: detail.to_string(), position, entry };
    Ok(entry.insert_new().execute(connection).await? > 0)
}

async fn next_position(connection: &mut Conn) -> Result<i64, MetadataError> {
    let next = "SELECT COALESCE(MAX(position), 0) + 1 FROM (
               SELECT MAX(position) AS position FROM activity
               UNION ALL SELECT highest FROM used_ids WHERE name = 'activity') AS positions";
    Ok(sql::query_scalar(next).fetch_one(connection).await?)
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
        assert_eq!(Scope::FeatureFlag.name(), "FeatureFlag");
        assert_eq!(Scope::parse("FeatureFlag"), Some(Scope::FeatureFlag));
        assert_eq!(Scope::parse("Survey"), None);
    }
}
