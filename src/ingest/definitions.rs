//! What events say about definitions: their names, the keys of their properties and the types of
//! the values, and which name had which key. Besides, which flags SDKs said that they called: it goes
//! the same way.
//!
//! Three steps, so that a server that knows its events pays next to nothing for it:
//! [`collect`] gathers what one batch of events says (pure, on the hot road: a bit for a key of the
//! key table, one look-up for any other), `known` compares that with what was said before, and only
//! what is new goes to the metadata store. `value_type` tells the type of a value.
//!
//! Source of the rules: PostHog's service for property definitions.

pub mod collect;
pub(super) mod known;
pub mod value_type;

/// Longest name of an event and longest key that get a definition, in bytes.
pub(super) const NAME_MAX_BYTES: usize = 200;

/// `text` as the metadata store takes it: PostgreSQL has no NUL in text.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests;
