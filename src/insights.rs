//! Product questions: a typed request becomes a plan over the tables of [`query`](crate::query), or a walk over
//! the identity store, and the shape of its answer. May not name HTTP: routes decode, call and encode.

pub mod audience;
pub mod cohorts;
pub mod date_range;
pub mod events;
pub mod groups;
pub mod property_definitions;
pub mod timeline;
