//! Responses of operations as types: their JSON is that of the API, their schemas are in its description, and pages
//! render their fields. And queries as types, the nodes of clients: one declaration defines what is parsed, checked and
//! described. No engines, no HTTP, no product logic: `weir-http` builds responses from what is stored, and
//! `weir-insights` from events.

pub mod accounts;
pub mod activity;
pub mod capture;
pub mod cohorts;
pub mod definitions;
pub mod documents;
pub mod early_access;
pub mod enrolment;
pub mod events;
pub mod flags;
pub mod groups;
pub mod insights;
pub mod keys;
pub mod node;
pub mod nodes;
pub mod persons;
pub mod projects;
pub mod query;
pub mod schedules;
pub mod schema;
pub mod sdk;
pub mod shared;
pub mod sharing;
pub mod warnings;
