//! Deduplication of recent events: SDKs resend a batch whose response they did not receive, and its
//! events are stored once. [`Window`] is applied in log order, so that a replay drops the same events.
//!
//! The window has two generations of keys. When the young one is full it becomes the old one, and the
//! old one is evicted. A key is kept for at least half the window.

use arrow::array::BooleanArray;
use hashbrown::HashSet;

use weir_event::id::{EventKey, ProjectId};

type Keys = HashSet<(ProjectId, EventKey), foldhash::fast::RandomState>;

/// Keys of recent events of all projects.
#[derive(Debug)]
pub struct Window {
    young: Keys,
    old: Keys,
    generation_max: usize,
}

impl Window {
    /// A window of at most `events_max` keys; 0 disables deduplication.
    pub fn new(events_max: usize) -> Self {
        Self { young: Keys::default(), old: Keys::default(), generation_max: events_max / 2 }
    }

    /// Inserts `key`. Returns `false` if it is in the window already.
    pub fn insert(&mut self, project: ProjectId, key: EventKey) -> bool {
        if self.generation_max == 0 {
            return true;
        }
        let key = (project, key);
        if self.old.contains(&key) || !self.young.insert(key) {
            return false;
        }
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        true
    }

    /// Inserts all `keys` and returns which of them were new; `None` if all were.
    pub fn insert_all(&mut self, project: ProjectId, keys: &[EventKey]) -> Option<BooleanArray> {
        let new: Vec<bool> = keys.iter().map(|key| self.insert(project, *key)).collect();
        if new.iter().all(|new| *new) { None } else { Some(BooleanArray::from(new)) }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{EventKey, ProjectId, Window};

    #[test]
    fn an_event_is_new_once_in_half_a_window_and_per_project() {
        let id = |number: u128| EventKey::new(Uuid::from_u128(number), "event", "person");
        let mut window = Window::new(100);
        for number in 0..50 {
            assert!(window.insert(ProjectId(1), id(number)));
        }
        for number in 0..50 {
            assert!(!window.insert(ProjectId(1), id(number)), "{number} is remembered");
        }
        assert!(window.insert(ProjectId(2), id(0)), "another project's");
        for (event, person) in [("other", "person"), ("event", "other"), ("eventp", "erson")] {
            let other = EventKey::new(Uuid::from_u128(0), event, person);
            assert!(window.insert(ProjectId(1), other), "another event with the same uuid");
        }
        let again = window.insert_all(ProjectId(1), &[id(1000), id(49), id(1000)]);
        assert_eq!(again.unwrap().iter().flatten().collect::<Vec<_>>(), [true, false, false]);
        assert!(window.insert_all(ProjectId(1), &[id(2000), id(2001)]).is_none());
        for number in 3000..3200 {
            window.insert(ProjectId(1), id(number));
        }
        assert!(window.insert(ProjectId(1), id(0)), "forgotten after two generations");
    }
}
