//! Logs and metrics: how the server tells its operator what it does. No decisions, no messages of
//! other modules.

pub mod logs;
pub mod metrics;
pub mod repeats;
