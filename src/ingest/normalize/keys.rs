//! The table of property names that the server does something with.

use hashbrown::HashMap;

use crate::event::schema::PROMOTED;
use crate::event::schema::PropertyType;
use crate::event::schema::column;
use crate::ingest::capture::Meaning;
use crate::ingest::normalize::Hasher;

/// What the server does with a property, by name.
#[derive(Debug)]
pub(in crate::ingest) struct KeyTable(HashMap<&'static str, KeyUse, Hasher>);

/// What the server does with one property.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyUse {
    pub(super) meaning: Option<Meaning>,
    pub(super) column: Option<(usize, PropertyType)>,
}

impl KeyTable {
    pub(in crate::ingest) fn new() -> Self {
        let mut table: HashMap<&'static str, KeyUse, Hasher> = HashMap::default();
        for (index, (key, kind)) in PROMOTED.into_iter().enumerate() {
            table.entry(key).or_default().column = Some((column::PROMOTED + index, kind));
        }
        for (key, meaning) in Meaning::ALL {
            table.entry(key).or_default().meaning = Some(meaning);
        }
        Self(table)
    }

    pub(super) fn get(&self, key: &str) -> KeyUse {
        self.0.get(key).copied().unwrap_or_default()
    }
}
