//! Overrides of a project with many merged persons, as a file in the bucket beside the events: a base, which processes without
//! a store of persons read once, so that a plan has only what has changed since ([`Bases`]). The server writes another base
//! when too much has changed.
//!
//! A base is pairs of uuids, a person and the one that replaces it. Its name has a digest of them, so a file that was
//! damaged is not used, and one name never means two contents. Files lie in a directory that other engines skip, because its
//! name begins with `_`. A file that is missing costs time: the server executes the query alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::persons::person_numbers::table_bytes;
use weir_base::clock::{Clock, UnixMicros};
use weir_event::id::ProjectId;
use weir_identity::overrides::{Overrides, OverridesAt, SurvivorMap};
use weir_identity::view::Flow;

/// Where bases are, beside the files of events.
const DIRECTORY: &str = "_overrides";

/// Most overrides of a base: 64 MB as a file, and 140 MB in the memory of each worker.
const BASE_MAX: usize = 2_000_000;

/// Memory of the bases that are kept for further queries.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// For how many bases the cache is laid out.
const KEPT: usize = 16;

/// Bytes of a pair.
const PAIR_BYTES: usize = 2 * size_of::<Uuid>();

/// The age at which files of other projects are deleted, which write theirs again if they still need them.
const FORGOTTEN: Duration = Duration::from_hours(7 * 24);

/// How long a query waits for the bucket, and for a base that is being written, before it is executed without workers.
const WAIT: Duration = Duration::from_secs(3);

/// How long a base is taken for there once it was seen.
const SEEN: Duration = Duration::from_secs(10);

/// After so long it is tried again to write a base that could not be written.
const RETRY: Duration = Duration::from_mins(1);

/// After so long a project with too many overrides is looked at again.
const TOO_MANY: Duration = Duration::from_mins(10);

/// Names a base.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct BaseName {
    project: i64,
    digest: String,
}

impl BaseName {
    fn of(project: ProjectId, content: &[u8]) -> Self {
        Self { project: project.0, digest: format!("{:x}", Sha256::digest(content)) }
    }

    /// The project that it is of.
    pub(crate) fn project(&self) -> ProjectId {
        ProjectId(self.project)
    }

    fn path(&self) -> Path {
        Path::from_iter([DIRECTORY, &format!("{}-{}", self.project, self.digest)])
    }
}

/// What a plan has of the overrides of a project: a base, and what has changed since.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) base: BaseName,
    /// See [`OverrideMap`](weir_identity::overrides::OverrideMap).
    pub(crate) survivors: SurvivorMap,
}

/// The bases that a server has written, and those that a process has read. Clones share them.
#[derive(Clone)]
pub(crate) struct Bases {
    files: Arc<dyn ObjectStore>,
    memory: Arc<dyn MemoryPool>,
    clock: Clock,
    /// By project, each locked while its base is written.
    written: Arc<Mutex<HashMap<ProjectId, Arc<tokio::sync::Mutex<Known>>>>>,
    /// The newest ones that were written.
    names: Arc<Mutex<HashMap<ProjectId, BaseName>>>,
    /// What writes them; it ends with the process.
    writing: Arc<Mutex<HashMap<ProjectId, SpawnedTask<()>>>>,
    read: Arc<Cache<BaseName, Arc<SurvivorMap>, Weight>>,
}

/// What a server knows of the base of a project.
#[derive(Default)]
enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It is there.
    Written(Written),
    /// There are too many overrides for one, or it could not be written. It is tried again after this, by the monotonic
    /// clock.
    None { until: Duration },
}

/// The newest base of a project.
struct Written {
    base: BaseName,
    at: OverridesAt,
    /// When it was seen in the bucket, by the monotonic clock.
    seen: Duration,
}

/// Memory of a base.
#[derive(Clone)]
struct Weight;

impl Weighter<BaseName, Arc<SurvivorMap>> for Weight {
    fn weight(&self, _: &BaseName, base: &Arc<SurvivorMap>) -> u64 {
        u64::try_from(bytes_of(base)).unwrap_or(u64::MAX)
    }
}

fn bytes_of(base: &SurvivorMap) -> usize {
    table_bytes(base.capacity(), PAIR_BYTES).max(1)
}

impl Bases {
    /// None yet. The memory that it takes to write one is of `memory`.
    pub(crate) fn new(
        files: Arc<dyn ObjectStore>,
        memory: &Arc<dyn MemoryPool>,
        clock: Clock,
    ) -> Self {
        let read = Arc::new(Cache::with_weighter(KEPT, KEPT_BYTES_MAX, Weight));
        Self {
            files,
            memory: Arc::clone(memory),
            clock,
            written: Arc::default(),
            names: Arc::default(),
            writing: Arc::default(),
            read,
        }
    }

    /// The overrides of a project, by a base in the bucket, which is written if there is none; `None` if they are more than
    /// a base may have, or it takes long. Then it is there for a later query.
    ///
    /// # Errors
    ///
    /// The store of persons cannot be read, or the bucket.
    pub(crate) async fn changed(
        &self,
        project: ProjectId,
        overrides: &Arc<Overrides>,
    ) -> Result<Option<Changed>> {
        let known = Arc::clone(self.written.lock().entry(project).or_default());
        let deadline = Instant::now() + WAIT;
        for has_begun in [false, true] {
            let Ok(mut own) = timeout_at(deadline, Arc::clone(&known).lock_owned()).await else {
                break;
            };
            match &mut *own {
                Known::None { until } if self.clock.monotonic() < *until => break,
                Known::None { .. } | Known::Nothing => {}
                Known::Written(written) => {
                    let changes = overrides.changes_since(project, written.at).map_err(external)?;
                    if let Some(survivors) = changes {
                        let Ok(is_there) = timeout_at(deadline, self.is_there(written)).await
                        else {
                            break;
                        };
                        if is_there? {
                            return Ok(Some(Changed { base: written.base.clone(), survivors }));
                        }
                    }
                }
            }
            if !has_begun {
                // It goes on if it takes longer than this query waits.
                let writer = Self { writing: Arc::default(), ..self.clone() };
                let writing = writer.begin(project, Arc::clone(overrides), own);
                self.writing.lock().insert(project, SpawnedTask::spawn(writing));
            }
        }
        Ok(None)
    }

    /// Writes a base of a project, and notes it.
    async fn begin(
        self,
        project: ProjectId,
        overrides: Arc<Overrides>,
        mut known: OwnedMutexGuard<Known>,
    ) {
        let before = match std::mem::take(&mut *known) {
            Known::Written(written) => Some(written.base),
            Known::Nothing | Known::None { .. } => None,
        };
        let after = |retry| self.clock.monotonic().saturating_add(retry);
        *known = match self.write(project, overrides, before).await {
            Ok(Some(written)) => Known::Written(written),
            Ok(None) => Known::None { until: after(TOO_MANY) },
            Err(error) => {
                let project = project.0;
                tracing::warn!(%error, project, "merged persons for workers are not written");
                Known::None { until: after(RETRY) }
            }
        };
    }

    /// Whether a base is still in the bucket, from which others may have removed it.
    async fn is_there(&self, written: &mut Written) -> Result<bool> {
        let now = self.clock.monotonic();
        if now.saturating_sub(written.seen) < SEEN {
            return Ok(true);
        }
        match self.files.head(&written.base.path()).await {
            Ok(_) => written.seen = now,
            Err(object_store::Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Writes a base of a project; `None` if it has too many overrides, or their state cannot be read.
    async fn write(
        &self,
        project: ProjectId,
        overrides: Arc<Overrides>,
        before: Option<BaseName>,
    ) -> Result<Option<Written>> {
        let Some(at) = overrides.at() else { return Ok(None) };
        let own = self.clone();
        let reading = tokio::task::spawn_blocking(move || own.content(project, &overrides));
        let content =
            reading.await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
        let Some((base, content, memory)) = content? else { return Ok(None) };
        self.files.put(&base.path(), content.into()).await?;
        drop(memory);
        self.names.lock().insert(project, base.clone());
        let mut known: Vec<Path> = self.names.lock().values().map(BaseName::path).collect();
        known.extend(before.as_ref().map(BaseName::path));
        if let Err(error) = self.remove(&known, project).await {
            tracing::warn!(%error, "files of overrides that nobody needs are left in the bucket");
        }
        Ok(Some(Written { base, at, seen: self.clock.monotonic() }))
    }

    /// The pairs of a project as a base, with the memory that they take; `None` if they are too many. Blocks.
    fn content(
        &self,
        project: ProjectId,
        overrides: &Overrides,
    ) -> Result<Option<(BaseName, Vec<u8>, MemoryReservation)>> {
        let memory = MemoryConsumer::new("overrides of a project").register(&self.memory);
        let (mut content, mut full) = (Vec::new(), None);
        let visited = overrides.each_of(project, |person, survivor| {
            if content.len() == content.capacity() {
                let more = content.len().max(1 << 16);
                full = memory.try_grow(more).err();
                content.reserve_exact(more);
            }
            content.extend_from_slice(person.as_bytes());
            content.extend_from_slice(survivor.as_bytes());
            match content.len() > BASE_MAX * PAIR_BYTES || full.is_some() {
                true => Flow::Break(()),
                false => Flow::Continue(()),
            }
        });
        visited.map_err(external)?;
        match full {
            Some(error) => Err(error),
            None if content.len() > BASE_MAX * PAIR_BYTES => Ok(None),
            None => Ok(Some((BaseName::of(project, &content), content, memory))),
        }
    }

    /// Removes the files that nobody needs: those of a project that are not known, and those of others that are old.
    async fn remove(&self, known: &[Path], project: ProjectId) -> object_store::Result<()> {
        let own = format!("{}-", project.0);
        let now = self.clock.now();
        let is_needless = |file: &object_store::ObjectMeta| {
            let is_own = file.location.filename().is_some_and(|name| name.starts_with(&own));
            let at = UnixMicros(file.last_modified.timestamp_micros());
            !known.contains(&file.location) && (is_own || now.since(at) > FORGOTTEN)
        };
        let files: Vec<_> = self.files.list(Some(&Path::from(DIRECTORY))).try_collect().await?;
        let needless: Vec<_> =
            files.into_iter().filter(is_needless).map(|file| Ok(file.location)).collect();
        let deleted = self.files.delete_stream(futures::stream::iter(needless).boxed());
        deleted.try_for_each(|_| async { Ok(()) }).await
    }

    /// A base, which is read from the bucket unless it is kept.
    ///
    /// # Errors
    ///
    /// It is not there, is damaged, or is larger than one may be.
    pub(crate) async fn base(&self, name: &BaseName) -> Result<Arc<SurvivorMap>> {
        self.read.get_or_insert_async(name, self.load(name)).await
    }

    async fn load(&self, name: &BaseName) -> Result<Arc<SurvivorMap>> {
        let file = self.files.get(&name.path()).await?;
        if file.meta.size > (BASE_MAX * PAIR_BYTES) as u64 {
            return Err(damaged(name));
        }
        let content: Bytes = file.bytes().await?;
        let (pairs, rest) = content.as_chunks::<PAIR_BYTES>();
        if BaseName::of(name.project(), &content) != *name || !rest.is_empty() {
            return Err(damaged(name));
        }
        let uuid = |bytes: &[u8]| Uuid::from_slice(bytes).unwrap_or_default();
        let pairs = pairs.iter().map(|pair| {
            let (person, survivor) = pair.split_at(size_of::<Uuid>());
            (uuid(person), uuid(survivor))
        });
        Ok(Arc::new(pairs.collect()))
    }
}

fn damaged(name: &BaseName) -> DataFusionError {
    DataFusionError::Execution(format!("the file {} of overrides is damaged", name.path()))
}

fn external(error: weir_identity::IdentityError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests;
