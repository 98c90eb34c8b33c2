//! What follows from the events: persons and event definitions. One thread takes derivations in
//! log order, folds what has queued up into one change of each store, and so keeps both as of a
//! point in the log. It is behind the acknowledgement, never behind an answer: readers wait for
//! the point they need ([`Identities::wait_applied`]).

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::change::Record;
use crate::identity::store::Identities;
use crate::ingest::health::Health;
use crate::metadata::Metadata;
use crate::metadata::definitions::DefinitionSeen;

/// Records folded into one change.
const FOLD_MAX_RECORDS: usize = 512;

/// How long a stored `last_seen_at` may lag behind.
const LAST_SEEN_LAG: Duration = Duration::from_secs(20);

/// Event names remembered, over all projects; beyond it names are written more often than needed.
const NAMES_MAX: usize = 100_000;

/// What one record says beyond its rows.
#[derive(Debug)]
pub(super) struct Derivation {
    /// Persons and groups.
    pub(super) record: Record,
    /// Names of events, each once.
    pub(super) names: Vec<String>,
}

/// The thread that derives.
#[derive(Debug)]
pub(super) struct Deriver {
    inbox: mpsc::Receiver<Derivation>,
    identities: Identities,
    metadata: Metadata,
    runtime: Handle,
    clock: Clock,
    health: Arc<Health>,
    /// When each name was last written.
    seen: HashMap<(ProjectId, String), UnixMicros>,
}

impl Deriver {
    pub(super) fn new(
        inbox: mpsc::Receiver<Derivation>,
        (identities, metadata): (Identities, Metadata),
        runtime: Handle,
        clock: Clock,
        health: Arc<Health>,
    ) -> Self {
        Self { inbox, identities, metadata, runtime, clock, health, seen: HashMap::new() }
    }

    /// Derives until every sender is gone.
    pub(super) fn run(mut self) {
        let mut derivations = Vec::with_capacity(FOLD_MAX_RECORDS);
        while self.inbox.blocking_recv_many(&mut derivations, FOLD_MAX_RECORDS) > 0 {
            // Definitions first: who sees the persons of a record sees its definitions.
            self.define(&derivations);
            let records: Vec<Record> =
                derivations.drain(..).map(|derivation| derivation.record).collect();
            self.apply(&records);
        }
    }

    fn apply(&self, records: &[Record]) {
        if self.health.is_identity_failed() {
            return;
        }
        match self.identities.apply(records) {
            Ok(applied) => {
                for warning in applied.warnings {
                    tracing::debug!(
                        project = warning.project.0,
                        kind = warning.kind.name(),
                        "identity rule kept an event from its full effect"
                    );
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot apply changes of persons; capture stops");
                self.health.fail_identity();
            }
        }
    }

    /// Writes the names that are new or have not been written for a while.
    fn define(&mut self, derivations: &[Derivation]) {
        let now = self.clock.now();
        let mut due = Vec::new();
        for derivation in derivations {
            let project = derivation.record.project;
            for name in &derivation.names {
                let key = (project, name.clone());
                let fresh = |at: &UnixMicros| now.since(*at) < LAST_SEEN_LAG;
                if self.seen.get(&key).is_some_and(fresh) {
                    continue;
                }
                if self.seen.len() >= NAMES_MAX {
                    self.seen.clear();
                }
                self.seen.insert(key, now);
                due.push(DefinitionSeen { project, name: name.clone(), seen_at: now });
            }
        }
        if due.is_empty() {
            return;
        }
        if let Err(error) = self.runtime.block_on(self.metadata.upsert_definitions(&due)) {
            tracing::error!(%error, "cannot store event definitions");
            for definition in due {
                self.seen.remove(&(definition.project, definition.name));
            }
        }
    }
}
