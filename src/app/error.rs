//! Why a data directory cannot be opened: [`OpenError`].

use std::path::{Path, PathBuf};

use weir_base::error::Kind;
use weir_base::tasks::TaskError;
use weir_event::geoip::GeoIpError;
use weir_identity::IdentityError;
use weir_metadata::error::MetadataError;
use weir_query::kernel::error::QueryError;
use weir_storage::delta::error::TableError;
use weir_storage::images::error::ImagesError;
use weir_storage::probe::ProbeError;
use weir_storage::remote::RemoteError;
use weir_storage::store::StoreError;
use weir_storage::wal::WalError;

/// Why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// Its settings are invalid.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// It lacks guarantees that the tables need.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Why the engines of a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or directory cannot be used.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A part of the directory is missing or damaged, and a start would hide or increase the loss.
    #[error("{} {problem}", path.display())]
    Incomplete {
        /// The missing or damaged part.
        path: PathBuf,
        /// What is wrong, and how the operator can continue.
        problem: String,
    },
    /// The tables and the log in a bucket were moved to a data directory.
    #[error(
        "{mark} says that the tables and the log were moved to the data directory {data_dir}: start the server there, \
         without storage-url and storage-log. If that move did not end, run it again, or remove this object to go on here"
    )]
    Moved {
        /// The object that states this.
        mark: String,
        /// The directory.
        data_dir: String,
    },
    /// The metadata store failed.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The events table failed.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The identity store failed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The write-ahead log failed.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The GeoIP database cannot be read.
    #[error(transparent)]
    GeoIp(#[from] GeoIpError),
    /// The query engine failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A thread cannot be started.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The bucket of the tables cannot be used.
    #[error("cannot use the object store of {url}")]
    Bucket {
        /// The bucket, and the endpoint if one is set.
        url: String,
        /// What is wrong.
        #[source]
        source: BucketError,
    },
    /// The images of the identity store cannot be reached.
    #[error("cannot look for images of the identity store")]
    Images(#[from] ImagesError),
    /// The flush at the end failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }

    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { .. }
            | Self::Incomplete { .. }
            | Self::Moved { .. }
            | Self::GeoIp(_)
            | Self::Bucket { .. } => Kind::Unavailable,
            Self::Metadata(error) => error.kind(),
            Self::Table(error) => error.kind(),
            Self::Identity(error) => error.kind(),
            Self::Images(error) => error.kind(),
            Self::Wal(error) => error.kind(),
            Self::Query(error) => error.kind(),
            Self::Task(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}
