//! Reopens of the state at an earlier record, as after a full disk: readers never see an
//! inconsistent state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{PROJECTS, merge, op, open, record};
use crate::IdentityError;
use crate::change::{Extent, OpKind, Record};
use crate::store::Identities;
use crate::tests::model::uuid_of;

/// Two states after the same records, the second of which is closed.
fn twins(records: &[Record]) -> (tempfile::TempDir, Identities, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let saved = directory.path().join("saved");
    let identities = open(&saved);
    identities.apply(records).expect("applies");
    identities.persist().expect("syncs");
    drop(identities);
    let identities = open(&directory.path().join("state"));
    identities.apply(records).expect("applies");
    (directory, identities, saved)
}

/// Goal: overrides are as of the record that the state went back to, and not returned to readers
/// that saw the lost records.
#[test]
fn overrides_of_lost_records_are_evicted() {
    let (project, [a, b, c]) = (PROJECTS[0], ["a", "b", "c"].map(|id| uuid_of(PROJECTS[0], id)));
    let (_directory, identities, saved) =
        twins(&[record(1, vec![merge("a", "b"), op("c", OpKind::Touch)])]);
    let later = [record(2, vec![merge("c", "a")])];
    identities.apply(&later).expect("applies");
    let lost = identities.overrides();
    assert_eq!(lost.get(project, b).expect("reads"), Some(c));
    identities.fall_back_to(&saved).expect("opens again");
    assert_eq!(identities.overrides().get(project, b).expect("reads"), Some(a));
    assert_eq!(identities.overrides().get(project, a).expect("reads"), None);
    let late = lost.get(project, b);
    assert!(matches!(late, Err(IdentityError::Reopening)), "{late:?}");
    identities.apply(&later).expect("applies");
    assert_eq!(identities.overrides().get(project, b).expect("reads"), Some(c));
}

/// Goal: deletions and their record match, also while the state goes back.
#[test]
fn deletions_match_their_record() {
    let (_directory, identities, saved) = twins(&[record(1, vec![op("a", OpKind::Touch)])]);
    let person = uuid_of(PROJECTS[0], "a");
    let deletion = record(2, vec![op("", OpKind::Delete { person, extent: Extent::Events })]);
    let deletion = std::slice::from_ref(&deletion);
    let (ends, seen) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    // Waits until the reader has read once.
    let is_seen = |requests: usize| {
        let before = seen[requests].load(Ordering::Relaxed);
        while seen[requests].load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let (applied, deletions) = identities.deletions_as_of();
                let requests = deletions.requests();
                let fits = requests == usize::from(applied == 2);
                seen[requests].fetch_add(1, Ordering::Relaxed);
                if !fits {
                    return false;
                }
            }
            true
        });
        is_seen(0);
        identities.apply(deletion).expect("applies");
        is_seen(1);
        identities.fall_back_to(&saved).expect("opens again");
        is_seen(0);
        identities.apply(deletion).expect("applies");
        is_seen(1);
        ends.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("ends"), "they agree");
    });
}
