//! Several servers on one PostgreSQL database.

use rand::Rng;
use tokio::time::Instant;

use super::*;
use crate::activity::ActivityFilter;
use crate::cohorts::{CohortPatch, NewCohort};
use crate::promotions::NewPromotion;
use crate::tests::place::{Database, Server, patiently};
use weir_event::predicate::Matching;
use weir_event::promotion::PromotedTable;
use weir_event::schema::PropertyType;

async fn on_postgres() -> Bench {
    Bench::started_at(Backend::Database(Database::new().await)).await
}

/// Goal: servers that start at once on an empty database all find it ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_start_at_once_on_an_empty_database() {
    for _ in 0..5 {
        let place = Backend::Database(Database::new().await);
        let open =
            async || place.open(Clock::test(START)).await.map(|metadata| metadata.snapshot());
        let (a, b, c, d) = tokio::join!(open(), open(), open(), open());
        let first = a.expect("a server");
        for other in [b, c, d] {
            assert_eq!(other.expect("another server"), first);
        }
    }
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
    let page = bench
        .metadata
        .activity(PROJECT, &ActivityFilter { item, ..ActivityFilter::default() }, 500, 0)
        .await;
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
    let row = crate::hash_keys::NewHashKey {
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
    let bench = Bench::started_at(Backend::Database(database)).await;
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
    use crate::definitions::Sightings;
    use crate::record_times::RecordTime;

    let bench = on_postgres().await;
    let other = bench.other().await;
    let note = async |metadata: &Metadata, sequence: u64| {
        let times = vec![RecordTime::new(START, sequence)];
        let seen = Sightings { times, ..Sightings::default() };
        metadata.upsert_definitions(&seen).await.expect("upsert");
    };
    // As a store of before has them, which the first server takes over.
    note(&bench.metadata, 7).await;
    let first = bench.metadata.of_log("node/a").await.expect("a name");
    let second = other.of_log("node/b").await.expect("a name");
    note(&first, 8).await;
    note(&second, 1000).await;
    assert_eq!(first.records_since(START).await.expect("a record"), 7);
    assert_eq!(second.records_since(START).await.expect("a record"), 1000);
}

/// A second project.
async fn project(metadata: &Metadata, name: &str, number: u64) -> ProjectId {
    let made = metadata.create_project(USER, name, ProjectPatch::default(), &seed(number)).await;
    made.expect("a project").id
}

/// Goal: an edit of one server makes another one read the project that it is about, and nothing else. Method:
/// what was not read again is the same object as before.
#[tokio::test]
async fn only_what_has_changed_is_read_again() {
    let bench = on_postgres().await;
    let second = project(&bench.metadata, "Second", 2).await;
    bench.create("first").await;
    bench.metadata.create_flag(second, USER, new("second")).await.expect("a flag");
    let other = bench.other().await;
    let flags = |project| other.snapshot().flags(project).first().map(Arc::clone).expect("a flag");
    let user = || other.snapshot().user(USER).map(Arc::clone).expect("a user");
    let (first, before, asked) = (flags(PROJECT), flags(second), user());
    let patch = FlagPatch { name: Some("renamed".to_owned()), ..FlagPatch::default() };
    bench.metadata.update_flag(second, USER, before.id, patch).await.expect("an edit");
    other.refresh().await.expect("refresh");
    assert_eq!(flags(second).name, "renamed");
    assert!(Arc::ptr_eq(&first, &flags(PROJECT)), "another project");
    assert!(Arc::ptr_eq(&asked, &user()), "users");
    let edited = flags(second);
    bench.metadata.create_key(USER, "a key", None, &seed(3)).await.expect("a key");
    other.refresh().await.expect("refresh");
    assert_eq!(other.snapshot().keys().count(), bench.metadata.snapshot().keys().count());
    assert!(Arc::ptr_eq(&first, &flags(PROJECT)), "the first project");
    assert!(Arc::ptr_eq(&edited, &flags(second)), "the second project");
    assert_eq!(bench.metadata.snapshot(), other.snapshot());
}

/// Goal: what a server does not tell, as one of an older version, is read all the same; so is what nobody knows
/// any more.
#[tokio::test]
async fn what_nobody_has_noted_is_read() {
    let bench = on_postgres().await;
    let flag = bench.create("flag").await;
    let other = bench.other().await;
    let name = || other.snapshot().flags(PROJECT).first().map(|flag| flag.name.clone());
    for (number, name_now, unnoted) in [
        (21, "older", "UPDATE revision SET number = number + 1"),
        (22, "much older", "UPDATE revision SET number = number + 5000"),
        (23, "removed", "DELETE FROM changed_parts"),
    ] {
        if unnoted.starts_with("DELETE") {
            let patch = FlagPatch { name: Some("noted".to_owned()), ..FlagPatch::default() };
            bench.update(flag.id, patch).await;
        }
        bench.run(&format!("UPDATE feature_flags SET name = '{name_now}'")).await;
        bench.run(unnoted).await;
        other.refresh().await.expect("refresh");
        assert_eq!(name().as_deref(), Some(name_now));
        bench.metadata.refresh().await.expect("refresh");
        // A noted edit after one that is not does not hide it.
        bench.run("UPDATE feature_flags SET name = 'hidden'").await;
        bench.run("UPDATE revision SET number = number + 1").await;
        project(&bench.metadata, name_now, number).await;
        other.refresh().await.expect("refresh");
        assert_eq!(name().as_deref(), Some("hidden"));
    }
}

/// One edit at random. Another server may have removed what it is about.
async fn edit(metadata: &Metadata, projects: &mut Vec<ProjectId>, random: &mut StdRng, round: u64) {
    let snapshot = metadata.snapshot();
    let of = projects[random.random_range(0..projects.len())];
    match random.random_range(0..13) {
        0 if projects.len() < 5 => {
            projects.push(project(metadata, &format!("p{round}"), 1000 + round).await);
        }
        1 => {
            if let Some(flag) = snapshot.flags(of).first() {
                let patch = FlagPatch { deleted: Some(true), ..FlagPatch::default() };
                let _ = metadata.update_flag(of, USER, flag.id, patch).await;
            }
        }
        2 => {
            if let Some(cohort) = snapshot.cohorts(of).first() {
                let patch = CohortPatch { deleted: Some(true), ..CohortPatch::default() };
                let _ = metadata.update_cohort(of, USER, cohort.id, patch).await;
            }
        }
        3 => {
            let name = Some(format!("cohort {round}"));
            let cohort = NewCohort {
                values: CohortPatch { name, ..CohortPatch::default() },
                is_static: true,
                members: vec![uuid::Uuid::from_u128(u128::from(round))],
            };
            metadata.create_cohort(of, USER, cohort).await.expect("a cohort");
        }
        4 => {
            let (matching, minimal) = (Some(Matching::Explicit), Some(round.is_multiple_of(2)));
            metadata.set_flag_settings(of, USER, matching, minimal).await.expect("settings");
        }
        5 => {
            let names = [format!("type {}", round % 7)];
            metadata.ensure_group_types(of, &names).await.expect("a type");
        }
        6 => drop(metadata.rotate_token(of, &seed(2000 + round)).await.expect("a token")),
        7 => {
            let label = format!("key {round}");
            metadata.create_key(USER, &label, None, &seed(3000 + round)).await.expect("a key");
        }
        8 => {
            if let Some(key) = snapshot.keys().next() {
                let _ = metadata.revoke_key(key.id).await;
            }
        }
        9 => {
            let key = format!("key {}", round % 5);
            let kind = PropertyType::ALL[random.random_range(0..3)];
            let table = PromotedTable::ALL[random.random_range(0..2)];
            let new = NewPromotion { table, key, kind, stored: None };
            // Refused, if another project has it with another type.
            let _ = metadata.promote(USER, of, new).await;
        }
        10 => {
            if let Some(own) = snapshot.promoted_properties(of).first() {
                let _ = metadata.demote(USER, of, own.table, &own.key).await;
            }
        }
        _ => drop(metadata.create_flag(of, USER, new(&format!("f{round}"))).await.expect("new")),
    }
}

/// Goal: parts that are read again come out as the whole. Method: edits of all kinds at random, by two servers
/// that look now and then; their snapshots have to be those of a third that reads everything.
#[tokio::test]
async fn parts_come_out_as_the_whole() {
    let bench = on_postgres().await;
    let servers = [bench.metadata.clone(), bench.other().await];
    let mut projects = vec![PROJECT];
    let mut random = StdRng::seed_from_u64(20);
    for round in 0..240 {
        let metadata = &servers[random.random_range(0..2)];
        edit(metadata, &mut projects, &mut random, round).await;
        if random.random_range(0..4) == 0 {
            for server in &servers {
                server.refresh().await.expect("refresh");
            }
            assert_eq!(servers[0].snapshot(), servers[1].snapshot(), "round {round}");
            bench.check_snapshot().await;
        }
    }
}
