//! Properties of an event that say something of its person too: `$browser` is a `$set` of its name
//! and a `$set_once` of `$initial_browser`, as if the sender had said so.
//!
//! They come with every page view and hardly ever change anything. So they stay text of the request
//! until somebody needs their values, and a digest tells whether they can change anything that the
//! same ones before them did not.

use std::fmt;
use std::hash::BuildHasher;
use std::hash::Hasher;
use std::ops::Range;

use arrow::buffer::Buffer;
use serde_json::Value;

/// Keys of a property: the one under which it is set, and the one under which it is set once.
pub type Names = (&'static str, &'static str);

/// Digests of one person that are kept: few kinds of events say different things of the same person.
const SETTLED_MAX: usize = 4;

/// One lifted property.
#[derive(Clone, Debug)]
pub struct Lift {
    /// Its keys.
    pub names: &'static Names,
    /// Its number among all such properties, below 64, for those who keep books of them.
    pub number: u8,
    /// Whether it is set.
    pub sets: bool,
    /// Whether it is set once.
    pub sets_once: bool,
    /// Whether a new value alone is not worth a write; see [`super::decide::is_noise`].
    pub is_noise: bool,
    /// Where its value stands, as JSON.
    pub value: Range<u32>,
}

/// The lifted properties of one event. No key that is set is in the event's own `$set`, and no key
/// that is set once in its `$set_once`.
#[derive(Clone)]
pub struct Lifted {
    text: Buffer,
    lifts: Box<[Lift]>,
    digest: u64,
}

impl Lifted {
    /// `text` holds the values. `hasher` is always the same one, seeded against crafted collisions.
    pub fn new(text: Buffer, lifts: Box<[Lift]>, hasher: &impl BuildHasher) -> Self {
        let digest = digest(&text, &lifts, hasher);
        Self { text, lifts, digest }
    }

    /// Whether nothing was lifted.
    pub fn is_empty(&self) -> bool {
        self.lifts.is_empty()
    }

    /// Stands for the keys, and for the values that are not noise. Two events with the same digest
    /// and nothing else to say leave a person alike, unless something changed it in between: noise
    /// has no effect on a person that has the key, whatever its value.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The properties.
    pub fn iter(&self) -> impl Iterator<Item = &Lift> {
        self.lifts.iter()
    }

    /// The value of one of them. `None` if it cannot be read, which the parser of the request would
    /// have refused.
    pub fn value(&self, lift: &Lift) -> Option<Value> {
        serde_json::from_slice(text_of(&self.text, lift)?).ok()
    }

    /// The value of one of them if it is another than `old`. What hardly ever changes is compared as
    /// it was written, and not read.
    pub fn news(&self, lift: &Lift, old: Option<&Value>) -> Option<Value> {
        if old.is_some_and(|old| is_text_of(old, text_of(&self.text, lift).unwrap_or_default())) {
            return None;
        }
        self.value(lift).filter(|value| old != Some(value))
    }

    /// Their keys and values, read.
    pub fn read(&self) -> Vec<(Option<&'static str>, Option<&'static str>, Value)> {
        let read = |lift: &Lift| {
            let (key, initial) = *lift.names;
            let value = self.value(lift)?;
            Some((lift.sets.then_some(key), lift.sets_once.then_some(initial), value))
        };
        self.lifts.iter().filter_map(read).collect()
    }
}

impl fmt::Debug for Lifted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.read()).finish()
    }
}

fn text_of<'t>(text: &'t [u8], lift: &Lift) -> Option<&'t [u8]> {
    let start = usize::try_from(lift.value.start).ok()?;
    text.get(start..usize::try_from(lift.value.end).ok()?)
}

/// Whether `json` is a text without escapes, and `value` the same.
fn is_text_of(value: &Value, json: &[u8]) -> bool {
    let Value::String(value) = value else { return false };
    let quoted = json.strip_prefix(b"\"").and_then(|json| json.strip_suffix(b"\""));
    quoted == Some(value.as_bytes()) && !value.contains('\\')
}

fn digest(text: &[u8], lifts: &[Lift], hasher: &impl BuildHasher) -> u64 {
    let mut hasher = hasher.build_hasher();
    for lift in lifts {
        let flags = [lift.number, u8::from(lift.sets) | u8::from(lift.sets_once) << 1];
        hasher.write_u16(u16::from_le_bytes(flags));
        if !lift.is_noise
            && let Some(value) = text_of(text, lift)
        {
            hasher.write_usize(value.len());
            hasher.write(value);
        }
    }
    hasher.finish()
}

/// What a person was told before without effect, or is so already: digests of lifted properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    digests: [Option<u64>; SETTLED_MAX],
    next: usize,
}

impl Settled {
    /// Whether the same was told before.
    pub(super) fn has(&self, lifted: &Lifted) -> bool {
        self.digests.contains(&Some(lifted.digest))
    }

    /// Takes note of what has no effect any more. The oldest goes.
    pub(super) fn add(&mut self, lifted: &Lifted) {
        if self.has(lifted) {
            return;
        }
        if let Some(oldest) = self.digests.get_mut(self.next) {
            *oldest = Some(lifted.digest);
        }
        self.next = (self.next + 1) % SETTLED_MAX;
    }

    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
pub(in crate::identity) mod tests;
