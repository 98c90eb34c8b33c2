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
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use futures::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
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

/// Bases that may be kept, of the largest size.
const KEPT: usize = 16;

/// Bytes of a pair.
const PAIR_BYTES: usize = 2 * size_of::<Uuid>();

/// The age at which files that this process does not know are deleted. No query takes so long.
const FORGOTTEN: Duration = Duration::from_hours(24);

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
    written: Arc<Mutex<HashMap<ProjectId, Written>>>,
    read: Arc<Cache<BaseName, Arc<SurvivorMap>, Weight>>,
}

/// The newest base of a project, and the one before, which queries may still use.
struct Written {
    base: BaseName,
    at: OverridesAt,
    before: Option<BaseName>,
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
        Self { files, memory: Arc::clone(memory), clock, written: Arc::default(), read }
    }

    /// The overrides of a project, by a base in the bucket, which is written if there is none; `None` if they are more than
    /// a base may have. Blocks while it reads the store of persons.
    ///
    /// # Errors
    ///
    /// The store cannot be read, the bucket cannot be written, or there is no memory for it.
    pub(crate) async fn changed(
        &self,
        project: ProjectId,
        overrides: &Overrides,
    ) -> Result<Option<Changed>> {
        let mut all = self.written.lock().await;
        if let Some(Written { base, at, .. }) = all.get(&project)
            && let Some(survivors) = overrides.changes_since(project, *at).map_err(external)?
        {
            return Ok(Some(Changed { base: base.clone(), survivors }));
        }
        let (Some(at), Some(content)) = (overrides.at(), self.content(project, overrides)?) else {
            return Ok(None);
        };
        let base = BaseName::of(project, &content);
        self.files.put(&base.path(), content.into()).await?;
        let before = all.remove(&project).map(|own| own.base).filter(|before| *before != base);
        all.insert(project, Written { base: base.clone(), at, before });
        let known =
            |own: &Written| [Some(own.base.path()), own.before.as_ref().map(BaseName::path)];
        let known: Vec<Path> = all.values().flat_map(known).flatten().collect();
        if let Err(error) = self.remove(&known, project).await {
            tracing::warn!(%error, "files of overrides that nobody needs are left in the bucket");
        }
        Ok(Some(Changed { base, survivors: SurvivorMap::new() }))
    }

    /// The pairs of a project; `None` if they are too many.
    fn content(&self, project: ProjectId, overrides: &Overrides) -> Result<Option<Vec<u8>>> {
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
            None => Ok((content.len() <= BASE_MAX * PAIR_BYTES).then_some(content)),
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
