//! The vocabulary of events: ids, values, schema, time, predicates. Pure; no JSON shapes of requests.

pub mod columns;
pub mod id;
pub mod json;
pub mod predicate;
pub mod schema;
pub mod time;
