//! Ids of imported events, which are functions of their rows: an import that is repeated, and exports that overlap, store
//! nothing twice.

use std::hash::BuildHasher;
use std::mem;

use hashbrown::{HashMap, HashSet};
use uuid::Uuid;

/// Rows whose repetitions are told apart, in each of two generations: 64 MiB in all.
const ORDINALS_MAX_ROWS: usize = 1 << 20;
/// Pairs that [`Seen`] remembers in each of two generations: 36 MiB in all.
const SEEN_MAX_PAIRS: usize = 1 << 20;

/// Where the ids of a source come from.
#[derive(Debug)]
pub struct Ids {
    namespace: Uuid,
    ordinals: Ordinals,
}

impl Ids {
    /// In the namespace of a source of this name.
    pub fn new(source: &str) -> Self {
        let name = format!("weir import {source}");
        Self::within(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    /// In this namespace.
    pub fn within(namespace: Uuid) -> Self {
        Self { namespace, ordinals: Ordinals::default() }
    }

    /// The id of an event that the source calls so.
    pub fn of_name(&self, name: &str) -> Uuid {
        Uuid::new_v5(&self.namespace, name.as_bytes())
    }

    /// The source's id if it is a uuid; else one made of it.
    pub fn of_id(&self, id: &str) -> Uuid {
        Uuid::try_parse(id.trim()).unwrap_or_else(|_| self.of_name(id))
    }

    /// The id of an event without one, made of its row. Equal rows of a file are different events, told apart by their
    /// ordinals, as long as there is not more than a million of such rows between them.
    pub fn of_row(&mut self, canonical: &str) -> Uuid {
        let id = self.of_name(canonical);
        match self.ordinals.next(id) {
            0 => id,
            ordinal => self.of_name(&format!("{canonical}#{ordinal}")),
        }
    }

    /// A file begins: the ordinals of its rows do not depend on the files before.
    pub fn begin_file(&mut self) {
        self.ordinals = Ordinals::default();
    }
}

/// How often each of the last rows has occurred.
#[derive(Debug, Default)]
struct Ordinals {
    young: HashMap<Uuid, u32, foldhash::fast::RandomState>,
    old: HashMap<Uuid, u32, foldhash::fast::RandomState>,
}

impl Ordinals {
    fn next(&mut self, id: Uuid) -> u32 {
        let before = self.old.get(&id).copied().unwrap_or(0);
        let count = self.young.entry(id).or_insert(before);
        let ordinal = *count;
        *count = count.saturating_add(1);
        if self.young.len() >= ORDINALS_MAX_ROWS {
            self.old = mem::take(&mut self.young);
        }
        ordinal
    }
}

/// What was seen before, of the last million. What is forgotten counts as new again, so it has to be harmless when it is
/// repeated.
#[derive(Debug, Default)]
pub struct Seen {
    hasher: foldhash::quality::FixedState,
    young: HashSet<u64, foldhash::fast::RandomState>,
    old: HashSet<u64, foldhash::fast::RandomState>,
}

impl Seen {
    /// Whether this is new; it is not any more afterwards.
    pub fn is_new(&mut self, parts: (&str, &str)) -> bool {
        let hash = self.hasher.hash_one(parts);
        if self.old.contains(&hash) || !self.young.insert(hash) {
            return false;
        }
        if self.young.len() >= SEEN_MAX_PAIRS {
            self.old = mem::take(&mut self.young);
        }
        true
    }
}

/// The last value of each of the last million keys, by hashes.
#[derive(Debug, Default)]
pub struct Latest {
    hasher: foldhash::quality::FixedState,
    young: HashMap<u64, u64, foldhash::fast::RandomState>,
    old: HashMap<u64, u64, foldhash::fast::RandomState>,
}

impl Latest {
    /// Whether a key has another value than before, or was forgotten.
    pub fn changes(&mut self, key: &str, value: &str) -> bool {
        let (key, value) = (self.hasher.hash_one(key), self.hasher.hash_one(value));
        let before = self.young.insert(key, value).or_else(|| self.old.get(&key).copied());
        if self.young.len() >= SEEN_MAX_PAIRS {
            self.old = mem::take(&mut self.young);
        }
        before != Some(value)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Ids, Latest, Seen};

    #[test]
    fn ids_are_functions_of_rows() {
        let mut ids = Ids::new("x");
        let first = [ids.of_row("a"), ids.of_row("a"), ids.of_row("b"), ids.of_row("a")];
        for (place, id) in first.iter().enumerate() {
            assert!(!first[..place].contains(id), "{place}");
        }
        ids.begin_file();
        assert_eq!([ids.of_row("a"), ids.of_row("a"), ids.of_row("b"), ids.of_row("a")], first);
        assert_ne!(Ids::new("y").of_row("a"), first[0]);
        let known = "0190e5a2-7a5c-7000-8000-000000000001";
        assert_eq!(ids.of_id(known), known.parse::<Uuid>().unwrap());
        assert_eq!(ids.of_id("abc"), ids.of_name("abc"));
    }

    /// From Python: `uuid.uuid5(uuid.UUID(bytes=b"posthog_mixpanel"), "abc")`.
    #[test]
    fn ids_are_those_of_the_standard() {
        let ids = Ids::within(Uuid::from_bytes(*b"posthog_mixpanel"));
        assert_eq!(ids.of_name("abc").to_string(), "18e25c17-3e40-5727-8efb-db490c955a63");
    }

    #[test]
    fn what_was_seen_is_not_new() {
        let mut seen = Seen::default();
        assert_eq!(
            [("a", "b"), ("a", "b"), ("ab", ""), ("b", "a")].map(|pair| seen.is_new(pair)),
            [true, false, true, true]
        );
        let mut latest = Latest::default();
        let told = [("a", "1"), ("a", "1"), ("a", "2"), ("b", "2"), ("a", "1")];
        assert_eq!(
            told.map(|(key, value)| latest.changes(key, value)),
            [true, false, true, true, true]
        );
    }
}
