//! Properties of all persons in memory, for queries that scan all of them: a value of each person
//! is a code of one, two or four bytes, and a filter is asked once for each different value.
//!
//! A column is a cache of the persons table ([`PersonTable`]). It is read when it is asked for first, from the files of
//! the table, and of those who have changed since from their rows in the identity store; each question brings it up
//! to date with the persons who changed since the one before ([`ChangeFeed`]), so an answer is that of the store at
//! one moment. All columns together stay within a setting: the one that was asked longest ago goes first. One that does not fit is refused for some time, so that its questions look at the files, piece
//! by piece ([`Pieces`]), or at the rows, and so is one that others push out again and again.
//!
//! [`ChangeFeed`]: weir_identity::change_feed::ChangeFeed
//! [`PersonTable`]: crate::persons::person_table::PersonTable

mod build;
mod column;
mod pieces;
mod record;
mod select;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::Value;

use crate::persons::columns::table::{Rows, Table};
use crate::persons::person_table::PersonTable;
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::change_feed::ChangeFeed;
use weir_identity::store::Identities;
use weir_identity::view::View;

pub(crate) use crate::persons::columns::build::Asker;
pub(crate) use crate::persons::columns::pieces::{Piece, Pieces};
pub(crate) use crate::persons::columns::record::{Asks, Record};
pub(crate) use crate::persons::columns::select::{Asked, Selection, along};
pub(crate) use crate::persons::columns::table::Refusal;

/// Columns that are remembered because they do not fit or were pushed out.
const REMEMBERED_MAX: usize = 1000;

/// For how many questions a column is refused that does not fit.
const REFUSED_FOR: u64 = 1000;

/// A column that is pushed out twice within so many questions is refused for as many.
const PUSHED_FOR: u64 = 64;

/// Whoever waits for a table looks so often whether its answer is still wanted.
const WAIT: Duration = Duration::from_millis(100);

/// A column by project and name of the property.
type Name = (ProjectId, Box<str>);

/// The columns of all projects. Takes locks and reads the store: for threads that may wait.
#[derive(Debug)]
pub(crate) struct Columns {
    bytes_max: usize,
    tables: Mutex<BTreeMap<ProjectId, Arc<RwLock<Table>>>>,
    /// Memory of the tables as of their last question.
    held: Mutex<BTreeMap<ProjectId, usize>>,
    /// Memory of what is being read.
    building: AtomicUsize,
    /// Columns that are not wanted, and up to which question.
    refused: Mutex<BTreeMap<Name, u64>>,
    /// Columns that went to make room for others, and at which question.
    pushed: Mutex<BTreeMap<Name, u64>>,
    questions: AtomicU64,
    /// What is on disk, if anything is.
    table: Option<Arc<PersonTable>>,
    /// One set of columns is read at a time.
    turn: tokio::sync::Mutex<()>,
    /// Ends what is being read.
    stop: AtomicBool,
}

impl Columns {
    /// No columns yet; later at most this many bytes of them.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            tables: Mutex::default(),
            held: Mutex::default(),
            building: AtomicUsize::new(0),
            refused: Mutex::default(),
            pushed: Mutex::default(),
            questions: AtomicU64::new(1),
            table: None,
            turn: tokio::sync::Mutex::new(()),
            stop: AtomicBool::new(false),
        }
    }

    /// The same, and columns are read from the files of a table.
    pub(crate) fn of(bytes_max: u64, table: Option<Arc<PersonTable>>) -> Self {
        Self { table, ..Self::new(bytes_max) }
    }

    /// The properties that are in memory.
    pub(crate) fn asked(&self) -> Asks {
        let tables = self.tables.lock().clone();
        let keys = |table: Arc<RwLock<Table>>| table.read().rows.columns.keys().cloned().collect();
        tables.into_iter().map(|(project, table)| (project, keys(table))).collect()
    }

    /// All persons of a project as of a view of now, from which on somebody else watches.
    fn stock(
        &self,
        identities: &Identities,
        project: ProjectId,
        keys: Vec<Box<str>>,
    ) -> Result<(ChangeFeed, Pieces), IdentityError> {
        let (watch, view) = identities.watch(project);
        Ok((watch, Pieces::new(self.table.clone(), project, view, keys)?))
    }

    /// Ends what is being read, for good.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Those of these properties that have no column yet and may get one.
    pub(crate) fn missing(&self, project: ProjectId, keys: &[Box<str>]) -> Vec<Box<str>> {
        if self.bytes_max == 0 {
            return Vec::new();
        }
        let table = self.tables.lock().get(&project).cloned();
        let table = table.as_ref().map(|table| table.read());
        let refused = self.refused.lock();
        let now = self.questions.load(Ordering::Relaxed);
        let is_missing = |key: &str| {
            let is_there = table.as_ref().is_some_and(|table| table.rows.columns.contains_key(key));
            !is_there && refused.get(&(project, key.into())).is_none_or(|until| now > *until)
        };
        keys.iter().filter(|key| is_missing(key)).cloned().collect()
    }

    /// Asks the columns of a project as of now, and with them a view of the same moment; `None` if there
    /// are none, or nobody wants the answer any more. Others who ask wait only while persons who have
    /// changed are read.
    pub(crate) fn ask<T>(
        &self,
        project: ProjectId,
        stop: &AtomicBool,
        ask: impl FnOnce(&Rows, View, u64) -> Result<T, IdentityError>,
    ) -> Result<Option<T>, IdentityError> {
        let asked = self.questions.fetch_add(1, Ordering::Relaxed);
        let Some(table) = self.tables.lock().get(&project).cloned() else { return Ok(None) };
        let refreshed = match refreshed(&table, stop) {
            Ok(refreshed) => refreshed,
            Err(refusal) => {
                self.forget(project, &table);
                return match refusal {
                    Refusal::TooLarge | Refusal::Torn => Ok(None),
                    Refusal::Failed(error) => Err(error),
                };
            }
        };
        let Some((table_now, view)) = refreshed else { return Ok(None) };
        self.account(project, &table, table_now.rows.memory());
        let answer = ask(&table_now.rows, view, asked);
        drop(table_now);
        // Persons that came may have made it too much.
        while self.excess() > 0 && self.evict_one(None) {}
        answer.map(Some)
    }

    /// How many of the newest persons, at most `persons_max`, have each value of a property, the most
    /// frequent first; `None` if it has no column.
    pub(crate) fn values(
        &self,
        project: ProjectId,
        key: &str,
        persons_max: usize,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<(Value, usize)>>, IdentityError> {
        let counted = self.ask(project, stop, |rows, _, asked| {
            let Some(column) = rows.column(key, asked) else { return Ok(None) };
            column.counts(rows.present().iter().rev().take(persons_max)).map(Some)
        });
        Ok(counted?.flatten())
    }

    /// Forgets what is in memory.
    #[cfg(test)]
    pub(crate) fn drop_all(&self) {
        while self.evict_one(None) {}
        self.refused.lock().clear();
    }

    /// Memory of all columns in bytes, those included that are being read.
    pub(crate) fn memory(&self) -> usize {
        let held = self.held.lock().values().fold(0_usize, |sum, more| sum.saturating_add(*more));
        held.saturating_add(self.building.load(Ordering::Relaxed))
    }

    fn excess(&self) -> usize {
        self.memory().saturating_sub(self.bytes_max)
    }

    /// Counts memory of what is being read for a question that wants these columns of a project, and makes room for
    /// it. Says whether there is room.
    fn grow(&self, project: ProjectId, keys: &[Box<str>], bytes: usize) -> bool {
        let before = self.building.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.bytes_max {
            // It would not fit if there were nothing else.
            return false;
        }
        while self.excess() > 0 {
            if !self.evict_one(Some((project, keys))) {
                return false;
            }
        }
        true
    }

    /// Drops the column that was asked for longest ago, but none of those that are `wanted`, and a table
    /// without columns, which would never be chosen again. `false` if there is none. If nothing is wanted
    /// this waits for nobody: the next question can do it too.
    fn evict_one(&self, wanted: Option<(ProjectId, &[Box<str>])>) -> bool {
        let is_wanted = |owner: ProjectId, key: &str| {
            let is_among = |keys: &[Box<str>]| keys.iter().any(|own| **own == *key);
            wanted.is_some_and(|(project, keys)| project == owner && is_among(keys))
        };
        let tables: Vec<_> = self.tables.lock().clone().into_iter().collect();
        let mut oldest: Option<(u64, ProjectId, Box<str>)> = None;
        let is_patient = wanted.is_some();
        for (owner, table) in &tables {
            let table_now = if is_patient { Some(table.read()) } else { table.try_read() };
            let Some(table_now) = table_now else { continue };
            for (key, held) in &table_now.rows.columns {
                let asked = held.asked.load(Ordering::Relaxed);
                let is_older = oldest.as_ref().is_none_or(|(least, ..)| asked < *least);
                if is_older && !is_wanted(*owner, key) {
                    oldest = Some((asked, *owner, key.clone()));
                }
            }
        }
        let Some((_, owner, key)) = oldest else { return false };
        let Some((_, table)) = tables.into_iter().find(|(other, _)| *other == owner) else {
            return false;
        };
        let table_now = if is_patient { Some(table.write()) } else { table.try_write() };
        let Some(mut table_now) = table_now else { return false };
        let is_gone = table_now.rows.columns.remove(&key).is_some();
        // Under the lock, so that nothing is put into a table that is forgotten.
        if table_now.rows.columns.is_empty() {
            self.forget(owner, &table);
        } else {
            self.account(owner, &table, table_now.rows.memory());
        }
        drop(table_now);
        if is_gone {
            self.push_out((owner, key));
        }
        true
    }

    /// Remembers that a column went. If it did so a short time ago too, those who push each other out are
    /// too many, and one of them has to stay away.
    fn push_out(&self, name: Name) {
        let now = self.questions.load(Ordering::Relaxed);
        let mut pushed = self.pushed.lock();
        if pushed.len() >= REMEMBERED_MAX {
            pushed.clear();
        }
        let before = pushed.insert(name.clone(), now);
        drop(pushed);
        if before.is_some_and(|before| now.saturating_sub(before) <= PUSHED_FOR) {
            self.refuse(name, PUSHED_FOR);
        }
    }

    /// Whether this is the table of a project.
    fn is_kept(&self, project: ProjectId, table: &Arc<RwLock<Table>>) -> bool {
        self.tables.lock().get(&project).is_some_and(|own| Arc::ptr_eq(own, table))
    }

    /// Notes the memory of a table, if it is still there.
    fn account(&self, project: ProjectId, table: &Arc<RwLock<Table>>, bytes: usize) {
        let tables = self.tables.lock();
        if tables.get(&project).is_some_and(|own| Arc::ptr_eq(own, table)) {
            self.held.lock().insert(project, bytes);
        }
    }

    /// Drops a table, if it is still this one.
    fn forget(&self, project: ProjectId, table: &Arc<RwLock<Table>>) {
        let mut tables = self.tables.lock();
        if tables.get(&project).is_some_and(|own| Arc::ptr_eq(own, table)) {
            tables.remove(&project);
            self.held.lock().remove(&project);
        }
    }

    /// Refuses a column for so many questions.
    fn refuse(&self, name: Name, questions: u64) {
        let mut refused = self.refused.lock();
        if refused.len() >= REMEMBERED_MAX {
            refused.clear();
        }
        tracing::debug!(property = &*name.1, "no column of persons: there is no room for it");
        let until = self.questions.load(Ordering::Relaxed).saturating_add(questions);
        refused.insert(name, until);
    }
}

/// A table as of now with a view of the same moment, `None` once `stop` is set.
fn refreshed<'t>(
    table: &'t RwLock<Table>,
    stop: &AtomicBool,
) -> Result<Option<(RwLockReadGuard<'t, Table>, View)>, Refusal> {
    while !stop.load(Ordering::Relaxed) {
        let Some(table_now) = table.try_read_for(WAIT) else { continue };
        if let Some(view) = table_now.current()? {
            return Ok(Some((table_now, view)));
        }
        drop(table_now);
        let Some(mut table_now) = table.try_write_for(WAIT) else { continue };
        if let Some(view) = table_now.refresh(|| stop.load(Ordering::Relaxed))? {
            return Ok(Some((RwLockWriteGuard::downgrade(table_now), view)));
        }
    }
    Ok(None)
}
