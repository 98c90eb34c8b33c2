//! Collects the definitions in one batch of events: [`Collector`] gathers them event by event,
//! [`Observed`] is the result. Pure.
//!
//! An event has about 30 properties and takes about 20 us on the whole write path. So a property costs
//! one bit here if its key is in the key table, and one look-up if not. The type of a value is detected
//! only until the batch has one for its key. Nothing is copied before the end.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::{HashMap, HashSet, HashTable};

use crate::definitions::value_type::detect;
use crate::definitions::{NAME_MAX_BYTES, storable};
use crate::tape::Value;
use weir_base::clock::UnixMicros;
use weir_metadata::flag_rules::KEY_MAX_CHARS;
use weir_metadata::properties::ValueType;

/// Keys of the key table that are tracked by a bit, at most.
pub const SLOTS: usize = 128;

/// Limit of definitions and pairs in one event; an event with more is ignored here.
const EVENT_UPDATES_MAX: usize = 10_000;

/// Limit of event names that one batch reports; further ones are left to later batches.
const BATCH_NAMES_MAX: usize = 10_000;

/// Limit of keys outside of the key table that one batch reports; the rest is left to later batches.
const BATCH_KEYS_MAX: usize = 10_000;

/// Limit of pairs that one batch reports singly, without a bit.
const BATCH_PAIRS_MAX: usize = 100_000;

/// Prefixes of keys that get a definition but no pairs: nearly every event has every flag.
const UNPAIRED: [&str; 2] = ["$feature/", "$feature_enrollment/"];

/// Limit of called flags that one batch reports.
const BATCH_FLAGS_MAX: usize = 10_000;

type Hasher = foldhash::fast::RandomState;

/// How a key is tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Track {
    /// By a bit.
    Slot(u8),
    /// By name.
    #[default]
    Name,
    /// Not at all: it is not a property in the definitions.
    Never,
}

/// Set of slots.
pub type Slots = u128;

/// The set of a single slot.
pub fn bit(slot: u8) -> Slots {
    1_u128.checked_shl(slot.into()).unwrap_or(0)
}

/// Iterates over the slots in a set.
pub fn slots(mut set: Slots) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let slot = u8::try_from(set.trailing_zeros()).ok().filter(|_| set != 0)?;
        set &= set - 1;
        Some(slot)
    })
}

/// Collects definitions of a batch. Call [`Collector::property`] for each property of an event, then
/// [`Collector::commit`] or [`Collector::abandon`].
#[derive(Debug)]
pub struct Collector<'a> {
    now: UnixMicros,
    names: HashMap<Cow<'a, str>, usize, Hasher>,
    /// Slots that the events of each name had, in the order of first occurrence.
    events: Vec<Slots>,
    keys: HashTable<usize>,
    entries: Vec<Entry<'a>>,
    /// Pairs with event names for which [`Entry::events`] has no bit.
    pairs: HashSet<(usize, usize), Hasher>,
    seen: Slots,
    typed: Slots,
    types: [Option<ValueType>; SLOTS],
    /// Called flags, and the time of the last call.
    flags: HashMap<&'a str, UnixMicros, Hasher>,
    event: Current,
}

/// A key that is tracked by name.
#[derive(Debug)]
struct Entry<'a> {
    key: &'a str,
    hash: u64,
    value_type: Option<ValueType>,
    is_paired: bool,
    /// Whether a committed event had it.
    is_seen: bool,
    /// Bit per event name, for the first 64 names: which of them had it.
    events: u64,
}

/// The event that is being read.
#[derive(Debug, Default)]
struct Current {
    slots: Slots,
    entries: Vec<usize>,
    types: Vec<(TypedProperty, ValueType)>,
}

#[derive(Clone, Copy, Debug)]
enum TypedProperty {
    Slot(u8),
    Entry(usize),
}

impl<'a> Collector<'a> {
    /// Starts an empty collection. `now` is when the batch was received.
    pub fn new(now: UnixMicros) -> Self {
        Self {
            now,
            names: HashMap::default(),
            events: Vec::new(),
            keys: HashTable::new(),
            entries: Vec::new(),
            pairs: HashSet::default(),
            seen: 0,
            typed: 0,
            types: [None; SLOTS],
            flags: HashMap::default(),
            event: Current::default(),
        }
    }

    /// Adds a property of the current event. `hash` is that of `key`, always by the same hasher.
    pub fn property(&mut self, key: &'a str, hash: u64, track: Track, value: Value<'a>) {
        match track {
            Track::Slot(slot) => {
                self.event.slots |= bit(slot);
                if self.typed & bit(slot) == 0
                    && let Some(found) = detect(key, value.into(), self.now)
                {
                    self.event.types.push((TypedProperty::Slot(slot), found));
                }
            }
            Track::Name => {
                let Some(index) = self.entry(key, hash) else { return };
                self.event.entries.push(index);
                let untyped = self.entries.get(index).filter(|entry| entry.value_type.is_none());
                if untyped.is_some()
                    && let Some(found) = detect(key, value.into(), self.now)
                {
                    self.event.types.push((TypedProperty::Entry(index), found));
                }
            }
            Track::Never => {}
        }
    }

    fn entry(&mut self, key: &'a str, hash: u64) -> Option<usize> {
        let entries = &self.entries;
        let is_key = |index: &usize| entries.get(*index).is_some_and(|entry| entry.key == key);
        if let Some(index) = self.keys.find(hash, is_key) {
            return Some(*index);
        }
        if key.len() > NAME_MAX_BYTES || entries.len() >= BATCH_KEYS_MAX {
            return None;
        }
        let index = entries.len();
        let hash_of = |index: &usize| entries.get(*index).map_or(0, |entry| entry.hash);
        self.keys.insert_unique(hash, index, hash_of);
        self.entries.push(Entry {
            key,
            hash,
            value_type: None,
            is_paired: !UNPAIRED.iter().any(|prefix| key.starts_with(prefix)),
            is_seen: false,
            events: 0,
        });
        Some(index)
    }

    /// Records that an event reports a call of the flag `key` at a time. A time after the receive time
    /// counts as the receive time.
    pub fn called(&mut self, key: &'a str, at: UnixMicros) {
        let is_full = self.flags.len() >= BATCH_FLAGS_MAX && !self.flags.contains_key(key);
        if is_full || key.len() > KEY_MAX_CHARS {
            return;
        }
        let at = at.min(self.now);
        let last = self.flags.entry(key).or_insert(at);
        *last = at.max(*last);
    }

    /// Discards the current event.
    pub fn abandon(&mut self) {
        self.event.slots = 0;
        self.event.entries.clear();
        self.event.types.clear();
    }

    /// Adds the current event, which has this name.
    pub fn commit(&mut self, name: Cow<'a, str>) {
        let slots = usize::try_from(self.event.slots.count_ones()).unwrap_or(SLOTS);
        let updates = 1 + 2 * (slots + self.event.entries.len());
        if name.len() > NAME_MAX_BYTES || name == "$$plugin_metrics" || updates > EVENT_UPDATES_MAX
        {
            return self.abandon();
        }
        // The properties of this event describe a group; none of them are properties of the event.
        if name == "$groupidentify" {
            self.abandon();
        }
        let index = match self.names.get(name.as_ref()) {
            Some(index) => *index,
            None if self.names.len() >= BATCH_NAMES_MAX => return self.abandon(),
            None => {
                self.names.insert(name, self.events.len());
                self.events.push(0);
                self.events.len() - 1
            }
        };
        let Current { slots, entries, types } = &mut self.event;
        for (place, found) in types.drain(..) {
            match place {
                TypedProperty::Slot(slot) => {
                    self.typed |= bit(slot);
                    if let Some(known) = self.types.get_mut(usize::from(slot)) {
                        known.get_or_insert(found);
                    }
                }
                TypedProperty::Entry(entry) => {
                    if let Some(entry) = self.entries.get_mut(entry) {
                        entry.value_type.get_or_insert(found);
                    }
                }
            }
        }
        let slots = std::mem::take(slots);
        self.seen |= slots;
        if let Some(event) = self.events.get_mut(index) {
            *event |= slots;
        }
        let bit = u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index));
        for number in entries.drain(..) {
            let Some(entry) = self.entries.get_mut(number) else { continue };
            entry.is_seen = true;
            match bit {
                _ if !entry.is_paired => {}
                Some(bit) => entry.events |= bit,
                None if self.pairs.len() < BATCH_PAIRS_MAX => {
                    self.pairs.insert((index, number));
                }
                None => {}
            }
        }
    }

    /// The definitions of all committed events.
    pub fn finish(self) -> Observed {
        let mut observed = Observed {
            slots: self.seen,
            typed: self.typed,
            types: self.types,
            ..Observed::default()
        };
        observed.events.resize(self.events.len(), Event { name: 0..0, slots: 0 });
        for (name, index) in self.names {
            let name = observed.put(&name);
            let slots = self.events.get(index).copied().unwrap_or(0);
            if let Some(event) = observed.events.get_mut(index) {
                *event = Event { name, slots };
            }
        }
        // Entries of discarded events are left out, so the numbers of the others shift.
        let mut numbers = Vec::with_capacity(self.entries.len());
        for entry in self.entries {
            numbers.push(observed.keys.len());
            if entry.is_seen {
                let key = observed.put(entry.key);
                let (value_type, events) = (entry.value_type, entry.events);
                observed.keys.push(Key { key, value_type, events });
            }
        }
        for (key, at) in self.flags {
            let key = observed.put(key);
            observed.flags.push((key, at));
        }
        let number = |entry: usize| numbers.get(entry).copied().unwrap_or(usize::MAX);
        observed.pairs =
            self.pairs.into_iter().map(|(event, entry)| (event, number(entry))).collect();
        observed
    }
}

/// The definitions in a batch of events.
#[derive(Clone, Debug)]
pub struct Observed {
    /// All names and keys, concatenated.
    text: String,
    events: Vec<Event>,
    keys: Vec<Key>,
    /// Pairs of event number and key number, other than those of [`Key::events`].
    pairs: Vec<(usize, usize)>,
    /// Keys of called flags, and the time of the last call.
    flags: Vec<(Range<usize>, UnixMicros)>,
    /// Slots of the key table that occurred.
    pub(super) slots: Slots,
    /// The slots among them whose type is known.
    pub(super) typed: Slots,
    types: [Option<ValueType>; SLOTS],
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            text: String::new(),
            events: Vec::new(),
            keys: Vec::new(),
            pairs: Vec::new(),
            flags: Vec::new(),
            slots: 0,
            typed: 0,
            types: [None; SLOTS],
        }
    }
}

#[derive(Clone, Debug)]
struct Event {
    name: Range<usize>,
    slots: Slots,
}

#[derive(Clone, Debug)]
struct Key {
    key: Range<usize>,
    value_type: Option<ValueType>,
    events: u64,
}

/// A key that is tracked by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySeen<'o> {
    /// The key.
    pub(super) key: &'o str,
    /// Its type, if a value has one.
    pub(super) value_type: Option<ValueType>,
    /// Bit per event name, for the first 64 names: which of them had it.
    pub(super) events: u64,
}

impl Observed {
    /// Memory that it uses.
    pub fn memory_bytes(&self) -> usize {
        self.text.capacity()
            + self.events.capacity() * size_of::<Event>()
            + self.keys.capacity() * size_of::<Key>()
            + self.pairs.capacity() * size_of::<(usize, usize)>()
            + self.flags.capacity() * size_of::<(Range<usize>, UnixMicros)>()
    }

    fn put(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        match text.contains('\0') {
            false => self.text.push_str(text),
            true => self.text.push_str(&storable(text)),
        }
        start..self.text.len()
    }

    fn text(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Names of the events, each once, in the order of first occurrence.
    pub fn event_names(&self) -> impl Iterator<Item = &str> {
        self.events.iter().map(|event| self.text(&event.name))
    }

    /// Names of the events, in the same order, and the slots that each of them had.
    pub(super) fn events(&self) -> impl Iterator<Item = (&str, Slots)> {
        self.events.iter().map(|event| (self.text(&event.name), event.slots))
    }

    /// The keys outside of the key table.
    pub(super) fn keys(&self) -> impl Iterator<Item = KeySeen<'_>> {
        self.keys.iter().map(|seen| KeySeen {
            key: self.text(&seen.key),
            value_type: seen.value_type,
            events: seen.events,
        })
    }

    /// Keys of called flags, and the time of the last call.
    pub(super) fn flags(&self) -> impl Iterator<Item = (&str, UnixMicros)> {
        self.flags.iter().map(|(key, at)| (self.text(key), *at))
    }

    /// The name with this number.
    pub(super) fn event_name(&self, number: usize) -> Option<&str> {
        self.events.get(number).map(|event| self.text(&event.name))
    }

    /// The key outside of the key table with this number.
    pub(super) fn key(&self, number: usize) -> Option<&str> {
        self.keys.get(number).map(|seen| self.text(&seen.key))
    }

    /// Pairs of event number and key number, for events beyond the first 64.
    pub(super) fn pairs(&self) -> &[(usize, usize)] {
        &self.pairs
    }

    /// The type of a key of the key table.
    pub(super) fn slot_type(&self, slot: u8) -> Option<ValueType> {
        self.types.get(usize::from(slot)).copied().flatten()
    }
}
