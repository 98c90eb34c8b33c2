//! Cohorts, hash keys and settings of flags: what is written is in the snapshot and there after a
//! restart.

use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::activity::{ActivityFilter, Change, Elsewhere, Forgotten, Scope, Verb};
use crate::cohorts::{CohortPatch, NewCohort};
use crate::hash_keys::NewHashKey;
use weir_event::predicate::Matching;

fn named(name: &str) -> CohortPatch {
    CohortPatch { name: Some(name.to_owned()), ..CohortPatch::default() }
}

fn new_cohort(name: &str, value: Value) -> NewCohort {
    let filters = json!({"properties": {"type": "AND", "values": [value]}});
    let values = CohortPatch { filters: Some(filters), ..named(name) };
    NewCohort { values, ..NewCohort::default() }
}

#[tokio::test]
async fn cohorts_and_their_members_are_in_the_snapshot_and_on_disk() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let rule = new_cohort("rule", json!({"key": "plan", "value": "pro"}));
    let rule = metadata.create_cohort(PROJECT, USER, rule).await.expect("create");
    let list = NewCohort {
        is_static: true,
        members: vec![Uuid::from_u128(7), Uuid::from_u128(3), Uuid::from_u128(7)],
        ..new_cohort("list", json!({}))
    };
    let list = metadata.create_cohort(PROJECT, USER, list).await.expect("create");
    assert_eq!((&*list.members, list.count), (&[3, 7].map(Uuid::from_u128)[..], Some(2)));
    bench.check_snapshot().await;
    let (added, removed) = ([Uuid::from_u128(5)], [Uuid::from_u128(3), Uuid::from_u128(99)]);
    let changed = metadata.change_members(PROJECT, USER, list.id, &added, &removed).await;
    assert_eq!(&*changed.expect("change").members, &[5, 7].map(Uuid::from_u128));
    metadata.note_cohort_size(PROJECT, rule.id, 1, Some(4)).await.expect("note");
    metadata.note_cohort_size(PROJECT, rule.id, 7, Some(9)).await.expect("of another version");
    assert_eq!(metadata.snapshot().cohort(PROJECT, rule.id).expect("there").count, Some(4));
    bench.check_snapshot().await;
    let not_static = metadata.change_members(PROJECT, USER, rule.id, &added, &[]).await;
    assert_eq!(code(not_static.map(drop)), "invalid_input");
    let delete = CohortPatch { deleted: Some(true), ..CohortPatch::default() };
    metadata.update_cohort(PROJECT, USER, list.id, delete).await.expect("delete");
    assert_eq!(metadata.snapshot().cohorts(PROJECT).len(), 1);
    bench.check_snapshot().await;
    let asked = ActivityFilter { scopes: vec![Scope::Cohort], ..ActivityFilter::default() };
    let log = metadata.activity(PROJECT, &asked, 10, 0).await.expect("log");
    let verbs: Vec<&str> = log.entries.iter().map(|entry| entry.activity.as_str()).collect();
    assert_eq!((log.count, verbs), (4, vec!["updated", "updated", "created", "created"]));
}

/// A count does not notify clients that wait for changes of flags, and does not invalidate caches.
#[tokio::test]
async fn counting_a_cohort_changes_no_flag() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let rule = new_cohort("rule", json!({"key": "plan", "value": "pro"}));
    let rule = metadata.create_cohort(PROJECT, USER, rule).await.expect("create");
    let before = metadata.snapshot();
    metadata.note_cohort_size(PROJECT, rule.id, 1, Some(4)).await.expect("note");
    let after = metadata.snapshot();
    assert_eq!(after.cohort(PROJECT, rule.id).expect("there").count, Some(4));
    bench.check_snapshot().await;
    let same = |snapshot: &Snapshot| {
        let revision = snapshot.revision(PROJECT).map(Arc::as_ptr);
        (revision, snapshot.cohort_set(PROJECT).map(Arc::as_ptr))
    };
    assert_eq!(same(&before), same(&after));
    let patch = CohortPatch { filters: Some(json!({"properties": {}})), ..CohortPatch::default() };
    metadata.update_cohort(PROJECT, USER, rule.id, patch).await.expect("another rule");
    assert_ne!(same(&after), same(&metadata.snapshot()));
}

#[tokio::test]
async fn settings_of_flags_are_in_the_snapshot_and_on_disk() {
    let bench = Bench::started().await;
    let first = bench.metadata.rotate_secret_key(PROJECT, USER, &seed(2)).await.expect("rotate");
    let second = bench.metadata.rotate_secret_key(PROJECT, USER, &seed(3)).await.expect("rotate");
    let explicit = Some(Matching::Explicit);
    bench.metadata.set_flag_settings(PROJECT, USER, explicit, None).await.expect("set");
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.matching(PROJECT), Matching::Explicit);
    let project = |key: &str| snapshot.project_by_secret(secrets::KeyHash::of(key));
    assert_eq!((project(&first), project(&second)), (None, Some(PROJECT)));
    bench.check_snapshot().await;
}

/// Goal: all requests that are written together are stored, and the first key of an id stays.
#[tokio::test]
async fn hash_keys_of_many_logins_at_once_are_kept_and_the_first_stays() {
    let bench = Bench::started().await;
    let row = |id: usize, hash_key: &str| NewHashKey {
        project: PROJECT,
        distinct_id: format!("user-{id}"),
        flag_key: "flag".to_owned(),
        hash_key: hash_key.to_owned(),
    };
    let keep = |id: usize, key: &'static str| bench.metadata.keep_hash_keys(vec![row(id, key)]);
    let kept = futures::future::join_all((0..50).map(|id| keep(id, "first"))).await;
    assert!(kept.iter().all(Result::is_ok), "{kept:?}");
    keep(7, "second").await.expect("kept");
    let other = bench.other().await;
    for id in 0..50 {
        let ids = [format!("user-{id}")];
        let keys = other.hash_keys(PROJECT, &ids).await.expect("read");
        assert_eq!(keys.get("flag").map(String::as_str), Some("first"), "{id}");
    }
    assert!(other.hash_keys(ProjectId(2), &["user-1".to_owned()]).await.expect("read").is_empty());
    other.close().await;
}

/// A deleted person leaves no hash keys and no static memberships. A repetition after a crash
/// changes nothing, and rows written since stay.
#[tokio::test]
async fn deleted_persons_are_erased_once() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let [gone, merged, other] = [1, 2, 3].map(Uuid::from_u128);
    let list = |name: &str| NewCohort {
        values: named(name),
        is_static: true,
        members: vec![gone, merged, other],
    };
    let live = metadata.create_cohort(PROJECT, USER, list("live")).await.expect("create").id;
    let deleted = metadata.create_cohort(PROJECT, USER, list("deleted")).await.expect("create").id;
    let delete = |deleted| CohortPatch { deleted: Some(deleted), ..CohortPatch::default() };
    metadata.update_cohort(PROJECT, USER, deleted, delete(true)).await.expect("delete");
    let key = |distinct_id: &str| NewHashKey {
        project: PROJECT,
        distinct_id: distinct_id.to_owned(),
        flag_key: "flag".to_owned(),
        hash_key: "before".to_owned(),
    };
    metadata.keep_hash_keys(vec![key("ada"), key("bob")]).await.expect("keep");
    let forgotten = Forgotten { uuids: vec![gone, merged], distinct_ids: vec!["ada".to_owned()] };
    let entry = Elsewhere {
        id: Uuid::from_u128(9),
        project: PROJECT,
        user: Some(USER),
        at: START,
        change: Change {
            scope: Scope::Person,
            item: "1".to_owned(),
            verb: Verb::Deleted,
            name: String::new(),
            fields: Vec::new(),
        },
        forgotten: Some(forgotten),
    };
    metadata.record_activity(std::slice::from_ref(&entry)).await.expect("log");
    let members =
        |id| metadata.snapshot().cohort(PROJECT, id).map(|cohort| cohort.members.to_vec());
    assert_eq!(members(live), Some(vec![other]));
    assert_eq!(metadata.snapshot().cohort(PROJECT, live).and_then(|cohort| cohort.count), Some(1));
    bench.check_snapshot().await;
    metadata.update_cohort(PROJECT, USER, deleted, delete(false)).await.expect("restore");
    assert_eq!(members(deleted), Some(vec![other]));
    let kept = |id: &str| [id.to_owned()];
    assert!(metadata.hash_keys(PROJECT, &kept("ada")).await.expect("keys").is_empty());
    assert_eq!(metadata.hash_keys(PROJECT, &kept("bob")).await.expect("keys").len(), 1);
    metadata.change_members(PROJECT, USER, live, &[gone], &[]).await.expect("add");
    metadata.record_activity(&[entry]).await.expect("log again");
    assert_eq!(members(live), Some(vec![gone, other]), "who came back stays");
}
