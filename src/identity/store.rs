//! [`Identities`]: the identity store. All writes go through it, and it hands out snapshots for
//! reads.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use fjall::PersistMode;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::change::{Effect, Record, Warning};
use crate::change_feed::registry::{ChangeFeeds, Watched};
use crate::deletions::{Deletion, Deletions};
use crate::gone::{Gone, GoneProjects};
use crate::hurry::Hurry;
use crate::image::{Drawn, Image};
use crate::limits::Limits;
use crate::loaded::{GroupTypes, Loaded, Open, Writer, load_deletions, load_gone};
use crate::overrides::{Overrides, Splits};
use crate::person::{Group, Person};
use crate::survivors::{Seen, Survivors};
use crate::tables::Tables;
use crate::view::View;
use crate::write_set::WriteSet;
use crate::{IdentityError, codec, gone};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Entries that [`Identities::read_overrides`] reads between two calls of `goes_on`.
const OVERRIDES_AT_ONCE: u64 = 10_000;

/// How long [`Identities::reopen`] waits for readers, and its polling interval.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
const CLOSE_LOOK: Duration = Duration::from_millis(1);

/// The result of [`Identities::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Sequence of the last applied record.
    pub sequence: u64,
    /// Rules that kept events from having their full effect, in the order of the events.
    pub warnings: Vec<Warning>,
}

/// The identity store: a cheap handle, shared by its clones. One thread applies records, any thread
/// reads. The database is closed when the last handle is dropped and the last scan of a [`View`]
/// has ended; other reads of views fail then.
#[derive(Clone)]
pub struct Identities {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities").finish_non_exhaustive()
    }
}

struct Shared {
    directory: PathBuf,
    limits: Limits,
    /// None while the database is closed.
    open: ArcSwapOption<Open>,
    /// Whether a sync failed; see [`IdentityError::Unsynced`].
    is_unsynced: AtomicBool,
    /// Held for the whole of an `apply`, its I/O included. There is one writer; a second one waits.
    writer: Mutex<Writer>,
    /// Registered change feeds.
    feed: ChangeFeeds,
    applied: watch::Sender<u64>,
    hurry: Hurry,
    survivors: Arc<Survivors>,
    splits: ArcSwap<Splits>,
    erasures: ArcSwap<Erasures>,
    types: ArcSwap<GroupTypes>,
    gone: ArcSwap<GoneProjects>,
}

/// The deleted events as of a record. One value, so that a reader always sees a matching pair: a
/// reopen may set the state back to an earlier record.
#[derive(Debug)]
struct Erasures {
    applied: u64,
    deletions: Arc<Deletions>,
}

impl Identities {
    /// Opens the state in a directory, or creates an empty one whose applied sequence is 0.
    ///
    /// # Errors
    ///
    /// If another process has it open, the disk fails, or another version wrote it. For
    /// [`IdentityError::Damaged`], delete the directory and replay the log.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, IdentityError> {
        let Loaded { open, writer, splits, deletions, types, gone } =
            Loaded::from(directory, limits)?;
        let survivors = Survivors::new(limits.overrides_bytes);
        if let Some(first) = open.tables.overrides.first_key_value() {
            survivors.note(&codec::decode_override_key(&first.key()?)?);
        } else {
            survivors.begin_to_filter();
        }
        let applied = writer.counters.applied;
        let shared = Shared {
            directory: directory.to_owned(),
            limits,
            open: ArcSwapOption::from_pointee(open),
            is_unsynced: AtomicBool::new(false),
            applied: watch::Sender::new(applied),
            hurry: Hurry::default(),
            survivors: Arc::new(survivors),
            splits: ArcSwap::from_pointee(splits),
            erasures: ArcSwap::from_pointee(Erasures { applied, deletions: deletions.into() }),
            types: ArcSwap::from_pointee(types),
            gone: ArcSwap::from_pointee(gone),
            writer: Mutex::new(writer),
            feed: ChangeFeeds::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Closes the database and opens it again, because it rejects writes after a failed one.
    /// Existing views become unusable. The last applied records may be lost:
    /// [`Identities::applied_sequence`] then goes back, and the caller replays the log from there.
    /// The replay is deterministic and leads to the same state.
    ///
    /// # Errors
    ///
    /// If the database still has readers, or the disk is still full: call it again.
    /// [`IdentityError::Unsynced`] is permanent until a restart.
    pub fn reopen(&self) -> Result<(), IdentityError> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock();
        if shared.is_unsynced.load(Ordering::Acquire) {
            return Err(IdentityError::Unsynced);
        }
        self.close_entirely(&mut writer)?;
        let loaded = Loaded::from(&shared.directory, shared.limits)?;
        *writer = loaded.writer;
        let applied = writer.counters.applied;
        shared.survivors.forget(writer.counters.point());
        shared.splits.store(Arc::new(loaded.splits));
        shared.types.store(Arc::new(loaded.types));
        shared.gone.store(Arc::new(loaded.gone));
        // Before other threads get the database: what they read here must match it.
        shared.erasures.store(Arc::new(Erasures { applied, deletions: loaded.deletions.into() }));
        shared.applied.send_replace(applied);
        shared.open.store(Some(Arc::new(loaded.open)));
        Ok(())
    }

    /// Closes the database for good, so that it can be opened elsewhere. Existing views become unusable.
    ///
    /// # Errors
    ///
    /// If the database still has readers: call it again.
    pub fn end(&self) -> Result<(), IdentityError> {
        self.close_entirely(&mut self.shared.writer.lock())
    }

    /// Closes the database, and waits for its last reader.
    fn close_entirely(&self, writer: &mut Writer) -> Result<(), IdentityError> {
        self.close(writer);
        let mut waited = Duration::ZERO;
        while writer.closing.strong_count() > 0 {
            if waited >= CLOSE_WAIT {
                return Err(IdentityError::Reopening);
            }
            std::thread::sleep(CLOSE_LOOK);
            waited += CLOSE_LOOK;
        }
        Ok(())
    }

    /// Closes the database; it ends when its last reader drops it.
    fn close(&self, writer: &mut Writer) {
        // Before it is gone, so that who is refused a view knows that readers have been told to end.
        if let Some(open) = &*self.shared.open.load() {
            writer.closing = open.tables.close();
        }
        self.shared.open.store(None);
    }

    /// The open database.
    pub(super) fn tables(&self) -> Result<Arc<Tables>, IdentityError> {
        let open = self.shared.open.load();
        Ok(Arc::clone(&open.as_ref().ok_or(IdentityError::Reopening)?.tables))
    }

    /// Applies records in the order of their sequences, in as few atomic batches as memory allows.
    /// A record with many ops may take several batches, and each contains the progress in the
    /// record: after a crash the rest of the record is applied from there. Readers may see the
    /// effect of its first ops before the others; [`Identities::wait_applied`] waits for all.
    /// Records that were applied before are skipped, so a replay may start anywhere before the end.
    ///
    /// Blocks: reads rows that are not cached, writes the database's journal, and waits while the
    /// database is behind with its flushes. Does not sync; see [`Identities::persist`].
    ///
    /// # Errors
    ///
    /// The op that failed and all later ones were not applied. After [`IdentityError::Database`],
    /// reopen the state.
    pub fn apply(&self, records: &[Record]) -> Result<Applied, IdentityError> {
        let mut warnings = Vec::new();
        self.apply_noting(records, |_| true, |warning| warnings.push(warning))?;
        Ok(Applied { sequence: self.applied_sequence(), warnings })
    }

    /// As [`Identities::apply`]. Before a batch with effects of operators' operations is committed,
    /// `note` gets the effects and returns whether it recorded them. After a crash in between it
    /// gets the same effects again. `warn` gets each of [`Applied::warnings`].
    ///
    /// # Errors
    ///
    /// As of [`Identities::apply`]; [`IdentityError::NotNoted`] if `note` returns false.
    pub fn apply_noting(
        &self,
        records: &[Record],
        mut note: impl FnMut(&[Effect]) -> bool,
        mut warn: impl FnMut(Warning),
    ) -> Result<(), IdentityError> {
        let mut writer = self.shared.writer.lock();
        let mut rest = records;
        while !rest.is_empty() {
            let (later, warnings) = self.apply_some(&mut writer, rest, &mut note)?;
            warnings.into_iter().for_each(&mut warn);
            rest = later;
        }
        Ok(())
    }

    /// Applies at most `parts` atomic batches of records, like a process that ends after them.
    #[cfg(test)]
    pub(super) fn apply_parts(
        &self,
        records: &[Record],
        parts: usize,
    ) -> Result<Vec<Warning>, IdentityError> {
        let mut writer = self.shared.writer.lock();
        let (mut rest, mut all) = (records, Vec::new());
        for _ in 0..parts {
            let (later, warnings) = self.apply_some(&mut writer, rest, &mut |_| true)?;
            all.extend(warnings);
            rest = later;
        }
        Ok(all)
    }

    /// Applies the first records, or a part of the first one, as one atomic batch. Returns the
    /// records that are not applied completely.
    fn apply_some<'r>(
        &self,
        writer: &mut Writer,
        records: &'r [Record],
        note: &mut impl FnMut(&[Effect]) -> bool,
    ) -> Result<(&'r [Record], Vec<Warning>), IdentityError> {
        let shared = &*self.shared;
        let (types, gone) = (shared.types.load_full(), shared.gone.load_full());
        let Writer { caches, counters, part_bytes, .. } = &*writer;
        let mut write_set = WriteSet::new(self.view(), caches, *counters, types, *part_bytes);
        write_set.ignore(gone);
        let mut rest = records;
        while !write_set.is_full()
            && let Some((record, later)) = rest.split_first()
            && write_set.fold(record)?
        {
            rest = later;
        }
        if !write_set.has_advanced(writer.counters) {
            return Ok((rest, Vec::new()));
        }
        if !write_set.effects().is_empty() && !note(write_set.effects()) {
            return Err(IdentityError::NotNoted);
        }
        let tables = self.tables()?;
        let mut batch = tables.database.batch();
        write_set.write(&mut batch, &tables)?;
        shared.survivors.change(write_set.point(), write_set.overrides());
        // Before the commit, too: resolving an event by its distinct id without need gives the
        // right person.
        if !write_set.splits().is_empty() {
            let mut splits = Splits::clone(&shared.splits.load());
            splits.extend(write_set.splits().iter().copied());
            shared.splits.store(Arc::new(splits));
        }
        if shared.feed.is_watched() {
            shared.feed.note(write_set.point(), |watched| write_set.changed(watched));
        }
        tables.commit(batch)?;
        drop(tables);
        let published = write_set.publish();
        writer.counters = published.counters;
        let mut deletions = self.deletions();
        if !published.marks.is_empty() {
            let marks =
                published.marks.into_iter().map(|mark| (mark.place, mark.asked_at, mark.ids));
            deletions = Arc::new(deletions.with(marks));
        }
        if !published.gone.is_empty() {
            let projects =
                || published.gone.iter().map(|(project, gone)| (*project, gone.sequence));
            let all = gone::with(&shared.gone.load(), projects().map(|(project, _)| project));
            shared.gone.store(all);
            deletions = Arc::new(deletions.with_projects(projects()));
        }
        let applied = published.counters.applied;
        shared.erasures.store(Arc::new(Erasures { applied, deletions }));
        if let Some(types) = published.types {
            shared.types.store(types);
        }
        shared.applied.send_if_modified(|applied| {
            std::mem::replace(applied, published.counters.applied) != published.counters.applied
        });
        Ok((rest, published.warnings))
    }

    /// Makes everything applied so far durable with a sync, and returns the sequence up to which
    /// this state no longer needs the log.
    ///
    /// # Errors
    ///
    /// If the sync failed; reopen the state and replay.
    pub fn persist(&self) -> Result<u64, IdentityError> {
        let tables = self.tables()?;
        // Read before the sync, which may miss records applied meanwhile. And read while these
        // tables are held, so that no reopen replaces them by tables that lack some of the records.
        let applied = self.applied_sequence();
        self.sync(&tables)?;
        Ok(applied)
    }

    /// Makes in `directory`, which is empty and on the file system of the store, an image that opens with exactly
    /// the state as of a record; see [`super::image`]. No record is applied while it copies what was not flushed,
    /// at most some 200 MiB; readers and the rest of the work do not wait.
    ///
    /// # Errors
    ///
    /// The database or the disk fails, or a flush does not end. What is in `directory` then is no image.
    pub fn image(&self, directory: &Path) -> Result<Image, IdentityError> {
        let Shared { writer, is_unsynced, .. } = &*self.shared;
        let writing = writer.lock();
        if is_unsynced.load(Ordering::Acquire) {
            return Err(IdentityError::Unsynced);
        }
        // Until it is made: a reopen waits for that, as otherwise files that it holds could get other contents.
        let tables = self.tables()?;
        let drawn = Drawn::begin(&tables, &self.shared.directory, directory)?;
        let applied = writing.counters.applied;
        drop(writing);
        drawn.finish(applied)
    }

    fn sync(&self, tables: &Tables) -> Result<(), IdentityError> {
        let synced = tables.database.persist(PersistMode::SyncData);
        if let Err(fjall::Error::Io(error)) = &synced
            && !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        {
            self.shared.is_unsynced.store(true, Ordering::Release);
        }
        Ok(synced?)
    }

    /// Records durably that log records were lost before they were applied, so that persons are
    /// missing.
    pub fn mark_incomplete(&self) -> Result<(), IdentityError> {
        // As everything that writes: nothing changes while an image is made.
        let _writing = self.shared.writer.lock();
        let tables = self.tables()?;
        tables.meta.insert(codec::INCOMPLETE_KEY, b"")?;
        self.sync(&tables)
    }

    /// Whether records were lost, see [`Identities::mark_incomplete`].
    pub fn is_incomplete(&self) -> Result<bool, IdentityError> {
        Ok(self.tables()?.meta.get(codec::INCOMPLETE_KEY)?.is_some())
    }

    /// Sequence of the last applied record; 0 for none.
    pub fn applied_sequence(&self) -> u64 {
        *self.shared.applied.borrow()
    }

    /// Waits until the record with this sequence has been applied.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Behind`] when the time is up.
    pub async fn wait_applied(
        &self,
        sequence: u64,
        timeout: Duration,
    ) -> Result<(), IdentityError> {
        if self.applied_sequence() >= sequence {
            return Ok(());
        }
        let mut applied = self.shared.applied.subscribe();
        self.shared.hurry.ask();
        let reached = applied.wait_for(|applied| *applied >= sequence);
        match tokio::time::timeout(timeout, reached).await {
            // The sender lives as long as this handle.
            Ok(_) => Ok(()),
            Err(_) => Err(IdentityError::Behind { sequence, waited: timeout }),
        }
    }

    /// Lets records accumulate for the next [`Identities::apply`]: blocks for `duration`, or until
    /// a reader waits for a record.
    pub fn linger(&self, duration: Duration) {
        self.shared.hurry.wait(duration);
    }

    /// A snapshot, for several reads that must be consistent.
    pub fn view(&self) -> View {
        let open = self.shared.open.load();
        open.as_ref().map_or_else(View::closed, |open| open.view())
    }

    /// Registers a change feed of the persons of a project, or of all, which starts at the returned view.
    pub(super) fn register_feed(&self, watched: Watched) -> (u64, View) {
        // While no batch is being applied, all recorded changes are committed.
        let _writer = self.shared.writer.lock();
        let id = self.shared.feed.register(watched);
        (id, self.view())
    }

    /// The deleted projects.
    pub(super) fn gone(&self) -> Arc<GoneProjects> {
        self.shared.gone.load_full()
    }

    /// The writer; while it is held, no record is applied.
    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.shared.writer.lock()
    }

    pub(super) fn feed(&self) -> &ChangeFeeds {
        &self.shared.feed
    }

    /// The overrides as of the last applied record.
    pub fn overrides(&self) -> Overrides {
        let survivors = Arc::clone(&self.shared.survivors);
        // In this order.
        let (opening, view) = (survivors.opening(), self.view());
        Overrides::new(opening, view, survivors, self.shared.splits.load_full())
    }

    /// Loads the filter with all overrides, so that persons without one need no look-up, and the
    /// cache with as many entries as fit. Takes about 1 s for some millions. Until it has run,
    /// every look-up of an uncached person reads the database. `goes_on` is called every 10,000
    /// entries; if it returns false, the filter stays unused.
    pub fn read_overrides(&self, goes_on: impl Fn() -> bool) -> Result<(), IdentityError> {
        let (mut read, mut is_all) = (0_u64, true);
        let survivors = &self.shared.survivors;
        let (opening, view) = (survivors.opening(), self.view());
        let seen = Seen { point: view.counters()?.point(), opening };
        let capacity = survivors.capacity();
        view.scan_overrides(|key, survivor| {
            survivors.note(&key);
            if read < capacity {
                survivors.learn(key, Some(survivor), seen);
            }
            read += 1;
            is_all = !read.is_multiple_of(OVERRIDES_AT_ONCE) || goes_on();
            Ok(if is_all { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if is_all {
            survivors.begin_to_filter();
        }
        Ok(())
    }

    /// The events that are deleted and may still be in files or memory, as of the last applied
    /// record. Reads memory only. Take it before the rows that it filters.
    pub fn deletions(&self) -> Arc<Deletions> {
        Arc::clone(&self.shared.erasures.load().deletions)
    }

    /// The last applied record, and the deletions as of it: for writers of files, which record up
    /// to where their rows are filtered.
    pub fn deletions_as_of(&self) -> (u64, Arc<Deletions>) {
        let erasures = self.shared.erasures.load();
        (erasures.applied, Arc::clone(&erasures.deletions))
    }

    /// Records durably that no event deleted by records up to `through` is left in live files, in
    /// memory, or in the part of the log that a replay would read. Returns the number of requests
    /// that this finishes. Deleted projects of which rows are left here ([`Identities::purge_projects`])
    /// stay unfinished.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged; some requests may then stay unfinished.
    pub fn finish_deletions(&self, through: u64, at: UnixMicros) -> Result<usize, IdentityError> {
        let Shared { writer, erasures, .. } = &*self.shared;
        let writing = writer.lock();
        let tables = self.tables()?;
        let mut batch = tables.database.batch();
        let mut done = 0;
        for entry in tables.meta.prefix(codec::DELETING_PREFIX) {
            let key = entry.key()?;
            let place = codec::decode_deleting_key(&key)?;
            if place.sequence > through {
                continue;
            }
            let row = tables.deletions.get(codec::deletion_key(place))?;
            let row = row.ok_or(IdentityError::Damaged { what: "deletion" })?;
            let deletion = Deletion { done_at: Some(at), ..codec::decode_deletion(&row)? };
            let row = codec::encode_deletion(&deletion);
            batch.insert(&tables.deletions, codec::deletion_key(place), row);
            batch.remove(&tables.meta, codec::deleting_key(place));
            done += 1;
        }
        for (project, gone) in load_gone(&tables)? {
            let is_due = gone.done_at.is_none() && gone.sequence <= through;
            if is_due && Self::is_purged(&tables, project) {
                let gone = codec::encode_gone(&Gone { done_at: Some(at), ..gone });
                batch.insert(&tables.meta, codec::meta_key(codec::GONE_PREFIX, project), gone);
                done += 1;
            }
        }
        if done > 0 {
            tables.commit(batch)?;
            let deletions = Arc::new(load_deletions(&tables)?);
            erasures.store(Arc::new(Erasures { applied: writing.counters.applied, deletions }));
        }
        drop(writing);
        if done > 0 {
            self.sync(&tables)?;
        }
        Ok(done)
    }

    /// The group types of a project that groups or their changes have named, in the order of their
    /// indexes. `metadata` has all group types of the project.
    #[cfg(test)]
    pub(crate) fn group_types(&self, project: ProjectId) -> Arc<[String]> {
        self.shared.types.load().get(&project).cloned().unwrap_or_default()
    }

    /// See [`View::person_by_number`].
    pub fn person_by_number(
        &self,
        project: ProjectId,
        number: i64,
    ) -> Result<Option<Person>, IdentityError> {
        self.view().person_by_number(project, number)
    }

    /// See [`View::group`].
    pub fn group(
        &self,
        project: ProjectId,
        type_index: u8,
        key: &str,
    ) -> Result<Option<Group>, IdentityError> {
        self.view().group(project, type_index, key)
    }

    /// Replaces the state by the older one in another directory, as if a full disk had lost writes.
    #[cfg(test)]
    pub(super) fn fall_back_to(&self, other: &Path) -> Result<(), IdentityError> {
        self.close(&mut self.shared.writer.lock());
        std::fs::remove_dir_all(&self.shared.directory).map_err(fjall::Error::from)?;
        std::fs::rename(other, &self.shared.directory).map_err(fjall::Error::from)?;
        self.reopen()
    }

    /// Flushes all write buffers to files.
    #[cfg(test)]
    pub(super) fn flush(&self) -> Result<(), IdentityError> {
        self.tables()?.flush()
    }

    /// Replaces the row of a person, and returns the previous one.
    #[doc(hidden)]
    pub fn replace_row(
        &self,
        project: ProjectId,
        number: i64,
        row: &[u8],
    ) -> Result<Vec<u8>, IdentityError> {
        let key = codec::key(project, &[&number.to_be_bytes()]);
        let tables = self.tables()?;
        let before = tables.persons.get(&key)?;
        tables.persons.insert(key, row)?;
        Ok(before.map(|before| before.to_vec()).unwrap_or_default())
    }

    /// Number of entries and memory in bytes of the cache of known ids.
    #[cfg(test)]
    pub(super) fn ids_memory(&self) -> (usize, usize) {
        self.shared.writer.lock().caches.ids_memory()
    }
}
