//! A Delta table: its live files and its commits. [`DeltaTable`] is one handle on one table,
//! [`TableVersion`] what the table was at one moment, [`Edit`] one atomic change of it.
//! No rows and no Parquet here: a file is a name with statistics.
//!
//! # How a commit works
//!
//! A version is a file `_delta_log/<version>.json`, created only if nobody else has. Whoever loses
//! reads what the winner did, checks that the edit still fits, and tries the next number. All
//! checks are against the version right below the one that is written, so nothing can slip in
//! between. Commits of one application (a node's flushes) carry a transaction number in the same
//! file: rows and log position move together, or not at all.
//!
//! # Why not the library's commit loop
//!
//! `deltalake-core` holds the protocol (actions, checkpoints, log clean-up) and is used for that.
//! Its own loop keeps every file's statistics as Arrow batches, replays them at every conflict,
//! and without `DataFusion` has no predicate logic in its conflict check. Ours needs one put per
//! commit and one get per commit of others.

pub mod error;
mod log;
mod schema;
mod state;
pub mod stats;
mod vacuum;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use deltalake_core::kernel::Action;
use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream;
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parking_lot::RwLock;
use url::Url;
use uuid::Uuid;

use crate::clock::Clock;
use crate::clock::UnixMicros;
use crate::storage::delta::error::TableError;
use crate::storage::delta::log::Loaded;
use crate::storage::delta::log::Log;
use crate::storage::delta::log::Put;
use crate::storage::delta::state::State;
use crate::storage::delta::stats::FileStats;

/// Commits between two checkpoints of the log; the protocol's usual value. A reader that opens the
/// table reads at most this many commit files.
pub const CHECKPOINT_INTERVAL: u64 = 100;

/// How long files of the log that a checkpoint has replaced stay at least. Time travel ends much
/// earlier: with the files that a vacuum removes.
pub const LOG_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How many commits stay in the log at least, whatever the clocks say.
///
/// A committer takes the number after the last one that it knows. Were that commit there and gone
/// again, the put would succeed and the commit be lost below a checkpoint. With this, such a
/// committer must have missed as many commits since it last looked, less than [`IDLE_MAX`] ago.
pub const LOG_COMMITS_MIN: u64 = 1_000;

/// How long the log remembers a removed file; no vacuum may have a longer grace.
pub const TOMBSTONE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Attempts at one commit. Every failed one means that another committer got through.
const ATTEMPTS_MAX: u32 = 100;

/// After this long without a look at the log, the commits that come next may have been cleaned up;
/// then the newest checkpoint is asked for first.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Looks at added files under way at once.
const CONCURRENT_HEADS: usize = 16;

/// What a table must be.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// For messages.
    pub name: &'static str,
    /// Columns of the data files, without the partition column. The table may have more, of a
    /// newer program. Timestamps are microseconds in UTC; strings may be of any Arrow kind.
    pub schema: SchemaRef,
    /// Text column by whose value the files lie in directories: `month=2026-11/`.
    pub partition_column: Option<&'static str>,
}

impl TableSpec {
    /// Path of a data file in the table, as in `month=2026-11/part-1.parquet`.
    pub fn file_path(&self, partition: Option<&str>, file_name: &str) -> String {
        match (self.partition_column, partition) {
            (Some(column), Some(value)) => format!("{column}={value}/{file_name}"),
            _ => file_name.to_owned(),
        }
    }
}

/// A Parquet file of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    /// Path in the table, as in `month=2026-11/part-1.parquet`; the name must be unique for ever.
    pub path: String,
    /// Length of the file.
    pub size_bytes: u64,
    /// Rows in the file.
    pub rows: u64,
    /// Value of the partition column in all rows; letters, digits, `-`, `_` and `.` only.
    pub partition: Option<String>,
    /// Bounds of the columns that prune.
    pub stats: FileStats,
}

/// The table at one moment. Never changes.
#[derive(Debug)]
pub struct TableVersion {
    /// Number of the commit; the first is 0, none is left out.
    pub version: u64,
    /// The live files, by path.
    pub files: Vec<Arc<DataFile>>,
    /// Columns of the data files as the table has them, without the partition column. A file
    /// may lack columns that were added after it.
    pub schema: SchemaRef,
    transactions: BTreeMap<String, i64>,
}

impl TableVersion {
    /// The last transaction that `app_id` has committed.
    pub fn transaction(&self, app_id: &str) -> Option<i64> {
        self.transactions.get(app_id).copied()
    }
}

/// One atomic change of a table.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Files that join. They must lie complete in the store, and are made for this edit only.
    pub add: Vec<DataFile>,
    /// Files that leave; they stay on disk until a vacuum.
    pub remove: Vec<Arc<DataFile>>,
    /// Application and transaction number, which must be greater than the application's last.
    pub transaction: Option<(String, i64)>,
    /// What the change means.
    pub kind: EditKind,
}

/// What an edit means, and with it what may happen to the table in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditKind {
    /// New rows; removes nothing. Fits whatever others do.
    Append,
    /// The same rows in other files. Fits while the removed files are live.
    Compact,
    /// Other rows in place of those of the removed files (perhaps none). Fits while these are live.
    Replace,
    /// The whole table anew. Fits while the removed files are all the live ones.
    Overwrite,
}

/// A cheap handle on one table; clones share it.
///
/// Handles on the same table, in one process or in many, do not know of each other but through the
/// table.
#[derive(Clone)]
pub struct DeltaTable {
    shared: Arc<Shared>,
}

struct Shared {
    spec: TableSpec,
    location: Url,
    clock: Clock,
    log: Log,
    /// Starts the ids of this handle's commits, by which they are told from those of others.
    id: Uuid,
    /// Replaced as a whole; held only for the length of an `Arc` clone.
    current: RwLock<Arc<TableVersion>>,
    /// One commit, refresh or vacuum at a time.
    writer: tokio::sync::Mutex<Writer>,
}

struct Writer {
    state: State,
    /// When the state was last known to be the newest. Wall clock: it runs on while the machine
    /// sleeps.
    seen_at: UnixMicros,
    /// Version of the newest checkpoint that this handle knows of.
    checkpoint: u64,
    /// Commits tried by this handle.
    attempts: u64,
}

impl DeltaTable {
    /// Opens the table in `store`, whose root is the table's directory; creates it if there is
    /// none; adds columns of the spec that it lacks. `location` is the address of that directory
    /// (`file:///abs/dir/`, `s3://bucket/dir/`), kept for those who ask.
    ///
    /// Writing a checkpoint needs a multi-thread runtime.
    ///
    /// # Errors
    ///
    /// [`TableError::Schema`] and [`TableError::Unsupported`] mean that this program and the table
    /// do not fit each other; [`TableError::Damaged`] asks for an operator.
    pub async fn open_or_create(
        store: Arc<dyn ObjectStore>,
        location: Url,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<Self, TableError> {
        let log = Log::new(store, spec.name)?;
        let loaded = match log.load(&spec).await? {
            Some(loaded) => loaded,
            None => {
                // If another process creates it first, that one's is the table.
                log.create(&spec, clock.now()).await?;
                let missing = || TableError::Damaged {
                    table: spec.name,
                    version: 0,
                    reason: "the table was created and is not there".to_owned(),
                };
                log.load(&spec).await?.ok_or_else(missing)?
            }
        };
        let table = Self::new(log, loaded, location, spec, clock);
        table.widen().await?;
        Ok(table)
    }

    /// Opens the table for reading, without writing anything; `None` if there is none. It may lack
    /// columns of the spec.
    ///
    /// # Errors
    ///
    /// As [`DeltaTable::open_or_create`].
    pub async fn open_existing(
        store: Arc<dyn ObjectStore>,
        location: Url,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<Option<Self>, TableError> {
        let log = Log::new(store, spec.name)?;
        let loaded = log.load(&spec).await?;
        Ok(loaded.map(|loaded| Self::new(log, loaded, location, spec, clock)))
    }

    fn new(log: Log, loaded: Loaded, location: Url, spec: TableSpec, clock: Clock) -> Self {
        let writer = Writer {
            seen_at: clock.now(),
            checkpoint: loaded.checkpoint,
            attempts: 0,
            state: loaded.state,
        };
        let current = RwLock::new(Arc::new(writer.state.table_version()));
        let writer = tokio::sync::Mutex::new(writer);
        let id = Uuid::new_v4();
        Self { shared: Arc::new(Shared { spec, location, clock, log, id, current, writer }) }
    }

    /// What the table must be.
    pub fn spec(&self) -> &TableSpec {
        &self.shared.spec
    }

    /// Address of the table's directory.
    pub fn location(&self) -> &Url {
        &self.shared.location
    }

    /// The table's files; the root is the table's directory.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.shared.log.store)
    }

    /// The newest version that this handle has seen. Take it once per query.
    pub fn current(&self) -> Arc<TableVersion> {
        Arc::clone(&self.shared.current.read())
    }

    /// Reads what other handles have committed.
    ///
    /// # Errors
    ///
    /// The current version stays what it was, or is a later one.
    pub async fn refresh(&self) -> Result<Arc<TableVersion>, TableError> {
        let mut writer = self.shared.writer.lock().await;
        self.shared.catch_up(&mut writer).await?;
        Ok(self.current())
    }

    /// Makes the edit the next version of the table, or fails without a trace. Run it detached
    /// from requests: cut off in the middle it may or may not be in.
    ///
    /// Committing the same edit once more succeeds without an effect, provided that it carries a
    /// transaction and adds files.
    ///
    /// # Errors
    ///
    /// See [`TableError`]. All but [`TableError::InDoubt`] leave the table as it was.
    pub async fn commit(&self, edit: Edit) -> Result<Arc<TableVersion>, TableError> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock().await;
        shared.check_files(&edit.add).await?;
        if shared.is_idle(&writer) {
            shared.catch_up(&mut writer).await?;
        }
        for _ in 0..ATTEMPTS_MAX {
            if writer.state.has(&edit) {
                return Ok(self.current());
            }
            writer.state.check(&edit)?;
            let now = shared.clock.now();
            let actions = writer.state.actions(&edit, now);
            if shared.put(&mut writer, operation(edit.kind), actions, now).await? {
                shared.checkpoint_if_due(&mut writer).await;
                return Ok(self.current());
            }
        }
        Err(TableError::Busy { table: shared.spec.name, attempts: ATTEMPTS_MAX })
    }

    /// Adds the columns of the spec that the table lacks.
    async fn widen(&self) -> Result<(), TableError> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let Some(metadata) = writer.state.widened_metadata()? else { return Ok(()) };
            let actions = vec![Action::Metadata(metadata)];
            let operation = Operation { name: "ADD COLUMNS", mode: None, blind: false };
            if shared.put(&mut writer, operation, actions, shared.clock.now()).await? {
                return Ok(());
            }
        }
        Err(TableError::Busy { table: shared.spec.name, attempts: ATTEMPTS_MAX })
    }
}

/// How a commit describes itself in the log, in the words that other engines use.
#[derive(Clone, Copy, Debug)]
struct Operation {
    name: &'static str,
    mode: Option<&'static str>,
    /// Whether it depends on nothing in the table.
    blind: bool,
}

fn operation(kind: EditKind) -> Operation {
    match kind {
        EditKind::Append => Operation { name: "WRITE", mode: Some("Append"), blind: true },
        EditKind::Compact => Operation { name: "OPTIMIZE", mode: None, blind: false },
        EditKind::Replace => Operation { name: "UPDATE", mode: None, blind: false },
        EditKind::Overwrite => Operation { name: "WRITE", mode: Some("Overwrite"), blind: false },
    }
}

impl Shared {
    /// Writes the next version. `false` if another committer was faster; then its commits are in
    /// the state.
    async fn put(
        &self,
        writer: &mut Writer,
        operation: Operation,
        actions: Vec<Action>,
        now: UnixMicros,
    ) -> Result<bool, TableError> {
        let version = writer.state.version.saturating_add(1);
        writer.attempts = writer.attempts.saturating_add(1);
        let id = format!("{}-{}", self.id.simple(), writer.attempts);
        let bytes = self.log.encode(version, operation, &id, actions, now)?;
        // Read back before it is written: the state becomes what every reader sees, and a commit
        // that could not be read is never made.
        let change = writer.state.read(version, &bytes)?;
        match self.log.put(version, bytes).await? {
            Put::Done => {
                writer.state.apply(change, Origin::Us);
                writer.seen_at = now;
                self.publish(writer);
                Ok(true)
            }
            Put::Taken => {
                let applied = self.catch_up(writer).await?;
                // A store may retry a request whose first attempt went through unnoticed.
                Ok(applied.contains(&id))
            }
        }
    }

    /// Applies commits that are not in the state yet. Returns the ids of those of this program.
    async fn catch_up(&self, writer: &mut Writer) -> Result<Vec<String>, TableError> {
        if self.is_idle(writer) {
            self.skip_to_checkpoint(writer).await?;
        }
        let mut ids = Vec::new();
        let mut advanced = false;
        loop {
            let version = writer.state.version.saturating_add(1);
            let Some(bytes) = self.log.read(version).await? else { break };
            let change = writer.state.read(version, &bytes)?;
            let ours = change.id.as_ref().is_some_and(|id| self.is_ours(id));
            ids.extend(change.id.clone());
            writer.state.apply(change, if ours { Origin::Us } else { Origin::Others });
            advanced = true;
        }
        writer.seen_at = self.clock.now();
        if advanced {
            self.publish(writer);
        }
        Ok(ids)
    }

    /// Loads the table anew if its newest checkpoint is ahead: the commits in between may be gone.
    async fn skip_to_checkpoint(&self, writer: &mut Writer) -> Result<(), TableError> {
        let Some(checkpoint) = self.log.last_checkpoint().await? else { return Ok(()) };
        writer.checkpoint = writer.checkpoint.max(checkpoint);
        if checkpoint <= writer.state.version {
            return Ok(());
        }
        let damaged = || TableError::Damaged {
            table: self.spec.name,
            version: checkpoint,
            reason: "the log is gone".to_owned(),
        };
        let loaded = self.log.load(&self.spec).await?.ok_or_else(damaged)?;
        writer.state.replace_by(loaded.state);
        self.publish(writer);
        Ok(())
    }

    fn is_idle(&self, writer: &Writer) -> bool {
        let now = self.clock.now();
        now < writer.seen_at || now.since(writer.seen_at) > IDLE_MAX
    }

    fn is_ours(&self, id: &str) -> bool {
        id.starts_with(&self.id.simple().to_string())
    }

    fn publish(&self, writer: &Writer) {
        let version = Arc::new(writer.state.table_version());
        *self.current.write() = version;
    }

    /// A file that is missing or cut short would make every later query fail: refuses it.
    async fn check_files(&self, files: &[DataFile]) -> Result<(), TableError> {
        let checks = files.iter().map(|file| async move {
            let invalid = |reason| TableError::Invalid { table: self.spec.name, reason };
            let path =
                Path::parse(&file.path).map_err(|error| invalid(format!("bad path: {error}")))?;
            match self.log.store.head(&path).await {
                Ok(meta) if meta.size == file.size_bytes => Ok(()),
                Ok(meta) => {
                    Err(invalid(format!("{path} has {} bytes, not {}", meta.size, file.size_bytes)))
                }
                Err(object_store::Error::NotFound { .. }) => {
                    Err(invalid(format!("{path} is not there")))
                }
                Err(source) => Err(TableError::Store { table: self.spec.name, source }),
            }
        });
        let checks: Vec<_> = checks.collect();
        stream::iter(checks).buffer_unordered(CONCURRENT_HEADS).try_collect().await
    }

    /// Writes a checkpoint when enough commits have gathered, and removes files of the log that it
    /// makes superfluous. The commit is in whatever happens here, so a failure is only reported;
    /// the next commit tries again.
    async fn checkpoint_if_due(&self, writer: &mut Writer) {
        let due = |writer: &Writer| {
            writer.state.version >= writer.checkpoint.saturating_add(CHECKPOINT_INTERVAL)
        };
        if !due(writer) {
            return;
        }
        // Another committer may have done it.
        if let Ok(Some(version)) = self.log.last_checkpoint().await {
            writer.checkpoint = writer.checkpoint.max(version);
        }
        if !due(writer) {
            return;
        }
        match self.log.checkpoint(self.clock.now()).await {
            Ok(version) => writer.checkpoint = version,
            Err(error) => {
                tracing::warn!(
                    table = self.spec.name,
                    error = &error as &dyn std::error::Error,
                    "checkpoint failed"
                );
            }
        }
    }
}

/// Whose commit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// This handle's.
    Us,
    /// Any other's.
    Others,
}

impl fmt::Debug for DeltaTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current();
        formatter
            .debug_struct("DeltaTable")
            .field("name", &self.shared.spec.name)
            .field("location", &self.shared.location.as_str())
            .field("version", &current.version)
            .field("files", &current.files.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
