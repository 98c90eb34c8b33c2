//! The path from bytes to rows, with the power cut at every operation of the disk: what was
//! acknowledged is stored once, whatever else happened, and a client without a response may send
//! again. The log thread's commits, the publisher, the memtables, flushes and the log's truncation
//! are the real ones; the replay is driven here, because the real one needs the metadata's database
//! (it is in `replayed`).

mod replayed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use bytes::Bytes;
use clap::Parser;
use futures::TryStreamExt;
use object_store::ObjectStore;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use url::Url;
use uuid::Uuid;

use super::{Commit, DeletedProjects, LogFailed, LogThread, REFUSALS_PAUSE, Stock};
use crate::budget::Budget;
use crate::dedup::Window;
use crate::disk_room::DiskRoom;
use crate::health::Health;
use crate::log_record::LogRecord;
use crate::prepare::Preparer;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::projector::Projection;
use crate::publish::{LogExtent, Missing, Mode, Publisher};
use crate::recent::recent_keys;
use crate::request::{Protocol, Received, Rules};
use weir_base::clock::{Clock, UnixMicros};
use weir_base::config::storage::StorageConfig;
use weir_base::telemetry::metrics::Metrics;
use weir_base::telemetry::repeats::Repeats;
use weir_disk::Disk;
use weir_event::geoip::Places;
use weir_event::id::{EventKey, ProjectId};
use weir_event::schema::{
    PARTITION_COLUMN, SORT_COLUMNS, STATISTICS_COLUMNS, UNIQUE_COLUMNS, WIDE_COLUMNS, column,
    events_schema,
};
use weir_event::time::{Month, partition_of};
use weir_sim::disk::{SimDisk, Survival};
use weir_storage::delta::{DeltaTable, TableSpec};
use weir_storage::durable::DurableStore;
use weir_storage::parquet::{Layout, read_columns};
use weir_storage::store::{Partitioning, Store};
use weir_storage::wal::reader::Item;
use weir_storage::wal::writer::Wal;
use weir_storage::wal::{Elsewhere, Sequence, WalSettings};
use weir_wire::encoding::hints::Hints;

/// 2026-11-21T08:00:00Z.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);
const TABLE: &str = "/data/events";
const PROJECT: ProjectId = ProjectId(7);
/// Requests of one run, and events of each.
const REQUESTS: u32 = 8;
const EVENTS: u32 = 3;

type Answer = oneshot::Receiver<Result<Sequence, LogFailed>>;

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    storage: StorageConfig,
}

/// Request `number`, as its client sends it every time. Its events are in two months.
fn body(number: u32) -> Bytes {
    let event = |index: u32| {
        let id = Uuid::from_u128(u128::from(number * EVENTS + index + 1));
        let month = if index == 0 { 10 } else { 11 };
        format!(
            r#"{{"event":"e{number}","distinct_id":"u","uuid":"{id}","timestamp":"2026-{month}-05T00:00:00Z"}}"#
        )
    };
    let events: Vec<String> = (0..EVENTS).map(event).collect();
    format!(r#"{{"api_key":"k","batch":[{}]}}"#, events.join(",")).into()
}

fn prepared(body: &Bytes, received: &Received) -> Prepared {
    let facts = |_: &str| {
        Some(ProjectFacts {
            id: PROJECT,
            group_types: Vec::new(),
            anonymize_ips: false,
            places: Places::Unknown,
        })
    };
    Preparer::default().prepare(body.to_vec(), received, &facts).expect("a valid body")
}

/// A node that is running.
struct Node {
    log: LogThread,
    store: Store,
    /// Kept so that the publisher's channel stays open.
    _derivations: mpsc::Receiver<Projection>,
}

/// Starts a node: table, log, replay. `None` if the power is cut meanwhile.
fn start(runtime: &Runtime, disk: &SimDisk) -> Option<Node> {
    let clock = Clock::test(NOW);
    let store = runtime.block_on(open_store(disk, &clock))?;
    let settings = WalSettings { dir: "/data/wal".into(), segment_max_bytes: 1500 };
    let flushed = store.flushed_through();
    let (wal, recovered) =
        Wal::open(Arc::new(disk.clone()), settings, Elsewhere::up_to(flushed), 7).ok()?;
    assert!(recovered.last >= flushed, "the log goes on behind the files");
    let (projections, inbox) = mpsc::channel(1000);
    let mut window = Window::new(1000);
    for (project, key) in runtime.block_on(recent_keys(&store, 1000)) {
        window.insert(project, key);
    }
    let metrics = Arc::new(Metrics::new());
    let last = wal.last_durable();
    let health = Arc::new(Health::default());
    let (publisher, _) = Publisher::new(
        store.clone(),
        window,
        LogExtent { published: flushed, durable: last },
        projections,
        Arc::clone(&metrics),
        Arc::clone(&health),
    );
    replay(&wal, &publisher, flushed);
    publisher.lock().mode = Mode::Live;
    let (_, inbox_of_log) = mpsc::channel(1);
    let room = DiskRoom {
        disk: Arc::new(disk.clone()),
        directory: "/data".into(),
        free_min_bytes: 0,
        health: Arc::clone(&health),
    };
    let refusals = Repeats::new(REFUSALS_PAUSE);
    let log = LogThread {
        writer: Box::new(wal),
        inbox: inbox_of_log,
        publisher,
        health,
        room,
        metrics,
        clock,
        linger: std::time::Duration::ZERO,
        refusals,
        deleted: DeletedProjects(Arc::new(|_| false)),
    };
    Some(Node { log, store, _derivations: inbox })
}

async fn open_store(disk: &SimDisk, clock: &Clock) -> Option<Store> {
    let objects = DurableStore::new(Arc::new(disk.clone()), Path::new(TABLE));
    objects.recover().ok()?;
    let objects: Arc<dyn ObjectStore> = Arc::new(objects);
    let location = Url::from_directory_path(TABLE).expect("absolute");
    let schema = events_schema();
    let spec = TableSpec { name: "events", schema, partition_column: Some(PARTITION_COLUMN) };
    let table = DeltaTable::open_or_create(objects, location, spec, clock.clone()).await.ok()?;
    let layout = Layout {
        sort: SORT_COLUMNS.to_vec(),
        bloom: Vec::new(),
        statistics: STATISTICS_COLUMNS.to_vec(),
        unique: UNIQUE_COLUMNS.to_vec(),
        wide: WIDE_COLUMNS.to_vec(),
    };
    let partitioning = Partitioning {
        time_column: column::TIMESTAMP,
        key: |time| partition_of(time).0,
        name: |month| Month(month).to_string(),
    };
    let settings = Settings::parse_from(["weir"]).storage;
    Some(Store::new(table, layout, partitioning, "node/1".to_owned(), settings, clock.clone()))
}

/// As the replay thread, without metadata: publishes everything durable after `flushed`.
fn replay(wal: &Wal, publisher: &Arc<Mutex<Publisher>>, flushed: Sequence) {
    let mut reader = wal.files().reader(flushed);
    while let Ok(Some(item)) = reader.next(wal.last_durable()) {
        let Item::Record { sequence, payload } = item else { continue };
        let envelope = LogRecord::decode(payload).expect("a record of ours");
        let prepared = prepared(&envelope.body, &envelope.received);
        let missing = Missing { rows: true, persons: true };
        publisher.lock().publish(sequence, prepared, missing);
    }
}

impl Node {
    /// Sends a group of requests; returns those that were acknowledged.
    fn send(&mut self, numbers: Range<u32>) -> BTreeSet<u32> {
        self.send_changed(numbers, |_, _| ())
    }

    /// As `send`, with prepared bodies that `change` has changed.
    fn send_changed(
        &mut self,
        numbers: Range<u32>,
        change: impl Fn(u32, &mut Commit),
    ) -> BTreeSet<u32> {
        let budget = Budget::new(100 << 10);
        let mut answers = Vec::new();
        let commit = |number: u32| {
            let seed = u64::from(number);
            let received = Received {
                at: NOW,
                client_ip: None,
                protocol: Protocol::default(),
                seed,
                skew_ignored_millis: 0,
                event_max_bytes: 1 << 20,
                rules: Rules::default(),
            };
            let body = body(number);
            let prepared = prepared(&body, &received);
            let envelope = LogRecord {
                project: PROJECT,
                received,
                anonymize_ips: false,
                places: Vec::new(),
                hints: Hints::default(),
                body,
            };
            let (head, body) = envelope.encode();
            let permit = budget.admit(1).expect("room");
            let (reply, answer) = oneshot::channel();
            answers.push((number, answer));
            let mut commit = Commit { head, body, prepared, permit, reply };
            change(number, &mut commit);
            commit
        };
        let group = numbers.map(commit).collect();
        self.log.commit(group);
        assert_eq!(budget.free_units(), 100, "every share came back");
        let told = |(number, mut answer): (u32, Answer)| {
            answer.try_recv().expect("every client is told").ok().map(|_| number)
        };
        answers.into_iter().filter_map(told).collect()
    }

    /// Flushes memory to files and truncates the log.
    fn flush(&self, runtime: &Runtime) -> bool {
        self.store.freeze();
        match runtime.block_on(self.store.flush(Sequence(u64::MAX), &|_| None)) {
            Ok(Some(flushed)) => self.log.writer.files().truncate_through(flushed.through).is_ok(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// How often each event is stored, in files and in memory.
    fn counts(&self, runtime: &Runtime) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        let mut ids = runtime.block_on(ids_in_files(&self.store)).expect("readable files");
        for batch in self.store.snapshot().batches {
            let column = batch.columns[column::UUID].clone().expect("every row has an id");
            ids.extend(column.as_string_view().iter().flatten().map(str::to_owned));
        }
        for id in ids {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }
}

async fn ids_in_files(store: &Store) -> Option<Vec<String>> {
    let mut ids = Vec::new();
    for file in &store.table().current().files {
        let batches = read_columns(store.table().store(), file, &["uuid"]).await.ok()?;
        let batches: Vec<_> = batches.try_collect().await.ok()?;
        for batch in batches {
            ids.extend(batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
        }
    }
    Some(ids)
}

/// One run: requests alone and in groups, flushes with and without rows left in memory, and a restart.
/// Returns what was acknowledged, and whether the run reached its end.
fn live(runtime: &Runtime, disk: &SimDisk) -> (BTreeSet<u32>, bool) {
    let mut acknowledged = BTreeSet::new();
    let Some(mut node) = start(runtime, disk) else { return (acknowledged, false) };
    acknowledged.extend(node.send(0..1));
    acknowledged.extend(node.send(1..4));
    if !node.flush(runtime) {
        return (acknowledged, false);
    }
    // A retry of requests that are in files, followed by a new one.
    acknowledged.extend(node.send(3..6));
    drop(node);
    let Some(mut node) = start(runtime, disk) else { return (acknowledged, false) };
    acknowledged.extend(node.send(6..REQUESTS));
    let finished = node.flush(runtime);
    (acknowledged, finished)
}

/// The ids of the events of a request.
fn ids_of(request: u32) -> impl Iterator<Item = String> {
    (0..EVENTS)
        .map(move |index| Uuid::from_u128(u128::from(request * EVENTS + index + 1)).to_string())
}

/// Goal: a bug may keep an acknowledged record out of the tables, but never out of the log: no flush and
/// no truncation passes it, and a program without the bug has all of it and of the later records.
#[test]
fn a_record_that_cannot_be_published_stays_in_the_log() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let disk = SimDisk::new();
    let mut node = start(&runtime, &disk).expect("a new disk");
    assert_eq!(node.send(0..2).len(), 2);
    let acknowledged = node.send_changed(2..5, |number, commit| {
        if number == 3 {
            // Keys of events that do not exist, twice, so that rows are dropped as duplicates.
            commit.prepared.keys.extend([EventKey::new(Uuid::max(), "", ""); 2]);
        }
    });
    assert_eq!(acknowledged.len(), 3, "they are durable");
    assert!(node.log.health.is_publication_failed());
    for request in 5..REQUESTS {
        // Requests in flight. Each is in a segment of its own.
        node.send(request..request + 1);
    }
    let counted: BTreeSet<String> = node.counts(&runtime).into_keys().collect();
    assert_eq!(counted, (0..3).flat_map(ids_of).collect());
    assert!(node.flush(&runtime));
    assert_eq!(node.store.flushed_through(), Sequence(3));
    assert!(node.flush(&runtime), "there is nothing more to flush");
    drop(node);
    let mut node = start(&runtime, &disk.power_on(Survival::Lose)).expect("starts");
    let expected: BTreeMap<String, u32> =
        (0..REQUESTS).flat_map(ids_of).map(|id| (id, 1)).collect();
    assert_eq!(node.counts(&runtime), expected);
    assert_eq!(node.send(0..REQUESTS).len(), 8);
    assert!(node.flush(&runtime));
    assert_eq!(node.counts(&runtime), expected);
}

/// Goal: a request that is too large for the log affects only its sender.
#[test]
fn a_record_that_is_too_large_does_not_stop_the_log() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut node = start(&runtime, &SimDisk::new()).expect("a new disk");
    let acknowledged = node.send_changed(0..3, |number, commit| {
        if number == 1 {
            commit.body = vec![0; 1 << 30].into();
        }
    });
    assert_eq!(acknowledged, BTreeSet::from([0, 2]));
    assert!(!node.log.health.is_log_failed());
    assert_eq!(node.send(3..4).len(), 1);
}

/// A log, and the creator of its spare.
fn stocked(disk: &SimDisk) -> (Wal, Stock) {
    let settings = WalSettings { dir: "/data/wal".into(), segment_max_bytes: 1500 };
    let opened = Wal::open(Arc::new(disk.clone()), settings, Elsewhere::up_to(Sequence(0)), 7);
    let wal = opened.expect("opens").0;
    let (files, health) = (wal.files(), Arc::new(Health::default()));
    (wal, Stock { files, segment_bytes: 3 << 20, health })
}

/// Goal: a spare is created only for small syncs, which benefit from it.
#[test]
fn the_stock_is_kept_for_small_syncs() {
    for (bytes, is_made) in [(None, false), (Some(100), true), (Some(100_000), false)] {
        let disk = SimDisk::new();
        let (mut wal, stock) = stocked(&disk);
        if let Some(bytes) = bytes {
            wal.append(&[&vec![b'x'; bytes]]).expect("appends");
            wal.sync().expect("syncs");
        }
        let mut looks = 0;
        stock.keep(&mut |_| {
            looks += 1;
            looks < 9
        });
        let spare = disk.metadata(Path::new("/data/wal/spare"));
        assert_eq!(spare.is_ok(), is_made, "syncs of {bytes:?} bytes");
    }
}

/// Goal: after a failure on a full disk the next attempt waits longer.
#[test]
fn the_keeper_of_the_stock_waits_longer_after_a_failure() {
    let disk = SimDisk::new();
    let (mut wal, stock) = stocked(&disk);
    wal.append(&[b"one"]).expect("appends");
    wal.sync().expect("syncs");
    disk.set_capacity_bytes(1 << 20);
    let mut pauses = Vec::new();
    stock.keep(&mut |pause| {
        pauses.push(pause.as_millis());
        if pauses.len() == 4 {
            disk.set_capacity_bytes(1 << 30);
        }
        pauses.len() < 9
    });
    // Three attempts fail; the fourth writes three pieces.
    assert_eq!(pauses, [1000, 60_000, 60_000, 60_000, 10, 10, 10, 1000, 1000]);
}

#[test]
fn a_log_that_failed_is_known_to_those_who_ask() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let disk = SimDisk::new();
    let mut node = start(&runtime, &disk).expect("a new disk");
    assert_eq!(node.send(0..1).len(), 1);
    assert!(!node.log.health.is_log_failed());
    disk.fail_sync_after(0);
    assert_eq!(node.send(1..2).len(), 0);
    assert!(node.log.health.is_log_failed());
}

#[test]
fn what_was_acknowledged_is_there_once_after_a_power_cut() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // The table is created beforehand: its creation has tests of its own.
    let before = SimDisk::new();
    assert!(start(&runtime, &before).is_some());
    let before = before.power_on(Survival::Keep);
    let mut partial = 0;
    for cut in 0.. {
        let disk = before.power_on(Survival::Keep);
        disk.cut_after(cut);
        let (acknowledged, finished) = live(&runtime, &disk);
        for survival in [Survival::Lose, Survival::Keep, Survival::Mixed(cut)] {
            let context = format!("cut {cut}, {survival:?}, acknowledged {acknowledged:?}");
            let disk = disk.power_on(survival);
            let mut node = start(&runtime, &disk).expect(&context);
            let counts = node.counts(&runtime);
            assert!(counts.values().all(|count| *count == 1), "{context}: {counts:?}");
            for request in 0..REQUESTS {
                let found = ids_of(request).filter(|id| counts.contains_key(id)).count();
                let whole = usize::try_from(EVENTS).expect("small");
                // All of a request or nothing of it.
                assert!(found == 0 || found == whole, "{context}: {found} of request {request}");
                assert!(
                    found == whole || !acknowledged.contains(&request),
                    "{context}: lost {request}"
                );
            }
            partial += usize::from(counts.len() < ids_of(0).count() * 8 && !counts.is_empty());
            // Clients without a response send again, and so do some that got one.
            assert_eq!(node.send(0..REQUESTS).len(), 8, "{context}");
            assert!(node.flush(&runtime), "{context}");
            let counts = node.counts(&runtime);
            assert_eq!(counts.len(), ids_of(0).count() * 8, "{context}");
            assert!(counts.values().all(|count| *count == 1), "{context}: {counts:?}");
        }
        if finished {
            assert_eq!(acknowledged.len(), 8);
            assert!(cut > 40, "a life has more operations than {cut}");
            break;
        }
    }
    assert!(partial > 20, "cuts between requests: {partial}");
}
