//! Creates, changes and looks up feature flags.

use std::sync::Arc;

use serde_json::Value;

use crate::accounts::UserId;
use crate::entity::Patch;
use crate::error::MetadataError;
use crate::flag_rules::dependencies::Graph;
use crate::flags::plain::PlainFields;
use crate::flags::{FlagId, FlagPatch, FlagUpdate, StoredFlag, locking, rows};
use crate::snapshot::Snapshot;
use crate::violation::Violation;
use crate::{Metadata, Write, dashboards, disk, flag_rules};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::pattern::check_of_project;
use weir_event::predicate::patterns;

/// The error for deleting the flag of an early access feature; PostHog's words.
const USED_BY_FEATURE: &str = "Cannot delete a feature flag that is in use with early access features. \
                               Please delete the early access feature before deleting the flag.";

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
        new: FlagPatch,
    ) -> Result<Arc<StoredFlag>, MetadataError> {
        let mut write = self.begin().await?;
        // On the heap: a patch and a flag are large, and whoever awaits this would be larger by both.
        let id = Box::pin(write.add_flag(project, user, new)).await?;
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
        let before = before.ok_or(MetadataError::NotFound("flag"))?;
        // On the heap, as the making of one.
        Box::pin(write.update_flag(user, before, patch)).await
    }

    /// What a change would make of a flag, without making it.
    ///
    /// # Errors
    ///
    /// As of [`Metadata::update_flag`].
    pub async fn preview_flag(
        &self,
        project: ProjectId,
        user: UserId,
        id: FlagId,
        patch: FlagPatch,
    ) -> Result<FlagUpdate, MetadataError> {
        let mut write = self.begin().await?;
        let before = rows::by_id(write.connection(), project, id).await?;
        let before = before.ok_or(MetadataError::NotFound("flag"))?;
        let after = write.flag_after(user, &before, patch)?;
        Ok(FlagUpdate { before: Arc::new(before), after: Arc::new(after) })
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
        let mut connection = self.shared.db.reader().await?;
        let flag = rows::by_id(&mut connection, project, id).await?;
        flag.map(Arc::new).ok_or(MetadataError::NotFound("flag"))
    }
}

impl Write {
    /// Creates a flag in this transaction; [`Write::save`] commits.
    pub(crate) async fn add_flag(
        &mut self,
        project: ProjectId,
        user: UserId,
        mut new: FlagPatch,
    ) -> Result<FlagId, MetadataError> {
        self.base.project(project).ok_or(MetadataError::NotFound("project"))?;
        self.user(user)?;
        let base = Arc::clone(&self.base);
        let live = base.flags(project);
        let key = new.key.clone().unwrap_or_default();
        check_key(&key, None, live)?;
        let filters = flag_rules::initial(new.filters.take())?;
        let cohorts = base.cohorts(project);
        check_filters(&filters, &Graph { flag: None, key: &key, live, cohorts })?;
        check_patterns(&filters, project, None, &base)?;
        let plain = PlainFields::default().patched(std::mem::take(&mut new.plain), new.active);
        locking::check_bucketing(&plain)?;
        if plain.archived && new.active != Some(false) {
            return Err(locking::archived_and_active(Some(true)).into());
        }
        let now = self.shared.clock.now();
        let dashboard = dashboards::add(self.connection(), project, user, &key, now).await?;
        new.usage_dashboard = Some(Some(dashboard));
        let flag = new.applied(StoredFlag {
            // Read before the deleted flag is removed, so that its id is not reused.
            id: rows::next_id(self.connection()).await?,
            project,
            filters,
            active: true,
            created_by: Some(user),
            created_at: now,
            updated_at: now,
            version: 1,
            plain,
            last_modified_by: Some(user),
            ..StoredFlag::default()
        });
        rows::purge_deleted(self.connection(), project, &flag.key, flag.id).await?;
        self.create(user, &flag).await.map_err(key_race)?;
        Ok(flag.id)
    }

    /// Changes a flag, as it is in this transaction, and commits.
    pub(crate) async fn update_flag(
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
    pub(crate) async fn change_flag(
        &mut self,
        user: UserId,
        before: &StoredFlag,
        patch: FlagPatch,
        trigger: Option<Value>,
    ) -> Result<(), MetadataError> {
        let (project, id) = (before.project, before.id);
        let after = self.flag_after(user, before, patch)?;
        if after.key != before.key {
            rows::purge_deleted(self.connection(), project, &after.key, id).await?;
            if let Some(dashboard) = after.usage_dashboard {
                dashboards::rename(self.connection(), project, dashboard, &after.key).await?;
            }
        }
        self.change_triggered(user, before, &after, trigger).await.map_err(key_race)
    }

    /// What a change makes of a flag, after all checks.
    fn flag_after(
        &self,
        user: UserId,
        before: &StoredFlag,
        mut patch: FlagPatch,
    ) -> Result<StoredFlag, MetadataError> {
        self.check_editor(user, before)?;
        locking::settle(before, &mut patch, &self.base)?;
        let mut after = patched(before, patch, self.shared.clock.now(), &self.base)?;
        after.last_modified_by = Some(user);
        Ok(after)
    }

    /// A flag as written in this transaction.
    pub(crate) async fn read_flag(
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
    pub(crate) async fn save(
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
    mut patch: FlagPatch,
    now: UnixMicros,
    base: &Snapshot,
) -> Result<StoredFlag, Violation> {
    let (live, cohorts) = (base.flags(stored.project), base.cohorts(stored.project));
    let graph = Graph { flag: Some(stored.id), key: &stored.key, live, cohorts };
    let is_linked = base.feature_of(stored).is_some();
    let is_restored = stored.deleted && patch.deleted == Some(false);
    let (has_key, filters) = (patch.key.is_some(), patch.filters.take());
    let (replaces_filters, active) = (patch.replaces_filters, patch.active);
    let (archived, plain) = (patch.plain.archived, std::mem::take(&mut patch.plain));
    let mut flag = patch.applied(stored.clone());
    if has_key || is_restored {
        check_key(&flag.key, Some(stored.id), live)?;
    }
    let is_changed = filters.is_some() || is_restored;
    match filters {
        Some(given) => {
            flag.filters = match replaces_filters {
                true => flag_rules::canonical(given),
                false => flag_rules::updated(&stored.filters, given),
            };
            check_filters(&flag.filters, &graph)?;
            flag_rules::check_enrollment(&stored.filters, &flag.filters, is_linked)?;
        }
        None => flag.filters = flag_rules::canonical(flag.filters),
    }
    if is_changed {
        check_patterns(&flag.filters, stored.project, Some(stored.id), base)?;
    }
    if flag.deleted && !stored.deleted {
        graph.check_deletable()?;
        if is_linked {
            return Err(Violation::general(USED_BY_FEATURE));
        }
    }
    if stored.active && !flag.active {
        graph.check_disableable()?;
    }
    if flag.active && !stored.active {
        graph.check_enableable(&flag.filters)?;
    }
    flag.plain = stored.plain.patched(plain, active);
    // A flag that has been both since before this rule may still be edited.
    if flag.plain.archived && flag.active && !(stored.plain.archived && stored.active) {
        return Err(locking::archived_and_active(archived));
    }
    locking::check_bucketing(&flag.plain)?;
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

/// Checks the patterns of a flag with those of all others of its project: beyond what they may have together, one of them
/// could not be evaluated.
fn check_patterns(
    filters: &Value,
    project: ProjectId,
    this: Option<FlagId>,
    base: &Snapshot,
) -> Result<(), Violation> {
    let flags = base.flag_set(project).map(|set| set.entries()).unwrap_or_default();
    let others = flags.iter().filter(|entry| this != Some(FlagId(entry.id)));
    let others = others.fold(0_usize, |all, entry| all.saturating_add(entry.pattern_states));
    check_of_project(others, patterns::states_in(filters))
        .map_err(|error| Violation::coded("invalid_value", error.to_string()))
}

fn key_race(error: MetadataError) -> MetadataError {
    disk::unless_taken(error, flag_rules::key_is_taken)
}
