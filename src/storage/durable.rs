//! An object store over a [`Disk`] in which a finished write survives a power cut. The tables put
//! their data files and their log through it. No table format here, only objects and directories.
//!
//! # How a write becomes durable
//!
//! Bytes go to a temporary file beside the target and are synced. Then the file gets its name, by
//! hard link ("create": fails if the name is taken) or by rename ("overwrite"), and the directory
//! is synced. A name therefore never stands for half a file, and an answered write is never lost.
//! `object_store`'s own `LocalFileSystem` does the same without any sync (version 0.13; reported
//! from the field: an empty object after a power cut).
//!
//! # File names
//!
//! Path segments are file names as they are, so that `month=2026-11` is the directory that other
//! engines expect. Names that start with `.tmp-` are temporary and do not exist for readers.

mod read;
mod upload;

use std::fmt;
use std::io;
use std::path::Path as FilePath;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use chrono::Utc;
use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream;
use futures::stream::BoxStream;
use hashbrown::HashSet;
use object_store::CopyMode;
use object_store::CopyOptions;
use object_store::Error;
use object_store::GetOptions;
use object_store::GetResult;
use object_store::ListResult;
use object_store::MultipartUpload;
use object_store::ObjectMeta;
use object_store::ObjectStore;
use object_store::PutMode;
use object_store::PutMultipartOptions;
use object_store::PutOptions;
use object_store::PutPayload;
use object_store::PutResult;
use object_store::Result;
use object_store::path::Path;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::storage::disk::Disk;
use crate::storage::disk::DiskEntry;
use crate::storage::disk::DiskFile;

/// What messages call this store.
const STORE: &str = "DurableStore";

/// Start of the names of files that are being written.
const TEMPORARY_PREFIX: &str = ".tmp-";

/// Removals under way at once in one [`ObjectStore::delete_stream`]; as in `LocalFileSystem`.
const CONCURRENT_DELETES: usize = 10;

/// A cheap handle to a directory of durable objects; clones share it.
///
/// Once the sync of a directory has failed, what it names may or may not survive, and trying
/// again proves nothing: from then on every write fails, and so does reading what was then being
/// written, until the process is restarted.
#[derive(Clone, Debug)]
pub struct DurableStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// Directories whose own names are known to be durable. Grows with the directories of the
    /// store: one per partition.
    durable_dirs: Mutex<HashSet<PathBuf>>,
    /// Set once the sync of a directory has failed.
    poisoned: AtomicBool,
    /// Objects whose names were not synced: not to be read, lest something is built on them.
    /// At most the writes that were under way when the sync failed.
    doubtful: Mutex<HashSet<PathBuf>>,
}

impl DurableStore {
    /// A store over the directory `root`. Touches nothing yet.
    ///
    /// Whoever writes calls [`DurableStore::recover`] first; a reader does not.
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

    /// Prepares the directory for this process, its only writer: creates it, removes what
    /// interrupted writes left, and makes every visible name durable. Blocks. Call it once, before
    /// anything is read: another writer's unfinished uploads would be lost.
    ///
    /// Without the syncs an object that a killed process had linked but not yet synced would look
    /// committed now and be gone after a power cut.
    ///
    /// # Errors
    ///
    /// The disk's; do not use the store then.
    pub fn recover(&self) -> io::Result<()> {
        self.shared.ensure_dir(&self.shared.root)?;
        self.shared.recover_dir(&self.shared.root)
    }

    /// Runs disk work where blocking is allowed.
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
            let mut offset = 0;
            for chunk in payload.iter() {
                offset =
                    temporary.write(chunk, offset).map_err(|error| failed(&location, error))?;
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

/// What to do if the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    Create,
    Replace,
}

/// A file that has no name for readers yet.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    file: Box<dyn DiskFile>,
}

impl Temporary {
    /// Writes `bytes` at `offset`; returns the offset after them.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<u64> {
        self.file.write_all_at(bytes, offset)?;
        Ok(offset.saturating_add(u64::try_from(bytes.len()).map_err(io::Error::other)?))
    }
}

impl Shared {
    /// The file of an object.
    fn file(&self, location: &Path) -> Result<PathBuf> {
        if location.is_root() {
            return Err(failed(location, io::Error::other("an object needs a name")));
        }
        let mut file = self.root.clone();
        for part in location.parts() {
            if is_temporary(part.as_ref()) {
                let reason = "names that start with .tmp- are reserved";
                return Err(failed(location, io::Error::other(reason)));
            }
            file.push(part.as_ref());
        }
        Ok(file)
    }

    /// The file of an object that is to be read.
    fn readable_file(&self, location: &Path) -> Result<PathBuf> {
        let file = self.file(location)?;
        if self.doubtful.lock().contains(&file) {
            let reason = "it is not certain that this object is durable; restart to find out";
            return Err(failed(location, io::Error::other(reason)));
        }
        Ok(file)
    }

    /// The file of an object that must exist.
    fn existing_file(&self, location: &Path) -> Result<PathBuf> {
        let file = self.readable_file(location)?;
        let entry = self.disk.metadata(&file).map_err(|error| failed(location, error))?;
        if entry.is_dir {
            return Err(failed(location, io::ErrorKind::NotFound.into()));
        }
        Ok(file)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(io::Error::other("the sync of a directory failed earlier"));
        }
        Ok(())
    }

    fn new_temporary(&self, target: &FilePath, location: &Path) -> Result<Temporary> {
        let create = || {
            self.check_writable()?;
            let dir = directory(target);
            self.ensure_dir(dir)?;
            let path = temporary_path(dir);
            let file = self.disk.create_new(&path)?;
            Ok(Temporary { path, file })
        };
        create().map_err(|error| failed(location, error))
    }

    /// Syncs the file and gives it its name. The file is gone if that fails.
    fn publish(
        &self,
        temporary: Temporary,
        target: &FilePath,
        naming: Naming,
    ) -> io::Result<PutResult> {
        let Temporary { path, file } = temporary;
        let named = file.sync_data().and_then(|()| {
            drop(file);
            let e_tag = e_tag(&self.disk.metadata(&path)?);
            self.name(&path, target, naming)?;
            Ok(e_tag)
        });
        if named.is_err() {
            self.discard(&path);
        }
        let e_tag = named?;
        self.sync_name(target)?;
        Ok(PutResult { e_tag: Some(e_tag), version: None })
    }

    /// Removes a temporary file. One that stays is for the next `recover`.
    fn discard(&self, temporary: &FilePath) {
        let _ = self.disk.remove(temporary);
    }

    /// Moves a synced temporary file to `target`; durable after a sync of the directory.
    fn name(&self, temporary: &FilePath, target: &FilePath, naming: Naming) -> io::Result<()> {
        self.check_writable()?;
        match naming {
            Naming::Replace => self.disk.rename(temporary, target),
            Naming::Create => {
                self.disk.hard_link(temporary, target)?;
                self.discard(temporary);
                Ok(())
            }
        }
    }

    /// Gives an object a second name. Objects never change in place, so sharing the bytes is safe.
    fn copy(&self, source: &FilePath, target: &FilePath, naming: Naming) -> io::Result<()> {
        self.check_writable()?;
        let dir = directory(target);
        self.ensure_dir(dir)?;
        match naming {
            Naming::Create => self.disk.hard_link(source, target)?,
            // A rename between two names of one file does nothing and leaves both, hence this.
            Naming::Replace if source == target => return Ok(()),
            Naming::Replace => {
                let temporary = temporary_path(dir);
                self.disk.hard_link(source, &temporary)?;
                self.disk.rename(&temporary, target)?;
                // Still there if both names were the same file already.
                self.discard(&temporary);
            }
        }
        self.sync_name(target)
    }

    fn delete(&self, location: Path) -> Result<Path> {
        let file = self.existing_file(&location)?;
        let delete = || {
            self.check_writable()?;
            self.disk.remove(&file)?;
            self.sync_dir(directory(&file))
        };
        delete().map_err(|error| failed(&location, error))?;
        Ok(location)
    }

    /// Makes a new name durable, or locks it away.
    fn sync_name(&self, target: &FilePath) -> io::Result<()> {
        // The second look: a sync that failed for another write may have swallowed our error.
        let synced = self.sync_dir(directory(target)).and_then(|()| self.check_writable());
        if synced.is_err() {
            self.doubtful.lock().insert(target.to_path_buf());
        }
        synced
    }

    /// Syncs the names in `dir`; if that fails, refuses every later write.
    fn sync_dir(&self, dir: &FilePath) -> io::Result<()> {
        self.disk.sync_dir(dir).inspect_err(|_| self.poisoned.store(true, Ordering::Release))
    }

    /// Makes `dir` exist, durably, with its parents.
    ///
    /// Up to the root every directory is synced once per process even if it exists already: a
    /// concurrent write may have made it a moment ago and not have come to its sync.
    fn ensure_dir(&self, dir: &FilePath) -> io::Result<()> {
        let mut unsure = Vec::new();
        for ancestor in dir.ancestors() {
            let outside = !ancestor.starts_with(&self.root);
            if self.durable_dirs.lock().contains(ancestor)
                || (outside && self.disk.metadata(ancestor).is_ok())
                || ancestor.as_os_str().is_empty()
            {
                break;
            }
            unsure.push(ancestor);
        }
        if unsure.is_empty() {
            return Ok(());
        }
        self.disk.create_dir_all(dir)?;
        for ancestor in unsure.into_iter().rev() {
            self.sync_dir(directory(ancestor))?;
            self.durable_dirs.lock().insert(ancestor.to_path_buf());
        }
        Ok(())
    }

    fn recover_dir(&self, dir: &FilePath) -> io::Result<()> {
        for entry in self.disk.list(dir)? {
            if entry.is_dir {
                self.recover_dir(&entry.path)?;
            } else if entry
                .path
                .file_name()
                .is_some_and(|name| is_temporary(&name.to_string_lossy()))
            {
                self.disk.remove(&entry.path)?;
            }
        }
        self.sync_dir(dir)?;
        self.durable_dirs.lock().insert(dir.to_path_buf());
        Ok(())
    }

    fn list(&self, prefix: &Path) -> Result<Vec<ObjectMeta>> {
        let mut objects = Vec::new();
        let mut pending = vec![prefix.clone()];
        while let Some(dir) = pending.pop() {
            let level = self.list_one_level(&dir)?;
            objects.extend(level.objects);
            pending.extend(level.common_prefixes);
        }
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// Objects and directories right below `prefix`. What is no directory has nothing below it.
    fn list_one_level(&self, prefix: &Path) -> Result<ListResult> {
        let dir = if prefix.is_root() { self.root.clone() } else { self.file(prefix)? };
        let entries = match self.disk.list(&dir) {
            Err(error) if is_absent(&error) => Vec::new(),
            listed => listed.map_err(|error| failed(prefix, error))?,
        };
        let mut level = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
        for entry in entries {
            let Some(location) = child(prefix, &entry) else { continue };
            if entry.is_dir {
                level.common_prefixes.push(location);
            } else {
                level.objects.push(object_meta(location, &entry));
            }
        }
        level.common_prefixes.sort_unstable();
        level.objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(level)
    }
}

/// The path of a directory entry; `None` for temporary files and for names that no [`Path`] has.
fn child(prefix: &Path, entry: &DiskEntry) -> Option<Path> {
    let name = entry.path.file_name()?.to_str()?;
    if is_temporary(name) {
        return None;
    }
    let separator = if prefix.is_root() { "" } else { "/" };
    // Not `Path::join`, which would encode the name once more.
    Path::parse(format!("{prefix}{separator}{name}")).ok()
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX)
}

fn temporary_path(dir: &FilePath) -> PathBuf {
    dir.join(format!("{TEMPORARY_PREFIX}{}", Uuid::new_v4().simple()))
}

/// The directory that holds `path`.
fn directory(path: &FilePath) -> &FilePath {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(FilePath::new("."))
}

fn object_meta(location: Path, entry: &DiskEntry) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: DateTime::<Utc>::from(entry.modified),
        size: entry.len_bytes,
        e_tag: Some(e_tag(entry)),
        version: None,
    }
}

/// Changes whenever the object is replaced, to the resolution of the file system's clock.
fn e_tag(entry: &DiskEntry) -> String {
    format!("{:x}-{:x}", DateTime::<Utc>::from(entry.modified).timestamp_micros(), entry.len_bytes)
}

/// Whether the error says that there is no such file. A path below a file is one.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn failed(location: &Path, error: io::Error) -> Error {
    let path = location.to_string();
    let absent = is_absent(&error);
    let kind = error.kind();
    let source = Box::new(error);
    match kind {
        _ if absent => Error::NotFound { path, source },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: STORE, source },
    }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: STORE.to_owned() }
}

#[cfg(test)]
mod tests;
