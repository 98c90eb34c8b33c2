//! Periodic write of the counts of how often queries name an event.

use std::time::Duration;

use weir_base::tasks::{Pause, Tasks};
use weir_query::kernel::engine::Engine;

/// Time between writes. A request for the counts writes them first.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the writes. Ends when `tasks` shuts down; `app` does the last write.
pub fn start(tasks: &Tasks, engine: Engine) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("write-usage", async move {
        while shutdown.pause(WRITE_INTERVAL).await == Pause::Elapsed {
            if let Err(error) = engine.write_usage().await {
                tracing::warn!(%error, "cannot store how often queries name events; the counts are written with the next attempt");
            }
        }
    });
}
