//! Input of the identity store: the effect of events on persons and groups, without their JSON shapes.
//!
//! Ingest builds these from decoded events; it may drop all but the first [`OpKind::Touch`] of a
//! distinct id within one record, because the others change nothing.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::auto_set::AutoSet;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

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
    /// Changes to the properties of the id's person; creates it if there is none.
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
        /// `$group_set`, merged shallowly over the stored properties.
        set: Map<String, Value>,
    },
    /// The types named in `$groups`; each gets an index when it is first seen.
    GroupTypes(Vec<String>),
    /// An operator splits a person: every distinct id that the person does not keep gets a new
    /// person without properties. The op's own distinct id is empty.
    Split {
        /// The person. If it does not exist, or has more than [`OPERATION_MAX_IDS`], nothing happens.
        person: Uuid,
        /// The ids that it keeps.
        keep: Keep,
    },
    /// An operator changes properties. The op's own distinct id is empty.
    Change {
        /// The person. If it does not exist, nothing happens.
        person: Uuid,
        /// The changes.
        update: Update,
    },
    /// An operator creates a group, or changes its properties. The op's own distinct id is empty.
    ChangeGroup(GroupChange),
    /// An operator deletes a person, its events, or both. The op's own distinct id is empty.
    Delete {
        /// The person. If it does not exist, or has more than [`OPERATION_MAX_IDS`], nothing happens.
        person: Uuid,
        /// What is deleted.
        extent: Extent,
    },
    /// The project was deleted: from here on, no op of the project has an effect, and all its events
    /// are deleted. The op's own distinct id is empty.
    DeleteProject,
}

/// Most distinct ids of a person that an operator deletes or splits. All of them change in one step
/// of the store, which takes up to 2.5 KB of memory for each id; a person with more is left
/// unchanged. The limit determines the meaning of records: another value would replay them
/// differently.
pub const OPERATION_MAX_IDS: usize = 50_000;

/// What an operator deletes of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The person alone. Its distinct ids stay known, because they have stored events, and have no
    /// person until an event creates one.
    Person,
    /// All its events so far; the person stays.
    Events,
    /// Both: its distinct ids become unknown.
    Both,
}

impl Extent {
    /// Whether events are deleted.
    pub fn has_events(self) -> bool {
        self != Self::Person
    }

    /// Whether the person is deleted.
    pub fn has_person(self) -> bool {
        self != Self::Events
    }
}

/// The distinct ids that a split person keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The one that its uuid was made from; without it, the first.
    Own,
    /// This one. If it is not one of its ids, nothing happens.
    One(String),
    /// All but these. If one of them is not one of its ids, or no id would be left, nothing happens.
    AllBut(Vec<String>),
}

/// An operator's change of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupChange {
    /// The name of its type, which has to exist.
    pub group_type: String,
    /// Its key.
    pub key: String,
    /// Whether it is to be created. If the group exists then, or does not exist otherwise, nothing
    /// happens.
    pub is_new: bool,
    /// Properties to set.
    pub set: Map<String, Value>,
    /// Properties to remove.
    pub unset: Vec<String>,
}

/// The effect of an operator's operation on a person or a group, for the activity log.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The project of the person or group.
    pub project: ProjectId,
    /// Sequence of the record of the operation.
    pub sequence: u64,
    /// Its index among the effects of the record.
    pub place: u32,
    /// Time of the request.
    pub at: UnixMicros,
    /// The effect.
    pub done: Done,
}

/// An effect on a person or a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// On a person.
    Person {
        /// Its integer id.
        number: i64,
        /// Its uuid before.
        uuid: Uuid,
        /// The effect.
        done: PersonDone,
    },
    /// On a group: it was created, or properties were set or removed.
    Group {
        /// The index of its type.
        type_index: u8,
        /// Its key.
        key: String,
        /// Whether it was created.
        is_new: bool,
        /// Its properties.
        properties: Difference,
    },
}

/// Properties before and after; only those that differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Previous values; a key that is missing here was absent.
    pub before: Map<String, Value>,
    /// New values; a key that is missing here was removed.
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

/// The properties of `all` that `other` lacks or has with another value.
fn without(all: &Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let differ = all.iter().filter(|(key, value)| other.get(*key) != Some(*value));
    differ.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The effect on a person.
#[derive(Clone, Debug, PartialEq)]
pub enum PersonDone {
    /// Properties were set or removed.
    Changed(Difference),
    /// Distinct ids were split off. Both lists are in the order in which persons got the ids.
    Split {
        /// All before the split.
        before: Vec<String>,
        /// Those that the person keeps.
        after: Vec<String>,
    },
    /// It was deleted, or its events, or both.
    Deleted {
        /// What was deleted.
        extent: Extent,
        /// All distinct ids of a deleted person, in the order in which persons got them.
        distinct_ids: Vec<String>,
    },
}

/// `$set`, `$set_once` and `$unset` of one event, and its auto-set properties.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Written if the value differs. Wins over `set_once`.
    pub set: Map<String, Value>,
    /// Written if the person lacks the key, or has it with the value null.
    pub set_once: Map<String, Value>,
    /// Removed if the person had the key before the event.
    pub unset: Vec<String>,
    /// The auto-set properties from the event's properties, and from its GeoIP location.
    pub auto_set: [Option<AutoSet>; 2],
    /// The kind of event, which decides whether noise alone is written.
    pub occasion: Occasion,
}

impl Update {
    /// Whether it changes nothing, whatever the person's properties are.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
            && self.set_once.is_empty()
            && self.unset.is_empty()
            && self.auto_set.iter().flatten().all(AutoSet::is_empty)
    }

    /// The auto-set properties, if the update has nothing else, they come from the event's
    /// properties alone, and the event is not a person event. Such an update has no effect when it
    /// is applied again.
    pub(super) fn only_auto_set(&self) -> Option<&AutoSet> {
        let is_plain = self.occasion == Occasion::OtherEvent
            && self.set.is_empty()
            && self.set_once.is_empty()
            && self.unset.is_empty();
        match &self.auto_set {
            [Some(auto_set), None] if is_plain => Some(auto_set),
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
    /// `$exception`, `$$heatmap`: they set properties of a new person and never change an existing one.
    Creation,
}

impl Occasion {
    /// That of an event with this name.
    pub fn of(event: &str) -> Self {
        match event {
            "$set" | "$identify" | "$create_alias" | "$merge_dangerously" => Self::PersonEvent,
            "$exception" | "$$heatmap" => Self::Creation,
            _ => Self::OtherEvent,
        }
    }
}

/// Whether a merge may merge an identified person away.
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
    /// The project of the event.
    pub project: ProjectId,
    /// The event.
    pub event_id: Uuid,
    /// Its distinct id.
    pub distinct_id: String,
    /// The rule.
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
    /// The person that an operation names does not exist, or no longer has the distinct id.
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
