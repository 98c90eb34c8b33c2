//! Who has changed since somebody looked: for those who keep something of all persons in memory and
//! bring it up to date with each question.
//!
//! # Why nothing is missed
//!
//! The writer notes which stored rows a batch changes before it commits the batch. Whoever asks
//! takes a snapshot while nobody can note: every batch but the one noted last has been committed
//! then, so the snapshot has it, and whether it has the last one its counters say; if not, what
//! was noted of that stays for the next time. New persons are not noted: they have the next numbers.

use parking_lot::Mutex;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bits::Bits;
use crate::identity::codec::Point;
use crate::identity::store::Identities;
use crate::identity::view::View;

/// What is noted for all who watch.
#[derive(Default)]
pub(super) struct Feed {
    watched: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    last_id: u64,
    watched: Vec<Watched>,
}

struct Watched {
    id: u64,
    project: ProjectId,
    /// Numbers in batches that have been committed.
    settled: Bits,
    has_settled: bool,
    /// Numbers in the batch that was noted last.
    latest: Vec<i64>,
    /// The state after that batch.
    point: Point,
}

impl Watched {
    fn settle(&mut self) {
        self.has_settled |= !self.latest.is_empty();
        for number in self.latest.drain(..) {
            self.settled.insert(usize::try_from(number).unwrap_or(0));
        }
    }
}

impl Feed {
    /// Whether anybody watches. Only the writer may ask.
    pub(super) fn is_watched(&self) -> bool {
        !self.watched.lock().watched.is_empty()
    }

    /// Notes which rows the batch that leads to `point` is going to change. Of the writer, before the
    /// commit.
    pub(super) fn note(&self, point: Point, changed: &[(ProjectId, i64)]) {
        for watched in &mut self.watched.lock().watched {
            watched.settle();
            watched.point = point;
            let own = changed.iter().filter(|(project, _)| *project == watched.project);
            watched.latest.extend(own.map(|(_, number)| *number));
        }
    }

    /// Begins to watch. Nothing may be between its note and its commit.
    pub(super) fn register(&self, project: ProjectId) -> u64 {
        let mut registry = self.watched.lock();
        registry.last_id += 1;
        let (id, settled) = (registry.last_id, Bits::default());
        let point = Point::default();
        let watched =
            Watched { id, project, settled, has_settled: false, latest: Vec::new(), point };
        registry.watched.push(watched);
        id
    }
}

/// The numbers of the persons of a project that have changed since it was asked last. To be had from
/// [`Identities::watch`]; ends when it is dropped.
pub struct Watch {
    identities: Identities,
    id: u64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Watch {
    pub(super) fn new(identities: Identities, id: u64) -> Self {
        Self { identities, id }
    }

    /// A view of now. What has changed is still to be asked for.
    pub fn view(&self) -> View {
        self.identities.view()
    }

    /// A view, and the numbers of the persons who changed or went away since the view that was given
    /// last. Some may be in it that did not; new persons are not.
    ///
    /// # Errors
    ///
    /// If the database fails; nothing is forgotten then.
    pub fn changes(&mut self) -> Result<(View, Bits), IdentityError> {
        let mut registry = self.identities.feed().watched.lock();
        let view = self.identities.view();
        let point = view.counters()?.point();
        let Some(own) = registry.watched.iter_mut().find(|watched| watched.id == self.id) else {
            return Ok((view, Bits::default()));
        };
        if own.point <= point {
            own.settle();
        }
        let has_changes = std::mem::take(&mut own.has_settled);
        let changed = if has_changes { std::mem::take(&mut own.settled) } else { Bits::default() };
        Ok((view, changed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.identities.feed().watched.lock().watched.retain(|watched| watched.id != self.id);
    }
}
