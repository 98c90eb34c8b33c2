//! A set of small numbers as bits.

use std::ops::Range;

/// Bits of a word.
const WORD: usize = 64;

/// A set of numbers from 0; takes an eighth of a byte for each up to the largest.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Puts a number in.
    pub fn insert(&mut self, number: usize) {
        self.put(number / WORD, 1 << (number % WORD));
    }

    /// Puts the numbers of another set in, each larger by `more`.
    pub fn insert_all(&mut self, other: &Self, more: usize) {
        let (words, bits) = (more / WORD, more % WORD);
        for (at, word) in other.words.iter().enumerate() {
            self.put(words + at, word << bits);
            // What is shifted beyond the word; nothing is if it is not shifted.
            let beyond = word.checked_shr(u32::try_from(WORD - bits).unwrap_or(0)).unwrap_or(0);
            if beyond != 0 {
                self.put(words + at + 1, beyond);
            }
        }
    }

    /// Puts the numbers of a word in.
    fn put(&mut self, at: usize, bits: u64) {
        if at >= self.words.len() {
            // Grown a little ahead, not doubled: the largest of these sets grow by one at a time.
            let wanted = at + 1;
            let ahead = wanted.saturating_add(wanted / 8);
            self.words.reserve_exact(ahead.saturating_sub(self.words.len()));
            self.words.resize(wanted, 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            *word |= bits;
        }
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / WORD) {
            *word &= !(1 << (number % WORD));
        }
    }

    /// Puts a number in or takes it out.
    pub fn set(&mut self, number: usize, is_in: bool) {
        if is_in { self.insert(number) } else { self.remove(number) }
    }

    /// Whether a number is in.
    pub fn contains(&self, number: usize) -> bool {
        self.words.get(number / WORD).is_some_and(|word| word >> (number % WORD) & 1 == 1)
    }

    /// How many are in.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or(0)).sum()
    }

    /// Those that are in, rising; from the back falling.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> {
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..WORD).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * WORD + bit)
        })
    }

    /// Those of `range` that are in, rising.
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

    /// Adds words of such bits at the end.
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

    use super::Bits;

    proptest! {
        #[test]
        fn is_the_set(changes in proptest::collection::vec((0..300_usize, any::<bool>()), 0..60)) {
            let (mut bits, mut set) = (Bits::default(), BTreeSet::new());
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
