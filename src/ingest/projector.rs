//! Projector: derives persons and definitions from events. One thread takes projections in log order,
//! folds those that have queued up into one change of each store, and so keeps both stores at one log
//! sequence. It runs behind the acknowledgement. Queries wait for the sequence that they need
//! ([`Identities::wait_applied`]), so they never see an older state.

pub(super) mod log_again;
mod recover;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::activity;
use crate::backlog::Room;
use crate::definitions::collect::Observed;
use crate::definitions::known::{Known, LAST_SEEN_LAG, Said};
use crate::feedback::{Feedback, Noted};
use crate::following::Following;
use crate::health::Health;
use crate::normalize::keys::KeyTable;
use crate::projector::log_again::LogAgain;
use crate::warnings::Sample;
use weir_base::clock::{Clock, UnixMicros};
use weir_event::id::ProjectId;
use weir_identity::change::{Effect, Record, Warning};
use weir_identity::store::Identities;
use weir_metadata::Metadata;
use weir_metadata::accounts::UserId;
use weir_metadata::definition_quota::{Limit, OverQuota};
use weir_metadata::definitions::Sightings;
use weir_metadata::record_times::RecordTime;

/// Records folded into one change, at most.
const FOLD_MAX_RECORDS: usize = 512;

/// Records that are applied at once; with fewer, the projector waits for more.
const FOLD_MIN_RECORDS: usize = 8;

/// How long it waits for more, unless a query waits for one of them. A change costs 100 us whatever
/// its size, and small requests arrive by the thousand per second.
const FOLD_PAUSE: Duration = Duration::from_millis(5);

/// Rows that may wait while the metadata store fails. Above this they are dropped, and recorded again
/// with the next events that contain them.
const DUE_MAX_ROWS: usize = 100_000;

/// Rows that get a transaction of their own: other writers wait while one is open.
const DUE_MANY_ROWS: usize = 20_000;

/// Attempts to write activity entries, after which the identity store counts as failed.
const LOG_ATTEMPTS: u32 = 30;

/// Time between two attempts.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Time between two warnings that a project exceeds its quota of definitions.
const QUOTA_WARNING_PAUSE: Duration = Duration::from_hours(1);

/// Effects of one record besides its rows.
#[derive(Debug)]
pub(super) struct Projection {
    /// Ops on persons and groups.
    pub(super) record: Record,
    /// When it was received.
    pub(super) received_at: UnixMicros,
    /// Definitions in its events: names of events and keys of properties.
    pub(super) observed: Observed,
    /// The operator, if the record is an operation.
    pub(super) by: Option<UserId>,
    /// Its part of the capacity of the backlog.
    pub(super) room: Room,
}

/// The projector thread.
#[derive(Debug)]
pub(super) struct Projector {
    inbox: mpsc::Receiver<Projection>,
    log: LogAgain,
    identities: Identities,
    metadata: Metadata,
    feedback: Feedback,
    following: Option<Following>,
    runtime: Handle,
    clock: Clock,
    health: Arc<Health>,
    /// Cache of the definitions that the metadata store has.
    known: Known,
    /// Definitions to write to the metadata store.
    due: Sightings,
    /// [`Metadata::forgotten`] when `known` was started.
    forgotten: u64,
    /// The minute of the last record whose time was recorded.
    minute: i64,
    /// When each project was last warned about its quota of definitions, by kind.
    quota_warned_at: HashMap<(ProjectId, Limit), Duration>,
}

/// What the projector writes to.
#[derive(Debug)]
pub(super) struct Targets {
    /// Persons and groups.
    pub(super) identities: Identities,
    /// Definitions and the activity log.
    pub(super) metadata: Metadata,
    /// Warnings for senders.
    pub(super) feedback: Feedback,
    /// Present if another process writes the log: that writes definitions, activity and warnings, too.
    pub(super) following: Option<Following>,
}

impl Targets {
    pub(super) fn new(
        identities: Identities,
        metadata: &Metadata,
        feedback: &Feedback,
        following: Option<&Following>,
    ) -> Self {
        let (metadata, feedback, following) =
            (metadata.clone(), feedback.clone(), following.cloned());
        Self { identities, metadata, feedback, following }
    }
}

impl Projector {
    pub(super) fn new(
        inbox: mpsc::Receiver<Projection>,
        log: LogAgain,
        Targets { identities, metadata, feedback, following }: Targets,
        (runtime, clock, health): (Handle, Clock, Arc<Health>),
    ) -> Self {
        let known = Known::new(KeyTable::slot_names());
        let due = Sightings::default();
        let forgotten = metadata.forgotten();
        Self {
            inbox,
            log,
            identities,
            metadata,
            feedback,
            following,
            runtime,
            clock,
            health,
            known,
            due,
            forgotten,
            minute: i64::MIN,
            quota_warned_at: HashMap::new(),
        }
    }

    /// Runs until every sender is closed.
    pub(super) fn run(mut self) {
        let mut projections = Vec::with_capacity(FOLD_MAX_RECORDS);
        while self.receive(&mut projections) {
            self.gather(&mut projections);
            // Definitions first: a query that sees the persons of a record sees its definitions.
            if self.following.is_none() {
                self.define(&projections);
            }
            let operators: Vec<(u64, UserId)> = projections
                .iter()
                .filter_map(|projection| Some((projection.record.sequence, projection.by?)))
                .collect();
            let parts =
                projections.drain(..).map(|projection| (projection.record, projection.room));
            let (records, rooms): (Vec<Record>, Vec<Room>) = parts.unzip();
            if !records.is_empty() {
                self.apply(&records, &operators);
            }
            drop((records, rooms));
        }
        self.known.put_last_seen(&mut self.due);
        self.store();
    }

    /// Waits for projections; `false` if the channel is closed. While a `last_seen_at` is unwritten, the
    /// wait is bounded by its allowed lag.
    fn receive(&mut self, projections: &mut Vec<Projection>) -> bool {
        if !self.known.lags() {
            return self.inbox.blocking_recv_many(projections, FOLD_MAX_RECORDS) > 0;
        }
        let inbox = &mut self.inbox;
        let received = self.runtime.block_on(async {
            let received = inbox.recv_many(projections, FOLD_MAX_RECORDS);
            tokio::time::timeout(LAST_SEEN_LAG, received).await
        });
        received.map_or(true, |received| received > 0)
    }

    /// Waits a little for more projections, if there are few.
    fn gather(&mut self, projections: &mut Vec<Projection>) {
        if projections.is_empty() || projections.len() >= FOLD_MIN_RECORDS {
            return;
        }
        self.identities.linger(FOLD_PAUSE);
        while projections.len() < FOLD_MAX_RECORDS {
            let Ok(projection) = self.inbox.try_recv() else { break };
            projections.push(projection);
        }
    }

    /// Applies records; if that fails, recovers the identity store first.
    fn apply(&self, records: &[Record], operators: &[(u64, UserId)]) {
        if self.health.is_identity_failed() {
            return;
        }
        let note = |effects: &[Effect]| self.log(effects, operators);
        let applied = self.identities.apply_noting(records, note, |warning| self.warn(&warning));
        if let (Err(error), Some(last)) = (applied, records.last()) {
            self.recover(&error, last);
        }
    }

    /// Writes the activity entries of operators' changes, and returns whether they are written. The
    /// changes wait for that: there must be no change without an entry.
    fn log(&self, effects: &[Effect], operators: &[(u64, UserId)]) -> bool {
        if self.following.is_some() {
            return true;
        }
        let user_of = |sequence| {
            let found = operators.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
            found.ok().and_then(|at| operators.get(at)).map(|(_, user)| *user)
        };
        let entries = activity::entries(effects, user_of);
        for _ in 0..LOG_ATTEMPTS {
            match self.runtime.block_on(self.metadata.record_activity(&entries)) {
                Ok(()) => return true,
                Err(error) => {
                    tracing::error!(%error, "cannot write activity entries; the changes wait");
                }
            }
            self.runtime.block_on(tokio::time::sleep(LOG_PAUSE));
        }
        false
    }

    fn warn(&self, warning: &Warning) {
        if self.following.is_some() {
            return;
        }
        let (project, kind) = (warning.project, warning.kind.into());
        let noted = Noted { project, kind, at: self.clock.now(), count: 1 };
        self.feedback.note(noted, std::iter::once_with(|| Sample::from(warning)));
    }

    /// Warns that a project exceeds a quota of definitions, at most once per hour.
    fn warn_over_quota(&mut self, over_quota: &OverQuota) {
        let now = self.clock.monotonic();
        let key = (over_quota.project, over_quota.limit);
        let is_recent = |at: &Duration| now.saturating_sub(*at) < QUOTA_WARNING_PAUSE;
        if self.quota_warned_at.get(&key).is_some_and(is_recent) {
            return;
        }
        self.quota_warned_at.insert(key, now);
        let sample = Sample::from(over_quota);
        let (project, kind) = (over_quota.project, sample.kind);
        let noted = Noted { project, kind, at: self.clock.now(), count: 1 };
        self.feedback.note(noted, std::iter::once(sample));
    }

    /// Writes new definitions to the metadata store.
    fn define(&mut self, projections: &[Projection]) {
        let mut is_storing = true;
        let forgotten = self.metadata.forgotten();
        if forgotten != self.forgotten {
            self.forgotten = forgotten;
            self.known.put_last_seen(&mut self.due);
            self.known = Known::new(KeyTable::slot_names());
        }
        let metadata = self.metadata.snapshot();
        for Projection { record, received_at, observed, .. } in projections {
            let said = Said {
                project: record.project,
                at: *received_at,
                observed,
                ops: &record.ops,
                group_types: metadata.group_types(record.project),
            };
            self.known.fold(&said, &mut self.due);
            if is_storing && self.due.len() >= DUE_MANY_ROWS {
                is_storing = self.store();
            }
        }
        let now = self.clock.now();
        self.known.put_last_seen_if_due(self.clock.monotonic(), &mut self.due);
        // Records that a replay repeats have no effect now.
        let applied = self.identities.applied_sequence();
        let mut sequences = projections.iter().map(|projection| projection.record.sequence);
        if let Some(first) = sequences.find(|sequence| *sequence > applied) {
            let time = RecordTime::new(now, first);
            if time.minute != std::mem::replace(&mut self.minute, time.minute) {
                self.due.times.push(time);
            }
        }
        self.store();
    }

    /// Writes everything that is due, and returns whether that succeeded.
    fn store(&mut self) -> bool {
        if self.due.is_empty() {
            return true;
        }
        match self.runtime.block_on(self.metadata.upsert_definitions(&self.due)) {
            Ok(over_quota) => {
                self.due = Sightings::default();
                over_quota.iter().for_each(|over_quota| self.warn_over_quota(over_quota));
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot store definitions yet; they stay in memory");
                if self.due.len() > DUE_MAX_ROWS {
                    // Record times are one per minute, and no later event brings them again.
                    let times = std::mem::take(&mut self.due.times);
                    self.due = Sightings { times, ..Sightings::default() };
                    self.known = Known::new(KeyTable::slot_names());
                }
                false
            }
        }
    }
}
