//! What follows from the events: persons and definitions. One thread takes derivations in log
//! order, folds what has queued up into one change of each store, and so keeps both as of a point in
//! the log. It is behind the acknowledgement, never behind an answer: readers wait for the point
//! they need ([`Identities::wait_applied`]).

pub(super) mod recover;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::change::Effect;
use crate::identity::change::Record;
use crate::identity::change::Warning;
use crate::identity::store::Identities;
use crate::ingest::activity;
use crate::ingest::backlog::Room;
use crate::ingest::definitions::collect::Observed;
use crate::ingest::definitions::known::Known;
use crate::ingest::definitions::known::LAST_SEEN_LAG;
use crate::ingest::definitions::known::Said;
use crate::ingest::derive::recover::LogAgain;
use crate::ingest::feedback::Feedback;
use crate::ingest::feedback::Noted;
use crate::ingest::health::Health;
use crate::ingest::normalize::keys::KeyTable;
use crate::ingest::warnings::Sample;
use crate::metadata::Metadata;
use crate::metadata::accounts::UserId;
use crate::metadata::definition_room::Beyond;
use crate::metadata::definition_room::Limit;
use crate::metadata::definitions::Sightings;
use crate::metadata::record_times::RecordTime;

/// Records folded into one change.
const FOLD_MAX_RECORDS: usize = 512;

/// Records from which on they are worth a change of their own; with fewer, more are waited for.
const FOLD_MIN_RECORDS: usize = 8;

/// How long, unless somebody waits for one of them. A change costs a tenth of a millisecond whatever
/// is in it, and small requests come by the thousand in a second.
const FOLD_PAUSE: Duration = Duration::from_millis(5);

/// Rows that may wait for a metadata store that fails; beyond it they are dropped, and come again
/// with the next events that have them.
const DUE_MAX_ROWS: usize = 100_000;

/// Rows that are worth a transaction of their own: other writers wait for the one that there is.
const DUE_MANY_ROWS: usize = 20_000;

/// Attempts to log what operators did before that is given up, and with it the identity store.
const LOG_ATTEMPTS: u32 = 30;

/// Time between two of them.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// How long nobody is told again that a project has too many definitions.
const BEYOND_PAUSE: Duration = Duration::from_hours(1);

/// What one record says beyond its rows.
#[derive(Debug)]
pub(super) struct Derivation {
    /// Persons and groups.
    pub(super) record: Record,
    /// When it was received.
    pub(super) received_at: UnixMicros,
    /// Names of events and keys of properties.
    pub(super) observed: Observed,
    /// The operator whose operation it is.
    pub(super) by: Option<UserId>,
    /// What it takes of the memory for all that wait.
    pub(super) room: Room,
}

/// The thread that derives.
#[derive(Debug)]
pub(super) struct Deriver {
    inbox: mpsc::Receiver<Derivation>,
    log: LogAgain,
    identities: Identities,
    metadata: Metadata,
    feedback: Feedback,
    runtime: Handle,
    clock: Clock,
    health: Arc<Health>,
    /// What the metadata store has been told of definitions.
    known: Known,
    /// What it has still to be told.
    due: Sightings,
    /// The definitions that it had forgotten when `known` was begun.
    forgotten: u64,
    /// The minute of the last record whose time was noted.
    minute: i64,
    /// When it was told last that a project has too many definitions of a kind.
    told: HashMap<(ProjectId, Limit), Duration>,
}

impl Deriver {
    pub(super) fn new(
        (inbox, log): (mpsc::Receiver<Derivation>, LogAgain),
        (identities, metadata): (Identities, Metadata),
        feedback: Feedback,
        runtime: Handle,
        clock: Clock,
        health: Arc<Health>,
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
            runtime,
            clock,
            health,
            known,
            due,
            forgotten,
            minute: i64::MIN,
            told: HashMap::new(),
        }
    }

    /// Derives until every sender is gone.
    pub(super) fn run(mut self) {
        let mut derivations = Vec::with_capacity(FOLD_MAX_RECORDS);
        while self.receive(&mut derivations) {
            self.gather(&mut derivations);
            // Definitions first: who sees the persons of a record sees its definitions.
            self.define(&derivations);
            let operators: Vec<(u64, UserId)> = derivations
                .iter()
                .filter_map(|derivation| Some((derivation.record.sequence, derivation.by?)))
                .collect();
            let parts =
                derivations.drain(..).map(|derivation| (derivation.record, derivation.room));
            let (records, rooms): (Vec<Record>, Vec<Room>) = parts.unzip();
            if !records.is_empty() {
                self.apply(&records, &operators);
            }
            drop((records, rooms));
        }
        self.known.put_last_seen(&mut self.due);
        self.store();
    }

    /// Waits for derivations; `false` if there will be none. While the time of an event waits to be
    /// written, it does not wait for longer than that may take.
    fn receive(&mut self, derivations: &mut Vec<Derivation>) -> bool {
        if !self.known.lags() {
            return self.inbox.blocking_recv_many(derivations, FOLD_MAX_RECORDS) > 0;
        }
        let inbox = &mut self.inbox;
        let received = self.runtime.block_on(async {
            let received = inbox.recv_many(derivations, FOLD_MAX_RECORDS);
            tokio::time::timeout(LAST_SEEN_LAG, received).await
        });
        received.map_or(true, |received| received > 0)
    }

    /// Waits a little for more, if there are few.
    fn gather(&mut self, derivations: &mut Vec<Derivation>) {
        if derivations.is_empty() || derivations.len() >= FOLD_MIN_RECORDS {
            return;
        }
        self.identities.linger(FOLD_PAUSE);
        while derivations.len() < FOLD_MAX_RECORDS {
            let Ok(derivation) = self.inbox.try_recv() else { break };
            derivations.push(derivation);
        }
    }

    /// Applies records, if need be after the identity store was opened again.
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

    /// Logs what operators do to persons, and whether it is logged now. Persons wait for it: there
    /// is to be no change without an entry.
    fn log(&self, effects: &[Effect], operators: &[(u64, UserId)]) -> bool {
        let user_of = |sequence| {
            let found = operators.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
            found.ok().and_then(|at| operators.get(at)).map(|(_, user)| *user)
        };
        let entries = activity::entries(effects, user_of);
        for _ in 0..LOG_ATTEMPTS {
            match self.runtime.block_on(self.metadata.log_elsewhere(&entries)) {
                Ok(()) => return true,
                Err(error) => tracing::error!(%error, "cannot log changes of persons; they wait"),
            }
            self.runtime.block_on(tokio::time::sleep(LOG_PAUSE));
        }
        false
    }

    fn warn(&self, warning: &Warning) {
        let (project, kind) = (warning.project, warning.kind.into());
        let noted = Noted { project, kind, at: self.clock.now(), count: 1 };
        self.feedback.note(noted, std::iter::once_with(|| Sample::from(warning)));
    }

    /// Warns that a project has too many definitions of a kind, unless that was told within the hour.
    fn tell(&mut self, beyond: &Beyond) {
        let now = self.clock.monotonic();
        let key = (beyond.project, beyond.limit);
        if self.told.get(&key).is_some_and(|at| now.saturating_sub(*at) < BEYOND_PAUSE) {
            return;
        }
        self.told.insert(key, now);
        let sample = Sample::from(beyond);
        let (project, kind) = (beyond.project, sample.kind);
        let noted = Noted { project, kind, at: self.clock.now(), count: 1 };
        self.feedback.note(noted, std::iter::once(sample));
    }

    /// Tells the metadata store what is new.
    fn define(&mut self, derivations: &[Derivation]) {
        let mut is_storing = true;
        let forgotten = self.metadata.forgotten();
        if forgotten != self.forgotten {
            self.forgotten = forgotten;
            self.known.put_last_seen(&mut self.due);
            self.known = Known::new(KeyTable::slot_names());
        }
        let metadata = self.metadata.snapshot();
        for Derivation { record, received_at, observed, .. } in derivations {
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
        // What a replay brings again has no effect now.
        let applied = self.identities.applied_sequence();
        let mut sequences = derivations.iter().map(|derivation| derivation.record.sequence);
        if let Some(first) = sequences.find(|sequence| *sequence > applied) {
            let time = RecordTime::new(now, first);
            if time.minute != std::mem::replace(&mut self.minute, time.minute) {
                self.due.times.push(time);
            }
        }
        self.store();
    }

    /// Tells it all that is due, and whether that is done.
    fn store(&mut self) -> bool {
        if self.due.is_empty() {
            return true;
        }
        match self.runtime.block_on(self.metadata.upsert_definitions(&self.due)) {
            Ok(beyond) => {
                self.due = Sightings::default();
                beyond.iter().for_each(|beyond| self.tell(beyond));
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot store definitions; they wait");
                if self.due.len() > DUE_MAX_ROWS {
                    // Times are one in a minute, and nothing brings them again.
                    let times = std::mem::take(&mut self.due.times);
                    self.due = Sightings { times, ..Sightings::default() };
                    self.known = Known::new(KeyTable::slot_names());
                }
                false
            }
        }
    }
}
