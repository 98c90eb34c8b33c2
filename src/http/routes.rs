//! The endpoints, one file per family. A route turns a request into a call of a handle, and what
//! comes back into an answer; it decides nothing itself.

#![expect(
    clippy::missing_errors_doc,
    reason = "every route fails with the problem that the client gets as its answer"
)]

pub mod activity;
pub mod capture;
pub mod cohorts;
pub mod event_definitions;
pub mod feature_flags;
pub mod flag_events;
pub mod flag_settings;
pub mod flags;
pub mod health;
pub mod ingestion_warnings;
pub mod local_evaluation;
pub mod ofrep;
pub mod persons;
pub mod property_definitions;
pub mod query;
pub mod roles;
