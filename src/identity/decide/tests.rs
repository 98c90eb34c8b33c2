//! All rules of creation, update and merge as tables. Expectations are written by hand from
//! descriptions of PostHog's behaviour.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::group::{GROUP_TYPES_MAX, TypeSlot, merge_group, type_slot};
use super::{
    Change, Decision, NOISE, PROPERTIES_MAX_BYTES, State, decide, json_bytes, object_bytes_max,
};
use crate::auto_set;
use crate::change::{Force, Occasion, Op, OpKind, Update, WarningKind};
use crate::person::Person;
use weir_base::clock::UnixMicros;
use weir_event::auto_set::Names;
use weir_event::id::{PersonId, ProjectId};

const PROJECT: ProjectId = ProjectId(1);
const EVENT: Uuid = Uuid::from_u128(0xe);
const NOW: UnixMicros = UnixMicros(1000);

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value} is no object") };
    object
}

fn update(set: Value, set_once: Value, unset: &[&str]) -> Update {
    Update {
        set: object(set),
        set_once: object(set_once),
        unset: unset.iter().map(|key| (*key).to_owned()).collect(),
        auto_set: [None, None],
        occasion: Occasion::PersonEvent,
    }
}

fn op(distinct_id: &str, kind: OpKind) -> Op {
    Op { distinct_id: distinct_id.to_owned(), event_id: EVENT, timestamp: NOW, kind }
}

fn merge(distinct_id: &str, other: &str, force: Force) -> Op {
    let update = update(json!({"new": 1}), json!({}), &[]);
    op(distinct_id, OpKind::Merge { other: other.to_owned(), force, update })
}

fn person(number: i64, properties: Value) -> Person {
    Person {
        number,
        uuid: Uuid::from_u128(u128::try_from(number).expect("positive")),
        created_at: UnixMicros(100 * number),
        properties: object(properties),
        is_identified: false,
        version: 10,
        changed_sequence: 1,
    }
}

/// The properties after a revision; None if nothing changes.
fn revised(current: &Person, decision: &Decision<'_>) -> Option<Value> {
    match &decision.change {
        Change::Nothing => None,
        Change::Update(revision) => {
            let mut properties = current.properties.clone();
            revision.properties.clone().apply(&mut properties);
            Some(Value::Object(properties))
        }
        change => panic!("{change:?} is no revision"),
    }
}

#[test]
fn any_personful_event_creates_a_person() {
    let given = update(
        json!({"a": 1, "both": "set", "$creator_event_uuid": 0}),
        json!({"b": null, "both": "once"}),
        &["a", "x"],
    );
    let created =
        json!({"a": 1, "b": null, "both": "set", "$creator_event_uuid": EVENT.to_string()});
    for (kind, properties) in [
        (OpKind::Touch, json!({"$creator_event_uuid": EVENT.to_string()})),
        (OpKind::Update(given), created),
    ] {
        for state in [State::Unknown, State::Personless] {
            let op = op("user1", kind.clone());
            let decision = decide(PROJECT, &op, state, State::Unknown);
            let Change::Create(creation) = decision.change else { panic!("{kind:?} creates") };
            assert_eq!(creation.uuid.to_string(), "7846de25-11f3-5d27-9b1c-fde22d29cf31");
            assert_eq!((creation.primary, creation.secondary), ("user1", None));
            assert_eq!(creation.created_at, NOW);
            assert!(!creation.is_identified);
            assert_eq!(Value::Object(creation.properties), properties);
            assert_eq!(decision.warnings, []);
        }
    }
}

#[test]
fn personless_events_are_remembered_only_without_a_person() {
    let op = op("a", OpKind::Personless);
    let someone = person(1, json!({}));
    let change = |state| decide(PROJECT, &op, state, State::Unknown).change;
    assert_eq!(change(State::Unknown), Change::RememberPersonless);
    assert_eq!(change(State::Personless), Change::Nothing);
    assert_eq!(change(State::Known(&someone)), Change::Nothing);
}

/// Updates that apply only to a new person; updates that apply only to an existing person.
#[test]
fn some_events_only_create_and_some_only_change() {
    let given = update(json!({"a": 2}), json!({"b": 2}), &["c"]);
    let someone = person(1, json!({"a": 1, "c": 1}));
    let creation = Update { occasion: Occasion::Creation, ..given.clone() };
    let exception = op("a", OpKind::Update(creation));
    let decision = decide(PROJECT, &exception, State::Known(&someone), State::Unknown);
    assert_eq!(decision.change, Change::Nothing);
    let decision = decide(PROJECT, &exception, State::Personless, State::Unknown);
    let Change::Create(created) = decision.change else { panic!("creates") };
    let expected = json!({"a": 2, "b": 2, "$creator_event_uuid": EVENT.to_string()});
    assert_eq!(Value::Object(created.properties), expected);

    let check = op("a", OpKind::UpdateExisting(given));
    let change = |state| decide(PROJECT, &check, state, State::Unknown).change;
    assert_eq!(change(State::Unknown), Change::RememberPersonless);
    assert_eq!(change(State::Personless), Change::Nothing);
    let decision = decide(PROJECT, &check, State::Known(&someone), State::Unknown);
    assert_eq!(revised(&someone, &decision), Some(json!({"a": 2, "b": 2})));
}

/// Rows: properties, the auto-set property, `$set`, `$set_once`, properties after or null.
#[test]
fn auto_set_properties_are_set_and_set_once() {
    const NAMES: Names = ("plan", "$initial_plan");
    let property = |key: bool, initial: bool, value: Value| {
        auto_set::tests::auto_set(&[(&NAMES, key, initial, value)])
    };
    for (before, auto_set, set, once, after) in [
        (
            json!({}),
            property(true, true, json!("x")),
            json!({}),
            json!({}),
            json!({"plan": "x", "$initial_plan": "x"}),
        ),
        (
            json!({"plan": "w", "$initial_plan": "w"}),
            property(true, true, json!("x")),
            json!({}),
            json!({}),
            json!({"plan": "x", "$initial_plan": "w"}),
        ),
        (
            json!({}),
            property(true, false, json!(null)),
            json!({}),
            json!({}),
            json!({"plan": null}),
        ),
        // `$set` wins over `$set_once`, whichever of them is auto-set.
        (
            json!({}),
            property(true, true, json!("x")),
            json!({"$initial_plan": "own"}),
            json!({"plan": "once"}),
            json!({"plan": "x", "$initial_plan": "own"}),
        ),
        (
            json!({"plan": "x", "$initial_plan": "x"}),
            property(true, true, json!("x")),
            json!({}),
            json!({}),
            json!(null),
        ),
    ] {
        let someone = person(1, before.clone());
        let given = Update { auto_set: [auto_set.clone(), None], ..update(set, once, &[]) };
        let op = op("a", OpKind::Update(given));
        let decision = decide(PROJECT, &op, State::Known(&someone), State::Unknown);
        let after = Some(after).filter(|after| !after.is_null());
        assert_eq!(revised(&someone, &decision), after, "{before} {auto_set:?}");
    }
}

#[test]
fn touching_a_person_changes_nothing() {
    let someone = person(1, json!({}));
    let op = op("a", OpKind::Touch);
    let decision = decide(PROJECT, &op, State::Known(&someone), State::Unknown);
    assert_eq!(decision.change, Change::Nothing);
}

/// Rows: properties, `$set`, `$set_once`, `$unset`, properties after or null for no change.
#[test]
fn updates_follow_the_precedence() {
    for (before, set, once, unset, after) in [
        // $set: when the value differs.
        (json!({}), json!({"a": 1}), json!({}), vec![], json!({"a": 1})),
        (json!({"a": 1}), json!({"a": 2}), json!({}), vec![], json!({"a": 2})),
        (json!({"a": 1}), json!({"a": 1}), json!({}), vec![], json!(null)),
        (json!({"a": 1}), json!({"a": "1"}), json!({}), vec![], json!({"a": "1"})),
        (json!({"a": 1}), json!({"a": null}), json!({}), vec![], json!({"a": null})),
        (json!({}), json!({"a": null}), json!({}), vec![], json!({"a": null})),
        // Shallow.
        (json!({"a": {"x": 1}}), json!({"a": {"y": 2}}), json!({}), vec![], json!({"a": {"y": 2}})),
        // $set_once: when the key is missing, or null and the new value is not.
        (json!({}), json!({}), json!({"a": 1}), vec![], json!({"a": 1})),
        (json!({"a": 1}), json!({}), json!({"a": 2}), vec![], json!(null)),
        (json!({"a": null}), json!({}), json!({"a": 2}), vec![], json!({"a": 2})),
        (json!({"a": null}), json!({}), json!({"a": null}), vec![], json!(null)),
        (json!({}), json!({}), json!({"a": null}), vec![], json!({"a": null})),
        (json!({"a": false}), json!({}), json!({"a": 2}), vec![], json!(null)),
        // $set beats $set_once.
        (json!({}), json!({"a": 1}), json!({"a": 2}), vec![], json!({"a": 1})),
        (json!({"a": null}), json!({"a": null}), json!({"a": 2}), vec![], json!(null)),
        // $unset: keys that existed before, after $set.
        (json!({"a": 1, "b": 2}), json!({}), json!({}), vec!["a"], json!({"b": 2})),
        (json!({"a": 1}), json!({}), json!({}), vec!["x"], json!(null)),
        (json!({"a": 1}), json!({"a": 2}), json!({}), vec!["a"], json!({})),
        (json!({}), json!({"a": 2}), json!({}), vec!["a"], json!({"a": 2})),
        (json!({"a": null}), json!({}), json!({"a": 2}), vec!["a"], json!({})),
    ] {
        let row = format!("{before} {set} {once} {unset:?}");
        let current = person(1, before);
        let op = op("a", OpKind::Update(update(set, once, &unset)));
        let decision = decide(PROJECT, &op, State::Known(&current), State::Unknown);
        assert_eq!(revised(&current, &decision).unwrap_or(Value::Null), after, "{row}");
        assert_eq!(decision.warnings, [], "{row}");
    }
}

/// Rows: `$set`, `$set_once`, `$unset`, whether another event than a person event writes.
#[test]
fn noise_alone_is_not_written() {
    let current = person(1, json!({"$os": "Linux", "$browser": "A", "plan": "free"}));
    for (set, once, unset, is_written) in [
        (json!({"$os": "Mac"}), json!({}), vec![], false),
        (json!({"$os": "Mac", "$browser": "B"}), json!({"plan": "x"}), vec![], false),
        (json!({"$os": "Mac", "plan": "pro"}), json!({}), vec![], true),
        (json!({"$os_version": "1"}), json!({}), vec![], true),
        (json!({"$os": "Mac"}), json!({"new": 1}), vec![], true),
        (json!({"$os": "Mac"}), json!({}), vec!["plan"], true),
        (json!({"$geoip_city_name": "Bern"}), json!({}), vec![], true),
    ] {
        let row = format!("{set} {once} {unset:?}");
        for (occasion, expected) in
            [(Occasion::PersonEvent, true), (Occasion::OtherEvent, is_written)]
        {
            let update = Update { occasion, ..update(set.clone(), once.clone(), &unset) };
            let op = op("a", OpKind::Update(update));
            let decision = decide(PROJECT, &op, State::Known(&current), State::Unknown);
            assert_eq!(decision.change != Change::Nothing, expected, "{occasion:?} {row}");
        }
    }
    for key in ["$geoip_country_name", "$geoip_city_name", "$app_version"] {
        assert!(!NOISE.contains(&key), "{key}");
    }
}

#[test]
fn merging_an_id_with_itself_is_an_ordinary_event() {
    let current = person(1, json!({}));
    let op = merge("a", "a", Force::No);
    let Change::Update(revision) =
        decide(PROJECT, &op, State::Known(&current), State::Known(&current)).change
    else {
        panic!("updates")
    };
    assert!(!revision.identify);
    let Change::Create(creation) = decide(PROJECT, &op, State::Unknown, State::Unknown).change
    else {
        panic!("creates")
    };
    assert!(!creation.is_identified);
    assert_eq!(creation.secondary, None);
}

#[test]
fn illegal_ids_are_not_merged_and_have_persons() {
    let anon = person(2, json!({}));
    for (target, other) in [("null", "anon"), ("user1", "null"), ("undefined", "Guest")] {
        let op = merge(target, other, Force::Yes);
        let decision = decide(PROJECT, &op, State::Unknown, State::Known(&anon));
        assert_eq!(decision.warnings, [WarningKind::IllegalDistinctId]);
        let Change::Create(creation) = decision.change else { panic!("creates") };
        assert_eq!((creation.primary, creation.secondary), (target, None));
        assert!(!creation.is_identified);
        assert_eq!(creation.properties.get("new"), Some(&json!(1)));
    }
}

/// One side has a person: the id without a person is attached to the other's.
#[test]
fn merging_with_an_id_without_person_attaches_it() {
    let someone = person(3, json!({}));
    for nobody in [State::Unknown, State::Personless] {
        for (target, other, attached) in
            [(State::Known(&someone), nobody, "anon"), (nobody, State::Known(&someone), "user1")]
        {
            let op = merge("user1", "anon", Force::No);
            let decision = decide(PROJECT, &op, target, other);
            let Change::Update(revision) = &decision.change else { panic!("updates") };
            assert_eq!(revision.person, 3);
            assert_eq!(revision.attach, Some(attached));
            assert!(revision.identify);
            assert_eq!(revised(&someone, &decision), Some(json!({"new": 1})));
            assert_eq!(decision.warnings, []);
        }
    }
}

/// One side has a person that is identified and gains an id: not rejected.
#[test]
fn an_identified_person_gains_ids_without_force() {
    let identified = Person { is_identified: true, ..person(3, json!({"new": 1})) };
    let op = merge("user1", "anon", Force::No);
    let decision = decide(PROJECT, &op, State::Unknown, State::Known(&identified));
    let Change::Update(revision) = decision.change else { panic!("updates") };
    assert_eq!((revision.attach, revision.identify), (Some("user1"), false));
    assert!(revision.properties.is_empty());
    assert_eq!(decision.warnings, []);
}

/// No side has a person. Rows: state of target and other, the id that the uuid is made from, the
/// other one.
#[test]
fn merging_two_ids_without_persons_creates_one() {
    for (target, other, primary, secondary) in [
        (State::Unknown, State::Unknown, "user1", "anon"),
        (State::Personless, State::Unknown, "user1", "anon"),
        (State::Personless, State::Personless, "user1", "anon"),
        (State::Unknown, State::Personless, "anon", "user1"),
    ] {
        let op = merge("user1", "anon", Force::No);
        let Change::Create(creation) = decide(PROJECT, &op, target, other).change else {
            panic!("creates")
        };
        assert_eq!((creation.primary, creation.secondary), (primary, Some(secondary)));
        assert_eq!(creation.uuid, PersonId::of(PROJECT, primary).0);
        assert!(creation.is_identified);
        assert_eq!(creation.created_at, NOW);
        let expected = json!({"new": 1, "$creator_event_uuid": EVENT.to_string()});
        assert_eq!(Value::Object(creation.properties), expected);
    }
}

/// Both sides have the same person.
#[test]
fn merging_a_person_with_itself_identifies_it() {
    let someone = person(3, json!({}));
    let op = merge("user1", "anon", Force::No);
    let decision = decide(PROJECT, &op, State::Known(&someone), State::Known(&someone));
    let Change::Update(revision) = decision.change else { panic!("updates") };
    assert_eq!((revision.person, revision.attach, revision.identify), (3, None, true));
}

/// Two persons. Rows: target identified, source identified, forced, whether it merges.
#[test]
fn only_an_identified_source_is_refused_and_only_without_force() {
    for (target_identified, source_identified, force, is_merged) in [
        (false, false, Force::No, true),
        (true, false, Force::No, true),
        (false, true, Force::No, false),
        (true, true, Force::No, false),
        (false, true, Force::Yes, true),
        (true, true, Force::Yes, true),
        (false, false, Force::Yes, true),
    ] {
        let row = format!("{target_identified} {source_identified} {force:?}");
        let properties = json!({"t": 1, "both": "target", "null": null});
        let target =
            Person { is_identified: target_identified, version: 4, ..person(7, properties) };
        let properties = json!({"s": 1, "both": "source", "null": 5});
        let source = Person { is_identified: source_identified, ..person(2, properties) };
        let op = merge("user1", "anon", force);
        let decision = decide(PROJECT, &op, State::Known(&target), State::Known(&source));
        match decision.change {
            Change::Merge(merger) => {
                assert!(is_merged, "{row}");
                assert_eq!((merger.target, merger.source), (7, 2));
                assert_eq!(merger.created_at, UnixMicros(200));
                assert_eq!(merger.version, 11);
                let expected = json!({"t": 1, "s": 1, "both": "target", "null": null, "new": 1});
                assert_eq!(Value::Object(merger.properties), expected);
                assert_eq!(decision.warnings, []);
            }
            Change::Update(revision) => {
                assert!(!is_merged, "{row}");
                assert_eq!((revision.person, revision.attach), (7, None));
                assert_eq!(revision.identify, !target_identified);
                assert!(!revision.properties.is_empty());
                assert_eq!(decision.warnings, [WarningKind::AlreadyIdentified]);
            }
            change => panic!("{row}: {change:?}"),
        }
    }
}

/// The event's changes apply to the merged properties.
#[test]
fn a_merging_event_updates_the_merged_person() {
    let target = person(1, json!({"t": 1}));
    let source = person(2, json!({"s": 1, "gone": 1}));
    let update = update(json!({"t": 2}), json!({"s": 9, "fresh": 1}), &["gone", "fresh"]);
    let op = op("a", OpKind::Merge { other: "b".to_owned(), force: Force::No, update });
    let decision = decide(PROJECT, &op, State::Known(&target), State::Known(&source));
    let Change::Merge(merger) = decision.change else { panic!("merges") };
    let expected = json!({"t": 2, "s": 1, "fresh": 1});
    assert_eq!(Value::Object(merger.properties), expected);
}

#[test]
fn persons_do_not_grow_beyond_the_limit() {
    let huge = "x".repeat(PROPERTIES_MAX_BYTES);
    let half = "x".repeat(PROPERTIES_MAX_BYTES / 2);
    let set = |text: &str| OpKind::Update(update(json!({"b": text}), json!({}), &[]));
    let someone = person(1, json!({"a": half}));

    let too_large = op("a", set(&half));
    let decision = decide(PROJECT, &too_large, State::Known(&someone), State::Unknown);
    assert_eq!(decision.change, Change::Nothing);
    assert_eq!(decision.warnings, [WarningKind::PropertiesTooLarge]);

    let fits = op("a", set("small"));
    let decision = decide(PROJECT, &fits, State::Known(&someone), State::Unknown);
    assert!(matches!(decision.change, Change::Update(_)));

    let instead =
        op("a", OpKind::Update(update(json!({"a": half.replace('x', "y")}), json!({}), &[])));
    let decision = decide(PROJECT, &instead, State::Known(&someone), State::Unknown);
    assert!(matches!(decision.change, Change::Update(_)), "the value it replaces does not count");

    let creating = op("a", set(&huge));
    let decision = decide(PROJECT, &creating, State::Unknown, State::Unknown);
    let Change::Create(creation) = decision.change else { panic!("creates") };
    assert_eq!(creation.properties.len(), 1);
    assert_eq!(decision.warnings, [WarningKind::PropertiesTooLarge]);

    let other = person(2, json!({"b": half}));
    let merging = merge("a", "b", Force::No);
    let decision = decide(PROJECT, &merging, State::Known(&someone), State::Known(&other));
    let Change::Merge(merger) = decision.change else { panic!("merges") };
    assert_eq!(merger.properties, someone.properties);
    assert_eq!(decision.warnings, [WarningKind::PropertiesTooLarge]);
}

#[test]
fn group_types_get_indexes_in_order_of_sight() {
    let mut types = Vec::new();
    for (name, slot) in [
        ("company", TypeSlot::New(0)),
        ("company", TypeSlot::Known(0)),
        ("", TypeSlot::None),
        ("team", TypeSlot::New(1)),
        ("a", TypeSlot::New(2)),
        ("b", TypeSlot::New(3)),
        ("c", TypeSlot::New(4)),
        ("d", TypeSlot::None),
        ("c", TypeSlot::Known(4)),
        ("team", TypeSlot::Known(1)),
    ] {
        assert_eq!(type_slot(&types, name), slot, "{name}");
        if matches!(slot, TypeSlot::New(_)) {
            types.push(name.to_owned());
        }
    }
    assert_eq!(types.len(), GROUP_TYPES_MAX);
    assert_eq!(type_slot(&[], &"é".repeat(400)), TypeSlot::New(0));
    assert_eq!(type_slot(&[], &"é".repeat(401)), TypeSlot::None);
}

#[test]
fn groups_merge_shallowly_and_within_the_limit() {
    let mut group = object(json!({"a": {"x": 1}, "b": 1}));
    assert!(merge_group(&mut group, &object(json!({"a": {"y": 1}, "c": null})), &[]));
    assert_eq!(Value::Object(group.clone()), json!({"a": {"y": 1}, "b": 1, "c": null}));
    let huge = object(json!({"a": "x".repeat(PROPERTIES_MAX_BYTES)}));
    assert!(!merge_group(&mut group, &huge, &[]));
    assert_eq!(group.get("a"), Some(&json!({"y": 1})));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    #[test]
    fn no_json_is_longer_than_its_bound(
        texts in proptest::collection::vec(proptest::prelude::any::<String>(), 0..5),
        number in proptest::prelude::any::<f64>(),
        whole in proptest::prelude::any::<i64>(),
    ) {
        let mut object = Map::new();
        for text in &texts {
            let value = json!([text, number, {"whole": whole}, null, true, {text.as_str(): text}]);
            object.insert(text.clone(), value);
            object.insert(format!("{text}\u{1}\u{1}\u{1}"), json!("\u{1}\u{1f}\u{0}"));
        }
        proptest::prop_assert!(json_bytes(&object) <= object_bytes_max(&object));
    }
}
