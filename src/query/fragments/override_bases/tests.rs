//! What a process without a store of persons reads is what the store has, whatever changes in between.

use std::sync::Arc;

use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use uuid::Uuid;

use super::{Bases, Changed, DIRECTORY, SEEN};
use weir_base::clock::{Clock, UnixMicros};
use weir_event::id::ProjectId;
use weir_identity::change::{Force, Keep, Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::overrides::{Overrides, SurvivorMap};
use weir_identity::store::Identities;

const PROJECT: ProjectId = ProjectId(7);

/// The identity store with a log.
struct Persons {
    _directory: tempfile::TempDir,
    identities: Identities,
    sequence: u64,
}

impl Persons {
    fn apply(&mut self, ops: Vec<Op>) {
        self.sequence += 1;
        let record = Record { sequence: self.sequence, project: PROJECT, ops };
        self.identities.apply(&[record]).unwrap();
    }

    /// Merges each of these ids into one of ten persons.
    fn merge(&mut self, numbers: std::ops::Range<u32>) {
        let op = |number: u32| {
            let (other, update) = (format!("anonymous {number}"), Update::default());
            op(&format!("user {}", number % 10), OpKind::Merge { other, force: Force::Yes, update })
        };
        self.apply(numbers.map(op).collect());
    }
}

fn op(distinct_id: &str, kind: OpKind) -> Op {
    let (event_id, timestamp) = (Uuid::nil(), UnixMicros(0));
    Op { distinct_id: distinct_id.to_owned(), event_id, timestamp, kind }
}

fn persons() -> Persons {
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
    Persons { _directory: directory, identities, sequence: 0 }
}

fn bases(files: &Arc<InMemory>, memory: usize) -> Bases {
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory));
    Bases::new(Arc::clone(files) as Arc<dyn ObjectStore>, &memory, Clock::test(UnixMicros(0)))
}

async fn names(files: &InMemory) -> Vec<Path> {
    let all: Vec<_> = files.list(Some(&Path::from(DIRECTORY))).try_collect().await.unwrap();
    all.into_iter().map(|file| file.location).collect()
}

fn stored(overrides: &Overrides) -> SurvivorMap {
    overrides.map_of(PROJECT, usize::MAX).unwrap().unwrap().survivors
}

/// The overrides that another process has by a base and what has changed.
async fn sent(bases: &Bases, Changed { base, survivors }: Changed) -> SurvivorMap {
    let mut map = SurvivorMap::clone(&*bases.base(&base).await.unwrap());
    map.extend(survivors);
    map.retain(|person, survivor| person != survivor);
    map
}

#[tokio::test]
async fn another_process_has_the_overrides_of_each_state() {
    let (files, mut persons) = (Arc::new(InMemory::new()), persons());
    let (server, worker) = (bases(&files, 1 << 20), bases(&files, 0));
    persons.merge(0..3000);
    let first = Arc::new(persons.identities.overrides());
    let changed = server.changed(PROJECT, &first).await.unwrap().unwrap();
    assert!(changed.survivors.is_empty() && stored(&first).len() > 2000);
    let base = changed.base.clone();
    assert_eq!(sent(&worker, changed).await, stored(&first));
    // Merges, and a split, after which many are not replaced any more.
    persons.merge(3000..3100);
    let person = persons.identities.view().person_of(PROJECT, "user 3").unwrap().unwrap().uuid;
    persons.apply(vec![op("", OpKind::Split { person, keep: Keep::Own })]);
    let second = Arc::new(persons.identities.overrides());
    assert!(stored(&second).len() < stored(&first).len());
    for overrides in [&second, &first, &second] {
        let changed = server.changed(PROJECT, overrides).await.unwrap().unwrap();
        assert_eq!(changed.base, base, "few have changed");
        assert_eq!(sent(&worker, changed).await, stored(overrides));
    }
    assert_eq!(names(&files).await.len(), 1);
    // After a restart what has changed is not known.
    let restarted = bases(&files, 1 << 20);
    let changed = restarted.changed(PROJECT, &second).await.unwrap().unwrap();
    assert!(changed.base != base && changed.survivors.is_empty());
    assert_eq!(names(&files).await, [changed.base.path()], "of an earlier process");
    assert_eq!(sent(&worker, changed).await, stored(&second));
}

#[tokio::test]
async fn a_base_that_is_missing_or_damaged_is_not_used() {
    let (files, mut persons) = (Arc::new(InMemory::new()), persons());
    persons.merge(0..2000);
    let overrides = Arc::new(persons.identities.overrides());
    let poor = bases(&files, 1 << 10);
    assert!(poor.changed(PROJECT, &overrides).await.unwrap().is_none(), "without memory");
    assert_eq!(names(&files).await, []);
    let (memory, clock) = (GreedyMemoryPool::new(1 << 20), Clock::test(UnixMicros(0)));
    let memory: Arc<dyn MemoryPool> = Arc::new(memory);
    let server = Bases::new(Arc::clone(&files) as Arc<dyn ObjectStore>, &memory, clock.clone());
    let name = server.changed(PROJECT, &overrides).await.unwrap().unwrap().base;
    assert_eq!(memory.reserved(), 0);
    let content = files.get(&name.path()).await.unwrap().bytes().await.unwrap();
    let mut flipped = content.to_vec();
    flipped[1000] ^= 1;
    for damaged in [flipped, content[..content.len() - 32].to_vec(), Vec::new()] {
        files.put(&name.path(), damaged.into()).await.unwrap();
        let error = bases(&files, 0).base(&name).await.unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
    }
    files.delete(&name.path()).await.unwrap();
    assert!(bases(&files, 0).base(&name).await.is_err());
    // Whoever has written it notices that it is gone.
    assert_eq!(server.changed(PROJECT, &overrides).await.unwrap().unwrap().base, name);
    assert_eq!(names(&files).await, [], "it was there a moment ago");
    clock.advance(SEEN);
    assert_eq!(server.changed(PROJECT, &overrides).await.unwrap().unwrap().base, name);
    assert_eq!(*bases(&files, 0).base(&name).await.unwrap(), stored(&overrides));
}
