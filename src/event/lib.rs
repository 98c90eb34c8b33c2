//! The event data model: ids, columns, JSON values, schema, time, predicates, and the places of addresses.
//!
//! Begin with [`schema`], the columns of the events table, and [`columns`], one batch of them; [`dictionary`] says what the
//! columns of all tables mean. [`json`] is the only
//! parser of untrusted JSON, [`predicate`] defines filters on properties, [`time`] parses times. Pure, except for
//! [`geoip`], which reads its database. No request formats, no storage.

pub mod as_text;
pub mod auto_set;
pub mod columns;
pub mod dictionary;
pub mod elements;
pub mod geoip;
pub mod id;
pub mod json;
pub mod json_key;
pub mod key_kind;
pub mod number;
pub mod pattern;
pub mod predicate;
pub mod promotion;
pub mod schema;
pub mod time;
