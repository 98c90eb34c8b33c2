//! The vocabulary of events: ids, schema, time, predicates. Pure; no JSON shapes of requests.

pub mod id;
pub mod predicate;
pub mod time;
