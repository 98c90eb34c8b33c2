//! The real replay over a log with a record of another program, or an unreadable one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use super::{NOW, PROJECT, ids_of, open_store, start};
use crate::decoding::Decoding;
use crate::dedup::Window;
use crate::disk_room::DiskRoom;
use crate::feedback::Feedback;
use crate::health::Health;
use crate::holes::Holes;
use crate::projector::log_again::LogAgain;
use crate::projector::{Projection, Projector, Targets};
use crate::publish::{LogExtent, Mode, Publisher};
use crate::replay::Replay;
use crate::reread::Rereader;
use weir_base::clock::Clock;
use weir_base::config::Config;
use weir_base::tasks::Shutdown;
use weir_base::telemetry::metrics::{Metrics, PlaceLabels};
use weir_disk::Disk;
use weir_event::geoip::Places;
use weir_identity::IdentityError;
use weir_identity::change::Record;
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_metadata::Metadata;
use weir_sim::disk::{SimDisk, Survival};
use weir_storage::store::Store;
use weir_storage::wal::writer::Wal;
use weir_storage::wal::{Elsewhere, Sequence, WalSettings};

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    config: Config,
}

/// The state of a process at its start, with the log of the previous one.
struct Restarted {
    wal: Wal,
    store: Store,
    publisher: Arc<Mutex<Publisher>>,
    published: watch::Receiver<Sequence>,
    _derivations: mpsc::Receiver<Projection>,
    rereader: Rereader,
    holes: Holes,
    health: Arc<Health>,
    _directory: tempfile::TempDir,
}

fn restart(runtime: &Runtime, disk: &SimDisk) -> Restarted {
    let clock = Clock::test(NOW);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.db");
    let metadata = runtime.block_on(Metadata::open(&path, clock.clone())).expect("opens");
    let limits = Limits::within(1 << 20);
    let identities = Identities::open(&directory.path().join("identity"), limits).expect("opens");
    let store = runtime.block_on(open_store(disk, &clock)).expect("opens");
    let settings = WalSettings { dir: Path::new("/data/wal").into(), segment_max_bytes: 1500 };
    let disk = Arc::new(disk.clone());
    let (wal, recovered) =
        Wal::open(disk, settings, Elsewhere::up_to(Sequence(0)), 7).expect("the log opens");
    let (projections, inbox) = mpsc::channel(10);
    let (health, metrics) = (Arc::new(Health::default()), Arc::new(Metrics::new()));
    let (publisher, published) = Publisher::new(
        store.clone(),
        Window::new(1000),
        LogExtent { published: Sequence(0), durable: recovered.last },
        projections,
        Arc::clone(&metrics),
        Arc::clone(&health),
    );
    let config = Settings::parse_from(["weir"]).config;
    let decoding = Arc::new(Decoding::new(&config, Places::Unknown));
    Restarted {
        wal,
        store,
        publisher,
        published: published.sequence,
        _derivations: inbox,
        rereader: Rereader { decoding, metadata },
        holes: Holes { identities, metrics },
        health,
        _directory: directory,
    }
}

impl Restarted {
    /// The replay, with persons up to the record `derived` in the identity store.
    fn replay(&self, derived: u64) -> Replay {
        Replay {
            reader: Box::new(self.wal.files().reader(Sequence(0))),
            publisher: Arc::clone(&self.publisher),
            rereader: self.rereader.clone(),
            store: self.store.clone(),
            flushed: Sequence(0),
            derived: Sequence(derived),
            health: Arc::clone(&self.health),
            shutdown: Shutdown::new(),
            holes: self.holes.clone(),
            tail: None,
        }
    }

    /// Number of damaged ranges that were counted.
    fn counted(&self) -> u64 {
        self.holes.metrics.corruptions.get_or_create(&PlaceLabels { place: "wal" }).get()
    }

    fn is_incomplete(&self) -> bool {
        let is_noted = self.holes.identities.is_incomplete().expect("reads");
        assert_eq!(self.holes.metrics.identity_incomplete.get() == 1, is_noted);
        is_noted
    }
}

/// A disk with a log of `records` records, numbered from 1, of which `damaged` is damaged.
fn damaged(runtime: &Runtime, records: u32, damaged: u32) -> SimDisk {
    let disk = SimDisk::new();
    let mut node = start(runtime, &disk).expect("a new disk");
    for number in 1..=records {
        let before = segments(&disk);
        assert_eq!(node.send(number..number + 1).len(), 1);
        if number != damaged {
            continue;
        }
        let (path, after) = segments(&disk)
            .into_iter()
            .find(|(path, bytes)| before.get(path) != Some(bytes))
            .expect("it was written");
        let none = Vec::new();
        let before = before.get(&path).unwrap_or(&none);
        let is_new = |at: &usize| after[*at] != before.get(*at).copied().unwrap_or(0);
        // In the middle of the new bytes: of its payload.
        let new: Vec<usize> = (0..after.len()).filter(is_new).collect();
        let at = new[new.len() / 2];
        let file = disk.open(&path).expect("a segment");
        let offset = u64::try_from(at).expect("small");
        file.write_all_at(&[after[at] ^ 0x55], offset).expect("writes");
        file.sync_data().expect("syncs");
    }
    disk
}

/// What the files of the log hold.
fn segments(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let listed = disk.list(Path::new("/data/wal")).unwrap_or_default();
    let files = listed.into_iter().filter(|entry| !entry.is_dir);
    let read = files.map(|entry| {
        let file = disk.open(&entry.path).expect("a file");
        let mut bytes = vec![0; usize::try_from(entry.len_bytes).expect("small")];
        file.read_at(&mut bytes, 0).expect("reads");
        (entry.path, bytes)
    });
    read.collect()
}

/// Goal: if the log lost a record that persons lack, they are marked as incomplete.
#[test]
fn a_hole_that_persons_have_not_seen_is_noted() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let disk = damaged(&runtime, 3, 2);
    for (derived, is_incomplete) in [(0, true), (1, true), (2, false)] {
        let restarted = restart(&runtime, &disk.power_on(Survival::Keep));
        restarted.replay(derived).run();
        assert_eq!(*restarted.published.borrow(), Sequence(3), "what is behind it is replayed");
        assert_eq!(restarted.counted(), 1);
        assert_eq!(restarted.is_incomplete(), is_incomplete, "with persons up to {derived}");
    }
}

/// Goal: the same when the log is read again because the identity store has failed. No query waits for
/// a record that will not come.
#[test]
fn a_hole_does_not_keep_persons_from_following() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    for hole in [2, 3] {
        let disk = damaged(&runtime, 3, hole);
        let restarted = restart(&runtime, &disk);
        let Restarted { wal, rereader, holes, health, .. } = &restarted;
        let room = DiskRoom {
            disk: Arc::new(disk.clone()),
            directory: "/data".into(),
            free_min_bytes: 0,
            health: Arc::clone(health),
        };
        let again = LogAgain::new(Arc::new(wal.files()), rereader, holes, &room, &Shutdown::new());
        let (_derivations, inbox) = mpsc::channel(1);
        let projector = Projector::new(
            inbox,
            again,
            Targets {
                identities: holes.identities.clone(),
                metadata: rereader.metadata.clone(),
                feedback: Feedback::new(Arc::clone(&holes.metrics)),
                following: None,
            },
            (runtime.handle().clone(), Clock::test(NOW), Arc::clone(health)),
        );
        let last = Record { sequence: 3, project: PROJECT, ops: Vec::new() };
        projector.recover(&IdentityError::Reopening, &last);
        assert!(!health.is_identity_failed(), "hole {hole}");
        assert_eq!(holes.identities.applied_sequence(), 3, "hole {hole}");
        assert_eq!((restarted.counted(), restarted.is_incomplete()), (1, true), "hole {hole}");
    }
}

/// Goal: a program that is older than a record in its log, or has a bug, does not lose the record: it
/// accepts nothing that would truncate the log over it.
#[test]
fn a_record_of_a_newer_program_stays_in_the_log() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let disk = SimDisk::new();
    let mut node = start(&runtime, &disk).expect("a new disk");
    node.log.publisher.lock().mode = Mode::CatchingUp;
    let sent = node.send_changed(0..3, |number, commit| {
        if number == 1 {
            commit.head = vec![200, 1];
        }
    });
    assert_eq!(sent.len(), 3);
    // Answers that are kept from before the acknowledgement lack the record.
    assert_eq!(node.log.publisher.lock().latest.of(PROJECT.0), Sequence(3));
    let (logged, _) = node.log.health.replay_throttle().bytes();
    drop(node);

    let restarted = restart(&runtime, &disk);
    let Restarted { publisher, published, health, store, .. } = &restarted;
    restarted.replay(0).run();
    assert_eq!(publisher.lock().mode, Mode::Stopped);
    assert_eq!(*published.borrow(), Sequence(1));
    let (_, replayed) = health.replay_throttle().bytes();
    assert!(0 < replayed && replayed < logged, "{replayed} of {logged}");
    assert!(health.is_publication_failed() && health.is_replaying());
    let rows: usize = store.snapshot().batches.iter().map(|batch| batch.len).sum();
    assert_eq!(rows, ids_of(0).count());
    store.freeze();
    let flushed = runtime.block_on(store.flush(Sequence(u64::MAX), &|_| None));
    assert_eq!(flushed.expect("flushes").expect("rows").through, Sequence(1));
}
