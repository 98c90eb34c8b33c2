//! Bitmap: a set of small numbers.

use std::ops::Range;

/// Bits per word.
const WORD: usize = 64;

/// A set of numbers from 0. Takes one bit for each number up to the largest.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// Adds a number.
    pub fn insert(&mut self, number: usize) {
        self.put(number / WORD, 1 << (number % WORD));
    }

    /// Adds the numbers of another set, each increased by `more`.
    pub fn insert_all(&mut self, other: &Self, more: usize) {
        let (words, bits) = (more / WORD, more % WORD);
        for (at, word) in other.words.iter().enumerate() {
            self.put(words + at, word << bits);
            // The bits shifted out of the word; none without a shift.
            let beyond = word.checked_shr(u32::try_from(WORD - bits).unwrap_or(0)).unwrap_or(0);
            if beyond != 0 {
                self.put(words + at + 1, beyond);
            }
        }
    }

    /// Adds the numbers of a word.
    fn put(&mut self, at: usize, bits: u64) {
        if at >= self.words.len() {
            // Grown by an eighth, not doubled: the largest of these sets grow by one number at a
            // time.
            let wanted = at + 1;
            let ahead = wanted.saturating_add(wanted / 8);
            self.words.reserve_exact(ahead.saturating_sub(self.words.len()));
            self.words.resize(wanted, 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            *word |= bits;
        }
    }

    /// Removes a number.
    pub fn remove(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / WORD) {
            *word &= !(1 << (number % WORD));
        }
    }

    /// Adds or removes a number.
    pub fn set(&mut self, number: usize, is_in: bool) {
        if is_in { self.insert(number) } else { self.remove(number) }
    }

    /// Whether the set contains a number.
    pub fn contains(&self, number: usize) -> bool {
        self.words.get(number / WORD).is_some_and(|word| word >> (number % WORD) & 1 == 1)
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or(0)).sum()
    }

    /// The elements, ascending; from the back descending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> {
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..WORD).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * WORD + bit)
        })
    }

    /// The elements in `range`, ascending.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let first = range.start / WORD;
        let words = self.words.iter().enumerate().skip(first);
        let words = words.take(range.end.div_ceil(WORD).saturating_sub(first));
        let bits = words.filter(|(_, word)| **word != 0).flat_map(|(at, word)| {
            (0..WORD).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * WORD + bit)
        });
        bits.filter(move |number| range.contains(number))
    }

    /// The bits, 64 numbers to a word, the smallest in the lowest bit.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Appends such words.
    pub fn extend(&mut self, words: &[u64]) {
        self.words.extend_from_slice(words);
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.words.capacity().saturating_mul(WORD / 8)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::any;
    use proptest::proptest;

    use super::Bitmap;

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        #[test]
        fn is_the_set(changes in proptest::collection::vec((0..300_usize, any::<bool>()), 0..60)) {
            let (mut bits, mut set) = (Bitmap::default(), BTreeSet::new());
            for (number, is_in) in changes {
                bits.set(number, is_in);
                if is_in { set.insert(number) } else { set.remove(&number) };
            }
            assert_eq!(bits.iter().collect::<BTreeSet<_>>(), set);
            assert!(bits.iter().rev().eq(set.iter().rev().copied()));
            assert_eq!(bits.count(), set.len());
            for range in [0..320, 1..64, 63..65, 64..129, 200..200, 290..9000] {
                assert!(bits.within(range.clone()).eq(set.range(range).copied()));
            }
            assert!((0..320).all(|number| bits.contains(number) == set.contains(&number)));
            for more in [0, 1, 63, 64, 65, 300] {
                let mut both = bits.clone();
                both.insert_all(&bits, more);
                let shifted = set.iter().map(|number| number + more);
                assert!(both.iter().eq(set.iter().copied().chain(shifted).collect::<BTreeSet<_>>()));
            }
        }
    }
}
