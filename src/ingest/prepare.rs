//! Builds columns from decoded bytes: the pure middle of the write path.
//!
//! [`Preparer::prepare`] reads a request body once and returns the rows of the `events` table, the
//! keys of the events, their ops on persons, and their definitions. No clock, no randomness, no I/O:
//! their values are in [`Received`], which the log record contains too, so that a replay gives the
//! same rows. The rules for one event are in `normalize`.

use std::net::IpAddr;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::error::Kind;
use crate::event::columns::Columns;
use crate::event::id::EventKey;
use crate::event::id::ProjectId;
use crate::event::schema::column;
use crate::geoip::Place;
use crate::geoip::Places;
use crate::identity::change::Op;
use crate::ingest::IngestError;
use crate::ingest::budget::MemoryPermit;
use crate::ingest::capture::Envelope;
use crate::ingest::capture_v1;
use crate::ingest::capture_v1::BatchError;
use crate::ingest::definitions::collect::Observed;
use crate::ingest::drops::Drop;
use crate::ingest::drops::Drops;
use crate::ingest::memory_estimate;
use crate::ingest::normalize::Batch;
use crate::ingest::normalize::keys::KeyTable;
use crate::ingest::salvage::Salvaged;
use crate::ingest::salvage::salvage;
use crate::ingest::tape::Cursor;
use crate::ingest::tape::Scratch;
use crate::ingest::warnings;
use crate::ingest::warnings::Warnings;
use crate::metadata::accounts::UserId;
use crate::wire::capture_v1::Sdk;
use crate::wire::repair::repair;

/// Parse buffers that are kept in the pool. As many bodies are parsed at once as the CPU pool has
/// threads.
const SCRATCHES_MAX: usize = 64;

/// Larger parse buffers are freed and not pooled. A typical body of 4 MiB takes this much.
const SCRATCH_MAX_BYTES: usize = 32 << 20;

/// What is known of a request besides its body.
#[derive(Clone, Debug)]
pub struct Received {
    /// When the body had arrived.
    pub at: UnixMicros,
    /// The client's address.
    pub client_ip: Option<IpAddr>,
    /// The protocol of the body.
    pub protocol: Protocol,
    /// Seed of the ids that the server generates.
    pub seed: u64,
    /// Largest clock skew of the sender that counts as network delay, milliseconds.
    pub skew_ignored_millis: u32,
    /// Size limit of an event, bytes of JSON.
    pub event_max_bytes: u32,
}

/// The capture protocol, and the parameters that it takes from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `/batch`, `/e` and other capture v0 paths.
    V0 {
        /// `sent_at` of the query string, milliseconds since 1970.
        sent_at_query_millis: Option<i64>,
        /// Whether the path was `/engage`, where an event without a name is an `$identify`.
        engage: bool,
    },
    /// `/i/v1/...`: stricter, with an outcome for each event.
    V1 {
        /// When the client sent the request, by its clock.
        sent_at: UnixMicros,
        /// The SDK, for `$lib` and `$lib_version`.
        sdk: Option<Sdk>,
    },
}

impl Default for Protocol {
    fn default() -> Self {
        Self::V0 { sent_at_query_millis: None, engage: false }
    }
}

impl Received {
    /// When the client sent the request, by the query or a header.
    pub(super) fn sent_at(&self) -> Option<UnixMicros> {
        match self.protocol {
            Protocol::V0 { sent_at_query_millis, .. } => {
                sent_at_query_millis.map(|millis| UnixMicros(millis.saturating_mul(1000)))
            }
            Protocol::V1 { sent_at, .. } => Some(sent_at),
        }
    }

    /// Whether an event without a name counts as `$identify`.
    pub(super) fn is_engage(&self) -> bool {
        matches!(self.protocol, Protocol::V0 { engage: true, .. })
    }
}

/// What building columns needs to know of a project.
#[derive(Clone, Debug)]
pub struct ProjectFacts {
    /// The project.
    pub id: ProjectId,
    /// Names of its group types, by index.
    pub group_types: Vec<String>,
    /// Whether client addresses are left out of the events, after their place was looked up.
    pub anonymize_ips: bool,
    /// Finds the place of an address.
    pub places: Places,
}

/// A body as columns, and what is derived from it.
#[derive(Debug)]
pub struct Prepared {
    /// The project that the events belong to.
    pub project: ProjectId,
    /// Number of rows.
    pub rows: usize,
    /// Columns of the `events` table by position; `None` where no row has a value.
    pub columns: Vec<Option<ArrayRef>>,
    /// Deduplication keys of the rows.
    pub keys: Vec<EventKey>,
    /// Ops on persons and groups, in order.
    pub ops: Vec<Op>,
    /// When the body had arrived.
    pub received_at: UnixMicros,
    /// Definitions in the events: their names, the keys and types of their properties.
    pub observed: Observed,
    /// Group types that the project does not have yet.
    pub unknown_group_types: Vec<String>,
    /// Events that were dropped, by reason.
    pub drops: Drops,
    /// Outcome of each event, in order. Only for capture v1, which responds to each.
    pub outcomes: Vec<(Uuid, EventOutcome)>,
    /// Ingestion warnings for the sender, including those about dropped events.
    pub warnings: Warnings,
    /// Places of the events' addresses, for the log record: a replay must use the same.
    pub places: Vec<(IpAddr, Place)>,
    /// Whether the addresses of clients were left out.
    pub anonymize_ips: bool,
    /// Memory of the columns.
    pub memory_bytes: usize,
    /// Memory of `ops` and `observed`, and of the body, which `ops` refer to.
    pub said_bytes: usize,
    /// The operator, if the record is an operation; it has no events then.
    pub by: Option<UserId>,
}

impl Prepared {
    /// A record that only has effects on persons and groups.
    pub(super) fn without_rows(project: ProjectId, at: UnixMicros, ops: Vec<Op>) -> Self {
        Self {
            said_bytes: memory_estimate::of_ops(&ops),
            project,
            rows: 0,
            columns: Vec::new(),
            keys: Vec::new(),
            ops,
            received_at: at,
            observed: Observed::default(),
            unknown_group_types: Vec::new(),
            drops: Drops::default(),
            warnings: Warnings::default(),
            outcomes: Vec::new(),
            places: Vec::new(),
            anonymize_ips: false,
            memory_bytes: 0,
            by: None,
        }
    }
}

/// Outcome of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// It is stored.
    Taken,
    /// It is stored without effects on persons, because its distinct id cannot be a person's.
    TakenPersonless,
    /// It is dropped.
    Dropped(Drop),
}

/// Why a whole body is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// It is not valid JSON.
    #[error("the body is not valid JSON")]
    Malformed,
    /// It is JSON, but not an object or array of events.
    #[error("the body is neither an event, nor an array of events, nor a batch")]
    NoObject,
    /// Its `batch` is not an array.
    #[error("batch is not an array of events")]
    BatchNotArray,
    /// It is an empty array or batch.
    #[error("the request holds no event")]
    NoEvents,
    /// It has no token.
    #[error("the request holds no project API key")]
    NoToken,
    /// No project has this token.
    #[error("no project has this API key")]
    UnknownToken,
    /// The events have tokens of different projects.
    #[error("the events hold different project API keys")]
    InconsistentTokens,
    /// It has more text than one batch of columns can hold, or needs more memory than one body may use.
    #[error("the body is too large for one batch")]
    TooLarge,
    /// Its events have more distinct ids than one body may have.
    #[error("the body has events of more than {max} distinct ids; send them in several requests")]
    TooManyIds {
        /// The limit.
        max: usize,
    },
    /// Other requests hold the memory that it needs. Passes by itself.
    #[error("too many bytes are in flight")]
    Crowded,
    /// A body of capture v1 is invalid as a whole.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl PrepareError {
    /// The class of the error: what the sender can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoToken | Self::UnknownToken => Kind::Unauthorized,
            Self::TooLarge | Self::TooManyIds { .. } => Kind::TooLarge,
            Self::Crowded => Kind::Overloaded,
            Self::Malformed
            | Self::NoObject
            | Self::BatchNotArray
            | Self::NoEvents
            | Self::InconsistentTokens
            | Self::Batch(_) => Kind::Invalid,
        }
    }
}

impl From<PrepareError> for IngestError {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Crowded => Self::Overloaded("too many bytes are in flight"),
            error => Self::Prepare(error),
        }
    }
}

/// Builds columns from bodies. One instance per process, shared by many threads.
#[derive(Debug)]
pub struct Preparer {
    keys: KeyTable,
    scratches: Mutex<Vec<Scratch>>,
}

impl Default for Preparer {
    fn default() -> Self {
        Self { keys: KeyTable::new(), scratches: Mutex::new(Vec::new()) }
    }
}

impl Preparer {
    /// Reads `body`. `project` finds the project by the token in the body; the token is empty in a
    /// protocol that sends it in a header. Ops on persons refer to the text of `body`, which stays in
    /// memory as long as they do.
    ///
    /// # Errors
    ///
    /// See [`PrepareError`]; nothing of the body may be stored then.
    pub fn prepare(
        &self,
        body: Vec<u8>,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
    ) -> Result<Prepared, PrepareError> {
        self.with_scratch(|scratch| self.read(body, (received, None), project, scratch))
    }

    /// Prepares within `permit`, which grows with the contents of the body.
    ///
    /// # Errors
    ///
    /// As [`Preparer::prepare`]; also [`PrepareError::Crowded`], and [`PrepareError::TooLarge`] for a body
    /// that needs more memory than one body may use.
    pub(super) fn prepare_within(
        &self,
        body: Vec<u8>,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        permit: &mut MemoryPermit,
    ) -> Result<Prepared, PrepareError> {
        memory_estimate::allow_parsing(&body, permit)?;
        self.with_scratch(|scratch| self.read(body, (received, Some(permit)), project, scratch))
    }

    /// The project whose token `body` contains; `project` finds it.
    ///
    /// # Errors
    ///
    /// As [`Preparer::prepare`], but only the tokens of the events are examined.
    pub(super) fn project_of(
        &self,
        body: &[u8],
        project: &dyn Fn(&str) -> Option<ProjectId>,
        permit: &mut MemoryPermit,
    ) -> Result<ProjectId, PrepareError> {
        memory_estimate::allow_parsing(body, permit)?;
        let read = |root: Cursor<'_>| {
            let envelope = Envelope::read(root)?;
            if envelope.is_malformed(false) {
                return Err(PrepareError::BatchNotArray);
            }
            let token = envelope.token.ok_or(PrepareError::NoToken)?;
            project(token.trim()).ok_or(PrepareError::UnknownToken)
        };
        self.with_scratch(|scratch| match scratch.parse(body, read) {
            Ok(found) => found,
            Err(_) => {
                let repaired = repair(body).ok_or(PrepareError::Malformed)?;
                scratch.parse(&repaired, read).map_err(|_| PrepareError::Malformed)?
            }
        })
    }

    fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.scratches.lock().pop().unwrap_or_default();
        let outcome = work(&mut scratch);
        let mut scratches = self.scratches.lock();
        if scratches.len() < SCRATCHES_MAX && scratch.memory_bytes() <= SCRATCH_MAX_BYTES {
            scratches.push(scratch);
        }
        outcome
    }

    fn read(
        &self,
        body: Vec<u8>,
        (received, mut permit): (&Received, Option<&mut MemoryPermit>),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Prepared, PrepareError> {
        let body = Buffer::from_vec(body);
        match self.build(&body, (received, permit.as_deref_mut()), project, scratch) {
            Ok(built) => built.map(|built| built.finish(body.len())),
            Err(_) => self.read_damaged(body, (received, permit), project, scratch),
        }
    }

    /// Reads a body that the parser rejects. This is rare, but must not lose a batch: lone surrogates, NaN
    /// and the like are repaired, and events that cannot be repaired are dropped.
    fn read_damaged(
        &self,
        mut body: Buffer,
        (received, mut permit): (&Received, Option<&mut MemoryPermit>),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Prepared, PrepareError> {
        if let Some(repaired) = repair(&body) {
            body = Buffer::from_vec(repaired);
            let within = (received, permit.as_deref_mut());
            if let Ok(built) = self.build(&body, within, project, scratch) {
                return built.map(|built| built.finish(body.len()));
            }
        }
        if let Protocol::V1 { .. } = received.protocol {
            // The response identifies events by id, and an unreadable event has none.
            return Err(PrepareError::Malformed);
        }
        let salvaged = salvage(&body, |item| scratch.parse(item, |_| ()).is_ok());
        let Salvaged { body, unreadable } = salvaged.ok_or(PrepareError::Malformed)?;
        let body = Buffer::from_vec(body);
        let built = self.build(&body, (received, permit), project, scratch);
        let mut built = built.map_err(|_| PrepareError::Malformed)??;
        built.drops.add_all(Drop::Unreadable, unreadable);
        built.warnings.add_unknown(warnings::Kind::Dropped(Drop::Unreadable), unreadable);
        Ok(built.finish(body.len()))
    }

    /// The outer error is the JSON parser's.
    fn build(
        &self,
        body: &Buffer,
        (received, permit): (&Received, Option<&mut MemoryPermit>),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Result<Built, PrepareError>, simd_json::Error> {
        scratch.parse(body, |root| {
            // A replayed body has passed the limits before.
            let is_new = permit.is_some();
            if let Some(permit) = permit.filter(|_| body.len() > memory_estimate::SMALL_BYTES) {
                memory_estimate::allow_building(
                    body.len(),
                    root.census(memory_estimate::is_said),
                    permit,
                )?;
            }
            let built = match &received.protocol {
                Protocol::V0 { .. } => self.build_v0(root, (body, received), project),
                Protocol::V1 { sdk, .. } => {
                    self.build_v1(root, (body, received), project, sdk.as_ref())
                }
            }?;
            if is_new {
                memory_estimate::allow_ids(&built.ops)?;
            }
            Ok(built)
        })
    }

    fn build_v0(
        &self,
        root: Cursor<'_>,
        request: (&Buffer, &Received),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
    ) -> Result<Built, PrepareError> {
        let envelope = Envelope::read(root)?;
        if envelope.is_malformed(request.1.is_engage()) {
            return Err(PrepareError::BatchNotArray);
        }
        let events_max = envelope.events_max();
        if events_max == 0 {
            return Err(PrepareError::NoEvents);
        }
        let token = envelope.token.ok_or(PrepareError::NoToken)?.trim();
        let project = project(token).ok_or(PrepareError::UnknownToken)?;
        let around = (envelope.sent_at, envelope.is_historical);
        let mut batch = Batch::new(&self.keys, request, &project, around);
        batch.reserve(events_max, root.body().len());
        envelope.for_each(root, |event| batch.event(event))?;
        Ok(batch.finish())
    }

    fn build_v1(
        &self,
        root: Cursor<'_>,
        request: (&Buffer, &Received),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        sdk: Option<&Sdk>,
    ) -> Result<Built, PrepareError> {
        let envelope = capture_v1::Envelope::read(root)?;
        let project = project("").ok_or(PrepareError::UnknownToken)?;
        let around = (None, envelope.is_historical);
        let mut batch = Batch::new(&self.keys, request, &project, around);
        let events = envelope.uuids.len();
        batch.reserve(events, root.body().len());
        let additions = batch.additions(sdk, envelope.is_internal)?;
        let mut outcomes = Vec::with_capacity(events);
        envelope.for_each(|event, uuid| {
            outcomes.push((uuid, batch.event_v1(event, &additions)?));
            Ok(())
        })?;
        Ok(Built { outcomes, ..batch.finish() })
    }
}

/// A batch whose columns still lack the body that they refer to.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) project: ProjectId,
    pub(super) columns: Columns,
    pub(super) keys: Vec<EventKey>,
    pub(super) ops: Vec<Op>,
    pub(super) received_at: UnixMicros,
    pub(super) observed: Observed,
    pub(super) unknown_group_types: Vec<String>,
    pub(super) drops: Drops,
    pub(super) outcomes: Vec<(Uuid, EventOutcome)>,
    pub(super) warnings: Warnings,
    pub(super) places: Vec<(IpAddr, Place)>,
    pub(super) anonymize_ips: bool,
}

impl Built {
    fn finish(self, body_bytes: usize) -> Prepared {
        let rows = self.columns.rows();
        let columns = self.columns.finish();
        Prepared {
            project: self.project,
            rows,
            memory_bytes: memory_bytes(&columns),
            said_bytes: body_bytes
                + memory_estimate::of_ops(&self.ops)
                + self.observed.memory_bytes(),
            by: None,
            columns,
            keys: self.keys,
            ops: self.ops,
            received_at: self.received_at,
            observed: self.observed,
            unknown_group_types: self.unknown_group_types,
            drops: self.drops,
            outcomes: self.outcomes,
            warnings: self.warnings,
            places: self.places,
            anonymize_ips: self.anonymize_ips,
        }
    }
}

/// Memory of the columns. The buffer that all text columns share is counted once.
fn memory_bytes(columns: &[Option<ArrayRef>]) -> usize {
    let shared = columns.get(column::PROPERTIES).and_then(Option::as_ref).map_or(0, |properties| {
        let data = properties.to_data();
        data.buffers().iter().skip(1).map(Buffer::capacity).sum()
    });
    let own = columns.iter().flatten().map(|array| {
        array.to_data().buffers().first().map_or(0, Buffer::capacity) + array.len() / 8
    });
    shared + own.sum::<usize>()
}

/// Number of columns of the `events` table.
pub(super) const COLUMNS: usize = column::HISTORICAL_MIGRATION + 1;

#[cfg(test)]
mod tests;
