//! Block checksums of data files, in a section before the Parquet footer.
//!
//! [`BlockSums`] builds the section while a file is written; [`CheckedStore`] verifies every read.
//! Checksums in page headers (`parquet/page_crc`) are for other engines and cover only the data of pages. A
//! flipped bit in a page header, bloom filter, index or footer could still change values or hide rows.
//! Other engines skip the section, since nothing in the footer refers to it.
//!
//! ```text
//! pages, filters, indexes    CRC-32C of each 16 KiB
//! section                    these checksums, 4 bytes each
//!                            number of covered bytes (8), bytes of a block (4)
//!                            CRC-32C of the footer (4), CRC-32C of the section up to here (4)
//!                            "weirsums"
//! footer                     Parquet's, its length and "PAR1" included
//! ```
//!
//! Numbers are little-endian. A file without a section was written by another engine or an older version of
//! the program, and is read without verification.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;

/// Bytes per checksum. A read of a few bytes reads a whole block; most pages have this size.
const BLOCK_BYTES: usize = 16 << 10;

/// End of a section.
const MAGIC: &[u8; 8] = b"weirsums";

/// Bytes of a section without the checksums of blocks.
const TRAILER_BYTES: usize = 28;

/// End of a Parquet file: the length of the footer and this.
const PARQUET_MAGIC: &[u8; 4] = b"PAR1";
const PARQUET_END_BYTES: usize = 8;

/// Bytes at the end of a file that are read first: they contain section and footer of most files.
const TAIL_BYTES: u64 = 64 << 10;

/// Memory of the cache of checksums: 4 bytes per 16 KiB, for 64 GiB of files.
const KEPT_MAX_BYTES: usize = 16 << 20;

/// Memory of a cache entry without its checksums.
const ENTRY_BYTES: usize = 256;

/// Bytes per read when a whole object is verified.
const STEP_BYTES: u64 = 4 << 20;

/// Results of up to this size are copied, so that they do not keep the whole blocks in memory.
const COPIED_MAX_BYTES: usize = 256 << 10;

/// Checksums of a file that is being written.
#[derive(Debug, Default)]
pub struct BlockSums {
    sums: Vec<u32>,
    bytes: u64,
    /// Checksum and length of the current block.
    sum: u32,
    filled: usize,
}

impl BlockSums {
    /// Adds the next bytes of the file.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while let Some((now, rest)) =
            bytes.split_at_checked(bytes.len().min(BLOCK_BYTES - self.filled))
            && !now.is_empty()
        {
            self.sum = crc32c::crc32c_append(self.sum, now);
            self.filled += now.len();
            self.bytes += length(now);
            if self.filled == BLOCK_BYTES {
                self.end_block();
            }
            bytes = rest;
        }
    }

    fn end_block(&mut self) {
        self.sums.push(std::mem::take(&mut self.sum));
        self.filled = 0;
    }

    /// The section to write between the bytes so far and `footer`.
    pub fn section(mut self, footer: &[u8]) -> Vec<u8> {
        if self.filled > 0 {
            self.end_block();
        }
        let mut section = Vec::with_capacity(self.sums.len() * 4 + TRAILER_BYTES);
        for sum in &self.sums {
            section.extend_from_slice(&sum.to_le_bytes());
        }
        section.extend_from_slice(&self.bytes.to_le_bytes());
        section.extend_from_slice(&u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX).to_le_bytes());
        section.extend_from_slice(&crc32c::crc32c(footer).to_le_bytes());
        section.extend_from_slice(&crc32c::crc32c(&section).to_le_bytes());
        section.extend_from_slice(MAGIC);
        section
    }
}

/// Inserts the section into a whole Parquet file; `None` if `parquet` is no Parquet file.
pub fn with_section(parquet: &[u8]) -> Option<Vec<u8>> {
    let footer = footer(parquet)?;
    let (before, _) = parquet.split_at_checked(parquet.len() - footer.len())?;
    let mut sums = BlockSums::default();
    sums.add(before);
    Some([before, &sums.section(footer), footer].concat())
}

/// Checks a whole file that may have a section.
///
/// # Errors
///
/// The damage that was found.
pub fn check_whole(parquet: &[u8]) -> std::result::Result<(), String> {
    match Sums::read(parquet, length(parquet))? {
        Trailer::Sums(sums) => sums.check(0, parquet),
        Trailer::None => Ok(()),
        Trailer::NeedsBytes(_) => Err("its footer has no end".to_owned()),
    }
}

/// The footer with the rest of a Parquet file, if `bytes` are the end of one.
pub fn footer(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(bytes.len().checked_sub(footer_bytes(bytes)?)?..)
}

/// Length of the footer, from the end of a file.
fn footer_bytes(bytes: &[u8]) -> Option<usize> {
    let length = bytes.strip_suffix(PARQUET_MAGIC)?.last_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*length)).ok()?.checked_add(PARQUET_END_BYTES)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// A corrupt file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is damaged: {problem}; restore it from a backup")]
pub struct Damaged {
    /// Path of the file, relative to the data directory.
    pub path: String,
    /// Position and kind of the damage.
    pub problem: String,
}

/// Checksums of a file that is read.
#[derive(Debug)]
struct Sums {
    file_bytes: u64,
    /// Bytes that the blocks cover; section and footer follow.
    covered_bytes: u64,
    block_bytes: u64,
    blocks: Vec<u32>,
    /// Checksum of section and footer.
    tail: u32,
}

impl Sums {
    /// Parses the end of a file. `tail` must contain section and footer, or the whole file; otherwise returns
    /// the number of bytes that are needed.
    fn read(tail: &[u8], file_bytes: u64) -> std::result::Result<Trailer, String> {
        let no_parquet = || "it does not end as a Parquet file does".to_owned();
        let footer_bytes = footer_bytes(tail).ok_or_else(no_parquet)?;
        let wanted = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        if wanted(footer_bytes) > file_bytes {
            return Err(no_parquet());
        }
        let trailer_end = match tail.len().checked_sub(footer_bytes) {
            Some(end) if end >= TRAILER_BYTES => end,
            _ if length(tail) < file_bytes => {
                return Ok(Trailer::NeedsBytes(
                    wanted(footer_bytes + TRAILER_BYTES).min(file_bytes),
                ));
            }
            Some(_) => return Ok(Trailer::None),
            None => return Err(no_parquet()),
        };
        let (before, footer) = tail.split_at(trailer_end);
        let Some(section) = before.strip_suffix(MAGIC) else {
            // A section in another position: the length of the footer is wrong.
            return match tail.windows(MAGIC.len()).any(|bytes| bytes == MAGIC) {
                true => Err("the length of its footer is damaged".to_owned()),
                false => Ok(Trailer::None),
            };
        };
        let numbers = section.last_chunk::<20>().ok_or_else(no_parquet)?;
        let number = |at: usize| {
            let bytes = numbers.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let covered_bytes = u64::from(number(4)) << 32 | u64::from(number(0));
        let block_bytes = u64::from(number(8));
        // The length is checked before any other field of the section is used.
        let rest = file_bytes.saturating_sub(wanted(footer_bytes)).checked_sub(covered_bytes);
        let blocks = covered_bytes.checked_div(block_bytes).map(|whole| {
            whole.saturating_add(u64::from(!covered_bytes.is_multiple_of(block_bytes)))
        });
        let section_bytes =
            blocks.and_then(|blocks| blocks.checked_mul(4)?.checked_add(wanted(TRAILER_BYTES)));
        let wrong = || "the checksums of its blocks are damaged".to_owned();
        let section_bytes = section_bytes.filter(|bytes| Some(*bytes) == rest).ok_or_else(wrong)?;
        let tail_bytes = section_bytes.saturating_add(wanted(footer_bytes));
        let Some(begin) = length(tail).checked_sub(tail_bytes) else {
            return Ok(Trailer::NeedsBytes(tail_bytes));
        };
        let begin = usize::try_from(begin).map_err(|_| wrong())?;
        let summed = section.get(begin..section.len() - 4).ok_or_else(wrong)?;
        if crc32c::crc32c(summed) != number(16) {
            return Err(wrong());
        }
        if crc32c::crc32c(footer) != number(12) {
            return Err("its footer does not have its checksum".to_owned());
        }
        let (sums, _) = summed.split_at(summed.len() - (TRAILER_BYTES - MAGIC.len() - 4));
        let (sums, _) = sums.as_chunks::<4>();
        Ok(Trailer::Sums(Self {
            file_bytes,
            covered_bytes,
            block_bytes,
            blocks: sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect(),
            tail: crc32c::crc32c(tail.get(begin..).unwrap_or_default()),
        }))
    }

    /// The range to read so that all of `wanted` can be verified: extended to whole blocks.
    fn widened(&self, wanted: &Range<u64>) -> Range<u64> {
        let down = |at: u64| at - at % self.block_bytes;
        let start = match wanted.start < self.covered_bytes {
            true => down(wanted.start),
            false => self.covered_bytes,
        };
        let end = match wanted.end <= self.covered_bytes {
            true => down(wanted.end.saturating_add(self.block_bytes - 1)).min(self.covered_bytes),
            false => self.file_bytes,
        };
        start..end
    }

    /// Verifies the bytes of a widened range.
    fn check(&self, start: u64, bytes: &[u8]) -> std::result::Result<(), String> {
        let covered = self.covered_bytes.saturating_sub(start).min(length(bytes));
        let covered = usize::try_from(covered).unwrap_or(usize::MAX);
        let (blocks, tail) = bytes.split_at_checked(covered).unwrap_or((bytes, &[]));
        let block_bytes = usize::try_from(self.block_bytes).unwrap_or(usize::MAX);
        let first = usize::try_from(start / self.block_bytes).unwrap_or(usize::MAX);
        let sums = self.blocks.get(first..).unwrap_or_default().iter();
        for (at, (block, sum)) in blocks.chunks(block_bytes).zip(sums).enumerate() {
            if crc32c::crc32c(block) != *sum {
                let begin = start + length(blocks.get(..at * block_bytes).unwrap_or_default());
                let end = begin + length(block);
                return Err(format!("bytes {begin} to {end} do not have their checksum"));
            }
        }
        if !tail.is_empty() && crc32c::crc32c(tail) != self.tail {
            return Err("its footer does not have its checksum".to_owned());
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.blocks.len() * 4
    }
}

/// Result of parsing the end of a file.
enum Trailer {
    Sums(Sums),
    /// The file has no checksums.
    None,
    /// This many bytes from the end of the file are needed.
    NeedsBytes(u64),
}

/// FIFO cache of the checksums of files, by path. Names of files are never reused, so entries stay valid.
#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Path, Option<Arc<Sums>>>,
    /// Paths in insertion order.
    order: VecDeque<Path>,
    bytes: usize,
}

impl Kept {
    fn insert(&mut self, path: &Path, sums: Option<Arc<Sums>>) {
        let bytes = |sums: &Option<Arc<Sums>>| {
            sums.as_ref().map_or(0, |sums| sums.memory_bytes()) + ENTRY_BYTES
        };
        self.bytes += bytes(&sums);
        match self.files.insert(path.clone(), sums) {
            Some(before) => self.bytes -= bytes(&before),
            None => self.order.push_back(path.clone()),
        }
        while self.bytes > KEPT_MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(sums) = self.files.remove(&oldest) {
                self.bytes -= bytes(&sums);
            }
        }
    }
}

/// Object store that verifies data files of a table when they are read. All other operations pass through.
#[derive(Clone, Debug)]
pub struct CheckedStore {
    inner: Arc<dyn ObjectStore>,
    /// Path of the table in the data directory, for messages.
    place: Arc<str>,
    kept: Arc<Mutex<Kept>>,
}

impl CheckedStore {
    /// A store that verifies reads from `inner`; `place` is the directory of the table for messages.
    pub fn new(inner: Arc<dyn ObjectStore>, place: &str) -> Self {
        Self { inner, place: place.into(), kept: Arc::default() }
    }

    /// Reads a whole file and verifies it. Returns whether it has checksums.
    ///
    /// # Errors
    ///
    /// [`Damaged`] within the error, or the store fails.
    pub async fn verify(&self, location: &Path) -> Result<bool> {
        let Some(sums) = self.load(location).await? else { return Ok(false) };
        let mut start = 0;
        while start < sums.file_bytes {
            let end = sums.file_bytes.min(start + STEP_BYTES);
            let step = start..end;
            self.read(location, &sums, &[step]).await?;
            start = end;
        }
        Ok(true)
    }

    fn damaged(&self, location: &Path, problem: String) -> object_store::Error {
        let path = format!("{}/{location}", self.place);
        let source = Box::new(Damaged { path, problem });
        object_store::Error::Generic { store: "table", source }
    }

    /// Replaces the error of a missing file by one with its path; other errors stay.
    fn named(&self, location: &Path, error: object_store::Error) -> object_store::Error {
        match error {
            object_store::Error::NotFound { .. } => {
                self.damaged(location, "it is missing".to_owned())
            }
            error => error,
        }
    }

    /// The checksums of a data file; `None` if it has none, or is no data file.
    async fn sums(&self, location: &Path) -> Result<Option<Arc<Sums>>> {
        if !location.as_ref().ends_with(".parquet") || location.as_ref().starts_with('_') {
            return Ok(None);
        }
        if let Some(sums) = self.kept.lock().files.get(location) {
            return Ok(sums.clone());
        }
        let sums = self.load(location).await?;
        self.kept.lock().insert(location, sums.clone());
        Ok(sums)
    }

    async fn load(&self, location: &Path) -> Result<Option<Arc<Sums>>> {
        let named = |error| self.named(location, error);
        // The size comes with the end of the file: in a bucket, every request is a round trip.
        let end = GetOptions { range: Some(GetRange::Suffix(TAIL_BYTES)), ..GetOptions::default() };
        let end = self.inner.get_opts(location, end).await.map_err(named)?;
        let file_bytes = end.meta.size;
        if file_bytes == 0 {
            return Err(self.damaged(location, "it is empty".to_owned()));
        }
        let mut tail = end.bytes().await.map_err(named)?;
        let mut tail_bytes = TAIL_BYTES.min(file_bytes);
        loop {
            match Sums::read(&tail, file_bytes) {
                Ok(Trailer::Sums(sums)) => return Ok(Some(Arc::new(sums))),
                Ok(Trailer::None) => return Ok(None),
                Ok(Trailer::NeedsBytes(bytes)) if bytes > tail_bytes && bytes <= file_bytes => {
                    tail_bytes = bytes;
                    let range = file_bytes - tail_bytes..file_bytes;
                    tail = self.inner.get_range(location, range).await.map_err(named)?;
                }
                Ok(Trailer::NeedsBytes(_)) => {
                    return Err(self.damaged(location, "its footer has no end".to_owned()));
                }
                Err(problem) => return Err(self.damaged(location, problem)),
            }
        }
    }

    /// Reads ranges and verifies all blocks that they touch, each block once.
    async fn read(
        &self,
        location: &Path,
        sums: &Sums,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        if let Some(range) = ranges.iter().find(|range| range.end > sums.file_bytes) {
            let bytes = sums.file_bytes;
            let problem = format!("it has {bytes} bytes, and byte {} is wanted", range.end);
            return Err(self.damaged(location, problem));
        }
        let mut spans: Vec<Range<u64>> = ranges.iter().map(|range| sums.widened(range)).collect();
        spans.sort_unstable_by_key(|span| span.start);
        spans.dedup_by(|next, span| {
            let joins = next.start <= span.end;
            if joins {
                span.end = span.end.max(next.end);
            }
            joins
        });
        let read = self.inner.get_ranges(location, &spans).await;
        let read = read.map_err(|error| self.named(location, error))?;
        for (span, bytes) in spans.iter().zip(&read) {
            sums.check(span.start, bytes).map_err(|problem| self.damaged(location, problem))?;
        }
        let wanted = ranges.iter().map(|range| {
            let at = spans.partition_point(|span| span.start <= range.start).saturating_sub(1);
            let (span, bytes) = spans.get(at).zip(read.get(at))?;
            let start = usize::try_from(range.start.checked_sub(span.start)?).ok()?;
            let end = usize::try_from(range.end.checked_sub(span.start)?).ok()?;
            let wanted = bytes.get(start..end)?;
            Some(match bytes.len() <= COPIED_MAX_BYTES {
                true => Bytes::copy_from_slice(wanted),
                false => bytes.slice(start..end),
            })
        });
        let wanted: Option<Vec<Bytes>> = wanted.collect();
        wanted.ok_or_else(|| self.damaged(location, "it is shorter than it was".to_owned()))
    }
}

impl fmt::Display for CheckedStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CheckedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CheckedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return self.inner.get_opts(location, options).await;
        }
        let Some(sums) = self.sums(location).await? else {
            return self.inner.get_opts(location, options).await;
        };
        let wanted = options.range.clone();
        let head = GetOptions { head: true, range: None, ..options };
        let head = self.inner.get_opts(location, head).await?;
        let range = match wanted {
            Some(range) => range.as_range(sums.file_bytes).map_err(|source| {
                object_store::Error::Generic { store: "table", source: Box::new(source) }
            })?,
            None => 0..sums.file_bytes,
        };
        let (store, path) = (self.clone(), location.clone());
        let steps = stream::try_unfold(range.clone(), move |rest| {
            let (store, path, sums) = (store.clone(), path.clone(), Arc::clone(&sums));
            async move {
                if rest.is_empty() {
                    return Ok(None);
                }
                let step = rest.start..rest.end.min(rest.start + STEP_BYTES);
                let rest = step.end..rest.end;
                let read = store.read(&path, &sums, &[step]).await?;
                Ok(Some((read.into_iter().next().unwrap_or_default(), rest)))
            }
        });
        Ok(GetResult { payload: GetResultPayload::Stream(steps.boxed()), range, ..head })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.sums(location).await? {
            Some(sums) => self.read(location, &sums, ranges).await,
            None => self.inner.get_ranges(location, ranges).await,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
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
