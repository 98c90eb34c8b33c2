//! Keeps the columns of persons on disk as new as is worth it, a step at a time, and rests longer than it
//! works. What was deleted leaves them within `deletion-interval`, as it leaves other files.

use std::time::Duration;

use crate::clock::Clock;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::query::Engine;
use crate::query::shelves::Step;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::tasks::TaskError;
use crate::tasks::Tasks;

/// Time between looks when nothing is to be done; less if columns may be stale for a short time only.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// How much longer than a step the rest after it is: of persons who are in no file yet, and of such as
/// are and have changed, if they have waited for it for long or not.
const REST_AFTER_GROWN: u32 = 1;
const REST_AFTER_LATE: u32 = 1;
const REST_AFTER_RENEWED: u32 = 9;

/// Starts to keep the columns of all projects, which may be stale for so long. Ends when `tasks` shuts
/// down, after the step that is under way.
///
/// # Errors
///
/// The operating system refuses a thread.
pub fn start(
    tasks: &Tasks,
    engine: Engine,
    metadata: Metadata,
    (clock, stale_max): (Clock, Duration),
) -> Result<(), TaskError> {
    let recalling = engine.clone();
    tasks.spawn("recall-columns", async move {
        if let Err(error) = recalling.recall_columns().await {
            tracing::warn!(%error, "columns of persons are read when they are asked for");
        }
    });
    let shutdown = tasks.shutdown().clone();
    // A change is seen, then half of the time is over, then the work begins: see `query::columns`.
    let interval = INTERVAL.min(stale_max / 8).max(INTERVAL_MIN);
    tasks.spawn_background_thread("keep-columns", move || {
        keep(&engine, &metadata, (&clock, interval), &shutdown);
    })
}

fn keep(
    engine: &Engine,
    metadata: &Metadata,
    (clock, interval): (&Clock, Duration),
    shutdown: &Shutdown,
) {
    let mut rest = interval;
    while shutdown.pause_thread(rest) == Pause::Elapsed {
        let projects: Vec<ProjectId> =
            metadata.snapshot().projects().map(|project| project.id).collect();
        let began = clock.monotonic();
        let step = engine.freshen_columns(&projects);
        let took = clock.monotonic().saturating_sub(began);
        rest = match step {
            Err(error) => {
                tracing::warn!(%error, "columns of persons are not as new as they might be");
                INTERVAL
            }
            Ok(Step::None) => interval,
            Ok(Step::Grown) => took.saturating_mul(REST_AFTER_GROWN),
            Ok(Step::Late) => took.saturating_mul(REST_AFTER_LATE),
            Ok(Step::Renewed) => took.saturating_mul(REST_AFTER_RENEWED),
        };
    }
}
