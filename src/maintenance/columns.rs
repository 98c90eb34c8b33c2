//! Keeps the columns of persons on disk as new as is worth it, a step at a time, and rests longer than it
//! works.

use std::time::Duration;

use crate::clock::Clock;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::query::Engine;
use crate::query::shelves::Step;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::tasks::Tasks;

/// Time between looks when nothing is to be done.
const INTERVAL: Duration = Duration::from_secs(5);

/// How much longer than a step the rest after it is: of persons who are in no file yet, and of such as
/// are and have changed.
const REST_AFTER_GROWN: u32 = 1;
const REST_AFTER_RENEWED: u32 = 9;

/// Starts to keep the columns of all projects. Ends when `tasks` shuts down, after the step that is under
/// way.
pub fn start(tasks: &Tasks, engine: Engine, metadata: Metadata, clock: Clock) {
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("keep-columns", async move {
        if let Err(error) = engine.recall_columns().await {
            tracing::warn!(%error, "columns of persons are read when they are asked for");
        }
        while shutdown.pause(INTERVAL).await == Pause::Elapsed {
            let snapshot = metadata.snapshot();
            for project in snapshot.projects() {
                freshen(&engine, project.id, &shutdown, &clock).await;
            }
        }
    });
}

/// Takes steps for one project until there is nothing to do.
async fn freshen(engine: &Engine, project: ProjectId, shutdown: &Shutdown, clock: &Clock) {
    loop {
        let began = clock.monotonic();
        let step = match engine.freshen_columns(project).await {
            Ok(step) => step,
            Err(error) => {
                tracing::warn!(%error, "columns of persons are not as new as they might be");
                return;
            }
        };
        let took = clock.monotonic().saturating_sub(began);
        let rest = match step {
            Step::None => return,
            Step::Grown => took.saturating_mul(REST_AFTER_GROWN),
            Step::Renewed => took.saturating_mul(REST_AFTER_RENEWED),
        };
        if shutdown.pause(rest).await != Pause::Elapsed {
            return;
        }
    }
}
