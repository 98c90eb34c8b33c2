//! Scheduled changes of flags: create, change, list, delete, and apply the due ones. The job that
//! looks for due changes is not here.
//!
//! A change is applied like a client's, in one transaction with its own completion
//! ([`Metadata::make_due_change`]): exactly once and completely, even after a crash. It is applied to the
//! flag as it is at that time, and logged as a change by the user who scheduled it. A change that breaks a
//! rule of flags has failed permanently; after a failure of the database it is retried.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::accounts::UserId;
use crate::entity::{Entity, Numbered, Patch, entity, next_id, stored};
use crate::error::MetadataError;
use crate::flags::{FlagId, StoredFlag};
use crate::schedules::operation::Operation;
pub use crate::schedules::timing::{Interval, Timing, TimingPatch};
use crate::violation::Violation;
use crate::{Metadata, Write, flags};
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;

mod cron;
mod operation;
mod rows;
mod timing;

/// Attempts for a change; PostHog's number.
const ATTEMPTS_MAX: i64 = 5;

/// Time before the next attempt.
const RETRY_PAUSE: Duration = Duration::from_mins(1);

/// Longest cron expression, in characters; far more than five fields need.
pub const CRON_MAX_CHARS: usize = 200;

/// The id of a scheduled change. Positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(pub i64);

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

stored! { ScheduleId as i64: |id| id.0, |raw| Ok(Self(raw)); }

entity! {
    /// A scheduled change as stored.
    #[derive(Default)]
    pub struct ScheduledChange in "scheduled_changes" {
        /// The id.
        id: ScheduleId [key],
        /// The project that it belongs to.
        project: ProjectId as "project_id" [once],
        /// The flag that it changes, which may be deleted.
        flag: FlagId as "flag_id" [once],
        /// The time zone of a cron expression: that of the project when the change was scheduled.
        timezone: String [once],
        /// Time at which it was finally applied or failed; `None` while it is pending.
        executed_at: Option<UnixMicros>,
        /// Time at which a recurring one was last applied.
        last_executed_at: Option<UnixMicros>,
        /// The error of the last failure, in words for people.
        failure_reason: Option<String>,
        /// Number of failures.
        failure_count: i64,
        /// After a failure: time of the next attempt.
        not_before: Option<UnixMicros>,
        /// The user who scheduled it, in whose name it is applied.
        created_by: UserId [once],
        /// Time at which it was scheduled.
        created_at: UnixMicros [once],
        /// Time of the last update.
        updated_at: UnixMicros,
    }
    parts {
        /// The times of the change.
        timing: Timing,
    }
    /// Changes to a scheduled change; `None` leaves a field unchanged.
    pub struct SchedulePatch {
        /// `{"operation": "update_status" | "add_release_condition" | "update_variants", "value"}`.
        payload: Value,
    }
    with {
        /// Changes to its times.
        timing: TimingPatch,
    }
}

impl Numbered for ScheduledChange {}

/// A client's data for a new scheduled change.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// The flag.
    pub flag: FlagId,
    /// See [`ScheduledChange`].
    pub payload: Value,
    /// The times of the change.
    pub timing: Timing,
}

/// The outcome of a due change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied.
    Made,
    /// It is finished without being applied: its end has passed, or it was removed meanwhile.
    Over,
    /// It failed and will be retried.
    Retried,
    /// It failed permanently.
    Failed,
}

impl Metadata {
    /// Schedules a change.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project or user, [`MetadataError::Rejected`]
    /// without such a flag that is not deleted, for an invalid payload, and for times that
    /// contradict each other; [`MetadataError::Forbidden`] if the user may not change the flag.
    pub async fn schedule(
        &self,
        project: ProjectId,
        user: UserId,
        new: NewSchedule,
    ) -> Result<ScheduledChange, MetadataError> {
        new.timing.check(&Operation::read(&new.payload)?, true)?;
        self.insert_schedule(project, user, new).await
    }

    /// Copies a scheduled change to another flag; it may be paused.
    pub async fn copy_schedule(
        &self,
        project: ProjectId,
        user: UserId,
        new: NewSchedule,
    ) -> Result<ScheduledChange, MetadataError> {
        new.timing.check(&Operation::read(&new.payload)?, false)?;
        self.insert_schedule(project, user, new).await
    }

    async fn insert_schedule(
        &self,
        project: ProjectId,
        user: UserId,
        new: NewSchedule,
    ) -> Result<ScheduledChange, MetadataError> {
        let mut write = self.begin().await?;
        write.user(user)?;
        let timezone = write.base.project(project).map(|project| project.timezone.clone());
        let timezone = timezone.ok_or(MetadataError::NotFound("project"))?;
        if !write.check_editor_of(user, project, new.flag).await? {
            return Err(Violation::general("Feature flag not found").into());
        }
        let now = self.now();
        let change = ScheduledChange {
            id: ScheduleId(next_id::<ScheduledChange>(write.connection()).await?),
            project,
            flag: new.flag,
            payload: new.payload,
            timing: new.timing,
            timezone,
            created_by: user,
            created_at: now,
            updated_at: now,
            ..ScheduledChange::default()
        };
        change.insert().execute(write.connection()).await?;
        write.commit_unseen().await?;
        Ok(change)
    }

    /// Changes a scheduled change, in the name of `user`. It is still applied in the name of the
    /// user who scheduled it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a change in the project, [`MetadataError::Rejected`] and
    /// [`MetadataError::Forbidden`] as for [`Metadata::schedule`], and if it was applied already.
    pub async fn reschedule(
        &self,
        project: ProjectId,
        user: UserId,
        id: ScheduleId,
        mut patch: SchedulePatch,
    ) -> Result<ScheduledChange, MetadataError> {
        let mut write = self.begin().await?;
        let change = of_project(rows::by_id(write.connection(), id).await?, project)?;
        let has_flag = write.check_editor_of(user, project, change.flag).await?;
        if change.executed_at.is_some() && !change.timing.is_recurring {
            let detail = "Cannot modify a scheduled change that has already executed.";
            return Err(Violation::general(detail).into());
        }
        let timing = std::mem::take(&mut patch.timing);
        let mut change = patch.applied(change);
        change.timing = timing.applied(change.timing);
        change.timing.check(&Operation::read(&change.payload)?, false)?;
        if !has_flag {
            return Err(Violation::general("Feature flag not found").into());
        }
        change.not_before = None;
        change.updated_at = self.now();
        change.update().execute(write.connection()).await?;
        write.commit_unseen().await?;
        Ok(change)
    }

    /// Cancels a scheduled change, or removes one that was applied, in the name of `user`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a change in the project,
    /// [`MetadataError::Forbidden`] if the user may not change the flag.
    pub async fn unschedule(
        &self,
        project: ProjectId,
        user: UserId,
        id: ScheduleId,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        let change = of_project(rows::by_id(write.connection(), id).await?, project)?;
        write.check_editor_of(user, project, change.flag).await?;
        change.delete().execute(write.connection()).await?;
        write.commit_unseen().await
    }

    /// A scheduled change of a project.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a change in the project.
    pub async fn scheduled_change(
        &self,
        project: ProjectId,
        id: ScheduleId,
    ) -> Result<ScheduledChange, MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        of_project(rows::by_id(&mut connection, id).await?, project)
    }

    /// The number of changes of a project, or of one of its flags, pending or not, and the `limit`
    /// after the first `offset`, in the order in which they were scheduled.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn scheduled_changes(
        &self,
        project: ProjectId,
        flag: Option<FlagId>,
        limit: usize,
        offset: usize,
    ) -> Result<(usize, Vec<ScheduledChange>), MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        rows::page(&mut connection, project, flag, limit, offset).await
    }

    /// The pending changes of a flag, including paused ones.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn pending_changes(
        &self,
        flag: FlagId,
    ) -> Result<Vec<ScheduledChange>, MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        rows::pending(&mut connection, flag).await
    }

    /// The due changes, at most `limit`, the longest overdue first. Costs one index look-up if
    /// there are none.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn due_changes(&self, limit: u32) -> Result<Vec<ScheduleId>, MetadataError> {
        let mut connection = self.shared.db.reader().await?;
        rows::due(&mut connection, self.now(), i64::from(limit)).await
    }

    /// Applies a due change, or records why it failed.
    ///
    /// # Errors
    ///
    /// If the database fails so that the failure cannot be recorded either; the change stays due.
    pub async fn make_due_change(&self, id: ScheduleId) -> Result<Outcome, MetadataError> {
        match self.make(id).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => self.note_failure(id, &error).await,
        }
    }

    /// Applies the change and records that, in one transaction.
    async fn make(&self, id: ScheduleId) -> Result<Outcome, MetadataError> {
        let mut write = self.begin().await?;
        let now = self.now();
        // Read again: another task may have applied it meanwhile.
        let change = rows::by_id(write.connection(), id).await?;
        let Some(mut change) = change.filter(|change| change.is_due(now)) else {
            return Ok(Outcome::Over);
        };
        change.updated_at = now;
        change.not_before = None;
        let is_past = change.timing.end_date.is_some_and(|end| end <= now);
        if is_past && change.timing.has_recurrence() {
            change.executed_at = Some(now);
            change.update().execute(write.connection()).await?;
            write.commit_unseen().await?;
            return Ok(Outcome::Over);
        }
        let flag = write.base.flags(change.project).iter().find(|flag| flag.id == change.flag);
        let flag = flag.map(|flag| StoredFlag::clone(flag));
        let flag = flag.ok_or_else(|| Violation::general("Feature flag does not exist."))?;
        let patch = Operation::read(&change.payload)?.patch(&flag);
        write.change_flag(change.created_by, &flag, patch, Some(change.trigger())).await?;
        change.done(now);
        change.update().execute(write.connection()).await?;
        write.save(flag.project, flag.id).await?;
        Ok(Outcome::Made)
    }

    async fn note_failure(
        &self,
        id: ScheduleId,
        error: &MetadataError,
    ) -> Result<Outcome, MetadataError> {
        let mut write = self.begin().await?;
        let Some(mut change) = rows::by_id(write.connection(), id).await? else {
            return Ok(Outcome::Over);
        };
        let outcome = change.failed(self.now(), error);
        change.update().execute(write.connection()).await?;
        write.commit_unseen().await?;
        Ok(outcome)
    }
}

impl Write {
    /// Checks that the user may change the flag, which may be deleted. Returns whether it is live.
    async fn check_editor_of(
        &mut self,
        user: UserId,
        project: ProjectId,
        flag: FlagId,
    ) -> Result<bool, MetadataError> {
        match flags::rows::by_id(self.connection(), project, flag).await? {
            Some(flag) => self.check_editor(user, &flag).map(|()| !flag.deleted),
            // Permanently removed, and so are the rights to it.
            None => Ok(false),
        }
    }
}

fn of_project(
    change: Option<ScheduledChange>,
    project: ProjectId,
) -> Result<ScheduledChange, MetadataError> {
    let change = change.filter(|change| change.project == project);
    change.ok_or(MetadataError::NotFound("scheduled change"))
}

impl ScheduledChange {
    fn is_due(&self, now: UnixMicros) -> bool {
        let is_paused = !self.timing.is_recurring && self.timing.has_recurrence();
        self.executed_at.is_none() && !is_paused && self.timing.scheduled_at <= now
    }

    /// The `trigger` of the activity entry.
    fn trigger(&self) -> Value {
        json!({
            "job_type": "scheduled_change",
            "job_id": self.id.to_string(),
            "payload": {"scheduled_change_id": self.id.0},
        })
    }

    /// Records that it was applied at `now`, and when it is due again.
    fn done(&mut self, now: UnixMicros) {
        self.failure_reason = None;
        self.failure_count = 0;
        if self.timing.is_recurring {
            self.last_executed_at = Some(now);
        }
        match self.timing.next(now, &self.timezone) {
            Some(next) => self.timing.scheduled_at = next,
            None => self.executed_at = Some(now),
        }
    }

    /// Records that it failed at `now`, in PostHog's words.
    fn failed(&mut self, now: UnixMicros, error: &MetadataError) -> Outcome {
        self.updated_at = now;
        self.failure_count = self.failure_count.saturating_add(1);
        let may_pass =
            matches!(error.kind(), Kind::Unavailable | Kind::Overloaded | Kind::Internal);
        let left = ATTEMPTS_MAX.saturating_sub(self.failure_count);
        if may_pass && left > 0 {
            let attempts = if left == 1 { "attempt" } else { "attempts" };
            let reason = format!("{error} (will retry automatically, {left} {attempts} remaining)");
            self.failure_reason = Some(reason);
            self.not_before = Some(now.saturating_add(RETRY_PAUSE));
            return Outcome::Retried;
        }
        self.failure_reason = Some(match may_pass {
            true => format!(
                "{error} (failed after {} out of {ATTEMPTS_MAX} attempts)",
                self.failure_count
            ),
            false => format!("{error} (permanent error)"),
        });
        self.executed_at = Some(now);
        Outcome::Failed
    }
}
