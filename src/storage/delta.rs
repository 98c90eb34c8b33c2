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
//! # Which Delta
//!
//! Reader version 1 and writer version 2, which every engine knows, with classic checkpoints. A table
//! of a later version is refused: it may have deletion vectors or renamed columns, and reading it as
//! if it had none would give wrong rows.

mod actions;
mod checkpoint;
mod commit;
pub mod error;
mod log;
mod schema;
mod state;
pub mod stats;
mod types;
mod vacuum;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use object_store::ObjectStore;
use parking_lot::RwLock;
use url::Url;
use uuid::Uuid;

use crate::clock::Clock;
use crate::storage::delta::actions::Action;
use crate::storage::delta::commit::Operation;
use crate::storage::delta::commit::Shared;
use crate::storage::delta::commit::Writer;
use crate::storage::delta::commit::operation;
use crate::storage::delta::error::TableError;
use crate::storage::delta::log::Loaded;
use crate::storage::delta::log::Log;
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
/// committer must have missed as many commits since it last looked, less than a minute ago.
pub const LOG_COMMITS_MIN: u64 = 1_000;

/// How long the log remembers a removed file; no vacuum may have a longer grace.
pub const TOMBSTONE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Application whose transaction says that the table has lost commits. Its number is the version at
/// which that was found, and its time is when. From then on a vacuum keeps older data files that are
/// in no commit: they may be those of the lost commits.
const DAMAGE_APP: &str = "weir/damage";

/// Attempts at one commit. Every failed one means that another committer got through.
const ATTEMPTS_MAX: u32 = 100;

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
    /// Path in the table, as [`TableSpec::file_path`] makes it. The name must be unique for ever.
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
    /// The same moment with some of the files only, for a reader that needs no others.
    pub fn with_files(&self, files: Vec<Arc<DataFile>>) -> Self {
        Self {
            version: self.version,
            files,
            schema: Arc::clone(&self.schema),
            transactions: self.transactions.clone(),
        }
    }

    /// The applications that have committed transactions.
    pub fn applications(&self) -> impl Iterator<Item = &str> {
        self.transactions.keys().map(String::as_str)
    }

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
    /// The same events in other files: each once, and under the persons that they belong to by now.
    /// Said to be no change of the data although `person_id` may be another one: whoever follows the
    /// table as a stream would be given all events again for it. Fits while the removed files are live.
    Compact,
    /// Other rows in place of those of the removed files (perhaps none). Fits while these are live.
    Replace,
    /// The whole table anew. Fits while the removed files are all the live ones.
    Overwrite,
}

/// A part of a table that is lost, and was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The first version that is concerned.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// What is wrong.
    pub reason: String,
}

/// A cheap handle on one table; clones share it.
///
/// Handles on the same table, in one process or in many, do not know of each other but through the
/// table.
#[derive(Clone)]
pub struct DeltaTable {
    shared: Arc<Shared>,
}

impl DeltaTable {
    /// Opens the table in `store`, whose root is the table's directory; creates it if there is
    /// none; adds columns of the spec that it lacks. `location` is the address of that directory
    /// (`file:///abs/dir/`, `s3://bucket/dir/`), kept for those who ask.
    ///
    /// What of the log cannot be read, and live files that are not there, are left out, see
    /// [`DeltaTable::damage`]. After damage of the log the table is marked, and gets a checkpoint that
    /// begins after it, so that other engines can read it too. Files that are not there are told at
    /// each opening, for as long as they are not brought back.
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
        let log = Log::new(store, spec.name);
        let loaded = match log.load(&spec, clock.now()).await? {
            Some(loaded) => loaded,
            None => {
                // If another process creates it first, that one's is the table.
                log.create(&spec, clock.now()).await?;
                let missing = || TableError::Damaged {
                    table: spec.name,
                    version: 0,
                    reason: "the table was created and is not there".to_owned(),
                };
                log.load(&spec, clock.now()).await?.ok_or_else(missing)?
            }
        };
        let is_log_damaged = !loaded.damage.is_empty();
        let table = Self::new(log, loaded, location, spec, clock).await?;
        if is_log_damaged {
            table.mark_damaged().await?;
        }
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
        let log = Log::new(store, spec.name);
        match log.load(&spec, clock.now()).await? {
            Some(loaded) => Self::new(log, loaded, location, spec, clock).await.map(Some),
            None => Ok(None),
        }
    }

    async fn new(
        log: Log,
        loaded: Loaded,
        location: Url,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<Self, TableError> {
        let Loaded { mut state, checkpoint, mut damage } = loaded;
        damage.extend(vacuum::hide_missing(&log, &mut state).await?);
        report(spec.name, &damage);
        let writer = Writer { seen_at: clock.now(), checkpoint, attempts: 0, state };
        let current = RwLock::new(Arc::new(writer.state.table_version()));
        let writer = tokio::sync::Mutex::new(writer);
        let id = Uuid::new_v4();
        let shared = Shared { spec, location, clock, log, damage, id, current, writer };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What was lost when the table was opened.
    pub fn damage(&self) -> &[Damage] {
        &self.shared.damage
    }

    /// Makes the table remember that commits are lost: data files that are in no commit and are older
    /// than this moment survive every vacuum, as an operator may want them. Writes a checkpoint.
    ///
    /// # Errors
    ///
    /// As [`DeltaTable::commit`].
    pub async fn mark_damaged(&self) -> Result<(), TableError> {
        let version = self.refresh().await?.version.saturating_add(1);
        let transaction = (DAMAGE_APP.to_owned(), i64::try_from(version).unwrap_or(i64::MAX));
        let (add, remove, kind) = (Vec::new(), Vec::new(), EditKind::Append);
        self.commit(Edit { add, remove, transaction: Some(transaction), kind }).await?;
        let mut writer = self.shared.writer.lock().await;
        self.shared.checkpoint(&mut writer).await
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
        let mut writer = self.shared.writer.lock().await;
        self.commit_as(&mut writer, &edit, false).await
    }

    /// Ends what a commit of this edit with [`TableError::InDoubt`] began: if the edit is in the
    /// table this has no effect, if not it is put in.
    ///
    /// # Errors
    ///
    /// As [`DeltaTable::commit`]. After [`TableError::Invalid`], [`TableError::Conflict`],
    /// [`TableError::Stale`] and [`TableError::Fenced`] the edit is not in the table and never will
    /// be; after others it is still in doubt.
    pub async fn commit_again(&self, edit: &Edit) -> Result<Arc<TableVersion>, TableError> {
        let mut writer = self.shared.writer.lock().await;
        self.shared.catch_up(&mut writer).await?;
        self.commit_as(&mut writer, edit, true).await
    }

    async fn commit_as(
        &self,
        writer: &mut Writer,
        edit: &Edit,
        is_again: bool,
    ) -> Result<Arc<TableVersion>, TableError> {
        let shared = &*self.shared;
        if !(is_again && writer.state.has(edit, true)) {
            shared.check_files(&edit.add).await?;
        }
        if shared.is_idle(writer) {
            shared.catch_up(writer).await?;
        }
        for _ in 0..ATTEMPTS_MAX {
            if writer.state.has(edit, is_again) {
                shared.publish_if_behind(writer);
                return Ok(self.current());
            }
            writer.state.check(edit)?;
            let now = shared.clock.now();
            let actions = writer.state.actions(edit, now);
            if shared.put(writer, operation(edit.kind), actions, now).await? {
                shared.checkpoint_if_due(writer).await;
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

/// Tells the operator what is lost.
fn report(table: &'static str, damage: &[Damage]) {
    for Damage { first, last, reason } in damage {
        tracing::error!(
            table,
            first,
            last,
            reason,
            "damage in the log of the table: the rows of these versions are lost unless other \
             commits have them; data files that no commit names are kept. Restore the files of the \
             table from a backup to get them back"
        );
    }
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
