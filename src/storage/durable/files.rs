//! Files of the durable store: names, temporary files, and the order of writes and syncs. All functions
//! block.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, Utc};
use hashbrown::HashSet;
use object_store::path::Path;
use object_store::{Error, ListResult, ObjectMeta, PutResult, Result};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::durable::STORE;
use weir_disk::{Disk, DiskDir, DiskEntry, DiskFile};

/// Prefix of the names of files that are being written.
const TEMPORARY_PREFIX: &str = ".tmp-";

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) root: PathBuf,
    /// Directories whose own names are durable. One entry per directory of the store, that is, per partition.
    pub(super) durable_dirs: Mutex<HashSet<PathBuf>>,
    /// Set once the sync of a directory has failed.
    pub(super) poisoned: AtomicBool,
    /// Objects whose names were not synced. Reads of them fail, so that nothing depends on them. Contains
    /// at most the writes that were running when the sync failed.
    pub(super) doubtful: Mutex<HashSet<PathBuf>>,
}

/// Behaviour if the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    Create,
    Replace,
}

/// A file that readers do not see yet.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
}

impl Temporary {
    /// Writes `bytes` at `offset`; returns the offset after them.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<u64> {
        self.file.write_all_at(bytes, offset)?;
        Ok(offset.saturating_add(u64::try_from(bytes.len()).map_err(io::Error::other)?))
    }
}

impl Shared {
    /// The file of an object.
    pub(super) fn file(&self, location: &Path) -> Result<PathBuf> {
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

    /// The file of an object, for reading.
    pub(super) fn readable_file(&self, location: &Path) -> Result<PathBuf> {
        let file = self.file(location)?;
        if self.doubtful.lock().contains(&file) {
            let reason = "this object may not be durable, since a sync failed; restart the server";
            return Err(failed(location, io::Error::other(reason)));
        }
        Ok(file)
    }

    /// The file of an object that must exist.
    pub(super) fn existing_file(&self, location: &Path) -> Result<PathBuf> {
        let file = self.readable_file(location)?;
        let entry = self.disk.metadata(&file).map_err(|error| failed(location, error))?;
        if entry.is_dir {
            return Err(failed(location, io::ErrorKind::NotFound.into()));
        }
        Ok(file)
    }

    pub(super) fn check_writable(&self) -> io::Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(io::Error::other("the sync of a directory failed earlier"));
        }
        Ok(())
    }

    pub(super) fn new_temporary(&self, target: &FilePath, location: &Path) -> Result<Temporary> {
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

    /// Syncs the file and gives it its name. Removes the file if that fails.
    pub(super) fn publish(
        &self,
        temporary: Temporary,
        target: &FilePath,
        naming: Naming,
    ) -> io::Result<PutResult> {
        let Temporary { path, file } = temporary;
        let named = file.sync_data().and_then(|()| {
            drop(file);
            let e_tag = e_tag(&self.disk.metadata(&path)?);
            let dir = self.disk.open_dir(directory(target))?;
            self.name(&path, target, naming)?;
            Ok((e_tag, dir))
        });
        if named.is_err() {
            self.discard(&path);
        }
        let (e_tag, dir) = named?;
        self.sync_name(&*dir, target)?;
        Ok(PutResult { e_tag: Some(e_tag), version: None })
    }

    /// Removes a temporary file. If that fails, the next `recover` removes it.
    pub(super) fn discard(&self, temporary: &FilePath) {
        let _ = self.disk.remove(temporary);
    }

    /// Moves a synced temporary file to `target`; durable after a sync of the directory.
    pub(super) fn name(
        &self,
        temporary: &FilePath,
        target: &FilePath,
        naming: Naming,
    ) -> io::Result<()> {
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

    /// Gives an object a second name by hard link. Objects never change in place, so sharing the bytes is
    /// safe.
    pub(super) fn copy(
        &self,
        source: &FilePath,
        target: &FilePath,
        naming: Naming,
    ) -> io::Result<()> {
        self.check_writable()?;
        let dir = directory(target);
        self.ensure_dir(dir)?;
        let names = self.disk.open_dir(dir)?;
        match naming {
            Naming::Create => self.disk.hard_link(source, target)?,
            // A rename between two names of the same file has no effect and leaves both names.
            Naming::Replace if source == target => return Ok(()),
            Naming::Replace => {
                let temporary = temporary_path(dir);
                self.disk.hard_link(source, &temporary)?;
                let renamed = self.disk.rename(&temporary, target);
                // The temporary name still exists if the rename failed, or both names were the same file.
                self.discard(&temporary);
                renamed?;
            }
        }
        self.sync_name(&*names, target)
    }

    pub(super) fn delete(&self, location: Path) -> Result<Path> {
        let file = self.existing_file(&location)?;
        let delete = || {
            self.check_writable()?;
            let dir = self.disk.open_dir(directory(&file))?;
            self.disk.remove(&file)?;
            self.sync_dir(&*dir)
        };
        delete().map_err(|error| failed(&location, error))?;
        Ok(location)
    }

    /// Makes a new name durable. If that fails, later reads of it fail.
    pub(super) fn sync_name(&self, dir: &dyn DiskDir, target: &FilePath) -> io::Result<()> {
        // Checked again: the sync of another write may have failed and consumed the error of this one.
        let synced = self.sync_dir(dir).and_then(|()| self.check_writable());
        if synced.is_err() {
            self.doubtful.lock().insert(target.to_path_buf());
        }
        synced
    }

    /// Syncs the names in `dir`. If that fails, every later write fails. Callers open the directory before
    /// they change a name in it: a failure to open, for example for want of descriptors, is then harmless.
    pub(super) fn sync_dir(&self, dir: &dyn DiskDir) -> io::Result<()> {
        dir.sync().inspect_err(|_| self.poisoned.store(true, Ordering::Release))
    }

    /// Creates `dir` with its parents and makes their names durable.
    ///
    /// Every directory up to the root is synced once per process even if it exists: a concurrent write may
    /// have created it and not synced it yet.
    pub(super) fn ensure_dir(&self, dir: &FilePath) -> io::Result<()> {
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
            // If this fails, the next write into the directory syncs it.
            self.sync_dir(&*self.disk.open_dir(directory(ancestor))?)?;
            self.durable_dirs.lock().insert(ancestor.to_path_buf());
        }
        Ok(())
    }

    pub(super) fn recover_dir(&self, dir: &FilePath) -> io::Result<()> {
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
        self.sync_dir(&*self.disk.open_dir(dir)?)?;
        self.durable_dirs.lock().insert(dir.to_path_buf());
        Ok(())
    }

    pub(super) fn list(&self, prefix: &Path) -> Result<Vec<ObjectMeta>> {
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

    /// Objects and directories directly below `prefix`. Empty if `prefix` is no directory.
    pub(super) fn list_one_level(&self, prefix: &Path) -> Result<ListResult> {
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

/// The path of a directory entry; `None` for temporary files and for names that are no valid [`Path`].
pub(super) fn child(prefix: &Path, entry: &DiskEntry) -> Option<Path> {
    let name = entry.path.file_name()?.to_str()?;
    if is_temporary(name) {
        return None;
    }
    let separator = if prefix.is_root() { "" } else { "/" };
    // Not `Path::join`, which would encode the name a second time.
    Path::parse(format!("{prefix}{separator}{name}")).ok()
}

pub(super) fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY_PREFIX)
}

pub(super) fn temporary_path(dir: &FilePath) -> PathBuf {
    dir.join(format!("{TEMPORARY_PREFIX}{}", Uuid::new_v4().simple()))
}

/// The directory that holds `path`.
pub(super) fn directory(path: &FilePath) -> &FilePath {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(FilePath::new("."))
}

pub(super) fn object_meta(location: Path, entry: &DiskEntry) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: DateTime::<Utc>::from(entry.modified),
        size: entry.len_bytes,
        e_tag: Some(e_tag(entry)),
        version: None,
    }
}

/// Entity tag: changes whenever the object is replaced, within the resolution of the file system's clock.
pub(super) fn e_tag(entry: &DiskEntry) -> String {
    format!("{:x}-{:x}", DateTime::<Utc>::from(entry.modified).timestamp_micros(), entry.len_bytes)
}

/// Whether the error means that the file does not exist. A path below a file does not exist either.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

pub(super) fn failed(location: &Path, error: io::Error) -> Error {
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
