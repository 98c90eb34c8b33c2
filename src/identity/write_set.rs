//! The write set of one batch: the rows that it reads and changes, over a snapshot of the database.
//!
//! [`WriteSet::fold`] applies records in order until the write set [`WriteSet::is_full`]; `write`
//! puts the changed rows into a batch.

mod memory_estimate;
mod merge;
mod operator;
mod split;
mod write;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use serde_json::Value;
use uuid::Uuid;

use crate::auto_set::{AutoSet, Settled};
use crate::cache::{Caches, Fingerprint, IdState};
use crate::change::{Effect, Op, OpKind, Record, Warning, WarningKind};
use crate::codec::{Counters, Point, Progress};
use crate::decide::group::TypeSlot;
use crate::decide::split::Ids;
use crate::decide::{Change, Creation, Revision, State, group};
use crate::deletions::Mark;
use crate::gone::{Gone, GoneProjects};
use crate::loaded::GroupTypes;
use crate::person::{DistinctId, Group, Person};
use crate::view::View;
use crate::{IdentityError, codec, decide};
use weir_base::clock::UnixMicros;
use weir_event::id::{PersonId, ProjectId};

/// Longest distinct id that is stored, in bytes: 400 characters of 4 bytes. Ingest cuts ids to 200
/// characters; this limit keeps a key within the 64 KiB that the database accepts.
const ID_MAX_BYTES: usize = 1600;

/// The rows that a batch read and changed.
pub(super) struct WriteSet<'s> {
    view: View,
    caches: &'s Caches,
    counters: Counters,
    ids: HashMap<Fingerprint, IdRow>,
    persons: HashMap<i64, PersonRow>,
    /// Keys of `person_ids` to remove: project, person, position.
    detached: BTreeSet<(ProjectId, i64, i64)>,
    /// Numbers of persons by uuid; `None` where the person was merged away or deleted.
    uuids: BTreeMap<(ProjectId, Uuid), Option<i64>>,
    /// Overrides to write. A uuid that maps to itself removes its override.
    overrides: BTreeMap<(ProjectId, Uuid), Uuid>,
    /// Uuids of the persons of a split or deletion; see [`super::overrides`].
    splits: BTreeSet<(ProjectId, Uuid)>,
    /// Requests to delete events.
    marks: Vec<Mark>,
    /// Projects that were deleted before.
    gone: Arc<GoneProjects>,
    /// Projects that are deleted here.
    new_gone: BTreeMap<ProjectId, Gone>,
    types: Arc<GroupTypes>,
    types_changed: Vec<ProjectId>,
    groups: BTreeMap<(ProjectId, u8, String), Group>,
    /// Change of the number of persons, by project.
    counts: BTreeMap<ProjectId, i64>,
    /// Estimated memory of the write set and of the batch that is made of it.
    bytes: u64,
    /// The write set is full from this many bytes on.
    bytes_max: u64,
    warnings: Vec<Warning>,
    effects: Vec<Effect>,
}

struct IdRow {
    state: IdState,
    /// The key to write, if the row changed.
    changed: Option<(ProjectId, Box<str>)>,
    /// Whether the cache of ids holds the state before this write set.
    is_cached: bool,
}

struct PersonRow {
    project: ProjectId,
    /// `None` once it was merged away or deleted.
    person: Option<Arc<Person>>,
    is_stored: bool,
    /// Index fields before this write set; `None` if the person is new.
    before: Option<Indexed>,
    is_changed: bool,
    /// Whether the cache of rows holds the row before this write set.
    is_cached: bool,
    /// Digests of auto-set properties without effect since its last change. `None`: as in the
    /// cache.
    settled: Option<Settled>,
    /// Distinct ids that it gained, by position.
    attached: Ids,
}

/// The fields of a person that have entries in indexes.
struct Indexed {
    created_at: UnixMicros,
    uuid: Uuid,
    email: Option<Value>,
}

impl Indexed {
    fn of(person: &Person) -> Self {
        let email = person.properties.get(codec::EMAIL).cloned();
        Self { created_at: person.created_at, uuid: person.uuid, email }
    }
}

/// The state of a distinct id before an op.
enum PriorState {
    Unknown,
    Personless,
    Known(Arc<Person>),
}

impl PriorState {
    fn state(&self) -> State<'_> {
        match self {
            Self::Unknown => State::Unknown,
            Self::Personless => State::Personless,
            Self::Known(person) => State::Known(person),
        }
    }

    fn number(&self) -> Option<i64> {
        match self {
            Self::Known(person) => Some(person.number),
            Self::Unknown | Self::Personless => None,
        }
    }
}

/// Whether an op on an id in this state changes nothing, whatever its person's properties are.
fn changes_nothing(kind: &OpKind, state: IdState) -> bool {
    match (kind, state) {
        (OpKind::Touch, IdState::Person(_))
        | (OpKind::Personless, IdState::Person(_) | IdState::Personless)
        | (OpKind::UpdateExisting(_), IdState::Personless) => true,
        (OpKind::UpdateExisting(update), IdState::Person(_)) => update.is_empty(),
        _ => false,
    }
}

/// The auto-set properties of an ordinary event, if it changes nothing else.
fn only_auto_set(kind: &OpKind) -> Option<&AutoSet> {
    match kind {
        OpKind::Update(update) | OpKind::UpdateExisting(update) => update.only_auto_set(),
        _ => None,
    }
}

impl<'s> WriteSet<'s> {
    /// Adds to the memory estimate.
    fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn new(
        view: View,
        caches: &'s Caches,
        counters: Counters,
        types: Arc<GroupTypes>,
        bytes_max: u64,
    ) -> Self {
        Self {
            view,
            caches,
            counters,
            ids: HashMap::new(),
            persons: HashMap::new(),
            detached: BTreeSet::new(),
            uuids: BTreeMap::new(),
            overrides: BTreeMap::new(),
            splits: BTreeSet::new(),
            marks: Vec::new(),
            gone: Arc::default(),
            new_gone: BTreeMap::new(),
            types,
            types_changed: Vec::new(),
            groups: BTreeMap::new(),
            counts: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            warnings: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Applies the rest of a record, or skips the record if it was applied before. `false` if the
    /// write set became full before the end: the rest belongs to the next one.
    ///
    /// # Errors
    ///
    /// If a row cannot be read. The write set must then be dropped.
    pub(super) fn fold(&mut self, record: &Record) -> Result<bool, IdentityError> {
        if record.sequence <= self.counters.applied {
            return Ok(true);
        }
        if self.counters.progress.sequence != record.sequence {
            let sequence = record.sequence;
            self.counters.progress = Progress { sequence, ..Progress::default() };
        }
        let applied = usize::try_from(self.counters.progress.ops).unwrap_or(usize::MAX);
        for op in record.ops.get(applied..).unwrap_or_default() {
            if self.is_full() {
                return Ok(false);
            }
            self.carry_out(record.project, op)?;
            self.counters.progress.ops += 1;
        }
        self.counters.applied = record.sequence;
        self.counters.progress = Progress::default();
        Ok(true)
    }

    /// Whether it must be written before it grows further. A write set without rows is never full,
    /// so each takes at least one op.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max && self.bytes > 0
    }

    /// Effects of the operators' operations so far, in their order.
    pub(super) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// The overrides that change: old uuid and, if it has one, the person that replaces it.
    pub(super) fn overrides(&self) -> impl Iterator<Item = ((ProjectId, Uuid), Option<Uuid>)> {
        self.overrides.iter().map(|(own, to)| (*own, (*to != own.1).then_some(*to)))
    }

    /// Uuids of the persons of splits and deletions.
    pub(super) fn splits(&self) -> &BTreeSet<(ProjectId, Uuid)> {
        &self.splits
    }

    /// The state after this write set.
    pub(super) fn point(&self) -> Point {
        self.counters.point()
    }

    /// Sequence of the record that is being applied.
    fn sequence(&self) -> u64 {
        self.counters.progress.sequence
    }

    /// Whether any record was applied since `before`.
    pub(super) fn has_advanced(&self, before: Counters) -> bool {
        self.counters != before
    }

    fn carry_out(&mut self, project: ProjectId, op: &Op) -> Result<(), IdentityError> {
        if self.gone.contains(&project) || self.new_gone.contains_key(&project) {
            return Ok(());
        }
        match &op.kind {
            OpKind::GroupTypes(names) => {
                for name in names {
                    self.type_index(project, name);
                }
                return Ok(());
            }
            OpKind::GroupUpdate { group_type, key, set } => {
                return self.update_group(project, op, group_type, key, set);
            }
            OpKind::Split { person, keep } => return self.split(project, op, *person, keep),
            OpKind::Change { person, update } => {
                return self.change(project, op, *person, update);
            }
            OpKind::ChangeGroup(change) => return self.change_group(project, op, change),
            OpKind::Delete { person, extent } => {
                return self.delete(project, op, *person, *extent);
            }
            OpKind::DeleteProject => {
                self.delete_project(project, op);
                return Ok(());
            }
            OpKind::Touch
            | OpKind::Personless
            | OpKind::Update(_)
            | OpKind::UpdateExisting(_)
            | OpKind::Merge { .. } => {}
        }
        let fingerprint = self.caches.fingerprint(project, &op.distinct_id);
        if self.is_settled(fingerprint, &op.kind) {
            return Ok(());
        }
        if self.is_id_too_long(project, op) {
            return Ok(());
        }
        let state = self.id(project, &op.distinct_id, fingerprint)?;
        if changes_nothing(&op.kind, state) {
            return Ok(());
        }
        let target = self.found(project, state)?;
        let mut number = target.number();
        let other = match &op.kind {
            // An id beyond the limit is never looked up: the rules refuse to merge it.
            OpKind::Merge { other, .. } if other.len() <= ID_MAX_BYTES => {
                let state = self.id(project, other, self.caches.fingerprint(project, other))?;
                self.found(project, state)?
            }
            _ => PriorState::Unknown,
        };
        let decision = decide::decide(project, op, target.state(), other.state());
        drop((target, other));
        let is_refused = !decision.warnings.is_empty();
        decision.warnings.into_iter().for_each(|kind| self.warn(project, op, kind));
        match decision.change {
            Change::Nothing => {}
            Change::RememberPersonless => {
                self.set_id(project, &op.distinct_id, IdState::Personless);
            }
            Change::Create(creation) => number = Some(self.create(project, creation)),
            Change::Update(revision) => self.revise(project, op, revision)?,
            Change::Merge(merger) => self.merge(project, op, merger)?,
        }
        if let (Some(auto_set), Some(row), false) = (
            only_auto_set(&op.kind),
            number.and_then(|number| self.persons.get_mut(&number)),
            is_refused,
        ) {
            let cached = || number.map(|number| self.caches.settled(number)).unwrap_or_default();
            row.settled.get_or_insert_with(cached).add(auto_set);
        }
        Ok(())
    }

    /// The state of a distinct id from the rows here and the cache, without a database read.
    fn known(&self, fingerprint: Fingerprint) -> Option<IdState> {
        let here = self.ids.get(&fingerprint).map(|row| row.state);
        here.or_else(|| self.caches.id(fingerprint))
    }

    /// Whether the caches and the rows here alone show that the op changes nothing.
    fn is_settled(&self, fingerprint: Fingerprint, kind: &OpKind) -> bool {
        let Some(state) = self.known(fingerprint) else { return false };
        changes_nothing(kind, state)
            || only_auto_set(kind).is_some_and(|auto_set| {
                let IdState::Person(number) = state else { return false };
                let here = self.persons.get(&number).and_then(|row| row.settled);
                here.unwrap_or_else(|| self.caches.settled(number)).has(auto_set)
            })
    }

    fn is_id_too_long(&mut self, project: ProjectId, op: &Op) -> bool {
        let is_too_long = op.distinct_id.len() > ID_MAX_BYTES;
        if is_too_long {
            self.warn(project, op, WarningKind::IdTooLong);
        }
        is_too_long
    }

    fn warn(&mut self, project: ProjectId, op: &Op, kind: WarningKind) {
        let distinct_id = op.distinct_id.clone();
        self.grow(memory_estimate::entry(distinct_id.len()));
        self.warnings.push(Warning { project, event_id: op.event_id, distinct_id, kind });
    }

    fn id(
        &mut self,
        project: ProjectId,
        distinct_id: &str,
        fingerprint: Fingerprint,
    ) -> Result<IdState, IdentityError> {
        Ok(match self.ids.get(&fingerprint) {
            Some(row) => row.state,
            None => {
                let cached = self.caches.id(fingerprint);
                let state = match cached {
                    Some(state) => state,
                    None => self.view.id(project, distinct_id)?,
                };
                let row = IdRow { state, changed: None, is_cached: cached.is_some() };
                self.grow(memory_estimate::READ_ID_BYTES);
                self.ids.insert(fingerprint, row);
                state
            }
        })
    }

    fn found(&mut self, project: ProjectId, state: IdState) -> Result<PriorState, IdentityError> {
        Ok(match state {
            IdState::Unknown => PriorState::Unknown,
            IdState::Personless => PriorState::Personless,
            IdState::Person(number) => PriorState::Known(self.find_person(project, number)?),
        })
    }

    fn find_person(
        &mut self,
        project: ProjectId,
        number: i64,
    ) -> Result<Arc<Person>, IdentityError> {
        const GONE: IdentityError = IdentityError::Damaged { what: "person of a distinct id" };
        if let Some(row) = self.persons.get(&number) {
            return row.person.clone().ok_or(GONE);
        }
        let cached = self.caches.row(number);
        let is_cached = cached.is_some();
        let person = match cached {
            Some(person) => person,
            None => Arc::new(self.view.person_by_number(project, number)?.ok_or(GONE)?),
        };
        self.grow(memory_estimate::read_person(&person));
        let row = PersonRow {
            project,
            person: Some(Arc::clone(&person)),
            is_stored: true,
            before: Some(Indexed::of(&person)),
            is_changed: false,
            is_cached,
            settled: None,
            attached: Ids::new(),
        };
        self.persons.insert(number, row);
        Ok(person)
    }

    /// The row of a person that [`WriteSet::find_person`] has found.
    fn row(&mut self, number: i64) -> Result<&mut PersonRow, IdentityError> {
        let row = self.persons.get_mut(&number);
        row.ok_or(IdentityError::Damaged { what: "person of a change" })
    }

    /// The same row, to be changed. The cache drops the person, so that it is changed in place.
    fn row_to_change(&mut self, number: i64) -> Result<&mut PersonRow, IdentityError> {
        let caches = self.caches;
        let row = self.row(number)?;
        if !std::mem::replace(&mut row.is_changed, true) {
            let bytes = row.person.as_deref().map_or(0, memory_estimate::changed_person);
            self.grow(bytes);
        }
        let row = self.row(number)?;
        if std::mem::take(&mut row.is_cached) {
            caches.forget_row(number);
        }
        Ok(row)
    }

    fn set_id(&mut self, project: ProjectId, distinct_id: &str, state: IdState) {
        let fingerprint = self.caches.fingerprint(project, distinct_id);
        let changed = Some((project, distinct_id.into()));
        self.grow(memory_estimate::entry(distinct_id.len()));
        self.ids.insert(fingerprint, IdRow { state, changed, is_cached: false });
    }

    /// Returns the number of the new person.
    fn create(&mut self, project: ProjectId, creation: Creation<'_>) -> i64 {
        let person = Person {
            number: 0,
            uuid: creation.uuid,
            created_at: creation.created_at,
            properties: creation.properties,
            is_identified: creation.is_identified,
            version: 0,
            changed_sequence: self.sequence(),
        };
        let (uuid, since) = (creation.uuid, Some(creation.created_at));
        let number = self.insert_person(project, person);
        for id in [Some(creation.primary), creation.secondary].into_iter().flatten() {
            let position = self.next_position();
            self.assign(project, id, number, uuid);
            self.attach(project, number, position, DistinctId { text: id.into(), since });
        }
        number
    }

    /// Numbers a new person and inserts it.
    fn insert_person(&mut self, project: ProjectId, mut person: Person) -> i64 {
        let number = self.counters.next_person;
        self.counters.next_person = number.saturating_add(1);
        person.number = number;
        self.grow(memory_estimate::changed_person(&person));
        self.uuids.insert((project, person.uuid), Some(number));
        let row = PersonRow {
            project,
            person: Some(Arc::new(person)),
            is_stored: false,
            before: None,
            is_changed: true,
            is_cached: false,
            settled: Some(Settled::default()),
            attached: Ids::new(),
        };
        self.persons.insert(number, row);
        *self.counts.entry(project).or_insert(0) += 1;
        number
    }

    /// Adds a distinct id to a person whose row is here.
    fn attach(&mut self, project: ProjectId, number: i64, position: i64, id: DistinctId) {
        self.detached.remove(&(project, number, position));
        self.grow(memory_estimate::entry(id.text.len()));
        if let Some(row) = self.persons.get_mut(&number) {
            row.attached.insert(position, id);
        }
    }

    fn revise(
        &mut self,
        project: ProjectId,
        op: &Op,
        revision: Revision<'_>,
    ) -> Result<(), IdentityError> {
        let sequence = self.sequence();
        self.grow(revision.properties.bytes());
        let row = self.row_to_change(revision.person)?;
        let mut uuid = Uuid::nil();
        let has_changes = !revision.properties.is_empty();
        if has_changes {
            row.settled = Some(Settled::default());
        }
        if let Some(person) = row.person.as_mut().map(Arc::make_mut) {
            uuid = person.uuid;
            revision.properties.apply(&mut person.properties);
            person.is_identified |= revision.identify;
            person.version =
                person.version.saturating_add(u64::from(revision.identify || has_changes));
            person.changed_sequence = sequence;
        }
        if let Some(id) = revision.attach {
            let position = self.next_position();
            self.assign(project, id, revision.person, uuid);
            let id = DistinctId { text: id.into(), since: Some(op.timestamp) };
            self.attach(project, revision.person, position, id);
        }
        Ok(())
    }

    fn next_position(&mut self) -> i64 {
        let position = self.counters.next_position;
        self.counters.next_position = position.saturating_add(1);
        position
    }

    /// Maps a distinct id, and the events stored under the uuid made from it, to a person.
    fn assign(&mut self, project: ProjectId, distinct_id: &str, number: i64, uuid: Uuid) {
        self.set_id(project, distinct_id, IdState::Person(number));
        let own = PersonId::of(project, distinct_id).0;
        if own != uuid {
            self.grow(memory_estimate::entry(0));
            self.overrides.insert((project, own), uuid);
        }
    }

    fn type_index(&mut self, project: ProjectId, name: &str) -> Option<u8> {
        let known = self.types.get(&project).map_or(&[][..], |types| types);
        match group::type_slot(known, name) {
            TypeSlot::Known(index) => Some(index),
            TypeSlot::None => None,
            TypeSlot::New(index) => {
                let types = known.iter().cloned().chain([name.to_owned()]).collect();
                Arc::make_mut(&mut self.types).insert(project, types);
                self.types_changed.push(project);
                Some(index)
            }
        }
    }

    fn update_group(
        &mut self,
        project: ProjectId,
        op: &Op,
        group_type: &str,
        key: &str,
        set: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), IdentityError> {
        if !group::is_group_name(key) {
            return Ok(());
        }
        let Some(index) = self.type_index(project, group_type) else {
            return Ok(());
        };
        let group = match self.groups.entry((project, index, key.to_owned())) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(slot) => {
                let stored = self.view.group(project, index, key)?;
                slot.insert(stored.unwrap_or_else(|| Group {
                    created_at: op.timestamp,
                    properties: serde_json::Map::new(),
                }))
            }
        };
        let fits = group::merge_group(&mut group.properties, set, &[]);
        let bytes = memory_estimate::group(key, group);
        self.grow(bytes);
        if !fits {
            self.warn(project, op, WarningKind::PropertiesTooLarge);
        }
        Ok(())
    }
}
