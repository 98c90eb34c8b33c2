//! Background refresh of the person column files, one step at a time, with pauses at least as long as the
//! steps. Deleted values are removed from the files within `deletion-interval`.

use std::time::Duration;

use crate::clock::Clock;
use crate::event::id::ProjectId;
use crate::metadata::Metadata;
use crate::query::column_files::Step;
use crate::query::engine::Engine;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::tasks::TaskError;
use crate::tasks::Tasks;

/// Pause if there is nothing to do; shorter if `deletion-interval` is short.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Pause after a step, as a multiple of its duration: after adding persons that are in no file yet, after
/// rewriting a file whose changes are overdue, and after rewriting one whose changes are recent.
const REST_AFTER_GROWN: u32 = 1;
const REST_AFTER_LATE: u32 = 1;
const REST_AFTER_RENEWED: u32 = 9;

/// Starts to refresh the column files of all projects, which may contain deleted values for at most
/// `stale_max`. Ends when `tasks` shuts down, after the current step.
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
            tracing::warn!(%error, "cannot load person columns in advance; queries load them on first use");
        }
    });
    let shutdown = tasks.shutdown().clone();
    // A change is noticed within one interval, and its file is rewritten after half of `stale_max`: see
    // `query::columns`.
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
                tracing::warn!(%error, "cannot refresh person column files; queries read the changed rows instead");
                INTERVAL
            }
            Ok(Step::None) => interval,
            Ok(Step::Grown) => took.saturating_mul(REST_AFTER_GROWN),
            Ok(Step::Late) => took.saturating_mul(REST_AFTER_LATE),
            Ok(Step::Renewed) => took.saturating_mul(REST_AFTER_RENEWED),
        };
    }
}
