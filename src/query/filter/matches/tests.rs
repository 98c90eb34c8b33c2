//! Filters on persons, asked of so many that most are read before they are asked for.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use uuid::Uuid;

use super::{GROUPS, Matches, Subjects, contents, is_of_persons};
use crate::filter::condition::{Call, Content, Pace};
use crate::filter::content::ConditionContent;
use crate::filter::subject_sets;
use crate::filter::subject_sets::FindPersons;
use crate::guard::Running;
use weir_base::clock::UnixMicros;
use weir_event::id::{PersonId, ProjectId};
use weir_event::predicate::Matching;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::change::{Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_identity::view::{Flow, View};
use weir_storage::exact::ExactColumns;

const NOW: UnixMicros = UnixMicros(1_700_000_000_000_000);
const PROJECT: ProjectId = ProjectId(1);
const PERSONS: u32 = 9000;

fn id(number: u32) -> String {
    format!("id {number}")
}

/// A plan and an age, which some persons lack.
fn properties(number: u32) -> Value {
    match number % 4 {
        0 => json!({"plan": "pro", "age": number}),
        1 => json!({"plan": "free \"of\" charge", "age": number}),
        2 => json!({"age": number}),
        _ => json!({"plan": null}),
    }
}

/// Finds persons one by one.
fn find(view: &Arc<View>) -> FindPersons {
    let view = Arc::clone(view);
    Arc::new(move |tree, _| {
        let matches = matches(tree, &view);
        let mut found = Vec::new();
        let scanned = view.scan_rows(PROJECT, 0..i64::MAX, |row| {
            if matches.holds_for(matches.person(row.uuid)?.as_ref()) {
                found.push(row.uuid);
            }
            Ok(Flow::Continue(()))
        });
        scanned.unwrap();
        std::future::ready(Ok(Some(found))).boxed()
    })
}

fn matches(tree: Tree, view: &Arc<View>) -> Matches {
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 20));
    let subjects = Subjects {
        project: PROJECT,
        view: Arc::clone(view),
        in_cohort: Some(Box::new(|_, cohort, person| person.number % 3 == cohort)),
        now: Now::utc(NOW),
        exact: ExactColumns::default(),
        memory,
        find: Some(find(view)),
    };
    Matches::new(tree, Arc::new(subjects))
}

/// Goal: filters hold for a person whether it was looked up or read before; nobody of another project is. Method: events
/// of all persons, in several orders, beside the same filters asked of a few persons at a time, which looks up all.
#[test]
fn persons_who_were_read_ahead_have_the_same_answers() {
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
    for (sequence, project) in [(1, PROJECT), (2, ProjectId(2))] {
        let op = |number| {
            let set = properties(number).as_object().cloned().unwrap();
            let kind = OpKind::Update(Update { set, ..Update::default() });
            Op { distinct_id: id(number), event_id: Uuid::nil(), timestamp: NOW, kind }
        };
        let ops = (0..PERSONS).map(op).collect();
        identities.apply(&[Record { sequence, project, ops }]).unwrap();
    }
    let view = Arc::new(identities.view());
    let uuids: Vec<String> =
        (0..PERSONS + 50).map(|number| PersonId::of(PROJECT, &id(number)).0.to_string()).collect();
    let plan = |value: Value, operator: &str| json!({"key": "plan", "type": "person", "value": value, "operator": operator});
    let filters = [
        json!([plan(json!(["pro"]), "exact")]),
        json!([plan(json!("of"), "not_icontains")]),
        json!([plan(json!("is_not_set"), "is_not_set")]),
        json!([{"key": "age", "type": "person", "value": 5000, "operator": "gt"}, plan(json!(["pro"]), "is_not")]),
        json!([{"key": "id", "type": "cohort", "value": 1}]),
        json!([{"key": "is_identified", "type": "person_metadata", "value": [false], "operator": "exact"}]),
        json!([{"key": "distinct_id", "type": "person_metadata", "value": "77", "operator": "icontains"}]),
    ];
    for filters in filters {
        let tree = || Tree::parse(&filters, "event", Matching::Legacy).unwrap();
        assert!(is_of_persons(&tree()));
        let ask = |matches: &Matches, ids: &[String]| {
            let ids: ArrayRef = Arc::new(StringViewArray::from_iter_values(ids));
            let (pace, running) = (Pace::Steady, Running::default());
            let call = Call::new(&pace, &running);
            let kept = matches.keep(&vec![ids; matches.columns.len()], call).unwrap();
            kept.values().iter().collect::<Vec<bool>>()
        };
        let expected: Vec<bool> =
            uuids.chunks(1000).flat_map(|ids| ask(&matches(tree(), &view), ids)).collect();
        let held = expected.iter().filter(|holds| **holds).count();
        assert!(0 < held && held < expected.len(), "{filters}: {held}");
        for batch in [700, 4500] {
            let matches = matches(tree(), &view);
            let mut answers = vec![false; uuids.len()];
            // Twice, of which the first starts from the end.
            for at in (0..uuids.len()).step_by(batch).rev().chain((0..uuids.len()).step_by(batch)) {
                let end = uuids.len().min(at + batch);
                answers[at..end].copy_from_slice(&ask(&matches, &uuids[at..end]));
            }
            assert_eq!(answers, expected, "{filters} {batch}");
        }
        let function = sent(matches(tree(), &view)).unwrap();
        let found: Vec<bool> = uuids.chunks(1000).flat_map(|ids| values(&function, ids)).collect();
        assert_eq!(found, expected, "{filters}: another process");
    }
}

/// The function of another process, by what is written of its content; `None` if it has none that is small enough.
fn sent(matches: Matches) -> Option<ScalarUDF> {
    let Content::Set(set) = Arc::new(matches).content() else { panic!("a set") };
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(set.read(&Running::default())).unwrap();
    let written = serde_json::to_vec(set.content()?).unwrap();
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 20));
    Some(match serde_json::from_slice(&written).unwrap() {
        ConditionContent::Persons(own) => subject_sets::of_persons(&own, &memory).unwrap(),
        ConditionContent::Groups(own) => contents::of_groups(own, &memory).unwrap(),
        other => panic!("{other:?}"),
    })
}

fn values<T: AsRef<str>>(function: &ScalarUDF, texts: &[T]) -> Vec<bool> {
    let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
    let arguments = ScalarFunctionArgs {
        args: vec![ColumnarValue::Array(column)],
        arg_fields: vec![Arc::new(Field::new("a", DataType::Utf8View, true))],
        number_rows: texts.len(),
        return_field: Arc::new(Field::new("b", DataType::Boolean, true)),
        config_options: Arc::new(ConfigOptions::new()),
    };
    let held = function.invoke_with_args(arguments).unwrap().into_array(texts.len()).unwrap();
    held.as_boolean().values().iter().collect()
}

/// Goal: filters on groups hold in another process for the same groups. Method: groups with sizes, without, and unknown ones;
/// of two types, of which filters ask of the second.
#[test]
fn filters_on_groups_hold_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
    let key = |number: u32| format!("group {number}");
    let op = |number| {
        let sized = if number % 3 == 0 { json!({}) } else { json!({"size": number}) };
        let group_type = if number % 2 == 0 { "company" } else { "team" };
        let set = sized.as_object().cloned().unwrap();
        let kind = OpKind::GroupUpdate { group_type: group_type.to_owned(), key: key(number), set };
        Op { distinct_id: id(1), event_id: Uuid::nil(), timestamp: NOW, kind }
    };
    let ops = (0..300).map(op).collect();
    identities.apply(&[Record { sequence: 1, project: PROJECT, ops }]).unwrap();
    let view = Arc::new(identities.view());
    let keys: Vec<String> = (0..310).map(key).collect();
    let filter = |key: &str, operator: &str, value: Value| json!([{"key": key, "type": "group", "group_type_index": 1, "operator": operator, "value": value}]);
    for filters in [
        filter("size", "gt", json!(100)),
        filter("size", "is_not", json!(7)),
        filter("size", "is_not_set", json!("is_not_set")),
        filter("size", "regex", json!("^2")),
        filter("$group_key", "icontains", json!("7")),
    ] {
        let tree = || Tree::parse(&filters, "event", Matching::Legacy).unwrap();
        let own = matches(tree(), &view);
        assert_eq!(own.columns, [GROUPS[1]]);
        let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(&keys));
        let (pace, running) = (Pace::Steady, Running::default());
        let expected = own.keep(&[column], Call::new(&pace, &running)).unwrap();
        let expected: Vec<bool> = expected.values().iter().collect();
        let held = expected.iter().filter(|holds| **holds).count();
        assert!(0 < held && held < expected.len(), "{filters}: {held}");
        assert_eq!(values(&sent(own).unwrap(), &keys), expected, "{filters}");
    }
}
