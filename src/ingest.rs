//! The road from a request body to a durable acknowledgement.
//!
//! [`Pipeline::accept`] is the whole road; read it first. `prepare` turns bytes into columns (pure,
//! on the CPU pool), `commit` makes them durable in the log and publishes them (one thread),
//! `derive` keeps persons and definitions in step (one thread), `replay` re-runs the log at start,
//! `feedback` remembers for senders what was odd about their events.
//! What may not live here: HTTP, the shapes of answers, files.

pub mod activity;
mod backlog;
mod budget;
pub mod capture;
pub mod capture_v1;
pub mod commit;
pub mod decoding;
pub mod dedup;
pub mod definitions;
pub mod derive;
mod disk_room;
pub mod drops;
pub mod envelope;
pub mod feedback;
pub mod health;
mod holes;
pub mod normalize;
pub mod operation;
mod pace;
pub mod prepare;
pub mod publish;
pub mod recent;
pub mod replay;
mod reread;
pub mod salvage;
pub mod tape;
pub mod warnings;
mod weight;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::sync::watch;
use uuid::Uuid;

use crate::clock::Clock;
use crate::config::Config;
use crate::error::Kind;
use crate::event::id::EventKey;
use crate::event::id::ProjectId;
use crate::geoip::Places;
use crate::identity::store::Identities;
use crate::ingest::budget::Budget;
use crate::ingest::budget::Share;
use crate::ingest::commit::Commit;
use crate::ingest::commit::LogFailed;
use crate::ingest::commit::LogThread;
use crate::ingest::decoding::Decoding;
use crate::ingest::decoding::Ready;
use crate::ingest::dedup::Window;
use crate::ingest::derive::Deriver;
use crate::ingest::derive::recover::LogAgain;
use crate::ingest::disk_room::DiskRoom;
use crate::ingest::feedback::Feedback;
use crate::ingest::health::Health;
use crate::ingest::holes::Holes;
use crate::ingest::operation::Operation;
use crate::ingest::prepare::Fate;
use crate::ingest::prepare::PrepareError;
use crate::ingest::prepare::Protocol;
use crate::ingest::prepare::Received;
use crate::ingest::publish::Publisher;
use crate::ingest::replay::Replay;
use crate::ingest::reread::Rereader;
use crate::ingest::weight::expected_bytes;
use crate::ingest::weight::is_plain;
use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::snapshot::Snapshot as MetadataSnapshot;
use crate::storage::disk::Disk;
use crate::storage::progress::Progress;
use crate::storage::store::Store;
use crate::storage::wal::Sequence;
use crate::storage::wal::files::WalFiles;
use crate::storage::wal::writer::Wal;
use crate::tasks::CpuPool;
use crate::tasks::TaskError;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::ReasonLabels;
use crate::telemetry::repeats::Repeats;
use crate::wire::encoding::DecodeError;
use crate::wire::encoding::hints::Hints;

/// Requests that may wait for the log thread; their bytes are bounded besides.
const LOG_QUEUE_MAX: usize = 16 * 1024;

/// Records that may wait for the deriver before the log thread waits for it.
const DERIVE_QUEUE_MAX: usize = 1024;

/// How long a request waits for a flush, or for the replay, before it is answered 503.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// Time between two looks at how far the replay has come.
const REPLAY_LOOK: Duration = Duration::from_millis(20);

/// Longest time between two looks for room.
const FLUSH_LOOK: Duration = Duration::from_millis(100);

/// Plain bytes of a body that is read on the thread that received it. That takes a millisecond at
/// most; to hand a body to another thread and back takes a tenth of that, which is more than reading
/// a few events does.
const INLINE_PLAIN_MAX_BYTES: u64 = 128 << 10;

/// Bytes of a compressed body, in eighths of that: one that inflates to more is begun anew elsewhere.
const INLINE_INFLATE_RATIO: u64 = 8;

/// One request to take events.
#[derive(Clone, Debug)]
pub struct CaptureRequest {
    /// The body as it was received.
    pub body: Bytes,
    /// How it is encoded.
    pub hints: Hints,
    /// The client's address.
    pub client_ip: Option<IpAddr>,
    /// How the body is to be read.
    pub protocol: Protocol,
    /// The project's token, where a header names it and not the body.
    pub token: Option<String>,
}

/// What became of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its place in the log; `None` if no event of it was taken.
    pub sequence: Option<Sequence>,
    /// Events that are durable now.
    pub accepted: usize,
    /// Events that were not taken.
    pub dropped: u64,
    /// What became of each event, in order; only for capture v1.
    pub fates: Vec<(Uuid, Fate)>,
}

/// Why a request is not accepted. Nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The body's wrapping.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The body's contents.
    #[error(transparent)]
    Prepare(PrepareError),
    /// A bound is reached; it passes by itself.
    #[error("{0}")]
    Overloaded(&'static str),
    /// The server takes nothing until an operator acts.
    #[error("{0}")]
    Unavailable(&'static str),
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A thread is gone or panicked.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl IngestError {
    /// What the sender can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Decode(error) => error.kind(),
            Self::Prepare(error) => error.kind(),
            Self::Overloaded(_) => Kind::Overloaded,
            Self::Unavailable(_) => Kind::Unavailable,
            Self::Metadata(error) => error.kind(),
            Self::Task(error) => error.kind(),
        }
    }
}

/// A cheap handle on the road; clones share it.
#[derive(Clone, Debug)]
pub struct Pipeline {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    decoding: Arc<Decoding>,
    cpu: CpuPool,
    metadata: Metadata,
    store: Store,
    wal: WalFiles,
    log: mpsc::Sender<Commit>,
    /// Decoded bodies that may be in flight.
    budget: Budget,
    wal_max_bytes: u64,
    skew_ignored_millis: u32,
    event_max_bytes: u32,
    published: watch::Receiver<Sequence>,
    health: Arc<Health>,
    room: DiskRoom,
    feedback: Feedback,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// The engines that the road ends in.
#[derive(Clone, Debug)]
pub struct Engines {
    /// Projects and definitions.
    pub metadata: Metadata,
    /// The events table.
    pub store: Store,
    /// Persons.
    pub identities: Identities,
    /// Who knows where addresses are.
    pub places: Places,
    /// The disk of the data directory.
    pub disk: Arc<dyn Disk>,
}

impl Pipeline {
    /// Starts the threads of the road: log, deriver, and the replay of what the log holds. `recent`
    /// gives the ids of events in the newest files; it is called on the replay's thread.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub fn start(
        engines: Engines,
        wal: Wal,
        config: &Config,
        (tasks, cpu, runtime): (&Tasks, CpuPool, Handle),
        (clock, metrics): (Clock, Arc<Metrics>),
        recent: impl FnOnce() -> Vec<(ProjectId, EventKey)> + Send + 'static,
    ) -> Result<Self, TaskError> {
        let Engines { metadata, store, identities, places, disk } = engines;
        let health = Arc::new(Health::default());
        let room = DiskRoom::of(disk, config, &health);
        let (log, inbox) = mpsc::channel(LOG_QUEUE_MAX);
        let (derivations, derive_inbox) = mpsc::channel(DERIVE_QUEUE_MAX);
        let window = Window::new(config.ingest.dedup_window_events);
        let (publisher, published) = Publisher::new(
            store.clone(),
            window,
            wal.last_appended(),
            derivations,
            Arc::clone(&metrics),
            Arc::clone(&health),
        );
        let (flushed, derived) = (store.flushed_through(), Sequence(identities.applied_sequence()));
        let files = wal.files();
        let warnings_go_to = (metadata.clone(), runtime.clone());
        let max_age = config.ingest.ingestion_warnings_max_age;
        let feedback = feedback::start(tasks, warnings_go_to, (&clock, &metrics), max_age)?;
        let decoding = Arc::new(Decoding::new(config, places));
        let rereader = Rereader { decoding: Arc::clone(&decoding), metadata: metadata.clone() };
        let holes = Holes { identities: identities.clone(), metrics: Arc::clone(&metrics) };
        let log_again = LogAgain::new(&files, &rereader, &holes, &room, tasks.shutdown());
        let deriver = Deriver::new(
            (derive_inbox, log_again),
            (identities, metadata.clone()),
            feedback.clone(),
            runtime,
            clock.clone(),
            Arc::clone(&health),
        );
        tasks.spawn_thread("derive", tasks.vital("derive", move || deriver.run()))?;
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
        };
        tasks.spawn_thread("replay", tasks.vital("replay", move || replay.run_after(recent)))?;
        commit::keep_stock(tasks, (files.clone(), config), Arc::clone(&health))?;
        let log_thread = LogThread {
            wal,
            inbox,
            publisher,
            health: Arc::clone(&health),
            room: room.clone(),
            metrics: Arc::clone(&metrics),
            clock: clock.clone(),
            refusals: Repeats::new(commit::REFUSALS_PAUSE),
        };
        tasks.spawn_thread("log", tasks.vital("log", move || log_thread.run()))?;
        let budget = Budget::new(config.ingest.inflight_max_bytes.as_u64());
        let wal_max_bytes = config.storage.wal_max_bytes.as_u64();
        let skew = config.ingest.clock_skew_ignored.as_millis();
        let event_max_bytes = config.ingest.event_max_bytes.as_u64();
        Ok(Self {
            shared: Arc::new(Shared {
                decoding,
                cpu,
                metadata,
                store,
                wal: files,
                log,
                budget,
                wal_max_bytes,
                skew_ignored_millis: u32::try_from(skew).unwrap_or(u32::MAX),
                event_max_bytes: u32::try_from(event_max_bytes).unwrap_or(u32::MAX),
                published,
                health,
                room,
                feedback,
                clock,
                metrics,
            }),
        })
    }

    /// Takes one request body to disk. Returns when every accepted event is durable and visible.
    ///
    /// Run it detached from the connection: a client that hangs up must not cut an append in half.
    ///
    /// # Errors
    ///
    /// Nothing is stored; [`IngestError::kind`] says what the sender should do.
    pub async fn accept(&self, request: CaptureRequest) -> Result<Receipt, IngestError> {
        let shared = &*self.shared;
        let share = self.room_for(request.hints.payload(&request.body)).await?;
        let received = Received {
            at: shared.clock.now(),
            client_ip: request.client_ip,
            protocol: request.protocol.clone(),
            seed: Uuid::new_v4().as_u64_pair().1,
            skew_ignored_millis: shared.skew_ignored_millis,
            event_max_bytes: shared.event_max_bytes,
        };
        let (mut ready, share) = self.prepare(&request, &received, share).await?;
        let mut dropped = 0_u64;
        for (reason, count) in ready.prepared.drops.iter() {
            dropped = dropped.saturating_add(count);
            let labels = ReasonLabels { reason: reason.name() };
            shared.metrics.events_dropped.get_or_create(&labels).inc_by(count);
        }
        shared.feedback.note_batch(&ready.prepared);
        let accepted = ready.prepared.rows;
        let fates = std::mem::take(&mut ready.prepared.fates);
        if accepted == 0 {
            return Ok(Receipt { sequence: None, accepted, dropped, fates });
        }
        let sequence = self.log(ready, share).await?;
        shared.metrics.events_accepted.inc_by(u64::try_from(accepted).unwrap_or(0));
        Ok(Receipt { sequence: Some(sequence), accepted, dropped, fates })
    }

    /// The project that `body` belongs to, by the token in it. Nothing is stored.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::accept`], where the events are not looked at.
    pub async fn project_of(&self, body: Bytes, hints: Hints) -> Result<ProjectId, IngestError> {
        let shared = &*self.shared;
        let mut share = shared.budget.share(expected_bytes(hints.payload(&body)))?;
        let metadata = shared.metadata.snapshot();
        let decoding = Arc::clone(&shared.decoding);
        let job = move || decoding.project_of(&body, &hints, &metadata, &mut share);
        shared.cpu.run(job).await?
    }

    /// Takes an operation on persons to disk. Returns its place in the log when it is durable; its
    /// effect is there once the identity store has come to that place. Run it detached, as
    /// [`Pipeline::accept`].
    ///
    /// # Errors
    ///
    /// As of [`Pipeline::accept`]; nothing is done then.
    pub async fn operate(&self, operation: Operation) -> Result<Sequence, IngestError> {
        let head = operation.encode();
        let malformed = |_| IngestError::Prepare(PrepareError::Malformed);
        let prepared = operation.replayed(&head).and_then(Operation::prepare).map_err(malformed)?;
        let mut share = self.room_for(&head).await?;
        share.cover_memory(weight::of_prepared(&prepared))?;
        self.log(Ready { head, body: Bytes::new(), prepared }, share).await
    }

    /// Gives a record its place in the log and waits until it is durable.
    async fn log(&self, ready: Ready, share: Share) -> Result<Sequence, IngestError> {
        let (reply, answer) = oneshot::channel();
        let Ready { head, body, prepared } = ready;
        let commit = Commit { head, body, prepared, share, reply };
        let gone = |_| IngestError::Unavailable("the server is shutting down");
        self.shared.log.send(commit).await.map_err(|_| gone(()))?;
        Ok(answer.await.map_err(|_| gone(()))??)
    }

    /// Whether there is room for the request, and its share of what may be in flight.
    async fn room_for(&self, payload: &[u8]) -> Result<Share, IngestError> {
        self.check()?;
        // A flush takes about a second; a sender that waits for it keeps its batch and its place.
        let room = tokio::time::timeout(ROOM_WAIT, self.wait_for_room());
        if room.await.is_err()
            && let Err(full) = self.look_for_room()
        {
            self.shared.health.set_waited_in_vain(true);
            return Err(full);
        }
        Ok(self.shared.budget.share(expected_bytes(payload))?)
    }

    /// Whether the server takes events, for those who send them elsewhere if not.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn readiness(&self) -> Result<(), IngestError> {
        self.check()?;
        match self.shared.health.is_segment_refused() {
            true => Err(LogFailed::NoSegment.into()),
            false => Ok(()),
        }
    }

    /// Whether a request has to be refused, whatever is in flight. One that the log may have no segment
    /// for is let in: whether it has, only a record can tell.
    fn check(&self) -> Result<(), IngestError> {
        let Shared { health, room, wal, wal_max_bytes, .. } = &*self.shared;
        if health.is_identity_failed() {
            return Err(IngestError::Unavailable(
                "the identity store failed and is not open again yet; see the server's log",
            ));
        }
        if health.is_log_failed() {
            return Err(LogFailed::Poisoned.into());
        }
        if health.is_publication_failed() {
            return Err(IngestError::Unavailable(
                "a record of the log cannot be published; see the server's log",
            ));
        }
        // While it is low everybody looks, so that room is used as soon as it is there.
        if health.is_disk_low() && !room.is_enough() {
            return Err(IngestError::Overloaded("the disk is nearly full"));
        }
        if wal.size_bytes() >= *wal_max_bytes {
            return Err(IngestError::Overloaded("the log is full"));
        }
        // Others need not wait for what one has waited for in vain.
        if health.has_waited_in_vain() {
            self.look_for_room()?;
            health.set_waited_in_vain(false);
        }
        Ok(())
    }

    /// While the log is replayed new records only go to the log, whatever the memtables hold, but no
    /// faster than the replay can follow.
    async fn wait_for_room(&self) {
        let Shared { health, store, .. } = &*self.shared;
        while self.look_for_room().is_err() {
            match health.is_replaying() {
                true => tokio::time::sleep(REPLAY_LOOK).await,
                // The time-out covers a flush that ended between the look and the wait.
                false => drop(tokio::time::timeout(FLUSH_LOOK, store.flushed()).await),
            }
        }
    }

    /// Whether there is room for a record now.
    fn look_for_room(&self) -> Result<(), IngestError> {
        let Shared { health, store, .. } = &*self.shared;
        match health.is_replaying() {
            true if health.pace().is_held() => {
                Err(IngestError::Overloaded("the log is being replayed"))
            }
            false if store.is_full() => Err(IngestError::Overloaded("the memtables are full")),
            _ => Ok(()),
        }
    }

    /// Bytes to columns and to the log record: small bodies here, others on the CPU pool. The share
    /// comes back as what they take.
    async fn prepare(
        &self,
        request: &CaptureRequest,
        received: &Received,
        mut share: Share,
    ) -> Result<(Ready, Share), IngestError> {
        let shared = &*self.shared;
        loop {
            let metadata = shared.metadata.snapshot();
            let ready = match shared.ready_here(request, received, &metadata, &mut share) {
                Some(ready) => ready?,
                None => {
                    let decoding = Arc::clone(&shared.decoding);
                    let (request, received) = (request.clone(), received.clone());
                    let job = move || {
                        let all = u64::MAX;
                        let ready = decoding.ready(&request, &received, &metadata, all, &mut share);
                        (ready, share)
                    };
                    let (ready, back) = shared.cpu.run(job).await?;
                    share = back;
                    ready?
                }
            };
            let unknown = &ready.prepared.unknown_group_types;
            if unknown.is_empty() {
                return Ok((ready, share));
            }
            // At most five times in the life of a project: a group type gets its column before
            // the first event that names it.
            let project = ready.prepared.project;
            shared.metadata.ensure_group_types(project, unknown).await?;
        }
    }

    /// Everything up to here is visible to a snapshot taken from now on, rows and persons apart:
    /// a reader of persons waits until the identity store has come here too.
    pub fn published(&self) -> Sequence {
        *self.shared.published.borrow()
    }

    /// How far the log is published, for those who wait for it.
    pub fn progress(&self) -> Progress {
        let ready = self.shared.health.live();
        Progress::Live { published: self.shared.published.clone(), ready }
    }

    /// Writes the ingestion warnings that wait to be written; for the end of the process.
    ///
    /// # Errors
    ///
    /// The metadata store failed.
    pub async fn write_feedback(&self) -> Result<(), MetadataError> {
        self.shared.feedback.write(&self.shared.metadata).await
    }

    /// What keeps capture from accepting.
    pub fn health(&self) -> &Arc<Health> {
        &self.shared.health
    }

    /// The files of the log.
    pub fn wal(&self) -> &WalFiles {
        &self.shared.wal
    }

    /// Looks whether the disk has room, for those who ask for the server's health.
    pub fn look_at_disk(&self) {
        self.shared.room.is_enough();
    }

    /// Waits until nothing is between arrival and publication, at most for `limit`.
    pub async fn drain(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.shared.budget.idle()).await.is_err() {
            tracing::warn!("requests were still on their way into the log at shutdown");
        }
    }
}

impl Shared {
    /// The request, if it is small enough to be read at once.
    fn ready_here(
        &self,
        request: &CaptureRequest,
        received: &Received,
        metadata: &MetadataSnapshot,
        share: &mut Share,
    ) -> Option<Result<Ready, IngestError>> {
        let ratio = if is_plain(&request.body) { 1 } else { INLINE_INFLATE_RATIO };
        let sent = u64::try_from(request.body.len()).unwrap_or(u64::MAX);
        if sent.saturating_mul(ratio) > INLINE_PLAIN_MAX_BYTES {
            return None;
        }
        match self.decoding.ready(request, received, metadata, INLINE_PLAIN_MAX_BYTES, share) {
            Err(IngestError::Decode(DecodeError::TooLarge { .. })) => None,
            ready => Some(ready),
        }
    }
}
