//! Documents: what is written is read back, in the snapshot and on disk, of its own project only.

use serde_json::{Map, Value};

use super::*;
use crate::activity::{ActivityFilter, Scope};
use crate::documents::shares::ShareChange;
use crate::documents::shares::passwords::{PASS_LIFE, PASSWORDS_MAX, is_passed};
use crate::documents::{Document, DocumentKey, FIELDS_MAX_BYTES, Kind as Of, TAGS_MAX};
use crate::passwords::PasswordHash;
use crate::secrets::Seed;
use crate::sql;

fn fields(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { panic!("not an object") };
    fields
}

async fn create(bench: &Bench, kind: Of, value: Value) -> Result<Arc<Document>, MetadataError> {
    bench.metadata.create_document(PROJECT, USER, kind, fields(value)).await
}

async fn update(
    bench: &Bench,
    document: &Document,
    value: Value,
    deleted: Option<bool>,
) -> Result<Arc<Document>, MetadataError> {
    bench.metadata.update_document(USER, document.key(), fields(value), deleted).await
}

async fn ids(bench: &Bench, kind: Of) -> Vec<i64> {
    let heads = bench.metadata.document_heads(PROJECT, kind).await.expect("documents");
    let ids: Vec<i64> = heads.iter().map(|head| head.id).collect();
    assert_eq!(matching(bench, kind, "%").await, ids);
    ids
}

/// The ids of the documents whose text matches a pattern.
async fn matching(bench: &Bench, kind: Of, like: &str) -> Vec<i64> {
    let mut batches = bench.metadata.document_batches(PROJECT, kind, like.to_owned());
    let mut ids = Vec::new();
    while let Some(some) = batches.next().await.expect("documents") {
        ids.extend(some.iter().map(|one| one.head.id));
    }
    ids
}

/// Goal: batches have each document once, newest first. Method: as many documents as fill one, one more, and none.
#[tokio::test]
async fn batches_have_all_documents_once() {
    let bench = Bench::started().await;
    assert!(ids(&bench, Of::Action).await.is_empty());
    for count in 1..=65_i64 {
        let name = json!({"name": format!("a{count}")});
        create(&bench, Of::Action, name).await.expect("one");
        if count >= 63 {
            let newest_first: Vec<i64> = (1..=count).rev().collect();
            assert_eq!(ids(&bench, Of::Action).await, newest_first);
        }
    }
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

    let of_action = ActivityFilter { scopes: vec![Scope::Action], ..ActivityFilter::default() };
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
    let elsewhere = DocumentKey { project: ProjectId(2), ..one.key() };
    let written = bench.metadata.update_document(USER, elsewhere, Map::new(), Some(true)).await;
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
    sql::query(many).bind(2 * most).bind(most).execute(tx.connection()).await.expect("many");
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
    let insight = |id: i64| DocumentKey { project: PROJECT, kind: Of::Insight, id };
    for name in ["a", "b", "c"] {
        create(&bench, Of::Insight, json!({"name": name})).await.expect("one");
    }
    for id in [1, 2, 1] {
        bench.clock.advance(Duration::from_secs(1));
        bench.metadata.view_document(USER, insight(id)).await.expect("a view");
    }
    let viewed = bench.metadata.viewed_documents(PROJECT, USER, Of::Insight).await;
    let viewed: Vec<i64> = viewed.expect("views").into_iter().map(|(id, _)| id).collect();
    assert_eq!(viewed, [1, 2]);
    let missing = bench.metadata.view_document(USER, insight(9)).await;
    assert_eq!(kind(missing), Kind::NotFound);
}

#[tokio::test]
async fn links_are_made_turned_off_and_given_other_tokens() {
    let bench = Bench::started().await;
    let board = create(&bench, Of::Dashboard, json!({"name": "b"})).await.expect("one");
    assert_eq!(bench.metadata.share(board.key()).await.expect("a look-up"), None);
    let change = async |project: ProjectId, change: ShareChange| {
        let seed = Seed::new(&mut rand::rng());
        let key = DocumentKey { project, ..board.key() };
        bench.metadata.change_share(USER, key, change, seed).await
    };
    let enabled = |is: bool| ShareChange { is_enabled: Some(is), ..ShareChange::default() };
    assert_eq!(kind(change(ProjectId(2), enabled(true)).await), Kind::NotFound);
    let first = change(PROJECT, enabled(true)).await.expect("a link");
    assert_eq!((first.token.len(), first.is_enabled), (43, true));
    let found = bench.metadata.share_by_token(&first.token).await.expect("by its token");
    assert_eq!(found, first);
    let shared = bench.metadata.shared_documents(PROJECT, Of::Dashboard).await.expect("a list");
    assert_eq!(shared, [board.id]);
    let other = ShareChange { has_new_token: true, ..ShareChange::default() };
    let second = change(PROJECT, other).await.expect("another token");
    assert_ne!(second.token, first.token);
    assert_eq!(kind(bench.metadata.share_by_token(&first.token).await), Kind::NotFound);
    change(PROJECT, enabled(false)).await.expect("a change");
    assert_eq!(kind(bench.metadata.share_by_token(&second.token).await), Kind::NotFound);
    assert_eq!(kind(bench.metadata.share_by_token("").await), Kind::NotFound);
    let settings = Map::from_iter([("legend".to_owned(), json!(true))]);
    let shown = ShareChange { settings: Some(settings), ..enabled(true) };
    assert_eq!(change(PROJECT, shown).await.expect("a change").token, second.token);
    // The log tells what was done, and no token.
    let log =
        bench.metadata.activity(PROJECT, &ActivityFilter::default(), 10, 0).await.expect("the log");
    let told: Vec<_> = log.entries.iter().rev().map(|entry| entry.activity.as_str()).collect();
    let expected = [
        "created",
        "sharing enabled",
        "sharing access token refreshed",
        "sharing disabled",
        "sharing enabled",
        "updated",
    ];
    assert_eq!(told, expected);
    let text = format!("{:?}", log.entries);
    assert!(!text.contains(&first.token) && !text.contains(&second.token), "{text}");
}

/// Goal: a pass leads through one link, for one day, and no longer than its password and the link itself are there.
#[tokio::test]
async fn passes_end_with_their_password_and_their_link() {
    let bench = Bench::started().await;
    let change = async |key: DocumentKey, change: ShareChange| {
        let seed = Seed::new(&mut rand::rng());
        bench.metadata.change_share(USER, key, change, seed).await.expect("a link")
    };
    let hash = |password: &str| PasswordHash::of(password, &Seed::new(&mut rand::rng()));
    let on = ShareChange {
        is_enabled: Some(true),
        is_password_required: Some(true),
        ..ShareChange::default()
    };
    let mut links = Vec::new();
    for name in ["a", "b"] {
        let board = create(&bench, Of::Dashboard, json!({"name": name})).await.expect("one");
        let (key, hash) = (board.key(), hash("the same"));
        let elsewhere = DocumentKey { project: ProjectId(2), ..key };
        let add = async |key: DocumentKey| {
            bench.metadata.add_share_password(USER, key, hash.clone(), String::new()).await
        };
        assert_eq!(kind(add(key).await), Kind::Invalid, "it asks for none");
        let share = change(key, on.clone()).await;
        let own = add(key).await;
        assert_eq!(kind(add(elsewhere).await), Kind::NotFound);
        links.push((key, share, own.expect("a password")));
    }
    let [(key, share, own), (_, other_share, other)] = &links[..] else { panic!("two links") };
    let listed = bench.metadata.share_passwords(*key).await.expect("a list");
    assert_eq!(listed, std::slice::from_ref(own));
    assert!(listed[0].hash.is_of("the same") && !listed[0].hash.is_of("another"));
    let elsewhere = DocumentKey { project: ProjectId(2), ..*key };
    assert_eq!(bench.metadata.share_passwords(elsewhere).await.expect("a list"), []);
    let now = bench.clock.now();
    let pass = own.pass(share, now);
    let soon = now.saturating_add(PASS_LIFE - Duration::from_secs(1));
    assert!(is_passed(share, &listed, &pass, soon));
    assert!(!is_passed(share, &listed, &pass, now.saturating_add(PASS_LIFE)), "it is over");
    assert!(!is_passed(other_share, std::slice::from_ref(other), &pass, now), "the other link");
    // Whoever has a pass cannot make it last, or be that of another password.
    let (id, rest) = pass.split_once('.').expect("an id");
    let (until, signature) = rest.split_once('.').expect("a time");
    for forged in [
        format!("{id}.{}.{signature}", i64::MAX),
        format!("2.{until}.{signature}"),
        format!("{id}.{until}."),
        format!("{id}.{until}"),
        String::new(),
        "..".to_owned(),
    ] {
        assert!(!is_passed(share, &listed, &forged, now), "{forged}");
    }
    // Settings change nothing; what turns the link off, or gives it another token, does.
    let settings = Map::from_iter([("legend".to_owned(), json!(true))]);
    let shown = ShareChange { settings: Some(settings), ..ShareChange::default() };
    bench.clock.advance(Duration::from_secs(1));
    let now = bench.clock.now();
    let share = change(*key, shown).await;
    assert!(is_passed(&share, &listed, &pass, now));
    change(*key, ShareChange { is_enabled: Some(false), ..ShareChange::default() }).await;
    let share = change(*key, on).await;
    assert!(!is_passed(&share, &listed, &pass, now), "it was turned off meanwhile");
    let pass = own.pass(&share, now);
    let rotated = ShareChange { has_new_token: true, ..ShareChange::default() };
    assert!(!is_passed(&change(*key, rotated).await, &listed, &pass, now), "another token");
}

/// Goal: whoever removes a password removes no other one, and a guess stays cheap enough.
#[tokio::test]
async fn passwords_of_a_link_are_bounded_and_keep_their_ids() {
    let bench = Bench::started().await;
    let hash = PasswordHash::of("a password", &Seed::new(&mut rand::rng()));
    let board = create(&bench, Of::Dashboard, json!({"name": "b"})).await.expect("one");
    let key = board.key();
    let locked = ShareChange { is_password_required: Some(true), ..ShareChange::default() };
    let seed = Seed::new(&mut rand::rng());
    bench.metadata.change_share(USER, key, locked, seed).await.expect("a link");
    let add = async |note: i64| {
        bench.metadata.add_share_password(USER, key, hash.clone(), note.to_string()).await
    };
    let remove = async |project: ProjectId, id: i64| {
        let key = DocumentKey { project, ..key };
        bench.metadata.remove_share_password(USER, key, id).await
    };
    let id = add(0).await.expect("a password").id;
    assert_eq!(kind(remove(PROJECT, 9).await), Kind::NotFound);
    assert_eq!(kind(remove(ProjectId(2), id).await), Kind::NotFound);
    remove(PROJECT, id).await.expect("removed");
    assert_eq!(kind(remove(PROJECT, id).await), Kind::NotFound);
    assert_eq!(bench.metadata.share_passwords(key).await.expect("a list"), []);
    for number in 0..PASSWORDS_MAX {
        let own = add(number).await.expect("one more");
        assert_eq!((own.id, own.note), (id + 1 + number, number.to_string()));
    }
    assert_eq!(kind(add(99).await), Kind::Invalid);
    let log = bench
        .metadata
        .activity(PROJECT, &ActivityFilter::default(), 100, 0)
        .await
        .expect("the log");
    let told = |verb| log.entries.iter().filter(|entry| entry.activity.as_str() == verb).count();
    assert_eq!([told("sharing password added"), told("sharing password removed")], [11, 1]);
}

/// Goal: the id of a document that is gone for good may be used again, and no old link leads to the new one.
#[tokio::test]
async fn links_go_with_their_documents() {
    let bench = Bench::started().await;
    let most = Of::Dashboard.per_project_max();
    let old = create(&bench, Of::Dashboard, json!({"name": "old"})).await.expect("one");
    let change = ShareChange { is_enabled: Some(true), ..ShareChange::default() };
    let seed = Seed::new(&mut rand::rng());
    let share = bench.metadata.change_share(USER, old.key(), change, seed).await;
    let share = share.expect("a link");
    update(&bench, &old, json!({}), Some(true)).await.expect("a deletion");
    let mut tx = bench.metadata.shared.db.begin().await.expect("begin");
    let many = "WITH RECURSIVE n(id) AS (SELECT 2 UNION ALL SELECT id + 1 FROM n WHERE id < $1)
         INSERT INTO documents SELECT 'dashboard', id, 1, id > 2, NULL, $2, NULL, $2, '{}' FROM n";
    let later = bench.clock.now().0 + 1;
    sql::query(many).bind(most + 2).bind(later).execute(tx.connection()).await.expect("many");
    tx.commit().await.expect("commit");
    bench.clock.advance(Duration::from_secs(1));
    let other = bench.metadata.document(PROJECT, Of::Dashboard, 2).await.expect("another");
    update(&bench, &other, json!({}), Some(true)).await.expect("a deletion");
    let gone = bench.metadata.document(PROJECT, Of::Dashboard, old.id).await;
    assert_eq!(kind(gone), Kind::NotFound, "it was removed for good");
    assert_eq!(kind(bench.metadata.share_by_token(&share.token).await), Kind::NotFound);
}

/// Documents are read by their ids at once, in their order, each once, of their own project; of their fields only what is
/// asked for is parsed.
#[tokio::test]
async fn documents_are_read_by_their_ids_and_as_they_are_stored() {
    let bench = Bench::started().await;
    for name in ["a", "b", "c"] {
        let query = json!({"kind": name, "dashboards": [7]});
        let value = json!({"name": name, "query": query, "dashboards": [1, 12]});
        create(&bench, Of::Insight, value).await.expect("an insight");
    }
    create(&bench, Of::Dashboard, json!({"name": "d"})).await.expect("a dashboard");
    let kind = Of::Insight;
    let texts = bench.metadata.document_texts(PROJECT, kind, vec![3, 9, 1, 3]).await.expect("some");
    let ids: Vec<i64> = texts.iter().map(|one| one.head.id).collect();
    assert_eq!(ids, [3, 1]);
    let first = &texts[0];
    assert!(first.head.fields.is_empty());
    assert_eq!(
        first.with(&["name".into(), "x".into()]).unwrap().fields,
        fields(json!({"name": "c"}))
    );
    assert_eq!(
        first.whole().unwrap(),
        bench.metadata.document(PROJECT, Of::Insight, 3).await.unwrap()
    );
    assert_eq!(first.members().unwrap()["dashboards"].get(), "[1,12]");
    let elsewhere = bench.metadata.document_texts(ProjectId(2), Of::Insight, vec![1]).await;
    assert!(elsewhere.expect("a look").is_empty());
    let none = bench.metadata.document_texts(PROJECT, kind, Vec::new()).await.expect("a look");
    assert!(none.is_empty());
    let many = (1..50_000).collect();
    assert_eq!(bench.metadata.document_texts(PROJECT, kind, many).await.expect("all").len(), 3);
    // A pattern finds what has it, and may find more.
    assert_eq!(matching(&bench, kind, "%\"dashboards\":[%12%").await.len(), 3);
    assert_eq!(matching(&bench, kind, "%\"name\":\"b\"%").await, [2]);
}
