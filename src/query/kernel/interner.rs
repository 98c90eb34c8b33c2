//! String interner: [`Interner`]. Maps each distinct text to a number; the texts are stored once, concatenated.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

/// Distinct texts, numbered from 0 in the order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    all: String,
    /// End offset of each text in `all`.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Interner {
    /// An empty interner with the same hash function.
    pub(crate) fn emptied(&self) -> Self {
        Self { hasher: self.hasher.clone(), ..Self::default() }
    }

    /// The hash of a text; it differs from process to process.
    pub(crate) fn hash(&self, text: &str) -> u64 {
        self.hasher.hash_one(text)
    }

    /// The number of a text with this hash, which is added if it is new; `None` if the numbers are exhausted.
    pub(crate) fn insert(&mut self, text: &str, hash: u64) -> Option<u32> {
        let Self { all, ends, numbers, hasher } = self;
        let of = |number: u32| text_at(all, ends, number).unwrap_or_default();
        if let Some(number) = numbers.find(hash, |number| of(*number) == text) {
            return Some(*number);
        }
        let number = u32::try_from(ends.len()).ok().filter(|number| *number != u32::MAX)?;
        numbers.insert_unique(hash, number, |number| hasher.hash_one(of(*number)));
        all.push_str(text);
        ends.push(all.len());
        Some(number)
    }

    /// The text of a number.
    pub fn get(&self, number: u32) -> Option<&str> {
        text_at(&self.all, &self.ends, number)
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        // A hash table takes one control byte per slot besides the value.
        let table = self.numbers.capacity().saturating_mul(size_of::<u32>() + 1) * 8 / 7;
        self.all.capacity() + self.ends.capacity() * size_of::<usize>() + table
    }
}

fn text_at<'t>(all: &'t str, ends: &[usize], number: u32) -> Option<&'t str> {
    let at = usize::try_from(number).ok()?;
    let start = match at.checked_sub(1) {
        Some(before) => *ends.get(before)?,
        None => 0,
    };
    all.get(start..*ends.get(at)?)
}

#[cfg(test)]
mod tests {
    use super::Interner;

    #[test]
    fn each_text_has_one_number() {
        let mut interner = Interner::default();
        let texts = ["a", "", "long text", "a", "", "b"];
        let numbers: Vec<u32> =
            texts.iter().map(|text| interner.insert(text, interner.hash(text)).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 1, 3]);
        for (text, number) in texts.iter().zip(numbers) {
            assert_eq!(interner.get(number), Some(*text));
        }
        assert_eq!((interner.len(), interner.get(4)), (4, None));
        assert!(interner.emptied().is_empty());
        assert_eq!(interner.emptied().hash("a"), interner.hash("a"));
        assert!(interner.bytes() >= 11);
    }
}
