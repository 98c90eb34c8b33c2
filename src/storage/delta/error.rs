//! What can go wrong with a table.

use crate::error::Kind;

/// Why a table could not be opened, read or changed.
///
/// After every error but [`TableError::InDoubt`] the edit is not in the table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The store failed before anything was committed.
    #[error("cannot reach the files of table {table}")]
    Store {
        /// The table's name.
        table: &'static str,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// The store failed while it wrote the commit: the edit may or may not be in the table.
    /// Commit the very same edit again (if it is in, that succeeds), or reopen the table and look
    /// at [`transaction`](super::TableVersion::transaction). Until then cut nothing from the log.
    #[error("cannot tell whether commit {version} of table {table} is in")]
    InDoubt {
        /// The table's name.
        table: &'static str,
        /// The version that was being written.
        version: u64,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// The table's log cannot be read as what it must be.
    #[error("the log of table {table} is damaged at version {version}: {reason}")]
    Damaged {
        /// The table's name.
        table: &'static str,
        /// The version that cannot be read.
        version: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The table uses something that this program does not.
    #[error("table {table} is not one that this program can write: {reason}")]
    Unsupported {
        /// The table's name.
        table: &'static str,
        /// What it uses.
        reason: String,
    },
    /// The wanted columns do not fit the table's.
    #[error("column {column} does not fit table {table}: {reason}")]
    Schema {
        /// The table's name.
        table: &'static str,
        /// The column.
        column: String,
        /// Why not.
        reason: String,
    },
    /// Another committer changed what the edit builds on. Look at the current version and decide
    /// anew.
    #[error("the edit of table {table} no longer fits it: {reason}")]
    Conflict {
        /// The table's name.
        table: &'static str,
        /// What changed.
        reason: String,
    },
    /// Another process commits in the name of the same application: two nodes with one id. This
    /// handle will not commit for it again; the process should stop.
    #[error("another process commits to table {table} as {app_id} (at {version})")]
    Fenced {
        /// The table's name.
        table: &'static str,
        /// The application.
        app_id: String,
        /// Where the other one is.
        version: i64,
    },
    /// The application's transaction is not later than the one that the table has.
    #[error("{app_id} is at {current} in table {table}, {offered} is not later")]
    Stale {
        /// The table's name.
        table: &'static str,
        /// The application.
        app_id: String,
        /// The transaction in the table.
        current: i64,
        /// The transaction of the edit.
        offered: i64,
    },
    /// The edit contradicts itself or names files that are not there: a bug of the caller.
    #[error("invalid edit of table {table}: {reason}")]
    Invalid {
        /// The table's name.
        table: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Other committers were faster every time. Try again after a pause.
    #[error("table {table} is too busy: gave up after {attempts} attempts")]
    Busy {
        /// The table's name.
        table: &'static str,
        /// How often it was tried.
        attempts: u32,
    },
    /// The work on a checkpoint of the log failed.
    #[error("cannot read or write a checkpoint of table {table}: {reason}")]
    Checkpoint {
        /// The table's name.
        table: &'static str,
        /// Why not.
        reason: String,
    },
}

impl TableError {
    /// Whether an edit may be in the table although its commit failed so. `is_again`: it was in doubt
    /// before, and only an answer of the table itself ends that.
    pub fn leaves_in_doubt(&self, is_again: bool) -> bool {
        match self {
            Self::InDoubt { .. } => true,
            Self::Invalid { .. }
            | Self::Conflict { .. }
            | Self::Stale { .. }
            | Self::Fenced { .. } => false,
            _ => is_again,
        }
    }

    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Store { .. }
            | Self::InDoubt { .. }
            | Self::Unsupported { .. }
            | Self::Fenced { .. }
            | Self::Checkpoint { .. } => Kind::Unavailable,
            Self::Damaged { .. } | Self::Schema { .. } | Self::Invalid { .. } => Kind::Internal,
            Self::Conflict { .. } | Self::Stale { .. } => Kind::Conflict,
            Self::Busy { .. } => Kind::Overloaded,
        }
    }
}
