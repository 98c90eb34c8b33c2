//! Table store: memtables and Parquet files of one Delta table. [`Store`] takes rows in log order, freezes
//! and flushes memtables, and returns snapshots. It does not know the log; `maintenance` truncates the log
//! after a flush.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::TimestampMicrosecondType;
use arrow::error::ArrowError;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use tokio::sync::Notify;

use crate::delta::error::TableError;
use crate::delta::{DataFile, DeltaTable, Edit, EditKind, TableVersion};
use crate::derived::Derived;
use crate::exact::ExactColumns;
use crate::memtable::Memtable;
use crate::parquet::{Effort, FileWriter, GROUP_MAX_ROWS, Layout};
use crate::rows::Rows;
use crate::sort::{Gather, RowPosition};
use crate::wal::Sequence;
use crate::{naming, sort};
use weir_base::clock::{Clock, UnixMicros};
use weir_base::config::storage::StorageConfig;
use weir_base::error::Kind;

/// Rows of a column that are gathered and passed to the Parquet writer per call: their text fits into the CPU
/// cache, where the writer finds it.
const GATHER_ROWS: usize = 2048;

/// Mapping of rows to partitions.
#[derive(Clone, Copy, Debug)]
pub struct Partitioning {
    /// Position of the time column that determines the partition.
    pub time_column: usize,
    /// The partition of a time, as a number.
    pub key: fn(UnixMicros) -> i32,
    /// The partition's value in paths and in the table.
    pub name: fn(i32) -> String,
}

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The table failed.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Writing a data file failed.
    #[error("cannot write a data file")]
    Parquet(#[from] ParquetError),
    /// The rows do not match each other or the schema.
    #[error("rows do not fit the table")]
    Rows(#[from] ArrowError),
    /// The outcome of an earlier commit is unknown. The next flush settles it.
    #[error(
        "the outcome of an earlier commit to table {0} is unknown; other changes wait until the next flush settles it"
    )]
    Pending(&'static str),
}

impl StoreError {
    /// Whether another process has taken the table over.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Table(TableError::Fenced { .. }))
    }

    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Table(error) => error.kind(),
            Self::Parquet(_) | Self::Pending(_) => Kind::Unavailable,
            Self::Rows(_) => Kind::Internal,
        }
    }
}

/// A cheap handle on one table; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    table: DeltaTable,
    layout: Layout,
    partitioning: Partitioning,
    /// Application id of this node, under which the table's transactions record its flushed log sequence.
    app_id: String,
    settings: StorageConfig,
    clock: Clock,
    /// The columns of files that are computed.
    derived: Mutex<Derived>,
    /// Locked for a few pointer operations, or while small batches are joined (at most some MiB, see
    /// `memtable`); never across I/O.
    state: Mutex<State>,
    /// Locked for a whole flush, and for each commit: memtables are flushed one after the other, oldest
    /// first, and no commit follows one whose outcome is unknown.
    committing: tokio::sync::Mutex<Option<Pending>>,
    /// Notified after every flush.
    flushes: Notify,
    /// Number of commits in doubt whose outcome became known.
    settled: AtomicU64,
}

/// An edit with an unknown outcome: the object store failed while it wrote the commit. It is committed
/// again before any other edit. An edit that assumed its absence would duplicate or lose rows if it is in
/// the table.
#[derive(Clone)]
struct Pending {
    edit: Edit,
    /// Result of the flush, if the edit contains the files of the oldest frozen memtable.
    flushed: Option<Flushed>,
}

struct State {
    active: Memtable,
    /// Memtables that wait for their flush, oldest first. They stay visible until their files are.
    frozen: VecDeque<Arc<Memtable>>,
    version: Arc<TableVersion>,
    /// Rows of records up to here are in files that another process has written ([`Store::follow`]).
    followed: Sequence,
}

impl State {
    fn freeze(&mut self) {
        if !self.active.is_empty() {
            let closed = std::mem::take(&mut self.active);
            self.frozen.push_back(Arc::new(closed));
        }
    }
}

/// Snapshot for one reader: a version of the files, and the rows that are in no file. It does not change,
/// and its files stay on disk for the grace period of the vacuum.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The files.
    pub version: Arc<TableVersion>,
    /// The rows that are in no file of the version, oldest first.
    pub batches: Vec<Arc<Rows>>,
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// All records up to this one are in files.
    pub through: Sequence,
    /// Rows written.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Deleted rows that were left out.
    pub dropped: u64,
}

/// Filter of the rows that a flush writes; `None` keeps all rows.
pub type Keep<'a> = dyn Fn(&Rows) -> Option<BooleanArray> + Send + Sync + 'a;

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("app_id", &self.shared.app_id).finish_non_exhaustive()
    }
}

impl Store {
    /// A store over an open table. `app_id` names this node in the table's transactions.
    pub fn new(
        table: DeltaTable,
        layout: Layout,
        partitioning: Partitioning,
        app_id: String,
        settings: StorageConfig,
        clock: Clock,
    ) -> Self {
        let version = table.current();
        let (active, frozen, followed) = (Memtable::default(), VecDeque::new(), Sequence(0));
        let state = State { active, frozen, version, followed };
        let state = Mutex::new(state);
        let committing = tokio::sync::Mutex::new(None);
        let flushes = Notify::new();
        let shared = Shared {
            table,
            layout,
            partitioning,
            app_id,
            settings,
            clock,
            derived: Mutex::default(),
            state,
            committing,
            flushes,
            settled: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The table under this store.
    pub fn table(&self) -> &DeltaTable {
        &self.shared.table
    }

    /// The name of this node in the table's transactions.
    pub fn app_id(&self) -> &str {
        &self.shared.app_id
    }

    /// The storage settings.
    pub fn settings(&self) -> &StorageConfig {
        &self.shared.settings
    }

    /// Number of commits in doubt whose outcome became known.
    pub fn commits_settled(&self) -> u64 {
        self.shared.settled.load(Ordering::Relaxed)
    }

    /// The layout of its files.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// Starts a file of the table.
    ///
    /// # Errors
    ///
    /// The schema cannot be written as Parquet: a programmer error.
    pub fn file(
        &self,
        effort: Effort,
        partition: Option<String>,
        name: &str,
    ) -> Result<FileWriter, ParquetError> {
        let Shared { table, layout, derived, .. } = &*self.shared;
        let columns = (table.spec(), derived.lock().clone());
        FileWriter::deriving(&table.store(), columns, layout, effort, partition, name)
    }

    /// The columns of files that are computed.
    pub fn derived(&self) -> Derived {
        self.shared.derived.lock().clone()
    }

    /// Adds columns to the table that files have from now on, as far as it lacks them.
    ///
    /// # Errors
    ///
    /// The table has one of them with another type, or cannot be changed; files are as before then.
    pub async fn derive(&self, derived: Derived) -> Result<(), StoreError> {
        let shared = &*self.shared;
        let pending = shared.committing.lock().await;
        if pending.is_some() {
            return Err(StoreError::Pending(shared.table.spec().name));
        }
        shared.table.add_columns(&derived.fields()).await?;
        shared.state.lock().version = shared.table.current();
        *shared.derived.lock() = derived;
        Ok(())
    }

    /// The last log record up to which all records are in files.
    pub fn flushed_through(&self) -> Sequence {
        self.flushed_through_of(&self.shared.table.current())
    }

    /// The last log record up to which all records are in the files of `version`.
    pub fn flushed_through_of(&self, version: &TableVersion) -> Sequence {
        let last = version.transaction(&self.shared.app_id);
        Sequence(last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0))
    }

    /// Makes the rows of a durable log record visible. Freezes the memtable if it is full and another one may
    /// wait for its flush. Call it in log order.
    ///
    /// # Errors
    ///
    /// The rows do not match the schema: a programmer error.
    pub fn insert(&self, rows: Rows, sequence: Sequence) -> Result<(), ArrowError> {
        let now = self.shared.clock.monotonic();
        let mut state = self.shared.state.lock();
        if sequence <= state.followed {
            return Ok(());
        }
        state.active.insert(rows, sequence, now)?;
        if self.is_large(&state) && state.frozen.len() < self.shared.settings.frozen_memtables_max {
            state.freeze();
        }
        Ok(())
    }

    /// Freezes the active memtable if its oldest rows have reached their age.
    pub fn freeze_aged(&self) {
        let mut state = self.shared.state.lock();
        let age = state.active.age(self.shared.clock.monotonic());
        let settings = &self.shared.settings;
        if age >= settings.memtable_max_age && state.frozen.len() < settings.frozen_memtables_max {
            state.freeze();
        }
    }

    /// Whether the active memtable is full and no more memtables may wait for a flush: backpressure for
    /// capture.
    pub fn is_full(&self) -> bool {
        let state = self.shared.state.lock();
        self.is_large(&state) && state.frozen.len() >= self.shared.settings.frozen_memtables_max
    }

    fn is_large(&self, state: &State) -> bool {
        let bytes = u64::try_from(state.active.memory_bytes()).unwrap_or(u64::MAX);
        bytes >= self.shared.settings.memtable_max_bytes.as_u64()
    }

    /// Takes over what another process has committed, which writes this table from the same log: its files, and in one step
    /// with them the rows in memory that are in these files go. Rows that come later and are in them are not added.
    ///
    /// # Errors
    ///
    /// The table cannot be read; nothing has changed.
    pub async fn follow(&self) -> Result<(), StoreError> {
        let version = self.shared.table.refresh().await?;
        let through = self.flushed_through_of(&version);
        let mut state = self.shared.state.lock();
        if version.version == state.version.version {
            return Ok(());
        }
        let frozen = state.frozen.iter().filter(|memtable| memtable.last() > through);
        let frozen = frozen.map(|memtable| memtable.after(through).map(Arc::new));
        let frozen = frozen.collect::<Result<VecDeque<_>, _>>()?;
        let active = state.active.after(through)?;
        let followed = state.followed.max(through);
        *state = State { active, frozen, version, followed };
        drop(state);
        self.shared.flushes.notify_waiters();
        Ok(())
    }

    /// Waits for a flush, after which [`Store::is_full`] may have changed.
    pub async fn flushed(&self) {
        self.shared.flushes.notified().await;
    }

    /// How long the oldest row that is in no file yet has been here; zero without one.
    pub fn unflushed_age(&self) -> Duration {
        let state = self.shared.state.lock();
        let oldest = state.frozen.front().map_or(&state.active, AsRef::as_ref);
        oldest.age(self.shared.clock.monotonic())
    }

    /// Memory of all memtables.
    pub fn memory_bytes(&self) -> usize {
        let state = self.shared.state.lock();
        let frozen = state.frozen.iter().map(|memtable| memtable.memory_bytes()).sum::<usize>();
        state.active.memory_bytes() + frozen
    }

    /// Freezes the active memtable, unless it is empty; later rows go to a new one. Returns the last log
    /// record of the frozen memtables; `None` if none is frozen.
    pub fn freeze(&self) -> Option<Sequence> {
        let mut state = self.shared.state.lock();
        state.freeze();
        state.frozen.back().map(|memtable| memtable.last())
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.state.lock();
        let frozen = state.frozen.iter().flat_map(|memtable| memtable.batches());
        Snapshot {
            version: Arc::clone(&state.version),
            batches: frozen.chain(state.active.batches()).cloned().collect(),
        }
    }

    /// Writes the rows of the oldest frozen memtable that pass `keep` to files, and commits them together
    /// with the log position. `None` if none is frozen, or it has rows of records after `bound`, for which
    /// `keep` is not valid. A commit with an unknown outcome is settled first.
    ///
    /// # Errors
    ///
    /// The memtable stays frozen and visible; try again later.
    pub async fn flush(
        &self,
        bound: Sequence,
        keep: &Keep<'_>,
    ) -> Result<Option<Flushed>, StoreError> {
        let mut pending = self.shared.committing.lock().await;
        if let Some(doubtful) = pending.clone() {
            let flushed = doubtful.flushed;
            self.commit(&mut pending, doubtful).await?;
            if flushed.is_some() {
                return Ok(flushed);
            }
        }
        let oldest = self.shared.state.lock().frozen.front().cloned();
        let Some(memtable) = oldest else { return Ok(None) };
        let through = memtable.last();
        if through > bound {
            return Ok(None);
        }
        let files = self.write(&memtable, keep).await?;
        let rows = files.iter().map(|file| file.rows).sum();
        let all = u64::try_from(memtable.rows()).unwrap_or(u64::MAX);
        let position = i64::try_from(through.0).unwrap_or(i64::MAX);
        let flushed = Flushed {
            through,
            rows,
            bytes: files.iter().map(|file| file.size_bytes).sum(),
            dropped: all.saturating_sub(rows),
        };
        let edit = Edit {
            add: files,
            remove: Vec::new(),
            transaction: Some((self.shared.app_id.clone(), position)),
            kind: EditKind::Append,
        };
        let change = Pending { edit, flushed: Some(flushed) };
        self.commit(&mut pending, change).await?;
        Ok(Some(flushed))
    }

    /// Commits a change of files that adds no rows, such as a merge.
    ///
    /// # Errors
    ///
    /// The table is unchanged. After [`TableError::InDoubt`] the change may still take effect, at the
    /// latest with the next flush; until then other changes fail with [`StoreError::Pending`].
    pub async fn replace(&self, edit: Edit) -> Result<(), StoreError> {
        let mut pending = self.shared.committing.lock().await;
        if pending.is_some() {
            return Err(StoreError::Pending(self.shared.table.spec().name));
        }
        self.commit(&mut pending, Pending { edit, flushed: None }).await
    }

    /// Commits a change, or commits it again if it is `pending`, and publishes it to readers. It stays
    /// pending until its outcome is known, also if the caller is dropped meanwhile.
    async fn commit(
        &self,
        pending: &mut Option<Pending>,
        change: Pending,
    ) -> Result<(), StoreError> {
        let shared = &*self.shared;
        let is_again = pending.is_some();
        *pending = Some(change.clone());
        let committed = match is_again {
            true => shared.table.commit_again(&change.edit).await,
            false => shared.table.commit(change.edit).await,
        };
        let is_open = committed.as_ref().is_err_and(|error| error.leaves_in_doubt(is_again));
        if !is_open {
            *pending = None;
            self.shared.settled.fetch_add(u64::from(is_again), Ordering::Relaxed);
        }
        let version = committed?;
        let mut state = shared.state.lock();
        // Files are added and rows removed in one step, so that a reader counts every row once.
        if change.flushed.is_some() {
            state.frozen.pop_front();
        }
        state.version = version;
        drop(state);
        if change.flushed.is_some() {
            shared.flushes.notify_waiters();
        }
        Ok(())
    }

    /// Writes the files of a memtable, all or none.
    async fn write(
        &self,
        memtable: &Memtable,
        keep: &Keep<'_>,
    ) -> Result<Vec<DataFile>, StoreError> {
        let mut files = Vec::new();
        let written = self.write_each(memtable, keep, &mut files).await;
        if written.is_err() {
            // The files are in no edit, and the next attempt writes new ones, which need the space on a
            // full disk.
            self.discard(&files).await;
        }
        written.map(|()| files)
    }

    /// Removes files that are in no edit. The vacuum removes those for which it fails.
    async fn discard(&self, files: &[DataFile]) {
        let store = self.shared.table.store();
        for path in files.iter().filter_map(|file| Path::parse(&file.path).ok()) {
            if let Err(error) = store.delete(&path).await {
                tracing::warn!(%path, %error, "cannot remove an unused data file; the vacuum removes it later");
            }
        }
    }

    /// Writes one file after the other, and adds the finished ones to a list.
    async fn write_each(
        &self,
        memtable: &Memtable,
        keep: &Keep<'_>,
        files: &mut Vec<DataFile>,
    ) -> Result<(), StoreError> {
        let shared = &*self.shared;
        let kept = |rows: &Arc<Rows>| match keep(rows) {
            None => Ok(Arc::clone(rows)),
            Some(keep) => Rows::clone(rows).filtered(&keep).map(Arc::new),
        };
        let batches: Vec<Arc<Rows>> =
            memtable.batches().iter().map(kept).collect::<Result<_, _>>()?;
        let batches = batches.as_slice();
        let exact: ExactColumns = batches.iter().map(|rows| rows.exact).collect();
        let places = sort::sorted(batches, &shared.layout.sort)?;
        let gather = Gather::new(batches, &shared.table.spec().schema);
        for (partition, places) in self.partitioned(batches, places) {
            let name = naming::flushed(memtable.last());
            let file = self.file(Effort::Flush, Some(partition), &name)?;
            let mut file = file.with_exact(exact);
            for places in places.chunks(GROUP_MAX_ROWS) {
                let column = |position| {
                    let parts = places.chunks(GATHER_ROWS);
                    let gather = &gather;
                    parts.map(move |places| gather.column(position, places))
                };
                file.write_group(places.len(), column).await?;
            }
            files.push(file.finish().await?);
        }
        Ok(())
    }

    /// Splits sorted places by partition, keeping their order.
    fn partitioned(
        &self,
        batches: &[Arc<Rows>],
        places: Vec<RowPosition>,
    ) -> Vec<(String, Vec<RowPosition>)> {
        let partitioning = self.shared.partitioning;
        let key = |micros: &i64| (partitioning.key)(UnixMicros(*micros));
        let times = |rows: &Arc<Rows>| {
            let column = rows.columns.get(partitioning.time_column).cloned().flatten();
            column.map(|column| column.as_primitive::<TimestampMicrosecondType>().clone())
        };
        let times: Vec<_> = batches.iter().map(times).collect();
        let all = || times.iter().flatten().flat_map(|times| times.values().iter());
        let (Some(min), Some(max)) = (all().min(), all().max()) else { return Vec::new() };
        if key(min) == key(max) {
            return vec![((partitioning.name)(key(min)), places)];
        }
        let mut partitions: std::collections::BTreeMap<i32, Vec<RowPosition>> = Default::default();
        for place in places {
            let times = times.get(place.batch()).and_then(Option::as_ref);
            let micros = times.and_then(|times| times.values().get(place.row()));
            partitions.entry(micros.map_or(0, key)).or_default().push(place);
        }
        let name = |(key, places)| ((partitioning.name)(key), places);
        partitions.into_iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests;
