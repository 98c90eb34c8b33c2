//! Weir: an event-analytics server.

pub mod clock;
pub mod config;
pub mod error;
pub mod tasks;
pub mod telemetry;

pub mod event;
pub mod wire;

pub mod flags;
pub mod identity;

pub mod metadata;
pub mod storage;

pub mod ingest;
pub mod maintenance;
pub mod query;

pub mod app;

pub mod cli;
pub mod http;
pub mod synth;
