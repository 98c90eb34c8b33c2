//! Operations on the files of the events table: [`Files`] flushes, merges, and (in `deletions`) erases
//! deleted rows. `storage::compaction` and the loops of `maintenance` decide which files, and when.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::stream::BoxStream;
use parquet::errors::ParquetError;

use crate::maintenance::deletions;
use weir_base::tasks::Shutdown;
use weir_identity::deletions::{Deletions, KeptFrom};
use weir_identity::store::Identities;
use weir_query::events::merge;
use weir_query::events::merge::Unreadable;
use weir_query::kernel::error::QueryError;
use weir_storage::checksums::Damaged;
use weir_storage::compaction::{Limits, Memory, Reading};
use weir_storage::delta::{DataFile, Edit, EditKind};
use weir_storage::parquet::pages::PagedFile;
use weir_storage::parquet::{Effort, FileWriter};
use weir_storage::rows::Rows;
use weir_storage::scratch::Scratch;
use weir_storage::store::{Flushed, Store, StoreError};
use weir_storage::wal::Sequence;
use weir_storage::{compaction, naming};

/// Why files were not merged or rewritten.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Writing or committing failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading rows or the identity store failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A file cannot be opened.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// There is no place for copies of files.
    #[error("cannot make a directory for copies of files")]
    Scratch(#[source] io::Error),
    /// A file cannot be copied for another reason than its own damage.
    #[error("cannot copy a file from the bucket")]
    Copy(#[source] object_store::Error),
}

impl FilesError {
    /// The path of the file if the error is that it cannot be read; other files can still be merged.
    pub fn unreadable(&self) -> Option<&str> {
        if let Self::Unreadable(unreadable) = self {
            return Some(&unreadable.path);
        }
        let mut causes = std::iter::successors(self.source(), |cause| (*cause).source());
        let unreadable = causes.find_map(|cause| cause.downcast_ref::<Unreadable>());
        unreadable.map(|unreadable| unreadable.path.as_str())
    }
}

/// The error of a file that cannot be copied: its own if it is missing or damaged.
fn failed_copy(file: &DataFile, error: object_store::Error) -> FilesError {
    let first: &(dyn Error + 'static) = &error;
    let mut causes = std::iter::successors(Some(first), |cause| (*cause).source());
    let is_missing = matches!(error, object_store::Error::NotFound { .. });
    match is_missing || causes.any(|cause| cause.is::<Damaged>()) {
        true => Unreadable::because(file)(ParquetError::External(Box::new(error))).into(),
        false => FilesError::Copy(error),
    }
}

/// The events table, with the identity store that decides about its rows.
#[derive(Clone, Debug)]
pub struct Files {
    /// The table.
    pub store: Store,
    /// Merges and splits of persons, and which events are deleted.
    pub identities: Identities,
    /// The times before which no events are kept.
    pub kept_from: Arc<KeptFrom>,
}

/// Result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Number of replaced files.
    pub files: usize,
    /// Rows of the new file; with 0 rows no file is added.
    pub rows: u64,
    /// Rows that were left out because they are deleted.
    pub deleted: u64,
}

impl Files {
    /// Writes the oldest frozen memtable to files, without deleted rows. `None` if none is frozen, or the
    /// identity store has not applied the log to the end of the memtable.
    ///
    /// # Errors
    ///
    /// The memtable stays frozen and visible; try again later.
    pub async fn flush(&self) -> Result<Option<Flushed>, StoreError> {
        // All deletions in records up to `applied` are known. A file must not contain rows that a record
        // before the file's sequence deletes, see `identity::deletions`.
        let (applied, deletions) = self.deletions_as_of();
        let keep = |rows: &Rows| deletions::kept(&deletions, rows);
        self.store.flush(Sequence(applied), &keep).await
    }

    /// Runs one merge, if one is due and the shutdown has not begun, without the files in `unreadable`. A
    /// file that cannot be read is added to it, so that other files can still be merged.
    ///
    /// # Errors
    ///
    /// The table is unchanged. Other files may be merged if the error names a file
    /// ([`FilesError::unreadable`]).
    pub async fn merge_due(
        &self,
        limits: Limits,
        unreadable: &mut BTreeSet<String>,
        shutdown: &Shutdown,
    ) -> Result<Option<Merged>, FilesError> {
        let mut files = self.store.table().current().files.clone();
        files.retain(|file| !unreadable.contains(&file.path));
        let chosen = compaction::choose(&files, limits);
        if chosen.is_empty() || shutdown.is_cancelled() {
            return Ok(None);
        }
        let merged = self.merge(&chosen, shutdown).await;
        merged.inspect_err(|error| unreadable.extend(error.unreadable().map(str::to_owned)))
    }

    /// Replaces `files` by one file with their rows: as many of them, from the first on, as fit into the
    /// memory of a merge. `None` if the shutdown began, or the identity store has not applied the log as
    /// far as it is in files, as after a crash; the vacuum removes the unfinished file. Blocks where it is
    /// polled; do not poll it on a thread of a runtime.
    ///
    /// # Errors
    ///
    /// The table is unchanged.
    pub async fn merge(
        &self,
        files: &[Arc<DataFile>],
        shutdown: &Shutdown,
    ) -> Result<Option<Merged>, FilesError> {
        let through = self.store.flushed_through();
        // The deletions are at least as new as every file: the new file contains no row that they delete. All
        // its rows are older than deletion requests that arrive during the merge.
        let (applied, deletions) = self.deletions_as_of();
        if Sequence(applied) < through {
            return Ok(None);
        }
        let memory = Memory::of(self.store.settings().compaction_memory_max_bytes.as_u64());
        // Dropped last: the opened files read from it.
        let scratch = self.scratch()?;
        let (opened, batch_rows) = self.open(files, memory, scratch.as_ref()).await?;
        let remove: Vec<_> = opened.iter().map(|opened| Arc::clone(opened.file())).collect();
        let rows: u64 = remove.iter().map(|file| file.rows).sum();
        let mut writer = self.writer(&remove, through, memory)?;
        let batches = merge::sorted_rows(&self.store, opened, batch_rows, &deletions)?;
        let Some(read) = self.write(batches, &mut writer, shutdown).await? else {
            return Ok(None);
        };
        let merged = writer.finish().await.map_err(StoreError::from)?;
        let deleted = rows.saturating_sub(read);
        let done = Merged { files: remove.len(), rows: merged.rows, deleted };
        // If rows were deleted, readers of the table's change log must not treat it as a pure compaction.
        let kind = if done.deleted == 0 { EditKind::Compact } else { EditKind::Replace };
        // An empty file is not committed; the vacuum removes it.
        let add = Some(merged).filter(|merged| merged.rows > 0).into_iter().collect();
        let edit = Edit { add, remove, transaction: None, kind };
        self.store.replace(edit).await?;
        Ok(Some(done))
    }

    /// The last record applied to persons, and the deletions as of it, with those of old events.
    pub(super) fn deletions_as_of(&self) -> (u64, Arc<Deletions>) {
        let (applied, deletions) = self.identities.deletions_as_of();
        match self.kept_from.is_empty() {
            true => (applied, deletions),
            false => (applied, Arc::new(deletions.with_kept_from(&self.kept_from))),
        }
    }

    /// A place for copies of the files, if they are in a bucket.
    fn scratch(&self) -> Result<Option<Scratch>, FilesError> {
        let settings = self.store.settings();
        if settings.bucket.storage_url.is_none() {
            return Ok(None);
        }
        let free_min_bytes = settings.disk_free_min_bytes.as_u64().saturating_mul(2);
        Scratch::new(&settings.data_dir, free_min_bytes).map(Some).map_err(FilesError::Scratch)
    }

    /// Opens the first of `files` that fit into the memory, and returns how many rows to read of each at
    /// once.
    async fn open(
        &self,
        files: &[Arc<DataFile>],
        memory: Memory,
        scratch: Option<&Scratch>,
    ) -> Result<(Vec<PagedFile>, usize), FilesError> {
        let table = self.store.table();
        let objects = scratch.map_or_else(|| table.store(), Scratch::objects);
        let mut reading = Reading::new(memory);
        let mut opened = Vec::new();
        for file in files {
            let unreadable = Unreadable::because(file);
            if let Some(scratch) = scratch {
                let copied = scratch.copy(&*table.store(), file).await;
                copied.map_err(|error| failed_copy(file, error))?;
            }
            let (schema, layout) = (&table.spec().schema, self.store.layout());
            let file = PagedFile::open(Arc::clone(&objects), Arc::clone(file), schema, layout);
            let file = file.map_err(unreadable)?;
            if !reading.takes(file.cost()) {
                break;
            }
            opened.push(file);
        }
        Ok((opened, reading.batch_rows()))
    }

    /// A writer of the file that replaces `files`, whose rows come from records up to `through`.
    fn writer(
        &self,
        files: &[Arc<DataFile>],
        through: Sequence,
        memory: Memory,
    ) -> Result<FileWriter, StoreError> {
        let partition = files.first().and_then(|file| file.partition.clone());
        let name = naming::merged(files.iter().map(AsRef::as_ref), through);
        let writer = self.store.file(Effort::Merge, partition, &name)?;
        let exact = files.iter().map(|file| file.exact).collect();
        Ok(writer.with_group_bytes(memory.group_bytes).with_exact(exact))
    }

    /// Writes sorted rows without duplicates. Returns the number of rows read, duplicates included. `None`
    /// if the shutdown began.
    async fn write(
        &self,
        mut batches: BoxStream<'static, Result<RecordBatch, QueryError>>,
        writer: &mut FileWriter,
        shutdown: &Shutdown,
    ) -> Result<Option<u64>, FilesError> {
        let overrides = self.identities.overrides();
        let (mut unique, mut read) = (merge::Unique::default(), 0_u64);
        while let Some(batch) = batches.next().await {
            if shutdown.is_cancelled() {
                return Ok(None);
            }
            let batch = batch?;
            read += u64::try_from(batch.num_rows()).unwrap_or(0);
            let batch = merge::fold_persons(unique.keep(&batch)?, &overrides)?;
            writer.write(&batch).await.map_err(StoreError::from)?;
        }
        Ok(Some(read))
    }
}
