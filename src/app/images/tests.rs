//! The identity store at start, by what is on the disk, what is in the object store, and where a former process ended.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use uuid::Uuid;

use super::{FORMER, IDENTITY, RESTORING, Restored, follow, restore_identities};
use crate::error::OpenError;
use weir_base::clock::{Clock, UnixMicros};
use weir_base::telemetry::metrics::Metrics;
use weir_event::id::ProjectId;
use weir_identity::change::{Op, OpKind, Record};
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_storage::images::restore::Prefetched;
use weir_storage::images::{Images, LocalFile};

fn limits() -> Limits {
    Limits::within(1 << 20)
}

/// A store that has applied the records up to `applied`, each of which has a person.
fn store(directory: &Path, applied: u64) -> Identities {
    let identities = Identities::open(directory, limits()).unwrap();
    for sequence in identities.applied_sequence() + 1..=applied {
        let (distinct_id, event_id) = (format!("{sequence}"), Uuid::from_u128(1));
        let ops = vec![Op { distinct_id, event_id, timestamp: UnixMicros(1), kind: OpKind::Touch }];
        identities.apply(&[Record { sequence, project: ProjectId(1), ops }]).unwrap();
    }
    identities
}

/// Puts images as of these records. The manifest of the last one may name another record than the image has.
async fn bucket(records: &[u64], claimed: Option<u64>) -> (Arc<dyn ObjectStore>, Images) {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let images = Images::new(Arc::clone(&objects), ObjectPath::from("identity"));
    let place = tempfile::tempdir().unwrap();
    for record in records {
        let identities = store(&place.path().join("store"), *record);
        let scratch = place.path().join(format!("image {record}"));
        let image = identities.image(&scratch).unwrap();
        let files = image.files.into_iter().map(|file| LocalFile {
            path: file.path,
            bytes: file.bytes,
            is_immutable: file.is_immutable,
        });
        let files: Vec<_> = files.collect();
        let sequence = claimed.filter(|_| Some(record) == records.last()).unwrap_or(image.applied);
        images.put(&scratch, &files, sequence).await.unwrap();
    }
    (objects, images)
}

fn applied(data_dir: &TempDir) -> u64 {
    let identities = Identities::open(&data_dir.path().join(IDENTITY), limits()).unwrap();
    let applied = identities.applied_sequence();
    let persons = identities.view().person_count(ProjectId(1)).unwrap();
    assert_eq!(persons, applied, "one of each record");
    applied
}

fn names(data_dir: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_newer_of_disk_and_images_counts() {
    // The record of the store on the disk, those of images, and the result.
    for (local, images, expected) in [
        (None, &[][..], None),
        (Some(3), &[], None),
        (None, &[2, 4], Some(4)),
        (Some(1), &[2, 4], Some(4)),
        (Some(3), &[2, 4], Some(4)),
        (Some(4), &[2, 4], None),
        (Some(6), &[2, 4], None),
    ] {
        let data_dir = tempfile::tempdir().unwrap();
        if let Some(local) = local {
            store(&data_dir.path().join(IDENTITY), local);
        }
        let before = names(&data_dir);
        let (_, images) = bucket(images, None).await;
        let restored = restore_identities(&images, data_dir.path(), limits(), None).await.unwrap();
        let is_of_image = expected.is_some();
        let after = expected.or(local).unwrap_or(0);
        assert_eq!(restored, Restored { applied: after, is_of_image, damaged: 0 }, "{local:?}");
        let is_there = local.is_some() || is_of_image;
        let expected = if is_there { vec![IDENTITY.to_owned()] } else { before };
        assert_eq!(names(&data_dir), expected);
        if is_there {
            assert_eq!(applied(&data_dir), after);
        }
    }
}

#[tokio::test]
async fn a_damaged_store_is_replaced() {
    let data_dir = tempfile::tempdir().unwrap();
    store(&data_dir.path().join(IDENTITY), 9);
    std::fs::write(data_dir.path().join(IDENTITY).join("version"), "no version").unwrap();
    let (_, images) = bucket(&[2, 4], None).await;
    let restored = restore_identities(&images, data_dir.path(), limits(), None).await.unwrap();
    assert_eq!(restored, Restored { applied: 4, is_of_image: true, damaged: 0 });
    assert_eq!(applied(&data_dir), 4);
}

/// Goal: whatever is wrong with an image, the one before it is restored; and if there is none, the start fails with an
/// error, unless the store on the disk is as new.
#[tokio::test]
async fn damaged_images_are_passed_over() {
    #[derive(Clone, Copy, Debug)]
    enum Damage {
        Manifest,
        LostJournals,
        OtherRecord,
        NoDatabase,
    }
    for damage in [Damage::Manifest, Damage::LostJournals, Damage::OtherRecord, Damage::NoDatabase]
    {
        for (records, local, expected) in [
            (&[2, 4][..], None, Some(2)),
            (&[4], None, None),
            (&[4], Some(1), None),
            (&[4], Some(9), Some(9)),
        ] {
            let case = format!("{damage:?}, {records:?}, {local:?}");
            let claimed = matches!(damage, Damage::OtherRecord).then_some(5);
            let (objects, images) = bucket(records, claimed).await;
            let newest = images.list().await.unwrap()[0].clone();
            let named = images.manifest(&newest).await.unwrap().files;
            let manifest = format!("identity/{newest}.json");
            match damage {
                Damage::Manifest => {
                    objects.put(&ObjectPath::from(manifest), "[]".into()).await.unwrap();
                }
                Damage::LostJournals => {
                    let journal = named.iter().find(|file| file.path.ends_with(".jnl")).unwrap();
                    let path = format!("identity/files/{}", journal.sha256);
                    objects.delete(&ObjectPath::from(path)).await.unwrap();
                }
                Damage::OtherRecord => {}
                Damage::NoDatabase => {
                    let text = objects.get(&ObjectPath::from(manifest.clone())).await.unwrap();
                    let text = String::from_utf8(text.bytes().await.unwrap().to_vec()).unwrap();
                    let text = text.replace("\"version\"", "\"other\"");
                    objects.put(&ObjectPath::from(manifest), text.into()).await.unwrap();
                }
            }
            let data_dir = tempfile::tempdir().unwrap();
            if let Some(local) = local {
                store(&data_dir.path().join(IDENTITY), local);
            }
            let restored = restore_identities(&images, data_dir.path(), limits(), None).await;
            match (restored, expected) {
                (Ok(restored), Some(expected)) => {
                    let is_of_image = local.is_none();
                    let damaged = u64::from(is_of_image);
                    assert_eq!(
                        restored,
                        Restored { applied: expected, is_of_image, damaged },
                        "{case}"
                    );
                    assert_eq!(applied(&data_dir), expected, "{case}");
                }
                (Err(error @ OpenError::Incomplete { .. }), None) => {
                    let text = error.to_string();
                    assert!(
                        text.contains(&newest.to_string()) && text.contains("backup"),
                        "{text}"
                    );
                    if let Some(local) = local {
                        assert_eq!(applied(&data_dir), local, "{case}: it is as it was");
                    }
                }
                (other, _) => panic!("{case}: {other:?}"),
            }
        }
    }
}

/// Goal: a process that ends at any step leaves what the next one needs.
#[tokio::test]
async fn an_interrupted_restore_is_begun_again() {
    let (_, images) = bucket(&[2, 4], None).await;
    // Stores under their names with their last records, of which the last store may be incomplete; the record after the
    // next start without images, and with images.
    type Case = (&'static [(&'static str, u64)], bool, u64, u64);
    let cases: [Case; 5] = [
        (&[(IDENTITY, 3), (RESTORING, 4)], true, 3, 4),
        (&[(IDENTITY, 3), (RESTORING, 4)], false, 3, 4),
        (&[(FORMER, 3), (RESTORING, 4)], false, 3, 4),
        (&[(IDENTITY, 6), (FORMER, 3)], false, 6, 6),
        (&[(IDENTITY, 6), (FORMER, 3)], true, 6, 6),
    ];
    for (stores, is_cut, without, with) in cases {
        for (has_images, expected) in [(false, without), (true, with)] {
            let data_dir = tempfile::tempdir().unwrap();
            for (name, record) in stores {
                store(&data_dir.path().join(name), *record);
            }
            if is_cut && let Some((name, _)) = stores.last() {
                std::fs::remove_dir_all(data_dir.path().join(name).join("keyspaces/1")).unwrap();
            }
            let (_, none) = bucket(&[], None).await;
            let images = if has_images { &images } else { &none };
            let restored =
                restore_identities(images, data_dir.path(), limits(), None).await.unwrap();
            assert_eq!(restored.applied, expected, "{stores:?}");
            assert_eq!(names(&data_dir), [IDENTITY], "{stores:?}");
            assert_eq!(applied(&data_dir), expected, "{stores:?}");
        }
    }
}

#[tokio::test]
async fn a_cache_spares_the_object_store() {
    let (objects, images) = bucket(&[2, 4], None).await;
    let data_dir = tempfile::tempdir().unwrap();
    let cache = data_dir.path().join("cache");
    images.prefetch(&cache).await.unwrap();
    let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
    for object in listed.iter().filter(|object| !object.location.as_ref().ends_with(".json")) {
        objects.delete(&object.location).await.unwrap();
    }
    let restored = restore_identities(&images, data_dir.path(), limits(), Some(&cache)).await;
    assert_eq!(restored.unwrap(), Restored { applied: 4, is_of_image: true, damaged: 0 });
    assert_eq!(applied(&data_dir), 4);
}

/// Goal: a standby whose request hangs, or whose first download takes long, reports that it lags.
#[tokio::test]
async fn an_attempt_that_takes_long_is_told() {
    // Attempts that bring an image before one hangs, and the age of what is there then.
    for (whole, age) in [(0, 0), (1, 60), (3, 60)] {
        let (clock, metrics) = (Clock::test(UnixMicros(0)), Metrics::new());
        let attempts = Cell::new(0);
        let attempt = async || {
            attempts.set(attempts.get() + 1);
            match attempts.get() <= whole {
                true => Ok(Prefetched { put_at: Some(UnixMicros(0)), ..Prefetched::default() }),
                false => std::future::pending().await,
            }
        };
        let tick = Duration::from_millis(1);
        let watching = async {
            while attempts.get() <= whole {
                tokio::time::sleep(tick).await;
            }
            assert_eq!((metrics.standby_lag.get(), metrics.standby_image_age.get()), (0, 0));
            clock.advance(Duration::from_secs(60));
            while metrics.standby_lag.get() == 0 {
                tokio::time::sleep(tick).await;
            }
        };
        tokio::select! {
            () = follow(attempt, tick, &clock, &metrics) => panic!("it goes on"),
            told = tokio::time::timeout(Duration::from_secs(30), watching) => {
                told.expect("it says that it lags");
            }
        }
        assert_eq!((metrics.standby_lag.get(), metrics.standby_image_age.get()), (60, age));
    }
}
