//! Contents of one simulated file: cached and durable bytes, and the unsynced writes between them.

use std::collections::BTreeMap;
use std::io;
use std::time::SystemTime;

use crate::disk::Survival;

/// Bytes that a drive writes atomically: the smallest sector in use.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct SimFile {
    /// The cached bytes, which every process reads.
    pub(super) contents: Vec<u8>,
    /// The bytes that are certain to survive a power cut.
    durable: Vec<u8>,
    /// Writes that are cached and not durable, oldest first.
    unsynced: Vec<Write>,
    pub(super) modified: SystemTime,
}

/// Bytes at an offset, and the length of the file after the write. An allocation has no bytes.
#[derive(Clone, Debug)]
struct Write {
    offset: usize,
    bytes: Vec<u8>,
    len_after: usize,
    /// Whether the next sync will write it: false once a sync has failed.
    is_dirty: bool,
}

impl Write {
    fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes.len())
    }

    /// The sectors that it touches, as byte ranges.
    fn sectors(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let first = self.offset / SECTOR_BYTES;
        let after_last =
            if self.bytes.is_empty() { first } else { self.end().div_ceil(SECTOR_BYTES) };
        (first..after_last).map(|sector| (sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES))
    }
}

impl SimFile {
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize, modified: SystemTime) {
        let end = offset.saturating_add(bytes.len());
        if !bytes.is_empty() && end > self.contents.len() {
            extend_to(&mut self.contents, end);
        }
        copy_at(&mut self.contents, offset, bytes);
        self.modified = modified;
        self.push(offset, bytes.to_vec());
    }

    pub(super) fn grow(&mut self, len: usize) {
        if len > self.contents.len() {
            extend_to(&mut self.contents, len);
            self.push(0, Vec::new());
        }
    }

    fn push(&mut self, offset: usize, bytes: Vec<u8>) {
        let len_after = self.contents.len();
        self.unsynced.push(Write { offset, bytes, len_after, is_dirty: true });
    }

    pub(super) fn sync(&mut self) {
        extend_to(&mut self.durable, self.contents.len());
        let writes = std::mem::take(&mut self.unsynced);
        for (from, to) in writes.iter().filter(|write| write.is_dirty).flat_map(Write::sectors) {
            let to = to.min(self.contents.len());
            copy_at(&mut self.durable, from, self.contents.get(from..to).unwrap_or_default());
        }
    }

    pub(super) fn forget_dirt(&mut self) {
        for write in &mut self.unsynced {
            write.is_dirty = false;
        }
    }

    /// A file without unsynced writes.
    pub(super) fn settled(contents: Vec<u8>, modified: SystemTime) -> Self {
        Self { durable: contents.clone(), contents, unsynced: Vec::new(), modified }
    }

    pub(super) fn surviving(&self, survival: Survival, random: &mut Random) -> Vec<u8> {
        match survival {
            Survival::Lose => self.durable.clone(),
            Survival::Keep => self.contents.clone(),
            Survival::Mixed(_) => self.mixed(random),
        }
    }

    fn mixed(&self, random: &mut Random) -> Vec<u8> {
        let mut lengths = vec![self.durable.len()];
        let mut sectors: BTreeMap<(usize, usize), Vec<&Write>> = BTreeMap::new();
        for write in &self.unsynced {
            lengths.push(write.len_after);
            for sector in write.sectors() {
                sectors.entry(sector).or_default().push(write);
            }
        }
        let mut found = self.durable.clone();
        extend_to(&mut found, self.contents.len());
        for ((from, to), writes) in sectors {
            let kept = random.below(writes.len() + 1);
            for write in writes.into_iter().take(kept) {
                let (from, to) = (from.max(write.offset), to.min(write.end()));
                let bytes = write.bytes.get(from - write.offset..to.saturating_sub(write.offset));
                copy_at(&mut found, from, bytes.unwrap_or_default());
            }
        }
        let length = lengths.get(random.below(lengths.len())).copied().unwrap_or_default();
        found.truncate(length);
        found
    }
}

/// `SplitMix64` (Steele, Lea, Flood, 2014): small, and the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = to_u64(bound).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

/// Extends `contents` to at least `len` bytes. Not `resize`, which copies byte by byte without
/// optimization: tests of thousands of disks spend most of their time here.
fn extend_to(contents: &mut Vec<u8>, len: usize) {
    contents.extend_from_slice(&vec![0; len.saturating_sub(contents.len())]);
}

/// Copies `bytes` into `contents` where they fit.
pub(super) fn copy_at(contents: &mut [u8], offset: usize, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len());
    if let Some(place) = contents.get_mut(offset..end) {
        place.copy_from_slice(bytes);
    }
}

pub(super) fn to_usize(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

pub(super) fn to_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
