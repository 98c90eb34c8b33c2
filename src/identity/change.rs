//! What arrives: the effect of events on persons and groups, without their JSON shapes.
//!
//! Ingest builds these from decoded events; it may drop all but the first [`OpKind::Touch`] of a
//! distinct id within one record, because the others change nothing.

use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::lifted::Lifted;

/// The effects of one log record, in the order of its events.
#[derive(Clone, Debug)]
pub struct Record {
    /// Position in the log; from 1, rising, gaps allowed.
    pub sequence: u64,
    /// The project of all its events.
    pub project: ProjectId,
    /// The effects, in the order of the events.
    pub ops: Vec<Op>,
}

/// One effect of one event.
#[derive(Clone, Debug)]
pub struct Op {
    /// The event's distinct id, after ingest's checks.
    pub distinct_id: String,
    /// The event's id; becomes `$creator_event_uuid` of a person it creates.
    pub event_id: Uuid,
    /// The event's corrected time; becomes `created_at` of what it creates.
    pub timestamp: UnixMicros,
    /// What it does.
    pub kind: OpKind,
}

/// What an event does to persons and groups.
#[derive(Clone, Debug)]
pub enum OpKind {
    /// A person exists for the distinct id afterwards.
    Touch,
    /// The event was stored without a person, under the uuid that the id's own person would have.
    Personless,
    /// Changes to the properties of the id's person; creates it if need be.
    Update(Update),
    /// The same, if the id has a person; otherwise like [`OpKind::Personless`].
    UpdateExisting(Update),
    /// `$identify`, `$create_alias` or `$merge_dangerously`: both ids become one person.
    Merge {
        /// `$anon_distinct_id` or `alias`: the id whose person is merged away.
        other: String,
        /// Whether an identified person may be merged away.
        force: Force,
        /// The event's own changes, applied to the survivor.
        update: Update,
    },
    /// `$groupidentify`.
    GroupUpdate {
        /// `$group_type`.
        group_type: String,
        /// `$group_key`.
        key: String,
        /// `$group_set`, merged shallowly over what is there.
        set: Map<String, Value>,
    },
    /// The types named in `$groups`; each gets an index at first sight.
    GroupTypes(Vec<String>),
    /// An operator takes a merge back: every distinct id that the person does not keep gets a person
    /// of its own, without properties. The op's own distinct id is empty.
    Split {
        /// The person. If it is gone, or has more than [`OPERATION_MAX_IDS`], nothing happens.
        person: Uuid,
        /// The ids that it keeps.
        keep: Keep,
    },
    /// An operator changes properties. The op's own distinct id is empty.
    Change {
        /// The person. If it is gone, nothing happens.
        person: Uuid,
        /// The changes.
        update: Update,
    },
    /// An operator makes a group, or changes its properties. The op's own distinct id is empty.
    ChangeGroup(GroupChange),
    /// An operator deletes a person, its events, or both. The op's own distinct id is empty.
    Delete {
        /// The person. If it is gone, or has more than [`OPERATION_MAX_IDS`], nothing happens.
        person: Uuid,
        /// What of it.
        extent: Extent,
    },
}

/// Most distinct ids of a person that an operator deletes or splits. All of them change in one step of
/// the store, which takes up to 2.5 KB of memory for each; a person with more is left as it is. Part of
/// what records mean: another figure would replay them otherwise.
pub const OPERATION_MAX_IDS: usize = 50_000;

/// What of a person an operator deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The person alone. Its distinct ids stay known as those of stored events, without a person
    /// until one is made for them anew.
    Person,
    /// All its events so far; the person stays.
    Events,
    /// Both: its distinct ids are as if they had never been seen.
    Both,
}

impl Extent {
    /// Whether events go.
    pub fn has_events(self) -> bool {
        self != Self::Person
    }

    /// Whether the person goes.
    pub fn has_person(self) -> bool {
        self != Self::Events
    }
}

/// Which distinct ids a person keeps that is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The one that its uuid was made from.
    Own,
    /// This one. If it is not one of its ids, nothing happens.
    One(String),
    /// All but these. If one of them is not one of its ids, or no id would be left, nothing happens.
    AllBut(Vec<String>),
}

/// What an operator wants of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupChange {
    /// The name of its type, which there has to be.
    pub group_type: String,
    /// Its key.
    pub key: String,
    /// Whether it is to be made. If it is there then, or otherwise is not, nothing happens.
    pub is_new: bool,
    /// Properties to set.
    pub set: Map<String, Value>,
    /// Properties to remove.
    pub unset: Vec<String>,
}

/// What an operation of an operator did to a person or a group: who it is about, and what was before.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Whose person or group.
    pub project: ProjectId,
    /// Sequence of the record of the operation.
    pub sequence: u64,
    /// How many effects come before it in the record.
    pub place: u32,
    /// When the operation was asked for.
    pub at: UnixMicros,
    /// What was done.
    pub done: Done,
}

/// What was done, and to whom.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// To a person.
    Person {
        /// Its integer id.
        number: i64,
        /// Its uuid before.
        uuid: Uuid,
        /// What was done to it.
        done: PersonDone,
    },
    /// To a group: it was made, or properties were set or removed.
    Group {
        /// The index of its type.
        type_index: u8,
        /// Its key.
        key: String,
        /// Whether it was made.
        is_new: bool,
        /// Its properties.
        properties: Difference,
    },
}

/// Properties before and after. Both have only what differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Values of before; a key that is not here was absent.
    pub before: Map<String, Value>,
    /// Values of after; a key that is not here was removed.
    pub after: Map<String, Value>,
}

impl Difference {
    /// Between two states of an object.
    pub fn between(before: &Map<String, Value>, after: &Map<String, Value>) -> Self {
        Self { before: without(before, after), after: without(after, before) }
    }

    /// Whether both were the same.
    pub fn is_none(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

/// The properties of `all` that `other` has not with the same value.
fn without(all: &Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let differ = all.iter().filter(|(key, value)| other.get(*key) != Some(*value));
    differ.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What was done to a person.
#[derive(Clone, Debug, PartialEq)]
pub enum PersonDone {
    /// Properties were set or removed.
    Changed(Difference),
    /// Distinct ids got persons of their own. Both are in the order in which they had come.
    Split {
        /// All of before.
        before: Vec<String>,
        /// Those that are left.
        after: Vec<String>,
    },
    /// It was deleted, or its events, or both.
    Deleted {
        /// What of it.
        extent: Extent,
        /// All distinct ids of a person that was deleted, in the order in which they had come.
        distinct_ids: Vec<String>,
    },
}

/// `$set`, `$set_once` and `$unset` of one event, with what normalisation lifted from its
/// properties.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Written if the value differs. Wins over `set_once`.
    pub set: Map<String, Value>,
    /// Written if the person lacks the key, or has it with null.
    pub set_once: Map<String, Value>,
    /// Removed if the person had the key before the event.
    pub unset: Vec<String>,
    /// What normalisation lifted from the event's properties, and from the place it came from.
    pub lifted: [Option<Lifted>; 2],
    /// Whether noise alone is worth a write.
    pub occasion: Occasion,
}

impl Update {
    /// Whether it changes nothing, whatever the person is like.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
            && self.set_once.is_empty()
            && self.unset.is_empty()
            && self.lifted.iter().flatten().all(Lifted::is_empty)
    }

    /// What was lifted, if it is from the properties alone, the sender said nothing else, and the
    /// event is not about the person. What such an event did once it does not do again.
    pub(super) fn only_lifted(&self) -> Option<&Lifted> {
        let is_plain = self.occasion == Occasion::OtherEvent
            && self.set.is_empty()
            && self.set_once.is_empty()
            && self.unset.is_empty();
        match &self.lifted {
            [Some(lifted), None] if is_plain => Some(lifted),
            _ => None,
        }
    }
}

/// What kind of event carried an [`Update`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// `$set`, `$identify`, `$create_alias`, `$merge_dangerously`: every difference is written.
    #[default]
    PersonEvent,
    /// Any other event: if all that differs are values known to change with every page view, such
    /// as `$current_url`, the person is left as it is (PostHog's write filter).
    OtherEvent,
    /// `$exception`, `$$heatmap`: they tell what a new person is like and never change one.
    Creation,
}

/// Whether a merge may take an identified person away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Refuse it: `$identify` and `$create_alias`.
    No,
    /// Do it: `$merge_dangerously`.
    Yes,
}

/// A rule that kept an event from having its full effect. The event itself is stored regardless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Whose event.
    pub project: ProjectId,
    /// Which event.
    pub event_id: Uuid,
    /// Its distinct id.
    pub distinct_id: String,
    /// Which rule.
    pub kind: WarningKind,
}

/// The rules that warn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarningKind {
    /// One side of a merge is an id that many clients send by mistake.
    IllegalDistinctId,
    /// The person to be merged away is identified, and the merge was not forced.
    AlreadyIdentified,
    /// The person to be merged away, deleted or split has too many distinct ids.
    TooManyIds,
    /// The person would exceed the size limit; its properties stayed as they were.
    PropertiesTooLarge,
    /// An id is longer than the store takes; the effect was dropped.
    IdTooLong,
    /// The person that an operation names is gone, or has not the distinct id any more.
    PersonGone,
}

impl WarningKind {
    /// The name under which PostHog reports it, where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Self::IllegalDistinctId => "cannot_merge_with_illegal_distinct_id",
            Self::AlreadyIdentified => "cannot_merge_already_identified",
            Self::TooManyIds => "person_merge_move_limit_hit",
            Self::PropertiesTooLarge => "person_properties_size_violation",
            Self::IdTooLong => "distinct_id_too_long",
            Self::PersonGone => "person_gone",
        }
    }
}
