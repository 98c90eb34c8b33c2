//! Damage tests of the log: every cut and every flipped bit, lost files, frames of previous files.

use std::path::Path;
use std::sync::Arc;

use super::{DIR, append_all, damages, lost, open, path, read, record, settings};
use crate::wal::frame::{FRAME_HEADER_BYTES, FRAMES_START};
use crate::wal::reader::Item;
use crate::wal::writer::Wal;
use crate::wal::{Corruption, Damage, Elsewhere, Recovered, Sequence, WalError};
use weir_disk::{Disk, DiskFile};
use weir_sim::disk::{SimDisk, Survival};

/// Start offsets of the frames of [`five`], and the end of the last one.
const FRAMES: [usize; 6] = [8192, 8223, 8252, 8286, 8321, 8350];

/// A log of one segment with three batches of two, two and one records, and its items.
fn five() -> (SimDisk, Vec<Item>) {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let mut items = append_all(&mut wal, &["one", "2"]);
    items.extend(append_all(&mut wal, &["three.", "seven.."]));
    items.extend(append_all(&mut wal, &["5"]));
    (disk.power_on(Survival::Lose), items)
}

fn file(disk: &SimDisk, first: u64) -> Box<dyn DiskFile> {
    disk.open(&path(first)).expect("segment")
}

fn bytes(disk: &SimDisk, first: u64) -> Vec<u8> {
    let file = file(disk, first);
    let mut bytes = vec![0; usize::try_from(file.len_bytes().expect("length")).expect("small")];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn with_file(first: u64, bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new(DIR)).expect("directory");
    let file = disk.create_new(&path(first)).expect("create");
    file.write_all_at(bytes, 0).expect("write");
    disk
}

fn flip(disk: &SimDisk, first: u64, bit: usize) {
    let (file, mut byte) = (file(disk, first), [0]);
    let offset = u64::try_from(bit / 8).expect("small");
    file.read_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], offset).expect("write");
}

/// The bits to flip: both headers, and everything from the first frame on.
fn bits() -> impl Iterator<Item = usize> {
    let end = usize::try_from(super::SEGMENT_BYTES).expect("small");
    (0..36).chain(4096..4132).chain(8192..end).flat_map(|byte| byte * 8..byte * 8 + 8)
}

/// The record of [`five`] that contains a byte, from 1; `None` outside the frames.
fn record_at(byte: usize) -> Option<usize> {
    let after = FRAMES.iter().filter(|start| **start <= byte).count();
    (1..=5).contains(&after).then_some(after)
}

#[test]
fn the_frames_are_where_the_table_says() {
    let (disk, items) = five();
    let starts = items.iter().scan(FRAMES_START, |start, item| {
        let Item::Record { payload, .. } = item else { return None };
        let frame = *start;
        *start += u64::try_from(FRAME_HEADER_BYTES + payload.len()).expect("small");
        Some(usize::try_from(frame).expect("small"))
    });
    assert_eq!(starts.collect::<Vec<_>>(), FRAMES[..5]);
    let bytes = bytes(&disk, 1);
    assert_eq!(&bytes[..16], b"weir.wal\x01\0\0\0\0\0\0\0");
    assert_eq!(bytes[24..32], 1_u64.to_le_bytes());
    assert_eq!(bytes[..36], bytes[4096..4132]);
    assert_eq!(&bytes[8192 + 28..8223], b"one");
    assert_eq!(bytes[8286..8290], 7_u32.to_le_bytes());
    assert_eq!(bytes[8294..8302], 4_u64.to_le_bytes(), "sequence");
    assert_eq!(bytes[8302..8310], 2_u64.to_le_bytes(), "durable");
    assert!(bytes[8350..].iter().all(|byte| *byte == 0));
}

/// Goal: a log that is cut anywhere contains exactly the records before the cut.
#[test]
fn every_cut_is_torn() {
    let (disk, items) = five();
    let bytes = bytes(&disk, 1);
    for cut in 0..=8350 {
        let disk = with_file(1, &bytes[..cut]);
        let whole = FRAMES.iter().skip(1).filter(|end| **end <= cut).count();
        let (mut wal, recovered) = open(&disk, 0);
        assert_eq!(recovered.last, Sequence(u64::try_from(whole).expect("five")), "cut at {cut}");
        assert_eq!(recovered.corruptions, []);
        let start = FRAMES[whole].min(cut).max(8192.min(cut));
        let zeros_at_end = bytes[start..cut].iter().rev().take_while(|byte| **byte == 0).count();
        let torn = if cut < 8192 { 0 } else { cut - start - zeros_at_end };
        assert_eq!(recovered.torn_bytes, u64::try_from(torn).expect("small"), "cut at {cut}");
        let mut expected = items[..whole].to_vec();
        assert_eq!(read(&wal.files(), 0, recovered.last), expected);
        // The log continues, and the torn frame never reappears.
        expected.extend(append_all(&mut wal, &["new", "more"]));
        let (wal, recovered) = open(&disk.power_on(Survival::Lose), 0);
        assert_eq!(recovered.corruptions, []);
        assert_eq!(recovered.torn_bytes, 0);
        assert_eq!(read(&wal.files(), 0, recovered.last), expected, "cut at {cut}");
    }
}

/// Goal: no flipped bit returns a wrong record, hides another record than its own, or remains undetected.
#[test]
fn every_flipped_bit_costs_at_most_its_record() {
    let (intact, items) = five();
    for bit in bits() {
        let disk = intact.power_on(Survival::Keep);
        flip(&disk, 1, bit);
        let (wal, recovered) = open(&disk, 0);
        let found = read(&wal.files(), 0, recovered.last);
        let hit = record_at(bit / 8);
        let is_there = |item: &&Item| matches!(item, Item::Record { .. });
        let expected = items.iter().enumerate().filter(|(at, _)| Some(at + 1) != hit);
        assert!(found.iter().filter(is_there).eq(expected.map(|(_, item)| item)), "bit {bit}");
        let sequence = Sequence(hit.and_then(|hit| u64::try_from(hit).ok()).unwrap_or(0));
        let reported: Vec<Damage> = damages(&found);
        let at_open = recovered.corruptions.iter().map(|corruption| corruption.damage);
        assert!(at_open.eq(reported.iter().copied()), "bit {bit}: {recovered:?}");
        let expected: &[Damage] = match hit {
            // Before a later batch: the record was durable.
            Some(1..=4) => &[Damage::Lost { first: sequence, last: sequence }],
            // The last record: it looks like a torn write.
            Some(_) => &[],
            None if bit < 8192 * 8 => &[Damage::Header],
            None => &[],
        };
        assert_eq!(reported, expected, "bit {bit}");
        let is_torn = hit == Some(5) || (hit.is_none() && bit >= 8192 * 8);
        assert_eq!(recovered.torn_bytes > 0, is_torn, "bit {bit}");
        for corruption in recovered.corruptions {
            let copy = corruption.copy.expect("a copy in quarantine");
            assert!(copy.starts_with(Path::new(DIR).join("quarantine")));
            let entry = disk.metadata(&copy).expect("copy");
            assert_eq!(entry.len_bytes, super::SEGMENT_BYTES);
        }
    }
}

/// Goal: the same in a segment that is not the newest, where nothing is torn.
#[test]
fn every_flipped_bit_of_an_older_segment_is_reported() {
    let (intact, mut items) = five();
    let (mut wal, _) = open(&intact, 0);
    items.extend(append_all(&mut wal, &["six"]));
    for bit in bits() {
        let disk = intact.power_on(Survival::Keep);
        flip(&disk, 1, bit);
        let (wal, recovered) = open(&disk, 0);
        assert_eq!(recovered, Recovered { last: Sequence(6), ..Recovered::default() });
        let found = read(&wal.files(), 0, Sequence(6));
        let hit = record_at(bit / 8);
        let is_there = |item: &&Item| matches!(item, Item::Record { .. });
        let expected = items.iter().enumerate().filter(|(at, _)| Some(at + 1) != hit);
        assert!(found.iter().filter(is_there).eq(expected.map(|(_, item)| item)), "bit {bit}");
        let expected = match hit.and_then(|hit| u64::try_from(hit).ok()) {
            Some(hit) => vec![lost(hit, hit)],
            None if bit < 8192 * 8 => vec![Damage::Header],
            None => vec![],
        };
        assert_eq!(damages(&found), expected, "bit {bit}");
    }
}

/// Goal: records missing within the last batch are not reported as lost, since they may never have been
/// acknowledged; and they do not hide later records.
#[test]
fn a_hole_in_the_last_batch_is_unconfirmed() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let items = append_all(&mut wal, &["one", "2", "three."]);
    let file = file(&disk, 1);
    // The second frame never reached the disk; the third did.
    file.write_all_at(&[0; 29], 8223).expect("write");
    let (mut wal, recovered) = open(&disk, 0);
    let unconfirmed = Damage::Unconfirmed { first: Sequence(2), last: Sequence(2) };
    assert_eq!(recovered.last, Sequence(3));
    assert_eq!(recovered.torn_bytes, 0);
    assert!(
        matches!(recovered.corruptions.as_slice(), [Corruption { offset: 8223, damage, .. }] if *damage == unconfirmed)
    );
    let found = read(&wal.files(), 0, Sequence(3));
    assert_eq!([&found[0], &found[2]], [&items[0], &items[2]]);
    assert_eq!(damages(&found), [unconfirmed]);
    append_all(&mut wal, &["4"]);
    // After the next segment is created, the report stays the same.
    let (wal, recovered) = open(&disk, 0);
    assert_eq!(recovered, Recovered { last: Sequence(4), ..Recovered::default() });
    assert_eq!(damages(&read(&wal.files(), 0, Sequence(4))), [unconfirmed]);
}

/// Goal: a missing acknowledged record at the end is reported if a later header proves it, and its sequence
/// is not assigned again.
#[test]
fn the_header_of_a_torn_frame_proves_earlier_records() {
    let (disk, items) = five();
    // Damage the payloads of the last two batches: 3, 4 and 5. The header of 5 contains 4 as durable.
    let file = file(&disk, 1);
    for payload in [8252 + 28, 8286 + 28, 8321 + 28] {
        file.write_all_at(b"#", payload).expect("write");
    }
    let (mut wal, recovered) = open(&disk, 0);
    assert_eq!(recovered.last, Sequence(4));
    assert!(
        matches!(recovered.corruptions.as_slice(), [Corruption { damage, .. }] if *damage == lost(3, 4))
    );
    let mut expected = items[..2].to_vec();
    let found = read(&wal.files(), 0, Sequence(4));
    assert_eq!(found[..2], expected);
    assert_eq!(damages(&found), [lost(3, 4)]);
    expected.extend(append_all(&mut wal, &["new"]));
    assert_eq!(read(&wal.files(), 4, Sequence(5)), expected[2..]);
}

#[test]
fn missing_segments_are_reported() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let texts: Vec<String> = (0..8).map(|n| format!("{n:0150}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Two records to a segment: 1-2, 3-4, 5-6, 7-8.
    let items = append_all(&mut wal, &texts);
    let without = |first: u64| {
        let disk = disk.power_on(Survival::Keep);
        disk.remove(&path(first)).expect("remove");
        disk
    };
    let (wal, recovered) = open(&without(3), 0);
    assert_eq!(recovered.corruptions, []);
    let found = read(&wal.files(), 0, recovered.last);
    assert_eq!(damages(&found), [lost(3, 4)]);
    assert_eq!([&found[..2], &found[3..]].concat(), [&items[..2], &items[4..]].concat());
    let (wal, recovered) = open(&without(1), 0);
    assert!(
        matches!(recovered.corruptions.as_slice(), [Corruption { damage, .. }] if *damage == lost(1, 2))
    );
    let found = read(&wal.files(), 0, recovered.last);
    assert_eq!(damages(&found), [lost(1, 2)]);
    assert_eq!(found[1..], items[2..]);
    let (_, recovered) = open(&without(1), 2);
    assert_eq!(recovered.corruptions, [], "they are durable elsewhere");
    // A file that is removed while the log is open.
    let (wal, _) = open(&disk, 0);
    disk.remove(&path(5)).expect("remove");
    assert_eq!(damages(&read(&wal.files(), 0, Sequence(8))), [lost(5, 6)]);
    // A file with the name of another one has the wrong header.
    disk.rename(&path(7), &path(5)).expect("rename");
    let (wal, recovered) = open(&disk, 0);
    let found = read(&wal.files(), 0, recovered.last);
    assert_eq!(found[..4], items[..4]);
    assert!(matches!(damages(&found).as_slice(), [Damage::Lost { first: Sequence(5), .. }]));
}

/// Segments removed; durable elsewhere, seen elsewhere; what is lost, and the last sequence.
type Removal<'a> = (&'a [u64], u64, u64, &'a [Damage], u64);

/// Goal: records that another store has applied and that are neither in the log nor in files are reported:
/// at the start, at the end and without any segment. Their sequences are not assigned again.
#[test]
fn records_that_only_others_have_seen_are_missing() {
    let texts: Vec<String> = (0..8).map(|n| format!("{n:0150}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let cases: [Removal<'_>; 6] = [
        (&[], 2, 8, &[], 8),
        (&[1, 3, 5, 7], 8, 8, &[], 8),
        (&[1, 3, 5, 7], 2, 8, &[lost(3, 8)], 8),
        (&[1, 3, 5, 7], 0, 11, &[lost(1, 11)], 11),
        (&[1, 3], 1, 8, &[lost(2, 4)], 8),
        (&[5, 7], 0, 8, &[lost(5, 8)], 8),
    ];
    for (removed, durable, seen, expected, last) in cases {
        let disk = SimDisk::new();
        let (mut wal, _) = open(&disk, 0);
        // Two records to a segment: 1-2, 3-4, 5-6, 7-8.
        let items = append_all(&mut wal, &texts);
        for first in removed {
            disk.remove(&path(*first)).expect("remove");
        }
        let case = format!("{removed:?}, {durable}, {seen}");
        let elsewhere = Elsewhere { durable: Sequence(durable), seen: Sequence(seen) };
        let open = || {
            let disk = Arc::new(disk.clone());
            Wal::open(disk, settings(Path::new(DIR)), elsewhere, 7).expect("open")
        };
        let (mut wal, recovered) = open();
        let found: Vec<Damage> = recovered.corruptions.iter().map(|found| found.damage).collect();
        assert_eq!((found.as_slice(), recovered.last), (expected, Sequence(last)), "{case}");
        let found = read(&wal.files(), durable, recovered.last);
        assert_eq!(damages(&found), expected, "{case}");
        let is_kept = |item: &&Item| {
            let Item::Record { sequence, .. } = item else { return false };
            let first = (sequence.0 - 1) / 2 * 2 + 1;
            sequence.0 > durable && !removed.contains(&first)
        };
        let records = found.iter().filter(|item| matches!(item, Item::Record { .. }));
        assert!(records.eq(items.iter().filter(is_kept)), "{case}: {found:?}");
        // The next record comes after all of them, and is found after the next start too.
        let next = append_all(&mut wal, &["next"]);
        let (wal, recovered) = open();
        assert_eq!(recovered.last, Sequence(last + 1), "{case}");
        assert_eq!(read(&wal.files(), last, recovered.last), next, "{case}");
    }
}

/// Goal: the removal of an empty segment still proves that all records before it were durable.
#[test]
fn an_empty_segment_proves_what_came_before_it() {
    let disk = with_file(3, &[]);
    let (mut wal, recovered) = open(&disk, 0);
    assert_eq!(recovered.last, Sequence(2));
    assert!(
        matches!(recovered.corruptions.as_slice(), [Corruption { damage, .. }] if *damage == lost(1, 2))
    );
    append_all(&mut wal, &["3"]);
    assert_eq!(damages(&read(&wal.files(), 0, Sequence(3))), [lost(1, 2)]);
    let (_, recovered) = open(&with_file(3, &[]), 2);
    assert_eq!(recovered, Recovered { last: Sequence(2), ..Recovered::default() });
}

#[test]
fn without_both_headers_a_segment_is_kept_and_its_numbers_are_used() {
    let (disk, _) = five();
    flip(&disk, 1, 100);
    flip(&disk, 1, 4096 * 8 + 100);
    let (mut wal, recovered) = open(&disk, 0);
    // 400 bytes fit at most 14 empty frames.
    assert_eq!(recovered.last, Sequence(15));
    let next = append_all(&mut wal, &["next"]);
    let disk = disk.power_on(Survival::Keep);
    let (wal, _) = open(&disk, 0);
    let found = read(&wal.files(), 0, Sequence(16));
    assert_eq!(damages(&found), [lost(1, 15)]);
    assert_eq!(found[1..], next);
    assert!(disk.metadata(&path(1)).is_ok());
}

#[test]
fn a_newer_format_is_not_taken_for_damage() {
    let (disk, _) = five();
    let mut header = bytes(&disk, 1)[..36].to_vec();
    header[8] = 2;
    let checksum = crc32c::crc32c(&header[..32]).to_le_bytes();
    header[32..].copy_from_slice(&checksum);
    file(&disk, 1).write_all_at(&header, 0).expect("write");
    let opened =
        Wal::open(Arc::new(disk), settings(Path::new(DIR)), Elsewhere::up_to(Sequence(0)), 7);
    assert!(matches!(opened, Err(WalError::Version { version: 2, known: 1, .. })));
}

/// Goal: frames of a previous file in the same blocks never count, even if their sequences would fit.
#[test]
fn frames_of_another_salt_do_not_count() {
    let (disk, items) = five();
    let other = SimDisk::new();
    let dir = settings(Path::new(DIR));
    let (mut wal, _) =
        Wal::open(Arc::new(other.clone()), dir, Elsewhere::up_to(Sequence(0)), 8).expect("open");
    append_all(&mut wal, &["one", "2", "three.", "seven..", "5", "six"]);
    let old = bytes(&other, 1);
    file(&disk, 1).write_all_at(&old[8350..], 8350).expect("write");
    let (wal, recovered) = open(&disk, 0);
    assert_eq!((recovered.last, recovered.torn_bytes), (Sequence(5), 31));
    assert_eq!(read(&wal.files(), 0, Sequence(5)), items);
}

#[test]
fn what_a_damaged_frame_carries_is_not_searched() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    let items = append_all(&mut wal, &["one", "2", "three."]);
    // A record whose payload is a later frame of the same segment.
    let disk = disk.power_on(Survival::Keep);
    let frame = bytes(&disk, 1)[8252..8286].to_vec();
    let (disk, mut carrier) = (SimDisk::new(), frame.clone());
    carrier.push(b'!');
    let (mut wal, _) = open(&disk, 0);
    wal.append(&[b"one"]).expect("append");
    wal.append(&[&carrier]).expect("append");
    wal.sync().expect("sync");
    flip(&disk, 1, (8223 + 28 + 34) * 8);
    let (wal, recovered) = open(&disk, 0);
    assert_eq!(recovered.last, Sequence(1), "not 3, which is in the payload of 2");
    assert_eq!(read(&wal.files(), 0, Sequence(1)), items[..1]);
    assert_eq!(items[2], record(3, b"three.".to_vec()));
}
