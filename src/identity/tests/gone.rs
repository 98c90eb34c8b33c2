//! Deleted projects: later ops have no effect, rows are removed at leisure, other projects are as they would be.

use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{AMPLE, PARTS, PROJECTS, op, open};
use crate::change::{Op, OpKind, Record, Update};
use crate::change_feed::Watched;
use crate::deletions::Origin;
use crate::limits::Limits;
use crate::store::Identities;
use crate::tests::sequences::sequence;
use weir_base::clock::UnixMicros;

const AT: UnixMicros = UnixMicros(9);

fn gone(sequence: u64) -> Record {
    Record { sequence, project: PROJECTS[1], ops: vec![op("", OpKind::DeleteProject)] }
}

/// Records of both projects in turn, with groups, and the deletion of the second project at a place.
fn records(seed: u64, deleted_at: usize) -> Vec<Record> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut all, mut next) = (Vec::new(), 0);
    for round in 0..6 {
        if round == deleted_at {
            next += 1;
            all.push(gone(next));
        }
        for project in PROJECTS {
            let mut new = sequence(&mut random, project, next);
            next += u64::try_from(new.len()).expect("few");
            let key = format!("group {round}");
            let set = serde_json::Map::new();
            let kind = OpKind::GroupUpdate { group_type: "company".to_owned(), key, set };
            new[0].ops.push(op("", kind));
            all.append(&mut new);
        }
    }
    all
}

/// The rows of a state whose keys are of a project.
fn rows_of(identities: &Identities, number: i64) -> Vec<[Vec<u8>; 2]> {
    let prefix = number.to_be_bytes();
    let dump = identities.tables().expect("open").dump().expect("rows");
    let of = |key: &[u8]| {
        key.starts_with(&prefix)
            || ["types/", "count/", "split/", "deleting/"].iter().any(|name| {
                key.strip_prefix(name.as_bytes()).is_some_and(|key| key.starts_with(&prefix))
            })
    };
    dump.into_iter().filter(|[key, _]| of(key)).collect()
}

fn apply(directory: &Path, limits: Limits, records: &[Record]) -> Identities {
    let identities = Identities::open(directory, limits).expect("opens");
    identities.apply(records).expect("applies");
    identities
}

/// Goal: with and without removals at any time, after replays and restarts, the other project has the same rows, numbers
/// included, and the deleted one has none. The oracle is a state in which nothing was removed before the end.
#[test]
fn removal_changes_nothing_else() {
    for seed in 0..20_u64 {
        let records = records(seed, usize::try_from(seed % 6).expect("small"));
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let expected = apply(&path("expected"), AMPLE, &records);
        let other = rows_of(&expected, 1);
        assert!(!other.is_empty() && expected.has_deleted(PROJECTS[1]));
        for (name, limits) in [("ample", AMPLE), ("parts", PARTS)] {
            let mut identities = Identities::open(&path(name), limits).expect("opens");
            for (index, record) in records.iter().enumerate() {
                identities.apply(std::slice::from_ref(record)).expect("applies");
                match index % 4 {
                    // Interrupted before the end.
                    1 => drop(identities.purge_projects(|| false).expect("purges")),
                    2 => assert!(identities.purge_projects(|| true).expect("purges")),
                    3 => {
                        drop(identities);
                        identities = Identities::open(&path(name), limits).expect("opens again");
                    }
                    _ => {}
                }
                if identities.has_deleted(PROJECTS[1]) && index % 4 == 2 {
                    assert_eq!(rows_of(&identities, 2), [] as [[Vec<u8>; 2]; 0], "{name} {index}");
                }
            }
            assert!(identities.purge_projects(|| true).expect("purges"));
            assert_eq!(rows_of(&identities, 2), [] as [[Vec<u8>; 2]; 0], "{name} {seed}");
            assert_eq!(rows_of(&identities, 1), other, "{name} {seed}");
            let counters = |identities: &Identities| identities.view().counters().expect("read");
            assert_eq!(counters(&identities), counters(&expected), "{name} {seed}");
            // A replay from the beginning, as after the loss of the store.
            identities.apply(&records).expect("skips");
            assert_eq!(rows_of(&identities, 2), [] as [[Vec<u8>; 2]; 0], "{name} {seed}");
        }
    }
}

#[test]
fn all_events_of_a_deleted_project_are_deleted_until_it_is_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let touch = |project, sequence| Record { sequence, project, ops: vec![op("a", OpKind::Touch)] };
    let identities = open(directory.path());
    let [first, second] = PROJECTS;
    identities.apply(&[touch(first, 1), touch(second, 2)]).expect("applies");
    assert!(identities.deletions().is_empty() && !identities.has_deleted(second));
    identities.apply(&[gone(3), touch(second, 4), gone(5)]).expect("applies");
    let check = |identities: &Identities| {
        let deletions = identities.deletions();
        assert_eq!((deletions.requests(), deletions.newest()), (1, 3));
        assert!(deletions.concerns(second) && !deletions.concerns(first));
        for origin in [Origin::Log(1), Origin::Log(9), Origin::Received(UnixMicros(i64::MAX))] {
            assert!(deletions.is_deleted(second, "whoever", origin));
            assert!(!deletions.is_deleted(first, "a", origin));
        }
        assert!(identities.has_deleted(second));
    };
    check(&identities);
    assert_eq!(identities.finish_deletions(9, AT).expect("none"), 0, "there are rows");
    check(&identities);
    assert!(identities.purge_projects(|| true).expect("purges"));
    assert_eq!(identities.finish_deletions(2, AT).expect("none"), 0, "not in files");
    drop(identities);
    let identities = open(directory.path());
    check(&identities);
    assert_eq!(identities.finish_deletions(3, AT).expect("done"), 1);
    drop(identities);
    for sequence in [6, 7] {
        let identities = open(directory.path());
        assert!(identities.deletions().is_empty());
        assert!(identities.has_deleted(second), "for ever");
        identities.apply(&[touch(second, sequence)]).expect("applies");
        assert_eq!(identities.view().person_of(second, "a").expect("reads"), None);
        assert!(identities.view().person_of(first, "a").expect("reads").is_some());
    }
}

/// Goal: requests for persons of the project end with it, and those of others stay.
#[test]
fn requests_of_a_deleted_project_go_with_it() {
    use crate::change::Extent;
    use crate::tests::model::uuid_of;

    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let delete = |project, sequence| {
        let kind = OpKind::Delete { person: uuid_of(project, "a"), extent: Extent::Both };
        Record { sequence, project, ops: vec![op("a", OpKind::Touch), op("", kind)] }
    };
    identities.apply(&[delete(PROJECTS[0], 1), delete(PROJECTS[1], 2), gone(3)]).expect("applies");
    assert_eq!(identities.deletions().requests(), 3);
    assert!(identities.purge_projects(|| true).expect("purges"));
    drop(identities);
    let identities = open(directory.path());
    assert_eq!(identities.deletions().requests(), 2);
    assert_eq!(identities.finish_deletions(9, AT).expect("done"), 2);
    assert!(identities.deletions().is_empty());
}

/// Goal: a copy of all persons hears of those that were removed.
#[test]
fn readers_of_all_persons_hear_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let (mut feed, _) = identities.watch(Watched::Persons);
    let touch = |id: &str| -> Op { op(id, OpKind::Update(Update::default())) };
    let of = |sequence, project| Record { sequence, project, ops: vec![touch("a"), touch("b")] };
    identities.apply(&[of(1, PROJECTS[0]), of(2, PROJECTS[1])]).expect("applies");
    feed.changes().expect("reads");
    identities.apply(&[gone(3)]).expect("applies");
    assert!(identities.purge_projects(|| true).expect("purges"));
    let (view, changed) = feed.changes().expect("reads");
    for (place, expected) in
        [((PROJECTS[0], 1), false), ((PROJECTS[1], 3), true), ((PROJECTS[1], 4), true)]
    {
        assert_eq!(changed.contains(place), expected, "{place:?}");
    }
    assert_eq!(view.person_by_number(PROJECTS[1], 3).expect("reads"), None);
}
