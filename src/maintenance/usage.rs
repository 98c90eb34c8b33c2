//! Writes down how often questions named events, every few seconds.

use std::time::Duration;

use crate::query::Engine;
use crate::tasks::Pause;
use crate::tasks::Tasks;

/// Time between writes. Who asks how often an event was named has it written first.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Starts to write. Ends when `tasks` shuts down; the last write is the application's.
pub fn start(tasks: &Tasks, engine: Engine) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("write-usage", async move {
        while shutdown.pause(WRITE_INTERVAL).await == Pause::Elapsed {
            if let Err(error) = engine.write_usage().await {
                tracing::warn!(%error, "cannot note how often events are asked for");
            }
        }
    });
}
