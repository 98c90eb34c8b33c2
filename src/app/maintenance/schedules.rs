//! Scheduler of flag changes: checks every second and applies due changes one after the other. `metadata`
//! defines what a change does, and guarantees that it is applied once.

use std::sync::Arc;
use std::time::Duration;

use weir_base::tasks::{Pause, Shutdown, Tasks};
use weir_base::telemetry::metrics::{Metrics, OutcomeLabels};
use weir_metadata::Metadata;
use weir_metadata::error::MetadataError;
use weir_metadata::schedules::Outcome;

/// Time between checks. A change is late by at most this and the duration of the changes before it.
const TICK: Duration = Duration::from_secs(1);

/// Pause after the database failed.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Changes that one check applies; the next check applies the rest.
const DUE_MAX: u32 = 1000;

/// Starts the scheduler. Ends when `tasks` shuts down, after the current change.
pub fn start(tasks: &Tasks, metadata: Metadata, metrics: Arc<Metrics>) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("scheduled-changes", async move {
        while shutdown.pause(TICK).await == Pause::Elapsed {
            if let Err(error) = make_due(&metadata, &metrics, &shutdown).await {
                tracing::warn!(%error, "cannot apply scheduled flag changes that are due; they are tried again");
                shutdown.pause(RETRY_PAUSE).await;
            }
        }
    });
}

async fn make_due(
    metadata: &Metadata,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<(), MetadataError> {
    for id in metadata.due_changes(DUE_MAX).await? {
        if shutdown.is_cancelled() {
            break;
        }
        let outcome = match metadata.make_due_change(id).await? {
            Outcome::Made => "made",
            Outcome::Over => continue,
            Outcome::Retried => "retried",
            Outcome::Failed => "failed",
        };
        tracing::info!(change = id.0, outcome, "scheduled change of a flag");
        metrics.scheduled_changes.get_or_create(&OutcomeLabels { outcome }).inc();
    }
    Ok(())
}
