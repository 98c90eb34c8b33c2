//! The Delta table in a directory of this host: [`TableDirectory`] is the one way to open it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use url::Url;

use crate::clock::Clock;
use crate::storage::checksums::CheckedStore;
use crate::storage::delta::DeltaTable;
use crate::storage::delta::TableSpec;
use crate::storage::delta::error::TableError;
use crate::storage::disk::Disk;
use crate::storage::durable::DurableStore;

/// The directory of a table, and the store of its files.
#[derive(Debug)]
pub struct TableDirectory {
    objects: Arc<dyn ObjectStore>,
    location: Url,
}

impl TableDirectory {
    /// For reading, beside a process that may write. Does no I/O.
    ///
    /// # Errors
    ///
    /// The path is not absolute, so it has no URL.
    pub fn new(disk: Arc<dyn Disk>, directory: &Path) -> io::Result<Self> {
        Self::over(Arc::new(DurableStore::new(disk, directory)), directory)
    }

    /// For writing: creates the directory and removes what a crash left in it, see
    /// [`DurableStore::recover`]. Blocks.
    ///
    /// # Errors
    ///
    /// An I/O error of the disk, or as of [`TableDirectory::new`].
    pub fn recovered(disk: Arc<dyn Disk>, directory: &Path) -> io::Result<Self> {
        let objects = DurableStore::new(disk, directory);
        objects.recover()?;
        Self::over(Arc::new(objects), directory)
    }

    /// With a store whose root is `directory`.
    ///
    /// # Errors
    ///
    /// As of [`TableDirectory::new`].
    pub fn over(objects: Arc<dyn ObjectStore>, directory: &Path) -> io::Result<Self> {
        let location = Url::from_directory_path(directory)
            .map_err(|()| io::Error::other("the path has no URL"))?;
        Ok(Self { objects, location })
    }

    /// Data files are verified when they are read; `place` is the directory for messages.
    #[must_use]
    pub fn checked(self, place: &str) -> Self {
        Self { objects: Arc::new(CheckedStore::new(self.objects, place)), ..self }
    }

    /// Opens the table, or creates it; see [`DeltaTable::open_or_create`].
    ///
    /// # Errors
    ///
    /// As of [`DeltaTable::open_or_create`].
    pub async fn open_or_create(
        self,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<DeltaTable, TableError> {
        DeltaTable::open_or_create(self.objects, self.location, spec, clock).await
    }

    /// Opens the table for reading; `None` if there is none. See [`DeltaTable::open_existing`].
    ///
    /// # Errors
    ///
    /// As of [`DeltaTable::open_existing`].
    pub async fn open_existing(
        self,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<Option<DeltaTable>, TableError> {
        DeltaTable::open_existing(self.objects, self.location, spec, clock).await
    }
}
