//! Activity log entries for operators' operations on persons and groups.
//!
//! The entry of a person deletion has no properties, only the fact, the user and the time: after a
//! deletion nothing of the person's data is to remain.

use std::collections::HashSet;

use serde_json::{Value, json};
use uuid::Uuid;

use weir_base::clock::UnixMicros;
use weir_event::id::{PersonId, ProjectId};
use weir_identity::change::{Difference, Done, Effect, PersonDone};
use weir_metadata::accounts::UserId;
use weir_metadata::activity::{Change, Elsewhere, Forgotten, Scope, Verb, diff};
use weir_storage::wal::Sequence;

/// Namespace of the ids of entries, drawn at random once for this purpose.
const NAMESPACE: Uuid = Uuid::from_u128(0x8c40_31f7_6d5b_4d0e_b1a9_2f63_e07c_94d5);

/// The activity entries of `effects`; `user_of` maps a log sequence to the user of that operation.
/// Deterministic: the same effects give the same entries.
pub(super) fn entries(
    effects: &[Effect],
    user_of: impl Fn(u64) -> Option<UserId>,
) -> Vec<Elsewhere> {
    let mut entries = Vec::with_capacity(effects.len());
    for effect in effects {
        let (project, at, place) = (effect.project, effect.at, effect.place);
        entries.push(Elsewhere {
            id: entry_id(project, at, effect.sequence, place),
            project,
            user: user_of(effect.sequence),
            at,
            change: change(effect),
            forgotten: forgotten(effect),
        });
    }
    entries
}

/// What the metadata store has to delete with a person: the cascade of a person deletion.
fn forgotten(effect: &Effect) -> Option<Forgotten> {
    match &effect.done {
        Done::Person { uuid, done: PersonDone::Deleted { extent, distinct_ids }, .. }
            if extent.has_person() =>
        {
            let merged = distinct_ids.iter().map(|id| PersonId::of(effect.project, id).0);
            let uuids = merged.chain([*uuid]).collect();
            Some(Forgotten { uuids, distinct_ids: distinct_ids.clone() })
        }
        _ => None,
    }
}

/// Ids of the activity entries of an operation with this sequence that was requested at `at`, if each
/// of its `persons` has one. If some persons no longer existed, fewer entries exist, and only the
/// first ids are in use.
pub fn entry_ids(
    project: ProjectId,
    at: UnixMicros,
    sequence: Sequence,
    persons: usize,
) -> Vec<Uuid> {
    (0..).take(persons).map(|place| entry_id(project, at, sequence.0, place)).collect()
}

/// Id of the activity entry of the effect at index `place` among those of the record with `sequence`.
fn entry_id(project: ProjectId, at: UnixMicros, sequence: u64, place: u32) -> Uuid {
    let name = format!("{project}:{sequence}:{place}:{}", at.0);
    Uuid::new_v5(&NAMESPACE, name.as_bytes())
}

fn change(effect: &Effect) -> Change {
    match &effect.done {
        Done::Person { number, uuid, done } => of_person(*number, uuid.to_string(), done),
        Done::Group { type_index, key, is_new, properties } => {
            of_group(*type_index, key, *is_new, properties)
        }
    }
}

/// As in PostHog: a change of one property is named by the property, and each property is a field.
fn of_group(
    type_index: u8,
    key: &str,
    is_new: bool,
    Difference { before, after }: &Difference,
) -> Change {
    let mut names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let (verb, name) = match (names.next(), names.next()) {
        _ if is_new => (Verb::CreateGroup, key),
        (Some(name), None) if before.is_empty() => (Verb::CreateProperty, name.as_str()),
        (Some(name), None) => (Verb::UpdateProperty, name.as_str()),
        _ => (Verb::UpdateProperty, key),
    };
    let fields = diff(Scope::Group, before, after);
    let item = group_item(type_index, key);
    Change { scope: Scope::Group, item, verb, name: name.to_owned(), fields }
}

/// Item id of a group in the activity log: the index of its type, and its key.
pub fn group_item(type_index: u8, key: &str) -> String {
    format!("{type_index}:{key}")
}

fn of_person(number: i64, uuid: String, done: &PersonDone) -> Change {
    let field = |action: &str, field: Option<&str>, before: Value, after: Value| {
        vec![json!({
            "type": Scope::Person.name(),
            "action": action,
            "field": field,
            "before": before,
            "after": after,
        })]
    };
    let (verb, name, fields) = match done {
        PersonDone::Changed(Difference { before, after }) => {
            let (before, after) = (Value::from(before.clone()), Value::from(after.clone()));
            let is_removal = after == json!({});
            let fields = field("changed", Some("properties"), before, after);
            match is_removal {
                true => (Verb::DeleteProperty, uuid, fields),
                false => (Verb::Updated, String::new(), fields),
            }
        }
        PersonDone::Split { before, after } => {
            let kept: HashSet<&String> = after.iter().collect();
            let left: Vec<&String> = before.iter().filter(|id| !kept.contains(id)).collect();
            let (before, after) = (
                json!({"distinct_ids": before}),
                // As in PostHog: all ids before the split, and the ids that were split off.
                json!({"distinct_ids": before, "distinct_ids_to_split": left}),
            );
            (Verb::SplitPerson, uuid, field("split", None, before, after))
        }
        PersonDone::Deleted { extent, .. } => {
            let events = field("deleted", Some("events"), Value::Null, Value::Null);
            let verb = if extent.has_person() { Verb::Deleted } else { Verb::Updated };
            (verb, uuid, if extent.has_events() { events } else { Vec::new() })
        }
    };
    Change { scope: Scope::Person, item: number.to_string(), verb, name, fields }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Map, Value, json};
    use uuid::Uuid;

    use super::entries;
    use weir_base::clock::UnixMicros;
    use weir_event::id::{PersonId, ProjectId};
    use weir_identity::change::{Difference, Done, Effect, Extent, PersonDone};
    use weir_metadata::accounts::UserId;
    use weir_metadata::activity::{Forgotten, Scope, Verb};
    use weir_storage::wal::Sequence;

    fn effect(sequence: u64, place: u32, done: PersonDone) -> Effect {
        let (project, at, uuid) = (ProjectId(1), UnixMicros(5), Uuid::from_u128(7));
        Effect { project, sequence, place, at, done: Done::Person { number: 3, uuid, done } }
    }

    /// PostHog reports each property of a group as a field of its own.
    #[test]
    fn changes_of_groups_are_logged_by_property() {
        let logged = |is_new: bool, before: Value, after: Value| {
            let properties = Difference { before: object(before), after: object(after) };
            let key = "acme".to_owned();
            let done = Done::Group { type_index: 2, key, is_new, properties };
            let (project, at) = (ProjectId(1), UnixMicros(5));
            let effect = Effect { project, sequence: 1, place: 0, at, done };
            let entry = entries(&[effect], |_| Some(UserId(9))).remove(0);
            assert_eq!((entry.change.scope, entry.change.item.as_str()), (Scope::Group, "2:acme"));
            assert_eq!(entry.forgotten, None);
            let field = |field: &Value| [field["action"].clone(), field["field"].clone()];
            let fields: Vec<_> = entry.change.fields.iter().map(field).collect();
            (entry.change.verb, entry.change.name, json!(fields))
        };
        let (made, changed) = (
            |after: Value| (true, json!({}), after),
            |before: Value, after: Value| (false, before, after),
        );
        for ((is_new, before, after), verb, name, fields) in [
            (
                made(json!({"plan": "free", "seats": 3})),
                Verb::CreateGroup,
                "acme",
                json!([["created", "plan"], ["created", "seats"]]),
            ),
            (made(json!({})), Verb::CreateGroup, "acme", json!([])),
            (
                changed(json!({}), json!({"plan": "pro"})),
                Verb::CreateProperty,
                "plan",
                json!([["created", "plan"]]),
            ),
            (
                changed(json!({"plan": "free"}), json!({"plan": "pro"})),
                Verb::UpdateProperty,
                "plan",
                json!([["changed", "plan"]]),
            ),
            (
                changed(json!({"plan": "free"}), json!({})),
                Verb::UpdateProperty,
                "plan",
                json!([["deleted", "plan"]]),
            ),
            (
                changed(json!({"plan": "free"}), json!({"seats": 1})),
                Verb::UpdateProperty,
                "acme",
                json!([["deleted", "plan"], ["created", "seats"]]),
            ),
        ] {
            assert_eq!(logged(is_new, before, after), (verb, name.to_owned(), fields));
        }
    }

    fn deleted(extent: Extent, ids: &[&str]) -> PersonDone {
        let distinct_ids = ids.iter().map(|id| (*id).to_owned()).collect();
        PersonDone::Deleted { extent, distinct_ids }
    }

    fn changed(before: Value, after: Value) -> PersonDone {
        PersonDone::Changed(Difference { before: object(before), after: object(after) })
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn every_effect_is_one_entry_that_is_the_same_at_every_attempt() {
        let effects = [
            effect(1, 0, deleted(Extent::Person, &["a"])),
            effect(1, 1, deleted(Extent::Person, &[])),
            effect(2, 0, deleted(Extent::Person, &[])),
            effect(4, 0, changed(json!({"plan": "free"}), json!({"plan": "pro", "age": 4}))),
            effect(5, 0, changed(json!({"age": 4}), json!({}))),
            effect(
                6,
                0,
                PersonDone::Split { before: vec!["a".into(), "b".into()], after: vec!["b".into()] },
            ),
        ];
        let user = |sequence| (sequence > 1).then_some(UserId(9));
        let logged = entries(&effects, user);
        let ids: HashSet<Uuid> = logged.iter().map(|entry| entry.id).collect();
        assert_eq!(ids.len(), effects.len());
        let forgotten: Vec<_> = logged.iter().map(|entry| entry.forgotten.clone()).collect();
        let own = Uuid::from_u128(7);
        let with_id = Forgotten {
            uuids: vec![PersonId::of(ProjectId(1), "a").0, own],
            distinct_ids: vec!["a".to_owned()],
        };
        let without_id = Forgotten { uuids: vec![own], distinct_ids: Vec::new() };
        let without = Some(without_id);
        assert_eq!(forgotten, [Some(with_id), without.clone(), without, None, None, None]);
        let events = effect(7, 0, deleted(Extent::Events, &[]));
        assert_eq!(entries(&[events], user)[0].forgotten, None, "who loses its events alone stays");
        // After a crash the later effects arrive in a batch of their own.
        let again = [entries(&effects[..2], user), entries(&effects[2..], user)].concat();
        let looked_up = super::entry_ids(ProjectId(1), UnixMicros(5), Sequence(1), 3);
        assert_eq!(looked_up[..2], [logged[0].id, logged[1].id], "who asked can look them up");
        assert!(!logged.iter().any(|entry| entry.id == looked_up[2]), "nobody else's");
        let ids = |entries: &[super::Elsewhere]| entries.iter().map(|e| e.id).collect::<Vec<_>>();
        assert_eq!(ids(&again), ids(&logged));
        let users: Vec<_> = logged.iter().map(|entry| entry.user.map(|user| user.0)).collect();
        assert_eq!(users, [None, None, Some(9), Some(9), Some(9), Some(9)]);
        let change = |field: Value, action: &str, before: Value, after: Value| {
            vec![
                json!({"type": "Person", "action": action, "field": field, "before": before, "after": after}),
            ]
        };
        let uuid = Uuid::from_u128(7).to_string();
        let changes: Vec<_> = logged[2..].iter().map(|entry| &entry.change).collect();
        for (change, (name, fields)) in changes.iter().zip([
            (uuid.as_str(), vec![]),
            (
                "",
                change(
                    json!("properties"),
                    "changed",
                    json!({"plan": "free"}),
                    json!({"plan": "pro", "age": 4}),
                ),
            ),
            (&uuid, change(json!("properties"), "changed", json!({"age": 4}), json!({}))),
            (
                &uuid,
                change(
                    json!(null),
                    "split",
                    json!({"distinct_ids": ["a", "b"]}),
                    json!({"distinct_ids": ["a", "b"], "distinct_ids_to_split": ["a"]}),
                ),
            ),
        ]) {
            assert_eq!((change.item.as_str(), change.name.as_str()), ("3", name));
            assert_eq!(change.fields, fields);
        }
    }
}
