//! The state of one query that its functions look at: [`Running`]. It travels with the settings of the
//! session, which every call of a function gets.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use datafusion::common::config::ConfigEntry;
use datafusion::common::config::ConfigExtension;
use datafusion::common::config::ConfigOptions;
use datafusion::common::config::ExtensionOptions;
use datafusion::error::DataFusionError;
use datafusion::error::Result;

/// Whether a query is being planned, and whether anybody waits for it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::query) struct Running {
    is_planning: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
}

impl Running {
    /// Notes that planning begins or ends. Constants are folded while it goes on.
    pub(in crate::query) fn set_planning(&self, is_planning: bool) {
        self.is_planning.store(is_planning, Ordering::Relaxed);
    }

    /// Makes the functions fail once what is returned is dropped: nobody waits for the query then.
    pub(in crate::query) fn stopped_on_drop(&self) -> StopFunctions {
        StopFunctions(self.clone())
    }

    /// The state of the query that has these settings; a new one if it has none.
    pub(in crate::query) fn of(options: &ConfigOptions) -> Self {
        options.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    pub(super) fn is_planning(&self) -> bool {
        self.is_planning.load(Ordering::Relaxed)
    }

    /// # Errors
    ///
    /// The query was stopped.
    pub(in crate::query) fn check(&self) -> Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(DataFusionError::Execution("the query was stopped".to_owned()));
        }
        Ok(())
    }
}

/// Stops the functions of a query when it is dropped.
#[derive(Debug)]
pub(in crate::query) struct StopFunctions(Running);

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
