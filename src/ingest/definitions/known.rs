//! Cache of definitions that were already written, to skip repeated upserts: [`Known`] finds what is new
//! in each batch. At most 200,000 entries; after an eviction an upsert is repeated, without effect.

use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use serde_json::Value;

use crate::definitions::collect::{Observed, Slots, bit, slots};
use crate::definitions::value_type::detect;
use crate::definitions::{NAME_MAX_BYTES, storable};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::schema::GROUP_TYPES_MAX;
use weir_identity::auto_set::AutoSet;
use weir_identity::change::{GroupChange, Op, OpKind};
use weir_metadata::definitions::{DefinitionSeen, Sightings};
use weir_metadata::flag_calls::FlagCalled;
use weir_metadata::properties::{PairSeen, PropertyKind, PropertySeen, ValueType};

/// Limit of cached names, keys and pairs, over all projects: tens of MB at most.
const ENTRIES_MAX: usize = 200_000;

/// Limit of new keys of persons, and of groups, that one record reports; further ones are left to later
/// records. It has to be below [`ENTRIES_MAX`], or the same body would be new each time.
const RECORD_KEYS_MAX: usize = 10_000;

/// How long a stored `last_seen_at` may lag behind. All lagging ones are written at once, so this is
/// also the time between two such writes.
pub(crate) const LAST_SEEN_LAG: Duration = Duration::from_secs(30);

/// The definitions in one log record, and its ops on persons and groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'s> {
    /// The project of the events.
    pub(crate) project: ProjectId,
    /// When the events were received.
    pub(crate) at: UnixMicros,
    /// The definitions in the events.
    pub(crate) observed: &'s Observed,
    /// Ops of the events on persons and groups.
    pub(crate) ops: &'s [Op],
    /// The group types of the project.
    pub(crate) group_types: &'s [String],
}

/// The definitions that the metadata store has.
#[derive(Debug)]
pub(crate) struct Known {
    /// Keys of the key table by slot.
    slot_names: Vec<&'static str>,
    projects: HashMap<ProjectId, Project>,
    entries: usize,
    /// When lagging times were last written, by a clock that never steps back.
    last_seen_written: Option<Duration>,
    /// Whether an event occurred, or a flag was called, after its last write.
    lags: bool,
}

#[derive(Debug, Default)]
struct Project {
    events: HashMap<String, Event>,
    slots: Slots,
    typed: Slots,
    keys: HashMap<String, Key>,
    /// Pairs of event number and key number.
    pairs: HashSet<(u32, u32)>,
    /// Called flags.
    flags: HashMap<String, Last>,
    /// Keys of persons, and whether they have a type.
    persons: HashMap<String, bool>,
    /// Auto-set keys that are in `persons` with a type, by number: those of `$set`, and 64 slots higher
    /// those of `$set_once`.
    auto_set: Slots,
    /// Keys of groups, by index of their type, and whether they have a type of value.
    groups: [HashMap<String, bool>; GROUP_TYPES_MAX],
}

#[derive(Debug)]
struct Event {
    number: u32,
    slots: Slots,
    last: Last,
}

/// When an event or a flag last occurred, and which time was last written.
#[derive(Clone, Copy, Debug)]
struct Last {
    seen: UnixMicros,
    written: UnixMicros,
}

#[derive(Debug)]
struct Key {
    number: u32,
    is_typed: bool,
}

impl Known {
    /// Starts empty. `slot_names` are the keys of the key table by slot.
    pub(crate) fn new(slot_names: Vec<&'static str>) -> Self {
        let projects = HashMap::new();
        Self { slot_names, projects, entries: 0, last_seen_written: None, lags: false }
    }

    /// Adds to `due` the definitions of `said` that are not cached.
    pub(crate) fn fold(&mut self, said: &Said<'_>, due: &mut Sightings) {
        if self.entries > ENTRIES_MAX {
            self.put_last_seen(due);
            self.projects.clear();
            self.entries = 0;
        }
        let project = self.projects.entry(said.project).or_default();
        let mut new = New { said, due, entries: 0, persons: 0, groups: 0, lags: false };
        project.slots(&self.slot_names, &mut new);
        let keys = project.keys(&mut new);
        let events = project.events(&self.slot_names, &mut new);
        project.pairs(&events, &keys, &mut new);
        project.flags(&mut new);
        project.persons_and_groups(&mut new);
        self.entries += new.entries;
        self.lags |= new.lags;
    }

    /// Adds the lagging times to `due`, if they are due at `now`, which is
    /// [`Clock::monotonic`](weir_base::clock::Clock::monotonic): the wall clock may step back by hours.
    pub(crate) fn put_last_seen_if_due(&mut self, now: Duration, due: &mut Sightings) {
        let is_due = |written| now.saturating_sub(written) >= LAST_SEEN_LAG;
        if self.last_seen_written.is_none_or(is_due) {
            self.last_seen_written = Some(now);
            self.put_last_seen(due);
        }
    }

    /// Adds to `due` the events that occurred, and the flags that were called, after their last write.
    pub(crate) fn put_last_seen(&mut self, due: &mut Sightings) {
        self.lags = false;
        for (project, known) in &mut self.projects {
            let project = *project;
            for (name, event) in known.events.iter_mut().filter(|(_, event)| event.last.lags()) {
                let (name, seen_at) = (name.clone(), event.last.write());
                due.events.push(DefinitionSeen { project, name, seen_at });
            }
            for (key, last) in known.flags.iter_mut().filter(|(_, last)| last.lags()) {
                due.flags.push(FlagCalled { project, key: key.clone(), at: last.write() });
            }
        }
    }

    /// Whether an event occurred, or a flag was called, after its last write.
    pub(crate) fn lags(&self) -> bool {
        self.lags
    }
}

impl Last {
    fn new(at: UnixMicros) -> Self {
        Self { seen: at, written: at }
    }

    /// Records a time. Returns whether the last one is later than the one that was written.
    fn note(&mut self, at: UnixMicros) -> bool {
        self.seen = self.seen.max(at);
        self.lags()
    }

    fn lags(self) -> bool {
        self.seen > self.written
    }

    /// Returns the time to write and counts it as written.
    fn write(&mut self) -> UnixMicros {
        self.written = self.seen;
        self.seen
    }
}

/// Receives the definitions that are not cached.
struct New<'n, 's> {
    said: &'n Said<'s>,
    due: &'n mut Sightings,
    entries: usize,
    /// Keys of persons that this record has reported.
    persons: usize,
    /// Keys of groups that this record has reported.
    groups: usize,
    lags: bool,
}

impl New<'_, '_> {
    fn property(&mut self, kind: PropertyKind, name: &str, value_type: Option<ValueType>) {
        let (project, name) = (self.said.project, name.to_owned());
        self.due.properties.push(PropertySeen { project, kind, name, value_type });
    }

    fn pair(&mut self, event: &str, property: &str) {
        self.entries += 1;
        let project = self.said.project;
        let (event, property) = (event.to_owned(), property.to_owned());
        self.due.pairs.push(PairSeen { project, event, property });
    }
}

impl Project {
    fn slots(&mut self, names: &[&'static str], new: &mut New<'_, '_>) {
        let observed = new.said.observed;
        let changed = (observed.slots & !self.slots) | (observed.typed & !self.typed);
        self.slots |= observed.slots;
        self.typed |= observed.typed;
        for slot in slots(changed) {
            let Some(name) = names.get(usize::from(slot)) else { continue };
            new.property(PropertyKind::Event, name, observed.slot_type(slot));
        }
    }

    /// Returns the cached numbers of the keys of the batch.
    fn keys(&mut self, new: &mut New<'_, '_>) -> Vec<u32> {
        let observed = new.said.observed;
        let mut numbers = Vec::new();
        for seen in observed.keys() {
            let is_typed = seen.value_type.is_some();
            let number = match self.keys.get_mut(seen.key) {
                Some(known) => {
                    if is_typed && !std::mem::replace(&mut known.is_typed, true) {
                        new.property(PropertyKind::Event, seen.key, seen.value_type);
                    }
                    known.number
                }
                None => {
                    let number = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
                    self.keys.insert(seen.key.to_owned(), Key { number, is_typed });
                    new.property(PropertyKind::Event, seen.key, seen.value_type);
                    new.entries += 1;
                    number
                }
            };
            numbers.push(number);
        }
        numbers
    }

    /// Returns the cached numbers of the event names of the batch.
    fn events(&mut self, slot_names: &[&'static str], new: &mut New<'_, '_>) -> Vec<u32> {
        let Said { project, at, observed, .. } = *new.said;
        let mut numbers = Vec::new();
        for (name, had) in observed.events() {
            if !self.events.contains_key(name) {
                let number = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
                let event = Event { number, slots: 0, last: Last::new(at) };
                self.events.insert(name.to_owned(), event);
                let seen = DefinitionSeen { project, name: name.to_owned(), seen_at: at };
                new.due.events.push(seen);
                new.entries += 1;
            }
            let Some(event) = self.events.get_mut(name) else { continue };
            new.lags |= event.last.note(at);
            let unknown = had & !event.slots;
            event.slots |= had;
            numbers.push(event.number);
            for slot in slots(unknown) {
                let Some(key) = slot_names.get(usize::from(slot)) else { continue };
                new.pair(name, key);
            }
        }
        numbers
    }

    fn pairs(&mut self, events: &[u32], keys: &[u32], new: &mut New<'_, '_>) {
        let observed = new.said.observed;
        let near = observed.keys().enumerate().flat_map(|(key, seen)| {
            slots(Slots::from(seen.events)).map(move |event| (usize::from(event), key))
        });
        for (event, key) in near.chain(observed.pairs().iter().copied()) {
            let (Some(event_number), Some(key_number)) = (events.get(event), keys.get(key)) else {
                continue;
            };
            if !self.pairs.insert((*event_number, *key_number)) {
                continue;
            }
            if let (Some(name), Some(key)) = (observed.event_name(event), observed.key(key)) {
                new.pair(name, key);
            }
        }
    }

    /// The key may be no flag's, or not yet: the metadata store decides.
    fn flags(&mut self, new: &mut New<'_, '_>) {
        let Said { project, observed, .. } = *new.said;
        for (key, at) in observed.flags() {
            match self.flags.get_mut(key) {
                Some(last) => new.lags |= last.note(at),
                None => {
                    self.flags.insert(key.to_owned(), Last::new(at));
                    new.due.flags.push(FlagCalled { project, key: key.to_owned(), at });
                    new.entries += 1;
                }
            }
        }
    }

    /// Properties that are set on a person or group get a definition, whatever the event.
    fn persons_and_groups(&mut self, new: &mut New<'_, '_>) {
        let Said { ops, group_types, .. } = *new.said;
        for op in ops {
            match &op.kind {
                OpKind::Update(update)
                | OpKind::UpdateExisting(update)
                | OpKind::Change { update, .. }
                | OpKind::Merge { update, .. } => {
                    for (key, value) in update.set.iter().chain(&update.set_once) {
                        note(&mut self.persons, PropertyKind::Person, key, value, new);
                    }
                    update
                        .auto_set
                        .iter()
                        .flatten()
                        .for_each(|auto_set| self.auto_set(auto_set, new));
                }
                OpKind::GroupUpdate { group_type, set, .. }
                | OpKind::ChangeGroup(GroupChange { group_type, set, .. }) => {
                    let index = group_types.iter().position(|known| known == group_type);
                    let known = index.and_then(|index| self.groups.get_mut(index));
                    let index = index.and_then(|index| u8::try_from(index).ok());
                    if let (Some(index), Some(known)) = (index, known) {
                        for (key, value) in set {
                            note(known, PropertyKind::Group(index), key, value, new);
                        }
                    }
                }
                OpKind::Touch
                | OpKind::Personless
                | OpKind::GroupTypes(_)
                | OpKind::Split { .. }
                | OpKind::Delete { .. }
                | OpKind::DeleteProject => {}
            }
        }
    }

    /// Page views set these properties on every person, so that they are cached must be cheap to find out.
    fn auto_set(&mut self, auto_set: &AutoSet, new: &mut New<'_, '_>) {
        for property in auto_set.iter() {
            let (key, initial) = *property.names;
            for (slot, key, applies) in [
                (property.number, key, property.sets),
                (property.number + 64, initial, property.sets_once),
            ] {
                if !applies || self.auto_set & bit(slot) != 0 {
                    continue;
                }
                let Some(value) = auto_set.value(property) else { continue };
                if note(&mut self.persons, PropertyKind::Person, key, &value, new) {
                    self.auto_set |= bit(slot);
                }
            }
        }
    }
}

/// Records a property that is set on a person or a group. Returns whether its type is known now.
fn note(
    known: &mut HashMap<String, bool>,
    kind: PropertyKind,
    key: &str,
    value: &Value,
    new: &mut New<'_, '_>,
) -> bool {
    if key.len() > NAME_MAX_BYTES {
        return false;
    }
    let before = known.get(key).copied();
    if before == Some(true) {
        return true;
    }
    let value_type = detect(key, value.into(), new.said.at);
    if before.is_none() || value_type.is_some() {
        let reported =
            if kind == PropertyKind::Person { &mut new.persons } else { &mut new.groups };
        if *reported >= RECORD_KEYS_MAX {
            return false;
        }
        *reported += 1;
        new.entries += usize::from(before.is_none());
        known.insert(key.to_owned(), value_type.is_some());
        new.property(kind, &storable(key), value_type);
    }
    value_type.is_some()
}
