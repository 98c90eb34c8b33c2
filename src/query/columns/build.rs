//! How columns come to be: all persons are read by several threads, from files if there are any, which
//! goes on to its end whoever is still waiting for it.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::bits::Bits;
use crate::identity::row::Row;
use crate::identity::store::Identities;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::query::QueryError;
use crate::query::columns::Columns;
use crate::query::columns::PUSHED_FOR;
use crate::query::columns::REFUSED_FOR;
use crate::query::columns::shelf::Piece;
use crate::query::columns::shelf::Stock;
use crate::query::columns::shelf::places;
use crate::query::columns::table::Refusal;
use crate::query::columns::table::Rows;
use crate::query::columns::table::Table;
use crate::query::parts::in_pieces;
use crate::query::parts::ranges;

/// Rows between two looks at the memory that they take.
const LOOK_EVERY: usize = 4096;

/// Ranges of those who are in no file.
const RANGES: usize = 16;

/// If more than one person in this many has changed, all of a file are read from their rows.
const CHANGED_SHARE: usize = 4;

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

impl From<IdentityError> for Stopped {
    fn from(error: IdentityError) -> Self {
        Self::Failed(error)
    }
}

/// What is read.
struct Reading {
    project: ProjectId,
    view: View,
    /// Who is not as the files say.
    changed: Bits,
    /// The columns to read, and all that the question wants.
    keys: Vec<Box<str>>,
    wanted: Arc<[Box<str>]>,
}

/// Who wants columns.
#[derive(Debug)]
pub(in crate::query) struct Asker {
    /// Gone once nobody waits for an answer.
    pub(in crate::query) waits: Weak<()>,
    /// How long it waits for what others read; then it goes without.
    pub(in crate::query) patience: Duration,
}

impl Columns {
    /// Reads those of these columns that are missing. If they do not fit one is refused, so that a later
    /// question gets the others. Nothing is read for an asker who is gone or out of patience.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub(in crate::query) async fn provide(
        self: Arc<Self>,
        (identities, runtime): (Identities, Handle),
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
        let read = columns.read((&identities, &runtime), project, keys, wanted).await;
        self.building.store(0, Ordering::Relaxed);
        match read? {
            Err(Stopped::TooLarge(key)) => self.refuse((project, key), questions),
            Err(Stopped::Failed(error)) => return Err(error.into()),
            Ok(()) | Err(Stopped::Ending) => {}
        }
        Ok(())
    }

    async fn read(
        self: &Arc<Self>,
        (identities, runtime): (&Identities, &Handle),
        project: ProjectId,
        keys: Vec<Box<str>>,
        wanted: Arc<[Box<str>]>,
    ) -> Result<Result<(), Stopped>, QueryError> {
        let (columns, store) = (Arc::clone(self), identities.clone());
        let stocking = runtime.spawn_blocking(move || columns.stock(&store, project));
        let Stock { watch, view, mut pieces, changed } = stocking.await.map_err(given_up)??;
        let (next, persons) = (view.next_number()?, view.person_count(project)?);
        let least = usize::try_from(persons.saturating_mul(PERSON_BYTES)).unwrap_or(usize::MAX);
        if least > self.bytes_max {
            return Ok(keys.into_iter().next().map_or(Ok(()), |key| Err(Stopped::TooLarge(key))));
        }
        let kept = pieces.last().map_or(1, |piece| piece.numbers.end);
        let rest = ranges(kept..next, RANGES).into_iter();
        pieces.extend(rest.map(|numbers| Piece { numbers, chunk: None }));
        let columns = Arc::clone(self);
        let reading = Reading { project, view, changed, keys: keys.clone(), wanted };
        let work = move |piece: Piece| columns.part(&reading, &piece);
        let parts = match in_pieces(runtime, pieces, work).await.map_err(given_up)? {
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
            joined.map_err(|refusal| match refusal {
                Refusal::TooLarge | Refusal::Torn => {
                    Stopped::TooLarge(keys.into_iter().next().unwrap_or_default())
                }
                Refusal::Failed(error) => Stopped::Failed(error),
            })
        });
        joining.await.map_err(given_up)
    }

    /// The persons of a piece.
    fn part(&self, reading: &Reading, piece: &Piece) -> Result<Rows, Stopped> {
        let mut counted = 0;
        if let Some(rows) = Self::kept(reading, piece)? {
            let has_room = self.has_room(reading, &rows, &mut counted);
            return if has_room { Ok(rows) } else { Err(Stopped::TooLarge(rows.largest())) };
        }
        let (mut rows, mut stopped) = (Rows::new(&reading.keys, 0), None);
        reading.view.scan_rows(reading.project, piece.numbers.clone(), |row| {
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

    /// The persons of a piece from its file, as they are now. `None` if their rows have to be read.
    fn kept(reading: &Reading, piece: &Piece) -> Result<Option<Rows>, Stopped> {
        let Some(chunk) = &piece.chunk else { return Ok(None) };
        let changed: Vec<usize> = reading.changed.within(places(&piece.numbers)).collect();
        if changed.len() > chunk.persons / CHANGED_SHARE {
            return Ok(None);
        }
        let mut rows = match chunk.read(&reading.keys) {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(None),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a file of columns of persons cannot be read");
                return Ok(None);
            }
        };
        for number in changed {
            let Ok(number) = i64::try_from(number) else { continue };
            // Who is not in the file was gone before, for good.
            let Some(place) = rows.place(number) else { continue };
            let too_large = Stopped::TooLarge(rows.largest());
            let ask = |row: &Row<'_>| rows.set(place, Some(row));
            let set = reading.view.ask_row(reading.project, number, ask)?;
            if set.unwrap_or_else(|| rows.set(place, None)).is_err() {
                return Err(too_large);
            }
        }
        Ok(Some(rows))
    }

    fn has_room(&self, reading: &Reading, rows: &Rows, counted: &mut usize) -> bool {
        let now = rows.memory();
        let more = now.saturating_sub(std::mem::replace(counted, now));
        self.grow((reading.project, &*reading.wanted), more)
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

fn given_up(_: JoinError) -> QueryError {
    QueryError::Unavailable("the question was given up")
}
