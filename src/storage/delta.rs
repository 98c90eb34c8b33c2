//! Delta Lake table: live files and commits. [`DeltaTable`] is a handle on one table, [`TableVersion`] an
//! immutable version, [`Edit`] one atomic change. No rows and no Parquet here: a file is a name with
//! statistics.
//!
//! # How a commit works
//!
//! Optimistic concurrency: a version is a file `_delta_log/<version>.json`, created only if it does not
//! exist. A committer that loses the race reads the winner's commit, checks that its edit is still valid,
//! and tries the next number. All checks are against the version directly before the one that is written,
//! so no commit can come in between. Commits of one application (a node's flushes) have a transaction
//! number in the same file: rows and log position change together, or not at all.
//!
//! # Which Delta
//!
//! Reader version 1 and writer version 2, which every engine supports, with classic checkpoints. A table of
//! a later version is rejected: it may have deletion vectors or renamed columns, and ignoring them would
//! return wrong rows.

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
mod version;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use futures::future::BoxFuture;
use object_store::ObjectStore;
use parking_lot::RwLock;
use url::Url;
use uuid::Uuid;

use crate::delta::actions::Action;
use crate::delta::commit::{Operation, Shared, Writer, operation};
use crate::delta::error::TableError;
use crate::delta::log::{Loaded, Log};
use crate::delta::version::{ATTEMPTS_MAX, DAMAGE_APP, report};
pub use crate::delta::version::{
    CHECKPOINT_INTERVAL, Damage, DataFile, Edit, EditKind, LOG_COMMITS_MIN, LOG_RETENTION,
    TOMBSTONE_RETENTION, TableSpec, TableVersion,
};
use weir_base::clock::Clock;

/// A cheap handle on one table; clones share it.
///
/// Separately opened handles on the same table, in one process or in several, share no state except the
/// table.
#[derive(Clone)]
pub struct DeltaTable {
    shared: Arc<Shared>,
}

impl DeltaTable {
    /// Opens the table in `store`, whose root is the table's directory; creates it if there is
    /// none; adds columns of the spec that it lacks. `location` is the URL of that directory
    /// (`file:///abs/dir/`, `s3://bucket/dir/`), for [`DeltaTable::location`].
    ///
    /// Unreadable parts of the log and missing live files are skipped, see [`DeltaTable::damage`]. After
    /// damage of the log the table is marked, and gets a checkpoint after the damage, so that other engines
    /// can read it too. Missing files are reported at each opening until they are restored.
    ///
    /// # Errors
    ///
    /// [`TableError::Schema`] and [`TableError::Unsupported`]: this version of the program cannot use the
    /// table; [`TableError::Damaged`]: an operator has to repair it.
    pub fn open_or_create(
        store: Arc<dyn ObjectStore>,
        location: Url,
        spec: TableSpec,
        clock: Clock,
    ) -> BoxFuture<'static, Result<Self, TableError>> {
        Box::pin(async move {
            let log = Log::new(store, spec.name);
            let loaded = match log.load(&spec, clock.now()).await? {
                Some(loaded) => loaded,
                None => {
                    // If another process creates the table first, that table is used.
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
            table.widen(table.spec()).await?;
            Ok(table)
        })
    }

    /// Opens the table for reading, without writing anything; `None` if there is none. It may lack
    /// columns of the spec.
    ///
    /// # Errors
    ///
    /// As [`DeltaTable::open_or_create`].
    pub fn open_existing(
        store: Arc<dyn ObjectStore>,
        location: Url,
        spec: TableSpec,
        clock: Clock,
    ) -> BoxFuture<'static, Result<Option<Self>, TableError>> {
        Box::pin(async move {
            let log = Log::new(store, spec.name);
            match log.load(&spec, clock.now()).await? {
                Some(loaded) => Self::new(log, loaded, location, spec, clock).await.map(Some),
                None => Ok(None),
            }
        })
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

    /// The damage that was found when the table was opened.
    pub fn damage(&self) -> &[Damage] {
        &self.shared.damage
    }

    /// Marks in the table that commits are lost: data files that are in no commit and older than now
    /// survive every vacuum, so that an operator can recover them. Writes a checkpoint.
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

    /// The specification of the table.
    pub fn spec(&self) -> &TableSpec {
        &self.shared.spec
    }

    /// URL of the table's directory.
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
    /// The current version is unchanged, or a later one.
    pub async fn refresh(&self) -> Result<Arc<TableVersion>, TableError> {
        let mut writer = self.shared.writer.lock().await;
        self.shared.catch_up(&mut writer).await?;
        Ok(self.current())
    }

    /// Makes this handle the only one that commits transactions of `app_id`: commits the application's last
    /// transaction again. A put of a former handle that is still on its way, perhaps of a process that was
    /// killed, finds its version taken; and the former handle is [`TableError::Fenced`] from then on.
    ///
    /// # Errors
    ///
    /// [`TableError::Fenced`]: another handle has committed for the application since this one was opened;
    /// open the table again. Others as of [`DeltaTable::commit`].
    pub async fn claim(&self, app_id: &str) -> Result<(), TableError> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock().await;
        let operation = Operation { name: "CLAIM", mode: None, blind: true };
        for _ in 0..ATTEMPTS_MAX {
            let action = writer.state.claim(app_id, shared.clock.now())?;
            match shared.put(&mut writer, operation, vec![action], shared.clock.now()).await {
                Ok(false) => {}
                // It may have been this one's put; a second claim does no harm.
                Err(TableError::InDoubt { .. }) => {
                    shared.catch_up(&mut writer).await?;
                }
                done => return done.map(|_| ()),
            }
        }
        Err(TableError::Busy { table: shared.spec.name, attempts: ATTEMPTS_MAX })
    }

    /// Commits the edit as the next version of the table, or fails without an effect. Run it detached from
    /// requests: if it is dropped before its end, its outcome is unknown.
    ///
    /// Committing the same edit again succeeds without an effect, provided that it has a transaction and adds
    /// files.
    ///
    /// # Errors
    ///
    /// See [`TableError`]. After all errors but [`TableError::InDoubt`] the table is unchanged.
    pub async fn commit(&self, edit: Edit) -> Result<Arc<TableVersion>, TableError> {
        let mut writer = self.shared.writer.lock().await;
        self.commit_as(&mut writer, &edit, false).await
    }

    /// Settles a commit of this edit that failed with [`TableError::InDoubt`]: commits the edit if it is
    /// not in the table.
    ///
    /// # Errors
    ///
    /// As [`DeltaTable::commit`]. After [`TableError::Invalid`], [`TableError::Conflict`],
    /// [`TableError::Stale`] and [`TableError::Fenced`] the edit is not in the table and never will
    /// be; after others its outcome is still unknown.
    pub async fn commit_again(&self, edit: &Edit) -> Result<Arc<TableVersion>, TableError> {
        let mut writer = self.shared.writer.lock().await;
        self.shared.catch_up(&mut writer).await?;
        self.commit_as(&mut writer, edit, true).await
    }

    fn commit_as<'a>(
        &'a self,
        writer: &'a mut Writer,
        edit: &'a Edit,
        is_again: bool,
    ) -> BoxFuture<'a, Result<Arc<TableVersion>, TableError>> {
        Box::pin(async move {
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
        })
    }

    /// Adds columns that the table lacks, after all others. They may be null.
    ///
    /// # Errors
    ///
    /// [`TableError::Schema`]: it has one of another type; others as of [`DeltaTable::commit`].
    pub async fn add_columns(&self, fields: &[FieldRef]) -> Result<(), TableError> {
        let all = self.spec().schema.fields().iter().chain(fields).cloned();
        let schema = Arc::new(Schema::new(all.collect::<Vec<_>>()));
        self.widen(&TableSpec { schema, ..self.spec().clone() }).await
    }

    /// Adds the columns of a spec that the table lacks.
    async fn widen(&self, spec: &TableSpec) -> Result<(), TableError> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let Some(metadata) = writer.state.widened_metadata(spec)? else { return Ok(()) };
            let actions = vec![Action::Metadata(metadata)];
            let operation = Operation { name: "ADD COLUMNS", mode: None, blind: false };
            if shared.put(&mut writer, operation, actions, shared.clock.now()).await? {
                return Ok(());
            }
        }
        Err(TableError::Busy { table: shared.spec.name, attempts: ATTEMPTS_MAX })
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
