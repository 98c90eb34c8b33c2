//! The real replay over a log in which a record is of another program.

use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use super::NOW;
use super::ids_of;
use super::open_store;
use super::start;
use crate::clock::Clock;
use crate::config::Config;
use crate::geoip::Places;
use crate::ingest::decoding::Decoding;
use crate::ingest::dedup::Window;
use crate::ingest::health::Health;
use crate::ingest::publish::Mode;
use crate::ingest::publish::Publisher;
use crate::ingest::replay::Replay;
use crate::ingest::reread::Rereader;
use crate::metadata::Metadata;
use crate::storage::disk::sim::SimDisk;
use crate::storage::wal::Elsewhere;
use crate::storage::wal::Sequence;
use crate::storage::wal::WalSettings;
use crate::storage::wal::writer::Wal;
use crate::tasks::Shutdown;
use crate::telemetry::metrics::Metrics;

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    config: Config,
}

/// Goal: a program that is older than a record in its log, or has a bug, does not lose the record: it
/// takes nothing that would have the log cut over it.
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
    let (logged, _) = node.log.health.pace().bytes();
    drop(node);

    let clock = Clock::test(NOW);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.db");
    let metadata = runtime.block_on(Metadata::open(&path, clock.clone())).expect("opens");
    let store = runtime.block_on(open_store(&disk, &clock)).expect("opens");
    let settings = WalSettings { dir: Path::new("/data/wal").into(), segment_max_bytes: 1500 };
    let (wal, recovered) = Wal::open(Arc::new(disk), settings, Elsewhere::up_to(Sequence(0)), 7)
        .expect("the log opens");
    let (derivations, _inbox) = mpsc::channel(10);
    let (health, metrics) = (Arc::new(Health::default()), Arc::new(Metrics::new()));
    let (publisher, published) = Publisher::new(
        store.clone(),
        Window::new(1000),
        recovered.last,
        derivations,
        Arc::clone(&metrics),
        Arc::clone(&health),
    );
    let config = Settings::parse_from(["weir"]).config;
    let replay = Replay {
        reader: wal.files().reader(Sequence(0)),
        publisher: Arc::clone(&publisher),
        rereader: Rereader {
            decoding: Arc::new(Decoding::new(&config, Places::Unknown)),
            metadata,
        },
        store: store.clone(),
        flushed: Sequence(0),
        derived: Sequence(0),
        health: Arc::clone(&health),
        shutdown: Shutdown::new(),
        metrics,
    };
    replay.run();
    assert_eq!(publisher.lock().mode, Mode::Stopped);
    assert_eq!(*published.borrow(), Sequence(1));
    let (_, replayed) = health.pace().bytes();
    assert!(0 < replayed && replayed < logged, "{replayed} of {logged}");
    assert!(health.is_publication_failed() && health.is_replaying());
    let rows: usize = store.snapshot().batches.iter().map(|batch| batch.len).sum();
    assert_eq!(rows, ids_of(0).count());
    store.freeze();
    let flushed = runtime.block_on(store.flush(Sequence(u64::MAX), &|_| None));
    assert_eq!(flushed.expect("flushes").expect("rows").through, Sequence(1));
}
