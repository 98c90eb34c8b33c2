//! Answers of operations as types: their JSON is that of the API, their schemas are in its description, and pages draw
//! their fields. And queries as types, the nodes of clients: what is read of them, checked and described is declared once.
//! No engines, no HTTP, no product logic: `weir-http` makes answers of what is stored, and `weir-insights` of events.

pub mod accounts;
pub mod activity;
pub mod cohorts;
pub mod definitions;
pub mod early_access;
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
pub mod sharing;
pub mod warnings;
