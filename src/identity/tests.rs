//! The store as a whole: against a model, through replays, restarts and power cuts.

#![expect(clippy::disallowed_methods, reason = "the benchmark reads the clock of the machine")]

mod effects;
mod model;
mod sequences;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use proptest::prelude::Just;
use proptest::prelude::Strategy;
use proptest::prelude::any;
use proptest::prop_oneof;
use proptest::test_runner::Config;
use proptest::test_runner::TestRunner;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::error::Kind;
use crate::event::id::ProjectId;
use crate::identity::change::Force;
use crate::identity::change::Keep;
use crate::identity::change::Occasion;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Record;
use crate::identity::change::Update;
use crate::identity::change::Warning;
use crate::identity::lifted;
use crate::identity::lifted::Names;
use crate::identity::person::Person;
use crate::identity::store::Applied;
use crate::identity::store::Identities;
use crate::identity::store::Limits;
use crate::identity::tests::model::Model;
use crate::identity::tests::model::uuid_of;

const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];
const IDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "null", "Anonymous"];
const TYPES: [&str; 7] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6"];
const GROUP_KEYS: [&str; 2] = ["g", "h"];
const AMPLE: Limits = Limits { ids_bytes: 1 << 20, rows_bytes: 1 << 20, blocks_bytes: 1 << 20 };
const NO_CACHE: Limits = Limits { ids_bytes: 0, rows_bytes: 0, blocks_bytes: 0 };

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
        let visit = |person: Person, ids: Vec<String>| {
            together.push((person, ids));
            ControlFlow::Continue(())
        };
        view.scan_persons_with_ids(project, visit).expect("scans");
        let mut listed = Vec::new();
        let visit = |number| {
            listed.push(number);
            ControlFlow::Continue(())
        };
        view.scan_listed(project, UnixMicros(i64::MAX), visit).expect("scans");
        let mut by_place = expected.clone();
        by_place.sort_by_key(|person| std::cmp::Reverse((person.created_at, person.uuid)));
        assert_eq!(listed, by_place.iter().map(|person| person.number).collect::<Vec<_>>());
        for person in &expected {
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
        let pairs = expected.into_iter().map(|person| {
            let ids = model.ids_of(person.number);
            (person, ids)
        });
        assert_eq!(together, pairs.collect::<Vec<_>>());
        assert_groups(identities, model, project);
    }
    let overrides: BTreeMap<_, _> = identities.overrides().iter().collect();
    assert_eq!(overrides, model.overrides());
    assert_eq!(identities.overrides().len(), overrides.len());
    for (project, gone) in overrides.keys() {
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

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        (0..3_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!({"nested": [1, {"$serde_json::private::RawValue": 5}]})),
        "\\PC{0,3}".prop_map(Value::from),
    ]
}

fn objects() -> impl Strategy<Value = Map<String, Value>> {
    let keys = prop_oneof![Just("$os"), Just("x"), Just("y"), Just("z")];
    proptest::collection::btree_map(keys.prop_map(str::to_owned), values(), 0..3)
        .prop_map(|object| object.into_iter().collect())
}

fn updates() -> impl Strategy<Value = Update> {
    let unset = proptest::collection::vec(prop_oneof![Just("x"), Just("y")], 0..2);
    let occasion = prop_oneof![
        4 => Just(Occasion::PersonEvent),
        4 => Just(Occasion::OtherEvent),
        1 => Just(Occasion::Creation),
    ];
    let lifted = proptest::option::of((values(), any::<bool>(), any::<bool>()));
    (objects(), objects(), unset, lifted, occasion).prop_map(
        |(set, set_once, unset, lifted, occasion)| {
            // What the sender says itself is not lifted.
            const NAMES: Names = ("$os", "z");
            let lifted = lifted.and_then(|(value, sets, sets_once)| {
                let sets = sets && !set.contains_key(NAMES.0);
                let sets_once = sets_once && !set_once.contains_key(NAMES.1);
                lifted::tests::lifted(&[(&NAMES, sets, sets_once, value)])
            });
            Update {
                set,
                set_once,
                unset: unset.into_iter().map(str::to_owned).collect(),
                lifted: [lifted, None],
                occasion,
            }
        },
    )
}

fn one_of(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    (0..names.len()).prop_map(|index| names[index].to_owned())
}

fn keeps() -> impl Strategy<Value = Keep> {
    prop_oneof![
        Just(Keep::Own),
        one_of(&IDS).prop_map(Keep::One),
        proptest::collection::vec(one_of(&IDS), 0..3).prop_map(Keep::AllBut),
    ]
}

fn kinds() -> impl Strategy<Value = OpKind> {
    let force = prop_oneof![3 => Just(Force::No), 1 => Just(Force::Yes)];
    let types = proptest::collection::vec(one_of(&TYPES), 0..3);
    prop_oneof![
        3 => Just(OpKind::Touch),
        3 => Just(OpKind::Personless),
        4 => updates().prop_map(OpKind::Update),
        1 => updates().prop_map(OpKind::UpdateExisting),
        // Of the first project: in the other there is no such person.
        2 => (one_of(&IDS), keeps()).prop_map(|(id, keep)| {
            OpKind::Split { person: uuid_of(PROJECTS[0], &id), keep }
        }),
        6 => (one_of(&IDS), force, updates()).prop_map(|(other, force, update)| {
            // A merge is always said outright.
            let update = Update { occasion: Occasion::PersonEvent, ..update };
            OpKind::Merge { other, force, update }
        }),
        1 => (one_of(&TYPES), one_of(&GROUP_KEYS), objects())
            .prop_map(|(group_type, key, set)| OpKind::GroupUpdate { group_type, key, set }),
        1 => types.prop_map(OpKind::GroupTypes),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let op = (one_of(&IDS), any::<u128>(), 0..100_i64, kinds()).prop_map(
        |(distinct_id, event_id, time, kind)| Op {
            distinct_id,
            event_id: Uuid::from_u128(event_id),
            timestamp: UnixMicros(time),
            kind,
        },
    );
    let record = (0..2_usize, 1..3_u64, proptest::collection::vec(op, 0..4));
    proptest::collection::vec(record, 1..25).prop_map(|records| {
        let mut sequence = 0;
        let numbered = records.into_iter().map(|(project, step, ops)| {
            sequence += step;
            Record { sequence, project: PROJECTS[project], ops }
        });
        numbered.collect()
    })
}

/// What happens between two calls of `apply`.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Restart,
    Flush,
}

/// Goal: the state and the warnings are those of the model, however the records are cut into calls,
/// whatever is cached, and with restarts, flushes and replays between the calls.
#[test]
fn equals_the_model_for_any_batching_and_with_restarts() {
    let mut runner =
        TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let between = prop_oneof![Just(Between::Nothing), Just(Between::Restart), Just(Between::Flush)];
    let cuts = proptest::collection::vec((1..6_usize, between, 0..3_usize), 1..8);
    let cases = (records(), cuts, prop_oneof![Just(AMPLE), Just(NO_CACHE)]);
    runner
        .run(&cases, |(records, cuts, limits)| {
            let directory = tempfile::tempdir().expect("a directory");
            let open = || Identities::open(directory.path(), limits).expect("opens");
            let (mut identities, mut model) = (open(), Model::default());
            let mut warnings = Vec::new();
            let (mut done, mut cuts) = (0, cuts.iter().cycle());
            while done < records.len() {
                let (take, between, replay) = cuts.next().expect("endless");
                let end = records.len().min(done + take);
                let from = done.saturating_sub(*replay);
                let applied = identities.apply(&records[from..end]).expect("applies");
                warnings.extend(applied.warnings);
                records[done..end].iter().for_each(|record| model.feed(record));
                assert_eq!(applied.sequence, model.applied);
                match between {
                    Between::Nothing => {}
                    Between::Flush => identities.flush().expect("flushes"),
                    Between::Restart => {
                        drop(identities);
                        identities = open();
                    }
                }
                done = end;
            }
            assert_eq!(warnings, model.warnings);
            assert_same(&identities, &model);
            Ok(())
        })
        .expect("equal");
}

/// Goal: after a power cut that loses any tail of what was written, rows and applied sequence are
/// those of one moment. Method: cut the database's journal at many lengths.
#[test]
fn every_cut_of_the_journal_leaves_a_state_that_was_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let set = |value: u64| {
        let set = json!({"x": value, "long": "z".repeat(40)});
        let Value::Object(set) = set else { panic!("an object") };
        OpKind::Update(Update { set, ..Update::default() })
    };
    let mut records = Vec::new();
    for sequence in 1..30 {
        let id = IDS[usize::try_from(sequence).expect("small") % 6];
        let mut ops = vec![op(id, set(sequence)), op("f", OpKind::Touch)];
        if sequence % 5 == 0 {
            ops.push(merge("a", id));
        }
        records.push(record(sequence, ops));
    }
    let identities = open(directory.path());
    let mut moments = vec![Model::default()];
    for record in &records {
        identities.apply(std::slice::from_ref(record)).expect("applies");
        let mut next = moments.last().expect("one").clone();
        next.feed(record);
        moments.push(next);
    }
    drop(identities);
    let (journal, length) = journal(directory.path());
    let mut seen = Vec::new();
    for part in 0..=24 {
        let copy = tempfile::tempdir().expect("a directory");
        copy_tree(directory.path(), copy.path());
        let cut = fs::File::options().write(true).open(copy.path().join(&journal));
        let cut = cut.expect("a journal");
        // What was lost reads as zeros, as in a file that was allocated ahead.
        cut.set_len(length * part / 24).expect("cuts");
        cut.set_len(length + 4096).expect("extends");
        let identities = open(copy.path());
        let applied = usize::try_from(identities.applied_sequence()).expect("small");
        assert_same(&identities, &moments[applied]);
        identities.apply(&records).expect("replays");
        assert_same(&identities, moments.last().expect("one"));
        seen.push(applied);
    }
    assert!(seen.is_sorted() && seen.first() == Some(&0) && seen.last() == Some(&29), "{seen:?}");
    seen.dedup();
    assert!(seen.len() > 15, "{seen:?}");
}

/// The journal's path within the directory, and its length without the zeros at its end.
fn journal(directory: &Path) -> (std::path::PathBuf, u64) {
    let mut found: Vec<_> = files(directory)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .collect();
    let path = found.pop().expect("a journal");
    assert!(found.is_empty());
    let bytes = fs::read(directory.join(&path)).expect("reads");
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    (path, u64::try_from(length).expect("small"))
}

fn files(root: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("lists") {
            let entry = entry.expect("lists");
            if entry.file_type().expect("a type").is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(root).expect("within").to_path_buf());
            }
        }
    }
    found
}

/// Copies all files, without the zeros at the ends of journals.
fn copy_tree(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().expect("a parent")).expect("creates");
        let mut bytes = fs::read(from.join(&file)).expect("reads");
        if file.extension().is_some_and(|extension| extension == "jnl") {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end);
        }
        fs::write(target, bytes).expect("writes");
    }
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
        assert_eq!([a, b, c, new].map(|uuid| overrides.resolve(project, uuid)), [c; 4]);
        assert_eq!(overrides.get(project, c), None);
        assert_eq!(overrides.resolve(PROJECTS[1], a), a);
        assert_eq!(overrides.len(), 3);
        let ids = identities.distinct_ids(project, c).expect("reads");
        assert_eq!(ids, ["a", "b", "c", "new"]);
    };
    check(&identities);
    assert!(before.is_empty(), "a version that a reader holds does not change");
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
    let person = identities.person_of(PROJECTS[0], "a").expect("reads");
    let again = identities.apply(&records).expect("applies");
    assert_eq!(again, Applied { sequence: 19, warnings: Vec::<Warning>::new() });
    assert_eq!(first.sequence, 19);
    assert_eq!(identities.person_of(PROJECTS[0], "a").expect("reads"), person);
    assert_eq!(identities.persist().expect("syncs"), 19);
    assert_eq!(identities.apply(&[]).expect("applies").sequence, 19);
    assert_eq!(identities.person_count(PROJECTS[0]).expect("reads"), 1);
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
    assert_eq!(identities.person_count(PROJECTS[0]).expect("reads"), 2);
}

#[test]
fn a_state_is_open_once_and_of_one_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let second = Identities::open(directory.path(), AMPLE).expect_err("locked");
    assert_eq!(second.kind(), Kind::Unavailable);
    drop(identities);
    let database = fjall::Database::builder(directory.path()).open().expect("opens");
    let meta = database.keyspace("meta", fjall::KeyspaceCreateOptions::default).expect("opens");
    meta.insert("format", 9_u64.to_be_bytes()).expect("writes");
    drop((meta, database));
    let other = Identities::open(directory.path(), AMPLE).expect_err("refuses");
    assert_eq!(other.to_string(), "identity state has format 9, this version reads 1");
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

/// Goal: a view is of one moment, also while the writer works. Method: a chain of merges, in which
/// at any moment every id belongs to one person that lists it.
#[test]
fn readers_see_whole_moments() {
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
        let overrides = u64::try_from(identities.overrides().len()).expect("small");
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

/// Prints what an op costs; asserts only that the cache stays within its limit.
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
    let wanted = |_, json: &str| {
        seen += 1;
        json.contains("\"email\":\"user7@example.com\"")
    };
    let visit = |_| {
        found += 1;
        ControlFlow::Continue(())
    };
    view.scan_persons_where(PROJECTS[0], wanted, visit).expect("scans");
    println!("{found} of {seen} persons by their email: {:?}", started.elapsed());
    let (entries, bytes) = identities.ids_memory();
    println!("{entries} known ids in {bytes} bytes");
    assert!(bytes <= 16 << 20);
}
