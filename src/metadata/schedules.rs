//! Changes of flags that are to be made at a time: create, change, list, delete, and make them when
//! they are due. Who looks when is not here.
//!
//! A change is made by the code that makes a client's, in one transaction with its own end
//! ([`Metadata::make_due_change`]): it is made once, and whole, whatever happens to the process. It
//! is made to the flag as it is then, and logged as a change of the user who scheduled it. What the
//! rules of flags refuse has failed for good; what the database could not do is tried again.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::clock::UnixMicros;
use crate::error::Kind;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::Write;
use crate::metadata::accounts::UserId;
use crate::metadata::flag_rules::Violation;
use crate::metadata::flags;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::StoredFlag;
use crate::metadata::schedules::operation::Operation;
pub use crate::metadata::schedules::timing::Interval;
pub use crate::metadata::schedules::timing::Timing;

mod cron;
mod operation;
mod rows;
mod timing;

/// Times that a change is tried; PostHog's number.
const ATTEMPTS_MAX: i64 = 5;

/// Time before a change is tried again.
const RETRY_PAUSE: Duration = Duration::from_mins(1);

/// Longest cron expression, in characters; far more than five fields need.
pub const CRON_MAX_CHARS: usize = 200;

/// The id of a scheduled change. Positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(pub i64);

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A scheduled change as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledChange {
    /// The id.
    pub id: ScheduleId,
    /// The project that it belongs to.
    pub project: ProjectId,
    /// The flag that it changes, which may be gone.
    pub flag: FlagId,
    /// `{"operation": "update_status" | "add_release_condition" | "update_variants", "value"}`.
    pub payload: Value,
    /// When it is made.
    pub timing: Timing,
    /// The time zone of a cron expression: that of the project when the change was scheduled.
    pub timezone: String,
    /// When it was made, or failed, for the last time; `None` while it is still to be made.
    pub executed_at: Option<UnixMicros>,
    /// When a recurring one was made last.
    pub last_executed_at: Option<UnixMicros>,
    /// Why it failed last, in words for people.
    pub failure_reason: Option<String>,
    /// How often it failed.
    pub failure_count: i64,
    /// After a failure: when it is tried again.
    pub not_before: Option<UnixMicros>,
    /// Who scheduled it, and in whose name it is made.
    pub created_by: UserId,
    /// When it was scheduled.
    pub created_at: UnixMicros,
    /// When it last changed.
    pub updated_at: UnixMicros,
}

/// What a client says of a change that it schedules.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// The flag.
    pub flag: FlagId,
    /// See [`ScheduledChange`].
    pub payload: Value,
    /// When.
    pub timing: Timing,
}

/// Changes to a scheduled change; `None` leaves a field as it is, `Some(None)` empties it.
#[derive(Clone, Debug, Default)]
pub struct SchedulePatch {
    /// See [`ScheduledChange`].
    pub payload: Option<Value>,
    /// See [`Timing`].
    pub scheduled_at: Option<UnixMicros>,
    /// See [`Timing`].
    pub is_recurring: Option<bool>,
    /// See [`Timing`].
    pub interval: Option<Option<Interval>>,
    /// See [`Timing`].
    pub cron: Option<Option<String>>,
    /// See [`Timing`].
    pub end_date: Option<Option<UnixMicros>>,
}

/// What became of a change that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Made,
    /// It will not be made any more: its end had come, or it was taken back meanwhile.
    Over,
    /// It failed and is tried again.
    Retried,
    /// It failed for good.
    Failed,
}

impl Metadata {
    /// Schedules a change.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project or user, [`MetadataError::Rejected`]
    /// without such a flag that is not deleted, for a payload that says nothing, and for times that
    /// do not go together; [`MetadataError::Forbidden`] if the user may not change the flag.
    pub async fn schedule(
        &self,
        project: ProjectId,
        user: UserId,
        new: NewSchedule,
    ) -> Result<ScheduledChange, MetadataError> {
        new.timing.check(&Operation::read(&new.payload)?, true)?;
        self.insert_schedule(project, user, new).await
    }

    /// Schedules what is scheduled for another flag, which may be paused.
    ///
    /// # Errors
    ///
    /// See [`Metadata::schedule`].
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
        if !write.check_editor_of(user, (project, new.flag)).await? {
            return Err(Violation::general("Feature flag not found").into());
        }
        let now = self.now();
        let change = ScheduledChange {
            id: rows::next_id(write.connection()).await?,
            project,
            flag: new.flag,
            payload: new.payload,
            timing: new.timing,
            timezone,
            executed_at: None,
            last_executed_at: None,
            failure_reason: None,
            failure_count: 0,
            not_before: None,
            created_by: user,
            created_at: now,
            updated_at: now,
        };
        rows::insert(write.connection(), &change).await?;
        write.commit_unseen().await?;
        Ok(change)
    }

    /// Changes what is scheduled, in the name of `user`. It is still made in the name of who scheduled
    /// it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a change in the project, [`MetadataError::Rejected`]
    /// and [`MetadataError::Forbidden`] as for [`Metadata::schedule`], and if it was made already.
    pub async fn reschedule(
        &self,
        project: ProjectId,
        user: UserId,
        id: ScheduleId,
        patch: SchedulePatch,
    ) -> Result<ScheduledChange, MetadataError> {
        let mut write = self.begin().await?;
        let mut change = of_project(rows::by_id(write.connection(), id).await?, project)?;
        let has_flag = write.check_editor_of(user, (project, change.flag)).await?;
        if change.executed_at.is_some() && !change.timing.is_recurring {
            let detail = "Cannot modify a scheduled change that has already executed.";
            return Err(Violation::general(detail).into());
        }
        change.payload = patch.payload.unwrap_or(change.payload);
        let timing = &mut change.timing;
        timing.scheduled_at = patch.scheduled_at.unwrap_or(timing.scheduled_at);
        timing.is_recurring = patch.is_recurring.unwrap_or(timing.is_recurring);
        timing.interval = patch.interval.unwrap_or(timing.interval);
        if let Some(cron) = patch.cron {
            timing.cron = cron;
        }
        timing.end_date = patch.end_date.unwrap_or(timing.end_date);
        timing.check(&Operation::read(&change.payload)?, false)?;
        if !has_flag {
            return Err(Violation::general("Feature flag not found").into());
        }
        change.not_before = None;
        change.updated_at = self.now();
        rows::update(write.connection(), &change).await?;
        write.commit_unseen().await?;
        Ok(change)
    }

    /// Takes a scheduled change back, or removes one that was made, in the name of `user`.
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
        write.check_editor_of(user, (project, change.flag)).await?;
        rows::delete(write.connection(), id).await?;
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
        let mut connection = self.shared.db.readers().acquire().await?;
        of_project(rows::by_id(&mut connection, id).await?, project)
    }

    /// How many changes of a project, or of one of its flags, there are, made or not, and the `limit`
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
        let mut connection = self.shared.db.readers().acquire().await?;
        rows::page(&mut connection, (project, flag), limit, offset).await
    }

    /// The changes of a flag that are still to be made, paused ones included.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn pending_changes(
        &self,
        flag: FlagId,
    ) -> Result<Vec<ScheduledChange>, MetadataError> {
        let mut connection = self.shared.db.readers().acquire().await?;
        rows::pending(&mut connection, flag).await
    }

    /// The changes that are due, at most `limit`, the one that waits longest first. Costs one look at
    /// an index if there are none.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn due_changes(&self, limit: u32) -> Result<Vec<ScheduleId>, MetadataError> {
        let mut connection = self.shared.db.readers().acquire().await?;
        rows::due(&mut connection, self.now(), i64::from(limit)).await
    }

    /// Makes a change that is due, or notes why it cannot be made.
    ///
    /// # Errors
    ///
    /// The database fails so that not even that can be noted; the change stays due.
    pub async fn make_due_change(&self, id: ScheduleId) -> Result<Outcome, MetadataError> {
        match self.make(id).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => self.note_failure(id, &error).await,
        }
    }

    /// Makes the change and notes that, in one transaction.
    async fn make(&self, id: ScheduleId) -> Result<Outcome, MetadataError> {
        let mut write = self.begin().await?;
        let now = self.now();
        // As it is now: somebody may have been faster than we.
        let change = rows::by_id(write.connection(), id).await?;
        let Some(mut change) = change.filter(|change| change.is_due(now)) else {
            return Ok(Outcome::Over);
        };
        change.updated_at = now;
        change.not_before = None;
        let is_past = change.timing.end_date.is_some_and(|end| end <= now);
        if is_past && change.timing.has_recurrence() {
            change.executed_at = Some(now);
            rows::update(write.connection(), &change).await?;
            write.commit_unseen().await?;
            return Ok(Outcome::Over);
        }
        let flag = write.base.flags(change.project).iter().find(|flag| flag.id == change.flag);
        let flag = flag.map(|flag| StoredFlag::clone(flag));
        let flag = flag.ok_or_else(|| Violation::general("Feature flag does not exist."))?;
        let patch = Operation::read(&change.payload)?.patch(&flag);
        write.change_flag(change.created_by, &flag, patch, Some(change.trigger())).await?;
        change.done(now);
        rows::update(write.connection(), &change).await?;
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
        rows::update(write.connection(), &change).await?;
        write.commit_unseen().await?;
        Ok(outcome)
    }
}

impl Write {
    /// Checks that the user may change the flag, which may be deleted. Whether it is live.
    async fn check_editor_of(
        &mut self,
        user: UserId,
        (project, flag): (ProjectId, FlagId),
    ) -> Result<bool, MetadataError> {
        match flags::rows::by_id(self.connection(), project, flag).await? {
            Some(flag) => self.check_editor(user, &flag).map(|()| !flag.deleted),
            // Gone for good, and so are the rights to it.
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

    /// What the log of changes says of the cause.
    fn trigger(&self) -> Value {
        json!({
            "job_type": "scheduled_change",
            "job_id": self.id.to_string(),
            "payload": {"scheduled_change_id": self.id.0},
        })
    }

    /// Notes that it was made at `now`, and when it is made again.
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

    /// Notes that it failed at `now`, in PostHog's words.
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
