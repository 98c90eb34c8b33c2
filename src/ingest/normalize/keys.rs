//! Key table: the property names that the server handles, and what it does with each.

use std::hash::BuildHasher;

use hashbrown::{HashMap, HashTable};

use crate::capture::Meaning;
use crate::definitions::collect::{SLOTS, Track};
use weir_event::auto_set::AUTO_SET;
use weir_event::geoip;
use weir_event::schema::{PROMOTED, PropertyType, TEXT_OF_SCALARS, column};
use weir_identity::decide::is_noise;

/// Hasher of the tables here: fast, and seeded per table against crafted collisions.
pub(super) type Hasher = foldhash::fast::RandomState;

/// Keys that get no definition: they change persons or groups, or have a column instead. Source: the
/// list of PostHog's service for property definitions, and the properties that its ingestion removes
/// before.
const UNTRACKED: [&str; 14] = [
    "$set",
    "$set_once",
    "$unset",
    "$groups",
    "$group_0",
    "$group_1",
    "$group_2",
    "$group_3",
    "$group_4",
    "$elements",
    "$elements_chain",
    "ph_product_tours",
    "$product_tours_activated",
    "$override_feature_flag_payloads",
];

/// How the server handles properties, by name.
#[derive(Debug)]
pub(crate) struct KeyTable {
    uses: HashMap<&'static str, KeyUse, Hasher>,
    /// Indexes in [`AUTO_SET`] by the names with `$initial_`.
    initials: HashMap<&'static str, usize, Hasher>,
    /// Columns of `$os` and `$process_person_profile`.
    pub(super) os_column: Option<usize>,
    pub(super) profile_column: Option<usize>,
    /// Bits of the properties in [`AUTO_SET`] whose new values alone do not justify a write.
    pub(super) noise: u64,
}

/// How the server handles one property.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyUse {
    pub(super) meaning: Option<Meaning>,
    pub(super) column: Option<(usize, PropertyType)>,
    /// Whether its text column takes booleans and numbers as they are written.
    pub(super) takes_scalars: bool,
    /// Its index in [`AUTO_SET`].
    pub(super) lift: Option<usize>,
    /// How its definition is tracked.
    pub(super) track: Track,
}

impl KeyTable {
    pub(crate) fn new() -> Self {
        let mut uses: HashMap<&'static str, KeyUse, Hasher> = HashMap::default();
        for (index, (key, kind)) in PROMOTED.into_iter().enumerate() {
            uses.entry(key).or_default().column = Some((column::PROMOTED + index, kind));
        }
        for key in TEXT_OF_SCALARS {
            uses.entry(key).or_default().takes_scalars = true;
        }
        for (key, meaning) in Meaning::ALL {
            uses.entry(key).or_default().meaning = Some(meaning);
        }
        for (key, _) in geoip::NAMES {
            uses.entry(key).or_default().meaning = Some(Meaning::Place);
        }
        for (index, (key, _)) in AUTO_SET.iter().enumerate() {
            uses.entry(key).or_default().lift = Some(index);
        }
        for key in UNTRACKED {
            uses.entry(key).or_default().track = Track::Never;
        }
        for (slot, key) in (0_u8..).zip(Self::slot_names()) {
            uses.entry(key).or_default().track = Track::Slot(slot);
        }
        let initials = AUTO_SET.iter().enumerate().map(|(index, (_, initial))| (*initial, index));
        let column = |key| Some(uses.get(key)?.column?.0);
        Self {
            initials: initials.collect(),
            os_column: column("$os"),
            profile_column: column("$process_person_profile"),
            noise: noise(),
            uses,
        }
    }

    /// The keys of [`Track::Slot`], by slot.
    pub(crate) fn slot_names() -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::with_capacity(SLOTS);
        let promoted = PROMOTED.into_iter().map(|(key, _)| key);
        let meant = Meaning::ALL.into_iter().map(|(key, _)| key);
        for key in promoted.chain(meant).chain(AUTO_SET.iter().map(|(key, _)| *key)) {
            if names.len() < SLOTS && !names.contains(&key) && !UNTRACKED.contains(&key) {
                names.push(key);
            }
        }
        names
    }

    pub(super) fn get(&self, key: &str) -> KeyUse {
        self.uses.get(key).copied().unwrap_or_default()
    }

    /// The index in [`AUTO_SET`] of a name with `$initial_`.
    pub(super) fn initial(&self, key: &str) -> Option<usize> {
        self.initials.get(key).copied()
    }

    /// The hash by which a key is tracked by name.
    pub(super) fn hash(&self, key: &str) -> u64 {
        self.hasher().hash_one(key)
    }

    /// Seeded against crafted collisions; the seed stays the same for the life of the process.
    pub(super) fn hasher(&self) -> &Hasher {
        self.uses.hasher()
    }
}

/// Bits of the properties whose new values alone do not justify a write.
fn noise() -> u64 {
    let noise = AUTO_SET.iter().enumerate().filter(|(_, (key, _))| is_noise(key));
    noise.fold(0, |bits, (index, _)| bits | 1 << index)
}

/// Limit of keys of one body that [`Memo`] keeps; further ones are looked up each time.
const MEMO_MAX_KEYS: usize = 4096;

/// Cache of the look-ups of one body. Events of one SDK have their keys in nearly the same order, so the
/// key that followed last time is tried first.
#[derive(Debug, Default)]
pub(super) struct Memo<'a> {
    keys: Vec<Looked<'a>>,
    by_hash: HashTable<usize>,
    /// Number of the first key of the last event.
    first: usize,
    /// Number of the previous key; `None` at the beginning of an event.
    before: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Looked<'a> {
    key: &'a str,
    hash: u64,
    known: KeyUse,
    /// Number of the key that followed last time.
    next: usize,
}

impl<'a> Memo<'a> {
    /// Begins an event.
    pub(super) fn begin(&mut self) {
        self.before = None;
    }

    /// How the server handles the next property of the event, and the hash of its key.
    pub(super) fn look_up(&mut self, key: &'a str, table: &KeyTable) -> (KeyUse, u64) {
        let before = self.before.and_then(|before| self.keys.get(before));
        let guess = before.map_or(self.first, |before| before.next);
        if let Some(looked) = self.keys.get(guess).filter(|looked| looked.key == key) {
            self.before = Some(guess);
            return (looked.known, looked.hash);
        }
        let hash = table.hash(key);
        let keys = &self.keys;
        let is_key = |number: &usize| keys.get(*number).is_some_and(|looked| looked.key == key);
        let number = match self.by_hash.find(hash, is_key) {
            Some(number) => *number,
            None => {
                let known = table.get(key);
                if self.keys.len() >= MEMO_MAX_KEYS {
                    return (known, hash);
                }
                let number = self.keys.len();
                let hash_of = |number: &usize| keys.get(*number).map_or(0, |looked| looked.hash);
                self.by_hash.insert_unique(hash, number, hash_of);
                self.keys.push(Looked { key, hash, known, next: number + 1 });
                number
            }
        };
        match self.before.and_then(|before| self.keys.get_mut(before)) {
            Some(before) => before.next = number,
            None => self.first = number,
        }
        self.before = Some(number);
        self.keys.get(number).map_or_else(Default::default, |looked| (looked.known, looked.hash))
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyTable, MEMO_MAX_KEYS, Memo, SLOTS, Track};
    use weir_event::schema::PROMOTED;

    #[test]
    fn a_memo_finds_what_the_table_has() {
        let table = KeyTable::new();
        let many: Vec<String> =
            (0..MEMO_MAX_KEYS + 50).map(|number| format!("k{number}")).collect();
        let mut memo = Memo::default();
        let events: [&[&str]; 6] = [
            &["$os", "a", "$set", "b"],
            &["$os", "a", "$set", "b"],
            &["$os", "b", "b", "$browser"],
            &[],
            &["a"],
            &["$os", "a", "$set", "$ip"],
        ];
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for event in events.into_iter().chain([&many[..], &many[..]]) {
            memo.begin();
            for key in event {
                let (known, hash) = memo.look_up(key, &table);
                let expected = table.get(key);
                assert_eq!(format!("{known:?}"), format!("{expected:?}"), "{key}");
                assert_eq!(hash, table.hash(key), "{key}");
            }
        }
        assert_eq!(memo.keys.len(), MEMO_MAX_KEYS, "bounded");
    }

    #[test]
    fn promoted_properties_have_slots() {
        let (table, names) = (KeyTable::new(), KeyTable::slot_names());
        assert!(names.len() < SLOTS, "room for all; beyond, keys are tracked by name");
        for (slot, key) in (0_u8..).zip(&names) {
            assert_eq!(table.get(key).track, Track::Slot(slot), "{key}");
        }
        for (key, _) in PROMOTED {
            assert!(names.contains(&key), "{key}");
        }
        assert_eq!(table.get("$set").track, Track::Never);
        assert_eq!(table.get("$group_4").track, Track::Never);
        assert_eq!(table.get("made up").track, Track::Name);
    }
}
