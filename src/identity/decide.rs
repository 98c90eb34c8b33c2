//! The rules, as a pure function: rows as they are, and one op, to the change it makes.
//!
//! No database and no clock in here; a table of cases is the whole test. The rules are those of
//! PostHog's ingestion. Changes are in arrival order: an event with an older timestamp that arrives
//! later wins.

pub mod group;
pub mod split;

use std::io;

use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::identity::cache::value_bytes;
use crate::identity::change::Force;
use crate::identity::change::Occasion;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Update;
use crate::identity::change::WarningKind;
use crate::identity::illegal;
use crate::identity::lifted::Lift;
use crate::identity::lifted::Lifted;
use crate::identity::person::Person;

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

/// What is known of a distinct id.
#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    /// Nothing.
    Unknown,
    /// Events were stored for it, and it has no person.
    Personless,
    /// It has this person.
    Known(&'a Person),
}

/// What an op does, and which rules it ran into.
#[derive(Debug, PartialEq)]
pub struct Decision<'op> {
    /// The one change.
    pub change: Change<'op>,
    /// Rules that kept it from doing more.
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
    /// Whether it becomes identified, not having been so.
    pub identify: bool,
}

/// Two persons become one. All distinct ids of the source move; the source ends; the target becomes
/// identified.
#[derive(Debug, PartialEq)]
pub struct Merger {
    /// Number of the person that stays.
    pub target: i64,
    /// Number of the person that ends.
    pub source: i64,
    /// The earlier of both.
    pub created_at: UnixMicros,
    /// All properties afterwards.
    pub properties: Map<String, Value>,
    /// One above both.
    pub version: u64,
}

/// Differences of an object, to be applied in this order: set, then unset.
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

    /// Memory that an object takes more at most once they are carried out, as it is, encoded, and in
    /// a buffer.
    pub(super) fn bytes(&self) -> u64 {
        let member = |(key, value): &(&str, Value)| {
            let key = u64::try_from(key.len()).unwrap_or(u64::MAX);
            MEMBER_BYTES.saturating_add(key).saturating_add(value_bytes(value)).saturating_mul(3)
        };
        self.set.iter().map(member).fold(0, u64::saturating_add)
    }

    /// Carries the changes out.
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
/// [`OpKind::Merge`]'s other id and ignored otherwise. Ops on groups change no person; what
/// operators do is decided in [`split`] and [`change`].
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

/// Decides a merge whose other person must stay as it is.
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

/// An event that merges nothing.
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
            // The id whose events are stored already lends its uuid, so that they need no override.
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

/// Whether an event makes the person identified.
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

/// Two persons become one: the target's values win, then the event's changes apply.
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

/// What an update changes in the object of a person that there is.
fn property_changes<'op>(
    current: &Map<String, Value>,
    update: &'op Update,
) -> PropertyChanges<'op> {
    match update.occasion {
        Occasion::Creation => PropertyChanges::default(),
        Occasion::PersonEvent | Occasion::OtherEvent => differences(current, update),
    }
}

/// What an update says that an object does not have.
fn differences<'op>(current: &Map<String, Value>, update: &'op Update) -> PropertyChanges<'op> {
    let mut changes = PropertyChanges::default();
    let is_lifted = |key: &str| lifts(update).any(|(_, lift)| lift.sets && lift.names.0 == key);
    for (key, value) in &update.set_once {
        let is_new = current.get(key).is_none_or(|old| old.is_null() && !value.is_null());
        if is_new && !update.set.contains_key(key) && !is_lifted(key) {
            changes.set.push((key, value.clone()));
        }
    }
    for (key, value) in update.set.iter().filter(|(key, value)| current.get(*key) != Some(*value)) {
        changes.set.push((key, value.clone()));
    }
    changes
        .unset
        .extend(update.unset.iter().filter(|key| current.contains_key(*key)).map(String::as_str));
    add_lifted(&mut changes, current, update);
    changes
}

/// Adds what was lifted and changes something. Noise comes with nearly every event: its values are not
/// even read unless something else changes too.
fn add_lifted<'op>(
    changes: &mut PropertyChanges<'op>,
    current: &Map<String, Value>,
    update: &'op Update,
) {
    let mut noise = Vec::new();
    for (lifted, lift) in lifts(update) {
        let (key, initial) = *lift.names;
        if lift.sets_once
            && !update.set.contains_key(initial)
            && current.get(initial).is_none_or(Value::is_null)
            && let Some(value) = lifted.value(lift)
            && (!value.is_null() || !current.contains_key(initial))
        {
            changes.set.push((initial, value));
        }
        if lift.sets {
            match current.get(key) {
                Some(old) if lift.is_noise && update.occasion == Occasion::OtherEvent => {
                    noise.push((lifted, lift, old));
                }
                old => changes.set.extend(lifted.news(lift, old).map(|value| (key, value))),
            }
        }
    }
    if !noise.is_empty() && !are_noise(current, changes, update.occasion) {
        let news = noise
            .into_iter()
            .filter_map(|(lifted, lift, old)| Some((lift.names.0, lifted.news(lift, Some(old))?)));
        changes.set.extend(news);
    }
}

/// The lifted properties of an update.
fn lifts(update: &Update) -> impl Iterator<Item = (&Lifted, &Lift)> {
    let lifted = update.lifted.iter().flatten();
    lifted.flat_map(|lifted| lifted.iter().map(move |lift| (lifted, lift)))
}

/// Whether a new value of this key alone is not worth a write.
pub fn is_noise(key: &str) -> bool {
    NOISE.contains(&key)
}

/// Whether the changes are only new values of keys that change all the time.
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
/// always let through, and the exact size is computed only for objects that may be near the limit.
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

/// A length that the JSON of an object does not exceed, without writing it: an escape makes six
/// bytes of one, and no number needs more than [`NUMBER_MAX_BYTES`].
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
    // A value that cannot be written counts as too large.
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
