//! Caches of committed rows. [`Caches`] is the writer's: most operations need no database read.
//! [`Decoded`] is the readers': a row is not parsed for each request of its person.
//!
//! Only the writer reads and fills [`Caches`]: readers use snapshots of the database, and a cache
//! filled after the commit would not match them. Readers always read the row; [`Decoded`] saves
//! them only the parsing.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{UnitWeighter, Weighter};
use serde_json::{Map, Value};

use crate::auto_set::Settled;
use crate::person::Person;
use crate::{IdentityError, codec};
use weir_event::id::ProjectId;

/// Memory of one known id: slab entry, index, and half the ghost of an evicted one. quick_cache 0.7
/// reports 73 bytes with 150,000 entries; up to half as much again just after its vectors have
/// doubled.
const ID_ENTRY_BYTES: u64 = 112;

/// Memory of the digests of one person, likewise.
const SETTLED_ENTRY_BYTES: u64 = 144;

/// Memory of one cached row beside its properties.
const ROW_ENTRY_BYTES: u64 = 256;

/// Typical memory of a cached row, for the size of the index.
const ROW_TYPICAL_BYTES: u64 = 4096;

/// 128-bit fingerprint of a project and a distinct id. Two keyed hashes with seeds of this process,
/// so that nobody can construct ids that collide; by chance it takes 2^64 ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64, u64);

/// The caches of the writer.
pub(super) struct Caches {
    hashers: (RandomState, RandomState),
    ids: Cache<Fingerprint, IdState, UnitWeighter, foldhash::fast::RandomState>,
    rows: Rows,
    /// By number of the person. Not part of the rows, which are many times as large.
    settled: Cache<i64, Settled, UnitWeighter, foldhash::fast::RandomState>,
}

/// Decoded persons by number.
type Rows = Cache<i64, Arc<Person>, RowWeighter, foldhash::fast::RandomState>;

/// The cache of readers.
pub(super) struct Decoded {
    rows: Rows,
}

impl Decoded {
    pub(super) fn new(bytes: u64) -> Self {
        Self { rows: cache(bytes / ROW_TYPICAL_BYTES, bytes, RowWeighter) }
    }

    /// The person of this row. Numbers are never reused, and no two states of a person have the
    /// same version and sequence. So a cached person with the version and sequence of the row is
    /// the person of the row.
    pub(super) fn person(&self, number: i64, row: &[u8]) -> Result<Arc<Person>, IdentityError> {
        let edition = codec::decode_person_edition(row)?;
        if let Some(known) = self.rows.get(&number)
            && (known.version, known.changed_sequence) == edition
        {
            return Ok(known);
        }
        let person = Arc::new(codec::decode_person(number, row)?);
        self.rows.insert(number, Arc::clone(&person));
        Ok(person)
    }
}

/// The state of a distinct id in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdState {
    /// Nothing.
    Unknown,
    /// Events were stored for it, and it has no person.
    Personless,
    /// It has the person with this number.
    Person(i64),
}

impl Caches {
    pub(super) fn new(ids_bytes: u64, rows_bytes: u64) -> Self {
        // As many persons as ids: most have one.
        let ids = ids_bytes / (ID_ENTRY_BYTES + SETTLED_ENTRY_BYTES);
        Self {
            hashers: (RandomState::default(), RandomState::default()),
            ids: cache(ids, ids, UnitWeighter),
            settled: cache(ids, ids, UnitWeighter),
            rows: cache(rows_bytes / ROW_TYPICAL_BYTES, rows_bytes, RowWeighter),
        }
    }

    pub(super) fn fingerprint(&self, project: ProjectId, distinct_id: &str) -> Fingerprint {
        let key = (project.0, distinct_id);
        Fingerprint(self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }

    pub(super) fn id(&self, fingerprint: Fingerprint) -> Option<IdState> {
        self.ids.get(&fingerprint)
    }

    pub(super) fn remember_id(&self, fingerprint: Fingerprint, state: IdState) {
        self.ids.insert(fingerprint, state);
    }

    pub(super) fn forget_id(&self, fingerprint: Fingerprint) {
        self.ids.remove(&fingerprint);
    }

    pub(super) fn row(&self, number: i64) -> Option<Arc<Person>> {
        self.rows.get(&number)
    }

    pub(super) fn remember_row(&self, person: Arc<Person>) {
        self.rows.insert(person.number, person);
    }

    pub(super) fn forget_row(&self, number: i64) {
        self.rows.remove(&number);
    }

    /// Digests of the auto-set properties that have no effect on a person since its last change.
    pub(super) fn settled(&self, number: i64) -> Settled {
        self.settled.get(&number).unwrap_or_default()
    }

    pub(super) fn remember_settled(&self, number: i64, settled: Settled) {
        if settled.is_empty() {
            self.settled.remove(&number);
        } else {
            self.settled.insert(number, settled);
        }
    }

    /// Number of entries and memory in bytes of the cache of known ids.
    #[cfg(test)]
    pub(super) fn ids_memory(&self) -> (usize, usize) {
        (self.ids.len(), self.ids.memory_used().total())
    }
}

fn cache<K, V, W>(
    items: u64,
    weight: u64,
    weighter: W,
) -> Cache<K, V, W, foldhash::fast::RandomState>
where
    K: Eq + std::hash::Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let items = usize::try_from(items).unwrap_or(usize::MAX);
    Cache::with(items, weight, weighter, Default::default(), DefaultLifecycle::default())
}

/// Weighs rows in bytes of memory, roughly.
#[derive(Clone)]
struct RowWeighter;

impl Weighter<i64, Arc<Person>> for RowWeighter {
    fn weight(&self, _number: &i64, person: &Arc<Person>) -> u64 {
        row_bytes(person)
    }
}

/// Memory of a decoded row, roughly.
pub(super) fn row_bytes(person: &Person) -> u64 {
    ROW_ENTRY_BYTES.saturating_add(object_bytes(&person.properties))
}

/// Memory of an object: its texts, and per entry a key and a value in a B-tree node that is about
/// two thirds full.
pub(super) fn object_bytes(object: &Map<String, Value>) -> u64 {
    object.iter().fold(0, |sum, (key, value)| {
        sum.saturating_add(96).saturating_add(length(key.len())).saturating_add(value_bytes(value))
    })
}

pub(super) fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => length(text.len()),
        Value::Array(items) => items
            .iter()
            .fold(0, |sum, item| sum.saturating_add(32).saturating_add(value_bytes(item))),
        Value::Object(object) => object_bytes(object),
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
