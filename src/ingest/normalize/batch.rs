//! The state of the normalization of one body: [`Batch`], the rows under construction, and [`Accepted`],
//! the event at hand. The rules that change them are in the files beside, each for its part.

use std::ops::Range;

use arrow::buffer::Buffer;
use hashbrown::HashMap;
use uuid::Uuid;

use crate::capture::Meaning;
use crate::definitions::collect::{Collector, Slots};
use crate::drops::Drops;
use crate::history::History;
use crate::normalize::addresses::{Address, Addresses};
use crate::normalize::auto_set::Lifts;
use crate::normalize::keys::{Hasher, KeyTable, Memo};
use crate::normalize::names::DistinctId;
use crate::project_facts::ProjectFacts;
use crate::request::Received;
use crate::warnings::Warnings;
use weir_base::clock::UnixMicros;
use weir_event::columns::{Columns, View};
use weir_event::id::EventKey;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_identity::change::Op;

/// The event by which an SDK reports that it called a flag.
pub(super) const FLAG_CALLED: &str = "$feature_flag_called";

/// The rows of one body, under construction.
#[derive(Debug)]
pub(crate) struct Batch<'a, 'r> {
    pub(super) keys: &'r KeyTable,
    pub(super) body: &'r Buffer,
    pub(super) received: &'r Received,
    pub(super) project: &'r ProjectFacts,
    pub(super) sent_at: Option<UnixMicros>,
    pub(super) addresses: Addresses,
    pub(super) columns: Columns,
    pub(super) keys_of_events: Vec<EventKey>,
    pub(super) ops: Vec<Op>,
    pub(super) memo: Memo<'a>,
    pub(super) definitions: Collector<'a>,
    pub(super) persons: HashMap<&'a str, Person, Hasher>,
    pub(super) unknown_group_types: Vec<String>,
    pub(super) drops: Drops,
    pub(super) warnings: Warnings,
    /// Promoted properties for which a type mismatch was reported.
    pub(super) mismatched: Slots,
    pub(super) has_groups: bool,
    pub(super) history: History,
    /// Properties of the current event that have a meaning, in the order of the body.
    pub(super) members: Vec<Member>,
    /// The properties among them that are auto-set on the person.
    pub(super) auto_sets: Lifts<'a>,
    /// Members that are added to the properties of the current event: JSON without braces.
    pub(super) injected: Vec<u8>,
}

/// An event that is stored.
#[derive(Debug)]
pub(super) struct Accepted<'a, 'e> {
    pub(super) name: &'e str,
    pub(super) distinct_id: &'e DistinctId<'a>,
    pub(super) timestamp: UnixMicros,
    pub(super) event_id: Uuid,
    pub(super) personless: bool,
    /// Range of the value of `$os` in the body, if it is added to the properties.
    pub(super) os: Option<Range<usize>>,
    pub(super) address: Address,
}

impl Accepted<'_, '_> {
    /// Whether its effects on its person are ignored.
    pub(super) fn says_nothing(&self) -> bool {
        self.personless || self.name == "$groupidentify"
    }
}

/// What this batch has already recorded for a distinct id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Person {
    pub(super) id: View,
    pub(super) touched: bool,
    pub(super) personless: bool,
    /// See `addresses::Addresses`.
    pub(super) place_epoch: u32,
}

/// A property in the body that may be removed: from the key's quote to the value's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) meaning: Meaning,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Ranges of the keys of an event's groups in the body, by index of the group type.
pub(super) type GroupKeys = [Option<Range<usize>>; GROUP_TYPES_MAX];
