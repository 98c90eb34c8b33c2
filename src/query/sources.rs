//! The stores that queries read: [`Sources`].

use std::path::PathBuf;
use std::time::Duration;

use crate::identity::store::Identities;
use crate::metadata::Metadata;
use crate::storage::progress::Progress;
use crate::storage::store::Store;

/// What queries read.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The events table.
    pub store: Store,
    /// Persons, their distinct ids, groups.
    pub identities: Identities,
    /// Definitions and warnings.
    pub metadata: Metadata,
    /// How far the log is published; readers of persons wait for the identity store to get there.
    pub progress: Progress,
    /// Where columns of persons are on disk; without it they are in memory only.
    pub columns: Option<ColumnFiles>,
    /// The directory of what queries write when they exceed their memory; without it that of the system.
    pub spill: Option<PathBuf>,
}

/// Where columns of persons are on disk.
#[derive(Clone, Debug)]
pub struct ColumnFiles {
    /// A directory of their own, which need not exist.
    pub directory: PathBuf,
    /// How long a file may have what was changed or deleted.
    pub stale_max: Duration,
}
