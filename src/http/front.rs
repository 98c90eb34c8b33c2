//! State shared by all connections: [`Front`].

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::budget::Budget;
use crate::limits::Limits;
use crate::protocol::Protocol;
use crate::refusals::Refusals;
use weir_base::clock::Clock;
use weir_base::tasks::Shutdown;
use weir_base::telemetry::metrics::Metrics;

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
