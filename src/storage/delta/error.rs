//! Errors of Delta tables: [`TableError`].

use weir_base::error::Kind;

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
        /// The error of the object store.
        #[source]
        source: object_store::Error,
    },
    /// The store failed while it wrote the commit: the outcome is unknown. Commit the same edit again (which
    /// succeeds if it is in the table), or reopen the table and check
    /// [`transaction`](super::TableVersion::transaction). Until then do not truncate the log.
    #[error(
        "outcome of commit {version} of table {table} is unknown: the store failed during the write"
    )]
    InDoubt {
        /// The table's name.
        table: &'static str,
        /// The version that was being written.
        version: u64,
        /// The error of the object store.
        #[source]
        source: object_store::Error,
    },
    /// The table's log is corrupt.
    #[error("the log of table {table} is damaged at version {version}: {reason}")]
    Damaged {
        /// The table's name.
        table: &'static str,
        /// The version that cannot be read.
        version: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The table uses a feature that this program does not support.
    #[error("table {table} is not supported by this program: {reason}")]
    Unsupported {
        /// The table's name.
        table: &'static str,
        /// The feature.
        reason: String,
    },
    /// A column of the spec conflicts with the table's.
    #[error("column {column} does not fit table {table}: {reason}")]
    Schema {
        /// The table's name.
        table: &'static str,
        /// The column.
        column: String,
        /// The conflict.
        reason: String,
    },
    /// Another committer changed files that the edit depends on. Decide again on the current version.
    #[error("the edit of table {table} conflicts with another commit: {reason}")]
    Conflict {
        /// The table's name.
        table: &'static str,
        /// What changed.
        reason: String,
    },
    /// Another process commits with the same application id: two nodes with one id. This handle does not
    /// commit for it again; the process should stop.
    #[error("another process commits to table {table} as {app_id} (at {version})")]
    Fenced {
        /// The table's name.
        table: &'static str,
        /// The application.
        app_id: String,
        /// The last transaction of the other process.
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
    /// The edit is inconsistent or contains missing files: a bug of the caller.
    #[error("invalid edit of table {table}: {reason}")]
    Invalid {
        /// The table's name.
        table: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Other committers won every attempt. Try again after a pause.
    #[error("table {table} is too busy: gave up after {attempts} attempts")]
    Busy {
        /// The table's name.
        table: &'static str,
        /// Number of attempts.
        attempts: u32,
    },
    /// Reading or writing a checkpoint of the log failed.
    #[error("cannot read or write a checkpoint of table {table}: {reason}")]
    Checkpoint {
        /// The table's name.
        table: &'static str,
        /// The cause.
        reason: String,
    },
}

impl TableError {
    /// Whether the outcome of an edit is unknown after this error. `is_again`: it was unknown before the
    /// attempt, and stays so unless the error follows from the state of the table.
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
