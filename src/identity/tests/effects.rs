//! Effects of operators' operations, as passed to `note` before they are committed.

use super::*;
use crate::change::{Difference, Done, Effect, Extent, GroupChange, Keep, PersonDone, WarningKind};
use crate::deletions::Deletion;

fn set(distinct_id: &str, set: Value) -> Op {
    op(distinct_id, OpKind::Update(update(set, &[])))
}

fn update(set: Value, unset: &[&str]) -> Update {
    let set = set.as_object().expect("an object").clone();
    let unset = unset.iter().map(|key| (*key).to_owned()).collect();
    Update { set, unset, ..Update::default() }
}

fn change(id: &str, set: Value, unset: &[&str]) -> Op {
    let person = uuid_of(PROJECTS[0], id);
    op("", OpKind::Change { person, update: update(set, unset) })
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// Goal: every effect contains the previous values, and only of what changed.
#[test]
fn effects_are_what_operations_did() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let split = |keep| op("", OpKind::Split { person: uuid_of(PROJECTS[0], "a"), keep });
    let delete =
        |id| op("", OpKind::Delete { person: uuid_of(PROJECTS[0], id), extent: Extent::Person });
    let first = [set("a", json!({"plan": "free", "age": 4})), merge("a", "b"), merge("a", "c")];
    let ops = [
        change("a", json!({"plan": "pro", "age": 4, "new": null}), &["age", "nothing"]),
        change("a", json!({"plan": "pro"}), &[]),
        change("nobody", json!({"plan": "pro"}), &[]),
        set("a", json!({"plan": "team"})),
        split(Keep::AllBut(vec!["b".to_owned()])),
        split(Keep::One("nobody".to_owned())),
        delete("a"),
        delete("a"),
    ];
    let records = [record(1, first.to_vec()), record(2, ops.to_vec())];
    let mut told = Vec::new();
    let note = |effects: &[Effect]| {
        told.extend_from_slice(effects);
        true
    };
    identities.apply_noting(&records, note, drop).expect("applies");
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let (before, after) =
        (object(json!({"plan": "free", "age": 4})), object(json!({"plan": "pro", "new": null})));
    let expected = [
        PersonDone::Changed(Difference { before, after }),
        PersonDone::Split { before: ids(&["a", "b", "c"]), after: ids(&["a", "c"]) },
        PersonDone::Deleted { extent: Extent::Person, distinct_ids: ids(&["a", "c"]) },
    ];
    let uuid = uuid_of(PROJECTS[0], "a");
    let expected = expected.map(|done| Done::Person { number: 1, uuid, done });
    assert_eq!(told.iter().map(|effect| effect.done.clone()).collect::<Vec<_>>(), expected);
    assert!(told.iter().all(|effect| (effect.project, effect.sequence) == (PROJECTS[0], 2)));
    let again = |_: &[Effect]| -> bool { panic!("it was told already") };
    identities.apply_noting(&records, again, drop).expect("skips");
}

/// Goal: groups are created and changed as expected, and an operation without a change has no effect.
#[test]
fn groups_are_made_and_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    let groups = |key: &str, is_new: bool, set: Value, unset: &[&str]| {
        let unset = unset.iter().map(|key| (*key).to_owned()).collect();
        let (group_type, key) = ("company".to_owned(), key.to_owned());
        let change = GroupChange { group_type, key, is_new, set: object(set), unset };
        op("", OpKind::ChangeGroup(change))
    };
    let plan = |plan: &str| json!({"plan": plan});
    let long = "x".repeat(401);
    let records = [
        // The type does not exist yet.
        record(1, vec![groups("acme", true, plan("free"), &[])]),
        record(2, vec![op("", OpKind::GroupTypes(vec!["team".into(), "company".into()]))]),
        record(
            3,
            vec![
                groups("acme", false, plan("none"), &[]),
                groups("acme", true, plan("free"), &[]),
                groups("acme", true, plan("again"), &[]),
                groups("acme", false, json!({"plan": "pro", "seats": 3}), &["nothing"]),
                groups("acme", false, plan("pro"), &["nothing"]),
                groups("acme", false, json!({}), &["plan"]),
                groups(&long, true, plan("free"), &[]),
                groups("large", true, json!({"a": "x".repeat(700_000)}), &[]),
            ],
        ),
    ];
    let mut told = Vec::new();
    let note = |effects: &[Effect]| {
        told.extend_from_slice(effects);
        true
    };
    let mut kinds = Vec::new();
    identities.apply_noting(&records, note, |warning| kinds.push(warning.kind)).expect("applies");
    assert_eq!(kinds, [WarningKind::PropertiesTooLarge]);
    assert!(told.iter().all(|effect| effect.sequence == 3), "{told:?}");
    let done = |is_new: bool, before: Value, after: Value| Done::Group {
        type_index: 1,
        key: "acme".to_owned(),
        is_new,
        properties: Difference { before: object(before), after: object(after) },
    };
    assert_eq!(
        told.iter().map(|effect| effect.done.clone()).collect::<Vec<_>>(),
        [
            done(true, json!({}), plan("free")),
            done(false, plan("free"), json!({"plan": "pro", "seats": 3})),
            done(false, plan("pro"), json!({})),
        ]
    );
    let group = identities.group(PROJECTS[0], 1, "acme").expect("reads").expect("a group");
    assert_eq!(group.properties, object(json!({"seats": 3})));
    for key in ["large", long.as_str()] {
        assert_eq!(identities.group(PROJECTS[0], 1, key).expect("reads"), None);
    }
}

/// Goal: an effect that is not recorded is not applied, and is passed again unchanged, as after a crash.
#[test]
fn effects_that_are_not_recorded_are_not_applied() {
    let directory = tempfile::tempdir().expect("a directory");
    let identities = open(directory.path());
    identities.apply(&[record(1, vec![set("a", json!({"plan": "free"}))])]).expect("applies");
    let records =
        [record(2, vec![op("b", OpKind::Touch), change("a", json!({"plan": "pro"}), &[])])];
    let mut told = Vec::new();
    for is_noted in [false, false, true] {
        let note = |effects: &[Effect]| {
            told.push(effects.to_vec());
            is_noted
        };
        let applied = identities.apply_noting(&records, note, drop);
        assert_eq!(applied.is_ok(), is_noted);
        let plan = identities.view().person_of(PROJECTS[0], "a").expect("reads").expect("a");
        assert_eq!(plan.properties["plan"], if is_noted { "pro" } else { "free" });
        let b = identities.view().person_of(PROJECTS[0], "b").expect("reads");
        assert_eq!(
            (b.is_some(), identities.applied_sequence()),
            (is_noted, 1 + u64::from(is_noted))
        );
    }
    assert!(told.len() == 3 && told[0] == told[1] && told[1] == told[2], "{told:?}");
}

/// Goal: an effect has the same index, and so the same entry, whether its record is applied at once
/// or in parts. The events that it deletes are marked with the same index.
#[test]
fn effects_have_their_places_in_any_parts() {
    let delete =
        |id| op("", OpKind::Delete { person: uuid_of(PROJECTS[0], id), extent: Extent::Events });
    let first = record(1, ["a", "b"].map(|id| op(id, OpKind::Touch)).to_vec());
    let ops = [change("a", json!({"x": 1}), &[]), delete("a"), delete("nobody"), delete("b")];
    let second = record(2, ops.to_vec());
    let mut all = Vec::new();
    for limits in [AMPLE, PARTS] {
        let directory = tempfile::tempdir().expect("a directory");
        let identities = Identities::open(directory.path(), limits).expect("opens");
        let (mut told, mut calls) = (Vec::new(), 0);
        let note = |effects: &[Effect]| {
            told.extend_from_slice(effects);
            calls += 1;
            true
        };
        identities.apply_noting(&[first.clone(), second.clone()], note, drop).expect("applies");
        assert_eq!(calls, if limits.part_bytes == 1 { 3 } else { 1 });
        assert_eq!(told.iter().map(|effect| effect.place).collect::<Vec<_>>(), [0, 1, 2]);
        let mut persons = Vec::new();
        let visit = |deletion: Deletion| {
            persons.push(deletion.person);
            ControlFlow::Continue(())
        };
        identities.view().scan_deletions(PROJECTS[0], visit).expect("scans");
        assert_eq!(persons, ["b", "a"].map(|id| uuid_of(PROJECTS[0], id)));
        all.push(told);
    }
    assert_eq!(all[0], all[1]);
}
