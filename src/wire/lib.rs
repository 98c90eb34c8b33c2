//! The wire formats: bytes and JSON shapes as clients send and expect them. No domain rules, no HTTP.
//!
//! Begin with [`encoding`], which turns a body of any SDK into plain JSON. What the fields of an event mean is in the crate
//! `weir-ingest`.

pub mod capture_v1;
pub mod encoding;
pub mod flags;
pub mod otlp;
pub mod query_node;
pub mod remote_config;
pub mod repair;
