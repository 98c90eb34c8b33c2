//! Blocks of files on disk: [`BlockCache`], least recently used first to go, within a size and as long as the
//! disk has room. It survives restarts, needs no sync, and knows nothing of tables.
//!
//! # Files
//!
//! `<2 digits>/<hash of the file>-<number>`, and `-<size>` behind it if the size of the whole file is known:
//!
//! ```text
//! header     "weirblok", hash of the file (16), number (8), length of the block (8),
//!            CRC-32C of each 16 KiB of it (4 each, for a block of full size), CRC-32C of the header so far (4)
//! block      up to 1 MiB
//! ```
//!
//! Numbers are little-endian. A block that was torn by a power cut, or damaged since, fails its checksums, is
//! removed and read again.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use std::{fs, io};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use weir_base::telemetry::metrics::Metrics;
use weir_disk::Disk;

/// Bytes of every block of a file but its last.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes per checksum.
const PIECE_BYTES: u64 = 16 << 10;

const MAGIC: &[u8; 8] = b"weirblok";

/// Checksums in a header.
const PIECES: usize = 64;

/// Bytes of the header before its checksums, and of all of it.
const HEAD_BYTES: usize = 40;
const HEADER_BYTES: usize = HEAD_BYTES + 4 * PIECES + 4;

/// A file whose blocks are cached, by the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey(u128);

impl FileKey {
    /// The file with this path in this table.
    pub fn of(table: &str, path: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(table);
        hash.update([0_u8]);
        hash.update(path);
        let hash = hash.finalize();
        Self(hash.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes)))
    }
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockKey {
    file: FileKey,
    /// How many blocks of the file are before it.
    number: u64,
}

/// How much the cache may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all blocks.
    pub max_bytes: u64,
    /// Free bytes of the disk below which blocks are removed.
    pub free_min_bytes: u64,
}

/// A cheap handle on the cache of a directory; clones share it. All calls that name a block do I/O, and block.
#[derive(Clone, Debug)]
pub struct BlockCache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    limits: Limits,
    metrics: Arc<Metrics>,
    index: Mutex<Index>,
    /// Whether the last write failed; only the first of a row of failures is logged.
    is_failing: AtomicBool,
}

/// What is on disk.
#[derive(Debug, Default)]
struct Index {
    blocks: HashMap<BlockKey, Block>,
    /// Blocks from the least recently used on, by the time of their last use.
    by_use: BTreeMap<u64, BlockKey>,
    files: HashMap<FileKey, Known>,
    uses: u64,
    bytes: u64,
}

/// A block on disk.
#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    used: u64,
    /// The size of its file as in the name of the block.
    named_size: Option<u64>,
}

/// A file with blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    size: Option<u64>,
    blocks: u64,
}

impl Index {
    fn touch(&mut self, key: BlockKey) -> Option<Block> {
        self.uses += 1;
        let block = self.blocks.get_mut(&key)?;
        self.by_use.remove(&block.used);
        block.used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(*block)
    }

    fn insert(&mut self, key: BlockKey, bytes: u64, named_size: Option<u64>) {
        self.uses += 1;
        let block = Block { bytes, used: self.uses, named_size };
        self.blocks.insert(key, block);
        self.by_use.insert(self.uses, key);
        self.bytes += bytes;
        let known = self.files.entry(key.file).or_default();
        known.blocks += 1;
        known.size = known.size.or(named_size);
    }

    fn remove(&mut self, key: BlockKey) -> Option<Block> {
        let block = self.blocks.remove(&key)?;
        self.by_use.remove(&block.used);
        self.bytes -= block.bytes;
        if let Some(known) = self.files.get_mut(&key.file) {
            known.blocks -= 1;
            if known.blocks == 0 {
                self.files.remove(&key.file);
            }
        }
        Some(block)
    }

    fn oldest(&self) -> Option<BlockKey> {
        self.by_use.first_key_value().map(|(_, key)| *key)
    }
}

impl BlockCache {
    /// Opens the cache in a directory, which need not exist, with the blocks that are there. Blocks.
    ///
    /// # Errors
    ///
    /// The directory cannot be created or read.
    pub fn open(
        directory: &Path,
        disk: Arc<dyn Disk>,
        limits: Limits,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut found = Vec::new();
        for subdirectory in fs::read_dir(directory)? {
            let subdirectory = subdirectory?.path();
            if !subdirectory.is_dir() {
                continue;
            }
            for entry in fs::read_dir(&subdirectory)? {
                let entry = entry?;
                match entry.file_name().to_str().and_then(parsed) {
                    Some(named) => {
                        let metadata = entry.metadata()?;
                        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                        found.push((modified, named, metadata.len()));
                    }
                    // An interrupted write, or of another version of the program.
                    None => fs::remove_file(entry.path())?,
                }
            }
        }
        found.sort_unstable();
        let mut index = Index::default();
        let mut twice = Vec::new();
        for (_, (file, number, size), bytes) in found {
            let key = BlockKey { file, number };
            match index.blocks.contains_key(&key) {
                true => twice.push((key, size)),
                false => index.insert(key, bytes, size),
            }
        }
        let shared = Shared {
            directory: directory.to_path_buf(),
            disk,
            limits,
            metrics,
            index: Mutex::new(index),
            is_failing: AtomicBool::new(false),
        };
        let cache = Self { shared: Arc::new(shared) };
        for (key, size) in twice {
            fs::remove_file(cache.path(key, size))?;
        }
        cache.make_room(0);
        cache.show(&cache.shared.index.lock());
        Ok(cache)
    }

    /// The size of a file, if it is known from one of its blocks.
    pub fn size(&self, file: FileKey) -> Option<u64> {
        self.shared.index.lock().files.get(&file)?.size
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.shared.index.lock().bytes
    }

    /// Counts bytes that were not in the cache.
    pub fn missed(&self, bytes: u64) {
        self.shared.metrics.bucket_cache_miss_bytes.inc_by(bytes);
    }

    /// Reads a part of a block; `None` if it is not there, or damaged, which removes it.
    pub fn get(&self, file: FileKey, number: u64, within: &Range<u64>) -> Option<Bytes> {
        let mut bytes = Vec::with_capacity(whole_pieces(within).1);
        let own = self.append(BlockKey { file, number }, within, &mut bytes)?;
        Some(self.hit(bytes, own))
    }

    /// Reads a range of a file, whose blocks are all there, into one place; `None` if one of them is not, or damaged, which
    /// removes it.
    pub fn get_range(&self, file: FileKey, range: &Range<u64>) -> Option<Bytes> {
        {
            let index = self.shared.index.lock();
            let is_there = |number: u64| index.blocks.contains_key(&BlockKey { file, number });
            if !blocks_of(range).all(is_there) {
                return None;
            }
        }
        let (skipped, room) = whole_pieces(range);
        let mut bytes = Vec::with_capacity(room);
        for (number, within) in pieces_of(range) {
            self.append(BlockKey { file, number }, &within, &mut bytes)?;
        }
        let end =
            skipped.checked_add(usize::try_from(range.end.checked_sub(range.start)?).ok()?)?;
        (end <= bytes.len()).then(|| self.hit(bytes, skipped..end))
    }

    /// A part of what was read, which counts.
    fn hit(&self, bytes: Vec<u8>, own: Range<usize>) -> Bytes {
        let read = u64::try_from(own.len()).unwrap_or(u64::MAX);
        self.shared.metrics.bucket_cache_hit_bytes.inc_by(read);
        Bytes::from(bytes).slice(own)
    }

    /// Appends the pieces of a block that a part of it touches to `bytes`. Returns where the part is there.
    fn append(
        &self,
        key: BlockKey,
        within: &Range<u64>,
        bytes: &mut Vec<u8>,
    ) -> Option<Range<usize>> {
        let block = self.shared.index.lock().touch(key)?;
        match read(&self.path(key, block.named_size), key, within, bytes) {
            Ok(Some(own)) => Some(own),
            Ok(None) => {
                self.shared.metrics.bucket_cache_damaged.inc();
                tracing::warn!(
                    path = %self.path(key, block.named_size).display(),
                    "a block of the cache is damaged; it is read again from the bucket"
                );
                self.drop_block(key);
                None
            }
            // Evicted since, or the disk fails.
            Err(_) => {
                self.drop_block(key);
                None
            }
        }
    }

    /// Stores a block of a file, whose `size` may not be known yet. A failure leaves it out.
    pub fn put(&self, file: FileKey, number: u64, size: Option<u64>, bytes: &[u8]) {
        let key = BlockKey { file, number };
        let Some(contents) = encoded(key, bytes) else { return };
        let length = u64::try_from(contents.len()).unwrap_or(u64::MAX);
        let is_known = self.shared.index.lock().blocks.contains_key(&key);
        if is_known || !self.make_room(length) {
            return;
        }
        let written = write(&self.path(key, size), &contents);
        let has_failed = written.is_err();
        let has_failed_before = self.shared.is_failing.swap(has_failed, Ordering::Relaxed);
        match written {
            Ok(()) => {
                let mut index = self.shared.index.lock();
                // Another reader may have stored it meanwhile, under the same name or the other.
                if let Some(block) = index.blocks.get(&key) {
                    if block.named_size != size {
                        let _ = fs::remove_file(self.path(key, size));
                    }
                    return;
                }
                index.insert(key, length, size);
                self.show(&index);
            }
            Err(error) if !has_failed_before => {
                tracing::warn!(
                    %error,
                    "cannot write to the cache of data files; queries read from the bucket"
                );
            }
            Err(_) => {}
        }
    }

    /// Removes all blocks of a file.
    pub fn remove(&self, file: FileKey) {
        let size = self.size(file);
        let keys = |index: &Index| -> Vec<u64> {
            let all = size.map(|size| size.div_ceil(BLOCK_BYTES));
            match all {
                Some(all) => (0..all).collect(),
                None => {
                    let own = index.blocks.keys().filter(|key| key.file == file);
                    own.map(|key| key.number).collect()
                }
            }
        };
        let numbers = keys(&self.shared.index.lock());
        for number in numbers {
            self.drop_block(BlockKey { file, number });
        }
    }

    /// Removes the least recently used blocks until `bytes` more fit, into the size of the cache and onto the
    /// disk. `false` if they do not.
    pub fn make_room(&self, bytes: u64) -> bool {
        let Limits { max_bytes, free_min_bytes } = self.shared.limits;
        if bytes > max_bytes {
            return false;
        }
        let free = self.shared.disk.free_bytes(&self.shared.directory).unwrap_or(u64::MAX);
        let mut lacking = free_min_bytes.saturating_add(bytes).saturating_sub(free);
        loop {
            let oldest = {
                let index = self.shared.index.lock();
                let fits = index.bytes.saturating_add(bytes) <= max_bytes;
                if fits && lacking == 0 {
                    return true;
                }
                index.oldest()
            };
            let Some(oldest) = oldest else { return lacking == 0 };
            lacking = lacking.saturating_sub(self.drop_block(oldest));
        }
    }

    /// Removes a block. Returns its bytes.
    fn drop_block(&self, key: BlockKey) -> u64 {
        let removed = {
            let mut index = self.shared.index.lock();
            let removed = index.remove(key);
            self.show(&index);
            removed
        };
        let Some(block) = removed else { return 0 };
        // If that fails, the next start finds the file again.
        let _ = fs::remove_file(self.path(key, block.named_size));
        block.bytes
    }

    fn show(&self, index: &Index) {
        let bytes = i64::try_from(index.bytes).unwrap_or(i64::MAX);
        self.shared.metrics.bucket_cache_bytes.set(bytes);
    }

    fn path(&self, key: BlockKey, size: Option<u64>) -> PathBuf {
        let BlockKey { file, number } = key;
        let hash = format!("{:032x}", file.0);
        let subdirectory = hash.get(..2).unwrap_or_default().to_owned();
        let name = match size {
            Some(size) => format!("{hash}-{number}-{size}"),
            None => format!("{hash}-{number}"),
        };
        self.shared.directory.join(subdirectory).join(name)
    }
}

/// Key and size in the name of a block.
fn parsed(name: &str) -> Option<(FileKey, u64, Option<u64>)> {
    let mut parts = name.split('-');
    let hash = parts.next().filter(|hash| hash.len() == 32)?;
    let file = FileKey(u128::from_str_radix(hash, 16).ok()?);
    let number = parts.next()?.parse().ok()?;
    let size = parts.next().map(str::parse).transpose().ok()?;
    parts.next().is_none().then_some((file, number, size))
}

/// A block as in its file; `None` if it is too long.
fn encoded(key: BlockKey, bytes: &[u8]) -> Option<Vec<u8>> {
    let length = u64::try_from(bytes.len()).ok().filter(|length| *length <= BLOCK_BYTES)?;
    let piece_bytes = usize::try_from(PIECE_BYTES).ok()?;
    let mut contents = Vec::with_capacity(HEADER_BYTES + bytes.len());
    contents.extend_from_slice(MAGIC);
    contents.extend_from_slice(&key.file.0.to_le_bytes());
    contents.extend_from_slice(&key.number.to_le_bytes());
    contents.extend_from_slice(&length.to_le_bytes());
    for piece in bytes.chunks(piece_bytes) {
        contents.extend_from_slice(&crc32c::crc32c(piece).to_le_bytes());
    }
    contents.resize(HEADER_BYTES - 4, 0);
    let sum = crc32c::crc32c(&contents);
    contents.extend_from_slice(&sum.to_le_bytes());
    contents.extend_from_slice(bytes);
    Some(contents)
}

fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    // The name of a thread is its own, and two of them never write the same file at once otherwise.
    let draft = path.with_extension(format!("{:?}", std::thread::current().id()));
    if let Some(subdirectory) = path.parent() {
        fs::create_dir_all(subdirectory)?;
    }
    let written = fs::write(&draft, contents).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// The numbers of the blocks that a range of a file touches.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / BLOCK_BYTES..(range.end - 1) / BLOCK_BYTES + 1,
    }
}

/// The parts of a range of a file in each of its blocks.
pub fn pieces_of(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
    let range = range.clone();
    blocks_of(&range).map(move |number| {
        let begin = number * BLOCK_BYTES;
        let start = range.start.max(begin) - begin;
        (number, start..range.end.min(begin + BLOCK_BYTES) - begin)
    })
}

/// Bytes before a range in its first piece, and most bytes of its pieces.
fn whole_pieces(range: &Range<u64>) -> (usize, usize) {
    let skipped = range.start % PIECE_BYTES;
    let all = range.end.next_multiple_of(PIECE_BYTES).saturating_sub(range.start - skipped);
    (usize::try_from(skipped).unwrap_or(0), usize::try_from(all).unwrap_or(0))
}

/// Appends the pieces of a block that a part of it touches to `bytes`. Returns where the part is there; `None` if a checksum
/// is wrong, and then what was appended is of no use.
fn read(
    path: &Path,
    key: BlockKey,
    within: &Range<u64>,
    bytes: &mut Vec<u8>,
) -> io::Result<Option<Range<usize>>> {
    let file = File::open(path)?;
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let Some((length, sums)) = checked(&header, key) else { return Ok(None) };
    if within.end > length || within.start > within.end {
        return Ok(None);
    }
    let first = within.start / PIECE_BYTES;
    let start = first * PIECE_BYTES;
    let end = length.min(within.end.next_multiple_of(PIECE_BYTES));
    let before = bytes.len();
    let wanted = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    if !read_onto(&file, u64::try_from(HEADER_BYTES).unwrap_or(0) + start, wanted, bytes)? {
        return Ok(None);
    }
    let piece_bytes = usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX);
    let sums = sums.get(usize::try_from(first).unwrap_or(usize::MAX)..).unwrap_or_default();
    let pieces = bytes.get(before..).unwrap_or_default().chunks(piece_bytes);
    let are_right = pieces.len() <= sums.len()
        && pieces.zip(sums).all(|(piece, sum)| crc32c::crc32c(piece) == *sum);
    let own = usize::try_from(within.start - start)
        .and_then(|begin| Ok(before + begin..before + usize::try_from(within.end - start)?));
    Ok(own.ok().filter(|_| are_right))
}

/// Appends `wanted` bytes of a file to `bytes`. `false` if it has fewer.
fn read_onto(file: &File, offset: u64, wanted: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let before = bytes.len();
    bytes.reserve(wanted);
    loop {
        let have = bytes.len().saturating_sub(before);
        if have >= wanted {
            // There may be more room than was asked for, and more bytes.
            bytes.truncate(before + wanted);
            return Ok(true);
        }
        let at = offset.saturating_add(u64::try_from(have).unwrap_or(u64::MAX));
        match rustix::io::pread(file, spare_capacity(bytes), at) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The length of a block and the checksums of its pieces; `None` if the header is not that of this block.
fn checked(header: &[u8; HEADER_BYTES], key: BlockKey) -> Option<(u64, Vec<u32>)> {
    let (summed, sum) = header.split_last_chunk::<4>()?;
    if crc32c::crc32c(summed) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (head, sums) = summed.split_at_checked(HEAD_BYTES)?;
    let (magic, head) = head.split_first_chunk::<8>()?;
    let (file, head) = head.split_first_chunk::<16>()?;
    let (number, head) = head.split_first_chunk::<8>()?;
    let (length, _) = head.split_first_chunk::<8>()?;
    let file = FileKey(u128::from_le_bytes(*file));
    let found = BlockKey { file, number: u64::from_le_bytes(*number) };
    let (sums, _) = sums.as_chunks::<4>();
    let sums = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
    (magic == MAGIC && found == key).then(|| (u64::from_le_bytes(*length), sums))
}
