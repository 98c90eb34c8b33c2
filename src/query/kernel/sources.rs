//! The stores that queries read: [`Sources`].

use std::path::PathBuf;
use std::sync::Arc;

use crate::persons::person_table::PersonTable;
use weir_identity::store::Identities;
use weir_metadata::Metadata;
use weir_progress::Progress;
use weir_storage::store::Store;

/// The data sources of queries.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The events table.
    pub store: Store,
    /// Persons, their distinct ids, groups.
    pub identities: Identities,
    /// Definitions and warnings.
    pub metadata: Metadata,
    /// How far the log is published; readers of persons wait until the identity store has reached it.
    pub progress: Progress,
    /// The person table, from which columns are read; without it they are read from the rows of persons.
    pub persons: Option<Arc<PersonTable>>,
    /// The directory of what queries write when they exceed their memory; without it that of the system.
    pub spill: Option<PathBuf>,
}
