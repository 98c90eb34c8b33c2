//! Current state of a server's engines, beside the metrics: [`Vitals`].

use std::time::Duration;

use crate::App;
use weir_base::telemetry::process;
use weir_base::telemetry::process::Memory;
use weir_disk::{Disk, OsDisk};

/// Figures at one moment. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Vitals {
    /// Age of the oldest event that is not in a file yet.
    pub unflushed_age: Duration,
    /// Log records that are not in files yet.
    pub unflushed_records: u64,
    /// Free space on the disk of the data directory, if that is known.
    pub disk_free: Option<u64>,
    /// Memory of the process, if the system reports it.
    pub memory: Option<Memory>,
    /// Memory of running queries.
    pub queries: u64,
    /// Memory of cached columns of person properties.
    pub person_columns: u64,
    /// Memory of cached results.
    pub answers: u64,
}

impl Vitals {
    /// The current figures.
    pub fn of(app: &App) -> Self {
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let (unflushed_age, unflushed_records) = app.shard.maintenance.unflushed();
        Self {
            unflushed_age,
            unflushed_records,
            disk_free: OsDisk.free_bytes(&app.node.config.storage.data_dir).ok(),
            memory: process::memory(),
            queries: bytes(app.engine.memory().reserved()),
            person_columns: bytes(app.engine.columns_memory()),
            answers: app.node.answers.bytes(),
        }
    }
}
