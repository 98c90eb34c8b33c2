//! Periodic count of cohort members: counts every cohort with a rule of the projects of a shard, one after the other, so
//! that at most one count runs beside the queries of users.

use std::time::Duration;

use weir_base::tasks::{Pause, Shutdown, Tasks};
use weir_event::id::ShardId;
use weir_insights::cohorts;
use weir_metadata::Metadata;
use weir_query::kernel::engine::Engine;

/// Starts to count all cohorts of `shard` every `interval`. Ends when `tasks` shuts down, after the current count.
pub fn start(
    tasks: &Tasks,
    shard: ShardId,
    engine: Engine,
    metadata: Metadata,
    interval: Duration,
) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("count-cohorts", async move {
        while shutdown.pause(interval).await == Pause::Elapsed {
            recount(shard, &engine, &metadata, &shutdown).await;
        }
    });
}

async fn recount(shard: ShardId, engine: &Engine, metadata: &Metadata, shutdown: &Shutdown) {
    let snapshot = metadata.snapshot();
    let own = snapshot.projects().filter(|project| project.shard == shard);
    let all = own.flat_map(|project| snapshot.cohorts(project.id));
    for cohort in all.filter(|cohort| !cohort.is_static) {
        if shutdown.is_cancelled() {
            return;
        }
        if let Err(error) = cohorts::recount(engine, cohort.project, cohort.id).await {
            tracing::warn!(cohort = cohort.id.0, %error, "cannot store the size of a cohort; it shows the previous size");
        }
    }
}
