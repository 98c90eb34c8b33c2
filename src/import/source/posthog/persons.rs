//! Persons of a batch export: one row for each distinct id, and the distinct ids of one person become one person here.
//!
//! The first distinct id of each person has to be known when the next one comes, and there may be more persons than fit
//! into memory, in any order. So they are taken by ranges of the hash of their ids: when there are too many, the upper
//! half of the range is put off, and the files are read once more for it.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::HashMap;

use crate::event::{Event, IMPORTED_PERSON};
use crate::ids::Ids;
use crate::mapping::Output;
use crate::object::Object;
use crate::refusal::Refusal;
use weir_base::clock::UnixMicros;

/// Persons whose first distinct ids are in memory: about 200 MiB.
const PERSONS_MAX: usize = if cfg!(test) { 8 } else { 2_000_000 };

/// One distinct id of a person.
#[derive(Debug)]
pub(super) struct Row<'r> {
    pub(super) person_id: &'r str,
    pub(super) distinct_id: &'r str,
    /// A JSON object.
    pub(super) properties: Option<&'r str>,
    pub(super) created_at: Option<UnixMicros>,
    pub(super) is_deleted: bool,
}

/// The persons of an export.
#[derive(Debug)]
pub(super) struct Persons {
    ids: Ids,
    keeps_ids: bool,
    hasher: foldhash::quality::FixedState,
    /// Hashes of ids from here on are taken in this pass.
    from: u64,
    /// And up to here.
    to: u64,
    first: HashMap<u64, Box<str>, foldhash::fast::RandomState>,
}

impl Persons {
    /// `keeps_ids`: persons get their ids of the source as a property.
    pub(super) fn new(keeps_ids: bool) -> Self {
        Self {
            ids: Ids::new("posthog persons"),
            keeps_ids,
            hasher: foldhash::quality::FixedState::default(),
            from: 0,
            to: u64::MAX,
            first: HashMap::default(),
        }
    }

    pub(super) fn row(
        &mut self,
        row: &Row<'_>,
        now: UnixMicros,
        out: &mut dyn Output,
    ) -> Result<(), Refusal> {
        if row.is_deleted {
            out.skip("deleted persons");
            return Ok(());
        }
        let hash = self.hasher.hash_one(row.person_id);
        if !(self.from..=self.to).contains(&hash) {
            return Ok(());
        }
        let at = row.created_at.unwrap_or(now);
        let mut properties = Object::default();
        let (distinct_id, person) = match self.first.get(&hash) {
            Some(first) if **first == *row.distinct_id => return Ok(()),
            Some(first) => {
                properties.put_text("alias", row.distinct_id);
                (Cow::Borrowed(&**first), None)
            }
            None => {
                let person = self.properties(row)?;
                self.first.insert(hash, row.distinct_id.into());
                (Cow::Borrowed(row.distinct_id), Some(person))
            }
        };
        let id = self.ids.of_name(row.distinct_id);
        let mut event = Event::new(id, IMPORTED_PERSON, distinct_id, at, properties);
        event.person = person.map(Cow::Owned);
        out.event(&event);
        self.bound();
        Ok(())
    }

    fn properties(&self, row: &Row<'_>) -> Result<String, Refusal> {
        let text = row.properties.unwrap_or("{}");
        if !self.keeps_ids {
            return Ok(text.to_owned());
        }
        let object = Object::read(text);
        let mut object =
            object.map_err(|error| Refusal::new(format!("its properties: {error}")))?;
        object.put_text("$posthog_person_id", row.person_id);
        Ok(object.to_text())
    }

    /// Puts off half of the persons, if there are too many.
    fn bound(&mut self) {
        while self.first.len() > PERSONS_MAX {
            self.to = self.from + (self.to - self.from) / 2;
            let to = self.to;
            self.first.retain(|hash, _| *hash <= to);
        }
    }

    /// Whether persons were put off; the next pass takes them.
    pub(super) fn is_unfinished(&mut self) -> bool {
        self.first.clear();
        let Some(from) = self.to.checked_add(1) else {
            (self.from, self.to) = (0, u64::MAX);
            return false;
        };
        (self.from, self.to) = (from, u64::MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{PERSONS_MAX, Persons, Row};
    use crate::event::Event;
    use crate::mapping::Output;
    use std::collections::{BTreeMap, BTreeSet};
    use weir_base::clock::UnixMicros;

    /// Joins distinct ids as the server does.
    #[derive(Default)]
    struct Joined(Vec<BTreeSet<String>>);

    impl Output for Joined {
        fn event(&mut self, event: &Event<'_>) {
            let mut text = Vec::new();
            event.write(&crate::event::Marks::new("", ""), &mut text);
            let json: serde_json::Value = weir_event::json::read(&text).unwrap();
            let mut set = BTreeSet::from([json["distinct_id"].as_str().unwrap().to_owned()]);
            set.extend(json["properties"]["alias"].as_str().map(str::to_owned));
            let (joined, rest) =
                std::mem::take(&mut self.0).into_iter().partition(|own| !own.is_disjoint(&set));
            self.0 = rest;
            let joined: Vec<BTreeSet<String>> = joined;
            set.extend(joined.into_iter().flatten());
            self.0.push(set);
        }

        fn skip(&mut self, _why: &'static str) {}
    }

    /// Goal: all distinct ids of each person are joined, and no others, in whatever order they come, also when there are
    /// many times more persons than fit into memory.
    #[test]
    fn persons_are_joined_however_many_there_are() {
        let rows: Vec<(String, String)> = (0..PERSONS_MAX * 60)
            .map(|number| {
                let person = number * 7 % (PERSONS_MAX * 20);
                (format!("person {person}"), format!("id {number}"))
            })
            .collect();
        let mut expected: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (person, id) in &rows {
            expected.entry(person).or_default().insert(id.clone());
        }
        let (mut persons, mut joined, mut passes) = (Persons::new(false), Joined::default(), 0);
        loop {
            for (person_id, distinct_id) in &rows {
                let (properties, created_at, is_deleted) = (None, None, false);
                let row = Row { person_id, distinct_id, properties, created_at, is_deleted };
                persons.row(&row, UnixMicros(0), &mut joined).unwrap();
                assert!(persons.first.len() <= PERSONS_MAX);
            }
            passes += 1;
            if !persons.is_unfinished() {
                break;
            }
        }
        let found: BTreeSet<_> = joined.0.into_iter().collect();
        assert_eq!(found, expected.into_values().collect());
        assert!(passes > 10, "{passes}");
    }
}
