//! Makes the scheduled changes of flags when they are due: looks every second, one change after the
//! other. What a change does is in `metadata`; so is that it is made once.

use std::sync::Arc;
use std::time::Duration;

use crate::metadata::Metadata;
use crate::metadata::MetadataError;
use crate::metadata::schedules::Outcome;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::OutcomeLabels;

/// Time between looks: a change is made at most so much, and what stands before it, too late.
const TICK: Duration = Duration::from_secs(1);

/// Pause after the database failed.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Changes that one look takes; the next takes the others.
const DUE_MAX: u32 = 1000;

/// Starts to look for what is due. Ends when `tasks` shuts down, after the change that is being made.
pub fn start(tasks: &Tasks, metadata: Metadata, metrics: Arc<Metrics>) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("scheduled-changes", async move {
        while shutdown.pause(TICK).await == Pause::Elapsed {
            if let Err(error) = make_due(&metadata, &metrics, &shutdown).await {
                tracing::warn!(%error, "cannot make the scheduled changes that are due");
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
