//! Tests of the identity store, case by case, with helpers that its other tests share. `histories`
//! and `sequences` compare it with the model.

#![expect(clippy::disallowed_methods, reason = "the benchmark reads the clock of the machine")]

mod effects;
mod gone;
mod histories;
mod images;
mod limits;
mod model;
mod reopened;
mod sequences;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::IdentityError;
use crate::change::{Force, Occasion, Op, OpKind, Record, Update, Warning};
use crate::change_feed::Watched;
use crate::limits::Limits;
use crate::person::{DistinctId, Person};
use crate::row::{Key, Row};
use crate::store::{Applied, Identities};
use crate::tests::model::{Model, uuid_of};
use crate::view::View;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::id::ProjectId;

const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];
const IDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "null", "Anonymous"];
const TYPES: [&str; 7] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6"];
const GROUP_KEYS: [&str; 2] = ["g", "h"];
const AMPLE: Limits = Limits {
    ids_bytes: 1 << 20,
    rows_bytes: 1 << 20,
    blocks_bytes: 1 << 20,
    overrides_bytes: 1 << 16,
    part_bytes: 1 << 20,
};
const NO_CACHE: Limits = Limits {
    ids_bytes: 0,
    rows_bytes: 0,
    blocks_bytes: 0,
    overrides_bytes: 1 << 16,
    part_bytes: 1 << 20,
};

fn open(directory: &Path) -> Identities {
    Identities::open(directory, AMPLE).expect("opens")
}

fn op(distinct_id: &str, kind: OpKind) -> Op {
    let event_id = Uuid::from_u128(7);
    Op { distinct_id: distinct_id.to_owned(), event_id, timestamp: UnixMicros(1), kind }
}

fn merge(distinct_id: &str, other: &str) -> Op {
    let kind =
        OpKind::Merge { other: other.to_owned(), force: Force::Yes, update: Update::default() };
    op(distinct_id, kind)
}

fn record(sequence: u64, ops: Vec<Op>) -> Record {
    Record { sequence, project: PROJECTS[0], ops }
}

/// Each op is a part of its own.
const PARTS: Limits = Limits { part_bytes: 1, ..AMPLE };

/// Everything that readers can see, compared.
fn assert_same(identities: &Identities, model: &Model) {
    assert_eq!(identities.applied_sequence(), model.applied);
    let view = identities.view();
    assert_eq!(view.applied_sequence().expect("reads"), model.applied);
    for project in PROJECTS {
        for id in IDS {
            let person = view.person_of(project, id).expect("reads");
            assert_eq!(person, model.person_of(project, id), "{project} {id}");
            assert_eq!(view.shared_person_of(project, id).unwrap().as_deref(), person.as_ref());
        }
        let expected: Vec<_> =
            model.persons.iter().filter(|(p, _)| *p == project).map(|(_, p)| p.clone()).collect();
        let mut scanned = Vec::new();
        let visit = |person| {
            scanned.push(person);
            ControlFlow::Continue(())
        };
        view.scan_persons(project, visit).expect("scans");
        assert_eq!(scanned, expected);
        assert_eq!(usize::try_from(view.person_count(project).expect("reads")), Ok(expected.len()));
        let mut ids = Vec::new();
        let visit = |number, id| {
            ids.push((number, id));
            ControlFlow::Continue(())
        };
        view.scan_distinct_ids(project, visit).expect("scans");
        let mut expected_ids = Vec::new();
        for person in &expected {
            let of_person = model.ids_of(person.number);
            assert_eq!(view.distinct_ids(project, person.uuid).expect("reads"), of_person);
            let by_uuid = view.person_by_uuid(project, person.uuid).expect("reads");
            assert_eq!(by_uuid.as_ref(), Some(person));
            let by_number = view.person_by_number(project, person.number).expect("reads");
            assert_eq!(by_number.as_ref(), Some(person));
            expected_ids.extend(of_person.into_iter().map(|id| (person.number, id)));
        }
        assert_eq!(ids, expected_ids);
        let mut together = Vec::new();
        let visit = |row: &Row<'_>, ids: &[DistinctId]| {
            together.push((row.person()?, ids.to_vec()));
            Ok(ControlFlow::Continue(()))
        };
        view.scan_rows_with_ids(project, 0..i64::MAX, visit).expect("scans");
        let (from, to) = (expected.len() / 3, expected.len() / 3 * 2);
        if let (Some(first), Some(last)) = (expected.get(from), expected.get(to)) {
            let mut part = Vec::new();
            let visit = |row: &Row<'_>, ids: &[DistinctId]| {
                part.push((row.person()?, ids.to_vec()));
                Ok(ControlFlow::Continue(()))
            };
            let numbers = first.number..last.number;
            view.scan_rows_with_ids(project, numbers, visit).expect("scans");
            assert_eq!(part, together.get(from..to).expect("they are among all"));
        }
        assert_look_ups(&view, project, &expected);
        let pairs = expected.into_iter().map(|person| {
            let id = |id: String| {
                let since = model.since.get(&(project, id.clone())).map(|(_, since)| *since);
                DistinctId { text: id.into(), since }
            };
            let ids: Vec<DistinctId> = model.ids_of(person.number).into_iter().map(id).collect();
            (person, ids)
        });
        assert_eq!(together, pairs.collect::<Vec<_>>());
        assert_groups(identities, model, project);
    }
    assert_overrides(identities, model, &view);
}

/// The order of lists, and look-ups by email and by place.
fn assert_look_ups(view: &View, project: ProjectId, expected: &[Person]) {
    let mut listed = Vec::new();
    let visit = |number| {
        listed.push(number);
        ControlFlow::Continue(())
    };
    view.scan_listed(project, UnixMicros(i64::MAX), visit).expect("scans");
    let mut by_place = expected.to_vec();
    by_place.sort_by_key(|person| std::cmp::Reverse((person.created_at, person.uuid)));
    assert_eq!(listed, by_place.iter().map(|person| person.number).collect::<Vec<_>>());
    for person in expected {
        let Some(email) = person.properties.get("email") else { continue };
        let text = email.as_str().map_or_else(|| email.to_string(), str::to_owned);
        let found = view.persons_by_email(project, &text.to_uppercase()).expect("reads");
        let same = |other: &&Person| other.properties.get("email") == Some(email);
        assert!(expected.iter().filter(same).all(|same| found.contains(same)), "{text}");
        assert!(found.iter().all(|found| expected.contains(found)), "{text}");
    }
    if let Some(person) = by_place.get(by_place.len() / 2) {
        let later = by_place.iter().filter(|other| other.created_at > person.created_at);
        let found = view.count_created_after(project, person.created_at).expect("counts");
        assert_eq!(usize::try_from(found).expect("small"), later.count());
    }
}

fn assert_overrides(identities: &Identities, model: &Model, view: &View) {
    let overrides = identities.overrides();
    let entries: BTreeMap<_, _> = overrides.entries().expect("reads").into_iter().collect();
    assert_eq!(entries, model.overrides());
    for ((project, person), survivor) in &entries {
        assert_eq!(overrides.get(*project, *person).expect("reads"), Some(*survivor));
    }
    for (project, person) in &model.persons {
        assert_eq!(overrides.get(*project, person.uuid).expect("reads"), None);
    }
    for (project, gone) in entries.keys() {
        assert_eq!(view.person_by_uuid(*project, *gone).expect("reads"), None);
    }
}

fn assert_groups(identities: &Identities, model: &Model, project: ProjectId) {
    let types = model.types.get(&project).cloned().unwrap_or_default();
    assert_eq!(*identities.group_types(project), *types);
    for index in 0..5_u8 {
        for key in GROUP_KEYS {
            let group = identities.group(project, index, key).expect("reads");
            let expected = model.groups.get(&(project, index.into(), key.to_owned()));
            assert_eq!(group.as_ref(), expected, "{project} {index} {key}");
        }
    }
}

#[tokio::test]
async fn a_waiting_reader_ends_the_lingering() {
    let directory = tempfile::tempdir().unwrap();
    let identities = open(directory.path());
    let (sender, ended) = std::sync::mpsc::channel();
    let writer = identities.clone();
    let lingering = std::thread::spawn(move || {
        writer.linger(Duration::from_secs(3600));
        writer.apply(&[record(1, vec![merge("a", "b")])]).unwrap();
        // No request since the last wait.
        writer.linger(Duration::from_millis(1));
        sender.send(()).unwrap();
    });
    identities.wait_applied(1, Duration::from_secs(20)).await.expect("applied");
    assert!(identities.view().person_of(PROJECTS[0], "b").unwrap().is_some());
    ended.recv_timeout(Duration::from_secs(20)).expect("the lingering ended");
    lingering.join().unwrap();
}

#[test]
fn overrides_name_the_final_survivor() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let touches = ["a", "b", "c"].map(|id| op(id, OpKind::Touch)).to_vec();
    identities.apply(&[record(1, touches)]).expect("applies");
    let before = identities.overrides();
    identities.apply(&[record(2, vec![merge("b", "a")])]).expect("applies");
    identities.apply(&[record(3, vec![merge("c", "b"), merge("c", "new")])]).expect("applies");
    let project = PROJECTS[0];
    let [a, b, c, new] = ["a", "b", "c", "new"].map(|id| uuid_of(project, id));
    let check = |identities: &Identities| {
        let overrides = identities.overrides();
        let resolve = |uuid| overrides.resolve(project, uuid).expect("reads");
        assert_eq!([a, b, c, new].map(resolve), [c; 4]);
        assert_eq!(overrides.get(project, c).expect("reads"), None);
        assert_eq!(overrides.resolve(PROJECTS[1], a).expect("reads"), a);
        assert_eq!(overrides.entries().expect("reads").len(), 3);
        let ids = identities.view().distinct_ids(project, c).expect("reads");
        assert_eq!(ids, ["a", "b", "c", "new"]);
    };
    check(&identities);
    let [a, c] = ["a", "c"].map(|id| uuid_of(project, id));
    assert_eq!(before.resolve(project, a).expect("reads"), a, "what a reader holds stays");
    assert_eq!(identities.overrides().resolve(project, a).expect("reads"), c);
    drop(identities);
    check(&open(directory.path()));
}

#[test]
fn replayed_records_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let records: Vec<_> = (1..20)
        .map(|sequence| record(sequence, vec![op("a", OpKind::Touch), merge("b", "a")]))
        .collect();
    let first = identities.apply(&records).expect("applies");
    let person = identities.view().person_of(PROJECTS[0], "a").expect("reads");
    let again = identities.apply(&records).expect("applies");
    assert_eq!(again, Applied { sequence: 19, warnings: Vec::<Warning>::new() });
    assert_eq!(first.sequence, 19);
    assert_eq!(identities.view().person_of(PROJECTS[0], "a").expect("reads"), person);
    assert_eq!(identities.persist().expect("syncs"), 19);
    assert_eq!(identities.apply(&[]).expect("applies").sequence, 19);
    assert_eq!(identities.view().person_count(PROJECTS[0]).expect("reads"), 1);
}

#[test]
fn ids_longer_than_keys_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let long = "x".repeat(100_000);
    let group =
        OpKind::GroupUpdate { group_type: "t0".to_owned(), key: long.clone(), set: Map::new() };
    let ops = vec![
        op(&long, OpKind::Touch),
        merge(&long, "a"),
        merge("a", &long),
        op("a", group),
        op("", OpKind::Touch),
    ];
    let applied = identities.apply(&[record(1, ops)]).expect("applies");
    let kinds: Vec<_> = applied.warnings.iter().map(|warning| warning.kind.name()).collect();
    let (long, illegal) = ("distinct_id_too_long", "cannot_merge_with_illegal_distinct_id");
    assert_eq!(kinds, [long, long, illegal]);
    assert_eq!(identities.view().person_count(PROJECTS[0]).expect("reads"), 2);
}

#[test]
fn a_state_is_open_once_and_of_one_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let second = Identities::open(directory.path(), AMPLE).expect_err("locked");
    assert_eq!(second.kind(), Kind::Unavailable);
    drop(identities);
    let change = |format: u64| {
        let database = fjall::Database::builder(directory.path()).open().expect("opens");
        let meta = database.keyspace("meta", fjall::KeyspaceCreateOptions::default);
        let meta = meta.expect("opens");
        let before = meta.get("format").expect("reads").map(|bytes| bytes.to_vec());
        meta.insert("format", format.to_be_bytes()).expect("writes");
        u64::from_be_bytes(before.expect("a format").try_into().expect("a number"))
    };
    assert_eq!(change(1), 2);
    // That of an earlier version, which is not to open it any more.
    drop(open(directory.path()));
    assert_eq!(change(9), 2);
    let other = Identities::open(directory.path(), AMPLE).expect_err("refuses");
    assert_eq!(
        other.to_string(),
        "the identity store was made by a newer Weir: it has format 9, and this version reads 2"
    );
}

/// Goal: the error of a damaged database says what is lost and what to do. Method: flip a byte at
/// many positions of the journal.
#[test]
fn the_error_of_a_damaged_journal_has_a_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    for sequence in 1..=20 {
        let ops = IDS.iter().map(|id| op(id, OpKind::Touch)).collect();
        identities.apply(&[record(sequence, ops)]).expect("applies");
    }
    identities.persist().expect("is durable");
    drop(identities);
    let entries = std::fs::read_dir(directory.path()).expect("a list");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_journal = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "jnl");
    let journal = paths.filter(is_journal).max().expect("a journal");
    let good = std::fs::read(&journal).expect("the journal");
    let end = good.iter().rposition(|byte| *byte != 0).expect("it is not empty");
    let mut refused = 0;
    for place in (0..=end).step_by(end / 40 + 1) {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        std::fs::write(&journal, &bad).expect("damage");
        let Err(error) = Identities::open(directory.path(), AMPLE) else { continue };
        refused += 1;
        assert_eq!(error.kind(), Kind::Unavailable);
        let text = error.to_string();
        let path = directory.path().display().to_string();
        for part in [&path, "is damaged", "Restore the directory", "rebuilt from the log"] {
            assert!(text.contains(part), "{place}: {text}");
        }
    }
    assert!(refused > 10, "{refused}");
    std::fs::write(&journal, &good).expect("the journal as it was");
    assert_eq!(open(directory.path()).applied_sequence(), 20);
}

#[tokio::test]
async fn waiting_ends_when_the_record_is_applied_or_the_time_is_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    identities.wait_applied(0, Duration::ZERO).await.expect("is there");
    let late = identities.wait_applied(1, Duration::from_millis(1)).await.expect_err("is not");
    assert_eq!(late.kind(), Kind::Timeout);
    let waiting = identities.wait_applied(1, Duration::from_secs(60));
    let applying = async { identities.apply(&[record(1, Vec::new())]) };
    let (waited, applied) = tokio::join!(waiting, applying);
    waited.expect("is there");
    assert_eq!(applied.expect("applies").sequence, 1);
}

/// Goal: a view is consistent, also while the writer works. Method: a chain of merges, in which at
/// any moment every id belongs to one person that lists it.
#[test]
fn views_are_consistent() {
    const LENGTH: usize = 300;
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let project = PROJECTS[0];
    let ids: Vec<_> = (0..LENGTH).map(|i| format!("id{i}")).collect();
    let touches = ids.iter().map(|id| op(id, OpKind::Touch)).collect();
    identities.apply(&[record(1, touches)]).expect("applies");
    let check = |round: usize| {
        let view = identities.view();
        let id = &ids[round * 7 % LENGTH];
        let person = view.person_of(project, id).expect("reads").expect("a person");
        let listed = view.distinct_ids(project, person.uuid).expect("reads");
        assert!(listed.contains(id));
        let merged = view.applied_sequence().expect("reads") - 1;
        let count = view.person_count(project).expect("reads");
        assert_eq!(count + merged, u64::try_from(LENGTH).expect("small"));
        let mut scanned = 0;
        let visit = |_, _| {
            scanned += 1;
            ControlFlow::Continue(())
        };
        view.scan_distinct_ids(project, visit).expect("scans");
        assert_eq!(scanned, LENGTH);
        let applied = identities.applied_sequence();
        let overrides = identities.overrides().entries().expect("reads").len();
        let overrides = u64::try_from(overrides).expect("small");
        assert!(overrides + 1 >= applied, "overrides are there when the sequence is");
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for (sequence, pair) in (2..).zip(ids.windows(2)) {
                let ops = vec![merge(&pair[1], &pair[0])];
                identities.apply(&[record(sequence, ops)]).expect("applies");
            }
        });
        let mut round = 0;
        while !writer.is_finished() {
            check(round);
            round += 1;
        }
        check(0);
        println!("{round} checks beside the writer");
    });
}

/// Goal: a failed database can be reopened while it has readers. They drop it, and later readers
/// see the same state. Method: reopen it in the middle of a scan.
#[test]
fn a_state_is_reopened_under_its_readers() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let (project, uuid) = (PROJECTS[0], uuid_of(PROJECTS[0], "b"));
    let first = vec![op("a", OpKind::Touch), op("b", OpKind::Touch), merge("c", "d")];
    identities.apply(&[record(1, first)]).expect("applies");
    let (mut watch, before) = identities.watch(Watched::Persons);
    let overrides = identities.overrides();
    std::thread::scope(|scope| {
        let (mut reopening, mut seen) = (None, 0);
        let scanned = before.scan_persons(project, |_| {
            seen += 1;
            reopening.get_or_insert_with(|| scope.spawn(|| identities.reopen()));
            while !matches!(identities.view().next_number(), Err(IdentityError::Reopening)) {
                std::thread::yield_now();
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(scanned, Err(IdentityError::Reopening)), "{scanned:?}");
        assert_eq!(seen, 1);
        reopening.expect("begun").join().expect("ends").expect("opens");
    });
    let merged = overrides.get(project, uuid_of(project, "d")).expect("is in memory");
    assert_eq!(merged, Some(uuid_of(project, "c")));
    let read = before.person_of(project, "a");
    assert!(matches!(read, Err(IdentityError::Reopening)), "{read:?}");
    assert_eq!(identities.applied_sequence(), 1);
    assert_eq!(identities.view().person_count(project).expect("reads"), 3);
    let applied = identities.apply(&[record(2, vec![merge("a", "b")])]).expect("applies");
    assert_eq!(applied.sequence, 2);
    assert_eq!(
        identities.overrides().get(project, uuid).expect("reads"),
        Some(uuid_of(project, "a"))
    );
    let (view, changed) = watch.changes().expect("reads");
    let number = view.person_of(project, "a").expect("reads").expect("a").number;
    assert_eq!(changed.count(&((project, number)..(project, number + 1))), 1);
    assert_eq!(identities.persist().expect("syncs"), 2);
}

/// Prints the cost of an op; asserts only that the cache stays within its limit.
#[test]
fn costs() {
    const OPS: u64 = 100_000;
    let directory = tempfile::tempdir().expect("a directory");
    let limits = Limits { ids_bytes: 16 << 20, ..AMPLE };
    let identities = Identities::open(directory.path(), limits).expect("opens");
    let mut sequence = 0;
    let mut run = |name: &str, make: &dyn Fn(u64) -> Op| {
        let records: Vec<_> = (0..OPS / 500)
            .map(|batch| {
                sequence += 1;
                record(sequence, (batch * 500..(batch + 1) * 500).map(make).collect())
            })
            .collect();
        let started = Instant::now();
        for record in &records {
            identities.apply(std::slice::from_ref(record)).expect("applies");
        }
        let nanos = started.elapsed().as_nanos() / u128::from(OPS);
        println!("{name}: {nanos} ns per op in records of 500");
    };
    let id = |i: u64| format!("018f3b6c-0000-7000-8000-{i:012}");
    let update = |i: u64, noise: u64, plan: u64| {
        let set = json!({"$os": noise, "plan": plan, "email": format!("user{i}@example.com")});
        let Value::Object(set) = set else { panic!("an object") };
        let occasion = Occasion::OtherEvent;
        op(&id(i % 1000), OpKind::Update(Update { set, occasion, ..Update::default() }))
    };
    run("create", &|i| op(&id(i), OpKind::Touch));
    run("touch known", &|i| op(&id(i), OpKind::Touch));
    run("touch 1,000 known", &|i| op(&id(i % 1000), OpKind::Touch));
    run("update 1,000 persons", &|i| update(i % 1000, 1, i / 1000));
    run("update, no change", &|i| update(i % 1000, 1, 99));
    run("update, noise", &|i| update(i % 1000, i, 99));
    run("merge", &|i| merge(&id(i), &format!("user{i}")));
    let view = identities.view();
    let started = Instant::now();
    let mut page = Vec::new();
    let visit = |number| {
        page.push(number);
        if page.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    view.scan_listed(PROJECTS[0], UnixMicros(i64::MAX), visit).expect("scans");
    for number in &page {
        view.person_by_number(PROJECTS[0], *number).expect("reads").expect("a person");
    }
    println!("the first {} persons of a list: {:?}", page.len(), started.elapsed());
    let started = Instant::now();
    let (mut seen, mut found) = (0, 0);
    let email = Key::new("email");
    let visit = |row: &Row<'_>| {
        seen += 1;
        found += usize::from(row.property(&email) == Some("\"user7@example.com\""));
        Ok(ControlFlow::Continue(()))
    };
    view.scan_rows(PROJECTS[0], 1..i64::MAX, visit).expect("scans");
    println!("{found} of {seen} persons by their email: {:?}", started.elapsed());
    let (entries, bytes) = identities.ids_memory();
    println!("{entries} known ids in {bytes} bytes");
    assert!(bytes <= 16 << 20);
}

/// Goal: a database of a later format is not taken for a damaged one, which would be moved away.
#[test]
fn a_newer_database_is_told_from_a_damaged_one() {
    for (marker, is_newer) in [(&b"FJL\x04"[..], true), (b"FJL\x09", true), (b"FJX\x04", false)] {
        let directory = tempfile::tempdir().expect("a directory");
        drop(open(directory.path()));
        std::fs::write(directory.path().join(super::DATABASE_FORMAT), marker).expect("writes");
        let refused = Identities::open(directory.path(), AMPLE).expect_err("refuses");
        assert_eq!(refused.is_of_newer(), is_newer, "{marker:?}: {refused:?}");
        let told = refused.to_string();
        assert_eq!(told.contains("made by a newer Weir"), is_newer, "{told}");
        assert_eq!(told.contains("damaged"), !is_newer, "{told}");
    }
}
