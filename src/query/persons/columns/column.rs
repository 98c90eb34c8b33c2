//! The values of one property for all persons of a project: each different value once, and for each
//! person which one. A person is known by its place here, from 0.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use serde_json::Value;

use weir_identity::bitmap::Bitmap;
use weir_identity::{IdentityError, row};

/// Why a column cannot be: its values are too many, or too long together, for what points to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The code of persons without the property. Values have codes from 1.
const NONE: u32 = 0;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Column {
    codes: Codes,
    values: Dictionary,
}

impl Column {
    /// Makes room for so many persons more, as long as they have no new values.
    pub(super) fn reserve(&mut self, persons: usize) {
        match &mut self.codes {
            Codes::Narrow(all) => all.reserve_exact(persons),
            Codes::Medium(all) => all.reserve_exact(persons),
            Codes::Wide(all) => all.reserve_exact(persons),
        }
    }

    /// Adds a person, who has this value, compact JSON, or none.
    pub(super) fn push(&mut self, json: Option<&str>) -> Result<(), TooLarge> {
        let code = self.values.code(json)?;
        self.values.count(code, 1);
        self.codes.push(code);
        Ok(())
    }

    /// Gives a person another value.
    pub(super) fn set(&mut self, place: usize, json: Option<&str>) -> Result<(), TooLarge> {
        let (old, new) = (self.codes.get(place), self.values.code(json)?);
        if old != new {
            self.values.uncount(old);
            self.values.count(new, 1);
            self.codes.set(place, new);
        }
        Ok(())
    }

    /// Adds the persons of another column behind those of this one; where they are is told by `places`
    /// of that column, `None` for such as have nothing there.
    pub(super) fn append(
        &mut self,
        other: &Self,
        places: impl Iterator<Item = Option<usize>>,
    ) -> Result<(), TooLarge> {
        // What each of the other's codes is here; asked for once it is met.
        let mut known = vec![None; other.values.len().saturating_add(1)];
        for place in places {
            let theirs = place.map_or(NONE, |place| other.codes.get(place));
            let ours = match known.get(index(theirs)).copied().flatten() {
                Some(ours) => ours,
                None => {
                    let ours = self.values.code(other.values.get(theirs))?;
                    if let Some(slot) = known.get_mut(index(theirs)) {
                        *slot = Some(ours);
                    }
                    ours
                }
            };
            self.values.count(ours, 1);
            self.codes.push(ours);
        }
        Ok(())
    }

    /// Adds persons, who have no value or one of `texts`, told by its place there.
    pub(super) fn extend(
        &mut self,
        texts: &[&str],
        places: impl Iterator<Item = Option<usize>>,
    ) -> Result<(), TooLarge> {
        let codes: Result<Vec<u32>, TooLarge> =
            texts.iter().map(|text| self.values.code(Some(text))).collect();
        let codes = codes?;
        for place in places {
            let code = place.and_then(|place| codes.get(place)).copied().unwrap_or(NONE);
            self.values.count(code, 1);
            self.codes.push(code);
        }
        Ok(())
    }

    /// Different values, those included that nobody has any more.
    pub(super) fn different(&self) -> usize {
        self.values.len()
    }

    /// The codes whose values satisfy `test`, which is asked once for each; that of no value is 0. They
    /// are not all there once `stop` is set: a test may take long.
    pub(super) fn codes_where(
        &self,
        stop: &AtomicBool,
        mut test: impl FnMut(Option<&Value>) -> bool,
    ) -> Result<Bitmap, IdentityError> {
        self.codes_where_json(stop, |json| {
            let value = json.map(row::value).transpose()?;
            Ok(test(value.as_ref()))
        })
    }

    /// The same for a test that reads values itself, which are compact JSON.
    pub(super) fn codes_where_json(
        &self,
        stop: &AtomicBool,
        mut test: impl FnMut(Option<&str>) -> Result<bool, IdentityError>,
    ) -> Result<Bitmap, IdentityError> {
        let mut codes = Bitmap::default();
        codes.set(index(NONE), test(None)?);
        for code in 1..=self.values.len() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let code = u32::try_from(code).unwrap_or(NONE);
            // A value that nobody has any more has no persons to be found.
            if self.values.counted(code) > 0
                && let Some(json) = self.values.get(code)
            {
                codes.set(index(code), test(Some(json))?);
            }
        }
        Ok(codes)
    }

    /// Whether the code at each of 64 places from `first` is in `codes`, as bits.
    pub(super) fn word(&self, codes: &Bitmap, first: usize) -> u64 {
        match &self.codes {
            Codes::Narrow(all) => word(all, codes, first),
            Codes::Medium(all) => word(all, codes, first),
            Codes::Wide(all) => word(all, codes, first),
        }
    }

    /// How many of the persons at `places` have each value. The most frequent is the first.
    pub(super) fn counts(
        &self,
        places: impl Iterator<Item = usize>,
    ) -> Result<Vec<(Value, usize)>, IdentityError> {
        // The persons are few beside all the values that there may be.
        let mut counts: HashMap<u32, usize, RandomState> = HashMap::default();
        for place in places {
            *counts.entry(self.codes.get(place)).or_default() += 1;
        }
        let mut counts: Vec<(u32, usize)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
        let known = |(code, count)| Some((self.values.get(code)?, count));
        let found = counts.into_iter().filter_map(known);
        found.map(|(json, count)| Ok((row::value(json)?, count))).collect()
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.codes.memory().saturating_add(self.values.memory())
    }
}

fn word<C: Copy + Into<u32>>(all: &[C], codes: &Bitmap, first: usize) -> u64 {
    let end = first.saturating_add(64).min(all.len());
    let own = all.get(first..end).unwrap_or_default().iter().enumerate();
    own.fold(0, |word, (bit, code)| word | u64::from(codes.contains(index((*code).into()))) << bit)
}

fn index(code: u32) -> usize {
    usize::try_from(code).unwrap_or(usize::MAX)
}

/// A code for each place, as wide as the largest needs.
#[derive(Debug)]
enum Codes {
    Narrow(Vec<u8>),
    Medium(Vec<u16>),
    Wide(Vec<u32>),
}

impl Default for Codes {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl Codes {
    fn get(&self, place: usize) -> u32 {
        match self {
            Self::Narrow(all) => all.get(place).copied().map_or(NONE, u32::from),
            Self::Medium(all) => all.get(place).copied().map_or(NONE, u32::from),
            Self::Wide(all) => all.get(place).copied().unwrap_or(NONE),
        }
    }

    fn push(&mut self, code: u32) {
        self.widen(code);
        match self {
            Self::Narrow(all) => push(all, code.try_into().unwrap_or_default()),
            Self::Medium(all) => push(all, code.try_into().unwrap_or_default()),
            Self::Wide(all) => push(all, code),
        }
    }

    fn set(&mut self, place: usize, code: u32) {
        self.widen(code);
        match self {
            Self::Narrow(all) => set(all, place, code.try_into().unwrap_or_default()),
            Self::Medium(all) => set(all, place, code.try_into().unwrap_or_default()),
            Self::Wide(all) => set(all, place, code),
        }
    }

    fn widen(&mut self, code: u32) {
        if let Self::Narrow(all) = self
            && u8::try_from(code).is_err()
        {
            *self = Self::Medium(all.iter().copied().map(u16::from).collect());
        }
        if let Self::Medium(all) = self
            && u16::try_from(code).is_err()
        {
            *self = Self::Wide(all.iter().copied().map(u32::from).collect());
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Narrow(all) => all.capacity(),
            Self::Medium(all) => all.capacity().saturating_mul(2),
            Self::Wide(all) => all.capacity().saturating_mul(4),
        }
    }
}

/// Adds to a long vector, which grows by an eighth: to double it would take as much as another.
pub(super) fn push<T>(all: &mut Vec<T>, item: T) {
    if all.len() == all.capacity() {
        all.reserve_exact((all.len() / 8).max(1024));
    }
    all.push(item);
}

fn set<T>(all: &mut [T], place: usize, code: T) {
    if let Some(own) = all.get_mut(place) {
        *own = code;
    }
}

/// Texts by code, from 1, and how many persons have each.
#[derive(Debug, Default)]
struct Dictionary {
    text: String,
    /// Where each text ends.
    ends: Vec<u32>,
    counts: Vec<u32>,
    codes: HashTable<u32>,
    hasher: RandomState,
}

impl Dictionary {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, code: u32) -> Option<&str> {
        text_of(&self.text, &self.ends, code)
    }

    /// The code of a text, which is new if need be.
    fn code(&mut self, text: Option<&str>) -> Result<u32, TooLarge> {
        let Some(text) = text else { return Ok(NONE) };
        let Self { text: all, ends, counts, codes, hasher } = self;
        let hash = hasher.hash_one(text);
        if let Some(code) = codes.find(hash, |code| text_of(all, ends, *code) == Some(text)) {
            return Ok(*code);
        }
        let code = u32::try_from(ends.len() + 1).map_err(|_| TooLarge)?;
        let end = u32::try_from(all.len().saturating_add(text.len())).map_err(|_| TooLarge)?;
        if all.capacity() - all.len() < text.len() {
            all.reserve_exact((all.len() / 8).max(text.len()).max(1024));
        }
        all.push_str(text);
        push(ends, end);
        push(counts, 0);
        codes.insert_unique(hash, code, |code| {
            hasher.hash_one(text_of(all, ends, *code).unwrap_or(""))
        });
        Ok(code)
    }

    fn count(&mut self, code: u32, more: u32) {
        if let Some(count) = index(code).checked_sub(1).and_then(|at| self.counts.get_mut(at)) {
            *count = count.saturating_add(more);
        }
    }

    fn uncount(&mut self, code: u32) {
        if let Some(count) = index(code).checked_sub(1).and_then(|at| self.counts.get_mut(at)) {
            *count = count.saturating_sub(1);
        }
    }

    fn counted(&self, code: u32) -> u32 {
        index(code).checked_sub(1).and_then(|at| self.counts.get(at)).copied().unwrap_or(0)
    }

    fn memory(&self) -> usize {
        // A table of codes takes four bytes and one for each slot.
        let slots = self.codes.capacity().saturating_mul(8) / 7;
        let entries = self.ends.capacity().saturating_add(self.counts.capacity());
        let parts = [self.text.capacity(), entries.saturating_mul(4), slots.saturating_mul(5)];
        parts.into_iter().fold(0, usize::saturating_add)
    }
}

fn text_of<'a>(text: &'a str, ends: &[u32], code: u32) -> Option<&'a str> {
    let at = index(code).checked_sub(1)?;
    let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    text.get(index(start)..index(*ends.get(at)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;

    use serde_json::{Value, json};

    use super::Column;

    /// Goal: a column says of each place what was put there last, whatever the number of values.
    #[test]
    fn codes_widen_and_values_are_counted() {
        for different in [1, 3, 300, 70_000] {
            let (mut column, mut model) = (Column::default(), Vec::new());
            for place in 0..different + 100 {
                let value = (place % 7 != 0).then(|| (place % different).to_string());
                column.push(value.as_deref()).unwrap();
                model.push(value);
            }
            for place in (0..model.len()).step_by(5) {
                let value = (place % 2 == 0).then(|| format!("\"{}\"", place % 11));
                column.set(place, value.as_deref()).unwrap();
                model[place] = value;
            }
            let mut joined = Column::default();
            joined.push(Some("\"first\"")).unwrap();
            joined.append(&column, (0..model.len()).map(Some).chain([None])).unwrap();
            let parsed = |json: &Option<String>| -> Option<Value> {
                json.as_deref().map(|json| serde_json::from_str(json).unwrap())
            };
            let mut expected: BTreeMap<String, usize> = BTreeMap::new();
            for value in model.iter().flatten() {
                *expected.entry(value.clone()).or_default() += 1;
            }
            let all = column.counts(0..model.len()).unwrap();
            assert!(all.is_sorted_by(|(_, a), (_, b)| a >= b));
            let all: BTreeMap<_, _> = all.into_iter().map(|(v, n)| (v.to_string(), n)).collect();
            assert_eq!(all, expected);
            for wanted in [None, Some(json!("3")), Some(json!(2))] {
                let test = |value: Option<&Value>| value == wanted.as_ref();
                let stop = AtomicBool::new(false);
                let own = column.codes_where(&stop, test).unwrap();
                let of_joined = joined.codes_where(&stop, test).unwrap();
                for (place, value) in model.iter().enumerate() {
                    let is_in = parsed(value) == wanted;
                    let bit = |column: &Column, codes, place: usize| {
                        column.word(codes, place / 64 * 64) >> (place % 64) & 1 == 1
                    };
                    assert_eq!(bit(&column, &own, place), is_in, "{place}");
                    assert_eq!(bit(&joined, &of_joined, place + 1), is_in, "{place}");
                }
            }
        }
    }

    /// Goal: nobody is asked of the values of a question that nobody waits for.
    #[test]
    fn values_are_not_asked_for_nobody() {
        let mut column = Column::default();
        (0..100).for_each(|value| column.push(Some(&value.to_string())).unwrap());
        for (is_over, expected) in [(false, 100), (true, 0)] {
            let mut asked = 0;
            let test = |value: Option<&Value>| {
                asked += usize::from(value.is_some());
                true
            };
            column.codes_where(&AtomicBool::new(is_over), test).unwrap();
            assert_eq!(asked, expected);
        }
    }
}
