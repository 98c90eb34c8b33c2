//! The write path: from a request body to a durable acknowledgement.
//!
//! [`Pipeline::accept`] is the whole write path; read it first. `prepare` turns bytes into columns
//! (pure, on the CPU pool). `commit` makes them durable in the WAL and publishes them (one thread).
//! `projector` updates persons and definitions (one thread). `replay` applies the WAL at start.
//! `feedback` records ingestion warnings for senders. `following` applies what another process accepts. `locate`
//! finds the project of a body for whoever decides which log it goes to.
//! What may not live here: HTTP, the shapes of answers, files.

pub mod activity;
mod backlog;
mod bounds;
pub mod budget;
pub mod capture;
pub mod capture_v1;
pub mod commit;
pub mod decoding;
pub mod dedup;
pub mod definitions;
mod disk_room;
pub mod drops;
pub mod error;
pub mod feedback;
pub mod following;
pub mod health;
mod history;
mod holes;
pub mod locate;
pub mod log_record;
mod memory_estimate;
pub mod normalize;
pub mod operation;
pub mod prepare;
pub mod prepared;
pub mod project_facts;
pub mod projector;
pub mod publish;
pub mod recent;
pub mod replay;
mod replay_throttle;
pub mod request;
mod reread;
pub mod salvage;
pub mod tape;
pub mod warnings;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::bounds::{Bounds, log_times};
use crate::budget::{Budget, MemoryPermit};
use crate::commit::{Commit, DeletedProjects, LogFailed, LogThread};
use crate::decoding::{Decoding, Ready};
use crate::dedup::Window;
use crate::disk_room::DiskRoom;
use crate::drops::Drops;
use crate::error::IngestError;
use crate::feedback::Feedback;
use crate::following::{Following, Log};
use crate::health::Health;
use crate::holes::Holes;
use crate::memory_estimate::{expected_bytes, is_plain};
use crate::operation::Operation;
use crate::prepare::error::PrepareError;
use crate::prepared::EventOutcome;
use crate::projector::log_again::LogAgain;
use crate::projector::{Projector, Targets};
use crate::publish::{LogExtent, Published, Publisher};
use crate::replay::{Replay, Tail};
use crate::request::{CaptureRequest, Received, Rules};
use crate::reread::Rereader;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::{CpuPool, TaskError, Tasks};
use weir_base::telemetry::metrics::{Metrics, ReasonLabels};
use weir_base::telemetry::repeats::Repeats;
use weir_disk::Disk;
use weir_event::geoip::Places;
use weir_event::id::{EventKey, ProjectId, ShardId};
use weir_event::json::Fault;
use weir_identity::store::Identities;
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::snapshot::Snapshot as MetadataSnapshot;
use weir_progress::Progress;
use weir_storage::log::LogFiles;
use weir_storage::store::Store;
use weir_storage::wal::Sequence;
use weir_storage::wal::files::WalFiles;
use weir_wire::encoding::error::DecodeError;

/// Length of the log thread's queue, in requests. Their bytes are bounded by the memory permits.
const LOG_QUEUE_MAX: usize = 16 * 1024;

/// Length of the projector's queue, in records. When it is full, the log thread waits.
const DERIVE_QUEUE_MAX: usize = 1024;

/// How long a request waits for a flush, or for the replay, before it is answered with 503.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// Time between two checks whether the replay has caught up enough to admit a request.
const REPLAY_LOOK: Duration = Duration::from_millis(20);

/// Longest time between two checks whether the memtables have room.
const FLUSH_LOOK: Duration = Duration::from_millis(100);

/// Largest decoded body that is read on the thread that received it. Reading it takes 1 ms at most.
/// Handing a body to another thread and back takes 0.1 ms, which is more than reading a few events.
const INLINE_PLAIN_MAX_BYTES: u64 = 128 << 10;

/// Ratio to which a compressed body is assumed to inflate when [`INLINE_PLAIN_MAX_BYTES`] is applied
/// to it. A body that inflates to more than that limit is decoded again on the CPU pool.
const INLINE_INFLATE_RATIO: u64 = 8;

/// Result of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Log sequence of the record; `None` if no event was accepted.
    pub sequence: Option<Sequence>,
    /// Events that are durable now.
    pub accepted: usize,
    /// Events that were dropped, and why.
    pub drops: Drops,
    /// Outcome of each event, in order; only for capture v1.
    pub outcomes: Vec<(Uuid, EventOutcome)>,
}

/// A cheap handle on the write path; clones share it.
#[derive(Clone, Debug)]
pub struct Pipeline {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    shard: ShardId,
    decoding: Arc<Decoding>,
    cpu: CpuPool,
    metadata: Metadata,
    store: Store,
    log_files: Arc<dyn LogFiles>,
    log: mpsc::Sender<Commit>,
    /// Tells of new records, if another process writes the log.
    following: Option<Following>,
    /// Bounds the memory of the bodies in flight.
    budget: Budget,
    bounds: Bounds,
    published: Published,
    health: Arc<Health>,
    room: DiskRoom,
    feedback: Feedback,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// The engines that the write path feeds.
#[derive(Clone, Debug)]
pub struct Engines {
    /// The shard. Events of projects that are in another one are refused.
    pub shard: ShardId,
    /// Projects and definitions.
    pub metadata: Metadata,
    /// The events table.
    pub store: Store,
    /// Persons.
    pub identities: Identities,
    /// Finds the place of an address.
    pub places: Places,
    /// The disk of the data directory.
    pub disk: Arc<dyn Disk>,
}

/// What the write path runs on.
#[derive(Debug)]
pub struct Foundations<'a> {
    /// Its threads are tasks of these.
    pub tasks: &'a Tasks,
    /// Decodes bodies.
    pub cpu: CpuPool,
    /// The memory of requests, also of those of other logs.
    pub budget: Budget,
    /// Where threads wait for the metadata store.
    pub runtime: Handle,
    /// The time.
    pub clock: Clock,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
}

impl Pipeline {
    /// Starts the threads of the write path: log, projector, and replay of the WAL. `recent` returns
    /// the keys of the newest events in files, to seed deduplication; it runs on the replay thread.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub fn start(
        engines: Engines,
        own: Log,
        config: &Config,
        Foundations { tasks, cpu, budget, runtime, clock, metrics }: Foundations<'_>,
        recent: impl FnOnce() -> Vec<(ProjectId, EventKey)> + Send + 'static,
    ) -> Result<Self, TaskError> {
        let Engines { shard, metadata, store, identities, places, disk } = engines;
        let health = Arc::new(Health::default());
        let room = DiskRoom::of(disk, config, &health);
        let (log, inbox) = mpsc::channel(LOG_QUEUE_MAX);
        let (projections, derive_inbox) = mpsc::channel(DERIVE_QUEUE_MAX);
        let (flushed, derived) = (store.flushed_through(), Sequence(identities.applied_sequence()));
        let (publisher, published) = Publisher::new(
            store.clone(),
            Window::new(config.ingest.dedup_window_events),
            LogExtent { published: flushed.min(derived), durable: own.end() },
            projections,
            Arc::clone(&metrics),
            Arc::clone(&health),
        );
        let files = own.files();
        let durable = || publisher.lock().durable_sender();
        let following = Following::of(&own, &metadata, &clock, durable);
        let max_age = config.ingest.ingestion_warnings_max_age;
        let (warnings, handle) = (metadata.clone(), runtime.clone());
        let feedback = feedback::start(tasks, warnings, handle, &clock, &metrics, max_age)?;
        let decoding = Arc::new(Decoding::new(config, places));
        let rereader = Rereader { decoding: Arc::clone(&decoding), metadata: metadata.clone() };
        let holes = Holes { identities: identities.clone(), metrics: Arc::clone(&metrics) };
        let log_again =
            LogAgain::new(Arc::clone(&files), &rereader, &holes, &room, tasks.shutdown());
        let projector = Projector::new(
            derive_inbox,
            log_again,
            Targets::new(identities, &metadata, &feedback, following.as_ref()),
            (runtime.clone(), clock.clone(), Arc::clone(&health)),
        );
        tasks.spawn_thread("projector", tasks.vital("projector", move || projector.run()))?;
        let replay = Replay {
            reader: files.reader(replay::begins_after(files.before_oldest(), flushed, derived)),
            publisher: Arc::clone(&publisher),
            rereader,
            store: store.clone(),
            flushed,
            derived,
            health: Arc::clone(&health),
            shutdown: tasks.shutdown().clone(),
            holes,
            tail: following.clone().map(|following| Tail { following, runtime }),
        };
        tasks.spawn_thread("replay", tasks.vital("replay", move || replay.run_after(recent)))?;
        if let Log::Own(writer) = own {
            let log_thread = LogThread {
                writer,
                inbox,
                publisher,
                health: Arc::clone(&health),
                room: room.clone(),
                metrics: Arc::clone(&metrics),
                clock: clock.clone(),
                linger: log_times(config).0,
                refusals: Repeats::new(commit::REFUSALS_PAUSE),
                deleted: DeletedProjects::of(metadata.clone()),
            };
            tasks.spawn_thread("log", tasks.vital("log", move || log_thread.run()))?;
        }
        Ok(Self {
            shared: Arc::new(Shared {
                shard,
                decoding,
                cpu,
                metadata,
                store,
                log_files: files,
                log,
                following,
                budget: budget.of_log(),
                bounds: Bounds::of(config),
                published,
                health,
                room,
                feedback,
                clock,
                metrics,
            }),
        })
    }

    /// Keeps a spare segment of a log in segment files ready, on a thread of its own.
    ///
    /// # Errors
    ///
    /// The operating system refuses the thread.
    pub fn keep_spare_segment(
        &self,
        tasks: &Tasks,
        files: WalFiles,
        config: &Config,
    ) -> Result<(), TaskError> {
        commit::keep_stock(tasks, files, config, Arc::clone(&self.shared.health))
    }

    /// Accepts one request body. Returns when every accepted event is durable and visible.
    ///
    /// Run it detached from the connection: a client that hangs up must not cancel an append halfway.
    ///
    /// # Errors
    ///
    /// Nothing is stored; [`IngestError::kind`] tells what the sender should do.
    pub async fn accept(&self, request: CaptureRequest) -> Result<Receipt, IngestError> {
        let shared = &*self.shared;
        let permit = self.admit(request.hints.payload(&request.body)).await?;
        let received = Received {
            at: shared.clock.now(),
            client_ip: request.client_ip,
            protocol: request.protocol.clone(),
            seed: Uuid::new_v4().as_u64_pair().1,
            skew_ignored_millis: shared.bounds.skew_ignored_millis,
            event_max_bytes: shared.bounds.event_max_bytes,
            rules: Rules::default(),
        };
        let (mut ready, permit) = self.prepare(&request, &received, permit).await?;
        shared.check(ready.prepared.project)?;
        for (reason, count) in ready.prepared.drops.iter() {
            let labels = ReasonLabels { reason: reason.name() };
            shared.metrics.events_dropped.get_or_create(&labels).inc_by(count);
        }
        shared.feedback.note_batch(&ready.prepared);
        let accepted = ready.prepared.rows;
        // An import may have persons without events.
        let is_empty = accepted == 0 && ready.prepared.ops.is_empty();
        let drops = std::mem::take(&mut ready.prepared.drops);
        let outcomes = std::mem::take(&mut ready.prepared.outcomes);
        if is_empty {
            return Ok(Receipt { sequence: None, accepted, drops, outcomes });
        }
        let sequence = self.log(ready, permit).await?;
        shared.metrics.events_accepted.inc_by(u64::try_from(accepted).unwrap_or(0));
        Ok(Receipt { sequence: Some(sequence), accepted, drops, outcomes })
    }

    /// Logs an operation on persons or groups. Returns its log sequence when it is durable. Its effect
    /// is visible once the identity store has applied that sequence. Run it detached, as
    /// [`Pipeline::accept`].
    ///
    /// # Errors
    ///
    /// As of [`Pipeline::accept`]; the operation has no effect then.
    pub async fn operate(&self, operation: Operation) -> Result<Sequence, IngestError> {
        let head = operation.encode();
        let malformed = |_| IngestError::Prepare(PrepareError::Malformed(Fault::default()));
        self.shared.check(operation.project)?;
        let prepared = operation.replayed(&head).and_then(Operation::prepare).map_err(malformed)?;
        let mut permit = self.admit(&head).await?;
        permit.cover_memory(prepared.held_bytes())?;
        self.log(Ready { head, body: Bytes::new(), prepared }, permit).await
    }

    /// Hands a record to the log thread and waits until it is durable. Returns its log sequence.
    async fn log(&self, ready: Ready, permit: MemoryPermit) -> Result<Sequence, IngestError> {
        let (reply, answer) = oneshot::channel();
        let Ready { head, body, prepared } = ready;
        let commit = Commit { head, body, prepared, permit, reply };
        let gone = |_| IngestError::Unavailable("the server is shutting down");
        self.shared.log.send(commit).await.map_err(|_| gone(()))?;
        match tokio::time::timeout(self.shared.bounds.log_wait, answer).await {
            Ok(answer) => Ok(answer.map_err(|_| gone(()))??),
            // It may become durable yet; then what is sent again is known by its uuids.
            Err(_) => Err(IngestError::Overloaded("the log did not answer in time")),
        }
    }

    /// Admission: checks health and backpressure, then acquires the request's memory permit.
    async fn admit(&self, payload: &[u8]) -> Result<MemoryPermit, IngestError> {
        self.check()?;
        // A flush takes about a second. A sender that waits for it need not send its batch again.
        let room = tokio::time::timeout(ROOM_WAIT, self.wait_for_room());
        if room.await.is_err()
            && let Err(full) = self.look_for_room()
        {
            self.shared.health.set_waited_in_vain(true);
            return Err(full);
        }
        Ok(self.shared.budget.admit(expected_bytes(payload))?)
    }

    /// Readiness: whether the server accepts events, for load balancers.
    ///
    /// # Errors
    ///
    /// The reason why the server accepts no events.
    pub fn readiness(&self) -> Result<(), IngestError> {
        self.check()?;
        match self.shared.health.is_segment_refused() {
            true => Err(LogFailed::NoSegment.into()),
            false => Ok(()),
        }
    }

    /// Whether every request has to be rejected, whatever is in flight. If the log was refused a segment,
    /// requests are still admitted: only an append shows whether it can begin one now.
    fn check(&self) -> Result<(), IngestError> {
        let Shared { health, room, log_files, bounds, following, .. } = &*self.shared;
        if following.is_some() {
            return Err(IngestError::Unavailable("another server takes events"));
        }
        if health.is_identity_failed() {
            return Err(IngestError::Unavailable(
                "the identity store failed and is not open again yet; see the server's log",
            ));
        }
        if health.is_log_failed() {
            return Err(LogFailed::Poisoned.into());
        }
        if health.is_fenced() {
            return Err(LogFailed::Fenced.into());
        }
        if health.is_publication_failed() {
            return Err(IngestError::Unavailable(
                "a record of the log cannot be published; see the server's log",
            ));
        }
        // While the disk is low every request checks it, so that freed space is used at once.
        if health.is_disk_low() && !room.is_enough() {
            return Err(IngestError::Overloaded("the disk is nearly full"));
        }
        if log_files.size_bytes() >= bounds.wal_max_bytes {
            return Err(IngestError::Overloaded("the log is full"));
        }
        // One request has waited for the full time without success: others are rejected at once.
        if health.has_waited_in_vain() {
            self.look_for_room()?;
            health.set_waited_in_vain(false);
        }
        Ok(())
    }

    /// Waits until a record is admissible. During the replay new records are only logged, whatever the
    /// memtables contain, and the replay throttle limits their rate.
    async fn wait_for_room(&self) {
        let Shared { health, store, .. } = &*self.shared;
        while self.look_for_room().is_err() {
            match health.is_replaying() {
                true => tokio::time::sleep(REPLAY_LOOK).await,
                // The time-out covers a flush that ended between the check and the wait.
                false => drop(tokio::time::timeout(FLUSH_LOOK, store.flushed()).await),
            }
        }
    }

    /// Whether a record is admissible now: by the replay throttle, or else by the memtables.
    fn look_for_room(&self) -> Result<(), IngestError> {
        let Shared { health, store, .. } = &*self.shared;
        match health.is_replaying() {
            true if health.replay_throttle().is_held() => {
                Err(IngestError::Overloaded("the log is being replayed"))
            }
            false if store.is_full() => Err(IngestError::Overloaded("the memtables are full")),
            _ => Ok(()),
        }
    }

    /// Builds columns and the log record: of small bodies here, of others on the CPU pool. Returns the
    /// permit resized to the memory that they use.
    async fn prepare(
        &self,
        request: &CaptureRequest,
        received: &Received,
        mut permit: MemoryPermit,
    ) -> Result<(Ready, MemoryPermit), IngestError> {
        let shared = &*self.shared;
        loop {
            let metadata = shared.metadata.snapshot();
            let ready = match shared.ready_here(request, received, &metadata, &mut permit) {
                Some(ready) => ready?,
                None => {
                    let decoding = Arc::clone(&shared.decoding);
                    let (request, received) = (request.clone(), received.clone());
                    let job = move || {
                        let all = u64::MAX;
                        let ready =
                            decoding.ready(&request, &received, &metadata, all, &mut permit);
                        (ready, permit)
                    };
                    let (ready, back) = shared.cpu.run(job).await?;
                    permit = back;
                    ready?
                }
            };
            let unknown = &ready.prepared.unknown_group_types;
            if unknown.is_empty() {
                return Ok((ready, permit));
            }
            // At most five times per project: a group type gets its column before the first event
            // that uses it is stored.
            let project = ready.prepared.project;
            shared.metadata.ensure_group_types(project, unknown).await?;
        }
    }

    /// Highest published log sequence. A snapshot taken from now on has all rows up to it. For persons,
    /// a reader also waits until the identity store has applied it.
    pub fn published(&self) -> Sequence {
        *self.shared.published.sequence.borrow()
    }

    /// The newest record that is durable: no record behind it was acknowledged before the call.
    pub fn durable(&self) -> Sequence {
        *self.shared.published.durable.borrow()
    }

    /// Progress of publication, for queries that wait for it (read-your-writes).
    pub fn progress(&self) -> Progress {
        let ready = self.shared.health.live();
        let Published { sequence, durable, latest } = self.shared.published.clone();
        Progress::Live { published: sequence, durable, ready, latest }
    }

    /// Tells of new records, if another process writes the log.
    pub fn following(&self) -> Option<&Following> {
        self.shared.following.as_ref()
    }

    /// Writes the ingestion warnings that are still in memory; called at shutdown.
    pub async fn write_feedback(&self) -> Result<(), MetadataError> {
        self.shared.feedback.write(&self.shared.metadata).await
    }

    /// The conditions under which capture rejects events.
    pub fn health(&self) -> &Arc<Health> {
        &self.shared.health
    }

    /// The stored log.
    pub fn log_files(&self) -> &dyn LogFiles {
        &*self.shared.log_files
    }

    /// Checks the free disk space and updates the health state.
    pub fn look_at_disk(&self) {
        self.shared.room.is_enough();
    }

    /// Waits until no request is between arrival and publication, at most for `limit`.
    pub async fn drain(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.shared.budget.idle()).await.is_err() {
            tracing::warn!(
                "requests were still in flight when the time limit of the shutdown ended; those \
                 without a response have to be sent again"
            );
        }
    }
}

impl Shared {
    /// Refuses what is about a project of another shard, whoever has sent it here: it would be where nobody looks for it.
    fn check(&self, project: ProjectId) -> Result<(), IngestError> {
        match self.metadata.snapshot().project(project) {
            Some(project) if project.shard != self.shard => {
                Err(IngestError::Unavailable("the project is in another shard"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the request on this thread; `None` if it is too large for that.
    fn ready_here(
        &self,
        request: &CaptureRequest,
        received: &Received,
        metadata: &MetadataSnapshot,
        permit: &mut MemoryPermit,
    ) -> Option<Result<Ready, IngestError>> {
        let ratio = if is_plain(&request.body) { 1 } else { INLINE_INFLATE_RATIO };
        let sent = u64::try_from(request.body.len()).unwrap_or(u64::MAX);
        if sent.saturating_mul(ratio) > INLINE_PLAIN_MAX_BYTES {
            return None;
        }
        match self.decoding.ready(request, received, metadata, INLINE_PLAIN_MAX_BYTES, permit) {
            Err(IngestError::Decode(DecodeError::TooLarge { .. })) => None,
            ready => Some(ready),
        }
    }
}
