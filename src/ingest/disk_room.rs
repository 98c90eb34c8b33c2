//! Free disk space check, for what is written beside the log: persons, tables, metadata.

use std::path::PathBuf;
use std::sync::Arc;

use crate::health::Health;
use weir_base::config::Config;
use weir_disk::Disk;

/// The free space of the disk of the data directory. A check costs about 1 us.
#[derive(Clone, Debug)]
pub(super) struct DiskRoom {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: PathBuf,
    /// Free space below this counts as low.
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

    /// Checks the free space and updates the health state. If the disk cannot report its free space, it
    /// counts as enough: a write fails if it is not.
    pub(super) fn is_enough(&self) -> bool {
        match self.disk.free_bytes(&self.directory) {
            Ok(free) => {
                let is_low = free < self.free_min_bytes;
                self.health.set_disk_low(is_low);
                !is_low
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the free disk space; it counts as enough");
                true
            }
        }
    }
}
