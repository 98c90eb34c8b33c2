//! Operations on cohorts.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::accounts::{UserId, check_length, check_text};
use crate::activity::{Logged, Scope, Verb, diff};
use crate::cohorts::{
    CohortId, CohortPatch, DESCRIPTION_MAX_CHARS, MEMBERS_MAX, NAME_MAX_CHARS, NewCohort,
    StoredCohort, rows,
};
use crate::entity::{Entity, Patch, next_id};
use crate::error::MetadataError;
use crate::snapshot::Snapshot;
use crate::violation::Violation;
use crate::{Metadata, Write, flag_rules};
use weir_event::id::ProjectId;
use weir_event::pattern::{PatternError, check_of_project};
use weir_event::predicate::{Matching, patterns};
use weir_flags::cohorts::{CohortSet, Rule, RuleError};

impl Metadata {
    /// Creates a cohort.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project or user, [`MetadataError::Rejected`] for
    /// an invalid name, rule or list.
    pub async fn create_cohort(
        &self,
        project: ProjectId,
        user: UserId,
        new: NewCohort,
    ) -> Result<Arc<StoredCohort>, MetadataError> {
        let NewCohort { values, is_static, members } = new;
        check_text("name", values.name.as_deref().unwrap_or_default(), NAME_MAX_CHARS)?;
        let description = values.description.as_deref().unwrap_or_default();
        check_length("description", description, DESCRIPTION_MAX_CHARS)?;
        let mut write = self.begin().await?;
        write.base.project(project).ok_or(MetadataError::NotFound("project"))?;
        write.user(user)?;
        let rule = values.filters.clone().filter(|_| !is_static);
        let filters = rule.unwrap_or_else(|| json!({"properties": {}}));
        check_filters(&filters, None, project, &write.base)?;
        let members: BTreeSet<Uuid> = members.into_iter().collect();
        check_members(members.len())?;
        let values = CohortPatch { filters: Some(filters), deleted: None, ..values };
        let cohort = values.applied(StoredCohort {
            id: CohortId(next_id::<StoredCohort>(write.connection()).await?),
            project,
            is_static,
            created_by: Some(user),
            created_at: self.now(),
            version: 1,
            count: is_static.then(|| i64::try_from(members.len()).unwrap_or(i64::MAX)),
            last_calculation: is_static.then(|| self.now()),
            members: members.into_iter().collect(),
            ..StoredCohort::default()
        });
        write.create(user, &cohort).await?;
        rows::add_members(write.connection(), cohort.id, &cohort.members).await?;
        write.publish_cohort(cohort).await
    }

    /// Changes a cohort. It may be a deleted one, which is how a cohort is restored.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a cohort in the project, [`MetadataError::Rejected`] if
    /// the result breaks a rule, or if flags or cohorts use a cohort that is to be deleted.
    pub async fn update_cohort(
        &self,
        project: ProjectId,
        user: UserId,
        id: CohortId,
        mut patch: CohortPatch,
    ) -> Result<Arc<StoredCohort>, MetadataError> {
        let mut write = self.begin().await?;
        let before = rows::by_id(write.connection(), project, id).await?;
        let before = before.ok_or(MetadataError::NotFound("cohort"))?;
        patch.filters.take_if(|_| before.is_static);
        let has_rule = patch.filters.is_some();
        let mut after = patch.applied(before.clone());
        check_text("name", &after.name, NAME_MAX_CHARS)?;
        check_length("description", &after.description, DESCRIPTION_MAX_CHARS)?;
        if has_rule {
            after.count = None;
        }
        if after.filters != before.filters || (before.deleted && !after.deleted) {
            check_filters(&after.filters, Some(&after), project, &write.base)?;
            let (flags, live) = (write.base.flags(project), write.base.cohorts(project));
            flag_rules::cohorts::check_users(&after, flags, live)?;
        }
        if after.deleted && !before.deleted {
            check_unneeded(&after, &write.base)?;
        }
        after.version = after.version.saturating_add(1);
        write.change(user, &before, &after).await?;
        write.publish_cohort(after).await
    }

    /// Adds members to a static cohort, or removes one.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a live cohort, [`MetadataError::Rejected`] if it is
    /// not static or would be too large.
    pub async fn change_members(
        &self,
        project: ProjectId,
        user: UserId,
        id: CohortId,
        added: &[Uuid],
        removed: &[Uuid],
    ) -> Result<Arc<StoredCohort>, MetadataError> {
        let mut write = self.begin().await?;
        let base = Arc::clone(&write.base);
        let stored = base.cohort(project, id).ok_or(MetadataError::NotFound("cohort"))?;
        if !stored.is_static {
            let detail = "Can only add users to static cohorts";
            return Err(Violation::general(detail).into());
        }
        let mut members: BTreeSet<Uuid> = stored.members.iter().copied().collect();
        let new: Vec<Uuid> = added.iter().copied().filter(|uuid| members.insert(*uuid)).collect();
        let gone: Vec<Uuid> = removed.iter().copied().filter(|id| members.remove(id)).collect();
        check_members(members.len())?;
        rows::add_members(write.connection(), id, &new).await?;
        rows::remove_members(write.connection(), id, &gone).await?;
        let mut cohort = stored.as_ref().clone();
        cohort.count = Some(i64::try_from(members.len()).unwrap_or(i64::MAX));
        cohort.last_calculation = Some(self.now());
        cohort.members = members.into_iter().collect();
        cohort.update().execute(write.connection()).await?;
        // The number and not the members: a list may have a million.
        let count =
            |cohort: &StoredCohort| Map::from_iter([("count".to_owned(), cohort.count.into())]);
        let fields = diff(Scope::Cohort, &count(stored), &count(&cohort));
        write.log(project, Some(user), cohort.entry(Verb::Updated, fields)).await?;
        write.publish_cohort(cohort).await
    }

    /// Stores the members that a cohort by events has now, in ascending order. Does nothing if the cohort changed since
    /// its version was `version`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a live cohort.
    pub async fn note_cohort_members(
        &self,
        project: ProjectId,
        id: CohortId,
        version: i64,
        members: Vec<Uuid>,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let base = Arc::clone(&write.base);
        let stored = base.cohort(project, id).ok_or(MetadataError::NotFound("cohort"))?;
        if stored.version != version || !stored.is_by_events() {
            return Ok(());
        }
        let mut cohort = stored.as_ref().clone();
        cohort.count = Some(i64::try_from(members.len()).unwrap_or(i64::MAX));
        cohort.errors_calculating = 0;
        cohort.last_calculation = Some(self.now());
        let has = |all: &[Uuid], one: &Uuid| all.binary_search(one).is_ok();
        let new: Vec<Uuid> =
            members.iter().copied().filter(|one| !has(&stored.members, one)).collect();
        let gone: Vec<Uuid> =
            stored.members.iter().copied().filter(|one| !has(&members, one)).collect();
        rows::add_members(write.connection(), id, &new).await?;
        rows::remove_members(write.connection(), id, &gone).await?;
        cohort.members = members.into();
        cohort.update().execute(write.connection()).await?;
        let cohort = Arc::new(cohort);
        // Answers that were kept stay valid while nobody came or went.
        let is_same = new.is_empty() && gone.is_empty();
        let put = |next: &mut Snapshot| match is_same {
            true => next.put_counted(cohort),
            false => next.put_cohort(cohort),
        };
        write.commit_with(put).await
    }

    /// Stores how many members a cohort has, or (`None`) that counting failed. Does nothing if the
    /// cohort changed since `version`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a live cohort.
    pub async fn note_cohort_size(
        &self,
        project: ProjectId,
        id: CohortId,
        version: i64,
        count: Option<i64>,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let base = Arc::clone(&write.base);
        let stored = base.cohort(project, id).ok_or(MetadataError::NotFound("cohort"))?;
        if stored.version != version || stored.is_static {
            return Ok(());
        }
        let mut cohort = stored.as_ref().clone();
        match count {
            Some(count) => {
                cohort.count = Some(count);
                cohort.errors_calculating = 0;
                cohort.last_calculation = Some(self.now());
            }
            None => cohort.errors_calculating = cohort.errors_calculating.saturating_add(1),
        }
        if !cohort.is_by_events() && !cohort.members.is_empty() {
            // Its rule asked for events before.
            rows::remove_members(write.connection(), id, &cohort.members).await?;
            cohort.members = Arc::from([]);
        }
        cohort.update().execute(write.connection()).await?;
        write.commit_with(|next| next.put_counted(Arc::new(cohort))).await
    }

    /// A cohort of a project, deleted or not.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a cohort in the project.
    pub async fn cohort(
        &self,
        project: ProjectId,
        id: CohortId,
    ) -> Result<Arc<StoredCohort>, MetadataError> {
        if let Some(cohort) = self.snapshot().cohort(project, id) {
            return Ok(Arc::clone(cohort));
        }
        let mut connection = self.shared.db.reader().await?;
        let cohort = rows::by_id(&mut connection, project, id).await?;
        cohort.map(Arc::new).ok_or(MetadataError::NotFound("cohort"))
    }
}

impl Write {
    /// Commits a cohort that was written in this transaction.
    async fn publish_cohort(
        self,
        cohort: StoredCohort,
    ) -> Result<Arc<StoredCohort>, MetadataError> {
        let cohort = Arc::new(cohort);
        self.commit_with(|next| next.put_cohort(Arc::clone(&cohort))).await?;
        Ok(cohort)
    }
}

/// Checks that no flag or cohort uses a cohort that is to be deleted.
fn check_unneeded(cohort: &StoredCohort, base: &Snapshot) -> Result<(), Violation> {
    let flags = base.flags(cohort.project).iter().filter(|flag| {
        flag.active && flag_rules::cohort_ids(&flag.filters).any(|id| id == cohort.id.0)
    });
    let keys: Vec<&str> = flags.map(|flag| flag.key.as_str()).collect();
    if !keys.is_empty() {
        return Err(Violation::general(format!(
            "This cohort is used in {} active feature flag(s): {}. Please remove the cohort from \
             these feature flags before deleting it.",
            keys.len(),
            keys.join(", ")
        )));
    }
    let cohorts = base.cohorts(cohort.project).iter().filter(|other| {
        let rule = Rule::parse(other.rule(), Matching::Legacy);
        rule.is_ok_and(|rule| rule.cohorts().contains(&cohort.id.0))
    });
    let names: Vec<&str> = cohorts.map(|cohort| cohort.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Violation::general(format!(
        "This cohort is used in {} other cohort(s): {}. Please remove it from these cohorts before \
         deleting it.",
        names.len(),
        names.join(", ")
    )))
}

/// Checks a rule: its shape, that the cohorts in it exist, and that they form no cycle.
fn check_filters(
    filters: &Value,
    this: Option<&StoredCohort>,
    project: ProjectId,
    base: &Snapshot,
) -> Result<(), Violation> {
    flag_rules::check_size(filters)?;
    let live = base.cohorts(project);
    let object = filters.as_object().ok_or_else(|| {
        Violation::filters(format!(
            "Expected a dictionary of items but got type \"{}\".",
            flag_rules::python_type(filters)
        ))
    })?;
    let rule = object.get("properties");
    let rule = rule.ok_or_else(|| Violation::filters("Must contain a 'properties' key."))?;
    let too_large = |error: PatternError| Violation::coded("invalid_value", error.to_string());
    let rule = match Rule::parse(rule, Matching::Legacy) {
        Ok(rule) => rule,
        Err(RuleError::Patterns(error)) => return Err(too_large(error)),
        Err(RuleError::Behavioral) => {
            return patterns::large_in(rule).map_or(Ok(()), |error| Err(too_large(error)));
        }
        Err(RuleError::Malformed) => {
            let detail = "properties must be a group of AND or OR over property filters";
            return Err(Violation::filters(detail));
        }
    };
    if let Some(error) = rule.large_pattern() {
        return Err(too_large(error));
    }
    if rule.asks_nobody() {
        let detail = "Cohort properties must use the 'in' or 'not_in' operator";
        return Err(Violation::coded("invalid_operator", detail));
    }
    let id = this.map(|this| this.id);
    let others = base
        .cohort_set(project)
        .map_or(0, |set| set.pattern_states_without(id.map(|CohortId(id)| id)));
    check_of_project(others, rule.pattern_states()).map_err(too_large)?;
    for needed in rule.cohorts() {
        if id == Some(CohortId(needed)) {
            return Err(Violation::filters("Cohorts cannot reference other cohorts in a loop."));
        }
        if !live.iter().any(|cohort| cohort.id.0 == needed) {
            let detail = format!("Invalid Cohort ID in filter: {needed}");
            return Err(Violation::filters(detail));
        }
    }
    let Some(this) = this else { return Ok(()) };
    let others = live.iter().filter(|cohort| cohort.id != this.id);
    let others = others.map(|cohort| cohort.evaluable(Matching::Legacy));
    let set = CohortSet::new(others.chain([this.evaluable(Matching::Legacy)]));
    if set.is_circular(this.id.0) {
        return Err(Violation::filters("Cohorts cannot reference other cohorts in a loop."));
    }
    Ok(())
}

fn check_members(count: usize) -> Result<(), Violation> {
    if count <= MEMBERS_MAX {
        return Ok(());
    }
    Err(Violation::general(format!("A static cohort has at most {MEMBERS_MAX} members.")))
}
