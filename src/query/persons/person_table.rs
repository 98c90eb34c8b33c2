//! The Delta tables `persons` and `person_distinct_ids`: the persons of all projects, and their distinct ids, as Parquet
//! files in pieces. Queries that look at everybody read the first, and other engines both. Each is a [`PersonTable`] of
//! its own [`TableOf`], with its own commits.
//!
//! A piece is a range of persons with a file (`span`). It is written anew when enough of its persons have changed
//! since, when it has what was deleted, or when it lacks the column of a promoted property (`pieces`, `deriving`), and
//! each commit replaces the files of such ranges, so the table is always whole. Who has changed is known from a change
//! feed of the identity store; at the start, files of an earlier process are compared with the store, unless that ended
//! in order. A reader takes the files with all who have changed since, whose rows it reads from the store, and so sees
//! everybody as of one moment.
//!
//! Functions that say so block; they run on a dedicated thread.

mod deriving;
mod draft;
mod error;
mod file;
mod pieces;
mod reading;
mod schema;
mod span;
mod writing;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use parquet::errors::ParquetError;
use tokio::runtime::Handle;

use crate::persons::person_columns::PersonColumns;
use crate::persons::person_table::pieces::{Job, Need, Pieces, Renewal};
use crate::persons::person_table::span::ALL;
use crate::persons::person_table::writing::Writing;
use weir_base::clock::{Clock, UnixMicros};
use weir_event::id::ProjectId;
use weir_identity::IdentityError;
use weir_identity::person_set::{PersonKey, PersonSet};
use weir_identity::store::Identities;
use weir_identity::view::{Flow, View};
use weir_storage::delta::{DataFile, DeltaTable, Edit, EditKind};
use weir_storage::tables::Tables;

pub use crate::persons::person_table::error::PersonsError;
pub use crate::persons::person_table::schema::TableOf;

pub(crate) use crate::persons::person_table::file::{FileBatch, ScanColumns};
pub(crate) use crate::persons::person_table::pieces::{Part, Parts};

/// Rows of a file.
const ROWS: usize = 1 << 16;

/// Intervals after which a changed file of distinct ids is written anew, however few have changed: without a merge,
/// other engines count a person twice.
const DISTINCT_IDS_INTERVALS: u32 = 6;

/// Files of one commit, if they replace none: the first copy of many persons goes on after a restart.
const FILES_MAX: usize = 16;

/// If files cannot be written they are tried again after so long, or a part of the time that they may be out of date.
const RETRY: Duration = Duration::from_secs(60);

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The sequence of the identity store that it is of.
    pub through: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of files.
    pub files: usize,
    /// Size of the files in bytes.
    pub bytes: u64,
}

impl Written {
    fn add(&mut self, other: Self) {
        self.through = self.through.max(other.through);
        self.rows += other.rows;
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// What one step in the background did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to do.
    #[default]
    None,
    /// The file of an earlier process was compared with the store.
    Verified,
    /// Files were written anew.
    Renewed(Written),
    /// The same of one that has waited for it for long: there is more to do than is done.
    Late(Written),
}

/// The projects that there are.
pub type Projects = Arc<dyn Fn() -> Vec<ProjectId> + Send + Sync>;

/// Whether work is to end before its end.
type Stop<'a> = &'a dyn Fn() -> bool;

/// What a table is of, and how often its files are written.
pub struct PersonTableSettings {
    /// Which table it is.
    pub kind: TableOf,
    /// Where the table is.
    pub tables: Tables,
    /// The persons.
    pub identities: Identities,
    /// Whose persons are in it.
    pub projects: Projects,
    /// Names this node in the transactions of the table.
    pub app_id: String,
    /// Runs what reads and writes files.
    pub runtime: Handle,
    /// The present.
    pub clock: Clock,
    /// The time that a file may be out of date if that is worth to be changed.
    pub interval: Duration,
    /// The time after which no file has what was changed or deleted.
    pub stale_max: Duration,
    /// Memory for columns that scans of queries have read, in bytes.
    pub columns_bytes_max: u64,
}

impl std::fmt::Debug for PersonTableSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersonTableSettings").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A table, with the stores that its rows come from.
pub struct PersonTable {
    kind: TableOf,
    tables: Tables,
    identities: Identities,
    projects: Projects,
    /// Application id under which commits of the table are numbered.
    app_id: String,
    runtime: Handle,
    clock: Clock,
    renewal: Renewal,
    /// Opened at first use, and again after a failure. Locked while something is written, so that nothing else is.
    table: Mutex<Option<DeltaTable>>,
    pieces: Pieces,
    columns: PersonColumns,
    /// When files could not be written.
    failed_at: Mutex<Option<UnixMicros>>,
}

impl std::fmt::Debug for PersonTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersonTable").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl PersonTable {
    /// The table at its place, where it need not exist and is not looked at yet. From now on changes of
    /// persons are recorded, so call it before the first of this process.
    pub fn new(settings: PersonTableSettings) -> Result<Self, IdentityError> {
        let PersonTableSettings {
            kind,
            tables,
            identities,
            projects,
            app_id,
            runtime,
            clock,
            interval,
            stale_max,
            columns_bytes_max,
        } = settings;
        let pieces = Pieces::new(kind, &identities)?;
        let half = stale_max / 2;
        let overdue = match kind {
            TableOf::Persons => half,
            TableOf::DistinctIds => half.min(interval.saturating_mul(DISTINCT_IDS_INTERVALS)),
        };
        Ok(Self {
            kind,
            tables,
            identities,
            projects,
            app_id,
            runtime,
            clock,
            renewal: Renewal { interval, overdue, stale_max, rows_max: ROWS },
            table: Mutex::new(None),
            pieces,
            columns: PersonColumns::new(columns_bytes_max),
            failed_at: Mutex::new(None),
        })
    }

    /// The same with so many rows in a file.
    #[cfg(test)]
    pub(crate) fn with_rows_max(mut self, rows_max: usize) -> Self {
        self.renewal.rows_max = rows_max;
        self
    }

    /// Number of files that readers take.
    #[cfg(test)]
    pub(crate) fn known_files(&self) -> usize {
        self.pieces.known_files()
    }

    /// Opens the table, without rows if there is none. Returns the number of its damaged places, whose persons are
    /// written anew, and of its files.
    pub fn create(&self) -> Result<(usize, usize), PersonsError> {
        self.with_table(|table| Ok((table.damage().len(), table.current().files.len())))
    }

    /// Does what is most worth to be done: looks who has changed since the file of an earlier process was written, or
    /// writes a file anew that enough persons have changed of, that has what was deleted, or that lacks columns. Nothing if
    /// `stop` says so.
    ///
    /// # Errors
    ///
    /// See [`PersonsError`]. The vacuum removes files that were written and not committed.
    pub fn step(&self, stop: Stop<'_>) -> Result<Step, PersonsError> {
        let now = self.clock.now();
        if self.is_paused(None) {
            return Ok(Step::None);
        }
        let step = self.with_table(|table| {
            let applied = self.pieces.look(now)?.applied_sequence()?;
            let is_filling = self.can_fill()?;
            let Some(job) = self.pieces.job(applied, now, is_filling, &self.renewal) else {
                return Ok(Step::None);
            };
            if job.need == Need::Unverified {
                self.verify(table, &job, stop)?;
                return Ok(Step::Verified);
            }
            let written =
                self.renew(table, &job, stop).inspect_err(|_| self.drop_late(table, &job))?;
            Ok(match (written, job.need) {
                (None, _) => Step::None,
                (Some(written), Need::Overdue(age)) if age >= self.renewal.stale_max / 4 * 3 => {
                    Step::Late(written)
                }
                (Some(written), _) => Step::Renewed(written),
            })
        });
        *self.failed_at.lock() = step.is_err().then_some(now);
        step
    }

    /// Whether files could not be written, or something else failed at this time, so recently that it is not tried again yet.
    pub fn is_paused(&self, other: Option<UnixMicros>) -> bool {
        let now = self.clock.now();
        let pause = RETRY.min(self.renewal.stale_max / 4);
        let mut failed = [*self.failed_at.lock(), other].into_iter().flatten();
        failed.any(|at| now >= at && now.since(at) < pause)
    }

    /// Writes all that is not as of now, and gives how much that was; `None` for nothing, or if `stop` said so. Ends only
    /// when no more persons change.
    ///
    /// # Errors
    ///
    /// See [`PersonsError`]. The vacuum removes files that were written and not committed.
    pub fn write(&self, stop: Stop<'_>) -> Result<Option<Written>, PersonsError> {
        self.write_rest(u64::MAX, false, stop)
    }

    /// Writes all that is not as of this sequence, which the store has applied, or of a later one, or that lacks columns:
    /// each file at most once. Gives how much that was; `None` for nothing, or if `stop` said so.
    ///
    /// # Errors
    ///
    /// See [`PersonTable::write`].
    pub fn write_until(&self, until: u64, stop: Stop<'_>) -> Result<Option<Written>, PersonsError> {
        self.write_rest(until, true, stop)
    }

    fn write_rest(
        &self,
        until: u64,
        is_filling: bool,
        stop: Stop<'_>,
    ) -> Result<Option<Written>, PersonsError> {
        self.with_table(|table| {
            let (mut all, mut is_any) = (Written::default(), false);
            let mut fill_from = (is_filling && self.can_fill()?).then_some(ALL.start);
            loop {
                let applied = self.pieces.look(self.clock.now())?.applied_sequence()?;
                let Some(job) = self.pieces.rest(applied, until, fill_from, &self.renewal) else {
                    break;
                };
                if job.need == Need::Unverified {
                    self.verify(table, &job, stop)?;
                } else if let Some(written) = self.renew(table, &job, stop)? {
                    is_any |= !job.files.is_empty() || written.files > 0;
                    all.add(written);
                    // Nothing before lacks columns, so that the files are not all looked at for each one.
                    fill_from = fill_from.map(|from| from.max(job.range.end));
                }
                if stop() {
                    return Ok(None);
                }
            }
            Ok(is_any.then_some(all))
        })
    }

    /// Writes all that is not as of now, when persons change no more, and notes that in the table: the next process
    /// trusts the files without comparing them with the store.
    pub fn close(&self) -> Result<Option<Written>, PersonsError> {
        let written = self.write(&|| false)?;
        self.with_table(|table| {
            let applied = self.identities.view().applied_sequence()?;
            let app_id = self.current_id();
            let version = i64::try_from(applied).unwrap_or(i64::MAX);
            let is_noted =
                table.current().transaction(&app_id).is_some_and(|noted| noted >= version);
            if !is_noted && self.pieces.is_current(applied) {
                let (add, remove, kind) = (Vec::new(), Vec::new(), EditKind::Append);
                let edit = Edit { add, remove, transaction: Some((app_id, version)), kind };
                self.runtime.block_on(table.commit(edit))?;
            }
            Ok(())
        })?;
        Ok(written)
    }

    /// Which table it is.
    pub fn kind(&self) -> TableOf {
        self.kind
    }

    /// The name of the table.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Application id whose transaction is the sequence that all files are as of.
    fn current_id(&self) -> String {
        format!("{}/persons-current", self.app_id)
    }

    /// Number of live files.
    pub fn files(&self) -> usize {
        self.table.lock().as_ref().map_or(0, |table| table.current().files.len())
    }

    /// Removes files that were replaced, see [`DeltaTable::vacuum`]. Returns their paths.
    pub fn vacuum(&self, grace: Duration) -> Result<Vec<String>, PersonsError> {
        self.with_table(|table| Ok(self.runtime.block_on(table.vacuum(grace))?))
    }

    fn distrust(&self, file: &DataFile, error: &ParquetError) {
        let error = error as &dyn std::error::Error;
        tracing::warn!(
            error,
            path = file.path,
            table = self.name(),
            "cannot read a file of persons; it is written anew"
        );
        self.pieces.distrust(&file.path);
    }

    /// Runs `work` with the open table. After a failure the table is reopened the next time, as the state
    /// in the handle may be the cause.
    fn with_table<T>(
        &self,
        work: impl FnOnce(&DeltaTable) -> Result<T, PersonsError>,
    ) -> Result<T, PersonsError> {
        // Dropping an unfinished file removes it, which needs the runtime.
        let _context = self.runtime.enter();
        let mut open = self.table.lock();
        let table = match open.take() {
            Some(table) => table,
            None => self.open()?,
        };
        let done = work(&table)?;
        *open = Some(table);
        Ok(done)
    }

    fn open(&self) -> Result<DeltaTable, PersonsError> {
        let name = self.name();
        let failed = |source| PersonsError::Io { path: self.tables.name(name).into(), source };
        let files = self.tables.writing(name).map_err(failed)?.for_queries();
        let opening = files.open_or_create(self.kind.spec(), self.clock.clone());
        let table = self.runtime.block_on(opening)?;
        let version = table.current();
        let noted = |app_id: &str| u64::try_from(version.transaction(app_id)?).ok();
        let (current, as_of) = (noted(&self.current_id()), noted(&self.app_id).unwrap_or(0));
        self.pieces.adopt(table.store(), &version.files, current, as_of);
        Ok(table)
    }

    /// Compares a file with the store, and records who is not as it says.
    fn verify(&self, table: &DeltaTable, job: &Job, stop: Stop<'_>) -> Result<(), PersonsError> {
        let mut stored = Vec::new();
        for file in &job.files {
            match self.runtime.block_on(file::places(self.kind, table.store(), file)) {
                Ok(places) => stored.extend(places),
                Err(error) => {
                    self.distrust(file, &error);
                    return Ok(());
                }
            }
        }
        let view = self.pieces.begin(&job.range)?;
        match self.changed_since(&view, job, &stored, stop) {
            Ok(changed) if !stop() => {
                // For how long is not known: it is time, and there is time left.
                let half = (self.renewal.stale_max / 2).as_micros();
                let half = i64::try_from(half).unwrap_or(i64::MAX);
                let since = UnixMicros(self.clock.now().0.saturating_sub(half));
                self.pieces.verified(job, changed, view.moment()?, since);
                Ok(())
            }
            other => {
                self.pieces.give_up();
                Ok(other.map(|_| ())?)
            }
        }
    }

    /// Who of a range is not as in the files of a job, which have the persons `stored`.
    fn changed_since(
        &self,
        view: &View,
        job: &Job,
        stored: &[PersonKey],
        stop: Stop<'_>,
    ) -> Result<PersonSet, IdentityError> {
        let (mut changed, mut rest) = (PersonSet::default(), stored);
        for (project, numbers) in self.projects(&job.range) {
            view.scan_rows(project, numbers, |row| {
                let place = (project, row.number);
                while let Some((gone, later)) =
                    rest.split_first().filter(|(next, _)| **next < place)
                {
                    changed.insert(*gone);
                    rest = later;
                }
                let same = rest.split_first().filter(|(next, _)| **next == place);
                if same.is_none() || row.changed_sequence > job.as_of {
                    changed.insert(place);
                }
                rest = same.map_or(rest, |(_, later)| later);
                Ok(if stop() { Flow::Break(()) } else { Flow::Continue(()) })
            })?;
        }
        rest.iter().for_each(|gone| changed.insert(*gone));
        Ok(changed)
    }

    /// The projects that there are in a range, and which of their numbers.
    fn projects(&self, Range { start, end }: &Range<PersonKey>) -> Vec<(ProjectId, Range<i64>)> {
        let bound =
            |place: &PersonKey, project| if place.0 == project { Some(place.1) } else { None };
        let own = (self.projects)().into_iter();
        let own = own.filter(|project| (start.0..=end.0).contains(project)).map(|project| {
            (project, bound(start, project).unwrap_or(0)..bound(end, project).unwrap_or(i64::MAX))
        });
        let mut own: Vec<(ProjectId, Range<i64>)> =
            own.filter(|(_, numbers)| !numbers.is_empty()).collect();
        own.sort_unstable_by_key(|(project, _)| *project);
        own
    }

    /// Writes the persons of a range anew. `None` if it was stopped.
    fn renew(
        &self,
        table: &DeltaTable,
        job: &Job,
        stop: Stop<'_>,
    ) -> Result<Option<Written>, PersonsError> {
        if !table.current().files.is_empty() && self.identities.is_incomplete()? {
            return Err(PersonsError::Incomplete { table: self.name() });
        }
        let view = self.pieces.begin(&job.range)?;
        let renewed = self.write_and_commit(table, &view, job, stop);
        if !matches!(renewed, Ok(Some(_))) {
            self.pieces.give_up();
        }
        renewed
    }

    fn write_and_commit(
        &self,
        table: &DeltaTable,
        view: &View,
        job: &Job,
        stop: Stop<'_>,
    ) -> Result<Option<Written>, PersonsError> {
        let through = view.applied_sequence()?;
        // Taken after the view, so that it has every project that has persons in the view.
        let projects = self.projects(&job.range);
        let (kind, rows_max) = (self.kind, self.renewal.rows_max);
        let (runtime, moment) = (&self.runtime, view.moment()?);
        let columns = (table, self.pieces.derived());
        let mut writing =
            Writing::new(kind, columns, runtime, &job.range, (through, moment), rows_max);
        let files_max = if job.files.is_empty() { FILES_MAX } else { usize::MAX };
        if !writing.write(view, projects, files_max, stop)? {
            return Ok(None);
        }
        let made = writing.made();
        let add: Vec<DataFile> =
            made.iter().flat_map(|span| &span.files).map(|file| DataFile::clone(file)).collect();
        let written = Written {
            through,
            rows: add.iter().map(|file| file.rows).sum(),
            files: add.len(),
            bytes: add.iter().map(|file| file.size_bytes).sum(),
        };
        if !add.is_empty() || !job.files.is_empty() {
            self.commit(table, add, job, through)?;
        }
        self.pieces.finish(&job.range, made);
        Ok(Some(written))
    }

    /// Replaces the files of a job.
    fn commit(
        &self,
        table: &DeltaTable,
        add: Vec<DataFile>,
        job: &Job,
        through: u64,
    ) -> Result<(), PersonsError> {
        // A commit whose outcome is unknown has the same number as the next one, so that only one of them comes to be.
        let last = table.current().transaction(&self.app_id).unwrap_or(0);
        let number = last.saturating_add(1).max(i64::try_from(through).unwrap_or(i64::MAX));
        let edit = Edit {
            add,
            remove: job.files.clone(),
            transaction: Some((self.app_id.clone(), number)),
            kind: if job.files.is_empty() { EditKind::Append } else { EditKind::Replace },
        };
        self.runtime.block_on(table.commit(edit))?;
        Ok(())
    }

    /// Takes files out of the table that cannot be written anew and have what was deleted for as long as they may.
    fn drop_late(&self, table: &DeltaTable, job: &Job) {
        let is_late = matches!(job.need, Need::Overdue(age) if age >= self.renewal.stale_max);
        let is_incomplete = self.identities.is_incomplete().unwrap_or(true);
        if !is_late || is_incomplete || job.files.is_empty() {
            return;
        }
        match self.commit(table, Vec::new(), job, job.as_of) {
            // With the next opening, the range has no file.
            Ok(()) => tracing::error!(
                table = self.name(),
                files = job.files.len(),
                "removed files of persons that have what was deleted and cannot be written anew"
            ),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    table = self.name(),
                    "files of persons have what was deleted, and can neither be written anew nor removed"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
