//! A simple model of the store: lists of everything, one event at a time, each rule as one `if`, from the
//! description of PostHog's person processing. Shares no code with the store but the input types.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::auto_set::AutoSet;
use crate::change::{
    Extent, Force, GroupChange, Keep, Occasion, Op, OpKind, Record, Update, Warning, WarningKind,
};
use crate::person::{Group, Person};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Whether an id may be merged: not blank, and not one that clients send by mistake, with or
/// without quotes.
fn is_legal(id: &str) -> bool {
    let mut bare = id;
    for quote in ["\"", "'"] {
        if id.len() > 1 && id.starts_with(quote) && id.ends_with(quote) {
            bare = &id[1..id.len() - 1];
        }
    }
    let in_any_case = "anonymous guest distinctid distinct_id id not_authenticated email undefined \
                       true false";
    let as_it_is = ["[object Object]", "NaN", "None", "none", "null", "0", "undefined"];
    !id.trim().is_empty()
        && !id.contains('\0')
        && id.chars().count() <= 400
        && !in_any_case.split(' ').any(|illegal| illegal == bare.to_lowercase())
        && !as_it_is.contains(&bare)
}

/// Whether a new value of this property alone does not change a person.
fn is_noise(key: &str) -> bool {
    let all = "$current_url $pathname $referrer $referring_domain $screen_height $screen_width \
               $viewport_height $viewport_width $browser $browser_version $device_type \
               $raw_user_agent $os $os_name $os_version";
    let place = key.strip_prefix("$geoip_").is_some_and(|key| {
        !["country_name", "city_name", "country_code", "continent_name", "continent_code"]
            .contains(&key)
    });
    place || all.split(' ').any(|noise| noise == key)
}

/// The properties that an update sets and sets once, auto-set ones included, as two objects.
fn spoken(update: &Update) -> (Map<String, Value>, Map<String, Value>) {
    let (mut set, mut once) = (update.set.clone(), update.set_once.clone());
    for (key, initial, value) in update.auto_set.iter().flatten().flat_map(AutoSet::read) {
        if let Some(key) = key {
            set.entry(key).or_insert(value.clone());
        }
        if let Some(key) = initial {
            once.entry(key).or_insert(value);
        }
    }
    (set, once)
}

#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) applied: u64,
    pub(super) persons: Vec<(ProjectId, Person)>,
    /// In the order in which persons got them; the last field is the person's number.
    pub(super) ids: Vec<(ProjectId, String, i64)>,
    /// The person that each of them has, and the time of the op since which it is this one.
    pub(super) since: BTreeMap<(ProjectId, String), (Uuid, UnixMicros)>,
    pub(super) types: BTreeMap<ProjectId, Vec<String>>,
    pub(super) groups: BTreeMap<(ProjectId, usize, String), Group>,
    pub(super) warnings: Vec<Warning>,
    /// Events of a distinct id before this record are deleted.
    pub(super) deleted: BTreeMap<(ProjectId, String), u64>,
    /// The persons whose events were deleted, and the time of the request.
    pub(super) deletions: Vec<(ProjectId, Uuid, UnixMicros)>,
    personless: Vec<(ProjectId, String)>,
    /// Number of the newest person.
    pub(super) born: i64,
}

pub(super) fn uuid_of(project: ProjectId, id: &str) -> Uuid {
    let namespace = Uuid::parse_str("932979b4-65c3-4424-8467-0b66ec27bc22").expect("a uuid");
    Uuid::new_v5(&namespace, format!("{}:{id}", project.0).as_bytes())
}

impl Model {
    pub(super) fn feed(&mut self, record: &Record) {
        self.applied = record.sequence;
        for op in &record.ops {
            self.step(record.project, op);
            self.note_since(op);
        }
    }

    fn note_since(&mut self, op: &Op) {
        let uuids: BTreeMap<i64, Uuid> =
            self.persons.iter().map(|(_, person)| (person.number, person.uuid)).collect();
        let mut before = std::mem::take(&mut self.since);
        for (owner, id, number) in &self.ids {
            let (key, uuid) = ((*owner, id.clone()), uuids[number]);
            let since = match before.remove(&key) {
                Some((same, since)) if same == uuid => since,
                _ => op.timestamp,
            };
            self.since.insert(key, (uuid, since));
        }
    }

    pub(super) fn person_of(&self, project: ProjectId, id: &str) -> Option<Person> {
        let (_, _, number) = self.ids.iter().find(|(p, i, _)| *p == project && i == id)?;
        self.persons.iter().find(|(_, person)| person.number == *number).map(|(_, p)| p.clone())
    }

    pub(super) fn ids_of(&self, number: i64) -> Vec<String> {
        self.ids.iter().filter(|(_, _, n)| *n == number).map(|(_, id, _)| id.clone()).collect()
    }

    /// The expected overrides: every id's own uuid maps to its person.
    pub(super) fn overrides(&self) -> BTreeMap<(ProjectId, Uuid), Uuid> {
        let all = self.ids.iter().map(|(project, id, _)| {
            let person = self.person_of(*project, id).expect("every id has a person");
            ((*project, uuid_of(*project, id)), person.uuid)
        });
        all.filter(|((_, from), to)| from != to).collect()
    }

    fn step(&mut self, project: ProjectId, op: &Op) {
        let me = op.distinct_id.as_str();
        match &op.kind {
            OpKind::Touch => {
                if self.person_of(project, me).is_none() {
                    self.birth(project, op, me, &Update::default());
                }
            }
            OpKind::Personless => {
                if self.person_of(project, me).is_none() {
                    self.personless.push((project, me.to_owned()));
                }
            }
            OpKind::Update(update) => self.ordinary(project, op, update),
            OpKind::UpdateExisting(update) => match self.person_of(project, me) {
                Some(_) => self.ordinary(project, op, update),
                None => self.personless.push((project, me.to_owned())),
            },
            OpKind::Split { person, keep } => self.split(project, op, *person, keep),
            OpKind::Change { person, update } => {
                let found = self.persons.iter().find(|(p, q)| *p == project && q.uuid == *person);
                match found.map(|(_, person)| self.ids_of(person.number)) {
                    Some(ids) => {
                        let op = Op { distinct_id: ids[0].clone(), ..op.clone() };
                        let warnings = self.warnings.len();
                        self.ordinary(project, &op, update);
                        for warning in &mut self.warnings[warnings..] {
                            warning.distinct_id.clear();
                        }
                    }
                    None => self.warn(project, op, WarningKind::PersonGone),
                }
            }
            OpKind::Delete { person, extent } => self.delete(project, op, *person, *extent),
            OpKind::DeleteProject => panic!("it has tests of its own"),
            OpKind::ChangeGroup(GroupChange { group_type, key, is_new, set, unset }) => {
                let types = self.types.get(&project).map_or(&[][..], |types| types);
                let Some(index) = types.iter().position(|name| name == group_type) else { return };
                let place = (project, index, key.clone());
                if self.groups.contains_key(&place) != *is_new {
                    let group = self.groups.entry(place);
                    let group =
                        group.or_insert(Group { created_at: op.timestamp, properties: Map::new() });
                    group.properties.extend(set.clone());
                    group.properties.retain(|key, _| !unset.contains(key));
                }
            }
            OpKind::Merge { other, force, update } => {
                if other == me {
                    self.ordinary(project, op, update);
                } else if !is_legal(me) || !is_legal(other) {
                    self.warn(project, op, WarningKind::IllegalDistinctId);
                    self.ordinary(project, op, update);
                } else {
                    self.merge(project, op, other, *force, update);
                }
            }
            OpKind::GroupTypes(names) => {
                for name in names {
                    self.type_index(project, name);
                }
            }
            OpKind::GroupUpdate { group_type, key, set } => {
                if let Some(index) = self.type_index(project, group_type) {
                    let group = self.groups.entry((project, index, key.clone()));
                    let group =
                        group.or_insert(Group { created_at: op.timestamp, properties: Map::new() });
                    group.properties.extend(set.clone());
                }
            }
        }
    }

    fn delete(&mut self, project: ProjectId, op: &Op, uuid: Uuid, extent: Extent) {
        let place = self.persons.iter().position(|(p, q)| *p == project && q.uuid == uuid);
        let Some(place) = place else { return self.warn(project, op, WarningKind::PersonGone) };
        let number = self.persons[place].1.number;
        let ids = self.ids_of(number);
        if extent != Extent::Person {
            let deleted = ids.iter().map(|id| ((project, id.clone()), self.applied));
            self.deleted.extend(deleted);
            self.deletions.push((project, uuid, op.timestamp));
        }
        if extent == Extent::Events {
            return;
        }
        self.persons.remove(place);
        self.ids.retain(|(_, _, own)| *own != number);
        // Without their events the ids become unknown.
        self.personless.retain(|(p, id)| *p != project || !ids.contains(id));
        if extent == Extent::Person {
            self.personless.extend(ids.into_iter().map(|id| (project, id)));
        }
    }

    fn warn(&mut self, project: ProjectId, op: &Op, kind: WarningKind) {
        let distinct_id = op.distinct_id.clone();
        self.warnings.push(Warning { project, event_id: op.event_id, distinct_id, kind });
    }

    fn type_index(&mut self, project: ProjectId, name: &str) -> Option<usize> {
        let types = self.types.entry(project).or_default();
        if !types.iter().any(|t| t == name) && types.len() < 5 {
            types.push(name.to_owned());
        }
        types.iter().position(|t| t == name)
    }

    fn birth(&mut self, project: ProjectId, op: &Op, first: &str, update: &Update) -> i64 {
        self.born += 1;
        let (set, mut properties) = spoken(update);
        properties.extend(set);
        properties.insert("$creator_event_uuid".to_owned(), op.event_id.to_string().into());
        let person = Person {
            number: self.born,
            uuid: uuid_of(project, first),
            created_at: op.timestamp,
            properties,
            is_identified: false,
            version: 0,
            changed_sequence: self.applied,
        };
        self.persons.push((project, person));
        self.ids.push((project, first.to_owned(), self.born));
        self.born
    }

    fn edit(&mut self, number: i64, edit: impl FnOnce(&mut Person)) {
        let applied = self.applied;
        let (_, person) =
            self.persons.iter_mut().find(|(_, p)| p.number == number).expect("a person");
        let before = person.clone();
        edit(person);
        if *person != before {
            if person.version == before.version {
                person.version += 1;
            }
            person.changed_sequence = applied;
        }
    }

    fn ordinary(&mut self, project: ProjectId, op: &Op, update: &Update) {
        match self.person_of(project, &op.distinct_id) {
            Some(person) => self.edit(person.number, |p| write_set(&mut p.properties, update)),
            None => {
                self.birth(project, op, &op.distinct_id, update);
            }
        }
    }

    fn merge(&mut self, project: ProjectId, op: &Op, other: &str, force: Force, update: &Update) {
        let me = op.distinct_id.as_str();
        match (self.person_of(project, me), self.person_of(project, other)) {
            (None, None) => {
                let was_used = |id: &str| self.personless.contains(&(project, id.to_owned()));
                let other_first = was_used(other) && !was_used(me);
                let (first, second) = if other_first { (other, me) } else { (me, other) };
                let number = self.birth(project, op, first, update);
                self.ids.push((project, second.to_owned(), number));
                let (_, person) = self.persons.last_mut().expect("just born");
                person.is_identified = true;
            }
            (Some(person), None) => self.gain(project, person.number, other, update),
            (None, Some(person)) => self.gain(project, person.number, me, update),
            (Some(target), Some(source)) => {
                if target.number != source.number {
                    if source.is_identified && force == Force::No {
                        self.warn(project, op, WarningKind::AlreadyIdentified);
                    } else {
                        self.unite(&target, &source, update);
                        return;
                    }
                }
                self.edit(target.number, |p| {
                    write_set(&mut p.properties, update);
                    p.is_identified = true;
                });
            }
        }
    }

    fn gain(&mut self, project: ProjectId, number: i64, id: &str, update: &Update) {
        self.ids.push((project, id.to_owned(), number));
        self.edit(number, |p| {
            write_set(&mut p.properties, update);
            p.is_identified = true;
        });
        let applied = self.applied;
        for (_, person) in self.persons.iter_mut().filter(|(_, p)| p.number == number) {
            person.changed_sequence = applied;
        }
    }

    /// Every id that is not kept gets a new person; the person with the id that the uuid was made
    /// from has the uuid.
    fn split(&mut self, project: ProjectId, op: &Op, uuid: Uuid, keep: &Keep) {
        let found = self.persons.iter().find(|(p, person)| *p == project && person.uuid == uuid);
        let Some((_, person)) = found.cloned() else {
            return self.warn(project, op, WarningKind::PersonGone);
        };
        let ids = self.ids_of(person.number);
        let first = ids.iter().find(|id| uuid_of(project, id) == uuid).expect("made from an id");
        let named = match keep {
            Keep::Own => vec![],
            Keep::One(id) => vec![id.clone()],
            Keep::AllBut(others) => others.clone(),
        };
        let kept: Vec<String> = match keep {
            Keep::Own => vec![first.clone()],
            Keep::One(id) => vec![id.clone()],
            Keep::AllBut(_) => ids.iter().filter(|id| !named.contains(id)).cloned().collect(),
        };
        if kept.is_empty() || named.iter().any(|id| !ids.contains(id)) {
            return self.warn(project, op, WarningKind::PersonGone);
        }
        let owner = if kept.contains(first) { first.clone() } else { kept[0].clone() };
        for id in ids.iter().filter(|id| !kept.contains(id)) {
            self.born += 1;
            let part = Person {
                number: self.born,
                uuid: uuid_of(project, id),
                created_at: op.timestamp,
                properties: Map::new(),
                is_identified: false,
                version: person.version + 1,
                changed_sequence: self.applied,
            };
            self.persons.push((project, part));
            let entry = self.ids.iter_mut().find(|(p, known, _)| *p == project && known == id);
            entry.expect("an id").2 = self.born;
        }
        if ids.len() > kept.len() {
            self.edit(person.number, |p| p.uuid = uuid_of(project, &owner));
            let (applied, number) = (self.applied, person.number);
            let (_, left) =
                self.persons.iter_mut().find(|(_, p)| p.number == number).expect("a person");
            left.changed_sequence = applied;
            left.version = person.version + 1;
        }
    }

    fn unite(&mut self, target: &Person, source: &Person, update: &Update) {
        for (_, _, number) in &mut self.ids {
            if *number == source.number {
                *number = target.number;
            }
        }
        self.persons.retain(|(_, p)| p.number != source.number);
        self.edit(target.number, |p| {
            for (key, value) in &source.properties {
                if !p.properties.contains_key(key) {
                    p.properties.insert(key.clone(), value.clone());
                }
            }
            let everything = Update { occasion: Occasion::PersonEvent, ..update.clone() };
            write_set(&mut p.properties, &everything);
            p.created_at = p.created_at.min(source.created_at);
            p.is_identified = true;
            p.version = target.version.max(source.version) + 1;
        });
    }
}

fn write_set(properties: &mut Map<String, Value>, update: &Update) {
    if update.occasion == Occasion::Creation {
        return;
    }
    let before = properties.clone();
    let (set, once) = spoken(update);
    for (key, value) in &once {
        let old = before.get(key);
        if old.is_none() || (old == Some(&Value::Null) && *value != Value::Null) {
            properties.insert(key.clone(), value.clone());
        }
    }
    for (key, value) in &set {
        properties.insert(key.clone(), value.clone());
    }
    for key in &update.unset {
        if before.contains_key(key) {
            properties.remove(key);
        }
    }
    let is_same_noise = |key: &String| {
        before.contains_key(key) && properties.contains_key(key) && is_noise(key)
            || before.get(key) == properties.get(key)
    };
    let is_noise_only = before.keys().chain(properties.keys()).all(is_same_noise);
    if update.occasion == Occasion::OtherEvent && is_noise_only {
        *properties = before;
    }
}
