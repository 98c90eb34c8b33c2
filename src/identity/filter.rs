//! [`Filter`]: a Bloom filter of fixed size that many threads ask while one adds to it.
//!
//! # Why
//!
//! Most persons were never merged, and each is asked for with every event of theirs that a question
//! reads. Here that costs one cache line instead of a look-up in the database, which has filters of its
//! own but in files, one to a level. The size stays as it is: with very many entries it says "maybe"
//! more often, and the database is asked.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// Bits of an entry, all within one line of 512.
const BITS: u32 = 5;

/// Words of a line.
const LINE_WORDS: usize = 8;

/// What an entry is hashed to, by a hasher that nobody outside of the process can foresee.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(pub(super) u64);

/// A set of hashes that may seem to have more than it has, never less.
#[derive(Debug)]
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// Of so many bytes, at least of one line.
    pub(super) fn new(bytes: u64) -> Self {
        let lines = usize::try_from(bytes).unwrap_or(usize::MAX) / (LINE_WORDS * 8);
        let words = lines.max(1).saturating_mul(LINE_WORDS);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The line of an entry, and its bits there: word by word, nine bits of the hash each.
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

    /// `false` if the entry was never added before the caller last met who adds.
    pub(super) fn may_have(&self, hash: Hash) -> bool {
        self.places(hash).all(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::quality::RandomState;

    use super::Filter;
    use super::Hash;

    /// Goal: no entry is missed, and few others are taken for one, until there are far too many.
    #[test]
    fn entries_are_found_and_others_hardly_ever() {
        let hasher = RandomState::default();
        let hash = |number: u64| Hash(hasher.hash_one(number));
        // Ten bits an entry, then one.
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
