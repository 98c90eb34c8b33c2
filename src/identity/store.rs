//! [`Identities`]: the one way in, and the door to the reads.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use arc_swap::ArcSwapOption;
use fjall::PersistMode;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::change::Effect;
use crate::identity::change::Record;
use crate::identity::change::Warning;
use crate::identity::codec;
use crate::identity::deletions::Deletion;
use crate::identity::deletions::Deletions;
use crate::identity::hurry::Hurry;
use crate::identity::loaded::GroupTypes;
use crate::identity::loaded::Loaded;
use crate::identity::loaded::Open;
use crate::identity::loaded::Writer;
use crate::identity::loaded::load_deletions;
use crate::identity::overlay::Overlay;
use crate::identity::overrides::Overrides;
use crate::identity::overrides::Splits;
use crate::identity::person::Group;
use crate::identity::person::Person;
use crate::identity::survivors::Seen;
use crate::identity::survivors::Survivors;
use crate::identity::tables::Tables;
use crate::identity::view::View;
use crate::identity::watch::Feed;
use crate::identity::watch::Watch;

/// Entries that [`Identities::read_overrides`] reads between two questions whether to go on.
const OVERRIDES_AT_ONCE: u64 = 10_000;

/// How long [`Identities::reopen`] waits for readers, and the time between its looks.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
const CLOSE_LOOK: Duration = Duration::from_millis(1);

/// Memory of the caches, in bytes. All of them grow only as they are used. The write buffers of the
/// database come on top: 34 MiB, for moments twice that.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Distinct ids known to exist, and what their persons were told last; about 256 bytes each.
    pub ids_bytes: u64,
    /// Decoded persons, half for updates, half for flags.
    pub rows_bytes: u64,
    /// Blocks of the database's files.
    pub blocks_bytes: u64,
    /// Persons that were merged, an eighth of it to know who was not.
    pub overrides_bytes: u64,
    /// Rows that change in one batch, with the batch itself: records that need more are applied in
    /// parts. Beside the caches, and only while records are applied.
    pub part_bytes: u64,
}

/// [`Limits::part_bytes`] of a server: some ten thousand new persons, which take a tenth of a second.
const PART_BYTES: u64 = 32 << 20;

impl Limits {
    /// Divides `bytes` among the caches, and takes as much again for merged persons: a question that
    /// goes through all events asks for each of theirs. Most for known ids: every event asks for one.
    pub fn within(bytes: u64) -> Self {
        Self {
            ids_bytes: bytes / 2,
            rows_bytes: bytes / 4,
            blocks_bytes: bytes / 4,
            overrides_bytes: bytes,
            part_bytes: PART_BYTES,
        }
    }
}

/// What a call of [`Identities::apply`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Sequence of the last record that is applied now.
    pub sequence: u64,
    /// Rules that kept events from having their full effect, in the order of the events.
    pub warnings: Vec<Warning>,
}

/// A cheap handle on the state; clones share it. One thread applies, any thread reads. The state is
/// closed when the last handle is dropped, and the last scan of a [`View`] has ended: other reads of
/// views fail then.
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
    /// Held for the whole of an `apply`, its I/O included: there is one writer, and a second one
    /// that came by mistake has to wait.
    writer: Mutex<Writer>,
    /// Who wants to know which persons change.
    feed: Feed,
    applied: watch::Sender<u64>,
    hurry: Hurry,
    survivors: Arc<Survivors>,
    splits: ArcSwap<Splits>,
    erasures: ArcSwap<Erasures>,
    types: ArcSwap<GroupTypes>,
}

/// The events that are deleted as of a record. One value, so that nobody puts together what never
/// was at one time: the state may be opened again at an earlier record.
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
        let Loaded { open, writer, splits, deletions, types } = Loaded::from(directory, limits)?;
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
            writer: Mutex::new(writer),
            feed: Feed::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Closes the database and opens it again: after a failed write it takes no others. Views of
    /// before are of no use any more. What was applied last may be lost, so that
    /// [`Identities::applied_sequence`] goes back; the caller applies the log from there, and what
    /// comes out is the same, since the same records lead from one state to the same next one.
    ///
    /// # Errors
    ///
    /// Somebody still reads, or the disk is still full: call it again.
    /// [`IdentityError::Unsynced`] does not pass.
    pub fn reopen(&self) -> Result<(), IdentityError> {
        let shared = &*self.shared;
        let mut writer = shared.writer.lock();
        if shared.is_unsynced.load(Ordering::Acquire) {
            return Err(IdentityError::Unsynced);
        }
        self.close(&mut writer);
        let mut waited = Duration::ZERO;
        while writer.closing.strong_count() > 0 {
            if waited >= CLOSE_WAIT {
                return Err(IdentityError::Reopening);
            }
            std::thread::sleep(CLOSE_LOOK);
            waited += CLOSE_LOOK;
        }
        let loaded = Loaded::from(&shared.directory, shared.limits)?;
        *writer = loaded.writer;
        let applied = writer.counters.applied;
        shared.survivors.forget(writer.counters.point());
        shared.splits.store(Arc::new(loaded.splits));
        shared.types.store(Arc::new(loaded.types));
        // Before the database is there for others: what they read here is in it.
        shared.erasures.store(Arc::new(Erasures { applied, deletions: loaded.deletions.into() }));
        shared.applied.send_replace(applied);
        shared.open.store(Some(Arc::new(loaded.open)));
        Ok(())
    }

    /// Closes the database as soon as nobody reads in it.
    fn close(&self, writer: &mut Writer) {
        if let Some(open) = self.shared.open.swap(None) {
            open.tables.close();
            writer.closing = Arc::downgrade(&open.tables);
        }
    }

    /// The open database.
    fn tables(&self) -> Result<Arc<Tables>, IdentityError> {
        let open = self.shared.open.load();
        Ok(Arc::clone(&open.as_ref().ok_or(IdentityError::Reopening)?.tables))
    }

    /// Applies records in the order of their sequences, in as few atomic changes as their memory
    /// allows. One of many ops may take several, and how far it is applied is part of each: after a
    /// crash the same record goes on from there. Readers may see the persons of its first ops before
    /// the others; [`Identities::wait_applied`] waits for all. Records that have been applied before
    /// are skipped, so a replay may start anywhere before the end.
    ///
    /// Blocks: reads rows that are not cached, writes the database's journal, and waits when the
    /// database has fallen behind with its flushes. Does not sync; see [`Identities::persist`].
    ///
    /// # Errors
    ///
    /// The op at fault and those behind it were not applied then. After
    /// [`IdentityError::Database`] open the state again.
    pub fn apply(&self, records: &[Record]) -> Result<Applied, IdentityError> {
        let mut warnings = Vec::new();
        self.apply_noting(records, |_| true, |warning| warnings.push(warning))?;
        Ok(Applied { sequence: self.applied_sequence(), warnings })
    }

    /// As [`Identities::apply`]. `note` is shown what operators' operations among the records do,
    /// if any does something, before that takes effect, and says whether that is written down. After
    /// a crash in between it is shown the same again. `warn` is told what [`Applied::warnings`] has.
    ///
    /// # Errors
    ///
    /// As of [`Identities::apply`]; [`IdentityError::NotNoted`] if `note` says no.
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

    /// Applies no more than `parts` atomic changes of records, as far as a process comes that ends
    /// then.
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

    /// Applies the first of the records, or a part of the first, as one atomic change. Returns those that
    /// are not applied as a whole.
    fn apply_some<'r>(
        &self,
        writer: &mut Writer,
        records: &'r [Record],
        note: &mut impl FnMut(&[Effect]) -> bool,
    ) -> Result<(&'r [Record], Vec<Warning>), IdentityError> {
        let shared = &*self.shared;
        let types = shared.types.load_full();
        let Writer { caches, counters, part_bytes, .. } = &*writer;
        let mut overlay = Overlay::new(self.view(), caches, *counters, types, *part_bytes);
        let mut rest = records;
        while !overlay.is_full()
            && let Some((record, later)) = rest.split_first()
            && overlay.fold(record)?
        {
            rest = later;
        }
        if !overlay.has_advanced(writer.counters) {
            return Ok((rest, Vec::new()));
        }
        if !overlay.effects().is_empty() && !note(overlay.effects()) {
            return Err(IdentityError::NotNoted);
        }
        let tables = self.tables()?;
        let mut batch = tables.database.batch();
        overlay.write(&mut batch, &tables)?;
        shared.survivors.change(overlay.point(), overlay.overrides());
        // Before the commit, too: whose distinct id is asked without need is found all the same.
        if !overlay.splits().is_empty() {
            let mut splits = Splits::clone(&shared.splits.load());
            splits.extend(overlay.splits());
            shared.splits.store(Arc::new(splits));
        }
        if shared.feed.is_watched() {
            shared.feed.note(overlay.point(), &overlay.rewritten());
        }
        tables.commit(batch)?;
        drop(tables);
        let published = overlay.publish();
        writer.counters = published.counters;
        let mut deletions = self.deletions();
        if !published.marks.is_empty() {
            let marks =
                published.marks.into_iter().map(|mark| (mark.place, mark.asked_at, mark.ids));
            deletions = Arc::new(deletions.with(marks));
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

    /// Makes everything applied so far durable, and returns the sequence up to which the log is no
    /// longer needed for it. Takes a sync of the disk.
    ///
    /// # Errors
    ///
    /// If the sync failed; open the state again and replay.
    pub fn persist(&self) -> Result<u64, IdentityError> {
        let tables = self.tables()?;
        // Read before the sync: what is applied meanwhile may have missed it. And read while these
        // tables are held, so that no others, which may lack some of it, come in their place.
        let applied = self.applied_sequence();
        self.sync(&tables)?;
        Ok(applied)
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

    /// Remembers, durably, that records are lost that were not applied, so that persons are missing
    /// from here on.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn mark_incomplete(&self) -> Result<(), IdentityError> {
        let tables = self.tables()?;
        tables.meta.insert(codec::INCOMPLETE_KEY, b"")?;
        self.sync(&tables)
    }

    /// Whether records were lost, see [`Identities::mark_incomplete`].
    ///
    /// # Errors
    ///
    /// If the database fails.
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

    /// Lets more records come together for the next [`Identities::apply`]: blocks for `duration`,
    /// or until somebody waits for a record.
    pub fn linger(&self, duration: Duration) {
        self.shared.hurry.wait(duration);
    }

    /// A snapshot, for several reads that have to agree.
    pub fn view(&self) -> View {
        let open = self.shared.open.load();
        open.as_ref().map_or_else(View::closed, |open| open.view())
    }

    /// Begins to tell which persons of a project change, from the view that is given on. Waits for an
    /// [`Identities::apply`] that is running.
    pub fn watch(&self, project: ProjectId) -> (Watch, View) {
        // While nothing is being applied, everything noted is committed.
        let _writer = self.shared.writer.lock();
        let id = self.shared.feed.register(project);
        (Watch::new(self.clone(), id), self.view())
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.shared.feed
    }

    /// The overrides as of the last applied record.
    pub fn overrides(&self) -> Overrides {
        let survivors = Arc::clone(&self.shared.survivors);
        let read = (survivors.opening(), self.view());
        Overrides::new(read, survivors, self.shared.splits.load_full())
    }

    /// Reads which persons were merged, so that others need not be looked up, and as many of them as there
    /// is room for need not either. Takes a second for some millions; until it was called, every look-up
    /// reads the database. `goes_on` is asked now and then; if it says no, that stays so.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
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
    /// record. Memory only. Take it before the rows that it is to be asked about.
    pub fn deletions(&self) -> Arc<Deletions> {
        Arc::clone(&self.shared.erasures.load().deletions)
    }

    /// The last applied record, and the deletions as of it: for who puts down in a file that rows up to
    /// there have gone through them.
    pub fn deletions_as_of(&self) -> (u64, Arc<Deletions>) {
        let erasures = self.shared.erasures.load();
        (erasures.applied, Arc::clone(&erasures.deletions))
    }

    /// Notes durably that of the events deleted by records up to `through` none is left, in live
    /// files, in memory, or in what a replay of the log would bring back. Returns for how many
    /// requests that is news.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged; then some may not be noted.
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
    /// indexes. What the project has in all stands in `metadata`.
    #[cfg(test)]
    pub(in crate::identity) fn group_types(&self, project: ProjectId) -> Arc<[String]> {
        self.shared.types.load().get(&project).cloned().unwrap_or_default()
    }

    /// See [`View::person_by_number`].
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
    pub fn person_by_number(
        &self,
        project: ProjectId,
        number: i64,
    ) -> Result<Option<Person>, IdentityError> {
        self.view().person_by_number(project, number)
    }

    /// See [`View::group`].
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged.
    pub fn group(
        &self,
        project: ProjectId,
        type_index: u8,
        key: &str,
    ) -> Result<Option<Group>, IdentityError> {
        self.view().group(project, type_index, key)
    }

    /// Has the state lost what the one in another directory has not, as a disk may that was full.
    #[cfg(test)]
    pub(super) fn fall_back_to(&self, other: &Path) -> Result<(), IdentityError> {
        self.close(&mut self.shared.writer.lock());
        std::fs::remove_dir_all(&self.shared.directory).map_err(fjall::Error::from)?;
        std::fs::rename(other, &self.shared.directory).map_err(fjall::Error::from)?;
        self.reopen()
    }

    /// Writes all buffers to files, as the database does when they are full.
    #[cfg(test)]
    pub(super) fn flush(&self) -> Result<(), IdentityError> {
        self.tables()?.flush()
    }

    /// Puts these bytes in the place of a person's row, and gives those that were there.
    #[cfg(test)]
    pub(crate) fn replace_row(
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

    /// Number and memory in bytes of the known ids in the cache.
    #[cfg(test)]
    pub(super) fn ids_memory(&self) -> (usize, usize) {
        self.shared.writer.lock().caches.ids_memory()
    }
}
