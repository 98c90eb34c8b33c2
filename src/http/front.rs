//! State shared by all connections: [`Front`].

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::http::budget::Budget;
use crate::http::limits::Limits;
use crate::http::protocol::Protocol;
use crate::http::refusals::Refusals;
use crate::tasks::Shutdown;
use crate::telemetry::metrics::Metrics;

/// State shared by all connections.
pub(super) struct Front<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) budget: Arc<Budget>,
    pub(super) refusals: Arc<Refusals>,
    /// One permit per connection that may be open.
    pub(super) connections: Arc<Semaphore>,
    pub(super) protocol: Protocol,
    pub(super) shutdown: Shutdown,
}
