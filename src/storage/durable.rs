//! Crash-safe object store over a [`Disk`]: a finished write survives a power cut. The tables write their
//! data files and their log through it. No table format here, only objects and directories.
//!
//! # How a write becomes durable
//!
//! Bytes are written to a temporary file beside the target and synced. Then the file gets its name, by hard
//! link ("create": fails if the name is taken) or by rename ("overwrite"), and the directory is synced. So
//! a name never refers to an incomplete file, and an acknowledged write is never lost. `object_store`'s own
//! `LocalFileSystem` does the same without any sync (version 0.13; users report empty objects after power
//! cuts).
//!
//! # File names
//!
//! Path segments are used as file names unchanged, so that `month=2026-11` is the directory that other
//! engines expect. Names that start with `.tmp-` are temporary and hidden from readers.

mod files;
mod read;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fmt, io};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::durable::files::{Naming, Shared, failed};
use weir_disk::Disk;

/// Name of this store in messages.
const STORE: &str = "DurableStore";

/// Concurrent removals in one [`ObjectStore::delete_stream`], as in `LocalFileSystem`.
const CONCURRENT_DELETES: usize = 10;

/// A cheap handle to a directory of durable objects; clones share it.
///
/// After a failed sync of a directory its new names may or may not survive a power cut, and the success of
/// a retry proves nothing. From then on every write fails, and so do reads of the objects that were being
/// written, until the process is restarted.
#[derive(Clone, Debug)]
pub struct DurableStore {
    shared: Arc<Shared>,
}

impl DurableStore {
    /// A store over the directory `root`. Does no I/O.
    ///
    /// A writer calls [`DurableStore::recover`] first; a reader does not.
    pub fn new(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Self {
        Self {
            shared: Arc::new(Shared {
                disk,
                root: root.into(),
                durable_dirs: Mutex::default(),
                poisoned: AtomicBool::new(false),
                doubtful: Mutex::default(),
            }),
        }
    }

    /// Prepares the directory for this process, its only writer: creates it, removes files of interrupted
    /// writes, and makes every visible name durable. Blocks. Call it once, before anything is read: it
    /// removes the unfinished uploads of any other writer.
    ///
    /// Without the syncs, an object that a killed process had linked but not synced would look committed
    /// now, and disappear in a power cut.
    ///
    /// # Errors
    ///
    /// An I/O error of the disk; the store must not be used then.
    pub fn recover(&self) -> io::Result<()> {
        self.shared.ensure_dir(&self.shared.root)?;
        self.shared.recover_dir(&self.shared.root)
    }

    /// Runs blocking disk work on the runtime's blocking threads.
    async fn blocking<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || work(&shared)).await?
    }
}

#[async_trait]
impl ObjectStore for DurableStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let naming = match options.mode {
            PutMode::Overwrite => Naming::Replace,
            PutMode::Create => Naming::Create,
            PutMode::Update(_) => return Err(not_implemented("put with a condition on the e-tag")),
        };
        if !options.attributes.is_empty() {
            return Err(not_implemented("attributes"));
        }
        let location = location.clone();
        self.blocking(move |shared| {
            let target = shared.file(&location)?;
            let temporary = shared.new_temporary(&target, &location)?;
            let chunks = &mut payload.iter();
            let written = chunks.try_fold(0, |offset, chunk| temporary.write(chunk, offset));
            if let Err(error) = written {
                // On a full disk the next attempt needs the space of the written bytes.
                shared.discard(&temporary.path);
                return Err(failed(&location, error));
            }
            shared.publish(temporary, &target, naming).map_err(|error| failed(&location, error))
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() {
            return Err(not_implemented("attributes"));
        }
        let location = location.clone();
        let store = self.clone();
        self.blocking(move |shared| {
            let target = shared.file(&location)?;
            let temporary = shared.new_temporary(&target, &location)?;
            let upload = upload::Upload::new(store, location, target, temporary);
            Ok(Box::new(upload) as Box<dyn MultipartUpload>)
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let location = location.clone();
        let disk = Arc::clone(&self.shared.disk);
        self.blocking(move |shared| {
            let file = shared.readable_file(&location)?;
            read::get(disk, &file, location, &options)
        })
        .await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let location = location.clone();
        let ranges = ranges.to_vec();
        self.blocking(move |shared| {
            let path = shared.readable_file(&location)?;
            let failed = |error| failed(&location, error);
            let file = shared.disk.open(&path).map_err(failed)?;
            ranges.into_iter().map(|range| read::exactly(&*file, range).map_err(failed)).collect()
        })
        .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .map(move |location| {
                let store = store.clone();
                async move { store.blocking(move |shared| shared.delete(location?)).await }
            })
            .buffered(CONCURRENT_DELETES)
            .boxed()
    }

    /// Objects below `prefix`, sorted by path: the reader of the table's log relies on the order.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let prefix = prefix.cloned().unwrap_or_default();
        let listing = async move {
            let objects = store.blocking(move |shared| shared.list(&prefix)).await?;
            Ok::<_, Error>(stream::iter(objects.into_iter().map(Ok)))
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        self.blocking(move |shared| shared.list_one_level(&prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        let naming = match options.mode {
            CopyMode::Overwrite => Naming::Replace,
            CopyMode::Create => Naming::Create,
        };
        self.blocking(move |shared| {
            let source = shared.existing_file(&from)?;
            let target = shared.file(&to)?;
            shared.copy(&source, &target, naming).map_err(|error| failed(&to, error))
        })
        .await
    }
}

impl fmt::Display for DurableStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{STORE}({})", self.shared.root.display())
    }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: STORE.to_owned() }
}

#[cfg(test)]
mod tests;
