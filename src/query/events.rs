//! The events table, its columns, and its rows in the order of actors: [`table`].

pub mod definitions;
pub(super) mod deleted;
pub(super) mod distinct_persons;
pub mod event_property;
pub mod event_sessions;
pub mod expression_columns;
pub mod histories;
pub(super) mod keyed_persons;
pub mod merge;
pub mod places;
pub mod promoted;
pub(super) mod pruning;
pub(super) mod resolve_person;
pub(super) mod row_filter;
pub(super) mod scoped;
pub mod session_columns;
pub(crate) mod session_functions;
pub mod table;
