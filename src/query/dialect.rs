//! The dialects of HogQL and ClickHouse, rewritten to syntax trees that DataFusion can plan: [`hogql`] is the parser
//! dialect; most other files are one rewrite of the statement each.

pub(super) mod aliases;
pub(super) mod array_join;
pub(super) mod arrow_precedence;
pub(super) mod cast_names;
pub(super) mod clickhouse;
pub mod cohort_names;
pub mod composed;
pub(super) mod created_at;
pub(super) mod dashed_names;
pub(super) mod explained;
pub mod expression;
pub(super) mod filtered;
pub(super) mod hogql;
pub(super) mod item_names;
pub mod list_text;
pub(super) mod offsets;
pub mod paging;
pub mod parameters;
pub(super) mod person_access;
pub mod placeholders;
pub mod postgres;
pub(super) mod property_access;
pub(super) mod property_numbers;
pub(super) mod property_ranges;
pub(super) mod property_values;
pub(super) mod relations;
pub(super) mod session_names;
pub mod sql_text;
pub(super) mod statements;
pub(super) mod substitution;
pub(super) mod tokens;
pub(super) mod unknown_column;
pub(super) mod walk;
pub(super) mod with_constants;
