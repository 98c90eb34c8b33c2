//! How columns come to be: all persons are read by several threads, which goes on to its end whoever
//! is still waiting for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::task::JoinError;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::store::Identities;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::query::QueryError;
use crate::query::columns::Columns;
use crate::query::columns::table::Refusal;
use crate::query::columns::table::Rows;
use crate::query::columns::table::Table;
use crate::query::parts::in_parts;

/// Rows between two looks at the memory that they take.
const LOOK_EVERY: usize = 4096;

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

impl Columns {
    /// Reads those of these columns that are missing, unless they do not fit.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub(in crate::query) async fn provide(
        self: Arc<Self>,
        (identities, runtime): (Identities, Handle),
        project: ProjectId,
        keys: Vec<Box<str>>,
    ) -> Result<(), QueryError> {
        let columns = Arc::clone(&self);
        let missing = |keys: Vec<Box<str>>| {
            let columns = Arc::clone(&columns);
            let missing = runtime.spawn_blocking(move || columns.missing(project, &keys));
            async move { missing.await.map_err(given_up) }
        };
        let mut keys = missing(keys).await?;
        if keys.is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        // Each round reads all that is missing, or refuses one.
        for _ in 0..=keys.len() {
            keys = missing(keys).await?;
            if keys.is_empty() {
                break;
            }
            let read = columns.read((&identities, &runtime), project, keys.clone()).await;
            self.building.store(0, Ordering::Relaxed);
            match read? {
                Ok(()) => {}
                Err(Stopped::TooLarge(key)) => self.refuse((project, key)),
                Err(Stopped::Failed(error)) => return Err(error.into()),
                Err(Stopped::Ending) => break,
            }
        }
        Ok(())
    }

    async fn read(
        self: &Arc<Self>,
        (identities, runtime): (&Identities, &Handle),
        project: ProjectId,
        keys: Vec<Box<str>>,
    ) -> Result<Result<(), Stopped>, QueryError> {
        let watched = identities.clone();
        let watching = runtime.spawn_blocking(move || watched.watch(project));
        let (watch, view) = watching.await.map_err(given_up)?;
        let (next, persons) = (view.next_number()?, view.person_count(project)?);
        let least = usize::try_from(persons.saturating_mul(PERSON_BYTES)).unwrap_or(usize::MAX);
        if least > self.bytes_max {
            return Ok(keys.into_iter().next().map_or(Ok(()), |key| Err(Stopped::TooLarge(key))));
        }
        let (columns, wanted) = (Arc::clone(self), keys.clone());
        let work = move |numbers| columns.part(project, &view, numbers, &wanted);
        let parts = match in_parts(runtime, 1..next, work).await.map_err(given_up)? {
            Ok(parts) => parts,
            Err(stopped) => return Ok(Err(stopped)),
        };
        let columns = Arc::clone(self);
        let joining = runtime.spawn_blocking(move || {
            let asked = columns.questions.load(Ordering::Relaxed);
            let mut rows = Rows::new(&keys, asked);
            let mut joined =
                parts.into_iter().try_for_each(|part| rows.append(part)).map_err(Refusal::from);
            if joined.is_ok() {
                joined = columns.install(project, Table::new(project, rows, watch, next));
            }
            joined.map_err(|refusal| match refusal {
                Refusal::TooLarge => Stopped::TooLarge(keys.into_iter().next().unwrap_or_default()),
                Refusal::Failed(error) => Stopped::Failed(error),
            })
        });
        joining.await.map_err(given_up)
    }

    /// The persons with these numbers.
    fn part(
        &self,
        project: ProjectId,
        view: &View,
        numbers: Range<i64>,
        keys: &[Box<str>],
    ) -> Result<Rows, Stopped> {
        let mut rows = Rows::new(keys, 0);
        let (mut counted, mut stopped) = (0, None);
        view.scan_rows(project, numbers, |row| {
            let is_too_large = rows.push(row).is_err() || {
                rows.len().is_multiple_of(LOOK_EVERY)
                    && !self.has_room(project, &rows, &mut counted)
            };
            if is_too_large {
                stopped = Some(Stopped::TooLarge(rows.largest()));
            } else if self.stop.load(Ordering::Relaxed) {
                stopped = Some(Stopped::Ending);
            }
            Ok(if stopped.is_none() { Flow::Continue(()) } else { Flow::Break(()) })
        })?;
        if stopped.is_none() && !self.has_room(project, &rows, &mut counted) {
            stopped = Some(Stopped::TooLarge(rows.largest()));
        }
        stopped.map_or(Ok(rows), Err)
    }

    fn has_room(&self, project: ProjectId, rows: &Rows, counted: &mut usize) -> bool {
        let now = rows.memory();
        let more = now.saturating_sub(std::mem::replace(counted, now));
        self.grow(project, more)
    }

    /// Puts what was read beside what is there.
    fn install(&self, project: ProjectId, table: Table) -> Result<(), Refusal> {
        let there = self.tables.lock().get(&project).cloned();
        let Some(there) = there else {
            let bytes = table.rows.memory();
            let table = Arc::new(RwLock::new(table));
            self.tables.lock().insert(project, Arc::clone(&table));
            self.account(project, &table, bytes);
            return Ok(());
        };
        let mut table_now = there.write();
        table_now.adopt(table)?;
        self.account(project, &there, table_now.rows.memory());
        Ok(())
    }
}

fn given_up(_: JoinError) -> QueryError {
    QueryError::Unavailable("the question was given up")
}
