//! Documents: what is written is read back, in the snapshot and on disk, of its own project only.

use serde_json::Map;
use serde_json::Value;

use super::*;
use crate::metadata::activity::Asked;
use crate::metadata::activity::Scope;
use crate::metadata::documents::Document;
use crate::metadata::documents::FIELDS_MAX_BYTES;
use crate::metadata::documents::Kind as Of;
use crate::metadata::documents::TAGS_MAX;

fn fields(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { panic!("not an object") };
    fields
}

async fn create(bench: &Bench, kind: Of, value: Value) -> Result<Arc<Document>, MetadataError> {
    bench.metadata.create_document((PROJECT, USER), kind, fields(value)).await
}

async fn update(
    bench: &Bench,
    document: &Document,
    value: Value,
    deleted: Option<bool>,
) -> Result<Arc<Document>, MetadataError> {
    let (place, which) = ((PROJECT, USER), (document.kind, document.id));
    bench.metadata.update_document(place, which, (fields(value), deleted)).await
}

async fn ids(bench: &Bench, kind: Of) -> Vec<i64> {
    let mut ids = Vec::new();
    let visit = |document: Document| ids.push(document.id);
    bench.metadata.visit_documents(PROJECT, kind, visit).await.expect("documents");
    ids
}

#[tokio::test]
async fn documents_are_changed_deleted_and_restored() {
    let bench = Bench::started().await;
    let first = create(&bench, Of::Action, json!({"name": "a", "steps": [1]})).await.expect("one");
    let other = create(&bench, Of::Insight, json!({"name": "i"})).await.expect("another");
    assert_eq!((first.id, other.id), (1, 1), "each kind counts for itself");
    assert_eq!(bench.metadata.snapshot().actions(PROJECT), [Arc::clone(&first)]);
    bench.check_snapshot().await;

    bench.clock.advance(Duration::from_secs(1));
    let tagged = json!({"name": "b", "tags": [" X ", "x", ""]});
    let changed = update(&bench, &first, tagged, None).await.expect("an update");
    assert_eq!(changed.fields, fields(json!({"name": "b", "steps": [1], "tags": ["x"]})));
    assert!(changed.updated_at > changed.created_at);
    assert_eq!(bench.metadata.snapshot().actions(PROJECT), [Arc::clone(&changed)]);
    let gone = update(&bench, &first, json!({}), Some(true)).await.expect("a deletion");
    assert_eq!(bench.metadata.snapshot().actions(PROJECT).len(), 0);
    assert_eq!(ids(&bench, Of::Action).await, [0; 0]);
    bench.check_snapshot().await;
    let read = bench.metadata.document(PROJECT, Of::Action, 1).await.expect("the deleted one");
    assert_eq!(read, *gone);
    update(&bench, &first, json!({}), Some(false)).await.expect("a restoration");
    assert_eq!(ids(&bench, Of::Action).await, [1]);
    bench.check_snapshot().await;

    let of_action = Asked { scopes: vec![Scope::Action], ..Asked::default() };
    let log = bench.metadata.activity(PROJECT, &of_action, 10, 0).await.expect("the log");
    let told: Vec<_> = log.entries.iter().map(|entry| entry.activity.as_str()).collect();
    assert_eq!(told, ["updated", "updated", "updated", "created"]);
    assert_eq!(log.entries[2].detail["name"], "b");
}

#[tokio::test]
async fn documents_of_other_projects_and_what_is_too_large_are_refused() {
    let bench = Bench::started().await;
    let one = create(&bench, Of::Annotation, json!({"content": "x"})).await.expect("one");
    let elsewhere = bench.metadata.document(ProjectId(2), Of::Annotation, one.id).await;
    assert_eq!(kind(elsewhere), Kind::NotFound);
    let elsewhere = bench.metadata.document(PROJECT, Of::Action, one.id).await;
    assert_eq!(kind(elsewhere), Kind::NotFound);
    let (place, which) = ((ProjectId(2), USER), (Of::Annotation, one.id));
    let written = bench.metadata.update_document(place, which, (Map::new(), Some(true))).await;
    assert_eq!(kind(written), Kind::NotFound);
    let long = json!({"content": "x".repeat(FIELDS_MAX_BYTES)});
    assert_eq!(kind(create(&bench, Of::Annotation, long.clone()).await), Kind::Invalid);
    assert_eq!(kind(update(&bench, &one, long, None).await), Kind::Invalid);
    let tags: Vec<String> = (0..=TAGS_MAX).map(|number| number.to_string()).collect();
    assert_eq!(kind(create(&bench, Of::Annotation, json!({"tags": tags})).await), Kind::Invalid);
    assert_eq!(ids(&bench, Of::Annotation).await, [one.id]);
}

/// Goal: neither living nor deleted documents grow without bound.
#[tokio::test]
async fn documents_of_a_project_are_bounded() {
    let bench = Bench::started().await;
    let most = Of::Dashboard.per_project_max();
    let mut tx = bench.metadata.shared.db.begin().await.expect("begin");
    let many = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < $1)
         INSERT INTO documents SELECT 'dashboard', id, 1, id > $2, NULL, id, NULL, id, '{}' FROM n";
    sqlx::query(many).bind(2 * most).bind(most).execute(&mut *tx).await.expect("many");
    tx.commit().await.expect("commit");
    assert_eq!(ids(&bench, Of::Dashboard).await.len(), usize::try_from(most).expect("a number"));
    let full = create(&bench, Of::Dashboard, json!({})).await;
    assert_eq!(kind(full), Kind::Invalid);
    let first = bench.metadata.document(PROJECT, Of::Dashboard, 1).await.expect("the first");
    let last = bench.metadata.document(PROJECT, Of::Dashboard, 2 * most).await.expect("the last");
    assert_eq!(kind(update(&bench, &last, json!({}), Some(false)).await), Kind::Invalid);
    update(&bench, &first, json!({}), Some(true)).await.expect("a deletion");
    let oldest = bench.metadata.document(PROJECT, Of::Dashboard, most + 1).await;
    assert_eq!(kind(oldest), Kind::NotFound, "the oldest deleted one gave room");
    bench.metadata.document(PROJECT, Of::Dashboard, 1).await.expect("the one just deleted");
    create(&bench, Of::Dashboard, json!({})).await.expect("room again");
}

#[tokio::test]
async fn views_are_kept_by_user() {
    let bench = Bench::started().await;
    for name in ["a", "b", "c"] {
        create(&bench, Of::Insight, json!({"name": name})).await.expect("one");
    }
    for id in [1, 2, 1] {
        bench.clock.advance(Duration::from_secs(1));
        let place = (PROJECT, USER);
        bench.metadata.view_document(place, Of::Insight, id).await.expect("a view");
    }
    let viewed = bench.metadata.viewed_documents((PROJECT, USER), Of::Insight).await;
    let viewed: Vec<i64> = viewed.expect("views").into_iter().map(|(id, _)| id).collect();
    assert_eq!(viewed, [1, 2]);
    let missing = bench.metadata.view_document((PROJECT, USER), Of::Insight, 9).await;
    assert_eq!(kind(missing), Kind::NotFound);
}
