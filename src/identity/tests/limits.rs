//! Limits on the work of one record and on memory.

use super::*;
use crate::change::{Extent, Keep, OPERATION_MAX_IDS, WarningKind};

fn ids(identities: &Identities, id: &str) -> usize {
    let view = identities.view();
    let person = view.person_of(PROJECTS[0], id).expect("reads").expect("a person");
    view.distinct_ids(PROJECTS[0], person.uuid).expect("reads").len()
}

fn kinds(applied: &Applied) -> Vec<WarningKind> {
    applied.warnings.iter().map(|warning| warning.kind).collect()
}

/// Goal: a person with very many ids is not merged away, whether its rows are stored or new. The
/// rest of the event is applied, and other persons can be merged into it.
#[test]
fn a_person_with_too_many_ids_stays() {
    for is_stored in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let identities = open(directory.path());
        let many = (0..10_000).map(|number| merge("many", &format!("id-{number}"))).collect();
        let mut into = merge("few", "many");
        let OpKind::Merge { update, .. } = &mut into.kind else { unreachable!("it is a merge") };
        update.set.insert("plan".to_owned(), json!("pro"));
        let after = vec![op("few", OpKind::Touch), into, merge("many", "few")];
        let records = [record(1, many), record(2, after)];
        let (first, second) = records.split_at(if is_stored { 1 } else { 2 });
        assert_eq!(kinds(&identities.apply(first).expect("applies")).is_empty(), is_stored);
        let applied = identities.apply(second).expect("applies");
        assert_eq!(kinds(&applied).is_empty(), !is_stored);
        if is_stored {
            assert_eq!(kinds(&applied), [WarningKind::TooManyIds]);
        }
        let few = identities.view().person_of(PROJECTS[0], "few").unwrap().expect("a person");
        assert_eq!(few.properties["plan"], "pro", "stored: {is_stored}");
        assert!(few.is_identified);
        assert_eq!(ids(&identities, "id-0"), 10_002, "it took the other in");
    }
}

/// Goal: a person with very many ids is neither deleted nor split, which would need memory for all
/// of them at once.
#[test]
fn a_person_with_too_many_ids_is_not_operated_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let person = uuid_of(PROJECTS[0], "many");
    let merges = |ids: std::ops::Range<usize>| {
        ids.map(|number| merge("many", &format!("id-{number}"))).collect()
    };
    identities.apply(&[record(1, merges(0..OPERATION_MAX_IDS))]).expect("applies");
    let operations = || {
        let extents = [Extent::Events, Extent::Both].into_iter();
        let deletions = extents.map(|extent| OpKind::Delete { person, extent });
        let split = OpKind::Split { person, keep: Keep::AllBut(vec!["id-7".to_owned()]) };
        std::iter::once(split).chain(deletions).map(|kind| op("", kind)).collect()
    };
    let applied = identities.apply(&[record(2, operations())]).expect("applies");
    assert_eq!(kinds(&applied), [WarningKind::TooManyIds; 3]);
    let number = identities.view().person_by_uuid(PROJECTS[0], person).unwrap().unwrap().number;
    let most = OPERATION_MAX_IDS + 1;
    let count = |most| identities.view().count_ids(PROJECTS[0], number, most).expect("counts");
    assert_eq!((count(usize::MAX), count(most), count(5)), (most, most, 5));
    assert!(identities.deletions().is_empty());
    // The uuid made from a merged id names no person.
    let other = OpKind::Delete { person: uuid_of(PROJECTS[0], "id-7"), extent: Extent::Both };
    let applied = identities.apply(&[record(3, vec![op("", other)])]).expect("applies");
    assert_eq!(kinds(&applied), [WarningKind::PersonGone], "it is the same person");
}

/// Goal: persons that are created and deleted one by one leave nothing in memory. Of a person that
/// others were merged into, the ids are remembered.
#[test]
fn deletions_of_persons_with_one_id_leave_no_splits() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let delete = |id: &str| {
        let person = uuid_of(PROJECTS[0], id);
        op("", OpKind::Delete { person, extent: Extent::Person })
    };
    let both = vec![op("a", OpKind::Touch), delete("a"), op("a", OpKind::Touch)];
    identities.apply(&[record(1, both)]).expect("applies");
    assert!(!identities.overrides().has_splits(PROJECTS[0]));
    identities.apply(&[record(2, vec![merge("a", "b"), delete("a")])]).expect("applies");
    assert!(identities.overrides().has_splits(PROJECTS[0]));
}

/// Goal: a chain of merges, each of which moves all previous ids, is limited within one record, and
/// merges continue with the next record.
#[test]
fn a_chain_of_merges_is_bounded_by_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let many = (0..5000).map(|number| merge("0", &format!("id-{number}"))).collect();
    identities.apply(&[record(1, many)]).expect("applies");
    let step = |number: u32| {
        let (next, last) = ((number + 1).to_string(), number.to_string());
        [op(&next, OpKind::Touch), merge(&next, &last)]
    };
    let applied =
        identities.apply(&[record(2, (0..60).flat_map(step).collect())]).expect("applies");
    let refused = kinds(&applied).len();
    assert!((1..60).contains(&refused), "{refused} of 60 are refused");
    assert_eq!(identities.view().person_count(PROJECTS[0]).expect("reads"), 1 + refused as u64);
    let next = vec![op("last", OpKind::Touch), merge("last", "id-0")];
    let applied = identities.apply(&[record(3, next)]).expect("applies");
    assert_eq!(kinds(&applied), []);
    assert_eq!(ids(&identities, "last"), ids(&identities, "id-0"));
}

/// Goal: records that need much memory are applied in several batches, and completely.
#[test]
fn records_about_large_persons_are_applied_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = Identities::open(directory.path(), NO_CACHE).expect("opens");
    let text = "x".repeat(600 << 10);
    let say = |sequence: u64, value: &str| {
        let set = json!({"text": text, "last": value}).as_object().expect("an object").clone();
        let kind = OpKind::Update(Update { set, ..Update::default() });
        record(sequence, vec![op(&format!("p{}", sequence % 150), kind)])
    };
    let first: Vec<Record> = (1..=150).map(|sequence| say(sequence, "first")).collect();
    identities.apply(&first).expect("applies");
    let second: Vec<Record> = (151..=300).map(|sequence| say(sequence, "second")).collect();
    let applied = identities.apply(&second).expect("applies");
    assert_eq!((applied.sequence, identities.applied_sequence()), (300, 300));
    for number in 0..150 {
        let person = identities.view().person_of(PROJECTS[0], &format!("p{number}"));
        assert_eq!(person.unwrap().expect("a person").properties["last"], "second");
    }
}
