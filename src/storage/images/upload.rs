//! Puts an image: [`Images::put`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::buffered::BufWriter;
use object_store::{Error, ObjectStore, PutMode, PutPayload};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use crate::images::error::ImagesError;
use crate::images::manifest::{Manifest, ManifestFile};
use crate::images::{Identity, ImageName, Images, LocalFile, STEP_BYTES, digest, hex};

/// Files that are read or sent at the same time.
const CONCURRENT_FILES: usize = 4;

/// Bytes of a part of a file, and parts of a file that are on their way at the same time: with one that is being
/// filled, at most 96 MiB of all files.
const PART_BYTES: usize = 8 << 20;
const CONCURRENT_PARTS: usize = 2;

/// Attempts to put a manifest of which it is unknown whether it is there.
const MANIFEST_PUTS_MAX: u32 = 3;

/// An image that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its name.
    pub name: ImageName,
    /// Files that the store lacked, and their bytes.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// A file with its hash.
struct Hashed<'f> {
    local: &'f LocalFile,
    path: PathBuf,
    bytes: u64,
    hash: String,
}

impl Images {
    /// Puts the files of `directory` that the store lacks, and then a manifest of all `files`, as the image as of record
    /// `sequence`.
    ///
    /// # Errors
    ///
    /// The store or the disk fails. What was sent is not sent again by the next call.
    pub async fn put(
        &self,
        directory: &FilePath,
        files: &[LocalFile],
        sequence: u64,
    ) -> Result<Put, ImagesError> {
        let hashing = stream::iter(files).map(|file| self.hashed(directory, file));
        let hashed: Vec<Hashed<'_>> = hashing.buffered(CONCURRENT_FILES).try_collect().await?;
        let (there, newest) = (self.files().await?, self.newest_hashes().await?);
        let put_before = self.memory.lock().put.clone();
        let is_there = |file: &Hashed<'_>| {
            let is_kept = newest.contains(&file.hash) || put_before.contains(&file.hash);
            is_kept && there.get(&file.hash).is_some_and(|object| object.size == file.bytes)
        };
        // Two files may have the same contents.
        let lacking: BTreeMap<&str, &Hashed<'_>> = hashed
            .iter()
            .filter(|file| !is_there(file))
            .map(|file| (file.hash.as_str(), file))
            .collect();
        let sending = stream::iter(lacking.values()).map(|file| self.send(file));
        sending.buffer_unordered(CONCURRENT_FILES).try_collect::<()>().await?;
        let number = u64::try_from(lacking.len()).unwrap_or(u64::MAX);
        let bytes = lacking.values().map(|file| file.bytes).sum();
        let named = hashed.iter().map(|file| ManifestFile {
            path: file.local.path.clone(),
            bytes: file.bytes,
            sha256: file.hash.clone(),
        });
        let name = self.put_manifest(&Manifest::new(sequence, named.collect())).await?;
        self.memory.lock().put.clear();
        self.forget_others(&hashed).await;
        Ok(Put { name, files: number, bytes })
    }

    /// The hash of a file, from memory if it was read before.
    async fn hashed<'f>(
        &self,
        directory: &FilePath,
        local: &'f LocalFile,
    ) -> Result<Hashed<'f>, ImagesError> {
        let path = directory.join(&local.path);
        let identity = identity(&path, local).await;
        let known = identity.as_ref().and_then(|identity| {
            let memory = self.memory.lock();
            memory.hashes.get(identity).cloned()
        });
        let (bytes, hash) = match known {
            Some(hash) => (local.bytes, hash),
            None => digest(&path).await?,
        };
        if bytes != local.bytes {
            return Err(ImagesError::Changed { path });
        }
        if let Some(identity) = identity {
            self.memory.lock().hashes.insert(identity, hash.clone());
        }
        Ok(Hashed { local, path, bytes, hash })
    }

    /// Hashes are kept as long as an image has their files.
    async fn forget_others(&self, hashed: &[Hashed<'_>]) {
        let mut kept = BTreeSet::new();
        for file in hashed {
            kept.extend(identity(&file.path, file.local).await);
        }
        self.memory.lock().hashes.retain(|identity, _| kept.contains(identity));
    }

    /// The hashes that the newest manifest names; none if it is damaged.
    async fn newest_hashes(&self) -> Result<BTreeSet<String>, ImagesError> {
        let Some(newest) = self.list().await?.into_iter().next() else {
            return Ok(BTreeSet::new());
        };
        match self.manifest(&newest).await {
            Ok(manifest) => Ok(manifest.files.into_iter().map(|file| file.sha256).collect()),
            Err(error) if error.is_unusable() => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    /// Sends a file under the name of its hash, which is computed again: other contents never get this name.
    async fn send(&self, hashed: &Hashed<'_>) -> Result<(), ImagesError> {
        let path = &hashed.path;
        let failed = |source| ImagesError::Local { path: path.clone(), source };
        let store = Arc::clone(&self.objects);
        let mut writer = BufWriter::with_capacity(store, self.file_path(&hashed.hash), PART_BYTES)
            .with_max_concurrency(CONCURRENT_PARTS);
        let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
        let mut hasher = Sha256::new();
        loop {
            let mut buffer = BytesMut::with_capacity(STEP_BYTES);
            if file.read_buf(&mut buffer).await.map_err(failed)? == 0 {
                break;
            }
            hasher.update(&buffer);
            writer.put(buffer.freeze()).await?;
        }
        if hex(hasher) != hashed.hash {
            // What was sent of it takes no space in the store.
            let _ = writer.abort().await;
            return Err(ImagesError::Changed { path: path.clone() });
        }
        let unfinished =
            |error: io::Error| Error::Generic { store: "images", source: error.into() };
        writer.shutdown().await.map_err(unfinished)?;
        self.memory.lock().put.insert(hashed.hash.clone());
        Ok(())
    }

    /// Puts a manifest under a new name. If the answer is lost, the same name is put again, so that there is one.
    async fn put_manifest(&self, manifest: &Manifest) -> Result<ImageName, ImagesError> {
        let id = Uuid::new_v4().simple().to_string();
        let name = ImageName { sequence: manifest.sequence, id };
        let path = self.manifest_path(&name);
        let malformed = |problem| ImagesError::Malformed { path: path.clone(), problem };
        let text = PutPayload::from(manifest.encode().map_err(malformed)?);
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.objects.put_opts(&path, text.clone(), PutMode::Create.into()).await {
                // Nobody else uses this name.
                Ok(_) | Err(Error::AlreadyExists { .. }) => return Ok(name),
                Err(error) if attempts >= MANIFEST_PUTS_MAX => return Err(error.into()),
                Err(_) => {}
            }
        }
    }
}

async fn identity(path: &FilePath, file: &LocalFile) -> Option<Identity> {
    if !file.is_immutable {
        return None;
    }
    let modified = tokio::fs::metadata(path).await.ok()?.modified().ok()?;
    Some(Identity { path: file.path.clone(), bytes: file.bytes, modified })
}
