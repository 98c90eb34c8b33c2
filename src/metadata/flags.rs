//! Stored feature flags: create, update, look up, list. The rules for their fields are in
//! `flag_rules`; evaluation is not here.

use std::fmt;
use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::Write;
use crate::metadata::accounts::UserId;
use crate::metadata::activity;
use crate::metadata::activity::Change;
use crate::metadata::activity::Scope;
use crate::metadata::activity::Verb;
use crate::metadata::activity::diff;
use crate::metadata::dashboards;
use crate::metadata::disk;
use crate::metadata::error::MetadataError;
use crate::metadata::flag_rules;
use crate::metadata::flag_rules::dependencies::Graph;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tags::normal_tags;
use crate::metadata::violation::Violation;

mod locking;
pub(super) mod rows;
pub mod tags;

/// The error for deleting the flag of an early access feature; PostHog's words.
const USED_BY_FEATURE: &str = "Cannot delete a feature flag that is in use with early access features. \
                               Please delete the early access feature before deleting the flag.";

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
    /// Whether a person keeps its value across a login.
    pub ensure_experience_continuity: bool,
    /// Kept for the client, without effect.
    pub rollback_conditions: Option<Value>,
    /// Whether it was rolled back automatically; activating it sets this to false.
    pub performed_rollback: Option<bool>,
    /// Labels: trimmed, lower case, each once.
    pub tags: Vec<String>,
    /// The dashboard of its usage.
    pub usage_dashboard: Option<i64>,
    /// Other dashboards about it.
    pub analytics_dashboards: Vec<i64>,
    /// Whether SDKs send additional events about it.
    pub has_enriched_analytics: Option<bool>,
    /// The identifier that is hashed: `distinct_id` or `device_id`; `None` for the first.
    pub bucketing_identifier: Option<String>,
    /// The runtimes that evaluate it: `server`, `client` or `all`; `None` for the last.
    pub evaluation_runtime: Option<String>,
    /// The contexts that evaluate it; empty for all.
    pub evaluation_contexts: Vec<String>,
    /// Whether it is read only for its payload.
    pub is_remote_configuration: bool,
    /// Whether lists omit it.
    pub archived: bool,
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
            ensure_experience_continuity: false,
            rollback_conditions: None,
            performed_rollback: None,
            tags: Vec::new(),
            usage_dashboard: None,
            analytics_dashboards: Vec::new(),
            has_enriched_analytics: None,
            bucketing_identifier: None,
            evaluation_runtime: None,
            evaluation_contexts: Vec::new(),
            is_remote_configuration: false,
            archived: false,
            last_modified_by: None,
        }
    }

    /// The fields that the activity log compares.
    pub fn logged(&self) -> Map<String, Value> {
        let fields = json!({
            "name": self.name,
            "key": self.key,
            "filters": self.filters,
            "active": self.active,
            "deleted": self.deleted,
            "archived": self.archived,
            "ensure_experience_continuity": self.ensure_experience_continuity,
            "rollback_conditions": self.rollback_conditions,
            "performed_rollback": self.performed_rollback,
            "tags": self.tags,
            "usage_dashboard": self.usage_dashboard,
            "analytics_dashboards": self.analytics_dashboards,
            "has_enriched_analytics": self.has_enriched_analytics,
            "bucketing_identifier": self.bucketing_identifier,
            "evaluation_runtime": self.evaluation_runtime,
            "evaluation_contexts": self.evaluation_contexts,
            "is_remote_configuration": self.is_remote_configuration,
        });
        activity::fields(fields)
    }

    fn change(&self, verb: Verb, fields: Vec<Value>) -> Change {
        let (item, name) = (self.id.to_string(), self.key.clone());
        Change { scope: Scope::FeatureFlag, item, verb, name, fields }
    }

    /// Whether it has one condition without properties, for persons.
    pub fn is_simple(&self) -> bool {
        flag_rules::is_simple(&self.filters)
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
    /// See [`StoredFlag`].
    pub ensure_experience_continuity: bool,
    /// See [`StoredFlag`].
    pub rollback_conditions: Option<Value>,
    /// See [`StoredFlag`].
    pub performed_rollback: Option<bool>,
    /// Labels, not normalised.
    pub tags: Vec<String>,
    /// See [`StoredFlag`].
    pub analytics_dashboards: Vec<i64>,
    /// See [`StoredFlag`].
    pub has_enriched_analytics: Option<bool>,
    /// See [`StoredFlag`].
    pub bucketing_identifier: Option<String>,
    /// See [`StoredFlag`].
    pub evaluation_runtime: Option<String>,
    /// See [`StoredFlag`].
    pub evaluation_contexts: Vec<String>,
    /// See [`StoredFlag`].
    pub is_remote_configuration: bool,
    /// See [`StoredFlag`]; only for a flag that is not active.
    pub archived: bool,
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
    /// See [`StoredFlag`].
    pub ensure_experience_continuity: Option<bool>,
    /// See [`StoredFlag`].
    pub rollback_conditions: Option<Option<Value>>,
    /// See [`StoredFlag`].
    pub performed_rollback: Option<Option<bool>>,
    /// Replaces the labels.
    pub tags: Option<Vec<String>>,
    /// Another dashboard of its usage; set by the server, not by clients.
    pub usage_dashboard: Option<Option<i64>>,
    /// Dashboards to add; none is ever removed.
    pub analytics_dashboards: Option<Vec<i64>>,
    /// See [`StoredFlag`].
    pub has_enriched_analytics: Option<Option<bool>>,
    /// See [`StoredFlag`].
    pub bucketing_identifier: Option<Option<String>>,
    /// See [`StoredFlag`].
    pub evaluation_runtime: Option<Option<String>>,
    /// See [`StoredFlag`].
    pub evaluation_contexts: Option<Vec<String>>,
    /// See [`StoredFlag`].
    pub is_remote_configuration: Option<bool>,
    /// See [`StoredFlag`].
    pub archived: Option<bool>,
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

impl Metadata {
    /// Creates a flag, and the dashboard of its usage. Permanently removes deleted flags with the
    /// same key.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project or user, [`MetadataError::Rejected`] if
    /// it breaks a rule of `flag_rules` or the key is taken (code `unique`).
    pub async fn create_flag(
        &self,
        project: ProjectId,
        user: UserId,
        new: NewFlag,
    ) -> Result<Arc<StoredFlag>, MetadataError> {
        let mut write = self.begin().await?;
        let id = write.add_flag(project, user, new).await?;
        write.save(project, id).await
    }

    /// Changes a flag. It may be a deleted one, which is how a flag is restored.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a flag in the project, [`MetadataError::Rejected`]
    /// if the result breaks a rule of `flag_rules` or the key is taken (code `unique`),
    /// [`MetadataError::Conflict`] if another user changed the same fields meanwhile (`locking`),
    /// [`MetadataError::Forbidden`] if the user may not change it.
    pub async fn update_flag(
        &self,
        project: ProjectId,
        user: UserId,
        id: FlagId,
        patch: FlagPatch,
    ) -> Result<FlagUpdate, MetadataError> {
        let mut write = self.begin().await?;
        let before = rows::by_id(write.connection(), project, id).await?;
        write.update_flag(user, before.ok_or(MetadataError::NotFound("flag"))?, patch).await
    }

    /// A flag of a project, deleted or not.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a flag in the project.
    pub async fn flag(
        &self,
        project: ProjectId,
        id: FlagId,
    ) -> Result<Arc<StoredFlag>, MetadataError> {
        if let Some(flag) = self.snapshot().flags(project).iter().find(|flag| flag.id == id) {
            return Ok(Arc::clone(flag));
        }
        let mut connection = self.shared.db.readers().acquire().await?;
        let flag = rows::by_id(&mut connection, project, id).await?;
        flag.map(Arc::new).ok_or(MetadataError::NotFound("flag"))
    }
}

impl Write {
    /// Creates a flag in this transaction; [`Write::save`] commits.
    pub(super) async fn add_flag(
        &mut self,
        project: ProjectId,
        user: UserId,
        new: NewFlag,
    ) -> Result<FlagId, MetadataError> {
        self.base.project(project).ok_or(MetadataError::NotFound("project"))?;
        self.user(user)?;
        let base = Arc::clone(&self.base);
        let live = base.flags(project);
        check_key(&new.key, None, live)?;
        let filters = flag_rules::initial(new.filters)?;
        let cohorts = base.cohorts(project);
        check_filters(&filters, &Graph { flag: None, key: &new.key, live, cohorts })?;
        locking::check_bucketing(
            new.bucketing_identifier.as_deref(),
            new.ensure_experience_continuity,
        )?;
        let active = new.active.unwrap_or(true);
        if new.archived && active {
            return Err(locking::archived_and_active(Some(true)).into());
        }
        let now = self.shared.clock.now();
        let dashboard = dashboards::add(self.connection(), project, &new.key, now).await?;
        let flag = StoredFlag {
            // Read before the deleted flag is removed, so that its id is not reused.
            id: rows::next_id(self.connection()).await?,
            project,
            name: new.name,
            key: new.key,
            filters,
            active,
            deleted: new.deleted,
            created_by: Some(user),
            created_at: new.created_at.unwrap_or(now),
            updated_at: now,
            version: 1,
            ensure_experience_continuity: new.ensure_experience_continuity,
            rollback_conditions: new.rollback_conditions,
            performed_rollback: match new.active {
                Some(true) => Some(false),
                _ => new.performed_rollback,
            },
            tags: normal_tags(new.tags),
            usage_dashboard: Some(dashboard),
            analytics_dashboards: union(Vec::new(), new.analytics_dashboards),
            has_enriched_analytics: new.has_enriched_analytics,
            bucketing_identifier: new.bucketing_identifier,
            evaluation_runtime: new.evaluation_runtime,
            evaluation_contexts: new.evaluation_contexts,
            is_remote_configuration: new.is_remote_configuration,
            archived: new.archived,
            last_modified_by: Some(user),
        };
        rows::purge_deleted(self.connection(), project, &flag.key, flag.id).await?;
        rows::insert(self.connection(), &flag).await.map_err(key_race)?;
        self.log(project, Some(user), flag.change(Verb::Created, Vec::new())).await?;
        Ok(flag.id)
    }

    /// Changes a flag, as it is in this transaction, and commits.
    pub(super) async fn update_flag(
        mut self,
        user: UserId,
        before: StoredFlag,
        patch: FlagPatch,
    ) -> Result<FlagUpdate, MetadataError> {
        self.change_flag(user, &before, patch, None).await?;
        let after = self.save(before.project, before.id).await?;
        Ok(FlagUpdate { before: Arc::new(before), after })
    }

    /// Changes a flag, as it is in this transaction; [`Write::save`] commits. `trigger` is the job
    /// that made the change, if the user did not make it directly.
    pub(super) async fn change_flag(
        &mut self,
        user: UserId,
        before: &StoredFlag,
        mut patch: FlagPatch,
        trigger: Option<Value>,
    ) -> Result<(), MetadataError> {
        let (project, id) = (before.project, before.id);
        self.check_editor(user, before)?;
        locking::settle(before, &mut patch, &self.base)?;
        let mut after = patched(before, patch, self.shared.clock.now(), &self.base)?;
        after.last_modified_by = Some(user);
        if after.key != before.key {
            rows::purge_deleted(self.connection(), project, &after.key, id).await?;
            if let Some(dashboard) = after.usage_dashboard {
                dashboards::rename(self.connection(), dashboard, &after.key).await?;
            }
        }
        rows::update(self.connection(), &after).await.map_err(key_race)?;
        let fields = diff(Scope::FeatureFlag, &before.logged(), &after.logged());
        let change = after.change(Verb::Updated, fields);
        self.log_triggered(project, Some(user), change, trigger).await
    }

    /// A flag as written in this transaction.
    pub(super) async fn read_flag(
        &mut self,
        project: ProjectId,
        id: FlagId,
    ) -> Result<Arc<StoredFlag>, MetadataError> {
        let flag = rows::by_id(self.connection(), project, id).await?;
        flag.map(Arc::new).ok_or(MetadataError::NotFound("flag"))
    }

    /// Commits a flag that was written in this transaction.
    ///
    /// The flag is read back, so that the snapshot holds what a restart would load.
    pub(super) async fn save(
        mut self,
        project: ProjectId,
        id: FlagId,
    ) -> Result<Arc<StoredFlag>, MetadataError> {
        let flag = self.read_flag(project, id).await?;
        self.commit_with(|next| next.put_flag(Arc::clone(&flag))).await?;
        Ok(flag)
    }
}

/// Applies `patch` to `stored` and checks the result.
fn patched(
    stored: &StoredFlag,
    patch: FlagPatch,
    now: UnixMicros,
    base: &Snapshot,
) -> Result<StoredFlag, Violation> {
    let mut flag = stored.clone();
    let (live, cohorts) = (base.flags(stored.project), base.cohorts(stored.project));
    let graph = Graph { flag: Some(stored.id), key: &stored.key, live, cohorts };
    let is_linked = base.feature_of(stored).is_some();
    let is_restored = stored.deleted && patch.deleted == Some(false);
    if patch.key.is_some() || is_restored {
        flag.key = patch.key.unwrap_or(flag.key);
        check_key(&flag.key, Some(stored.id), live)?;
    }
    match patch.filters {
        Some(given) => {
            flag.filters = match patch.replaces_filters {
                true => flag_rules::canonical(given),
                false => flag_rules::updated(&stored.filters, given),
            };
            check_filters(&flag.filters, &graph)?;
            flag_rules::check_enrollment(&stored.filters, &flag.filters, is_linked)?;
        }
        None => flag.filters = flag_rules::canonical(flag.filters),
    }
    flag.deleted = patch.deleted.unwrap_or(stored.deleted);
    if flag.deleted && !stored.deleted {
        graph.check_deletable()?;
        if is_linked {
            return Err(Violation::general(USED_BY_FEATURE));
        }
    }
    flag.active = patch.active.unwrap_or(stored.active);
    if stored.active && !flag.active {
        graph.check_disableable()?;
    }
    if flag.active && !stored.active {
        graph.check_enableable(&flag.filters)?;
    }
    flag.performed_rollback = match patch.active {
        Some(true) => Some(false),
        _ => patch.performed_rollback.unwrap_or(flag.performed_rollback),
    };
    flag.name = patch.name.unwrap_or(flag.name);
    flag.created_at = patch.created_at.unwrap_or(flag.created_at);
    flag.ensure_experience_continuity =
        patch.ensure_experience_continuity.unwrap_or(flag.ensure_experience_continuity);
    flag.rollback_conditions = patch.rollback_conditions.unwrap_or(flag.rollback_conditions);
    flag.tags = patch.tags.map_or(flag.tags, normal_tags);
    flag.usage_dashboard = patch.usage_dashboard.unwrap_or(flag.usage_dashboard);
    flag.analytics_dashboards =
        union(flag.analytics_dashboards, patch.analytics_dashboards.unwrap_or_default());
    flag.has_enriched_analytics =
        patch.has_enriched_analytics.unwrap_or(flag.has_enriched_analytics);
    flag.bucketing_identifier = patch.bucketing_identifier.unwrap_or(flag.bucketing_identifier);
    flag.evaluation_runtime = patch.evaluation_runtime.unwrap_or(flag.evaluation_runtime);
    flag.evaluation_contexts = patch.evaluation_contexts.unwrap_or(flag.evaluation_contexts);
    flag.is_remote_configuration =
        patch.is_remote_configuration.unwrap_or(flag.is_remote_configuration);
    flag.archived = patch.archived.unwrap_or(flag.archived);
    // A flag that has been both since before this rule may still be edited.
    if flag.archived && flag.active && !(stored.archived && stored.active) {
        return Err(locking::archived_and_active(patch.archived));
    }
    locking::check_bucketing(
        flag.bucketing_identifier.as_deref(),
        flag.ensure_experience_continuity,
    )?;
    flag.updated_at = now;
    flag.version = flag.version.saturating_add(1);
    Ok(flag)
}

/// Checks a key, and that no other live flag has it. Length, uniqueness, characters: in PostHog's order.
fn check_key(key: &str, this: Option<FlagId>, live: &[Arc<StoredFlag>]) -> Result<(), Violation> {
    let checked = flag_rules::check_key(key);
    let is_taken = live.iter().any(|flag| flag.key == key && Some(flag.id) != this);
    if is_taken { Err(flag_rules::key_is_taken()) } else { checked }
}

fn check_filters(filters: &Value, graph: &Graph<'_>) -> Result<(), Violation> {
    flag_rules::check_size(filters)?;
    flag_rules::check_filters(filters, graph)
}

fn key_race(error: MetadataError) -> MetadataError {
    disk::unless_taken(error, flag_rules::key_is_taken)
}

/// `first`, then the items of `second` that it lacks.
fn union(mut first: Vec<i64>, second: Vec<i64>) -> Vec<i64> {
    for item in second {
        if !first.contains(&item) {
            first.push(item);
        }
    }
    first
}
