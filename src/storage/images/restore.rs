//! Brings images from the store to the disk: [`Images::restore`], and ahead of time [`Images::prefetch`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::ErrorKind;
use std::path::{Path as FilePath, PathBuf};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::images::error::{ImagesError, lost};
use crate::images::manifest::{Manifest, ManifestFile};
use crate::images::{ImageName, Images, hex};
use weir_base::clock::UnixMicros;

/// Files that are brought at the same time, each in steps of what the store sends at once.
const CONCURRENT_FILES: usize = 8;

/// Attempts to read a file whose transfer breaks off.
const READS_MAX: u32 = 3;

/// End of the name of a file that is not whole yet.
const DRAFT: &str = ".part";

/// What [`Images::prefetch`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetched {
    /// The image that is in the cache, if there is one.
    pub sequence: Option<u64>,
    /// When it was put, by the clock of the store.
    pub put_at: Option<UnixMicros>,
    /// Bytes that were read from the store.
    pub bytes: u64,
}

impl Images {
    /// Brings the files of an image into a directory, which is empty or not there, and syncs them. What is in `cache`
    /// is taken from there; it is on the file system of the directory.
    ///
    /// # Errors
    ///
    /// The store or the disk fails, or the image is damaged, of which the directory then has parts.
    pub async fn restore(
        &self,
        name: &ImageName,
        into: &FilePath,
        cache: Option<&FilePath>,
    ) -> Result<Manifest, ImagesError> {
        let manifest = self.manifest(name).await?;
        let mut directories = BTreeSet::from([into.to_path_buf()]);
        for file in &manifest.files {
            let target = into.join(&file.path);
            let parents = target.ancestors().skip(1).take_while(|parent| *parent != into);
            directories.extend(parents.map(FilePath::to_path_buf));
        }
        for directory in &directories {
            tokio::fs::create_dir_all(directory).await.map_err(local(directory))?;
        }
        let mut uses: BTreeMap<&str, u32> = BTreeMap::new();
        for file in &manifest.files {
            *uses.entry(&file.sha256).or_default() += 1;
        }
        let bringing = stream::iter(&manifest.files).map(|file| async {
            let target = into.join(&file.path);
            let is_shared = uses.get(file.sha256.as_str()).is_some_and(|uses| *uses > 1);
            if let Some(cache) = cache
                && take(&cache.join(&file.sha256), &target, file.bytes, is_shared).await?
            {
                return Ok(());
            }
            self.download(file, &target).await
        });
        bringing.buffer_unordered(CONCURRENT_FILES).try_collect::<()>().await?;
        for directory in &directories {
            sync(directory).await?;
        }
        Ok(manifest)
    }

    /// Brings the files of the newest image into `directory`, each under its hash, and removes all others there, so that
    /// [`Images::restore`] has little to read. Nobody else uses the directory meanwhile.
    ///
    /// # Errors
    ///
    /// The store or the disk fails, or the image is damaged. What is there stays; the next call goes on.
    pub async fn prefetch(&self, directory: &FilePath) -> Result<Prefetched, ImagesError> {
        let Some((newest, put_at)) = self.listed().await?.into_iter().next() else {
            return Ok(Prefetched::default());
        };
        let manifest = self.manifest(&newest).await?;
        let mut wanted: BTreeMap<&str, &ManifestFile> =
            manifest.files.iter().map(|file| (file.sha256.as_str(), file)).collect();
        tokio::fs::create_dir_all(directory).await.map_err(local(directory))?;
        let mut entries = tokio::fs::read_dir(directory).await.map_err(local(directory))?;
        while let Some(entry) = entries.next_entry().await.map_err(local(directory))? {
            let path = entry.path();
            let bytes = entry.metadata().await.map_err(local(&path))?.len();
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            match wanted.get(name).is_some_and(|file| file.bytes == bytes) {
                true => drop(wanted.remove(name)),
                false => tokio::fs::remove_file(&path).await.map_err(local(&path))?,
            }
        }
        let bringing = stream::iter(wanted.values()).map(|file| async {
            let draft = directory.join(format!("{}{DRAFT}", file.sha256));
            self.download(file, &draft).await?;
            let whole = directory.join(&file.sha256);
            tokio::fs::rename(&draft, &whole).await.map_err(local(&whole))
        });
        bringing.buffer_unordered(CONCURRENT_FILES).try_collect::<()>().await?;
        sync(directory).await?;
        let bytes = wanted.values().map(|file| file.bytes).sum();
        Ok(Prefetched { sequence: Some(newest.sequence), put_at: Some(put_at.into()), bytes })
    }

    /// Writes the contents of a file of an image, checked and synced.
    async fn download(&self, file: &ManifestFile, target: &FilePath) -> Result<(), ImagesError> {
        let mut reads = 1;
        loop {
            match self.download_once(file, target).await {
                // The client of the store has repeated the request, but not what comes after its answer began.
                Err(ImagesError::Store(_)) if reads < READS_MAX => reads += 1,
                downloaded => return downloaded,
            }
        }
    }

    async fn download_once(
        &self,
        file: &ManifestFile,
        target: &FilePath,
    ) -> Result<(), ImagesError> {
        let path = self.file_path(&file.sha256);
        let got = self.objects.get(&path).await.map_err(lost(&path))?;
        if got.meta.size != file.bytes {
            return Err(ImagesError::Differs { path });
        }
        let mut chunks = got.into_stream();
        let mut copy = tokio::fs::File::create(target).await.map_err(local(target))?;
        let mut hasher = Sha256::new();
        while let Some(chunk) = chunks.try_next().await? {
            hasher.update(&chunk);
            copy.write_all(&chunk).await.map_err(local(target))?;
        }
        if hex(hasher) != file.sha256 {
            return Err(ImagesError::Differs { path });
        }
        copy.flush().await.map_err(local(target))?;
        copy.sync_all().await.map_err(local(target))
    }
}

/// Moves a file of the cache, where it was checked and synced, to its place, or copies one that has several places. `false`
/// if it is not there whole.
async fn take(
    cached: &FilePath,
    target: &FilePath,
    bytes: u64,
    is_shared: bool,
) -> Result<bool, ImagesError> {
    let found = match tokio::fs::metadata(cached).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found.map_err(local(cached))?,
    };
    if found.len() != bytes {
        return Ok(false);
    }
    if !is_shared {
        tokio::fs::rename(cached, target).await.map_err(local(target))?;
        return Ok(true);
    }
    // Not linked: the files may be changed in place, each for itself.
    tokio::fs::copy(cached, target).await.map_err(local(target))?;
    sync(target).await?;
    Ok(true)
}

/// Makes a file or a directory durable.
async fn sync(path: &FilePath) -> Result<(), ImagesError> {
    let opened = tokio::fs::File::open(path).await.map_err(local(path))?;
    opened.sync_all().await.map_err(local(path))
}

fn local(path: &FilePath) -> impl FnOnce(io::Error) -> ImagesError {
    let path = PathBuf::from(path);
    move |source| ImagesError::Local { path, source }
}
