//! Why a table of persons could not be written.

use std::path::PathBuf;

use weir_base::error::Kind;
use weir_identity::IdentityError;
use weir_storage::delta::error::TableError;
use weir_storage::store::StoreError;

/// Error of writing. The table is as it was.
#[derive(Debug, thiserror::Error)]
pub enum PersonsError {
    /// The directory of the table.
    #[error("cannot use {}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Reading the persons failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The identity store has lost persons that the table has.
    #[error(
        "the identity store lost the persons of records before the start of the log; the table {table} keeps \
         its previous version. Restore the directory identity, or remove tables/{table} to go on without them"
    )]
    Incomplete {
        /// The name of the table.
        table: &'static str,
    },
    /// Writing or committing the files failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TableError> for PersonsError {
    fn from(error: TableError) -> Self {
        Self::Store(error.into())
    }
}

impl PersonsError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { .. } | Self::Incomplete { .. } => Kind::Unavailable,
            Self::Identity(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}
