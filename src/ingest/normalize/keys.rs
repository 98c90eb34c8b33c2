//! The table of property names that the server does something with.

use std::hash::BuildHasher;

use hashbrown::HashMap;

use crate::event::schema::PROMOTED;
use crate::event::schema::PropertyType;
use crate::event::schema::column;
use crate::geoip;
use crate::ingest::capture::Meaning;
use crate::ingest::definitions::collect::SLOTS;
use crate::ingest::definitions::collect::Track;
use crate::ingest::normalize::Hasher;
use crate::ingest::normalize::lifts::LIFTS;
use crate::ingest::normalize::lifts::noise;

/// Keys that are no properties to those who ask for definitions: they change persons or groups, or
/// have a column instead. Source: the list of PostHog's service for property definitions, and what
/// its ingestion takes out of the properties before.
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

/// What the server does with a property, by name.
#[derive(Debug)]
pub(in crate::ingest) struct KeyTable {
    uses: HashMap<&'static str, KeyUse, Hasher>,
    /// Positions in [`LIFTS`] by the names with `$initial_`.
    initials: HashMap<&'static str, usize, Hasher>,
    /// Columns of `$os` and `$process_person_profile`.
    pub(super) os_column: Option<usize>,
    pub(super) profile_column: Option<usize>,
    /// Bits of those of [`LIFTS`] whose new values alone are not worth a write.
    pub(super) noise: u64,
}

/// What the server does with one property.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyUse {
    pub(super) meaning: Option<Meaning>,
    pub(super) column: Option<(usize, PropertyType)>,
    /// Its position in [`LIFTS`].
    pub(super) lift: Option<usize>,
    /// How its definition is kept track of.
    pub(super) track: Track,
}

impl KeyTable {
    pub(in crate::ingest) fn new() -> Self {
        let mut uses: HashMap<&'static str, KeyUse, Hasher> = HashMap::default();
        for (index, (key, kind)) in PROMOTED.into_iter().enumerate() {
            uses.entry(key).or_default().column = Some((column::PROMOTED + index, kind));
        }
        for (key, meaning) in Meaning::ALL {
            uses.entry(key).or_default().meaning = Some(meaning);
        }
        for (key, _) in geoip::NAMES {
            uses.entry(key).or_default().meaning = Some(Meaning::Place);
        }
        for (index, (key, _)) in LIFTS.iter().enumerate() {
            uses.entry(key).or_default().lift = Some(index);
        }
        for key in UNTRACKED {
            uses.entry(key).or_default().track = Track::Never;
        }
        for (slot, key) in (0_u8..).zip(Self::slot_names()) {
            uses.entry(key).or_default().track = Track::Slot(slot);
        }
        let initials = LIFTS.iter().enumerate().map(|(index, (_, initial))| (*initial, index));
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
    pub(in crate::ingest) fn slot_names() -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::with_capacity(SLOTS);
        let promoted = PROMOTED.into_iter().map(|(key, _)| key);
        let meant = Meaning::ALL.into_iter().map(|(key, _)| key);
        for key in promoted.chain(meant).chain(LIFTS.iter().map(|(key, _)| *key)) {
            if names.len() < SLOTS && !names.contains(&key) && !UNTRACKED.contains(&key) {
                names.push(key);
            }
        }
        names
    }

    pub(super) fn get(&self, key: &str) -> KeyUse {
        self.uses.get(key).copied().unwrap_or_default()
    }

    /// The position in [`LIFTS`] of a name with `$initial_`.
    pub(super) fn initial(&self, key: &str) -> Option<usize> {
        self.initials.get(key).copied()
    }

    /// The hash under which a key is kept track of by name.
    pub(super) fn hash(&self, key: &str) -> u64 {
        self.hasher().hash_one(key)
    }

    /// Seeded against crafted collisions, and the same one for the life of the process.
    pub(super) fn hasher(&self) -> &Hasher {
        self.uses.hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::KeyTable;
    use super::SLOTS;
    use super::Track;
    use crate::event::schema::PROMOTED;

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
