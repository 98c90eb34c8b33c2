//! Writes and reads the activity log.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::accounts::UserId;
use crate::activity::{
    ActivityFilter, Change, Elsewhere, EntryPage, EntryText, Forgotten, Logged, NAMESPACE, Start,
    Verb, insert, next_position,
};
use crate::entity::Entity;
use crate::erasure::Left;
use crate::error::MetadataError;
use crate::sql::Builder;
use crate::{Metadata, Write};
use weir_event::id::ProjectId;

impl Write {
    /// Inserts an entity in the name of `by`.
    pub(crate) async fn create<E: Entity + Logged>(
        &mut self,
        by: UserId,
        new: &E,
    ) -> Result<(), MetadataError> {
        new.insert().execute(self.connection()).await?;
        self.log_entry(by, new, new.entry(Verb::Created, Vec::new()), None).await
    }

    /// Overwrites the entity `before` in the name of `by`, if anything is another.
    pub(crate) async fn change<E: Entity + Logged + PartialEq>(
        &mut self,
        by: UserId,
        before: &E,
        after: &E,
    ) -> Result<(), MetadataError> {
        self.change_triggered(by, before, after, None).await
    }

    /// As [`Write::change`]; `trigger` as for [`Write::log_triggered`].
    pub(crate) async fn change_triggered<E: Entity + Logged + PartialEq>(
        &mut self,
        by: UserId,
        before: &E,
        after: &E,
        trigger: Option<Value>,
    ) -> Result<(), MetadataError> {
        if after == before {
            return Ok(());
        }
        after.update().execute(self.connection()).await?;
        match after.changed(before) {
            Some(change) => self.log_entry(by, after, change, trigger).await,
            None => Ok(()),
        }
    }

    /// Removes an entity permanently in the name of `by`.
    pub(crate) async fn remove<E: Entity + Logged>(
        &mut self,
        by: UserId,
        gone: &E,
    ) -> Result<(), MetadataError> {
        gone.delete().execute(self.connection()).await?;
        self.log_entry(by, gone, gone.entry(Verb::Deleted, Vec::new()), None).await
    }

    async fn log_entry<E: Logged>(
        &mut self,
        by: UserId,
        entity: &E,
        change: Change,
        trigger: Option<Value>,
    ) -> Result<(), MetadataError> {
        match entity.subject().project {
            Some(project) => self.log_triggered(project, Some(by), change, trigger).await,
            None => self.log_triggered_everywhere(by, change, trigger).await,
        }
    }

    /// Logs a change of this transaction.
    pub(crate) async fn log(
        &mut self,
        project: ProjectId,
        user: Option<UserId>,
        change: Change,
    ) -> Result<(), MetadataError> {
        self.log_triggered(project, user, change, None).await
    }

    /// Logs a change of an object of the organization of `user`, in each of its projects: the log
    /// is read by project.
    pub(crate) async fn log_everywhere(
        &mut self,
        user: UserId,
        change: Change,
    ) -> Result<(), MetadataError> {
        self.log_triggered_everywhere(user, change, None).await
    }

    async fn log_triggered_everywhere(
        &mut self,
        user: UserId,
        change: Change,
        trigger: Option<Value>,
    ) -> Result<(), MetadataError> {
        let (base, organization) = (Arc::clone(&self.base), self.user(user)?.organization);
        for project in base.projects().filter(|project| project.organization == organization) {
            self.log_triggered(project.id, Some(user), change.clone(), trigger.clone()).await?;
        }
        Ok(())
    }

    /// Logs a change of this transaction that a job made in the name of `user`; `trigger` is
    /// `{"job_type", "job_id", "payload"}`.
    pub(crate) async fn log_triggered(
        &mut self,
        project: ProjectId,
        user: Option<UserId>,
        change: Change,
        trigger: Option<Value>,
    ) -> Result<(), MetadataError> {
        let at = self.shared.clock.now();
        let position = next_position(self.connection()).await?;
        let id = Uuid::new_v5(&NAMESPACE, position.to_string().as_bytes());
        let change = Elsewhere { id, project, user, at, change, forgotten: None };
        insert(self.connection(), position, &change, trigger).await?;
        Ok(())
    }
}

impl Metadata {
    /// Logs changes outside of the metadata store, all or none, and erases the persons that they
    /// delete (`erasure`). Changes that are logged already are skipped, and those in deleted projects.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], also for a project that does not exist.
    pub async fn record_activity(&self, changes: &[Elsewhere]) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let mut forgotten: BTreeMap<ProjectId, Vec<&Forgotten>> = BTreeMap::new();
        // A replay may bring what was done in a project before it was deleted.
        let base = Arc::clone(&write.base);
        for change in changes.iter().filter(|change| !base.is_deleted(change.project)) {
            let position = next_position(write.connection()).await?;
            let is_new = insert(write.connection(), position, change, None).await?;
            if let Some(person) = change.forgotten.as_ref().filter(|_| is_new) {
                forgotten.entry(change.project).or_default().push(person);
            }
        }
        let mut left = Vec::new();
        for (project, persons) in forgotten {
            left.push(write.forget(project, &persons).await?);
        }
        if left.iter().all(Left::is_as_before) {
            return write.commit_unseen().await;
        }
        let cohorts = left.into_iter().flat_map(Left::cohorts);
        write.commit_with(|next| cohorts.for_each(|cohort| next.put_cohort(cohort))).await
    }

    /// The objects of those of the entries `ids` that exist.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn items_logged(&self, ids: &[Uuid]) -> Result<HashSet<String>, MetadataError> {
        let mut select = Builder::new("SELECT item FROM activity WHERE id IN ");
        select.push_list(ids.iter().map(Uuid::to_string));
        let items: Vec<String> =
            select.build_scalar().fetch_all(&mut self.shared.db.reader().await?).await?;
        Ok(items.into_iter().collect())
    }

    /// The number of entries of a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn activity_count(
        &self,
        project: ProjectId,
        asked: &ActivityFilter,
    ) -> Result<usize, MetadataError> {
        let count = asked.count(project).fetch_one(&mut self.shared.db.reader().await?).await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// At most `limit` entries of a project from `start` on, newest first, as they are stored.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn activity_texts(
        &self,
        project: ProjectId,
        asked: &ActivityFilter,
        start: Start,
        limit: usize,
    ) -> Result<Vec<EntryText>, MetadataError> {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut select = asked.select(project);
        if let Start::Before(position) = start {
            select.push(" AND position < ").push_bind(position);
        }
        select.push(" ORDER BY position DESC LIMIT ").push_bind(number(limit));
        if let Start::Offset(offset) = start {
            select.push(" OFFSET ").push_bind(number(offset));
        }
        Ok(select.build_as().fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// The entries of a project, newest first: the `limit` after the first `offset`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn activity(
        &self,
        project: ProjectId,
        asked: &ActivityFilter,
        limit: usize,
        offset: usize,
    ) -> Result<EntryPage, MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        let count = asked.count(project).fetch_one(&mut connection).await?;
        let mut select = asked.select(project);
        select.push(" ORDER BY position DESC LIMIT ");
        select.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        select.push(" OFFSET ").push_bind(i64::try_from(offset).unwrap_or(i64::MAX));
        let texts: Vec<EntryText> = select.build_as().fetch_all(&mut connection).await?;
        let entries = texts.into_iter().map(EntryText::whole).collect::<Result<_, _>>()?;
        Ok(EntryPage { count: usize::try_from(count).unwrap_or(0), entries })
    }
}
