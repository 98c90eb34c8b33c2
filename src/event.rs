//! The event data model: ids, columns, JSON values, schema, time, predicates. Pure; no request shapes.

pub mod auto_set;
pub mod columns;
pub mod elements;
pub mod id;
pub mod json;
pub mod json_key;
pub mod key_kind;
pub mod number;
pub mod pattern;
pub mod predicate;
pub mod schema;
pub mod time;
