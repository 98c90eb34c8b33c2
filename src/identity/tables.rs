//! The database: its keyspaces and their sizes. `codec` describes their contents.
//!
//! # Why
//!
//! fjall, because the state is larger than memory and has random writes: of the embedded stores it
//! loads fastest and stays small. Its `clear` and its separation of keys from values have lost data
//! and are not used. Memory: the write buffers below, twice that while they are flushed, and the
//! block cache; all grow only as they are used.
//!
//! The cost of a look-up must not grow with the number of persons. Filters and indexes are
//! therefore partitioned into blocks as small as those of the rows. As one block per file they have
//! megabytes, and a cache that does not hold all of them reads and checks such a block for each
//! look-up. Keyspaces that are only scanned in order have no filters.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{FilterPolicy, PartitioningPolicy};
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
};

use crate::{IdentityError, codec};

/// One MiB.
const MIB: u64 = 1024 * 1024;

/// Journal on disk above which buffers are flushed, however small; bounds the time to open.
const JOURNAL_MAX_BYTES: u64 = 128 * MIB;

/// Files that stay open; the database's default is as large as the limit of many processes.
const OPEN_FILES_MAX: usize = 256;

/// Threads that flush and compact. With several, the first one keeps a processor busy postponing
/// compactions while the others have enough of them (fjall 3.1).
const WORKER_THREADS: usize = 1;

/// Size of a file from level 1 on, and a quarter of the size of level 1. Level 1 is rewritten for
/// every four flushed buffers, which are 1 to 10 MiB each. With the usual 64 MiB that is most of
/// the work beyond a million persons, and takes more memory.
const FILE_BYTES: u64 = 8 * MIB;

/// Backpressure: from this many full buffers of a keyspace that wait for their flush, or files that
/// wait for compaction, a batch waits. The database halts at 4 and 30, and a batch adds one or two.
const SEALED_MAX: usize = 2;
const UNMERGED_MAX: usize = 20;

/// Polling interval while a batch waits.
const FLUSH_LOOK: Duration = Duration::from_millis(1);

/// Persons of an older state that are added to `listed` in one batch.
const LISTED_AT_ONCE: usize = 10_000;

/// Handles of all keyspaces.
pub(super) struct Tables {
    pub(super) database: Database,
    pub(super) ids: Keyspace,
    pub(super) persons: Keyspace,
    pub(super) person_ids: Keyspace,
    pub(super) uuids: Keyspace,
    pub(super) overrides: Keyspace,
    pub(super) groups: Keyspace,
    pub(super) listed: Keyspace,
    pub(super) emails: Keyspace,
    pub(super) deletions: Keyspace,
    pub(super) meta: Keyspace,
    /// Whether readers must drop the database.
    closing: AtomicBool,
    /// The last field, so it is dropped when the database is closed and its lock released. The
    /// count of the handles themselves is zero before that.
    open: Arc<()>,
}

/// The files of a keyspace as of one of its versions, which stay on the disk as long as this is held.
pub(super) struct Held {
    /// The version's number, which is in the name of its file.
    pub(super) version: u64,
    /// Directory of the keyspace.
    pub(super) directory: PathBuf,
    /// The files of rows that the version names.
    pub(super) files: Vec<PathBuf>,
    /// The version. The database removes a file when the last version with it is dropped.
    _version: Box<dyn Any + Send>,
}

/// Options of a keyspace; the database keeps those with which a keyspace was created.
fn options(buffer_bytes: u64) -> KeyspaceCreateOptions {
    // The files of level 0 are small, and their filters stay in memory.
    let partitioning = PartitioningPolicy::new([false, true]);
    KeyspaceCreateOptions::default()
        .max_memtable_size(buffer_bytes)
        .filter_block_partitioning_policy(partitioning.clone())
        .index_block_partitioning_policy(partitioning)
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(FILE_BYTES)))
}

impl Tables {
    /// Opens or creates the database. The write buffers are 34 MiB together.
    pub(super) fn open(directory: &Path, blocks_bytes: u64) -> Result<Self, IdentityError> {
        Self::open_sized(directory, blocks_bytes, MIB)
    }

    /// Opens the database, or creates one with write buffers of 34 times `unit_bytes` together.
    pub(super) fn open_sized(
        directory: &Path,
        blocks_bytes: u64,
        unit_bytes: u64,
    ) -> Result<Self, IdentityError> {
        let database = Database::builder(directory)
            .cache_size(blocks_bytes)
            .max_journaling_size(JOURNAL_MAX_BYTES)
            .max_cached_files(Some(OPEN_FILES_MAX))
            .worker_threads(WORKER_THREADS)
            .open()?;
        let by_key = |name: &str, units| database.keyspace(name, || options(units * unit_bytes));
        let in_order = |name: &str, units| {
            let options = || options(units * unit_bytes).filter_policy(FilterPolicy::disabled());
            database.keyspace(name, options)
        };
        let tables = Self {
            ids: by_key("ids", 4)?,
            persons: by_key("persons", 12)?,
            person_ids: in_order("person_ids", 4)?,
            uuids: by_key("uuids", 4)?,
            overrides: by_key("overrides", 2)?,
            groups: by_key("groups", 2)?,
            listed: in_order("listed", 2)?,
            emails: in_order("emails", 2)?,
            deletions: by_key("deletions", 1)?,
            meta: by_key("meta", 1)?,
            closing: AtomicBool::new(false),
            open: Arc::new(()),
            database,
        };
        tables.check_format()?;
        tables.list_all()?;
        Ok(tables)
    }

    pub(super) fn keyspaces(&self) -> [&Keyspace; 10] {
        let Self { ids, persons, person_ids, uuids, overrides, groups, .. } = self;
        let Self { listed, emails, deletions, meta, .. } = self;
        [ids, persons, person_ids, uuids, overrides, groups, listed, emails, deletions, meta]
    }

    /// The keyspaces whose keys begin with a project.
    pub(super) fn of_projects(&self) -> [&Keyspace; 9] {
        let Self { ids, persons, person_ids, uuids, overrides, groups, .. } = self;
        let Self { listed, emails, deletions, .. } = self;
        [ids, persons, person_ids, uuids, overrides, groups, listed, emails, deletions]
    }

    /// The newest version of a keyspace in memory, with its files.
    pub(super) fn hold(keyspace: &Keyspace) -> Held {
        let version = keyspace.tree.current_version();
        Held {
            version: version.id(),
            directory: keyspace.path().to_path_buf(),
            files: version.iter_tables().map(|table| table.path.to_path_buf()).collect(),
            _version: Box::new(version),
        }
    }

    /// Flushes all write buffers to files, and rewrites all files.
    #[cfg(test)]
    pub(super) fn rewrite(&self) -> Result<(), IdentityError> {
        self.keyspaces().into_iter().try_for_each(|keyspace| {
            keyspace.rotate_memtable_and_wait()?;
            Ok(keyspace.major_compact()?)
        })
    }

    /// All rows of all keyspaces.
    #[cfg(test)]
    pub(super) fn dump(&self) -> Result<Vec<[Vec<u8>; 2]>, IdentityError> {
        let mut rows = Vec::new();
        for keyspace in self.keyspaces() {
            rows.push([keyspace.name().as_bytes().to_vec(), Vec::new()]);
            for entry in keyspace.iter() {
                let (key, row) = entry.into_inner()?;
                rows.push([key.to_vec(), row.to_vec()]);
            }
        }
        Ok(rows)
    }

    #[cfg(test)]
    pub(super) fn flush(&self) -> Result<(), IdentityError> {
        self.keyspaces().into_iter().try_for_each(|keyspace| {
            keyspace.rotate_memtable_and_wait()?;
            Ok(())
        })
    }

    /// Writes a batch once the database has caught up with its flushes.
    ///
    /// The database itself waits for that only after the write, and waits forever if its thread has
    /// ended because a flush failed. This function detects the failure.
    ///
    /// # Errors
    ///
    /// If the database fails, or has failed before.
    pub(super) fn commit(&self, batch: OwnedWriteBatch) -> Result<(), IdentityError> {
        let lags = |keyspace: &Keyspace| {
            keyspace.tree.sealed_memtable_count() >= SEALED_MAX
                || keyspace.tree.l0_run_count() >= UNMERGED_MAX
        };
        while self.keyspaces().into_iter().any(lags) {
            // Fails if any operation failed before.
            self.database.persist(PersistMode::Buffer)?;
            std::thread::sleep(FLUSH_LOOK);
        }
        Ok(batch.commit()?)
    }

    /// Makes readers drop the database. The returned reference is dead once the database is closed
    /// and can be opened again.
    pub(super) fn close(&self) -> Weak<()> {
        self.closing.store(true, Ordering::Relaxed);
        Arc::downgrade(&self.open)
    }

    /// Whether [`Tables::close`] was called.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Fills `listed` and `emails` for a state that was written before these existed. If it is
    /// interrupted, the next start begins again.
    fn list_all(&self) -> Result<(), IdentityError> {
        if self.meta.get(codec::LISTED_KEY)?.is_some() {
            return Ok(());
        }
        let mut batch = self.database.batch();
        for (count, entry) in (1_usize..).zip(self.persons.iter()) {
            let (key, row) = entry.into_inner()?;
            let (project, number) = codec::decode_person_key(&key)?;
            let (uuid, created_at) = codec::decode_person_place(&row)?;
            let key = codec::listed_key(project, created_at, uuid);
            batch.insert(&self.listed, key, number.to_be_bytes());
            let person = codec::decode_person(number, &row)?;
            if let Some(email) = person.properties.get(codec::EMAIL) {
                batch.insert(&self.emails, codec::email_key(project, email, number), b"");
            }
            if count.is_multiple_of(LISTED_AT_ONCE) {
                self.commit(std::mem::replace(&mut batch, self.database.batch()))?;
            }
        }
        batch.insert(&self.meta, codec::LISTED_KEY, b"");
        self.commit(batch)
    }

    fn check_format(&self) -> Result<(), IdentityError> {
        let note = || self.meta.insert(codec::FORMAT_KEY, codec::FORMAT.to_be_bytes());
        let Some(found) = self.meta.get(codec::FORMAT_KEY)? else { return Ok(note()?) };
        let found =
            <[u8; 8]>::try_from(&*found).map_err(|_| IdentityError::Damaged { what: "format" })?;
        match u64::from_be_bytes(found) {
            codec::FORMAT => Ok(()),
            // From now on rows may be written that an earlier version cannot read.
            codec::FORMAT_OLDEST..codec::FORMAT => Ok(note()?),
            found => Err(IdentityError::Format { found, expected: codec::FORMAT }),
        }
    }
}
