//! Cancellation state of one query that its functions check: [`Running`]. It is an extension of the session's settings,
//! which are passed to every function call.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};
use tokio::time::{Instant, sleep_until};

use weir_base::clock::Clock;

/// Whether a query is being planned, whether it is cancelled, and its time limit. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Running {
    is_planning: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
    /// Whether the query is cancelled, of which this may be one attempt of several.
    is_query_stopped: Arc<AtomicBool>,
    ends: Option<Ends>,
}

/// The time limit of a query, which its reader may extend.
#[derive(Clone, Debug)]
struct Ends {
    clock: Clock,
    /// When it began, by the monotonic clock, and by the one of the runtime.
    began: Duration,
    began_at: Instant,
    limit_micros: Arc<AtomicU64>,
}

impl Ends {
    fn limit(&self) -> Duration {
        Duration::from_micros(self.limit_micros.load(Ordering::Relaxed))
    }

    fn is_over(&self) -> bool {
        self.clock.monotonic().saturating_sub(self.began) >= self.limit()
    }
}

impl Running {
    /// A query that begins now, with a time limit.
    pub(crate) fn within(clock: &Clock, limit: Duration) -> Self {
        let limit_micros = Arc::new(AtomicU64::new(micros(limit)));
        let (began, began_at) = (clock.monotonic(), Instant::now());
        let ends = Some(Ends { clock: clock.clone(), began, began_at, limit_micros });
        Self { ends, ..Self::default() }
    }

    /// Extends the time limit of the query, and of its attempts, to `limit` since it began.
    pub(crate) fn extend(&self, limit: Duration) {
        if let Some(ends) = &self.ends {
            ends.limit_micros.fetch_max(micros(limit), Ordering::Relaxed);
        }
    }

    /// The time limit as of now; `None` if it has none.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.ends.as_ref().map(Ends::limit)
    }

    /// Waits until the time limit is over, and returns it; never returns without one.
    pub(crate) async fn over(&self) -> Duration {
        let Some(ends) = &self.ends else { return std::future::pending().await };
        let mut limit = ends.limit();
        loop {
            sleep_until(ends.began_at + limit).await;
            let extended = ends.limit();
            if extended == limit {
                return limit;
            }
            limit = extended;
        }
    }

    /// One attempt to run this query: it may be cancelled separately, and is cancelled with the query.
    pub(crate) fn attempt(&self) -> Self {
        Self {
            is_query_stopped: Arc::clone(&self.is_stopped),
            ends: self.ends.clone(),
            ..Self::default()
        }
    }

    /// The same for a part of it that may take at most `limit`.
    pub(crate) fn part_within(&self, limit: Duration) -> Self {
        let ends = self.ends.as_ref().map(|own| {
            let left = own.limit().saturating_sub(own.clock.monotonic().saturating_sub(own.began));
            Self::within(&own.clock, limit.min(left)).ends
        });
        Self { ends: ends.flatten(), ..self.attempt() }
    }

    /// Records whether planning, during which constants are folded, is in progress.
    pub(crate) fn set_planning(&self, is_planning: bool) {
        self.is_planning.store(is_planning, Ordering::Relaxed);
    }

    /// Cancels the query's functions when the returned value is dropped, once the client is gone.
    pub(crate) fn stopped_on_drop(&self) -> StopFunctions {
        StopFunctions(self.clone())
    }

    /// The state of the query with these settings; a new one if there is none.
    pub(crate) fn of(options: &ConfigOptions) -> Self {
        options.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    pub(super) fn is_planning(&self) -> bool {
        self.is_planning.load(Ordering::Relaxed)
    }

    /// Called at each row by functions that take long for a row, and at each batch by all others.
    ///
    /// # Errors
    ///
    /// The query was cancelled, or has exceeded its time limit.
    pub(crate) fn check(&self) -> Result<()> {
        let is_stopped = [&self.is_stopped, &self.is_query_stopped];
        if is_stopped.into_iter().any(|stopped| stopped.load(Ordering::Relaxed))
            || self.ends.as_ref().is_some_and(Ends::is_over)
        {
            return Err(DataFusionError::Execution("the query was stopped".to_owned()));
        }
        Ok(())
    }
}

fn micros(limit: Duration) -> u64 {
    u64::try_from(limit.as_micros()).unwrap_or(u64::MAX)
}

/// Cancels the functions of a query when dropped.
#[derive(Debug)]
pub(crate) struct StopFunctions(Running);

impl Drop for StopFunctions {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl ConfigExtension for Running {
    const PREFIX: &'static str = "weir";
}

impl ExtensionOptions for Running {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("there is no setting {key}")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
