//! [`Filter`]: a Bloom filter of fixed size, which one thread adds to while others read it.
//!
//! # Why
//!
//! Most persons were never merged, and a query looks up the person of each event that it reads. The
//! filter makes that one cache line instead of a look-up in the database, which has filters of its
//! own but in files, one per level. The size is fixed: with very many entries there are more false
//! positives, and those are looked up in the database.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits per entry, all within one line of 512 bits.
const BITS: u32 = 5;

/// Words of a line.
const LINE_WORDS: usize = 8;

/// Hash of an entry, by a hasher that nobody outside of the process can predict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(pub(super) u64);

/// A set of hashes with false positives and without false negatives.
#[derive(Debug)]
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// A filter of `bytes`, at least of one line.
    pub(super) fn new(bytes: u64) -> Self {
        let lines = usize::try_from(bytes).unwrap_or(usize::MAX) / (LINE_WORDS * 8);
        let words = lines.max(1).saturating_mul(LINE_WORDS);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The words and bits of an entry, all in one line: nine bits of the hash for each.
    fn places(&self, hash: Hash) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let lines = (self.words.len() / LINE_WORDS).max(1);
        // The upper half chooses the line, the lower half the bits.
        let line = usize::try_from(hash.0 >> 32).unwrap_or(0) % lines;
        let words = self.words.get(line * LINE_WORDS..).unwrap_or_default();
        let spread = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..BITS).filter_map(move |bit| {
            let nine = (spread >> (bit * 9)) & 0x1ff;
            let word = words.get(usize::try_from(nine >> 6).unwrap_or(0))?;
            Some((word, 1 << (nine & 63)))
        })
    }

    /// Adds an entry.
    pub(super) fn insert(&self, hash: Hash) {
        self.places(hash).for_each(|(word, bit)| {
            word.fetch_or(bit, Ordering::Relaxed);
        });
    }

    /// `false` if the entry was not added before the caller last synchronised with the writer.
    pub(super) fn may_have(&self, hash: Hash) -> bool {
        self.places(hash).all(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::quality::RandomState;

    use super::{Filter, Hash};

    /// Goal: no false negatives, and few false positives until the filter is far too full.
    #[test]
    fn entries_are_found_and_others_hardly_ever() {
        let hasher = RandomState::default();
        let hash = |number: u64| Hash(hasher.hash_one(number));
        // Ten bits per entry, then one.
        for (entries, most) in [(100_000, 3_000), (1_000_000, 100_000)] {
            let filter = Filter::new(125_000);
            (0..entries).for_each(|number| filter.insert(hash(number)));
            assert!((0..entries).all(|number| filter.may_have(hash(number))));
            let wrong = (0..100_000).filter(|number| filter.may_have(hash(u64::MAX - number)));
            let wrong = wrong.count();
            println!("{wrong} of 100000 are wrong with {entries} entries");
            assert!(wrong <= most, "{wrong}");
        }
        assert!(!Filter::new(0).may_have(hash(1)));
    }
}
