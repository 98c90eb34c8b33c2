//! Filters on persons, asked of so many that most are read before they are asked for.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Matches, Subjects, is_of_persons};
use crate::filter::condition::{Call, Pace};
use crate::guard::Running;
use weir_base::clock::UnixMicros;
use weir_event::id::{PersonId, ProjectId};
use weir_event::predicate::Matching;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::change::{Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_identity::view::View;
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

fn matches(tree: Tree, view: &Arc<View>) -> Matches {
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 20));
    assert!(is_of_persons(&tree));
    let subjects = Subjects {
        project: PROJECT,
        view: Arc::clone(view),
        in_cohort: Some(Box::new(|_, cohort, person| person.number % 3 == cohort)),
        now: Now::utc(NOW),
        exact: ExactColumns::default(),
        memory,
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
    }
}
