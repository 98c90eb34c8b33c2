//! Properties of all persons in memory, for questions that look at everybody: a value of each person
//! is a code of one or two bytes, and a filter is asked once for each different value.
//!
//! A column is read from the identity store when it is asked for first, which takes as long as to look
//! at everybody; each question brings it up to date with the persons who changed since the one before
//! ([`Watch`]), so an answer is that of the store at one moment. All columns together stay within a
//! setting: the one that was asked longest ago goes first, and one that does not fit at all is refused,
//! so that its questions look at the rows instead.
//!
//! [`Watch`]: crate::identity::watch::Watch

mod build;
mod column;
mod select;
mod table;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use parking_lot::RwLock;
use parking_lot::RwLockWriteGuard;
use serde_json::Value;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::view::View;
use crate::query::columns::table::Refusal;
use crate::query::columns::table::Rows;
use crate::query::columns::table::Table;

pub(super) use crate::query::columns::select::Asked;
pub(super) use crate::query::columns::select::Selection;

/// Refused columns that are remembered.
const REFUSED_MAX: usize = 1000;

/// A column by project and name of the property.
type Name = (ProjectId, Box<str>);

/// The columns of all projects. Takes locks and reads the store: for threads that may wait.
#[derive(Debug)]
pub(super) struct Columns {
    bytes_max: usize,
    tables: Mutex<BTreeMap<ProjectId, Arc<RwLock<Table>>>>,
    /// Memory of the tables as of their last question.
    held: Mutex<BTreeMap<ProjectId, usize>>,
    /// Memory of what is being read.
    building: AtomicUsize,
    /// Columns that do not fit.
    refused: Mutex<BTreeSet<Name>>,
    questions: AtomicU64,
    /// One set of columns is read at a time.
    turn: tokio::sync::Mutex<()>,
    /// Ends what is being read.
    stop: AtomicBool,
}

impl Columns {
    /// No columns yet; later at most this many bytes of them.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            tables: Mutex::default(),
            held: Mutex::default(),
            building: AtomicUsize::new(0),
            refused: Mutex::default(),
            questions: AtomicU64::new(1),
            turn: tokio::sync::Mutex::new(()),
            stop: AtomicBool::new(false),
        }
    }

    /// Ends what is being read, for good.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Those of these properties that have no column yet and may get one.
    pub(super) fn missing(&self, project: ProjectId, keys: &[Box<str>]) -> Vec<Box<str>> {
        if self.bytes_max == 0 {
            return Vec::new();
        }
        let table = self.tables.lock().get(&project).cloned();
        let table = table.as_ref().map(|table| table.read());
        let refused = self.refused.lock();
        let is_missing = |key: &str| {
            let is_there = table.as_ref().is_some_and(|table| table.rows.columns.contains_key(key));
            !is_there && !refused.contains(&(project, key.into()))
        };
        keys.iter().filter(|key| is_missing(key)).cloned().collect()
    }

    /// Asks the columns of a project as of now, and with them a view of the same moment; `None` if there
    /// are none. Others who ask wait if persons have changed.
    pub(super) fn ask<T>(
        &self,
        project: ProjectId,
        ask: impl FnOnce(&Rows, View, u64) -> Result<T, IdentityError>,
    ) -> Result<Option<T>, IdentityError> {
        let Some(table) = self.tables.lock().get(&project).cloned() else { return Ok(None) };
        let mut table_now = table.write();
        let view = match table_now.refresh() {
            Ok(view) => view,
            Err(refusal) => {
                drop(table_now);
                self.forget(project, &table);
                return match refusal {
                    Refusal::TooLarge => Ok(None),
                    Refusal::Failed(error) => Err(error),
                };
            }
        };
        let table_now = RwLockWriteGuard::downgrade(table_now);
        self.account(project, &table, table_now.rows.memory());
        let asked = self.questions.fetch_add(1, Ordering::Relaxed);
        let answer = ask(&table_now.rows, view, asked);
        drop(table_now);
        // Persons that came may have made it too much.
        while self.excess() > 0 && self.evict_one(None) {}
        answer.map(Some)
    }

    /// How many of the newest persons, at most `persons_max`, have each value of a property, the most
    /// frequent first; `None` if it has no column.
    pub(super) fn values(
        &self,
        project: ProjectId,
        key: &str,
        persons_max: usize,
    ) -> Result<Option<Vec<(Value, usize)>>, IdentityError> {
        let counted = self.ask(project, |rows, _, asked| {
            let Some(column) = rows.column(key, asked) else { return Ok(None) };
            column.counts(rows.present().iter().rev().take(persons_max)).map(Some)
        });
        Ok(counted?.flatten())
    }

    /// Memory of all columns in bytes, those included that are being read.
    pub(super) fn memory(&self) -> usize {
        let held = self.held.lock().values().fold(0_usize, |sum, more| sum.saturating_add(*more));
        held.saturating_add(self.building.load(Ordering::Relaxed))
    }

    fn excess(&self) -> usize {
        self.memory().saturating_sub(self.bytes_max)
    }

    /// Counts memory of what is being read, and makes room for it. Says whether there is room.
    fn grow(&self, project: ProjectId, bytes: usize) -> bool {
        self.building.fetch_add(bytes, Ordering::Relaxed);
        while self.excess() > 0 {
            if !self.evict_one(Some(project)) {
                return false;
            }
        }
        true
    }

    /// Drops the column that was asked for longest ago, and a table without columns. What is read for
    /// `project` needs its persons, so of that one only columns go. `false` if there is none.
    fn evict_one(&self, project: Option<ProjectId>) -> bool {
        let tables: Vec<_> = self.tables.lock().clone().into_iter().collect();
        let mut oldest: Option<(u64, ProjectId, Box<str>)> = None;
        for (owner, table) in &tables {
            for (key, held) in &table.read().rows.columns {
                let asked = held.asked.load(Ordering::Relaxed);
                if oldest.as_ref().is_none_or(|(least, ..)| asked < *least) {
                    oldest = Some((asked, *owner, key.clone()));
                }
            }
        }
        let Some((_, owner, key)) = oldest else { return false };
        let Some((_, table)) = tables.into_iter().find(|(other, _)| *other == owner) else {
            return false;
        };
        let mut table_now = table.write();
        table_now.rows.columns.remove(&key);
        let is_empty = table_now.rows.columns.is_empty();
        if is_empty && project != Some(owner) {
            drop(table_now);
            self.forget(owner, &table);
        } else {
            self.account(owner, &table, table_now.rows.memory());
        }
        true
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

    fn refuse(&self, name: Name) {
        let mut refused = self.refused.lock();
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        tracing::debug!(property = &*name.1, "no column of persons: it would be too large");
        refused.insert(name);
    }
}
