//! Durability tests of the log: synced records are delivered once and in order after any failure of power,
//! disk or bytes; unsynced records are absent or complete. `tests/crash.rs` cuts the power at every
//! operation, `tests/damage.rs` flips every bit.

mod crash;
mod damage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wal::files::WalFiles;
use crate::wal::frame::FRAMES_START;
use crate::wal::reader::Item;
use crate::wal::writer::Wal;
use crate::wal::{
    Corruption, Damage, Elsewhere, Recovered, Sequence, WalError, WalSettings, segment,
};
use weir_base::error::Kind;
use weir_disk::{Disk, DiskEntry, OsDisk};
use weir_sim::disk::{SimDisk, Survival};

const DIR: &str = "/data/wal";

/// Space for a few small frames, so that a short history has many segments.
const SEGMENT_BYTES: u64 = FRAMES_START + 400;

fn settings(dir: &Path) -> WalSettings {
    WalSettings { dir: dir.to_path_buf(), segment_max_bytes: SEGMENT_BYTES }
}

fn open(disk: &SimDisk, after: u64) -> (Wal, Recovered) {
    let settings = settings(Path::new(DIR));
    Wal::open(Arc::new(disk.clone()), settings, Elsewhere::up_to(Sequence(after)), 7).expect("open")
}

fn path(first: u64) -> PathBuf {
    segment::path_of(Path::new(DIR), Sequence(first))
}

fn payload(text: &str, len: usize) -> Vec<u8> {
    text.bytes().cycle().take(len).collect()
}

fn record(sequence: u64, payload: Vec<u8>) -> Item {
    Item::Record { sequence: Sequence(sequence), payload }
}

fn read(files: &WalFiles, after: u64, until: Sequence) -> Vec<Item> {
    let mut reader = files.reader(Sequence(after));
    let mut items = Vec::new();
    while let Some(item) = reader.next(until).expect("read") {
        items.push(item);
    }
    items
}

/// Appends and syncs one record per text, and returns what a reader must deliver for them.
fn append_all(wal: &mut Wal, texts: &[&str]) -> Vec<Item> {
    let mut items = Vec::new();
    for text in texts {
        let sequence = wal.append(&[text.as_bytes()]).expect("append");
        items.push(Item::Record { sequence, payload: text.as_bytes().to_vec() });
    }
    wal.sync().expect("sync");
    items
}

fn damages(items: &[Item]) -> Vec<Damage> {
    let damage = |item: &Item| match item {
        Item::Corrupt(Corruption { damage, .. }) => Some(*damage),
        Item::Record { .. } => None,
    };
    items.iter().filter_map(damage).collect()
}

fn lost(first: u64, last: u64) -> Damage {
    Damage::Lost { first: Sequence(first), last: Sequence(last) }
}

/// Names in the log's directory, in order.
fn names(disk: &SimDisk) -> Vec<String> {
    let entries = disk.list(Path::new(DIR)).expect("list");
    let name = |entry: &DiskEntry| entry.path.file_name()?.to_str().map(str::to_owned);
    let mut names: Vec<String> = entries.iter().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn the_next_segment_is_made_of_the_spare() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let files = wal.files();
    let keep = |len, goes_on| files.keep_spare(len, &mut || goes_on).expect("a spare");
    keep(SEGMENT_BYTES, false);
    assert_eq!(names(&disk), [""; 0], "one that is not whole is none");
    keep(SEGMENT_BYTES + 1, true);
    assert_eq!(names(&disk), ["spare"]);
    keep(SEGMENT_BYTES, true);
    keep(SEGMENT_BYTES, true);
    wal.append(&[b"one"]).expect("append");
    wal.sync().expect("sync");
    assert_eq!(names(&disk), ["00000000000000000001.wal"]);
    // A large record does not fit into a spare.
    keep(SEGMENT_BYTES, true);
    wal.append(&[&[b'x'; 1000]]).expect("append");
    wal.sync().expect("sync");
    let two = ["00000000000000000001.wal", "00000000000000000002.wal", "spare"];
    assert_eq!(names(&disk), two);
    let items = [record(1, b"one".to_vec()), record(2, vec![b'x'; 1000])];
    assert_eq!(read(&wal.files(), 0, Sequence(2)), items);
}

/// Goal: the first segment of a log, which was created without a spare, does not slow down all later syncs.
#[test]
fn a_segment_without_a_spare_is_replaced_by_one_once() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let mut expected = append_all(&mut wal, &["one"]);
    assert_eq!(names(&disk), ["00000000000000000001.wal"]);
    wal.files().keep_spare(SEGMENT_BYTES, &mut || true).expect("a spare");
    expected.extend(append_all(&mut wal, &["two"]));
    let two = ["00000000000000000001.wal", "00000000000000000002.wal"];
    assert_eq!(names(&disk), two);
    wal.files().keep_spare(SEGMENT_BYTES, &mut || true).expect("a spare");
    expected.extend(append_all(&mut wal, &["three"]));
    assert_eq!(names(&disk), [&two[..], &["spare"]].concat());
    assert_eq!(read(&wal.files(), 0, Sequence(3)), expected);
    drop(wal);
    let (wal, recovered) = open(&disk, 0);
    assert_eq!(recovered.last, Sequence(3));
    assert_eq!(read(&wal.files(), 0, Sequence(3)), expected);
}

/// Goal: an unusable spare never stops the log, and never replaces a segment.
#[test]
fn an_unusable_spare_does_not_stop_the_log() {
    let spare = Path::new(DIR).join("spare");
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    wal.files().keep_spare(SEGMENT_BYTES, &mut || true).expect("a spare");
    disk.fail_open_of(Some(&spare));
    let mut expected = append_all(&mut wal, &["one"]);
    assert_eq!(names(&disk), ["00000000000000000001.wal", "spare"]);
    // The same after a restart.
    drop(wal);
    let (mut wal, _) = open(&disk, 0);
    expected.extend(append_all(&mut wal, &["two"]));
    drop(wal);
    // The spare can be opened, and its first page cannot be written.
    disk.fail_open_of(None);
    let (mut wal, _) = open(&disk, 0);
    disk.fail_sync_after(0);
    expected.extend(append_all(&mut wal, &["three"]));
    let three = [1, 2, 3].map(|first| format!("{first:020}.wal"));
    assert_eq!(names(&disk), three, "the next one may be better");
    // An existing file with the name of the segment is not overwritten.
    wal.files().keep_spare(SEGMENT_BYTES, &mut || true).expect("a spare");
    let other = disk.create_new(&path(4)).expect("creates");
    other.write_all_at(b"other", 0).expect("writes");
    let next = payload("x", 360);
    assert!(matches!(wal.append(&[&next]), Err(WalError::Io { .. })));
    assert_eq!(disk.metadata(&path(4)).expect("there").len_bytes, 5);
    assert_eq!(read(&wal.files(), 0, Sequence(3)), expected);
}

#[test]
fn records_of_all_sizes_come_back_in_order() {
    let sizes = [0, 1, 27, 28, 300, 371, 372, 373, 16_384, 16_385, 300_000, 5];
    let dir = tempfile::tempdir().expect("directory");
    let disks: [(Arc<dyn Disk>, &Path); 2] =
        [(Arc::new(SimDisk::new()), Path::new(DIR)), (Arc::new(OsDisk), &dir.path().join("a/b"))];
    for (disk, dir) in disks {
        let open = || {
            Wal::open(Arc::clone(&disk), settings(dir), Elsewhere::up_to(Sequence(0)), 7)
                .expect("open")
        };
        let (mut wal, recovered) = open();
        assert_eq!(recovered, Recovered::default());
        let mut expected = Vec::new();
        for size in sizes {
            let whole = payload("abcdefg", size);
            let (one, two) = whole.split_at(size / 3);
            let sequence = wal.append(&[one, &[], two]).expect("append");
            assert_eq!(wal.last_appended(), sequence);
            expected.push(Item::Record { sequence, payload: whole });
        }
        assert_eq!(wal.last_appended(), Sequence(12));
        wal.sync().expect("sync");
        assert_eq!(wal.last_durable(), Sequence(12));
        assert_eq!(read(&wal.files(), 0, Sequence(12)), expected);
        drop(wal);
        let (wal, recovered) = open();
        assert_eq!(recovered, Recovered { last: Sequence(12), ..Recovered::default() });
        assert_eq!(read(&wal.files(), 0, Sequence(12)), expected);
        assert_eq!(read(&wal.files(), 9, Sequence(11)), expected[9..11]);
    }
}

#[test]
fn an_empty_log_continues_behind_what_is_durable_elsewhere() {
    let disk = SimDisk::new();
    let (mut wal, recovered) = open(&disk, 41);
    assert_eq!(recovered.last, Sequence(41));
    let expected = append_all(&mut wal, &["a"]);
    assert_eq!(wal.last_appended(), Sequence(42));
    assert_eq!(read(&wal.files(), 41, Sequence(42)), expected);
    drop(wal);
    // The tables are ahead of the log: their sequences must not be assigned again.
    let (mut wal, recovered) = open(&disk, 50);
    assert_eq!(recovered, Recovered { last: Sequence(50), ..Recovered::default() });
    let expected = append_all(&mut wal, &["b"]);
    assert_eq!(read(&wal.files(), 50, Sequence(51)), expected);
    let (wal, recovered) = open(&disk, 50);
    assert_eq!(recovered, Recovered { last: Sequence(51), ..Recovered::default() });
    assert_eq!(read(&wal.files(), 50, Sequence(51)), expected);
}

#[test]
fn a_failed_sync_poisons() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let synced = append_all(&mut wal, &["a", "b"]);
    wal.append(&[b"c"]).expect("append");
    disk.fail_sync_after(0);
    assert!(matches!(wal.sync(), Err(WalError::Io { .. })));
    assert!(matches!(wal.sync(), Err(WalError::Poisoned)));
    assert!(matches!(wal.append(&[b"d"]), Err(WalError::Poisoned)));
    assert_eq!(WalError::Poisoned.kind(), Kind::Unavailable);
    assert_eq!(wal.last_durable(), Sequence(2));
    assert_eq!(read(&wal.files(), 0, Sequence(2)), synced);
    drop(wal);
    // A restart of the process, not of the machine: the page cache still has the record, and the records that
    // opening finds must be durable from then on.
    let (_, recovered) = open(&disk, 0);
    assert_eq!(recovered.last, Sequence(3));
    for survival in [Survival::Lose, Survival::Mixed(1), Survival::Keep] {
        let (wal, recovered) = open(&disk.power_on(survival), 0);
        assert_eq!(recovered, Recovered { last: Sequence(3), ..Recovered::default() });
        assert_eq!(read(&wal.files(), 2, Sequence(3)), [record(3, b"c".to_vec())]);
    }
}

#[test]
fn a_failed_write_poisons() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    append_all(&mut wal, &["a"]);
    disk.cut_after(disk.operations());
    wal.append(&[b"b"]).expect("it is only gathered");
    assert!(matches!(wal.sync(), Err(WalError::Io { .. })));
    assert!(matches!(wal.append(&[b"c"]), Err(WalError::Poisoned)));
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new();
    disk.set_capacity_bytes(2 * SEGMENT_BYTES + 100);
    let (mut wal, _) = open(&disk, 0);
    let big = payload("x", 300);
    let mut expected = Vec::new();
    for sequence in 1..=2 {
        wal.append(&[&big]).expect("append");
        expected.push(record(sequence, big.clone()));
    }
    let full = wal.append(&[&big]).expect_err("no room for a third segment");
    assert!(matches!(full, WalError::NoSegment { .. }));
    assert_eq!(full.kind(), Kind::Overloaded);
    // A record that fits into the segment is still appended, and is delivered after the rejected one.
    wal.append(&[b"small"]).expect("append");
    expected.push(record(3, b"small".to_vec()));
    wal.sync().expect("sync");
    let (found, recovered) = open(&disk.power_on(Survival::Lose), 0);
    assert_eq!(recovered, Recovered { last: Sequence(3), ..Recovered::default() });
    assert_eq!(read(&found.files(), 0, Sequence(3)), expected);
    // A log that fills the disk can be opened, and truncated.
    drop(wal);
    let (mut wal, _) = open(&disk, 1);
    assert!(matches!(wal.append(&[&big]), Err(WalError::NoSegment { .. })));
    assert_eq!(wal.files().truncate_through(Sequence(1)).expect("truncate"), SEGMENT_BYTES);
    assert_eq!(wal.append(&[&big]).expect("append"), Sequence(4));
    let too_large = vec![0; (1 << 30) + 1];
    assert!(matches!(wal.append(&[&too_large]), Err(WalError::TooLarge { .. })));
    assert_eq!(wal.append(&[b"fits"]).expect("append"), Sequence(5));
}

/// Goal: a segment that cannot be created for want of a descriptor rejects only its record. Method: let any
/// number of files be opened for it, then none; with and without a spare.
#[test]
fn want_of_descriptors_refuses_and_passes() {
    let big = payload("x", 300);
    for has_spare in [false, true] {
        let mut refused = 0;
        for opens in 0.. {
            let disk = SimDisk::new();
            let (mut wal, _) = open(&disk, 0);
            let mut expected = append_all(&mut wal, &[&"a".repeat(300)]);
            if has_spare {
                wal.files().keep_spare(SEGMENT_BYTES, &mut || true).expect("a spare");
            }
            disk.limit_opens(Some(opens));
            let limited = wal.append(&[&big]);
            if let Err(error) = &limited {
                refused += 1;
                assert!(matches!(error, WalError::NoSegment { .. }), "{opens} files: {error}");
                assert_eq!(error.kind(), Kind::Overloaded);
                // A record that fits into the segment is still appended.
                expected.extend(append_all(&mut wal, &["small"]));
                disk.limit_opens(None);
                wal.append(&[&big]).expect("the next try");
            }
            wal.sync().expect("sync");
            disk.limit_opens(None);
            expected.push(Item::Record { sequence: wal.last_appended(), payload: big.clone() });
            let (wal, recovered) = open(&disk.power_on(Survival::Lose), 0);
            let last = Sequence(u64::try_from(expected.len()).expect("few"));
            assert_eq!(recovered, Recovered { last, ..Recovered::default() });
            assert_eq!(read(&wal.files(), 0, last), expected);
            if limited.is_ok() {
                break;
            }
        }
        assert!(refused > 0, "a segment opens files");
    }
}

/// Goal: a directory in which no file can be created rejects records and does not stop the log. Method:
/// refuse the name of a segment, and that of a spare; then allow it.
#[test]
fn a_segment_that_may_not_be_created_refuses_and_passes() {
    let big = payload("x", 300);
    for has_spare in [false, true] {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, 0);
        let mut expected = append_all(&mut wal, &[&"a".repeat(300)]);
        if has_spare {
            wal.files().keep_spare(SEGMENT_BYTES, &mut || true).expect("a spare");
        }
        disk.refuse_names(true);
        for _ in 0..3 {
            let error = wal.append(&[&big]).expect_err("no file for a segment");
            assert!(matches!(error, WalError::NoSegment { .. }), "{error}");
            assert_eq!(error.kind(), Kind::Overloaded);
        }
        // A record that fits into the segment is still appended.
        expected.extend(append_all(&mut wal, &["small"]));
        disk.refuse_names(false);
        wal.append(&[&big]).expect("it is allowed again");
        wal.sync().expect("sync");
        expected.push(Item::Record { sequence: Sequence(3), payload: big.clone() });
        let (wal, recovered) = open(&disk.power_on(Survival::Lose), 0);
        assert_eq!(recovered, Recovered { last: Sequence(3), ..Recovered::default() });
        assert_eq!(read(&wal.files(), 0, Sequence(3)), expected);
    }
}

/// A reader that could not open a segment returns the reason, and reads the segment later.
#[test]
fn want_of_descriptors_delays_a_reader() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let expected = append_all(&mut wal, &["a", "b"]);
    let mut reader = wal.files().reader(Sequence(0));
    disk.limit_opens(Some(0));
    let refused = reader.next(Sequence(2)).expect_err("no descriptor");
    assert!(refused.is_out_of_descriptors(), "{refused}");
    disk.limit_opens(None);
    assert_eq!(reader.next(Sequence(2)).expect("read").as_ref(), expected.first());
    disk.fail_open_of(Some(&path(1)));
    let failed = wal.files().reader(Sequence(0)).next(Sequence(2)).expect_err("another failure");
    assert!(!failed.is_out_of_descriptors(), "{failed}");
}

#[test]
fn truncation_removes_whole_segments_and_never_the_newest() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let texts: Vec<String> = (0..12).map(|n| format!("{n:0150}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Two records per segment: 1-2, 3-4, ..., 11-12.
    let expected = append_all(&mut wal, &texts);
    let files = wal.files();
    assert_eq!(files.size_bytes(), 6 * SEGMENT_BYTES);
    let mut behind = files.reader(Sequence(0));
    assert_eq!(behind.next(Sequence(12)).expect("read").as_ref(), expected.first());
    for (through, freed, oldest) in
        [(0, 0, 1), (1, 0, 1), (2, 1, 3), (5, 1, 5), (6, 1, 7), (12, 2, 11), (99, 0, 11)]
    {
        let bytes = files.truncate_through(Sequence(through)).expect("truncate");
        assert_eq!((bytes, files.before_oldest()), (freed * SEGMENT_BYTES, Sequence(oldest - 1)));
        let behind = usize::try_from(oldest - 1).expect("small");
        assert_eq!(read(&files, oldest - 1, Sequence(12)), expected[behind..]);
    }
    assert_eq!(files.size_bytes(), SEGMENT_BYTES);
    let durable = disk.power_on(Survival::Lose);
    assert_eq!(durable.list(Path::new(DIR)).expect("list").len(), 1);
    // A reader whose segment was truncated gets an error. The file that it has open can still be read.
    assert_eq!(behind.next(Sequence(12)).map_err(|error| error.kind()), Err(Kind::NotFound));
    assert!(matches!(
        files.reader(Sequence(3)).next(Sequence(12)),
        Err(WalError::Truncated { wanted: Sequence(4), oldest: Sequence(11) })
    ));
    // So does a reader that starts before the log, after a restart.
    let (wal, recovered) = open(&durable, 12);
    assert_eq!(recovered, Recovered { last: Sequence(12), ..Recovered::default() });
    assert!(wal.files().reader(Sequence(0)).next(Sequence(12)).is_err());
}

#[test]
fn a_reader_follows_the_writer() {
    let dir = tempfile::tempdir().expect("directory");
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(SimDisk::new()), Arc::new(OsDisk)];
    for disk in disks {
        let opened =
            Wal::open(disk, settings(&dir.path().join("wal")), Elsewhere::up_to(Sequence(0)), 7);
        let (mut wal, _) = opened.expect("open");
        let (files, durable) = (wal.files(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut reader = files.reader(Sequence(0));
                let mut count = 0;
                while count < 400 {
                    let until = Sequence(durable.load(Ordering::Acquire));
                    while let Some(item) = reader.next(until).expect("read") {
                        count += 1;
                        let expected = payload("xyz", usize::try_from(count % 97).expect("small"));
                        assert_eq!(item, record(count, expected));
                    }
                    // Records that were read may be truncated.
                    files.truncate_through(reader.position()).expect("truncate");
                }
            });
            for sequence in 1..=400_u64 {
                let bytes = payload("xyz", usize::try_from(sequence % 97).expect("small"));
                wal.append(&[&bytes]).expect("append");
                if sequence % 3 == 0 || sequence == 400 {
                    wal.sync().expect("sync");
                    durable.store(sequence, Ordering::Release);
                }
            }
        });
        assert!(wal.files().size_bytes() <= 2 * SEGMENT_BYTES);
    }
}

#[test]
fn names_and_sequences_are_one_to_one() {
    let cases = [
        ("/w/00000000000000000001.wal", Some(1)),
        ("/w/18446744073709551615.wal", Some(u64::MAX)),
        ("/w/99999999999999999999.wal", None),
        ("/w/1.wal", None),
        ("/w/+0000000000000000001.wal", None),
        ("/w/00000000000000000001.partial", None),
        ("/w/00000000000000000001", None),
        ("/w/quarantine", None),
    ];
    for (name, expected) in cases {
        let first = segment::first_of(Path::new(name));
        assert_eq!(first, expected.map(Sequence), "{name}");
        if let Some(first) = first {
            assert_eq!(segment::path_of(Path::new("/w"), first), Path::new(name));
        }
    }
}
