//! Tests of the simulated disk: it loses unsynced writes, and nothing else.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::disk::{SimDisk, Survival};
use weir_disk::{Disk, DiskFile};

fn contents(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path)).ok()?;
    let mut buffer = vec![0; usize::try_from(file.len_bytes().ok()?).ok()?];
    file.read_at(&mut buffer, 0).ok()?;
    Some(buffer)
}

fn create(disk: &SimDisk, path: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.create_new(Path::new(path)).expect("create");
    file.write_all_at(bytes, 0).expect("write");
    file
}

/// All states of `path` over many power cuts with [`Survival::Mixed`].
fn mixed(disk: &SimDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..200).map(|seed| contents(&disk.power_on(Survival::Mixed(seed)), path)).collect()
}

#[test]
fn contents_survive_only_if_synced() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", b"one");
    disk.sync_dir(Path::new("/")).expect("sync dir");
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/a"), Some(Vec::new()));
    assert_eq!(contents(&disk.power_on(Survival::Keep), "/a"), Some(b"one".to_vec()));
    file.sync_data().expect("sync");
    file.write_all_at(b"two", 1).expect("write");
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/a"), Some(b"one".to_vec()));
    assert_eq!(contents(&disk.power_on(Survival::Keep), "/a"), Some(b"otwo".to_vec()));
    let expected = [b"one".as_slice(), b"otw", b"otwo", b"one\0"];
    for found in mixed(&disk, "/a").into_iter().flatten() {
        assert!(expected.contains(&found.as_slice()), "{found:?}");
    }
}

#[test]
fn names_survive_only_if_their_directory_is_synced() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d/e")).expect("dirs");
    assert_eq!(disk.operations(), 2);
    let file = create(&disk, "/d/e/a", b"x");
    file.sync_data().expect("sync");
    disk.sync_dir(Path::new("/d/e")).expect("sync dir");
    disk.sync_dir(Path::new("/d")).expect("sync dir");
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/d/e/a"), None, "/d is not synced");
    disk.sync_dir(Path::new("/")).expect("sync dir");
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/d/e/a"), Some(b"x".to_vec()));
    disk.remove(Path::new("/d/e/a")).expect("remove");
    assert_eq!(contents(&disk, "/d/e/a"), None);
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/d/e/a"), Some(b"x".to_vec()));
    assert_eq!(mixed(&disk, "/d/e/a"), BTreeSet::from([None, Some(b"x".to_vec())]));
    disk.sync_dir(Path::new("/d/e")).expect("sync dir");
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/d/e/a"), None);
}

#[test]
fn rename_replaces_in_one_step() {
    let disk = SimDisk::new();
    create(&disk, "/new", b"new").sync_data().expect("sync");
    create(&disk, "/old", b"old").sync_data().expect("sync");
    disk.sync_dir(Path::new("/")).expect("sync dir");
    disk.rename(Path::new("/new"), Path::new("/old")).expect("rename");
    for seed in 0..50 {
        let found = disk.power_on(Survival::Mixed(seed));
        let pair = (contents(&found, "/new").is_some(), contents(&found, "/old"));
        let before = (true, Some(b"old".to_vec()));
        let after = (false, Some(b"new".to_vec()));
        assert!(pair == before || pair == after, "{pair:?}");
    }
    let taken = disk.create_new(Path::new("/old")).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(taken, Err(io::ErrorKind::AlreadyExists));
}

#[test]
fn mixed_survival_goes_by_sector() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", &[0; 2048]);
    file.sync_data().expect("sync");
    disk.sync_dir(Path::new("/")).expect("sync dir");
    file.write_all_at(&[1; 1024], 256).expect("write");
    let found: BTreeSet<Vec<u8>> = mixed(&disk, "/a").into_iter().flatten().collect();
    assert_eq!(found.len(), 8, "three sectors, each written or not");
    for bytes in found {
        let parts = [&bytes[256..512], &bytes[512..1024], &bytes[1024..1280]];
        assert!(parts.iter().all(|part| part.iter().all(|byte| *byte == part[0])));
    }
}

#[test]
fn a_cut_write_leaves_half_and_nothing_works_after_it() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", b"abcd");
    disk.cut_after(disk.operations());
    assert!(file.write_all_at(b"efgh", 4).is_err());
    assert!(file.sync_data().is_err());
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(disk.metadata(Path::new("/a")).is_err());
    let found = disk.power_on(Survival::Keep);
    assert_eq!(contents(&found, "/a"), Some(b"abcdef".to_vec()));
    assert_eq!(found.operations(), 0);
}

#[test]
fn a_failed_sync_loses_its_writes_for_good() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", &[1; 512]);
    disk.sync_dir(Path::new("/")).expect("sync dir");
    disk.fail_sync_after(0);
    assert!(file.sync_data().is_err());
    file.write_all_at(&[2; 512], 512).expect("write");
    file.sync_data().expect("only one sync fails");
    let mut expected = vec![0; 512];
    expected.extend([2; 512]);
    assert_eq!(contents(&disk.power_on(Survival::Lose), "/a"), Some(expected));
}

#[test]
fn a_full_disk_refuses_growth() {
    let disk = SimDisk::new();
    disk.set_capacity_bytes(10);
    let file = create(&disk, "/a", b"12345678");
    assert_eq!(disk.free_bytes(Path::new("/")).expect("free"), 2);
    let refused = file.allocate(11).map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::StorageFull));
    let refused = file.write_all_at(b"abcdef", 6).map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::StorageFull));
    assert_eq!(contents(&disk, "/a").as_deref(), Some(&b"123456abcd"[..]), "what fits is there");
    disk.remove(Path::new("/a")).expect("remove");
    assert_eq!(disk.free_bytes(Path::new("/")).expect("free"), 10);
}
