//! Cancellation state of one query that its functions check: [`Running`]. It is an extension of the session's settings,
//! which are passed to every function call.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};

use weir_base::clock::Clock;

/// Whether a query is being planned, whether it is cancelled, and its time limit. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Running {
    is_planning: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
    /// Whether the query is cancelled, of which this may be one attempt of several.
    is_query_stopped: Arc<AtomicBool>,
    ends: Option<(Clock, Duration)>,
}

impl Running {
    /// A query that begins now, with a time limit.
    pub(crate) fn within(clock: &Clock, limit: Duration) -> Self {
        let ends = Some((clock.clone(), clock.monotonic().saturating_add(limit)));
        Self { ends, ..Self::default() }
    }

    /// One attempt to run this query: it may be cancelled separately, and is cancelled with the query.
    pub(crate) fn attempt(&self) -> Self {
        Self {
            is_query_stopped: Arc::clone(&self.is_stopped),
            ends: self.ends.clone(),
            ..Self::default()
        }
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
        let is_over = |(clock, ends): &(Clock, Duration)| clock.monotonic() >= *ends;
        if is_stopped.into_iter().any(|stopped| stopped.load(Ordering::Relaxed))
            || self.ends.as_ref().is_some_and(is_over)
        {
            return Err(DataFusionError::Execution("the query was stopped".to_owned()));
        }
        Ok(())
    }
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
