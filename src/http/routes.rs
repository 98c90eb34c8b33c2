//! The endpoints, one file per family: operations, and route functions that are not operations yet, which translate a
//! request into a call of an engine, and the result into a response. Each fails with the problem that the client gets
//! as its answer.

pub mod activity;
pub mod capture;
pub mod capture_v1;
pub mod cohorts;
pub mod definition_parameters;
pub mod description;
pub mod discarded;
pub mod documents;
pub mod early_access_features;
pub mod event_definitions;
pub mod events;
pub mod feature_flags;
pub mod flag_events;
pub mod flag_settings;
pub mod flags;
pub mod groups;
pub mod health;
pub mod ingestion_warnings;
pub mod insights;
pub mod internal;
pub mod landing;
pub mod lists;
pub mod llms;
pub mod local_evaluation;
pub mod mcp;
pub mod ofrep;
pub mod organizations;
pub mod otel;
pub mod pages;
pub mod personal_api_keys;
pub mod persons;
pub mod projects;
pub mod promoted_properties;
pub mod property_definitions;
pub mod query;
pub mod remote_config;
pub mod resource_access;
pub mod roles;
pub mod scheduled_changes;
pub mod schema;
pub mod static_files;
pub(crate) mod store;
mod user_body;
pub mod users;
