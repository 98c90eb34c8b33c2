//! Logs and metrics for the operator. No decisions, no messages of other modules.

pub mod cluster;
pub mod logs;
pub mod metrics;
pub mod postgres_port;
pub mod process;
pub mod rates;
pub mod refused;
pub mod repeats;
