//! The rules for persons as a pure function: from rows and one op to the change.
//!
//! No database and no clock in here, so a table of cases tests it completely. The rules are those
//! of PostHog's ingestion. Changes apply in the order of arrival: an event with an older timestamp
//! that arrives later wins.

pub mod group;
pub mod split;

use std::io;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::auto_set::{AutoSet, AutoSetProperty};
use crate::cache::value_bytes;
use crate::change::{Force, Occasion, Op, OpKind, Update, WarningKind};
use crate::illegal;
use crate::person::Person;
use weir_base::clock::UnixMicros;
use weir_event::id::{PersonId, ProjectId};

/// Memory of a member of an object beside its texts.
const MEMBER_BYTES: u64 = 96;

/// Property of a new person: the id of the event that created it.
const CREATOR_EVENT_UUID: &str = "$creator_event_uuid";

/// Largest properties of a person, as JSON text. PostHog refuses rows beyond 640 KiB.
pub const PROPERTIES_MAX_BYTES: usize = 640 * 1024;

/// More than the JSON of any number: a sign, 17 digits, a point and an exponent.
const NUMBER_MAX_BYTES: usize = 32;

/// Keys whose new values alone are not worth a write for events that are not about the person: they
/// change with every page view. `FILTERED_PERSON_UPDATE_PROPERTIES` of PostHog's plugin server.
const NOISE: [&str; 31] = [
    "$current_url",
    "$pathname",
    "$referring_domain",
    "$referrer",
    "$screen_height",
    "$screen_width",
    "$viewport_height",
    "$viewport_width",
    "$browser",
    "$browser_version",
    "$device_type",
    "$raw_user_agent",
    "$os",
    "$os_name",
    "$os_version",
    "$geoip_postal_code",
    "$geoip_time_zone",
    "$geoip_latitude",
    "$geoip_longitude",
    "$geoip_accuracy_radius",
    "$geoip_subdivision_1_code",
    "$geoip_subdivision_1_name",
    "$geoip_subdivision_2_code",
    "$geoip_subdivision_2_name",
    "$geoip_subdivision_3_code",
    "$geoip_subdivision_3_name",
    "$geoip_city_confidence",
    "$geoip_country_confidence",
    "$geoip_postal_code_confidence",
    "$geoip_subdivision_1_confidence",
    "$geoip_subdivision_2_confidence",
];

/// The state of a distinct id.
#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    /// Nothing.
    Unknown,
    /// Events were stored for it, and it has no person.
    Personless,
    /// It has this person.
    Known(&'a Person),
}

/// The effect of an op, and the rules that limited it.
#[derive(Debug, PartialEq)]
pub struct Decision<'op> {
    /// The change.
    pub change: Change<'op>,
    /// Rules that kept it from having its full effect.
    pub warnings: Vec<WarningKind>,
}

/// A change of persons. Borrows from the op, so that an op without effect copies nothing.
#[derive(Debug, PartialEq)]
pub enum Change<'op> {
    /// None.
    Nothing,
    /// The op's distinct id becomes [`State::Personless`].
    RememberPersonless,
    /// A new person.
    Create(Creation<'op>),
    /// Changes to a person. Never empty.
    Update(Revision<'op>),
    /// Two persons become one.
    Merge(Merger),
}

/// A new person; its version is 0.
#[derive(Debug, PartialEq)]
pub struct Creation<'op> {
    /// Made from `primary`.
    pub uuid: Uuid,
    /// Its first distinct id.
    pub primary: &'op str,
    /// Its second, if a merge event created it.
    pub secondary: Option<&'op str>,
    /// The event's time.
    pub created_at: UnixMicros,
    /// All its properties.
    pub properties: Map<String, Value>,
    /// Whether a merge event created it.
    pub is_identified: bool,
}

/// Changes to a person. Its version grows by one if the row changes.
#[derive(Debug, PartialEq)]
pub struct Revision<'op> {
    /// The person's number.
    pub person: i64,
    /// A distinct id that it gains.
    pub attach: Option<&'op str>,
    /// Changed properties.
    pub properties: PropertyChanges<'op>,
    /// Whether it becomes identified and was not before.
    pub identify: bool,
}

/// A merge of two persons. All distinct ids of the source move to the target, the source is
/// removed, and the target becomes identified.
#[derive(Debug, PartialEq)]
pub struct Merger {
    /// Number of the person that remains.
    pub target: i64,
    /// Number of the person that is merged away.
    pub source: i64,
    /// The earlier of both.
    pub created_at: UnixMicros,
    /// All properties afterwards.
    pub properties: Map<String, Value>,
    /// One above the larger version of both.
    pub version: u64,
}

/// Changes of an object, applied in this order: set, then unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PropertyChanges<'op> {
    set: Vec<(&'op str, Value)>,
    unset: Vec<&'op str>,
}

impl PropertyChanges<'_> {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty()
    }

    /// Upper bound of the memory that they add to an object: in the row, encoded, and in a write buffer.
    pub(super) fn bytes(&self) -> u64 {
        let member = |(key, value): &(&str, Value)| {
            let key = u64::try_from(key.len()).unwrap_or(u64::MAX);
            MEMBER_BYTES.saturating_add(key).saturating_add(value_bytes(value)).saturating_mul(3)
        };
        self.set.iter().map(member).fold(0, u64::saturating_add)
    }

    /// Applies the changes.
    pub fn apply(self, properties: &mut Map<String, Value>) {
        for (key, value) in self.set {
            properties.insert(key.to_owned(), value);
        }
        for key in self.unset {
            properties.remove(key);
        }
    }
}

/// Decides one op on persons. `target` is the state of the op's distinct id, `other` that of
/// [`OpKind::Merge`]'s other id and ignored otherwise. Ops on groups change no person; operators'
/// operations are decided in [`split`] and [`change`].
pub fn decide<'op>(
    project: ProjectId,
    op: &'op Op,
    target: State<'_>,
    other: State<'_>,
) -> Decision<'op> {
    match &op.kind {
        OpKind::Touch => match target {
            State::Known(_) => nothing(),
            State::Unknown | State::Personless => create(project, op, None),
        },
        OpKind::Personless => match target {
            State::Unknown => done(Change::RememberPersonless),
            State::Personless | State::Known(_) => nothing(),
        },
        OpKind::Update(update) => ordinary(project, op, update, target),
        OpKind::UpdateExisting(update) => match target {
            State::Known(_) => ordinary(project, op, update, target),
            State::Unknown => done(Change::RememberPersonless),
            State::Personless => nothing(),
        },
        OpKind::Merge { other: other_id, force, update } => {
            if *other_id == op.distinct_id {
                return ordinary(project, op, update, target);
            }
            if !illegal::is_mergeable(other_id) || !illegal::is_mergeable(&op.distinct_id) {
                let mut decision = ordinary(project, op, update, target);
                decision.warnings.insert(0, WarningKind::IllegalDistinctId);
                return decision;
            }
            merge(project, op, Sides { target, other, other_id, force: *force })
        }
        OpKind::GroupUpdate { .. }
        | OpKind::GroupTypes(_)
        | OpKind::Split { .. }
        | OpKind::Change { .. }
        | OpKind::ChangeGroup(_)
        | OpKind::Delete { .. } => nothing(),
    }
}

/// Decides changes that an operator makes to a person.
pub fn change<'op>(person: &Person, update: &'op Update) -> Decision<'op> {
    revise(person, None, update, Identify::No)
}

/// Decides a merge event whose other person must not be merged.
pub fn identify<'op>(target: &Person, update: &'op Update) -> Decision<'op> {
    revise(target, None, update, Identify::Yes)
}

/// Both sides of a merge.
struct Sides<'op, 'row> {
    target: State<'row>,
    other: State<'row>,
    other_id: &'op str,
    force: Force,
}

/// An event without a merge.
fn ordinary<'op>(
    project: ProjectId,
    op: &'op Op,
    update: &'op Update,
    target: State<'_>,
) -> Decision<'op> {
    match target {
        State::Known(person) => revise(person, None, update, Identify::No),
        State::Unknown | State::Personless => create(project, op, Some(update)),
    }
}

/// The four cases of a merge: one side has a person, none has, both have the same, or two. Whatever
/// happens, the surviving person is identified afterwards.
fn merge<'op>(project: ProjectId, op: &'op Op, sides: Sides<'op, '_>) -> Decision<'op> {
    let OpKind::Merge { update, .. } = &op.kind else {
        return nothing();
    };
    match (sides.target, sides.other) {
        (State::Known(target), State::Known(other)) if target.number == other.number => {
            revise(target, None, update, Identify::Yes)
        }
        (State::Known(target), State::Known(other)) => {
            if other.is_identified && sides.force == Force::No {
                let mut decision = identify(target, update);
                decision.warnings.insert(0, WarningKind::AlreadyIdentified);
                return decision;
            }
            join(target, other, update)
        }
        (State::Known(target), _) => revise(target, Some(sides.other_id), update, Identify::Yes),
        (_, State::Known(other)) => revise(other, Some(&op.distinct_id), update, Identify::Yes),
        (target, other) => {
            // The uuid is made from the id that has stored events, so that they need no override.
            let (primary, secondary) = match (target, other) {
                (State::Unknown, State::Personless) => (sides.other_id, op.distinct_id.as_str()),
                _ => (op.distinct_id.as_str(), sides.other_id),
            };
            let mut decision = create(project, op, Some(update));
            if let Change::Create(creation) = &mut decision.change {
                creation.uuid = PersonId::of(project, primary).0;
                creation.primary = primary;
                creation.secondary = Some(secondary);
                creation.is_identified = true;
            }
            decision
        }
    }
}

/// A new person for the op's distinct id.
fn create<'op>(project: ProjectId, op: &'op Op, update: Option<&'op Update>) -> Decision<'op> {
    let mut properties = Map::new();
    if let Some(update) = update {
        differences(&Map::new(), update).apply(&mut properties);
    }
    let mut warnings = Vec::new();
    if is_object_too_large(&properties) {
        properties.clear();
        warnings.push(WarningKind::PropertiesTooLarge);
    }
    properties.insert(CREATOR_EVENT_UUID.to_owned(), Value::String(op.event_id.to_string()));
    let change = Change::Create(Creation {
        uuid: PersonId::of(project, &op.distinct_id).0,
        primary: &op.distinct_id,
        secondary: None,
        created_at: op.timestamp,
        properties,
        is_identified: false,
    });
    Decision { change, warnings }
}

/// Whether the event makes the person identified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identify {
    No,
    Yes,
}

/// Changes to one existing person.
fn revise<'op>(
    person: &Person,
    attach: Option<&'op str>,
    update: &'op Update,
    identify: Identify,
) -> Decision<'op> {
    let mut warnings = Vec::new();
    let mut properties = property_changes(&person.properties, update);
    if are_noise(&person.properties, &properties, update.occasion) {
        properties = PropertyChanges::default();
    }
    if is_too_large(&person.properties, &properties) {
        properties = PropertyChanges::default();
        warnings.push(WarningKind::PropertiesTooLarge);
    }
    let identify = identify == Identify::Yes && !person.is_identified;
    if attach.is_none() && properties.is_empty() && !identify {
        return Decision { change: Change::Nothing, warnings };
    }
    let revision = Revision { person: person.number, attach, properties, identify };
    Decision { change: Change::Update(revision), warnings }
}

/// Merges two persons: the target's values win, then the event's changes apply.
fn join<'op>(target: &Person, source: &Person, update: &'op Update) -> Decision<'op> {
    let mut warnings = Vec::new();
    let mut properties = source.properties.clone();
    properties.extend(target.properties.iter().map(owned));
    let changes = property_changes(&properties, update);
    changes.apply(&mut properties);
    if is_object_too_large(&properties) {
        properties = target.properties.clone();
        warnings.push(WarningKind::PropertiesTooLarge);
    }
    let change = Change::Merge(Merger {
        target: target.number,
        source: source.number,
        created_at: target.created_at.min(source.created_at),
        properties,
        version: target.version.max(source.version).saturating_add(1),
    });
    Decision { change, warnings }
}

/// What an update changes in the properties of an existing person.
fn property_changes<'op>(
    current: &Map<String, Value>,
    update: &'op Update,
) -> PropertyChanges<'op> {
    match update.occasion {
        Occasion::Creation => PropertyChanges::default(),
        Occasion::PersonEvent | Occasion::OtherEvent => differences(current, update),
    }
}

/// The changes of an update that differ from an object.
fn differences<'op>(current: &Map<String, Value>, update: &'op Update) -> PropertyChanges<'op> {
    let mut changes = PropertyChanges::default();
    let is_auto_set =
        |key: &str| auto_sets(update).any(|(_, property)| property.sets && property.names.0 == key);
    for (key, value) in &update.set_once {
        let is_new = current.get(key).is_none_or(|old| old.is_null() && !value.is_null());
        if is_new && !update.set.contains_key(key) && !is_auto_set(key) {
            changes.set.push((key, value.clone()));
        }
    }
    for (key, value) in update.set.iter().filter(|(key, value)| current.get(*key) != Some(*value)) {
        changes.set.push((key, value.clone()));
    }
    changes
        .unset
        .extend(update.unset.iter().filter(|key| current.contains_key(*key)).map(String::as_str));
    add_auto_set(&mut changes, current, update);
    changes
}

/// Adds the auto-set properties that change something. Noise comes with nearly every event: its
/// values are not parsed unless something else changes too.
fn add_auto_set<'op>(
    changes: &mut PropertyChanges<'op>,
    current: &Map<String, Value>,
    update: &'op Update,
) {
    let mut noise = Vec::new();
    for (auto_set, property) in auto_sets(update) {
        let (key, initial) = *property.names;
        if property.sets_once
            && !update.set.contains_key(initial)
            && current.get(initial).is_none_or(Value::is_null)
            && let Some(value) = auto_set.value(property)
            && (!value.is_null() || !current.contains_key(initial))
        {
            changes.set.push((initial, value));
        }
        if property.sets {
            match current.get(key) {
                Some(_) if property.fills => {}
                Some(old) if property.is_noise && update.occasion == Occasion::OtherEvent => {
                    noise.push((auto_set, property, old));
                }
                old => changes.set.extend(auto_set.news(property, old).map(|value| (key, value))),
            }
        }
    }
    if !noise.is_empty() && !are_noise(current, changes, update.occasion) {
        let news = noise.into_iter().filter_map(|(auto_set, property, old)| {
            Some((property.names.0, auto_set.news(property, Some(old))?))
        });
        changes.set.extend(news);
    }
}

/// The auto-set properties of an update.
fn auto_sets(update: &Update) -> impl Iterator<Item = (&AutoSet, &AutoSetProperty)> {
    let auto_set = update.auto_set.iter().flatten();
    auto_set.flat_map(|auto_set| auto_set.iter().map(move |property| (auto_set, property)))
}

/// Whether a new value of this key alone is not worth a write.
pub fn is_noise(key: &str) -> bool {
    NOISE.contains(&key)
}

/// Whether all changes are new values of noise keys.
fn are_noise(
    current: &Map<String, Value>,
    changes: &PropertyChanges<'_>,
    occasion: Occasion,
) -> bool {
    occasion == Occasion::OtherEvent
        && changes.unset.is_empty()
        && changes.set.iter().all(|(key, _)| current.contains_key(*key) && is_noise(key))
}

/// Whether the changes would grow an object beyond the limit. A change that shrinks an object is
/// always accepted. The exact size is computed only for objects that may be near the limit.
fn is_too_large(current: &Map<String, Value>, changes: &PropertyChanges<'_>) -> bool {
    if changes.set.is_empty() {
        return false;
    }
    let added = changes.set.iter().map(|(key, value)| member_bytes_max(key, value));
    if object_bytes_max(current).saturating_add(added.sum()) <= PROPERTIES_MAX_BYTES {
        return false;
    }
    let before = json_bytes(current);
    let added = changes.set.iter().map(|(key, value)| json_bytes(key) + json_bytes(value) + 2);
    if before.saturating_add(added.sum()) <= PROPERTIES_MAX_BYTES {
        return false;
    }
    let mut after = current.clone();
    changes.clone().apply(&mut after);
    let after = json_bytes(&after);
    after > PROPERTIES_MAX_BYTES && after > before
}

fn is_object_too_large(object: &Map<String, Value>) -> bool {
    object_bytes_max(object) > PROPERTIES_MAX_BYTES && json_bytes(object) > PROPERTIES_MAX_BYTES
}

/// Upper bound of the length of an object's JSON, without writing it: an escape takes six bytes for
/// one, and a number at most [`NUMBER_MAX_BYTES`].
fn object_bytes_max(object: &Map<String, Value>) -> usize {
    object.iter().fold(2, |sum, (key, value)| sum.saturating_add(member_bytes_max(key, value)))
}

fn member_bytes_max(key: &str, value: &Value) -> usize {
    key.len().saturating_mul(6).saturating_add(4).saturating_add(value_bytes_max(value))
}

fn value_bytes_max(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => NUMBER_MAX_BYTES,
        Value::String(text) => text.len().saturating_mul(6).saturating_add(2),
        Value::Array(items) => {
            let items = items.iter().map(|item| value_bytes_max(item).saturating_add(1));
            items.fold(2, usize::saturating_add)
        }
        Value::Object(object) => object_bytes_max(object),
    }
}

/// Length of a value as compact JSON.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A value that cannot be serialized counts as too large.
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX, |()| counter.0)
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn done(change: Change<'_>) -> Decision<'_> {
    Decision { change, warnings: Vec::new() }
}

fn nothing<'op>() -> Decision<'op> {
    done(Change::Nothing)
}

#[cfg(test)]
mod tests;
