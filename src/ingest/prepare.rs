//! From decoded bytes to columns: the pure middle of the write road.
//!
//! [`Preparer::prepare`] reads a request body once and gives the rows of the `events` table, the
//! ids of the events, what they say about persons, and their names. No clock, no randomness, no
//! I/O: what it needs of those stands in [`Received`], which the log keeps too, so that a replay
//! gives the same rows. The rules for one event are in `normalize`.

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
use crate::ingest::budget::Share;
use crate::ingest::capture::Envelope;
use crate::ingest::capture_v1;
use crate::ingest::capture_v1::BatchError;
use crate::ingest::definitions::collect::Observed;
use crate::ingest::drops::Drop;
use crate::ingest::drops::Drops;
use crate::ingest::normalize::Batch;
use crate::ingest::normalize::keys::KeyTable;
use crate::ingest::salvage::Salvaged;
use crate::ingest::salvage::salvage;
use crate::ingest::tape::Cursor;
use crate::ingest::tape::Scratch;
use crate::ingest::warnings;
use crate::ingest::warnings::Warnings;
use crate::ingest::weight;
use crate::metadata::accounts::UserId;
use crate::wire::capture_v1::Sdk;
use crate::wire::repair::repair;

/// Memory of parses that is kept for the next ones; as many bodies are parsed at once as the CPU
/// pool has threads.
const SCRATCHES_MAX: usize = 64;

/// Parses that took more leave no memory behind for the next one: a usual body of 4 MiB takes this.
const SCRATCH_MAX_BYTES: usize = 32 << 20;

/// What the server knows of a request besides its body.
#[derive(Clone, Debug)]
pub struct Received {
    /// When the body had arrived.
    pub at: UnixMicros,
    /// The client's address.
    pub client_ip: Option<IpAddr>,
    /// How the body is to be read.
    pub protocol: Protocol,
    /// Randomness for the ids that the server makes.
    pub seed: u64,
    /// Differences of the sender's clock that were taken for the way of the request, milliseconds.
    pub skew_ignored_millis: u32,
    /// The largest event that is taken, as JSON.
    pub event_max_bytes: u32,
}

/// The rules by which a body is read, and what they need of the request beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `/batch`, `/e` and their like.
    V0 {
        /// `sent_at` of the query string, milliseconds since 1970.
        sent_at_query_millis: Option<i64>,
        /// Whether the path was `/engage`, where an event without a name is an `$identify`.
        engage: bool,
    },
    /// `/i/v1/...`: stricter, and every event has an answer of its own.
    V1 {
        /// When the client's clock says it sent the request.
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
    /// When the client says, beside the body, that it sent the request.
    pub(super) fn sent_at(&self) -> Option<UnixMicros> {
        match self.protocol {
            Protocol::V0 { sent_at_query_millis, .. } => {
                sent_at_query_millis.map(|millis| UnixMicros(millis.saturating_mul(1000)))
            }
            Protocol::V1 { sent_at, .. } => Some(sent_at),
        }
    }

    /// Whether an event without a name is an `$identify`.
    pub(super) fn is_engage(&self) -> bool {
        matches!(self.protocol, Protocol::V0 { engage: true, .. })
    }
}

/// What a project must tell for its events to become columns.
#[derive(Clone, Debug)]
pub struct ProjectFacts {
    /// The project.
    pub id: ProjectId,
    /// Names of its group types, by index.
    pub group_types: Vec<String>,
    /// Whether the addresses of clients are left out, once their place was found.
    pub anonymize_ips: bool,
    /// Who knows where addresses are.
    pub places: Places,
}

/// A body as columns, and what follows from it.
#[derive(Debug)]
pub struct Prepared {
    /// The project that the events belong to.
    pub project: ProjectId,
    /// Rows of every column.
    pub rows: usize,
    /// Columns of the `events` table by position; `None` where no row has a value.
    pub columns: Vec<Option<ArrayRef>>,
    /// Keys of the rows.
    pub keys: Vec<EventKey>,
    /// What the events say about persons and groups, in order.
    pub ops: Vec<Op>,
    /// When the body had arrived.
    pub received_at: UnixMicros,
    /// What the events say about definitions: their names, the keys and types of their properties.
    pub observed: Observed,
    /// Group types that the project does not know yet.
    pub unknown_group_types: Vec<String>,
    /// Events that were not taken, by reason.
    pub drops: Drops,
    /// What became of each event, in order. Only for capture v1, which answers for each.
    pub fates: Vec<(Uuid, Fate)>,
    /// What the sender should hear of, those included.
    pub warnings: Warnings,
    /// Where addresses of events are, which a replay has to know.
    pub places: Vec<(IpAddr, Place)>,
    /// Whether the addresses of clients were left out.
    pub anonymize_ips: bool,
    /// Memory that the columns keep.
    pub memory_bytes: usize,
    /// Memory that `ops` and `observed` keep, with the body, which `ops` refer to.
    pub said_bytes: usize,
    /// The operator whose operation it is, and no events.
    pub by: Option<UserId>,
}

impl Prepared {
    /// A record that has an effect on persons alone.
    pub(super) fn without_rows(project: ProjectId, at: UnixMicros, ops: Vec<Op>) -> Self {
        Self {
            said_bytes: weight::of_ops(&ops),
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
            fates: Vec::new(),
            places: Vec::new(),
            anonymize_ips: false,
            memory_bytes: 0,
            by: None,
        }
    }
}

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is a row.
    Taken,
    /// It is a row that says nothing of persons, because its distinct id cannot be one's.
    TakenPersonless,
    /// It is not.
    Dropped(Drop),
}

/// Why a body is not taken at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// It is not JSON.
    #[error("the body is not valid JSON")]
    Malformed,
    /// It is JSON of another shape.
    #[error("the body is neither an event, nor an array of events, nor a batch")]
    NoObject,
    /// Its `batch` is not an array.
    #[error("batch is not an array of events")]
    BatchNotArray,
    /// It is an empty array or batch.
    #[error("the request holds no event")]
    NoEvents,
    /// No token anywhere.
    #[error("the request holds no project API key")]
    NoToken,
    /// No project has this token.
    #[error("no project has this API key")]
    UnknownToken,
    /// The events name different projects.
    #[error("the events hold different project API keys")]
    InconsistentTokens,
    /// More text than one batch of columns can hold, or more memory than one body may take.
    #[error("the body is too large for one batch")]
    TooLarge,
    /// Events of more distinct ids than one body may have.
    #[error("the body has events of more than {max} distinct ids; send them in several requests")]
    TooManyIds {
        /// How many it may have.
        max: usize,
    },
    /// Other requests have the memory that it takes. It passes by itself.
    #[error("too many bytes are in flight")]
    Crowded,
    /// A body of capture v1 is wrong as a whole.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl PrepareError {
    /// What the sender can do about it.
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

/// Builds columns from bodies; one for the process, used by many threads at once.
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
    /// Reads `body`. `project` finds the project of the token in it, which is empty by a protocol
    /// that has the token in a header. What is said of persons refers to `body`, which therefore
    /// lives as long as that.
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

    /// The same within `share`, which grows with what is in the body.
    ///
    /// # Errors
    ///
    /// Besides, [`PrepareError::Crowded`], and [`PrepareError::TooLarge`] for a body that takes more
    /// memory than one may.
    pub(super) fn prepare_within(
        &self,
        body: Vec<u8>,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        share: &mut Share,
    ) -> Result<Prepared, PrepareError> {
        weight::allow_parsing(&body, share)?;
        self.with_scratch(|scratch| self.read(body, (received, Some(share)), project, scratch))
    }

    /// The project whose token stands in `body`; `project` finds it.
    ///
    /// # Errors
    ///
    /// As [`Preparer::prepare`], but of the events only their tokens are looked at.
    pub(super) fn project_of(
        &self,
        body: &[u8],
        project: &dyn Fn(&str) -> Option<ProjectId>,
        share: &mut Share,
    ) -> Result<ProjectId, PrepareError> {
        weight::allow_parsing(body, share)?;
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
        (received, mut share): (&Received, Option<&mut Share>),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Prepared, PrepareError> {
        let body = Buffer::from_vec(body);
        match self.build(&body, (received, share.as_deref_mut()), project, scratch) {
            Ok(built) => built.map(|built| built.finish(body.len())),
            Err(_) => self.read_damaged(body, (received, share), project, scratch),
        }
    }

    /// Reads a body that the parser refuses. Rare, and not worth losing a batch for: lone
    /// surrogates, NaN and their like are repaired, and events beyond repair are left out.
    fn read_damaged(
        &self,
        mut body: Buffer,
        (received, mut share): (&Received, Option<&mut Share>),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Prepared, PrepareError> {
        if let Some(repaired) = repair(&body) {
            body = Buffer::from_vec(repaired);
            let within = (received, share.as_deref_mut());
            if let Ok(built) = self.build(&body, within, project, scratch) {
                return built.map(|built| built.finish(body.len()));
            }
        }
        if let Protocol::V1 { .. } = received.protocol {
            // An event that cannot be read has no id by which its sender could be told.
            return Err(PrepareError::Malformed);
        }
        let salvaged = salvage(&body, |item| scratch.parse(item, |_| ()).is_ok());
        let Salvaged { body, unreadable } = salvaged.ok_or(PrepareError::Malformed)?;
        let body = Buffer::from_vec(body);
        let built = self.build(&body, (received, share), project, scratch);
        let mut built = built.map_err(|_| PrepareError::Malformed)??;
        built.drops.add_all(Drop::Unreadable, unreadable);
        built.warnings.add_unknown(warnings::Kind::Dropped(Drop::Unreadable), unreadable);
        Ok(built.finish(body.len()))
    }

    /// The outer error is the parser's.
    fn build(
        &self,
        body: &Buffer,
        (received, share): (&Received, Option<&mut Share>),
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
        scratch: &mut Scratch,
    ) -> Result<Result<Built, PrepareError>, simd_json::Error> {
        scratch.parse(body, |root| {
            // What the log has was allowed once.
            let is_new = share.is_some();
            if let Some(share) = share.filter(|_| body.len() > weight::SMALL_BYTES) {
                weight::allow_building(body.len(), root.census(weight::is_said), share)?;
            }
            let built = match &received.protocol {
                Protocol::V0 { .. } => self.build_v0(root, (body, received), project),
                Protocol::V1 { sdk, .. } => {
                    self.build_v1(root, (body, received), project, sdk.as_ref())
                }
            }?;
            if is_new {
                weight::allow_ids(&built.ops)?;
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
        let mut fates = Vec::with_capacity(events);
        envelope.for_each(|event, uuid| {
            fates.push((uuid, batch.event_v1(event, &additions)?));
            Ok(())
        })?;
        Ok(Built { fates, ..batch.finish() })
    }
}

/// A batch whose columns wait for the body they refer to.
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
    pub(super) fates: Vec<(Uuid, Fate)>,
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
            said_bytes: body_bytes + weight::of_ops(&self.ops) + self.observed.memory_bytes(),
            by: None,
            columns,
            keys: self.keys,
            ops: self.ops,
            received_at: self.received_at,
            observed: self.observed,
            unknown_group_types: self.unknown_group_types,
            drops: self.drops,
            fates: self.fates,
            warnings: self.warnings,
            places: self.places,
            anonymize_ips: self.anonymize_ips,
        }
    }
}

/// Memory of the columns. The buffer that all text columns share counts once.
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
