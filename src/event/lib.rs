//! The event data model: ids, columns, JSON values, schema, time, predicates, and the places of addresses.
//!
//! Begin with [`schema`], the columns of the events table, and [`columns`], one batch of them. [`json`] is the only
//! reader of JSON of others, [`predicate`] the meaning of a filter on properties, [`time`] that of a time. Pure, but for
//! [`geoip`], which reads its database. No shapes of requests, no storage.

pub mod auto_set;
pub mod columns;
pub mod elements;
pub mod geoip;
pub mod id;
pub mod json;
pub mod json_key;
pub mod key_kind;
pub mod number;
pub mod pattern;
pub mod predicate;
pub mod schema;
pub mod time;
