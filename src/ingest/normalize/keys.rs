//! The table of property names that the server does something with.

use hashbrown::HashMap;

use crate::event::schema::PROMOTED;
use crate::event::schema::PropertyType;
use crate::event::schema::column;
use crate::ingest::capture::Meaning;
use crate::ingest::normalize::Hasher;
use crate::ingest::normalize::lifts::LIFTS;

/// What the server does with a property, by name.
#[derive(Debug)]
pub(in crate::ingest) struct KeyTable {
    uses: HashMap<&'static str, KeyUse, Hasher>,
    /// Positions in [`LIFTS`] by the names with `$initial_`.
    initials: HashMap<&'static str, usize, Hasher>,
    /// Columns of `$os` and `$process_person_profile`.
    pub(super) os_column: Option<usize>,
    pub(super) profile_column: Option<usize>,
}

/// What the server does with one property.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyUse {
    pub(super) meaning: Option<Meaning>,
    pub(super) column: Option<(usize, PropertyType)>,
    /// Its position in [`LIFTS`].
    pub(super) lift: Option<usize>,
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
        for (index, (key, _)) in LIFTS.into_iter().enumerate() {
            uses.entry(key).or_default().lift = Some(index);
        }
        let initials = LIFTS.into_iter().enumerate().map(|(index, (_, initial))| (initial, index));
        let column = |key| Some(uses.get(key)?.column?.0);
        Self {
            initials: initials.collect(),
            os_column: column("$os"),
            profile_column: column("$process_person_profile"),
            uses,
        }
    }

    pub(super) fn get(&self, key: &str) -> KeyUse {
        self.uses.get(key).copied().unwrap_or_default()
    }

    /// The position in [`LIFTS`] of a name with `$initial_`.
    pub(super) fn initial(&self, key: &str) -> Option<usize> {
        self.initials.get(key).copied()
    }
}
