//! Memory estimate of a write set, added up as it grows: its rows, the items of its batch, and the
//! database's write buffers that the batch goes to.
//!
//! The estimates are upper ones. A row that changes again counts again, because its previous value
//! may still be in use.

use crate::cache::{object_bytes, row_bytes};
use crate::change::{Difference, Done, PersonDone};
use crate::person::{Group, Person};

/// An item of a batch: 64 bytes, its key on the heap, and both once more in a write buffer.
const ITEM_BYTES: u64 = 256;

/// An entry of a map of the write set.
const ENTRY_BYTES: u64 = 96;

/// A person's row in the write set, and the first node of its properties.
const PERSON_BYTES: u64 = 1024;

/// Items of a person beside its distinct ids: row, uuid, two keys of `listed`, email.
const PERSON_ITEMS: u64 = 5;

/// A distinct id that was looked up.
pub(super) const READ_ID_BYTES: u64 = 128;

/// An entry that changes, with `text_bytes` bytes of text.
pub(super) fn entry(text_bytes: usize) -> u64 {
    let text = u64::try_from(text_bytes).unwrap_or(u64::MAX);
    ENTRY_BYTES.saturating_add(ITEM_BYTES).saturating_add(text.saturating_mul(3))
}

/// A person that was read.
pub(super) fn read_person(person: &Person) -> u64 {
    PERSON_BYTES.saturating_add(row_bytes(person))
}

/// A person that is new or changes: in the write set, encoded in the batch, and in a write buffer.
pub(super) fn changed_person(person: &Person) -> u64 {
    let properties = object_bytes(&person.properties).saturating_mul(3);
    PERSON_BYTES.saturating_add(PERSON_ITEMS * ITEM_BYTES).saturating_add(properties)
}

/// A group that changes.
pub(super) fn group(key: &str, group: &Group) -> u64 {
    entry(key.len()).saturating_add(object_bytes(&group.properties).saturating_mul(3))
}

/// The effect of an operation, until it is in the activity log.
pub(super) fn effect(done: &Done) -> u64 {
    let of_ids = |ids: &[String]| ids.iter().map(|id| entry(id.len())).fold(0, u64::saturating_add);
    let of_difference = |Difference { before, after }: &Difference| {
        object_bytes(before).saturating_add(object_bytes(after))
    };
    let bytes = match done {
        Done::Person { done: PersonDone::Changed(properties), .. } => of_difference(properties),
        Done::Person { done: PersonDone::Split { before, after }, .. } => {
            of_ids(before).saturating_add(of_ids(after))
        }
        Done::Person { done: PersonDone::Deleted { distinct_ids, .. }, .. } => of_ids(distinct_ids),
        Done::Group { properties, .. } => of_difference(properties),
    };
    ENTRY_BYTES.saturating_add(bytes)
}
