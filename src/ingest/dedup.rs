//! The ids of recent events: SDKs send a batch again when they did not hear the answer, and such
//! events are stored once. [`Window`] is asked in log order, so that a replay drops the same ones.
//!
//! The window is two generations of ids. When the young one is full it becomes the old one and the
//! old one is forgotten; an id is remembered for at least half the window.

use arrow::array::BooleanArray;
use hashbrown::HashSet;
use uuid::Uuid;

use crate::event::id::ProjectId;

type Ids = HashSet<(ProjectId, Uuid), foldhash::fast::RandomState>;

/// Recent event ids of all projects.
#[derive(Debug)]
pub struct Window {
    young: Ids,
    old: Ids,
    generation_max: usize,
}

impl Window {
    /// A window of at most `events_max` ids; none is remembered if that is 0.
    pub fn new(events_max: usize) -> Self {
        Self { young: Ids::default(), old: Ids::default(), generation_max: events_max / 2 }
    }

    /// Remembers `id`. `false` if it was there already.
    pub fn insert(&mut self, project: ProjectId, id: Uuid) -> bool {
        if self.generation_max == 0 {
            return true;
        }
        let key = (project, id);
        if self.old.contains(&key) || !self.young.insert(key) {
            return false;
        }
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        true
    }

    /// Remembers all of `ids` and tells which were new; `None` if all were.
    pub fn insert_all(&mut self, project: ProjectId, ids: &[Uuid]) -> Option<BooleanArray> {
        let new: Vec<bool> = ids.iter().map(|id| self.insert(project, *id)).collect();
        if new.iter().all(|new| *new) { None } else { Some(BooleanArray::from(new)) }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::ProjectId;
    use super::Window;

    #[test]
    fn an_id_is_new_once_in_half_a_window_and_per_project() {
        let id = |number: u128| Uuid::from_u128(number);
        let mut window = Window::new(100);
        for number in 0..50 {
            assert!(window.insert(ProjectId(1), id(number)));
        }
        for number in 0..50 {
            assert!(!window.insert(ProjectId(1), id(number)), "{number} is remembered");
        }
        assert!(window.insert(ProjectId(2), id(0)), "another project's");
        let again = window.insert_all(ProjectId(1), &[id(1000), id(49), id(1000)]);
        assert_eq!(again.unwrap().iter().flatten().collect::<Vec<_>>(), [true, false, false]);
        assert!(window.insert_all(ProjectId(1), &[id(2000), id(2001)]).is_none());
        for number in 3000..3200 {
            window.insert(ProjectId(1), id(number));
        }
        assert!(window.insert(ProjectId(1), id(0)), "forgotten after two generations");
    }
}
