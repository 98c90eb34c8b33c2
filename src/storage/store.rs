//! One table as readers and writers see it: files and memtables together. [`Store`] takes rows in
//! log order, freezes and flushes them, and gives snapshots. It does not know the log; who owns
//! both truncates the log after a flush.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::array::BooleanArray;
use arrow::datatypes::TimestampMicrosecondType;
use arrow::error::ArrowError;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::clock::UnixMicros;
use crate::config::storage::StorageConfig;
use crate::error::Kind;
use crate::storage::delta::DataFile;
use crate::storage::delta::DeltaTable;
use crate::storage::delta::Edit;
use crate::storage::delta::EditKind;
use crate::storage::delta::TableVersion;
use crate::storage::delta::error::TableError;
use crate::storage::memtable::Memtable;
use crate::storage::naming;
use crate::storage::parquet::Effort;
use crate::storage::parquet::FileWriter;
use crate::storage::parquet::GROUP_MAX_ROWS;
use crate::storage::parquet::Layout;
use crate::storage::rows::Rows;
use crate::storage::sort;
use crate::storage::sort::Gather;
use crate::storage::sort::Place;
use crate::storage::wal::Sequence;

/// Values of a column that are gathered and handed to the Parquet writer at once: their text fits
/// into the processor's cache, where the writer finds it.
const GATHER_ROWS: usize = 2048;

/// How rows are spread over partitions.
#[derive(Clone, Copy, Debug)]
pub struct Partitioning {
    /// Position of the time column that decides.
    pub time_column: usize,
    /// The partition of a time, as a number.
    pub key: fn(UnixMicros) -> i32,
    /// The partition's value in paths and in the table.
    pub name: fn(i32) -> String,
}

/// Why a store cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The table's log or files.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Writing a data file.
    #[error("cannot write a data file")]
    Parquet(#[from] ParquetError),
    /// Rows that do not fit each other or the schema.
    #[error("rows do not fit the table")]
    Rows(#[from] ArrowError),
}

impl StoreError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Table(error) => error.kind(),
            Self::Parquet(_) => Kind::Unavailable,
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
    /// Under this name the table remembers how far this node's log has been flushed.
    app_id: String,
    settings: StorageConfig,
    clock: Clock,
    /// Held for the length of a few pointer moves, or while small batches are put together (at most
    /// some MiB, see `memtable`); never across I/O.
    state: Mutex<State>,
    /// Held for a whole flush: memtables go to files one after the other, oldest first.
    flushing: tokio::sync::Mutex<()>,
    /// Told after every flush.
    room: Notify,
}

struct State {
    active: Memtable,
    /// Waiting for their flush, oldest first. They stay visible until their files are.
    frozen: VecDeque<Arc<Memtable>>,
    version: Arc<TableVersion>,
}

impl State {
    fn freeze(&mut self) {
        if !self.active.is_empty() {
            let closed = std::mem::take(&mut self.active);
            self.frozen.push_back(Arc::new(closed));
        }
    }
}

/// What one reader sees: a version of the files and the rows that are not in it. Pinned: it does
/// not change, and its files stay for the grace of the vacuum.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The files.
    pub version: Arc<TableVersion>,
    /// The rows that are in no file yet, oldest first.
    pub batches: Vec<Arc<Rows>>,
}

/// What a flush has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Everything up to this log record is in files.
    pub through: Sequence,
    /// Rows written.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Rows left out.
    pub dropped: u64,
}

/// Which rows a flush keeps; `None` for all of them.
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
        (layout, partitioning): (Layout, Partitioning),
        app_id: String,
        settings: StorageConfig,
        clock: Clock,
    ) -> Self {
        let version = table.current();
        let state = State { active: Memtable::default(), frozen: VecDeque::new(), version };
        let state = Mutex::new(state);
        let flushing = tokio::sync::Mutex::new(());
        let room = Notify::new();
        let shared =
            Shared { table, layout, partitioning, app_id, settings, clock, state, flushing, room };
        Self { shared: Arc::new(shared) }
    }

    /// The table under this store.
    pub fn table(&self) -> &DeltaTable {
        &self.shared.table
    }

    /// Sizes and ages of what is kept.
    pub fn settings(&self) -> &StorageConfig {
        &self.shared.settings
    }

    /// How its files are laid out.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// Everything up to this log record is in files.
    pub fn flushed_through(&self) -> Sequence {
        self.flushed_through_of(&self.shared.table.current())
    }

    /// Everything up to this log record is in the files of `version`.
    pub fn flushed_through_of(&self, version: &TableVersion) -> Sequence {
        let last = version.transaction(&self.shared.app_id);
        Sequence(last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0))
    }

    /// Makes the rows of a durable log record visible, and freezes the memtable that is full with
    /// them if another may wait for its flush. Call it in log order.
    ///
    /// # Errors
    ///
    /// The rows do not fit: a programmer error.
    pub fn insert(&self, rows: Rows, sequence: Sequence) -> Result<(), ArrowError> {
        let now = self.shared.clock.monotonic();
        let mut state = self.shared.state.lock();
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

    /// Whether the active memtable is full while as many as may wait are waiting.
    pub fn is_full(&self) -> bool {
        let state = self.shared.state.lock();
        self.is_large(&state) && state.frozen.len() >= self.shared.settings.frozen_memtables_max
    }

    fn is_large(&self, state: &State) -> bool {
        let bytes = u64::try_from(state.active.memory_bytes()).unwrap_or(u64::MAX);
        bytes >= self.shared.settings.memtable_max_bytes.as_u64()
    }

    /// Waits until [`Store::is_full`] may have changed: a flush has made room.
    pub async fn flushed(&self) {
        self.shared.room.notified().await;
    }

    /// Memory of all memtables.
    pub fn memory_bytes(&self) -> usize {
        let state = self.shared.state.lock();
        let frozen = state.frozen.iter().map(|memtable| memtable.memory_bytes()).sum::<usize>();
        state.active.memory_bytes() + frozen
    }

    /// Closes the active memtable, if it has anything; rows that come go to a new one.
    pub fn freeze(&self) {
        self.shared.state.lock().freeze();
    }

    /// What a reader sees now.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.state.lock();
        let frozen = state.frozen.iter().flat_map(|memtable| memtable.batches());
        Snapshot {
            version: Arc::clone(&state.version),
            batches: frozen.chain(state.active.batches()).cloned().collect(),
        }
    }

    /// Writes the rows of the oldest frozen memtable that `keep` keeps into files and commits them
    /// together with the log position. `None` if none is frozen, or it has rows of records after
    /// `bound`, of which `keep` knows nothing.
    ///
    /// # Errors
    ///
    /// The memtable stays frozen and visible; try again later.
    pub async fn flush(
        &self,
        bound: Sequence,
        keep: &Keep<'_>,
    ) -> Result<Option<Flushed>, StoreError> {
        let _flushing = self.shared.flushing.lock().await;
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
        let version = self.shared.table.commit(edit).await?;
        // Files in and rows out in one step: a reader counts every row once.
        let mut state = self.shared.state.lock();
        state.frozen.pop_front();
        state.version = version;
        drop(state);
        self.shared.room.notify_waiters();
        Ok(Some(flushed))
    }

    /// Commits a change of files that adds no rows, such as a merge.
    ///
    /// # Errors
    ///
    /// The table is as before.
    pub async fn replace(&self, edit: Edit) -> Result<(), StoreError> {
        let version = self.shared.table.commit(edit).await?;
        let mut state = self.shared.state.lock();
        // A flush that committed in between has installed a newer version.
        if version.version > state.version.version {
            state.version = version;
        }
        Ok(())
    }

    async fn write(
        &self,
        memtable: &Memtable,
        keep: &Keep<'_>,
    ) -> Result<Vec<DataFile>, StoreError> {
        let shared = &*self.shared;
        let kept = |rows: &Arc<Rows>| match keep(rows) {
            None => Ok(Arc::clone(rows)),
            Some(keep) => Rows::clone(rows).filtered(&keep).map(Arc::new),
        };
        let batches: Vec<Arc<Rows>> =
            memtable.batches().iter().map(kept).collect::<Result<_, _>>()?;
        let batches = batches.as_slice();
        let places = sort::sorted(batches, &shared.layout.sort)?;
        let gather = Gather::new(batches, &shared.table.spec().schema);
        let mut files = Vec::new();
        for (partition, places) in self.partitioned(batches, places) {
            let name = naming::flushed(memtable.last());
            let mut file = FileWriter::new(
                &shared.table.store(),
                shared.table.spec(),
                &shared.layout,
                Effort::Flush,
                (Some(partition), &name),
            )?;
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
        Ok(files)
    }

    /// Splits sorted places by partition, keeping their order.
    fn partitioned(&self, batches: &[Arc<Rows>], places: Vec<Place>) -> Vec<(String, Vec<Place>)> {
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
        let mut partitions: std::collections::BTreeMap<i32, Vec<Place>> = Default::default();
        for place in places {
            let times = times.get(place.batch()).and_then(Option::as_ref);
            let micros = times.and_then(|times| times.values().get(place.row()));
            partitions.entry(micros.map_or(0, key)).or_default().push(place);
        }
        let name = |(key, places)| ((partitioning.name)(key), places);
        partitions.into_iter().map(name).collect()
    }
}
