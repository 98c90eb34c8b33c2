//! How columns come to be: all persons are read by several threads, from files as far as there are any, which
//! goes on to its end whoever is still waiting for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::kernel::error::QueryError;
use crate::kernel::parts::{given_up, in_pieces};
use crate::persons::columns::pieces::{Piece, Pieces};
use crate::persons::columns::table::{Refusal, Rows, Table};
use crate::persons::columns::{Columns, PUSHED_FOR, REFUSED_FOR};
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::store::Identities;
use weir_identity::view::Flow;

/// Rows between two looks at the memory that they take.
const LOOK_EVERY: usize = 4096;

/// After one person in this many it is estimated what all of them take: what cannot fit is to push out
/// nothing else, and memory is not to be filled in vain.
const SAMPLE_SHARE: usize = 8;

/// The same is not done for fewer persons: what tables take without any would be counted for each.
const SAMPLE_MIN: usize = 1000;

/// Memory of a person without any property: number, time, two bits.
const PERSON_BYTES: u64 = 13;

/// Why columns were not read.
enum Stopped {
    /// They do not fit; this one is the largest.
    TooLarge(Box<str>),
    /// The store failed.
    Failed(IdentityError),
    /// The process is ending.
    Ending,
}

impl Stopped {
    /// The same of columns of which it is not known which one is the largest.
    fn of(refusal: Refusal, keys: &[Box<str>]) -> Self {
        match refusal {
            Refusal::TooLarge | Refusal::Torn => {
                Self::TooLarge(keys.first().cloned().unwrap_or_default())
            }
            Refusal::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<IdentityError> for Stopped {
    fn from(error: IdentityError) -> Self {
        Self::Failed(error)
    }
}

/// What is read.
struct Reading {
    pieces: Pieces,
    /// All columns that the question wants, those that are there included.
    wanted: Arc<[Box<str>]>,
    /// How many persons there are.
    persons: usize,
    /// Those that were read, and the memory that they take.
    read: AtomicUsize,
    read_bytes: AtomicUsize,
}

/// Persons that were read.
#[derive(Clone, Copy, Default)]
struct Amount {
    persons: usize,
    /// The memory that they take.
    bytes: usize,
}

impl Reading {
    /// Takes note of what was read. Says whether all persons may fit if others take as much.
    fn may_fit(&self, more: Amount, bytes_max: usize) -> bool {
        let Amount { persons, bytes } = more;
        let read = self.read.fetch_add(persons, Ordering::Relaxed).saturating_add(persons);
        let bytes = self.read_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let expected = (bytes / read.max(1)).saturating_mul(self.persons);
        read < SAMPLE_MIN.max(self.persons / SAMPLE_SHARE)
            || expected <= bytes_max.saturating_add(bytes_max / 8)
    }
}

/// Who wants columns.
#[derive(Debug)]
pub(crate) struct Asker {
    /// Gone once nobody waits for an answer.
    pub(crate) waits: Weak<()>,
    /// How long it waits for what others read; then it goes without.
    pub(crate) patience: Duration,
}

impl Columns {
    /// Reads those of these columns that are missing. If they do not fit one is refused, so that a later
    /// question gets the others. Nothing is read for an asker who is gone or out of patience.
    pub(crate) async fn provide(
        self: Arc<Self>,
        identities: Identities,
        runtime: Handle,
        project: ProjectId,
        keys: Vec<Box<str>>,
        asker: Asker,
    ) -> Result<(), QueryError> {
        let (columns, wanted) = (Arc::clone(&self), Arc::<[Box<str>]>::from(keys.clone()));
        let missing = |keys: Vec<Box<str>>| {
            let columns = Arc::clone(&columns);
            let missing = runtime.spawn_blocking(move || columns.missing(project, &keys));
            async move { missing.await.map_err(given_up) }
        };
        let keys = missing(keys).await?;
        if keys.is_empty() {
            return Ok(());
        }
        let Ok(_turn) = timeout(asker.patience, self.turn.lock()).await else { return Ok(()) };
        if asker.waits.strong_count() == 0 {
            return Ok(());
        }
        let keys = missing(keys).await?;
        if keys.is_empty() {
            return Ok(());
        }
        // With others it may be too much, and alone not.
        let questions = if wanted.len() == 1 { REFUSED_FOR } else { PUSHED_FOR };
        let read = columns.read(&identities, &runtime, project, keys, wanted).await;
        self.building.store(0, Ordering::Relaxed);
        match read? {
            Err(Stopped::TooLarge(key)) => self.refuse((project, key), questions),
            Err(Stopped::Failed(error)) => return Err(error.into()),
            Ok(()) | Err(Stopped::Ending) => {}
        }
        Ok(())
    }

    /// All persons of a project, to be read piece by piece; `None` if there are no files of them. Blocks.
    pub(crate) fn pieces(
        &self,
        identities: &Identities,
        project: ProjectId,
        keys: Vec<Box<str>>,
    ) -> Result<Option<Pieces>, IdentityError> {
        let (_, pieces) = self.stock(identities, project, keys)?;
        Ok(pieces.has_files().then_some(pieces))
    }

    async fn read(
        self: &Arc<Self>,
        identities: &Identities,
        runtime: &Handle,
        project: ProjectId,
        keys: Vec<Box<str>>,
        wanted: Arc<[Box<str>]>,
    ) -> Result<Result<(), Stopped>, QueryError> {
        let (columns, store, own) = (Arc::clone(self), identities.clone(), keys.clone());
        let stocking = runtime.spawn_blocking(move || columns.stock(&store, project, own));
        let (watch, pieces) = stocking.await.map_err(given_up)??;
        let view = &pieces.view;
        let (next, persons) = (view.next_number()?, view.person_count(project)?);
        let least = usize::try_from(persons.saturating_mul(PERSON_BYTES)).unwrap_or(usize::MAX);
        if least > self.bytes_max {
            return Ok(keys.into_iter().next().map_or(Ok(()), |key| Err(Stopped::TooLarge(key))));
        }
        let columns = Arc::clone(self);
        let all = pieces.all.clone();
        let reading = Reading {
            pieces,
            wanted,
            persons: usize::try_from(persons).unwrap_or(usize::MAX),
            read: AtomicUsize::new(0),
            read_bytes: AtomicUsize::new(0),
        };
        let work = move |piece: Piece| columns.part(&reading, &piece);
        let parts = match in_pieces(runtime, all, work).await.map_err(given_up)? {
            Ok(parts) => parts,
            Err(stopped) => return Ok(Err(stopped)),
        };
        let columns = Arc::clone(self);
        let joining = runtime.spawn_blocking(move || {
            let asked = columns.questions.load(Ordering::Relaxed);
            let mut rows = Rows::new(&keys, asked);
            rows.reserve(parts.iter().map(Rows::len).sum());
            let mut joined =
                parts.into_iter().try_for_each(|part| rows.append(part)).map_err(Refusal::from);
            if joined.is_ok() {
                joined = columns.install(project, Table::new(project, rows, watch, next));
            }
            joined.map_err(|refusal| Stopped::of(refusal, &keys))
        });
        joining.await.map_err(given_up)
    }

    /// The persons of a piece.
    fn part(&self, reading: &Reading, piece: &Piece) -> Result<Rows, Stopped> {
        let (mut counted, pieces) = (Amount::default(), &reading.pieces);
        let kept = pieces.rows(piece).map_err(|refusal| Stopped::of(refusal, &pieces.keys))?;
        if let Some(rows) = kept {
            let has_room = self.has_room(reading, &rows, &mut counted);
            return if has_room { Ok(rows) } else { Err(Stopped::TooLarge(rows.largest())) };
        }
        let (mut rows, mut stopped) = (Rows::new(&pieces.keys, 0), None);
        pieces.view.scan_rows(pieces.project, piece.numbers.clone(), |row| {
            let is_too_large = rows.push(row).is_err() || {
                rows.len().is_multiple_of(LOOK_EVERY)
                    && !self.has_room(reading, &rows, &mut counted)
            };
            if is_too_large {
                stopped = Some(Stopped::TooLarge(rows.largest()));
            } else if self.stop.load(Ordering::Relaxed) {
                stopped = Some(Stopped::Ending);
            }
            Ok(if stopped.is_none() { Flow::Continue(()) } else { Flow::Break(()) })
        })?;
        if stopped.is_none() && !self.has_room(reading, &rows, &mut counted) {
            stopped = Some(Stopped::TooLarge(rows.largest()));
        }
        stopped.map_or(Ok(rows), Err)
    }

    /// Whether there is room for the persons of a piece as far as they are read, and may be for all.
    /// `counted` are those that were asked for before.
    fn has_room(&self, reading: &Reading, rows: &Rows, counted: &mut Amount) -> bool {
        let now = Amount { persons: rows.len(), bytes: rows.memory() };
        let before = std::mem::replace(counted, now);
        let more = Amount {
            persons: now.persons.saturating_sub(before.persons),
            bytes: now.bytes.saturating_sub(before.bytes),
        };
        reading.may_fit(more, self.bytes_max)
            && self.grow(reading.pieces.project, &reading.wanted, more.bytes)
    }

    /// Puts what was read beside what is there.
    fn install(&self, project: ProjectId, table: Table) -> Result<(), Refusal> {
        let there = self.tables.lock().get(&project).cloned();
        if let Some(there) = there {
            let mut table_now = there.write();
            // It may have gone while this waited for it, or be about to.
            if self.is_kept(project, &there) && !table_now.is_torn() {
                table_now.adopt(table, || self.stop.load(Ordering::Relaxed))?;
                self.building.store(0, Ordering::Relaxed);
                self.account(project, &there, table_now.rows.memory());
                return Ok(());
            }
        }
        let bytes = table.rows.memory();
        let table = Arc::new(RwLock::new(table));
        self.tables.lock().insert(project, Arc::clone(&table));
        self.building.store(0, Ordering::Relaxed);
        self.account(project, &table, bytes);
        Ok(())
    }
}
