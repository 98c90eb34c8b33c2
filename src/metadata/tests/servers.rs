//! Several servers on one PostgreSQL database.

use tokio::time::Instant;

use super::*;
use crate::metadata::activity::Asked;
use crate::metadata::tests::place::Database;
use crate::metadata::tests::place::Server;
use crate::metadata::tests::place::patiently;

async fn on_postgres() -> Bench {
    Bench::started_at(Place::Database(Database::new().await)).await
}

/// Goal: no edit is lost, and each is in the log of changes, when two servers edit the same flags of one
/// project, new ones among them. Method: each edit raises the version by one and leaves an entry, so that the
/// numbers of both have to be that of the edits; an edit that another one overtook is refused and tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_servers_edit_one_project_and_lose_nothing() {
    const EDITS: usize = 60;
    let bench = on_postgres().await;
    let other = bench.other().await;
    let shared = bench.create("shared").await;
    let edit = async |metadata: Metadata, name: &'static str| {
        let mut done = 0;
        for round in 0..EDITS {
            let made = new(&format!("{name}-{round}"));
            metadata.create_flag(PROJECT, USER, made).await.expect("a flag");
            let text = format!("{name} {round}");
            let patch = FlagPatch { name: Some(text), ..FlagPatch::default() };
            metadata.update_flag(PROJECT, USER, shared.id, patch).await.expect("an edit");
            done += 1;
        }
        done
    };
    let (a, b) = tokio::join!(edit(bench.metadata.clone(), "a"), edit(other.clone(), "b"));
    assert_eq!((a, b), (EDITS, EDITS));
    bench.metadata.refresh().await.expect("refresh");
    other.refresh().await.expect("refresh");
    assert_eq!(bench.metadata.snapshot(), other.snapshot());
    let flags = bench.metadata.snapshot().flags(PROJECT).to_vec();
    let mut ids: Vec<i64> = flags.iter().map(|flag| flag.id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2 * EDITS + 1, "each flag has an id of its own");
    let stored = flags.iter().find(|flag| flag.id == shared.id).expect("the flag");
    assert_eq!(stored.version, shared.version + 2 * i64::try_from(EDITS).expect("a number"));
    let item = Some(shared.id.0.to_string());
    let page = bench.metadata.activity(PROJECT, &Asked { item, ..Asked::default() }, 500, 0).await;
    let page = page.expect("entries");
    assert_eq!(page.count, 2 * EDITS + 1, "its creation and all edits");
    let texts =
        serde_json::to_string(&page.entries.iter().map(|entry| &entry.detail).collect::<Vec<_>>());
    let texts = texts.expect("a text");
    for name in ["a", "b"] {
        for round in 0..EDITS {
            assert!(texts.contains(&format!("\"{name} {round}\"")), "{name} {round}");
        }
    }
}

/// Goal: an edit of one server is in the snapshot of another within 2 s, 99 times of 100. Method: the other one
/// looks once a second, as servers do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_edit_is_seen_by_another_server_within_two_seconds() {
    const EDITS: usize = 12;
    let bench = on_postgres().await;
    let other = bench.other().await;
    let looking = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            other.refresh().await.expect("refresh");
        }
    };
    let editing = async {
        let mut latest = Duration::ZERO;
        for round in 0..EDITS {
            // At any moment between two looks.
            tokio::time::sleep(Duration::from_millis(83 * u64::try_from(round).unwrap())).await;
            let key = format!("flag-{round}");
            bench.create(&key).await;
            let begin = Instant::now();
            patiently(async || other.snapshot().flags(PROJECT).iter().any(|flag| flag.key == key))
                .await;
            latest = latest.max(begin.elapsed());
        }
        latest
    };
    let latest = tokio::select! {
        latest = editing => latest,
        () = looking => unreachable!("it does not end"),
    };
    assert!(latest < Duration::from_secs(2), "{latest:?}");
}

/// What no snapshot contains makes nobody reload.
#[tokio::test]
async fn unseen_writes_leave_the_snapshots_of_others() {
    let bench = on_postgres().await;
    let other = bench.other().await;
    let before = other.snapshot();
    let row = crate::metadata::hash_keys::NewHashKey {
        project: PROJECT,
        distinct_id: "a\0b".to_owned(),
        flag_key: "flag".to_owned(),
        hash_key: "c".to_owned(),
    };
    bench.metadata.keep_hash_keys(vec![row]).await.expect("kept");
    other.refresh().await.expect("refresh");
    assert!(Arc::ptr_eq(&before, &other.snapshot()));
    let found = other.hash_keys(PROJECT, &["a\0b".to_owned()]).await.expect("keys");
    assert_eq!(found.get("flag").map(String::as_str), Some("c"), "found under the same name");
}

/// A server that stops in the middle of a write does not hold up others for ever.
#[tokio::test]
async fn the_lock_of_a_server_that_stands_still_is_taken_from_it() {
    let database = Database::on(Server::shared(), Duration::from_secs(2)).await;
    let bench = Bench::started_at(Place::Database(database)).await;
    let other = bench.other().await;
    let held = bench.metadata.shared.db.begin().await.expect("begin");
    // It waits for the limit of statements, which is also that of transactions that stand still.
    if let Err(error) = other.create_flag(PROJECT, USER, new("a")).await {
        assert_eq!(error.kind(), Kind::Overloaded);
    }
    patiently(async || other.create_flag(PROJECT, USER, new("b")).await.is_ok()).await;
    assert!(held.commit().await.is_err(), "its transaction was ended");
    bench.create("c").await;
    bench.check_snapshot().await;
}

/// Each server has the times of its own log.
#[tokio::test]
async fn logs_are_told_apart() {
    use crate::metadata::definitions::Sightings;
    use crate::metadata::record_times::RecordTime;

    let bench = on_postgres().await;
    let other = bench.other().await;
    let note = async |metadata: &Metadata, sequence: u64| {
        let times = vec![RecordTime::new(START, sequence)];
        let seen = Sightings { times, ..Sightings::default() };
        metadata.upsert_definitions(&seen).await.expect("upsert");
    };
    // As a store of before has them, which the first server takes over.
    note(&bench.metadata, 7).await;
    bench.metadata.name_log("node/a").await.expect("a name");
    other.name_log("node/b").await.expect("a name");
    note(&bench.metadata, 8).await;
    note(&other, 1000).await;
    assert_eq!(bench.metadata.records_since(START).await.expect("a record"), 7);
    assert_eq!(other.records_since(START).await.expect("a record"), 1000);
}
