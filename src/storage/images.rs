//! Images of a directory in an object store: [`Images`] puts them there, lists them, restores them and removes old
//! ones. What the files are is not known here.
//!
//! ```text
//! prefix/files/<sha256>             the contents of a file, whatever image or path it is of
//! prefix/<sequence>-<uuid>.json     the manifest of an image: the files of the directory as of a record of the log
//! ```
//!
//! # Why
//!
//! A file whose contents the store has is not sent again, so an image costs what has changed since the one before it. The
//! manifest is put last and atomically, so every manifest names files that were there. Whatever is damaged or removed
//! later, the image before it does not need: who restores takes that one then, and the log has to go back to it.
//!
//! Whoever puts an image relies only on files of the newest manifest, and on those that it has put itself since its last
//! one. Whoever removes files keeps those of the newest manifests, and those younger than an hour, which may be of an
//! image that is on its way. So two processes that put images at the same time, as while one of them takes over, do
//! each other no harm.

pub mod error;
pub mod manifest;
pub mod prune;
pub mod restore;
pub mod upload;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use crate::images::error::{ImagesError, lost};
use crate::images::manifest::{Manifest, Unread};

/// Directory of the contents of files.
const FILES: &str = "files";

/// End of the names of manifests.
const MANIFEST: &str = ".json";

/// Digits of the sequence in the name of a manifest: any `u64`, in order.
const DIGITS: usize = 20;

/// Largest manifest: some hundred thousand files.
const MANIFEST_MAX_BYTES: u64 = 32 << 20;

/// Bytes of a file that are read at once.
const STEP_BYTES: usize = 1 << 20;

/// Images in an object store. A cheap handle.
#[derive(Clone, Debug)]
pub struct Images {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    memory: Arc<Mutex<Memory>>,
}

/// What spares work of the next image. All of it can be found out again.
#[derive(Debug, Default)]
struct Memory {
    /// Hashes of the immutable files of the last image.
    hashes: BTreeMap<Identity, String>,
    /// Hashes of files that were put since the last manifest.
    put: BTreeSet<String>,
}

/// What tells that an immutable file has the contents that it had: a name may be used again for other contents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    path: String,
    bytes: u64,
    modified: SystemTime,
}

/// A file of a directory of which an image is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFile {
    /// Its path in the directory, with slashes.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Whether a file with this path, this size and this time of its last change has the same contents in the next
    /// image.
    pub is_immutable: bool,
}

/// Name of an image. The order is that of the sequences.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName {
    /// The last record of the log that is in it.
    pub sequence: u64,
    id: String,
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$}-{}", self.sequence, self.id)
    }
}

impl ImageName {
    fn parse(file: &str) -> Option<Self> {
        let (digits, id) = file.strip_suffix(MANIFEST)?.split_once('-')?;
        let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        let sequence = digits.parse().ok().filter(|_| is_number)?;
        Some(Self { sequence, id: id.to_owned() })
    }
}

impl Images {
    /// The images under `prefix` of a store, where nothing else may be.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self { objects, prefix, memory: Arc::default() }
    }

    /// Where they are, in the store.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// All images, newest first. Whether they can be restored is not looked at.
    pub async fn list(&self) -> Result<Vec<ImageName>, ImagesError> {
        Ok(self.listed().await?.into_iter().map(|(name, _)| name).collect())
    }

    /// The newest images whose manifests can be read and whose files are all there, at most `limit`, newest first.
    pub async fn list_whole(&self, limit: usize) -> Result<Vec<ImageName>, ImagesError> {
        let (names, files) = (self.list().await?, self.files().await?);
        let mut whole = Vec::new();
        for name in names {
            if whole.len() >= limit {
                break;
            }
            let manifest = match self.manifest(&name).await {
                Err(error) if error.is_unusable() => continue,
                read => read?,
            };
            let is_there =
                |hash: &str, bytes| files.get(hash).is_some_and(|file| file.size == bytes);
            if manifest.files.iter().all(|file| is_there(&file.sha256, file.bytes)) {
                whole.push(name);
            }
        }
        Ok(whole)
    }

    /// Reads the manifest of an image.
    ///
    /// # Errors
    ///
    /// The store fails, or the manifest is lost or damaged.
    pub async fn manifest(&self, name: &ImageName) -> Result<Manifest, ImagesError> {
        let path = self.manifest_path(name);
        let got = self.objects.get(&path).await.map_err(lost(&path))?;
        if got.meta.size > MANIFEST_MAX_BYTES {
            let problem = format!("has more than {MANIFEST_MAX_BYTES} bytes");
            return Err(ImagesError::Malformed { path, problem });
        }
        let manifest = Manifest::decode(&got.bytes().await?).map_err(|problem| match problem {
            Unread::Newer(_) => ImagesError::Newer { path: path.clone(), problem },
            Unread::Malformed(problem) => ImagesError::Malformed { path: path.clone(), problem },
        })?;
        match manifest.sequence == name.sequence {
            true => Ok(manifest),
            false => {
                let problem = format!("is of record {}", manifest.sequence);
                Err(ImagesError::Malformed { path, problem })
            }
        }
    }

    fn manifest_path(&self, name: &ImageName) -> Path {
        self.prefix.clone().join(format!("{name}{MANIFEST}"))
    }

    fn file_path(&self, hash: &str) -> Path {
        self.prefix.clone().join(FILES).join(hash)
    }

    /// All images with the times of their puts, newest image first.
    async fn listed(&self) -> Result<Vec<(ImageName, DateTime<Utc>)>, ImagesError> {
        let listed = self.objects.list_with_delimiter(Some(&self.prefix)).await?;
        let named = |object: ObjectMeta| {
            Some((ImageName::parse(object.location.filename()?)?, object.last_modified))
        };
        let mut names: Vec<_> = listed.objects.into_iter().filter_map(named).collect();
        names.sort_by(|(one, _), (other, _)| other.cmp(one));
        Ok(names)
    }

    /// All files in the store, by hash.
    async fn files(&self) -> Result<BTreeMap<String, ObjectMeta>, ImagesError> {
        let files = self.objects.list(Some(&self.prefix.clone().join(FILES)));
        let named = files.map_ok(|file| {
            let hash = file.location.filename().unwrap_or_default().to_owned();
            (hash, file)
        });
        Ok(named.try_collect().await?)
    }
}

/// The size and the hash of a local file.
async fn digest(path: &FilePath) -> Result<(u64, String), ImagesError> {
    let failed = |source| ImagesError::Local { path: PathBuf::from(path), source };
    let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
    let (mut buffer, mut hasher, mut bytes) = (vec![0; STEP_BYTES], Sha256::new(), 0_u64);
    loop {
        let read = file.read(&mut buffer).await.map_err(failed)?;
        if read == 0 {
            return Ok((bytes, hex(hasher)));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        bytes += u64::try_from(read).unwrap_or(u64::MAX);
    }
}

fn hex(hasher: Sha256) -> String {
    format!("{:x}", hasher.finalize())
}
