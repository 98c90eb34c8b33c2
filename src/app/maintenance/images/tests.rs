//! When an image is made, and how far the log may be cut then.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::maintenance::images::{
    IdentityImages, LOG_GROWTH_MAX_BYTES, Maker, RETRY_PAUSE, SCRATCH,
};
use weir_base::clock::{Clock, UnixMicros};
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ProjectId;
use weir_identity::change::{Op, OpKind, Record};
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_storage::images::Images;

const INTERVAL: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);

/// An identity store, and what makes images of it.
struct Bench {
    directory: tempfile::TempDir,
    runtime: Runtime,
    identities: Identities,
    clock: Clock,
    metrics: Metrics,
    images: Images,
}

impl Bench {
    fn new(objects: Arc<dyn ObjectStore>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let identities =
            Identities::open(&directory.path().join("identity"), Limits::within(1 << 20)).unwrap();
        Self {
            directory,
            runtime: Runtime::new().unwrap(),
            identities,
            clock: Clock::test(UnixMicros(0)),
            metrics: Metrics::new(),
            images: Images::new(objects, ObjectPath::from("identity")),
        }
    }

    fn open(&self, applied: u64) -> IdentityImages {
        let (images, now) = (self.images.clone(), self.clock.monotonic());
        let opening = IdentityImages::open(images, self.directory.path(), INTERVAL, applied, now);
        self.runtime.block_on(opening).unwrap()
    }

    fn apply(&self, sequence: u64) {
        let kind = OpKind::Touch;
        let (distinct_id, event_id) = (format!("{sequence}"), Uuid::from_u128(1));
        let ops = vec![Op { distinct_id, event_id, timestamp: UnixMicros(1), kind }];
        self.identities.apply(&[Record { sequence, project: ProjectId(1), ops }]).unwrap();
    }

    fn maker(&self, log_bytes: u64) -> Maker<'_> {
        let Self { identities, runtime, clock, metrics, .. } = self;
        Maker { identities, runtime: runtime.handle(), clock, metrics, log_bytes }
    }

    fn run(&self, images: &IdentityImages) {
        images.run(&self.maker(0), std::future::pending());
        assert!(!self.directory.path().join(SCRATCH).exists(), "it is removed after use");
    }
}

/// Goal: without the newest image, the log still goes back to where the one before it ends.
#[test]
fn the_log_is_cut_behind_the_second_newest_image() {
    let bench = Bench::new(Arc::new(InMemory::new()));
    let left = bench.directory.path().join(SCRATCH).join("keyspaces");
    std::fs::create_dir_all(left).unwrap();
    let images = bench.open(0);
    assert!(!bench.directory.path().join(SCRATCH).exists(), "of a killed process");
    assert_eq!(images.safe_through(), 0);
    for (sequence, safe) in [(1, 0), (2, 1), (5, 2), (6, 5)] {
        bench.apply(sequence);
        assert!(images.is_behind(sequence));
        bench.run(&images);
        assert!(!images.is_behind(sequence));
        assert_eq!(images.safe_through(), safe, "after {sequence}");
        let names = bench.runtime.block_on(bench.images.list()).unwrap();
        let kept: Vec<u64> = names.iter().rev().map(|name| name.sequence).collect();
        assert!(kept.contains(&safe) || safe == 0, "{kept:?}");
        assert!(kept.len() <= 3, "{kept:?}");
    }
    assert!(bench.metrics.identity_image_uploaded.get() > 0);
    assert_eq!(bench.metrics.identity_image_failures.get(), 0);
    // The next process; an image newer than its store could not be restored, and does not count.
    for (applied, safe) in [(6, 5), (7, 5), (5, 2), (2, 0), (0, 0)] {
        assert_eq!(bench.open(applied).safe_through(), safe, "of a store at {applied}");
    }
    // The images that count are retained, whatever others there are.
    let images = bench.open(5);
    bench.apply(9);
    bench.run(&images);
    assert_eq!(images.safe_through(), 5);
    let names = bench.runtime.block_on(bench.images.list()).unwrap();
    let kept: Vec<u64> = names.iter().rev().map(|name| name.sequence).collect();
    assert_eq!(kept, [2, 5, 6, 9]);
}

#[test]
fn images_are_made_when_they_are_due() {
    let bench = Bench::new(Arc::new(InMemory::new()));
    let images = bench.open(0);
    let due = |applied, log| images.is_due(applied, log, bench.clock.monotonic());
    assert_eq!((due(0, 0), due(1, 0)), (false, false), "nothing is late yet");
    bench.clock.advance(INTERVAL);
    assert_eq!((due(0, 0), due(1, 0)), (false, true), "only what was applied is missing");
    assert_eq!(images.age(0, bench.clock.monotonic()), Duration::ZERO);
    assert_eq!(images.age(1, bench.clock.monotonic()), INTERVAL);
    bench.apply(1);
    bench.run(&images);
    bench.clock.advance(MINUTE);
    assert_eq!(images.age(2, bench.clock.monotonic()), MINUTE);
    assert!(!due(2, 5) && due(2, LOG_GROWTH_MAX_BYTES), "since an empty log");
    images.run(&bench.maker(LOG_GROWTH_MAX_BYTES), std::future::pending());
    assert!(!due(2, LOG_GROWTH_MAX_BYTES) && !due(2, 2 * LOG_GROWTH_MAX_BYTES - 1));
    assert!(!due(2, 7), "it was cut");
    assert!(due(2, LOG_GROWTH_MAX_BYTES + 7) && !due(1, LOG_GROWTH_MAX_BYTES + 7));
}

#[test]
fn a_failure_is_counted_and_tried_again() {
    let place = tempfile::tempdir().unwrap();
    let bucket = place.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    let bench = Bench::new(Arc::new(LocalFileSystem::new_with_prefix(&bucket).unwrap()));
    let images = bench.open(0);
    bench.apply(1);
    bench.clock.advance(INTERVAL);
    let away = |is_away: bool, bucket: &Path| {
        std::fs::remove_dir_all(bucket).or_else(|_| std::fs::remove_file(bucket)).unwrap();
        match is_away {
            true => std::fs::write(bucket, "a file").unwrap(),
            false => std::fs::create_dir(bucket).unwrap(),
        }
    };
    away(true, &bucket);
    let due = || images.is_due(1, 0, bench.clock.monotonic());
    for failures in 1..=2 {
        assert!(due());
        bench.run(&images);
        assert_eq!(bench.metrics.identity_image_failures.get(), failures);
        assert!(images.is_behind(1) && !due(), "after a pause");
        bench.clock.advance(RETRY_PAUSE);
    }
    away(false, &bucket);
    assert!(due());
    // The end of the process comes first.
    images.run(&bench.maker(0), std::future::ready(()));
    assert!(images.is_behind(1) && due());
    assert!(!bench.directory.path().join(SCRATCH).exists());
    bench.run(&images);
    assert!(!images.is_behind(1));
    assert_eq!(bench.metrics.identity_image_failures.get(), 2);
}
