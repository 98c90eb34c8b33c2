//! Rules of groups, as in PostHog: indexes of types, and properties.

use serde_json::{Map, Value};

use crate::decide::{PropertyChanges, is_too_large};

/// Most group types per project; the columns `$group_0` to `$group_4`.
pub const GROUP_TYPES_MAX: usize = 5;

/// Longest group key and type, in characters.
const GROUP_NAME_MAX_CHARS: usize = 400;

/// The index of a group type, of all types of a project in the order of their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeSlot {
    /// It has this index.
    Known(u8),
    /// It is new and gets this index.
    New(u8),
    /// All indexes are taken, or the name is not allowed.
    None,
}

/// Finds the index of a group type: 0 to 4, assigned when the type is first seen, never reassigned.
pub fn type_slot(types: &[String], name: &str) -> TypeSlot {
    if !is_group_name(name) {
        return TypeSlot::None;
    }
    let known = types.iter().position(|known| known == name);
    let index = u8::try_from(known.unwrap_or(types.len())).unwrap_or(u8::MAX);
    match known {
        Some(_) => TypeSlot::Known(index),
        None if types.len() < GROUP_TYPES_MAX => TypeSlot::New(index),
        None => TypeSlot::None,
    }
}

/// Whether the text can name a group or a group type: not empty, at most 400 characters.
pub fn is_group_name(name: &str) -> bool {
    !name.is_empty() && name.chars().nth(GROUP_NAME_MAX_CHARS).is_none()
}

/// Merges the properties of a `$groupidentify`, or of an operator's change, shallowly into those of
/// the group. Returns false, and changes nothing, if the group would become too large.
pub fn merge_group(
    properties: &mut Map<String, Value>,
    set: &Map<String, Value>,
    unset: &[String],
) -> bool {
    let set = set.iter().filter(|(key, value)| properties.get(*key) != Some(*value));
    let set = set.map(|(key, value)| (key.as_str(), value.clone())).collect();
    let unset = unset.iter().map(String::as_str).collect();
    let changes = PropertyChanges { set, unset };
    let fits = !is_too_large(properties, &changes);
    if fits {
        changes.apply(properties);
    }
    fits
}
