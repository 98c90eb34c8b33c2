//! The read path's kernel: DataFusion over one snapshot.
//!
//! [`engine::Engine::view`] gives what one reader sees: the tables of one project as of every event
//! that was acknowledged before the call. A [`view::View`] plans; the engine runs plans on the query
//! threads, with limits of memory, time and number (`admission`, `guard`, `run`). What may not live
//! here: JSON shapes, HTTP, product rules.

pub mod admission;
mod arrow_precedence;
mod asked;
mod cast_names;
mod clickhouse;
mod column_recall;
mod columns;
pub mod complexity;
pub mod condition;
mod damage;
mod date_trunc;
pub mod definitions;
mod deleted;
mod distinct_persons;
pub mod engine;
pub mod error;
pub mod event_property;
pub mod event_sessions;
pub mod events;
mod explain;
mod explained;
pub mod expression;
pub mod expression_columns;
pub mod filter;
mod filtered;
mod footers;
mod guard;
pub mod histories;
pub mod interner;
mod item_names;
mod json;
mod lasting;
pub mod lists;
pub mod matches;
pub mod merge;
pub mod number_set;
pub mod paging;
pub mod parts;
pub mod people;
mod person_access;
mod person_answers;
pub mod person_filter;
mod person_keys;
pub mod person_numbers;
mod person_rows;
mod person_scan;
pub mod person_table;
pub mod persons;
pub mod placeholders;
pub mod places;
mod planners;
mod property_access;
mod property_ranges;
mod pruning;
pub mod quantile;
mod ranges;
mod row_filter;
pub mod rows;
pub mod run;
mod scoped;
mod session;
pub mod session_columns;
mod session_names;
pub mod slice;
pub mod sources;
mod sparing;
mod spill;
pub mod sql_text;
pub mod usage;
pub mod value_rows;
pub mod view;
