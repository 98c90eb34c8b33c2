//! Copies a table from one store to another, byte by byte: [`copy_table`]. Does not know what is in the files.
//!
//! A copy that was interrupted goes on where it was: what is there already is compared and kept. The log of the table is
//! copied after the files that it names, in the order of its versions, so that what is there is a table at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::io::AsyncWriteExt;

/// Files that are copied at the same time.
const CONCURRENT_FILES: usize = 8;

/// Bytes of a file that are in memory before they are sent.
const PART_BYTES: usize = 8 << 20;

/// Directory of the log in a table.
const LOG: &str = "_delta_log";

/// The file in the log that is replaced at times.
const HINT: &str = "_last_checkpoint";

/// Why a table cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The target has a file that the source does not have: it is another table, or one that went on since.
    #[error(
        "there is {path}, which is no file of the table that is to be copied: choose another place, or remove \
         what is there"
    )]
    Foreign {
        /// The file.
        path: Path,
    },
    /// The target has a file with this name and other contents.
    #[error(
        "{path} is there with other contents than in the table that is to be copied: choose another place, or \
         remove what is there"
    )]
    Differs {
        /// The file.
        path: Path,
    },
    /// A file is not in the target after it was written.
    #[error("{path} was written and is not there")]
    Lost {
        /// The file.
        path: Path,
    },
    /// One of the stores failed.
    #[error("the copy was interrupted; a second attempt goes on where it was")]
    Store(#[from] object_store::Error),
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files of the table.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them were there already.
    pub found: u64,
}

/// Length and CRC32C of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    bytes: u64,
    sum: u32,
}

impl Digest {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        self.sum = crc32c::crc32c_append(self.sum, chunk);
    }
}

/// Copies all files of the table `from` to `to`, and reads each again there. Nothing may change in either meanwhile.
///
/// # Errors
///
/// What was copied stays; see [`CopyError`].
pub async fn copy_table(
    from: &Arc<dyn ObjectStore>,
    to: &Arc<dyn ObjectStore>,
) -> Result<Copied, CopyError> {
    let (wanted, there) = (list(from).await?, list(to).await?);
    for (path, bytes) in &there {
        match wanted.get(path) {
            None => return Err(CopyError::Foreign { path: path.clone() }),
            Some(wanted) if wanted != bytes && !is_hint(path) => {
                return Err(CopyError::Differs { path: path.clone() });
            }
            Some(_) => {}
        }
    }
    let (log, data): (Vec<&Path>, Vec<&Path>) = wanted.keys().partition(|path| is_log(path));
    let copying = stream::iter(data).map(|path| async {
        let digest = match there.contains_key(path) {
            true => digest(from, path).await?,
            false => copy_data(from, to, path).await?,
        };
        check(to, path, digest).await
    });
    copying.buffer_unordered(CONCURRENT_FILES).try_collect::<()>().await?;
    // By name, which is by version, and the hint last.
    for path in log {
        let digest = copy_log(from, to, path).await?;
        check(to, path, digest).await?;
    }
    let now = list(to).await?;
    if let Some(path) = wanted.keys().find(|path| !now.contains_key(path)) {
        return Err(CopyError::Lost { path: path.clone() });
    }
    if let Some(path) = now.keys().find(|path| !wanted.contains_key(path)) {
        return Err(CopyError::Foreign { path: path.clone() });
    }
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let bytes = wanted.values().sum();
    Ok(Copied { files: number(wanted.len()), bytes, found: number(there.len()) })
}

fn is_log(path: &Path) -> bool {
    path.parts().next().is_some_and(|first| first.as_ref() == LOG)
}

fn is_hint(path: &Path) -> bool {
    is_log(path) && path.filename() == Some(HINT)
}

/// All files of a table, with their sizes.
async fn list(store: &Arc<dyn ObjectStore>) -> Result<BTreeMap<Path, u64>, CopyError> {
    let files = store.list(None).map_ok(|file| (file.location, file.size));
    Ok(files.try_collect().await?)
}

/// Copies a file in parts. Returns what was read.
async fn copy_data(
    from: &Arc<dyn ObjectStore>,
    to: &Arc<dyn ObjectStore>,
    path: &Path,
) -> Result<Digest, CopyError> {
    let failed = |error: std::io::Error| {
        let error = object_store::Error::Generic { store: "copy", source: error.into() };
        CopyError::Store(error)
    };
    let mut writer = BufWriter::with_capacity(Arc::clone(to), path.clone(), PART_BYTES);
    let (mut chunks, mut digest) = (from.get(path).await?.into_stream(), Digest::default());
    while let Some(chunk) = chunks.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                // What was sent of the file takes no space in the store.
                let _ = writer.abort().await;
                return Err(error.into());
            }
        };
        digest.add(&chunk);
        writer.put(chunk).await?;
    }
    writer.shutdown().await.map_err(failed)?;
    Ok(digest)
}

/// Copies a file of the log at once, if it is not there; a hint is replaced. Returns what was read.
async fn copy_log(
    from: &Arc<dyn ObjectStore>,
    to: &Arc<dyn ObjectStore>,
    path: &Path,
) -> Result<Digest, CopyError> {
    let bytes = from.get(path).await?.bytes().await?;
    let mut digest = Digest::default();
    digest.add(&bytes);
    let mode = if is_hint(path) { PutMode::Overwrite } else { PutMode::Create };
    match to.put_opts(path, PutPayload::from(bytes), mode.into()).await {
        // By an attempt before this one, or by this one, if the answer was lost. Its contents are compared.
        Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(digest),
        Err(error) => Err(error.into()),
    }
}

/// Checks that a file has the contents that were read from the source.
async fn check(store: &Arc<dyn ObjectStore>, path: &Path, wanted: Digest) -> Result<(), CopyError> {
    match digest(store, path).await {
        Ok(found) if found == wanted => Ok(()),
        Ok(_) => Err(CopyError::Differs { path: path.clone() }),
        Err(CopyError::Store(object_store::Error::NotFound { .. })) => {
            Err(CopyError::Lost { path: path.clone() })
        }
        Err(error) => Err(error),
    }
}

async fn digest(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<Digest, CopyError> {
    let (mut chunks, mut digest) = (store.get(path).await?.into_stream(), Digest::default());
    while let Some(chunk) = chunks.try_next().await? {
        digest.add(&chunk);
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::TryStreamExt;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};

    use super::{Copied, CopyError, HINT, PART_BYTES, copy_table};
    use crate::faulty_store::FaultyStore;

    async fn put(store: &Arc<dyn ObjectStore>, path: &str, contents: Vec<u8>) {
        store.put(&Path::from(path), contents.into()).await.unwrap();
    }

    /// A table with a file in parts, and its number of files.
    async fn table() -> (Arc<dyn ObjectStore>, u64) {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let large: Vec<u8> =
            (0..2 * PART_BYTES + 5).map(|at| u8::try_from(at % 251).unwrap()).collect();
        put(&store, "month=2026-01/large.parquet", large).await;
        for number in 0..20_u8 {
            put(&store, &format!("month=2026-01/{number}.parquet"), vec![number; 100]).await;
            put(&store, &format!("_delta_log/{number:020}.json"), vec![number; 10]).await;
        }
        put(&store, "_delta_log/00000000000000000010.checkpoint.parquet", vec![1; 50]).await;
        put(&store, &format!("_delta_log/{HINT}"), b"10".to_vec()).await;
        (store, 43)
    }

    async fn contents(store: &Arc<dyn ObjectStore>) -> Vec<(Path, Vec<u8>)> {
        let mut paths: Vec<Path> =
            store.list(None).map_ok(|file| file.location).try_collect().await.unwrap();
        paths.sort();
        let mut all = Vec::new();
        for path in paths {
            let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
            all.push((path, bytes.to_vec()));
        }
        all
    }

    /// Goal: whatever fails, and however often it begins again, the copy is the table. Method: a store that loses
    /// requests and answers at random, and lets puts arrive late.
    #[tokio::test]
    async fn an_interrupted_copy_goes_on() {
        let (from, files) = table().await;
        let expected = contents(&from).await;
        let mut faults = 0;
        for seed in 0..20 {
            let faulty = Arc::new(FaultyStore::default());
            let to: Arc<dyn ObjectStore> = Arc::clone(&faulty) as _;
            faulty.fail_at_random(seed, 5);
            for _ in 0..10 {
                match copy_table(&from, &to).await {
                    Ok(copied) => assert_eq!(copied.files, files, "seed {seed}"),
                    Err(CopyError::Store(_) | CopyError::Lost { .. }) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            faults += faulty.recover().await;
            let copied = copy_table(&from, &to).await.unwrap();
            assert!(copied.found > 0, "seed {seed}: it went on");
            assert_eq!(contents(&to).await, expected, "seed {seed}");
            let again = copy_table(&from, &to).await.unwrap();
            assert_eq!(again, Copied { found: files, ..copied }, "seed {seed}");
        }
        assert!(faults > 100, "{faults} faults");
    }

    #[tokio::test]
    async fn other_tables_are_left_alone() {
        // A file in the target, whether with the size of that in the source, and what is said.
        for (path, bytes, said) in [
            ("month=2026-01/other.parquet", 100, "no file of the table"),
            ("_delta_log/00000000000000000020.json", 10, "no file of the table"),
            ("_delta_log/00000000000000000003.json", 10, "other contents"),
            ("_delta_log/00000000000000000003.json", 11, "other contents"),
            ("month=2026-01/7.parquet", 100, "other contents"),
        ] {
            let ((from, _), to) =
                (table().await, Arc::new(InMemory::new()) as Arc<dyn ObjectStore>);
            put(&to, path, vec![b'x'; bytes]).await;
            let before = contents(&to).await;
            let refused = copy_table(&from, &to).await.unwrap_err().to_string();
            assert!(refused.contains(said), "{path}: {refused}");
            let after = contents(&to).await;
            assert!(after.contains(&before[0]), "{path}: it is as it was");
        }
    }

    #[tokio::test]
    async fn a_hint_is_replaced() {
        let ((from, _), to) = (table().await, Arc::new(InMemory::new()) as Arc<dyn ObjectStore>);
        put(&to, &format!("_delta_log/{HINT}"), b"9".to_vec()).await;
        copy_table(&from, &to).await.unwrap();
        assert_eq!(contents(&to).await, contents(&from).await);
    }
}
