//! Random histories against the model, with replays, restarts and power cuts.

use std::fs;
use std::path::Path;

use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    AMPLE, GROUP_KEYS, IDS, NO_CACHE, PARTS, PROJECTS, TYPES, assert_same, merge, op, open, record,
};
use crate::auto_set;
use crate::change::{Force, GroupChange, Keep, Occasion, Op, OpKind, Record, Update};
use crate::store::Identities;
use crate::tests::model::{Model, uuid_of};
use weir_base::clock::UnixMicros;
use weir_event::auto_set::Names;

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
    let auto_set = proptest::option::of((values(), any::<bool>(), any::<bool>()));
    (objects(), objects(), unset, auto_set, occasion).prop_map(
        |(set, set_once, unset, auto_set, occasion)| {
            // Keys that the sender sets itself are not auto-set.
            const NAMES: Names = ("$os", "z");
            let auto_set = auto_set.and_then(|(value, sets, sets_once)| {
                let sets = sets && !set.contains_key(NAMES.0);
                let sets_once = sets_once && !set_once.contains_key(NAMES.1);
                auto_set::tests::auto_set(&[(&NAMES, sets, sets_once, value)])
            });
            Update {
                set,
                set_once,
                unset: unset.into_iter().map(str::to_owned).collect(),
                auto_set: [auto_set, None],
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
        // Of the first project: the other one has no such person.
        2 => (one_of(&IDS), keeps()).prop_map(|(id, keep)| {
            OpKind::Split { person: uuid_of(PROJECTS[0], &id), keep }
        }),
        6 => (one_of(&IDS), force, updates()).prop_map(|(other, force, update)| {
            // A merge event is always a person event.
            let update = Update { occasion: Occasion::PersonEvent, ..update };
            OpKind::Merge { other, force, update }
        }),
        1 => (one_of(&TYPES), one_of(&GROUP_KEYS), objects())
            .prop_map(|(group_type, key, set)| OpKind::GroupUpdate { group_type, key, set }),
        1 => (one_of(&TYPES), one_of(&GROUP_KEYS), any::<bool>(), objects(), objects())
            .prop_map(|(group_type, key, is_new, set, gone)| {
                let unset = gone.into_iter().map(|(key, _)| key).collect();
                OpKind::ChangeGroup(GroupChange { group_type, key, is_new, set, unset })
            }),
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

/// Goal: state and warnings equal the model, however the records are split into calls, whatever is
/// cached, and with restarts, flushes and replays between the calls.
#[test]
fn equals_the_model_for_any_batching_and_with_restarts() {
    let mut runner =
        TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let between = prop_oneof![Just(Between::Nothing), Just(Between::Restart), Just(Between::Flush)];
    let cuts = proptest::collection::vec((1..6_usize, between, 0..3_usize), 1..8);
    let limits = prop_oneof![Just(AMPLE), Just(NO_CACHE), Just(PARTS)];
    let cases = (records(), cuts, limits);
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

/// Goal: after a power cut that loses any tail of the writes, rows and applied sequence are
/// consistent. Method: truncate the database's journal at many lengths.
#[test]
fn every_cut_of_the_journal_leaves_a_consistent_state() {
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
        // The lost part reads as zeros, as in a preallocated file.
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

/// Goal: the same if the process ends in the middle of a record: the replay continues there, and no
/// op is applied twice or skipped.
#[test]
fn replay_continues_after_every_cut_within_a_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut records = Vec::new();
    for sequence in 1..10 {
        let ops = (0..IDS.len()).map(|number| match (number + sequence) % 3 {
            0 => op(IDS[number], OpKind::Touch),
            1 => merge(IDS[number], &format!("{sequence}")),
            _ => merge("a", IDS[number]),
        });
        records.push(record(u64::try_from(sequence).expect("small"), ops.collect()));
    }
    let mut model = Model::default();
    records.iter().for_each(|record| model.feed(record));
    let parts = |directory: &Path| Identities::open(directory, PARTS).expect("opens");
    let identities = parts(directory.path());
    let warnings = identities.apply(&records).expect("applies").warnings;
    assert_eq!(warnings, model.warnings);
    assert_same(&identities, &model);
    drop(identities);
    let (journal, length) = journal(directory.path());
    let mut within = 0;
    for cut in 0..=40 {
        let copy = tempfile::tempdir().expect("a directory");
        copy_tree(directory.path(), copy.path());
        let file = fs::File::options().write(true).open(copy.path().join(&journal));
        let file = file.expect("a journal");
        file.set_len(length * cut / 40).expect("cuts");
        file.set_len(length + 4096).expect("extends");
        let identities = parts(copy.path());
        let counters = identities.view().counters().expect("reads");
        within += usize::from(counters.progress.ops > 0);
        // The other warnings were returned before the cut.
        let rest = identities.apply(&records).expect("replays").warnings;
        assert!(warnings.ends_with(&rest));
        assert_same(&identities, &model);
    }
    assert!(within > 20, "{within} cuts are within a record");
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

pub(super) fn files(root: &Path) -> Vec<std::path::PathBuf> {
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
