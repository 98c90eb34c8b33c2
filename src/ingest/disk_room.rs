//! Whether the disk has room for what is written beside the log: persons, tables, metadata.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::Config;
use crate::ingest::health::Health;
use crate::storage::disk::Disk;

/// The free space of the disk of the data directory. A look costs about a microsecond.
#[derive(Clone, Debug)]
pub(super) struct DiskRoom {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: PathBuf,
    /// Less free space than this is too little.
    pub(super) free_min_bytes: u64,
    pub(super) health: Arc<Health>,
}

impl DiskRoom {
    pub(super) fn of(disk: Arc<dyn Disk>, config: &Config, health: &Arc<Health>) -> Self {
        Self {
            disk,
            directory: config.storage.data_dir.clone(),
            free_min_bytes: config.storage.disk_free_min_bytes.as_u64(),
            health: Arc::clone(health),
        }
    }

    /// Looks whether there is enough, and notes it. A disk that cannot be asked has enough: writes will
    /// tell.
    pub(super) fn is_enough(&self) -> bool {
        match self.disk.free_bytes(&self.directory) {
            Ok(free) => {
                let is_low = free < self.free_min_bytes;
                self.health.set_disk_low(is_low);
                !is_low
            }
            Err(error) => {
                tracing::warn!(%error, "cannot see how full the disk is");
                true
            }
        }
    }
}
