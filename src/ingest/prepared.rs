//! A body as columns, and what is derived from it: what preparing gives to the log and to publication.

use std::net::IpAddr;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;
use uuid::Uuid;

use crate::definitions::collect::Observed;
use crate::drops::{Drop, Drops};
use crate::memory_estimate;
use crate::warnings::Warnings;
use weir_base::clock::UnixMicros;
use weir_event::geoip::Place;
use weir_event::id::{EventKey, ProjectId};
use weir_event::schema::column;
use weir_identity::change::Op;
use weir_metadata::accounts::UserId;

/// A body as columns, and what is derived from it.
#[derive(Debug)]
pub struct Prepared {
    /// The project that the events belong to.
    pub project: ProjectId,
    /// Number of rows.
    pub rows: usize,
    /// Columns of the `events` table by position; `None` where no row has a value.
    pub columns: Vec<Option<ArrayRef>>,
    /// Promoted properties that some row has with another type than their column, as bits by their place in
    /// [`PROMOTED`](weir_event::schema::PROMOTED).
    pub mismatched: u128,
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
            mismatched: 0,
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
    /// Memory that the body holds until it is published.
    pub(super) fn held_bytes(&self) -> u64 {
        let keys = self.keys.capacity() * size_of::<EventKey>();
        u64::try_from(self.said_bytes + self.memory_bytes + keys).unwrap_or(u64::MAX)
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

/// Memory of the columns. The buffer that all text columns share is counted once.
pub(super) fn memory_bytes(columns: &[Option<ArrayRef>]) -> usize {
    let shared = columns.get(column::PROPERTIES).and_then(Option::as_ref).map_or(0, |properties| {
        let data = properties.to_data();
        data.buffers().iter().skip(1).map(Buffer::capacity).sum()
    });
    let own = columns.iter().flatten().map(|array| {
        array.to_data().buffers().first().map_or(0, Buffer::capacity) + array.len() / 8
    });
    shared + own.sum::<usize>()
}
