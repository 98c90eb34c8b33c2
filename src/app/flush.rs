//! Flush on demand: [`Shard::flush`] and [`Shard::flush_persons`]. `maintenance` has what is done periodically.

use std::sync::Arc;
use std::time::Duration;

use crate::shard::Shard;
use weir_base::error::Kind;
use weir_base::tasks::TaskError;
use weir_query::kernel::error::QueryError;
use weir_query::persons::person_table::PersonsError;
use weir_storage::delta::TableVersion;
use weir_storage::store::StoreError;

/// Longest wait of a flush on demand for the identity store to catch up with the log.
const FLUSH_WAIT: Duration = Duration::from_secs(30);

/// Why not all acknowledged events are in files.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The log is still being replayed, or the identity store fails.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Writing or committing files failed.
    #[error("cannot flush; the events stay in the log")]
    Store(#[from] StoreError),
    /// The same of the tables of persons.
    #[error("cannot write the persons into their tables")]
    Persons(#[from] PersonsError),
    /// The server ends.
    #[error("the server is being shut down; it writes the persons into their tables at its end")]
    Ending,
    /// The identity store did not catch up with the log in time.
    #[error(
        "the identity store has not caught up with the log; the events stay in the log for a later flush"
    )]
    Behind,
    /// The blocking task of the flush failed.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl FlushError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Query(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Persons(error) => error.kind(),
            Self::Ending => Kind::Unavailable,
            Self::Behind => Kind::Overloaded,
            Self::Task(error) => error.kind(),
        }
    }
}

impl Shard {
    /// Writes every event that was acknowledged before the call to files, and returns the version of the events table
    /// after that. Waits for the replay of the records that were in the log at start, and for a running flush on
    /// demand. The flush itself takes seconds, since memtables are bounded.
    ///
    /// # Errors
    ///
    /// Some events are not in files yet; they stay in the log.
    pub async fn flush(&self) -> Result<Arc<TableVersion>, FlushError> {
        self.engine.wait().await?;
        let _flushing = self.flushing.lock().await;
        let maintenance = self.maintenance.clone();
        let flush = move || maintenance.flush_within(FLUSH_WAIT);
        let flushed = self.maintenance.runtime.spawn_blocking(flush).await;
        match flushed.map_err(|_| TaskError::Panicked { name: "flush" })?? {
            true => Ok(self.maintenance.store.table().current()),
            false => Err(FlushError::Behind),
        }
    }

    /// Writes the persons and their distinct ids, as of every event that was acknowledged before the call, into their
    /// tables. Takes about two seconds for each million persons whose files are out of date. Waits for the replay of the
    /// records that were in the log at start.
    ///
    /// # Errors
    ///
    /// The tables are partly or wholly as they were.
    pub async fn flush_persons(&self) -> Result<(), FlushError> {
        self.engine.wait().await?;
        let (maintenance, shutdown) = (self.maintenance.clone(), self.tasks.0.shutdown().clone());
        let write = move || maintenance.write_persons(&shutdown);
        let written = self.maintenance.runtime.spawn_blocking(write).await;
        match written.map_err(|_| TaskError::Panicked { name: "flush-persons" })?? {
            true => Ok(()),
            false => Err(FlushError::Ending),
        }
    }
}
