//! Event and property definitions, derived from events: the names of events, the keys of their
//! properties with the types of the values, and the pairs of name and key. Calls of flags that SDKs
//! report are derived the same way.
//!
//! Three steps, so that known events cost next to nothing:
//! [`collect`] gathers the definitions in one batch of events (pure, on the hot path: a bit for a key
//! of the key table, one look-up for any other). `known` is a cache that drops what was written before.
//! The rest goes to the metadata store. `value_type` detects the type of a value.
//!
//! Source of the rules: PostHog's service for property definitions.

pub mod collect;
pub(super) mod known;
pub mod value_type;

/// Longest event name and longest property key that get a definition, in bytes.
pub(super) const NAME_MAX_BYTES: usize = 200;

/// `text` without NUL, which PostgreSQL does not accept in text.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests;
