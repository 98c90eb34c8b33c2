//! Sparse set of persons of all projects: [`PersonSet`].

use std::collections::BTreeMap;
use std::ops::Range;

use weir_event::id::ProjectId;

/// Bits per word.
const WORD: i64 = 64;

/// A person in the order of projects and, within a project, of numbers.
pub type PersonKey = (ProjectId, i64);

/// A set of persons. Takes about 40 bytes for each 64 neighbouring numbers of a project that it has any of.
#[derive(Clone, Debug, Default)]
pub struct PersonSet {
    /// The bits of 64 numbers by project and number of the word.
    words: BTreeMap<(ProjectId, i64), u64>,
}

impl PersonSet {
    /// Adds a person.
    pub fn insert(&mut self, (project, number): PersonKey) {
        let bit = 1 << number.rem_euclid(WORD);
        *self.words.entry((project, number.div_euclid(WORD))).or_default() |= bit;
    }

    /// Adds the persons of another set.
    pub fn insert_all(&mut self, other: Self) {
        for (key, bits) in other.words {
            *self.words.entry(key).or_default() |= bits;
        }
    }

    /// Whether a person is in it.
    pub fn contains(&self, (project, number): PersonKey) -> bool {
        let word = self.words.get(&(project, number.div_euclid(WORD)));
        word.is_some_and(|bits| bits >> number.rem_euclid(WORD) & 1 == 1)
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The number of words: its memory.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The persons in a range, ascending.
    pub fn within(&self, range: &Range<PersonKey>) -> impl Iterator<Item = PersonKey> {
        self.words_within(range).flat_map(|((project, word), bits)| {
            let is_set = move |bit: &i64| bits >> bit & 1 == 1;
            (0..WORD).filter(is_set).map(move |bit| (project, word * WORD + bit))
        })
    }

    /// How many persons are in a range.
    pub fn count(&self, range: &Range<PersonKey>) -> u64 {
        self.words_within(range).map(|(_, bits)| u64::from(bits.count_ones())).sum()
    }

    /// Removes the persons of a range, and returns them.
    pub fn take(&mut self, range: &Range<PersonKey>) -> Self {
        let words: BTreeMap<_, _> = self.words_within(range).collect();
        for (key, taken) in &words {
            if let Some(bits) = self.words.get_mut(key) {
                *bits &= !taken;
                if *bits == 0 {
                    self.words.remove(key);
                }
            }
        }
        Self { words }
    }

    /// The words of a range, without bits outside of it.
    fn words_within(
        &self,
        range: &Range<PersonKey>,
    ) -> impl Iterator<Item = ((ProjectId, i64), u64)> + use<'_> {
        let Range { start, end } = range.clone();
        let word = |(project, number): PersonKey| (project, number.div_euclid(WORD));
        // A range of the map must not end before it begins.
        let words = (start < end).then(|| self.words.range(word(start)..=word(end)));
        words.into_iter().flatten().filter_map(move |(key, bits)| {
            let (project, first) = (key.0, key.1 * WORD);
            // The bits of the numbers from `number` on, if that is in this project.
            let from = |(of, number): PersonKey| match of == project {
                true => u32::try_from(number.saturating_sub(first).clamp(0, WORD)).ok(),
                false => None,
            };
            let above = |bit: u32| u64::MAX.checked_shl(bit).unwrap_or(0);
            let own = bits & from(start).map_or(u64::MAX, above) & !from(end).map_or(0, above);
            (own != 0).then_some((*key, own))
        })
    }
}

impl FromIterator<PersonKey> for PersonSet {
    fn from_iter<T: IntoIterator<Item = PersonKey>>(places: T) -> Self {
        let mut all = Self::default();
        places.into_iter().for_each(|place| all.insert(place));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::proptest;

    use super::{PersonKey, PersonSet};
    use weir_event::id::ProjectId;

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        /// Goal: it is the set, whatever part of it is looked at or taken.
        #[test]
        fn is_the_set(
            places in proptest::collection::vec((1..4_i64, 0..300_i64), 0..60),
            bounds in proptest::collection::vec((0..5_i64, 0..320_i64), 2..8),
        ) {
            let place = |(project, number): (i64, i64)| (ProjectId(project), number);
            let model: BTreeSet<PersonKey> = places.iter().copied().map(place).collect();
            let set: PersonSet = model.iter().copied().collect();
            let all = (ProjectId(i64::MIN), i64::MIN)..(ProjectId(i64::MAX), i64::MAX);
            for ends in bounds.windows(2) {
                let range = place(ends[0])..place(ends[1]);
                let inside: Vec<PersonKey> =
                    model.iter().copied().filter(|place| range.contains(place)).collect();
                assert!(set.within(&range).eq(inside.iter().copied()));
                assert!(ends.iter().all(|end| set.contains(place(*end)) == model.contains(&place(*end))));
                assert_eq!(set.count(&range), u64::try_from(inside.len()).unwrap());
                let mut rest = set.clone();
                let taken = rest.take(&range);
                assert!(taken.within(&all).eq(inside.iter().copied()));
                assert_eq!(rest.count(&range), 0);
                assert_eq!(taken.is_empty(), inside.is_empty());
                rest.insert_all(taken);
                assert!(rest.within(&all).eq(model.iter().copied()));
                assert!(rest.words() == set.words());
            }
        }
    }
}
