//! The store as a whole: what is written is there, before and after a restart, and in the snapshot.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::event::id::ProjectId;
use crate::metadata::accounts::KeyId;
use crate::metadata::accounts::ProjectPatch;
use crate::metadata::accounts::UserId;
use crate::metadata::first_start::FirstStart;
use crate::metadata::first_start::Started;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::FlagPatch;
use crate::metadata::flags::NewFlag;
use crate::metadata::secrets::Seed;

mod cohorts;
mod definitions;
mod warnings;

const START: UnixMicros = UnixMicros(1_700_000_000_000_000);
const PROJECT: ProjectId = ProjectId(1);
const USER: UserId = UserId(1);

/// A store in a directory of its own.
struct Bench {
    directory: tempfile::TempDir,
    clock: Clock,
    metadata: Metadata,
}

impl Bench {
    /// An empty store.
    async fn empty() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let clock = Clock::test(START);
        let path = directory.path().join("metadata.db");
        let metadata = Metadata::open(&path, clock.clone()).await.expect("open");
        Self { directory, clock, metadata }
    }

    /// A store after its first start.
    async fn started() -> Self {
        let bench = Self::empty().await;
        bench.metadata.first_start(FirstStart::default(), &seed(1)).await.expect("first start");
        bench
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("metadata.db")
    }

    /// A second handle, as another process has one.
    async fn other(&self) -> Metadata {
        Metadata::open(&self.path(), self.clock.clone()).await.expect("open")
    }

    /// Checks that the published snapshot is what a restart would load.
    async fn check_snapshot(&self) {
        let other = self.other().await;
        assert_eq!(self.metadata.snapshot(), other.snapshot());
        other.close().await;
    }

    async fn create(&self, key: &str) -> Arc<flags::StoredFlag> {
        self.metadata.create_flag(PROJECT, USER, new(key)).await.expect("create")
    }

    async fn update(&self, id: FlagId, patch: FlagPatch) -> Arc<flags::StoredFlag> {
        self.metadata.update_flag(PROJECT, USER, id, patch).await.expect("update").after
    }
}

fn seed(number: u64) -> Seed {
    Seed::new(&mut StdRng::seed_from_u64(number))
}

fn new(key: &str) -> NewFlag {
    NewFlag { key: key.to_owned(), ..NewFlag::default() }
}

fn set_deleted(deleted: bool) -> FlagPatch {
    FlagPatch { deleted: Some(deleted), ..FlagPatch::default() }
}

fn set_active(active: bool) -> FlagPatch {
    FlagPatch { active: Some(active), ..FlagPatch::default() }
}

fn set_filters(filters: Value) -> FlagPatch {
    FlagPatch { filters: Some(filters), ..FlagPatch::default() }
}

fn set_key(key: &str) -> FlagPatch {
    FlagPatch { key: Some(key.to_owned()), ..FlagPatch::default() }
}

/// The code of a violation.
fn code<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> &'static str {
    match result {
        Err(MetadataError::Rejected(violation)) => violation.code,
        other => panic!("not rejected: {other:?}"),
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> Kind {
    result.expect_err("an error").kind()
}

#[tokio::test]
async fn migrations_apply_once() {
    let bench = Bench::empty().await;
    assert_eq!(bench.metadata.snapshot().projects().len(), 0);
    for _ in 0..2 {
        bench.other().await.close().await;
    }
    // Acknowledged writes survive a power cut: WAL, and a sync with every commit (2 is FULL).
    let mut tx = bench.metadata.shared.db.begin().await.expect("begin");
    let journal: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *tx).await.expect("journal");
    assert_eq!(journal, "wal");
    let synchronous: i64 =
        sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *tx).await.expect("synchronous");
    assert_eq!(synchronous, 2);
}

#[tokio::test]
async fn readers_cannot_write() {
    let bench = Bench::started().await;
    let result =
        sqlx::query("DELETE FROM personal_keys").execute(bench.metadata.shared.db.readers()).await;
    assert!(result.is_err());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("metadata.db");
    std::fs::write(&path, "this is not a database, and long enough to be looked at")
        .expect("write");
    let error = Metadata::open(&path, Clock::test(START)).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unavailable);
    let missing = directory.path().join("missing/metadata.db");
    let error = Metadata::open(&missing, Clock::test(START)).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let bench = Bench::empty().await;
    let mut tx = bench.metadata.shared.db.begin().await.expect("begin");
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', TRUE, x'00', 0)",
    )
    .execute(&mut *tx)
    .await
    .expect("insert");
    tx.commit().await.expect("commit");
    let result = Metadata::open(&bench.path(), bench.clock.clone()).await;
    assert!(matches!(result, Err(MetadataError::Migrate(_))), "{result:?}");
}

#[tokio::test]
async fn the_first_start_creates_what_is_needed_to_begin() {
    let bench = Bench::empty().await;
    let started = bench.metadata.first_start(FirstStart::default(), &seed(1)).await.expect("start");
    let Started { project, user, personal_key } = started;
    let value = personal_key.expect("shown once");
    assert_eq!(project.id, PROJECT);
    assert_eq!(project.organization, user.organization);
    assert_eq!(user.current_project, Some(PROJECT));
    assert!(project.token.starts_with("phc_") && project.token.len() == 47, "{}", project.token);
    assert!(value.starts_with("phx_") && value.len() == 47);
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.project_by_token(&project.token), Some(&project));
    assert_eq!(snapshot.project_by_token("phc_other"), None);
    let key = snapshot.key_by_value(&value).expect("key");
    assert_eq!((key.user.as_ref(), &key.scopes), (user.as_ref(), &None));
    assert_eq!(key.mask, format!("phx_...{}", &value[43..]));
    assert_eq!(snapshot.key_by_value(&project.token), None);
    bench.check_snapshot().await;

    let again = bench.metadata.first_start(FirstStart::default(), &seed(2)).await.expect("start");
    assert_eq!((again.project, again.user, again.personal_key), (project, user, None));
    assert_eq!(bench.metadata.snapshot(), snapshot);
}

#[tokio::test]
async fn no_clear_key_is_stored() {
    let bench = Bench::empty().await;
    let started = bench.metadata.first_start(FirstStart::default(), &seed(1)).await.expect("start");
    let value = started.personal_key.expect("key");
    bench.metadata.close().await;
    for entry in std::fs::read_dir(bench.directory.path()).expect("list") {
        let bytes = std::fs::read(entry.expect("entry").path()).expect("read");
        let is_there = bytes.windows(value.len()).any(|window| window == value.as_bytes());
        assert!(!is_there, "a clear key on disk");
    }
}

#[tokio::test]
async fn settings_fix_token_and_key() {
    let bench = Bench::empty().await;
    let fixed = |token: &str, key: &str| FirstStart {
        project_token: Some(token.to_owned()),
        personal_key: Some(key.to_owned()),
    };
    let start = async |settings: FirstStart| {
        bench.metadata.first_start(settings, &seed(1)).await.expect("start")
    };
    let works = |value: &str| bench.metadata.snapshot().key_by_value(value).is_some();
    let owns = |token: &str| bench.metadata.snapshot().project_by_token(token).is_some();

    let started = start(fixed("phc_a", "phx_a")).await;
    assert_eq!(started.personal_key.as_deref(), Some("phx_a"));
    assert!(owns("phc_a") && works("phx_a"));
    let made = bench.metadata.create_key(USER, "made", None, &seed(7)).await.expect("create");

    // Other settings replace what settings gave, and nothing else.
    let started = start(fixed("phc_b", "phx_b")).await;
    assert_eq!(started.personal_key, None);
    assert_eq!(started.project.token, "phc_b");
    assert!(!owns("phc_a") && owns("phc_b"));
    assert!(!works("phx_a") && works("phx_b") && works(&made.value));

    // The same settings change nothing; no settings leave things as they are.
    let before = bench.metadata.snapshot();
    start(fixed("phc_b", "phx_b")).await;
    start(FirstStart::default()).await;
    assert_eq!(bench.metadata.snapshot(), before);

    // A value that was given up before comes back under a new id.
    let ids = || bench.metadata.list_keys().iter().map(|key| key.id).collect::<Vec<_>>();
    assert_eq!(ids(), [KeyId(2), KeyId(3)]);
    start(fixed("phc_a", "phx_a")).await;
    assert_eq!(ids(), [KeyId(2), KeyId(4)]);
    assert!(works("phx_a") && !works("phx_b"));

    // A key that was made otherwise stays what it is.
    start(fixed("phc_a", &made.value)).await;
    assert_eq!(ids(), [KeyId(2)]);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing() {
    let bench = Bench::started().await;
    let second = bench.metadata.create_project(USER, "Second", &seed(2)).await.expect("create");
    let before = bench.metadata.snapshot();
    for (token, key, expected) in [
        (Some(""), None, Kind::Invalid),
        (Some("phx_mixed-up"), None, Kind::Invalid),
        (Some("phc_good"), Some(""), Kind::Invalid),
        (Some(second.token.as_str()), None, Kind::Conflict),
    ] {
        let settings = FirstStart {
            project_token: token.map(str::to_owned),
            personal_key: key.map(str::to_owned),
        };
        assert_eq!(kind(bench.metadata.first_start(settings, &seed(3)).await), expected);
    }
    assert_eq!(bench.metadata.snapshot(), before);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn projects() {
    let bench = Bench::started().await;
    let project = bench.metadata.create_project(USER, "Shop", &seed(2)).await.expect("create");
    assert_eq!((project.id, project.name.as_str()), (ProjectId(2), "Shop"));
    let patch = ProjectPatch {
        name: Some("Web shop".to_owned()),
        timezone: Some("Europe/Berlin".to_owned()),
        person_display_name_properties: Some(Some(vec!["nick".to_owned()])),
        anonymize_ips: Some(true),
        ..ProjectPatch::default()
    };
    let patched = bench.metadata.update_project(ProjectId(2), patch).await.expect("update");
    assert_eq!(patched.token, project.token);
    assert!(patched.anonymize_ips && !project.anonymize_ips);
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.project(ProjectId(2)), Some(&patched));
    assert_eq!(snapshot.project_by_token(&project.token), Some(&patched));
    assert_eq!(snapshot.projects().map(|project| project.id.0).collect::<Vec<_>>(), [1, 2]);
    bench.check_snapshot().await;

    let metadata = &bench.metadata;
    assert_eq!(code(metadata.create_project(USER, " ", &seed(3)).await), "blank");
    let long = "n".repeat(201);
    assert_eq!(code(metadata.create_project(USER, &long, &seed(3)).await), "max_length");
    let nobody = metadata.create_project(UserId(9), "x", &seed(3)).await;
    assert_eq!(kind(nobody), Kind::NotFound);
    let nothing = metadata.update_project(ProjectId(9), ProjectPatch::default()).await;
    assert_eq!(kind(nothing), Kind::NotFound);
}

#[tokio::test]
async fn keys_are_created_used_and_revoked() {
    let bench = Bench::started().await;
    let scopes = Some(vec!["feature_flag:read".to_owned()]);
    let created =
        bench.metadata.create_key(USER, "ci", scopes.clone(), &seed(5)).await.expect("create");
    let found = |value: &str| bench.metadata.snapshot().key_by_value(value).cloned();
    let key = found(&created.value).expect("key");
    assert_eq!((&key.scopes, key.created_at, key.last_used_at), (&scopes, START, None));
    assert_eq!(bench.metadata.list_keys().len(), 2);
    assert!(!format!("{created:?}").contains(&created.value));

    // Uses are written down hourly at most.
    bench.metadata.record_key_use(&key).await.expect("record");
    let used = |value: &str| found(value).and_then(|key| key.last_used_at);
    assert_eq!(used(&created.value), Some(START));
    bench.clock.advance(Duration::from_mins(59));
    let key = found(&created.value).expect("key");
    bench.metadata.record_key_use(&key).await.expect("record");
    assert_eq!(used(&created.value), Some(START));
    bench.clock.advance(Duration::from_mins(1));
    bench.metadata.record_key_use(&key).await.expect("record");
    assert_eq!(used(&created.value), Some(bench.clock.now()));
    bench.check_snapshot().await;

    bench.metadata.revoke_key(key.id).await.expect("revoke");
    assert_eq!(found(&created.value), None);
    assert_eq!(kind(bench.metadata.revoke_key(key.id).await), Kind::NotFound);
    let next = bench.metadata.create_key(USER, "next", None, &seed(6)).await.expect("create");
    assert_ne!(next.key.id, key.id, "the id of a revoked key stands for it for good");
    bench.check_snapshot().await;

    assert_eq!(code(bench.metadata.create_key(USER, "", None, &seed(7)).await), "blank");
    let nobody = bench.metadata.create_key(UserId(9), "x", None, &seed(7)).await;
    assert_eq!(kind(nobody), Kind::NotFound);
}

#[tokio::test]
async fn a_flag_is_stored_as_given() {
    let bench = Bench::started().await;
    let filters = json!({
        "groups": [{"properties": [{"key": "email", "value": ["a@b.c"], "operator": "exact",
                                    "type": "person"}],
                    "rollout_percentage": 12.5, "description": "kept"}],
        "payloads": {"true": "{\"a\": 1}"},
        "unknown": {"kept": [1, 2.5, null]}});
    let given = NewFlag {
        name: "About it".to_owned(),
        filters: Some(filters.clone()),
        created_at: Some(UnixMicros(5)),
        ensure_experience_continuity: true,
        rollback_conditions: Some(json!([{"threshold": 1}])),
        performed_rollback: Some(true),
        tags: vec![" Beta ".to_owned(), "beta".to_owned(), String::new(), "Ü".to_owned()],
        analytics_dashboards: vec![4, 2, 4],
        has_enriched_analytics: Some(false),
        ..new("full")
    };
    let flag = bench.metadata.create_flag(PROJECT, USER, given).await.expect("create");
    assert_eq!((flag.id, flag.project, flag.version), (FlagId(1), PROJECT, 1));
    assert_eq!((flag.name.as_str(), flag.key.as_str()), ("About it", "full"));
    assert_eq!(flag.filters, filters);
    assert_eq!((flag.active, flag.deleted, flag.created_by), (true, false, Some(USER)));
    assert_eq!((flag.created_at, flag.updated_at), (UnixMicros(5), START));
    assert!(flag.ensure_experience_continuity);
    assert_eq!(flag.rollback_conditions, Some(json!([{"threshold": 1}])));
    assert_eq!(flag.performed_rollback, Some(true));
    assert_eq!(flag.tags, ["beta", "ü"]);
    assert_eq!((flag.usage_dashboard, &flag.analytics_dashboards), (None, &vec![4, 2]));
    assert_eq!(flag.has_enriched_analytics, Some(false));
    assert_eq!(*flag.rollout_percentage(), Value::Null);
    bench.check_snapshot().await;

    let plain = bench.create("plain").await;
    assert_eq!(plain.filters, json!({"groups": [{"properties": [], "rollout_percentage": null}]}));
    assert_eq!((plain.active, plain.performed_rollback), (true, None));
    assert!(plain.is_simple());
    let half = json!({"groups": [{"rollout_percentage": 50}]});
    let half = bench.update(plain.id, set_filters(half)).await;
    assert_eq!(*half.rollout_percentage(), json!(50));
    bench.check_snapshot().await;
}

#[tokio::test]
async fn an_update_changes_what_it_names() {
    let bench = Bench::started().await;
    let flag = bench.create("a").await;
    bench.clock.advance(Duration::from_secs(1));
    let patch = FlagPatch {
        name: Some("Now".to_owned()),
        rollback_conditions: Some(Some(json!({"x": 1}))),
        performed_rollback: Some(Some(true)),
        tags: Some(vec!["T".to_owned()]),
        usage_dashboard: Some(Some(3)),
        analytics_dashboards: Some(vec![1]),
        has_enriched_analytics: Some(Some(true)),
        ..FlagPatch::default()
    };
    let update = bench.metadata.update_flag(PROJECT, USER, flag.id, patch).await.expect("update");
    assert_eq!(update.before, flag);
    let after = update.after;
    let expected = flags::StoredFlag {
        name: "Now".to_owned(),
        rollback_conditions: Some(json!({"x": 1})),
        performed_rollback: Some(true),
        tags: vec!["t".to_owned()],
        usage_dashboard: Some(3),
        analytics_dashboards: vec![1],
        has_enriched_analytics: Some(true),
        updated_at: bench.clock.now(),
        version: 2,
        ..flag.as_ref().clone()
    };
    assert_eq!(*after, expected);
    assert_eq!(bench.metadata.snapshot().flags(PROJECT), [Arc::clone(&after)]);

    // Dashboards are only ever added; null empties; switching on forgets the rollback.
    let patch = FlagPatch {
        active: Some(true),
        rollback_conditions: Some(None),
        analytics_dashboards: Some(vec![2, 1]),
        ..FlagPatch::default()
    };
    let after = bench.update(flag.id, patch).await;
    assert_eq!(after.analytics_dashboards, [1, 2]);
    assert_eq!((&after.rollback_conditions, after.performed_rollback), (&None, Some(false)));
    assert_eq!(after.version, 3);
    let after = bench.update(flag.id, FlagPatch::default()).await;
    assert_eq!(after.version, 4, "an update that changes nothing is one too");

    let merged = bench.update(flag.id, set_filters(json!({"payloads": {"true": {"a": 1}}}))).await;
    assert_eq!(
        merged.filters,
        json!({"groups": [{"properties": [], "rollout_percentage": null}],
               "payloads": {"true": "{\"a\":1}"}})
    );
    let broken = set_filters(json!({"payloads": {"false": "1"}}));
    let rejected = bench.metadata.update_flag(PROJECT, USER, flag.id, broken).await;
    assert_eq!(code(rejected), "invalid_input");
    assert_eq!(*bench.metadata.flag(PROJECT, flag.id).await.expect("flag"), *merged);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn keys_of_flags_are_unique_among_the_living() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let a = bench.create("a").await;
    let b = bench.create("b").await;
    let taken = metadata.create_flag(PROJECT, USER, new("a")).await.expect_err("taken");
    let MetadataError::Rejected(violation) = &taken else { panic!("{taken:?}") };
    assert_eq!(violation.code, "unique");
    assert_eq!(violation.detail, "There is already a feature flag with this key.");
    assert_eq!(violation.attr, Some("key"));
    assert_eq!(taken.kind(), Kind::Invalid);
    assert_eq!(code(metadata.update_flag(PROJECT, USER, b.id, set_key("a")).await), "unique");
    assert_eq!(bench.update(b.id, set_key("b")).await.version, 2, "its own key is free");

    // Creating a flag removes the deleted one with its key, for good.
    bench.update(a.id, set_deleted(true)).await;
    let again = bench.create("a").await;
    assert_eq!(again.id, FlagId(3));
    assert_eq!(kind(metadata.flag(PROJECT, a.id).await), Kind::NotFound);
    // So does renaming one.
    bench.update(again.id, set_deleted(true)).await;
    bench.update(b.id, set_key("a")).await;
    assert_eq!(kind(metadata.flag(PROJECT, again.id).await), Kind::NotFound);
    bench.check_snapshot().await;

    // Keys of another project are another matter.
    let other = metadata.create_project(USER, "Other", &seed(2)).await.expect("project");
    metadata.create_flag(other.id, USER, new("a")).await.expect("create");
    bench.check_snapshot().await;
}

#[tokio::test]
async fn the_newest_flag_keeps_its_id_when_it_is_replaced() {
    let bench = Bench::started().await;
    let first = bench.create("a").await;
    bench.update(first.id, set_deleted(true)).await;
    let second = bench.create("a").await;
    assert_eq!((first.id, second.id), (FlagId(1), FlagId(2)));
}

#[tokio::test]
async fn deleted_flags_can_be_read_and_restored() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let flag = bench.create("a").await;
    bench.update(flag.id, set_deleted(true)).await;
    assert_eq!(metadata.snapshot().flags(PROJECT), []);
    assert_eq!(metadata.list_flags(PROJECT, 100, 0).count, 0);
    assert!(metadata.flag(PROJECT, flag.id).await.expect("flag").deleted);
    bench.check_snapshot().await;
    let restored = bench.update(flag.id, set_deleted(false)).await;
    assert_eq!((restored.deleted, restored.version), (false, 3));
    assert_eq!(metadata.snapshot().flags(PROJECT), [restored]);

    // Not if its key was taken: a flag may be given the key while another is created deleted.
    let hidden = NewFlag { deleted: true, ..new("b") };
    let hidden = metadata.create_flag(PROJECT, USER, hidden).await.expect("create");
    let mut write = metadata.begin().await.expect("begin");
    sqlx::query("UPDATE feature_flags SET key = 'b' WHERE id = 1")
        .execute(write.connection())
        .await
        .expect("rename behind the store's back");
    write.commit_unseen().await.expect("commit");
    metadata.shared.is_behind.store(true, Ordering::Release);
    let clash = metadata.update_flag(PROJECT, USER, hidden.id, set_deleted(false)).await;
    assert_eq!(code(clash), "unique");
}

#[tokio::test]
async fn flags_are_of_one_project() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let other = metadata.create_project(USER, "Other", &seed(2)).await.expect("project").id;
    let flag = bench.create("a").await;
    assert_eq!(kind(metadata.flag(other, flag.id).await), Kind::NotFound);
    let update = metadata.update_flag(other, USER, flag.id, set_deleted(true)).await;
    assert_eq!(kind(update), Kind::NotFound);
    assert_eq!(metadata.snapshot().flags(other), []);
    assert_eq!(metadata.list_flags(other, 100, 0).count, 0);
    let nowhere = metadata.create_flag(ProjectId(9), USER, new("x")).await;
    assert_eq!(kind(nowhere), Kind::NotFound);
    let nobody = metadata.create_flag(PROJECT, UserId(9), new("x")).await;
    assert_eq!(kind(nobody), Kind::NotFound);
    assert_eq!(kind(metadata.flag(PROJECT, FlagId(99)).await), Kind::NotFound);
}

#[tokio::test]
async fn dependencies_hold_across_flags() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let needs = |id: FlagId| {
        json!({"groups": [{"properties": [{"key": id.to_string(), "type": "flag", "value": true,
                                           "operator": "flag_evaluates_to"}]}]})
    };
    let a = bench.create("a").await;
    let b = bench.create("b").await;
    bench.update(b.id, set_filters(needs(a.id))).await;
    for patch in [set_deleted(true), set_active(false), set_filters(needs(b.id))] {
        assert_eq!(code(metadata.update_flag(PROJECT, USER, a.id, patch).await), "invalid_input");
    }
    bench.update(b.id, set_active(false)).await;
    bench.update(a.id, set_active(false)).await;
    assert_eq!(
        code(metadata.update_flag(PROJECT, USER, b.id, set_active(true)).await),
        "invalid_input"
    );
    bench.update(a.id, set_active(true)).await;
    bench.update(b.id, set_active(true)).await;
    // Dependencies are within a project.
    let other = metadata.create_project(USER, "Other", &seed(2)).await.expect("project").id;
    let foreign = NewFlag { filters: Some(needs(a.id)), ..new("c") };
    assert_eq!(code(metadata.create_flag(other, USER, foreign).await), "invalid_input");
}

#[tokio::test]
async fn filters_are_bounded() {
    let bench = Bench::started().await;
    let filters = json!({"groups": [{"description": "x".repeat(512 * 1024)}]});
    let new = NewFlag { filters: Some(filters), ..new("big") };
    assert_eq!(code(bench.metadata.create_flag(PROJECT, USER, new).await), "invalid_input");
}

#[tokio::test]
async fn lists_are_newest_first_and_paged() {
    let bench = Bench::started().await;
    for key in ["a", "b", "c"] {
        bench.create(key).await;
    }
    let early = FlagPatch { created_at: Some(UnixMicros(1)), ..FlagPatch::default() };
    bench.update(FlagId(2), early).await;
    bench.clock.advance(Duration::from_secs(1));
    bench.create("d").await;
    let keys = |limit, offset| {
        let page = bench.metadata.list_flags(PROJECT, limit, offset);
        assert_eq!(page.count, 4);
        page.flags.iter().map(|flag| flag.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(100, 0), ["d", "c", "a", "b"]);
    assert_eq!(keys(2, 1), ["c", "a"]);
    assert_eq!(keys(2, 3), ["b"]);
    assert_eq!(keys(2, 4), [""; 0]);
    assert_eq!(keys(0, 0), [""; 0]);
    bench.check_snapshot().await;
}

/// Goal: of two creations of one key, one wins. Method: many rounds at once, through two handles,
/// which have no lock in common but SQLite's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_creations_of_one_key_one_wins() {
    let bench = Bench::started().await;
    let other = bench.other().await;
    for round in 0..20 {
        let key = format!("flag-{round}");
        let results = tokio::join!(
            bench.metadata.create_flag(PROJECT, USER, new(&key)),
            bench.metadata.create_flag(PROJECT, USER, new(&key)),
            other.create_flag(PROJECT, USER, new(&key)),
        );
        let (mut won, mut lost) = (0, 0);
        for result in [results.0, results.1, results.2] {
            match result {
                Ok(_) => won += 1,
                Err(error) => {
                    assert_eq!(code::<()>(Err(error)), "unique");
                    lost += 1;
                }
            }
        }
        assert_eq!((won, lost), (1, 2));
    }
    bench.metadata.refresh().await.expect("refresh");
    other.refresh().await.expect("refresh");
    assert_eq!(bench.metadata.snapshot().flags(PROJECT).len(), 20);
    assert_eq!(bench.metadata.snapshot(), other.snapshot());
}

#[tokio::test]
async fn what_another_process_wrote_is_picked_up() {
    let bench = Bench::started().await;
    let other = bench.other().await;
    let created = other.create_key(USER, "from elsewhere", None, &seed(5)).await.expect("create");
    let works = || bench.metadata.snapshot().key_by_value(&created.value).is_some();
    assert!(!works());
    bench.metadata.refresh().await.expect("refresh");
    assert!(works());
    other.revoke_key(created.key.id).await.expect("revoke");
    // A write notices as well.
    bench.create("a").await;
    assert!(!works());
    let before = bench.metadata.snapshot();
    bench.metadata.refresh().await.expect("refresh");
    assert!(Arc::ptr_eq(&before, &bench.metadata.snapshot()), "nothing new, nothing loaded");
}

/// Goal: a request that goes away in the middle of a write leaves neither a lock nor a snapshot that
/// stays behind. Method: drop creations after every number of polls that one can take, often enough
/// to drop some when their commit is on the way: those are stored, and nobody published them.
#[tokio::test]
async fn a_write_that_is_dropped_half_way_does_no_harm() {
    let bench = Bench::started().await;
    let (mut dropped, mut stored_unseen, mut done) = (0, 0, 0);
    for attempt in 0..300 {
        let key = format!("flag-{attempt}");
        let has = |snapshot: &Snapshot| snapshot.flags(PROJECT).iter().any(|flag| flag.key == key);
        let write = bench.metadata.create_flag(PROJECT, USER, new(&key));
        if poll_at_most(write, 1 + attempt % 30).await.is_some() {
            done += 1;
            continue;
        }
        dropped += 1;
        let was_seen = has(&bench.metadata.snapshot());
        bench.metadata.refresh().await.expect("refresh");
        bench.check_snapshot().await;
        stored_unseen += usize::from(!was_seen && has(&bench.metadata.snapshot()));
    }
    assert!(dropped > 0 && stored_unseen > 0 && done > 0, "{dropped} {stored_unseen} {done}");
}

/// Polls `future` whenever it asks for it, and drops it after that many times.
async fn poll_at_most<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polled = 0;
    std::future::poll_fn(move |context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
