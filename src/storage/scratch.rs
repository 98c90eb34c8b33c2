//! Local copies of data files in a bucket, for merges: these read page by page, which would be one request to
//! the bucket for every few kilobytes. A copy ends with its [`Scratch`].

use std::io;
use std::io::Write;
use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error, ObjectStore, Result};
use tempfile::TempDir;

use crate::delta::DataFile;
use crate::durable::DurableStore;
use weir_disk::{Disk, OsDisk};

/// Name of the directory of copies in the data directory.
pub const DIRECTORY: &str = "merge-scratch";

/// Bytes of one read from the bucket.
const STEP_BYTES: u64 = 16 << 20;

/// Copies of files for one merge.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    /// Free bytes of the disk that copies leave.
    free_min_bytes: u64,
}

impl Scratch {
    /// Makes an empty directory in that of the copies of `data_dir`.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn new(data_dir: &FilePath, free_min_bytes: u64) -> io::Result<Self> {
        let parent = data_dir.join(DIRECTORY);
        std::fs::create_dir_all(&parent)?;
        Ok(Self { directory: TempDir::new_in(parent)?, free_min_bytes })
    }

    /// Removes what merges of killed processes have left.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn clear(data_dir: &FilePath) -> io::Result<()> {
        match std::fs::remove_dir_all(data_dir.join(DIRECTORY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Copies a file, verified as the store does it. Writes to the disk where it is polled.
    ///
    /// # Errors
    ///
    /// The store fails, or the disk does or has no room.
    pub async fn copy(&self, store: &dyn ObjectStore, file: &DataFile) -> Result<()> {
        let local = |source: io::Error| {
            let source =
                io::Error::new(source.kind(), format!("cannot copy {}: {source}", file.path));
            Error::Generic { store: "scratch", source: Box::new(source) }
        };
        let free = OsDisk.free_bytes(self.directory.path()).map_err(local)?;
        if free < self.free_min_bytes.saturating_add(file.size_bytes) {
            return Err(local(io::ErrorKind::StorageFull.into()));
        }
        let target = self.directory.path().join(&file.path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(local)?;
        }
        let mut copy = std::fs::File::create(&target).map_err(local)?;
        let path = Path::from(file.path.as_str());
        let mut start = 0;
        while start < file.size_bytes {
            let end = file.size_bytes.min(start + STEP_BYTES);
            let step = start..end;
            for bytes in store.get_ranges(&path, std::slice::from_ref(&step)).await? {
                copy.write_all(&bytes).map_err(local)?;
            }
            start = end;
        }
        Ok(())
    }

    /// The copies, under the paths of the files.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::new(DurableStore::new(Arc::new(OsDisk), self.directory.path()))
    }
}
