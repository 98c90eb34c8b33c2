//! What is done to the files of the events table: [`Files`] flushes, merges, and (in `deletions`)
//! erases. Which files, and when, is decided elsewhere.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::identity::store::Identities;
use crate::maintenance::deletions;
use crate::query::QueryError;
use crate::query::merge;
use crate::query::merge::Unreadable;
use crate::storage::compaction;
use crate::storage::compaction::Limits;
use crate::storage::compaction::Memory;
use crate::storage::compaction::Reading;
use crate::storage::delta::DataFile;
use crate::storage::delta::Edit;
use crate::storage::delta::EditKind;
use crate::storage::naming;
use crate::storage::parquet::Effort;
use crate::storage::parquet::FileWriter;
use crate::storage::parquet::pages::PagedFile;
use crate::storage::rows::Rows;
use crate::storage::store::Flushed;
use crate::storage::store::Store;
use crate::storage::store::StoreError;
use crate::storage::wal::Sequence;
use crate::tasks::Shutdown;

/// Why files were not merged or rewritten.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Writing and committing.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading, and what persons say.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A file, before its rows are read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl FilesError {
    /// The path of the file that cannot be read, if it is that: others can be worked on.
    pub fn unreadable(&self) -> Option<&str> {
        if let Self::Unreadable(unreadable) = self {
            return Some(&unreadable.path);
        }
        let mut causes = std::iter::successors(self.source(), |cause| (*cause).source());
        let unreadable = causes.find_map(|cause| cause.downcast_ref::<Unreadable>());
        unreadable.map(|unreadable| unreadable.path.as_str())
    }
}

/// The events table, and what persons say of its rows.
#[derive(Clone, Debug)]
pub struct Files {
    /// The table.
    pub store: Store,
    /// Merges and splits of persons, and which events are deleted.
    pub identities: Identities,
}

/// What a merge has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Files that are replaced.
    pub files: usize,
    /// Rows of the new file; without any there is no file.
    pub rows: u64,
    /// Rows that were left out because they are deleted.
    pub deleted: u64,
}

impl Files {
    /// Writes the oldest frozen memtable into files, without what is deleted. `None` if none is
    /// frozen, or the persons have not followed it to its end.
    ///
    /// # Errors
    ///
    /// The memtable stays frozen and visible; try again later.
    pub async fn flush(&self) -> Result<Option<Flushed>, StoreError> {
        // Of the records up to `applied`, all deletions are known. A file must not have rows that an
        // earlier record deletes, see `identity::deletions`.
        let (applied, deletions) = self.identities.deletions_as_of();
        let keep = |rows: &Rows| deletions::kept(&deletions, rows);
        self.store.flush(Sequence(applied), &keep).await
    }

    /// One merge, if one is due and the shutdown has not begun: of the files that are not in
    /// `unreadable`. A file that cannot be read gets in there, so that it costs no other its merge.
    ///
    /// # Errors
    ///
    /// The table is as before. Others may be merged if the error names a file
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

    /// Puts one file with the rows of `files` in their place: of as many, from the first on, as can
    /// be merged with the memory for it. `None` if the shutdown began, or the persons have not
    /// followed the log to where it is in files, as after a crash; the vacuum removes what was
    /// written. Reads where it is polled, which blocks: not for the threads of a runtime.
    ///
    /// # Errors
    ///
    /// The table is as before.
    pub async fn merge(
        &self,
        files: &[Arc<DataFile>],
        shutdown: &Shutdown,
    ) -> Result<Option<Merged>, FilesError> {
        let through = self.store.flushed_through();
        // As new as every file: none of the rows that these name is in the new file, and of requests
        // that come meanwhile all its rows are from before them.
        let (applied, deletions) = self.identities.deletions_as_of();
        if Sequence(applied) < through {
            return Ok(None);
        }
        let memory = Memory::of(self.store.settings().compaction_memory_max_bytes.as_u64());
        let (opened, batch_rows) = self.open(files, memory)?;
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
        // Others who follow the table must not take it for the same rows, if some are deleted.
        let kind = if done.deleted == 0 { EditKind::Compact } else { EditKind::Replace };
        // An empty file gets into no version, and goes as other leftovers do.
        let add = Some(merged).filter(|merged| merged.rows > 0).into_iter().collect();
        let edit = Edit { add, remove, transaction: None, kind };
        self.store.replace(edit).await?;
        Ok(Some(done))
    }

    /// Opens the first of `files` that fit into the memory, and says how many rows are to be read of
    /// each at once.
    fn open(
        &self,
        files: &[Arc<DataFile>],
        memory: Memory,
    ) -> Result<(Vec<PagedFile>, usize), Unreadable> {
        let table = self.store.table();
        let mut reading = Reading::new(memory);
        let mut opened = Vec::new();
        for file in files {
            let unreadable = Unreadable::because(file);
            let shape = (&table.spec().schema, self.store.layout());
            let file =
                PagedFile::open(table.store(), Arc::clone(file), shape).map_err(unreadable)?;
            if !reading.takes(file.cost()) {
                break;
            }
            opened.push(file);
        }
        Ok((opened, reading.batch_rows()))
    }

    /// Begins the file that takes the place of `files`, whose rows are of records up to `through`.
    fn writer(
        &self,
        files: &[Arc<DataFile>],
        through: Sequence,
        memory: Memory,
    ) -> Result<FileWriter, StoreError> {
        let partition = files.first().and_then(|file| file.partition.clone());
        let table = self.store.table();
        let name = naming::merged(files.iter().map(AsRef::as_ref), through);
        let writer = FileWriter::new(
            &table.store(),
            table.spec(),
            self.store.layout(),
            Effort::Merge,
            (partition, &name),
        )?;
        Ok(writer.with_group_bytes(memory.group_bytes))
    }

    /// Writes sorted rows. Returns how many there were, with those that are there twice. `None` if
    /// the shutdown began.
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
