//! The one integration test: a real server process, asked over HTTP and the command line; and
//! [`merges`], which needs no server but more modules than may know each other.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and a table of cases is long"
)]

mod accounts;
mod activity;
mod browser;
mod capture;
mod cohorts;
mod crash;
mod definitions;
mod deletion;
mod differential;
mod early_access;
mod errors;
mod event_definitions;
mod events;
mod feature_flags;
mod filters;
mod flag_management;
mod flag_rights;
mod flag_states;
mod flags;
mod fuzz;
mod geoip;
mod groups;
mod harness;
mod identity;
mod isolation;
mod lifecycle;
mod limits;
mod local_evaluation;
mod merges;
mod nested_json;
mod operations;
mod owner;
mod person_changes;
mod person_columns;
mod persons;
mod property_definitions;
mod refusals;
mod rights;
mod scheduled_changes;
mod sdk;
mod wire;
