//! Top-k selection of actors by value: [`Ranked`], a bounded heap that keeps only as many actors as a page needs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::selection::Unit;
use crate::{Actor, Who};
use weir_query::persons::people::Part;

/// The actors with the largest values, ties by id, each with additional data.
#[derive(Debug)]
pub struct Ranked<T = ()> {
    part: Part,
    unit: Unit,
    /// A heap with the last of the selected actors on top.
    kept: BinaryHeap<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: f64,
    who: Who,
    known: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.value.total_cmp(&self.value).then(self.who.cmp(&other.who))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ranked {
    /// Adds an actor by its id; ignores a malformed id.
    pub fn add(&mut self, actor: &str, value: f64) {
        self.add_with(actor, value, || ());
    }

    /// The actors of the page in order, and one more if there are more.
    pub fn into_actors(self) -> Vec<Actor> {
        self.into_known().map(|(actor, ())| actor).collect()
    }
}

impl<T> Ranked<T> {
    /// Selects this page of the persons or groups, and one more, which shows whether there are more.
    pub fn new(part: Part, unit: Unit) -> Self {
        Self { part, unit, kept: BinaryHeap::new() }
    }

    /// Adds an actor by its id with additional data, which is computed only if the actor is selected.
    pub fn add_with(&mut self, actor: &str, value: f64, known: impl FnOnce() -> T) {
        let Some(who) = self.unit.who(actor) else { return };
        let most = self.part.offset.saturating_add(self.part.limit).saturating_add(1);
        let is_before = |last: &Entry<T>| match value.total_cmp(&last.value) {
            Ordering::Equal => who < last.who,
            order => order == Ordering::Greater,
        };
        if self.kept.len() >= most && !self.kept.peek().is_some_and(is_before) {
            return;
        }
        self.kept.push(Entry { value, who, known: known() });
        if self.kept.len() > most {
            self.kept.pop();
        }
    }

    /// The actors of the page in order with their additional data, and one more if there are more.
    pub fn into_known(self) -> impl Iterator<Item = (Actor, T)> {
        let sorted = self.kept.into_sorted_vec().into_iter().skip(self.part.offset);
        sorted.map(|Entry { value, who, known }| (Actor::new(who, value), known))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::Ranked;
    use crate::Who;
    use crate::selection::Unit;
    use weir_query::persons::people::Part;

    #[test]
    fn parts_make_up_all_actors_in_their_order() {
        let person = |at: u8| Uuid::from_bytes([at.wrapping_mul(37); 16]).to_string();
        for (unit, id) in [
            (Unit::Persons, &person as &dyn Fn(u8) -> String),
            (Unit::Groups(2), &|at: u8| format!("group {}", at.wrapping_mul(37))),
        ] {
            let actors: Vec<(Who, f64)> =
                (0..50).map(|at| (unit.who(&id(at)).unwrap(), f64::from(at % 7))).collect();
            let mut expected = actors.clone();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let mut found = Vec::new();
            for offset in (0..60).step_by(8) {
                let mut ranked = Ranked::new(Part { offset, limit: 8 }, unit);
                (0..50).for_each(|at| ranked.add(&id(at), f64::from(at % 7)));
                if unit == Unit::Persons {
                    ranked.add("no person", 9.0);
                }
                let part = ranked.into_actors();
                assert_eq!(part.len(), 50_usize.saturating_sub(offset).min(9));
                found.extend(part.into_iter().take(8).map(|own| (own.who, own.value)));
            }
            assert_eq!(found, expected);
        }
    }
}
