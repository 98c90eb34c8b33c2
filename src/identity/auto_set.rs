//! Auto-set properties: event properties that are propagated to the person. `$browser` acts as a
//! `$set` of its name and a `$set_once` of `$initial_browser`, as if the sender had sent both.
//!
//! They come with every page view and rarely change anything. So they are parsed lazily: they stay
//! text of the request until their values are needed. A digest of them is compared with the digests
//! applied to the person before, and only a different digest is parsed.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use arrow::buffer::Buffer;
use serde_json::Value;

use weir_event::auto_set::Names;
use weir_event::json;

/// Digests kept of one person. Few kinds of events carry different auto-set properties of one person.
const SETTLED_MAX: usize = 4;

/// One auto-set property.
#[derive(Clone, Debug)]
pub struct AutoSetProperty {
    /// Its keys.
    pub names: &'static Names,
    /// Its number among all such properties, below 64, to be used as a bit of a set.
    pub number: u8,
    /// Whether it is set.
    pub sets: bool,
    /// Whether it is set once.
    pub sets_once: bool,
    /// Whether it is only set on a person that lacks it.
    pub fills: bool,
    /// Whether a new value alone is not worth a write; see [`super::decide::is_noise`].
    pub is_noise: bool,
    /// The position of its value, as JSON, in the text.
    pub value: Range<u32>,
}

/// The auto-set properties of one event. None that is set is in the event's own `$set`, and none
/// that is set once in its `$set_once`.
#[derive(Clone)]
pub struct AutoSet {
    text: Buffer,
    auto_sets: Box<[AutoSetProperty]>,
    digest: u64,
}

impl AutoSet {
    /// `text` holds the values. `hasher` must always be the same one, seeded against crafted
    /// collisions.
    pub fn new(text: Buffer, auto_sets: Box<[AutoSetProperty]>, hasher: &impl BuildHasher) -> Self {
        let digest = digest(&text, &auto_sets, hasher);
        Self { text, auto_sets, digest }
    }

    /// Whether nothing was auto-set.
    pub fn is_empty(&self) -> bool {
        self.auto_sets.is_empty()
    }

    /// Digest of the keys, and of the values that are not noise. Two events with the same digest
    /// and no other changes have the same effect on a person, unless something changed the person
    /// in between: noise has no effect on a person that has the key, whatever its value.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The properties.
    pub fn iter(&self) -> impl Iterator<Item = &AutoSetProperty> {
        self.auto_sets.iter()
    }

    /// The value of one of them. `None` if it cannot be parsed, which the parser of the request
    /// excludes.
    pub fn value(&self, property: &AutoSetProperty) -> Option<Value> {
        json::read(text_of(&self.text, property)?).ok()
    }

    /// The value of one of them if it differs from `old`. A text without escapes is compared as it
    /// was written and is not parsed.
    pub fn news(&self, property: &AutoSetProperty, old: Option<&Value>) -> Option<Value> {
        if old.is_some_and(|old| is_text_of(old, text_of(&self.text, property).unwrap_or_default()))
        {
            return None;
        }
        self.value(property).filter(|value| old != Some(value))
    }

    /// Their keys and parsed values.
    pub fn read(&self) -> Vec<(Option<&'static str>, Option<&'static str>, Value)> {
        let read = |property: &AutoSetProperty| {
            let (key, initial) = *property.names;
            let value = self.value(property)?;
            Some((property.sets.then_some(key), property.sets_once.then_some(initial), value))
        };
        self.auto_sets.iter().filter_map(read).collect()
    }
}

impl fmt::Debug for AutoSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.read()).finish()
    }
}

fn text_of<'t>(text: &'t [u8], property: &AutoSetProperty) -> Option<&'t [u8]> {
    let start = usize::try_from(property.value.start).ok()?;
    text.get(start..usize::try_from(property.value.end).ok()?)
}

/// Whether `json` is a text without escapes and equal to `value`.
fn is_text_of(value: &Value, json: &[u8]) -> bool {
    let Value::String(value) = value else { return false };
    let quoted = json.strip_prefix(b"\"").and_then(|json| json.strip_suffix(b"\""));
    quoted == Some(value.as_bytes()) && !value.contains('\\')
}

fn digest(text: &[u8], auto_sets: &[AutoSetProperty], hasher: &impl BuildHasher) -> u64 {
    let mut hasher = hasher.build_hasher();
    for property in auto_sets {
        let flags = u8::from(property.sets)
            | u8::from(property.sets_once) << 1
            | u8::from(property.fills) << 2;
        let flags = [property.number, flags];
        hasher.write_u16(u16::from_le_bytes(flags));
        // What fills has no effect on a person that has it, whatever its value.
        if !property.is_noise
            && !property.fills
            && let Some(value) = text_of(text, property)
        {
            hasher.write_usize(value.len());
            hasher.write(value);
        }
    }
    hasher.finish()
}

/// Digests of the auto-set properties that have no effect on a person, because they were applied
/// before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    digests: [Option<u64>; SETTLED_MAX],
    next: usize,
}

impl Settled {
    /// Whether these properties were applied before.
    pub(super) fn has(&self, auto_set: &AutoSet) -> bool {
        self.digests.contains(&Some(auto_set.digest))
    }

    /// Adds a digest; the oldest one is evicted.
    pub(super) fn add(&mut self, auto_set: &AutoSet) {
        if self.has(auto_set) {
            return;
        }
        if let Some(oldest) = self.digests.get_mut(self.next) {
            *oldest = Some(auto_set.digest);
        }
        self.next = (self.next + 1) % SETTLED_MAX;
    }

    /// Whether there are no digests.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
pub(crate) mod tests;
