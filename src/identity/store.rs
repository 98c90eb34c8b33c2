//! [`Identities`]: the one way in, and the door to the reads.

use std::path::Path;
use std::slice::Iter;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fjall::PersistMode;
use hashbrown::HashMap;
use parking_lot::Condvar;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::cache::Caches;
use crate::identity::cache::Decoded;
use crate::identity::change::Effect;
use crate::identity::change::Record;
use crate::identity::change::Warning;
use crate::identity::codec;
use crate::identity::codec::Counters;
use crate::identity::deletions::Deletion;
use crate::identity::deletions::Deletions;
use crate::identity::overlay::Overlay;
use crate::identity::overrides::Overrides;
use crate::identity::person::Group;
use crate::identity::person::Person;
use crate::identity::tables::Tables;
use crate::identity::view::View;
use crate::identity::watch::Feed;
use crate::identity::watch::Watch;

/// Group types by project, in the order of their indexes. At most five per project.
pub(super) type GroupTypes = HashMap<ProjectId, Arc<[String]>>;

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
}

impl Limits {
    /// Divides `bytes` among the caches. Most for known ids: every event asks for one.
    pub fn within(bytes: u64) -> Self {
        Self { ids_bytes: bytes / 2, rows_bytes: bytes / 4, blocks_bytes: bytes / 4 }
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
/// closed when the last handle and the last [`View`] are dropped.
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
    tables: Arc<Tables>,
    decoded: Arc<Decoded>,
    /// Held for the whole of an `apply`, its I/O included: there is one writer, and a second one
    /// that came by mistake has to wait.
    writer: Mutex<Writer>,
    /// Who wants to know which persons change.
    feed: Feed,
    applied: watch::Sender<u64>,
    hurry: Hurry,
    overrides: ArcSwap<Overrides>,
    deletions: ArcSwap<Deletions>,
    types: ArcSwap<GroupTypes>,
}

/// Tells a writer who waits for more to do that somebody waits for what it has.
#[derive(Debug, Default)]
struct Hurry {
    asked: Mutex<bool>,
    told: Condvar,
}

impl Hurry {
    fn ask(&self) {
        *self.asked.lock() = true;
        self.told.notify_one();
    }

    /// Who asked before the last wait ended may ask in vain for this one: it then ends at once.
    fn wait(&self, duration: Duration) {
        let mut asked = self.asked.lock();
        self.told.wait_while_for(&mut asked, |asked| !*asked, duration);
        *asked = false;
    }
}

struct Writer {
    caches: Caches,
    counters: Counters,
}

impl Identities {
    /// Opens the state in a directory, or creates an empty one whose applied sequence is 0.
    ///
    /// # Errors
    ///
    /// If another process has it open, the disk fails, or another version wrote it. For
    /// [`IdentityError::Damaged`], delete the directory and replay the log.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, IdentityError> {
        let tables = Arc::new(Tables::open(directory, limits.blocks_bytes)?);
        let decoded = Arc::new(Decoded::new(limits.rows_bytes / 2));
        let counters = View::new(Arc::clone(&tables), Arc::clone(&decoded)).counters()?;
        let caches = Caches::new(limits.ids_bytes, limits.rows_bytes / 2);
        let writer = Writer { caches, counters };
        let shared = Shared {
            applied: watch::Sender::new(counters.applied),
            hurry: Hurry::default(),
            overrides: ArcSwap::from_pointee(load_overrides(&tables)?),
            deletions: ArcSwap::from_pointee(load_deletions(&tables)?),
            types: ArcSwap::from_pointee(load_types(&tables)?),
            writer: Mutex::new(writer),
            feed: Feed::default(),
            decoded,
            tables,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Applies records in the order of their sequences, each as a whole; all as one atomic change,
    /// unless the persons that they are about take too much memory together. Records that have been
    /// applied before are skipped, so a replay may start anywhere before the end.
    ///
    /// Blocks: reads rows that are not cached, writes the database's journal, and waits when the
    /// database has fallen behind with its flushes. Does not sync; see [`Identities::persist`].
    ///
    /// # Errors
    ///
    /// The record at fault and those behind it were not applied then. After
    /// [`IdentityError::Database`] open the state again.
    pub fn apply(&self, records: &[Record]) -> Result<Applied, IdentityError> {
        self.apply_noting(records, |_| true)
    }

    /// As [`Identities::apply`]. `note` is shown what operators' operations among the records do,
    /// if any does something, before that takes effect, and says whether that is written down. After
    /// a crash in between it is shown the same again.
    ///
    /// # Errors
    ///
    /// As of [`Identities::apply`]; [`IdentityError::NotNoted`] if `note` says no.
    pub fn apply_noting(
        &self,
        records: &[Record],
        mut note: impl FnMut(&[Effect]) -> bool,
    ) -> Result<Applied, IdentityError> {
        let mut writer = self.shared.writer.lock();
        let (mut rest, mut warnings) = (records.iter(), Vec::new());
        while rest.len() > 0 {
            warnings.extend(self.apply_some(&mut writer, &mut rest, &mut note)?);
        }
        Ok(Applied { sequence: writer.counters.applied, warnings })
    }

    /// Applies records as one atomic change, until there are no more or their persons fill the memory.
    fn apply_some(
        &self,
        writer: &mut Writer,
        records: &mut Iter<'_, Record>,
        note: &mut impl FnMut(&[Effect]) -> bool,
    ) -> Result<Vec<Warning>, IdentityError> {
        let shared = &*self.shared;
        let types = shared.types.load_full();
        let mut overlay = Overlay::new(self.view(), &writer.caches, writer.counters, types);
        while !overlay.is_full()
            && let Some(record) = records.next()
        {
            overlay.fold(record)?;
        }
        if !overlay.has_advanced(writer.counters) {
            return Ok(Vec::new());
        }
        if !overlay.effects().is_empty() && !note(overlay.effects()) {
            return Err(IdentityError::NotNoted);
        }
        let mut batch = shared.tables.database.batch();
        overlay.write(&mut batch, &shared.tables)?;
        if shared.feed.is_watched() {
            shared.feed.note(overlay.sequence(), &overlay.rewritten());
        }
        batch.commit()?;
        let published = overlay.publish();
        writer.counters = published.counters;
        if !published.overrides.is_empty() || !published.splits.is_empty() {
            let (changes, splits) = (published.overrides, published.splits);
            let next = shared.overrides.load().with(changes.into_iter(), splits.into_iter());
            shared.overrides.store(Arc::new(next));
        }
        if !published.marks.is_empty() {
            let marks =
                published.marks.into_iter().map(|mark| (mark.place, mark.asked_at, mark.ids));
            let next = shared.deletions.load().with(marks);
            shared.deletions.store(Arc::new(next));
        }
        if let Some(types) = published.types {
            shared.types.store(types);
        }
        shared.applied.send_replace(published.counters.applied);
        Ok(published.warnings)
    }

    /// Makes everything applied so far durable, and returns the sequence up to which the log is no
    /// longer needed for it. Takes a sync of the disk.
    ///
    /// # Errors
    ///
    /// If the sync failed; open the state again and replay.
    pub fn persist(&self) -> Result<u64, IdentityError> {
        // Read before the sync: what is applied meanwhile may have missed it.
        let applied = self.applied_sequence();
        self.shared.tables.database.persist(PersistMode::SyncData)?;
        Ok(applied)
    }

    /// Remembers, durably, that records before the next one to be applied are lost, so that persons
    /// are missing from here on.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn mark_incomplete(&self) -> Result<(), IdentityError> {
        self.shared.tables.meta.insert(codec::INCOMPLETE_KEY, b"")?;
        Ok(self.shared.tables.database.persist(PersistMode::SyncData)?)
    }

    /// Whether records were lost, see [`Identities::mark_incomplete`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn is_incomplete(&self) -> Result<bool, IdentityError> {
        Ok(self.shared.tables.meta.get(codec::INCOMPLETE_KEY)?.is_some())
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
        View::new(Arc::clone(&self.shared.tables), Arc::clone(&self.shared.decoded))
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

    /// The overrides as of the last applied record. Memory only.
    pub fn overrides(&self) -> Arc<Overrides> {
        self.shared.overrides.load_full()
    }

    /// The events that are deleted and may still be in files or memory, as of the last applied
    /// record. Memory only. Take it before the rows that it is to be asked about.
    pub fn deletions(&self) -> Arc<Deletions> {
        self.shared.deletions.load_full()
    }

    /// Notes durably that of the events deleted by records up to `through` none is left, in live
    /// files, in memory, or in what a replay of the log would bring back. Returns for how many
    /// requests that is news.
    ///
    /// # Errors
    ///
    /// If the database fails or a row is damaged; then some may not be noted.
    pub fn finish_deletions(&self, through: u64, at: UnixMicros) -> Result<usize, IdentityError> {
        let Shared { tables, writer, deletions, .. } = &*self.shared;
        let writing = writer.lock();
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
            batch.commit()?;
            deletions.store(Arc::new(load_deletions(tables)?));
        }
        drop(writing);
        if done > 0 {
            tables.database.persist(PersistMode::SyncData)?;
        }
        Ok(done)
    }

    /// The group types of a project, in the order of their indexes. Memory only.
    pub fn group_types(&self, project: ProjectId) -> Arc<[String]> {
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

    /// Writes all buffers to files, as the database does when they are full.
    #[cfg(test)]
    pub(super) fn flush(&self) -> Result<(), IdentityError> {
        self.shared.tables.flush()
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
        let persons = &self.shared.tables.persons;
        let before = persons.get(&key)?;
        persons.insert(key, row)?;
        Ok(before.map(|before| before.to_vec()).unwrap_or_default())
    }

    /// Number and memory in bytes of the known ids in the cache.
    #[cfg(test)]
    pub(super) fn ids_memory(&self) -> (usize, usize) {
        self.shared.writer.lock().caches.ids_memory()
    }
}

fn load_overrides(tables: &Tables) -> Result<Overrides, IdentityError> {
    let mut entries = Vec::new();
    for entry in tables.overrides.iter() {
        let (key, survivor) = entry.into_inner()?;
        entries.push((codec::decode_override_key(&key)?, codec::uuid(&survivor, "override")?));
    }
    let mut splits = Vec::new();
    for entry in tables.meta.prefix(codec::SPLIT_PREFIX) {
        let (key, _) = entry.into_inner()?;
        splits.push(codec::decode_split_key(&key)?);
    }
    Ok(Overrides::new(entries.into_iter(), splits.into_iter()))
}

fn load_deletions(tables: &Tables) -> Result<Deletions, IdentityError> {
    let mut requests = Vec::new();
    for entry in tables.meta.prefix(codec::DELETING_PREFIX) {
        let (key, ids) = entry.into_inner()?;
        let place = codec::decode_deleting_key(&key)?;
        let row = tables.deletions.get(codec::deletion_key(place))?;
        let row = row.ok_or(IdentityError::Damaged { what: "deletion" })?;
        let asked_at = codec::decode_deletion(&row)?.asked_at;
        requests.push((place, asked_at, codec::decode_deleting(&ids)?));
    }
    Ok(Deletions::new(requests.into_iter()))
}

fn load_types(tables: &Tables) -> Result<GroupTypes, IdentityError> {
    let mut types = GroupTypes::new();
    for entry in tables.meta.prefix(codec::TYPES_PREFIX) {
        let (key, names) = entry.into_inner()?;
        let project = codec::meta_project(codec::TYPES_PREFIX, &key)?;
        types.insert(project, codec::decode_types(&names)?.into());
    }
    Ok(types)
}
