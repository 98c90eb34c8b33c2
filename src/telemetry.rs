//! Logs and metrics for the operator. No decisions, no messages of other modules.

pub mod logs;
pub mod metrics;
pub mod repeats;
