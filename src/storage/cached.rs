//! Local cache of the data files of a table in a bucket: [`CachedStore`] keeps what was written or read last
//! in blocks on disk ([`BlockCache`]). The log of the table is never cached, and `head` always asks the
//! bucket: a commit checks by it that its files are there.
//!
//! Names of data files are never reused, so a block stays right as long as it exists.

pub mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};

use crate::cached::blocks::{BLOCK_BYTES, BlockCache, FileKey, pieces_of};

/// Most blocks of one request to the bucket.
const RUN_BLOCKS: u64 = 8;

/// Requests to the bucket at the same time for one read.
const CONCURRENT_RUNS: usize = 8;

/// Object store with a cache of data files in front of a bucket.
#[derive(Clone, Debug)]
pub struct CachedStore {
    inner: Arc<dyn ObjectStore>,
    cache: BlockCache,
    /// URL of the table, which distinguishes files of several tables in one cache.
    table: Arc<str>,
}

impl CachedStore {
    /// A store over `inner`, whose root is the table of this URL.
    pub fn new(inner: Arc<dyn ObjectStore>, cache: BlockCache, table: &str) -> Self {
        Self { inner, cache, table: table.into() }
    }

    /// The key of a data file; `None` for all other objects.
    fn key(&self, location: &Path) -> Option<FileKey> {
        let path = location.as_ref();
        let is_data = path.ends_with(".parquet") && !path.starts_with('_');
        is_data.then(|| FileKey::of(&self.table, path))
    }

    /// The size of a file, of which the end is read if it is not known.
    async fn size(&self, location: &Path, file: FileKey) -> Result<u64> {
        if let Some(size) = self.cache.size(file) {
            return Ok(size);
        }
        let suffix =
            GetOptions { range: Some(GetRange::Suffix(BLOCK_BYTES)), ..GetOptions::default() };
        let got = self.inner.get_opts(location, suffix).await?;
        let size = got.meta.size;
        let end = got.bytes().await?;
        self.cache.missed(length(&end));
        let Some(last) = size.checked_sub(1).map(|at| at / BLOCK_BYTES) else { return Ok(size) };
        let last_bytes = size.saturating_sub(last.saturating_mul(BLOCK_BYTES));
        let start =
            length(&end).checked_sub(last_bytes).and_then(|start| usize::try_from(start).ok());
        if let Some(start) = start {
            self.keep(file, Some(size), vec![(last, end.slice(start..))]).await;
        }
        Ok(size)
    }

    /// Stores blocks of a file. A failure costs reads, and no more.
    async fn keep(&self, file: FileKey, size: Option<u64>, blocks: Vec<(u64, Bytes)>) {
        let cache = self.cache.clone();
        let keeping = tokio::task::spawn_blocking(move || {
            for (number, bytes) in blocks {
                cache.put(file, number, size, &bytes);
            }
        });
        let _ = keeping.await;
    }

    /// Reads ranges of a data file of this size, out of the cache where it has them.
    async fn read(
        &self,
        location: &Path,
        file: FileKey,
        size: u64,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let (cache, wanted) = (self.cache.clone(), ranges.to_vec());
        let found = tokio::task::spawn_blocking(move || {
            let piece = |(number, within)| Piece {
                number,
                bytes: cache.get(file, number, &within),
                within,
            };
            let look = |range| match cache.get_range(file, range) {
                Some(bytes) => CachedRange::Whole(bytes),
                None => CachedRange::InPieces(pieces_of(range).map(piece).collect()),
            };
            wanted.iter().map(look).collect::<Vec<CachedRange>>()
        });
        let found = found.await?;
        let missing = found.iter().flat_map(CachedRange::missing).collect();
        let fetched = self.fetch(location, file, size, &missing).await?;
        let whole = |found| match found {
            CachedRange::Whole(bytes) => Ok(bytes),
            CachedRange::InPieces(pieces) => joined(pieces.into_iter().map(|piece| {
                let fetched = || slice(fetched.get(&piece.number)?, &piece.within);
                piece.bytes.or_else(fetched).ok_or_else(|| short(location))
            })),
        };
        found.into_iter().map(whole).collect()
    }

    /// Reads whole blocks from the bucket and stores them.
    async fn fetch(
        &self,
        location: &Path,
        file: FileKey,
        size: u64,
        missing: &BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Bytes>> {
        if missing.is_empty() {
            return Ok(BTreeMap::new());
        }
        let requests = runs(missing).into_iter().map(|run| async move {
            let range = run.start * BLOCK_BYTES..size.min(run.end * BLOCK_BYTES);
            let bytes = self.inner.get_ranges(location, std::slice::from_ref(&range)).await?;
            let bytes = bytes.into_iter().next().unwrap_or_default();
            if length(&bytes) != range.end.saturating_sub(range.start) {
                return Err(short(location));
            }
            self.cache.missed(length(&bytes));
            let block = |number: u64| {
                let start = (number - run.start) * BLOCK_BYTES;
                let end = length(&bytes).min(start + BLOCK_BYTES);
                Some((number, slice(&bytes, &(start..end))?))
            };
            Ok(run.clone().filter_map(block).collect::<Vec<_>>())
        });
        let requests: Vec<_> = requests.collect();
        let blocks: Vec<Vec<(u64, Bytes)>> =
            stream::iter(requests).buffer_unordered(CONCURRENT_RUNS).try_collect().await?;
        let blocks: Vec<(u64, Bytes)> = blocks.into_iter().flatten().collect();
        self.keep(file, Some(size), blocks.clone()).await;
        Ok(blocks.into_iter().collect())
    }
}

/// Blocks in a row, as ranges of numbers.
fn runs(numbers: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number && run.end - run.start < RUN_BLOCKS => run.end += 1,
            _ => runs.push(*number..number + 1),
        }
    }
    runs
}

/// What the cache has of a range.
#[derive(Debug)]
enum CachedRange {
    Whole(Bytes),
    InPieces(Vec<Piece>),
}

/// A part of a block; without bytes if the cache has none of the block.
#[derive(Debug)]
struct Piece {
    number: u64,
    within: Range<u64>,
    bytes: Option<Bytes>,
}

impl CachedRange {
    /// The blocks that are not there.
    fn missing(&self) -> impl Iterator<Item = u64> {
        let pieces = match self {
            Self::Whole(_) => &[],
            Self::InPieces(pieces) => pieces.as_slice(),
        };
        pieces.iter().filter(|piece| piece.bytes.is_none()).map(|piece| piece.number)
    }
}

/// Pieces as one.
fn joined(mut pieces: impl ExactSizeIterator<Item = Result<Bytes>>) -> Result<Bytes> {
    if pieces.len() <= 1 {
        return pieces.next().unwrap_or_else(|| Ok(Bytes::new()));
    }
    let mut whole = BytesMut::new();
    for piece in pieces {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole.freeze())
}

fn slice(bytes: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
    (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn short(location: &Path) -> object_store::Error {
    let source = format!("{location} is shorter than it was").into();
    object_store::Error::Generic { store: "cache", source }
}

/// Cuts what is written into blocks.
#[derive(Debug, Default)]
struct Cutter {
    open: BytesMut,
    /// Blocks that are cut.
    cut: u64,
}

impl Cutter {
    /// Adds bytes; returns the blocks that are complete now.
    fn add(&mut self, payload: &PutPayload) -> Vec<(u64, Bytes)> {
        let block_bytes = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        let mut blocks = Vec::new();
        for piece in payload.iter() {
            self.open.extend_from_slice(piece);
            while self.open.len() >= block_bytes {
                blocks.push((self.cut, self.open.split_to(block_bytes).freeze()));
                self.cut += 1;
            }
        }
        blocks
    }

    /// The rest, and the size of all.
    fn end(&mut self) -> (Vec<(u64, Bytes)>, u64) {
        let size = self.cut * BLOCK_BYTES + length(&self.open);
        let rest = self.open.split().freeze();
        let rest = (!rest.is_empty()).then_some((self.cut, rest));
        (rest.into_iter().collect(), size)
    }
}

/// An upload whose bytes go to the cache too.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    store: CachedStore,
    file: FileKey,
    cutter: Cutter,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let blocks = self.cutter.add(&data);
        let sent = self.inner.put_part(data);
        let (store, file) = (self.store.clone(), self.file);
        async move {
            store.keep(file, None, blocks).await;
            sent.await
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        let (rest, size) = self.cutter.end();
        self.store.keep(self.file, Some(size), rest).await;
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.cache.remove(self.file);
        self.inner.abort().await
    }
}

impl fmt::Display for CachedStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CachedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let Some(file) = self.key(location) else {
            return self.inner.put_opts(location, payload, options).await;
        };
        let mut cutter = Cutter::default();
        let mut blocks = cutter.add(&payload);
        let done = self.inner.put_opts(location, payload, options).await?;
        let (rest, size) = cutter.end();
        blocks.extend(rest);
        self.keep(file, Some(size), blocks).await;
        Ok(done)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(location, options).await?;
        let Some(file) = self.key(location) else { return Ok(inner) };
        let (store, cutter) = (self.clone(), Cutter::default());
        Ok(Box::new(Upload { inner, store, file, cutter }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let has_conditions = options.if_match.is_some()
            || options.if_none_match.is_some()
            || options.if_modified_since.is_some()
            || options.if_unmodified_since.is_some();
        let is_simple = !options.head && !has_conditions && options.version.is_none();
        let (Some(file), Some(range), true) = (self.key(location), &options.range, is_simple)
        else {
            return self.inner.get_opts(location, options).await;
        };
        let size = self.size(location, file).await?;
        let range = range.as_range(size).map_err(|source| object_store::Error::Generic {
            store: "cache",
            source: Box::new(source),
        })?;
        let read = self.read(location, file, size, std::slice::from_ref(&range)).await?;
        let bytes = stream::iter(read.into_iter().map(Ok)).boxed();
        // The time is not known, and nobody asks for that of a range of a data file.
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size,
            e_tag: None,
            version: None,
        };
        let payload = GetResultPayload::Stream(bytes);
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let Some(file) = self.key(location) else {
            return self.inner.get_ranges(location, ranges).await;
        };
        let size = self.size(location, file).await?;
        if ranges.iter().any(|range| range.end > size) {
            return Err(short(location));
        }
        self.read(location, file, size, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let forget = move |deleted: &Result<Path>| {
            if let Some(file) = deleted.as_ref().ok().and_then(|path| store.key(path)) {
                store.cache.remove(file);
            }
        };
        self.inner.delete_stream(locations).inspect(forget).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests;
