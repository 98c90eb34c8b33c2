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
        let word = number / WORD;
        if word >= self.words.len() {
            // Grown a little ahead, not doubled: the largest of these sets grow by one at a time.
            let wanted = word + 1;
            let ahead = wanted.saturating_add(wanted / 8);
            self.words.reserve_exact(ahead.saturating_sub(self.words.len()));
            self.words.resize(wanted, 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            *word |= 1 << (number % WORD);
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
        }
    }
}
