//! Stored flags: fields, keys, deletion and restoring, lists.

use serde_json::Value;

use super::*;
use crate::documents::Kind::Dashboard;
use crate::flags::plain::{PlainFields, PlainPatch};
use crate::sql;

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

#[tokio::test]
async fn a_flag_is_stored_as_given() {
    let bench = Bench::started().await;
    let filters = json!({
        "groups": [{"properties": [{"key": "email", "value": ["a@b.c"], "operator": "exact",
                                    "type": "person"}],
                    "rollout_percentage": 12.5, "description": "kept"}],
        "payloads": {"true": "{\"a\": 1}"},
        "unknown": {"kept": [1, 2.5, null]}});
    let given = FlagPatch {
        name: Some("About it".to_owned()),
        filters: Some(filters.clone()),
        created_at: Some(UnixMicros(5)),
        plain: PlainPatch {
            ensure_experience_continuity: Some(true),
            rollback_conditions: Some(Some(json!([{"threshold": 1}]))),
            performed_rollback: Some(Some(true)),
            tags: Some([" Beta ", "beta", "", "Ü"].map(str::to_owned).into()),
            analytics_dashboards: Some(vec![4, 2, 4]),
            has_enriched_analytics: Some(Some(false)),
            ..PlainPatch::default()
        },
        ..new("full")
    };
    let flag = bench.metadata.create_flag(PROJECT, USER, given).await.expect("create");
    assert_eq!((flag.id, flag.project, flag.version), (FlagId(1), PROJECT, 1));
    assert_eq!((flag.name.as_str(), flag.key.as_str()), ("About it", "full"));
    assert_eq!(flag.filters, filters);
    assert_eq!((flag.active, flag.deleted, flag.created_by), (true, false, Some(USER)));
    assert_eq!((flag.created_at, flag.updated_at), (UnixMicros(5), START));
    let plain = &flag.plain;
    assert!(plain.ensure_experience_continuity);
    assert_eq!(plain.rollback_conditions, Some(json!([{"threshold": 1}])));
    assert_eq!(plain.performed_rollback, Some(true));
    assert_eq!(plain.tags, ["beta", "ü"]);
    assert_eq!((flag.usage_dashboard, &plain.analytics_dashboards), (Some(1), &vec![4, 2]));
    assert_eq!(plain.has_enriched_analytics, Some(false));
    assert_eq!(*flag.rollout_percentage(), Value::Null);
    bench.check_snapshot().await;

    let bare = bench.create("bare").await;
    assert_eq!(bare.filters, json!({"groups": [{"properties": [], "rollout_percentage": null}]}));
    assert_eq!((bare.active, bare.plain.performed_rollback), (true, None));
    assert!(bare.is_simple());
    let half = json!({"groups": [{"rollout_percentage": 50}]});
    let half = bench.update(bare.id, set_filters(half)).await;
    assert_eq!(*half.rollout_percentage(), json!(50));
    bench.check_snapshot().await;
}

#[tokio::test]
async fn an_update_changes_what_it_names() {
    let bench = Bench::started().await;
    let flag = bench.create("a").await;
    bench.clock.advance(Duration::from_secs(1));
    let raw = json!({"x": {"$serde_json::private::RawValue": "not JSON"}});
    let patch = FlagPatch {
        name: Some("Now".to_owned()),
        usage_dashboard: Some(Some(3)),
        plain: PlainPatch {
            rollback_conditions: Some(Some(raw.clone())),
            performed_rollback: Some(Some(true)),
            tags: Some(vec!["T".to_owned()]),
            analytics_dashboards: Some(vec![1]),
            has_enriched_analytics: Some(Some(true)),
            ..PlainPatch::default()
        },
        ..FlagPatch::default()
    };
    let update = bench.metadata.update_flag(PROJECT, USER, flag.id, patch).await.expect("update");
    assert_eq!(update.before, flag);
    let after = update.after;
    let expected = StoredFlag {
        name: "Now".to_owned(),
        usage_dashboard: Some(3),
        plain: PlainFields {
            rollback_conditions: Some(raw),
            performed_rollback: Some(true),
            tags: vec!["t".to_owned()],
            analytics_dashboards: vec![1],
            has_enriched_analytics: Some(true),
            ..PlainFields::default()
        },
        updated_at: bench.clock.now(),
        version: 2,
        ..flag.as_ref().clone()
    };
    assert_eq!(*after, expected);
    assert_eq!(bench.metadata.snapshot().flags(PROJECT), [Arc::clone(&after)]);

    // Dashboards are only ever added; null empties; activating clears the rollback.
    let patch = FlagPatch {
        active: Some(true),
        plain: PlainPatch {
            rollback_conditions: Some(None),
            analytics_dashboards: Some(vec![2, 1]),
            ..PlainPatch::default()
        },
        ..FlagPatch::default()
    };
    let after = bench.update(flag.id, patch).await;
    let plain = &after.plain;
    assert_eq!(plain.analytics_dashboards, [1, 2]);
    assert_eq!((&plain.rollback_conditions, plain.performed_rollback), (&None, Some(false)));
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

/// A program that adds a field needs no migration, and an older one does not lose it.
#[tokio::test]
async fn fields_of_other_versions_have_their_defaults_or_are_kept() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let flag = bench.create("a").await;
    let put = async |body: &'static str| {
        let mut write = metadata.begin().await.expect("begin");
        let update = sql::query("UPDATE feature_flags SET body = $1").bind(body);
        update.execute(write.connection()).await.expect("write behind the store's back");
        write.commit_unseen().await.expect("commit");
        metadata.shared.is_behind.store(true, Ordering::Release);
    };
    put(r#"{"tags": ["x"], "later": {"kept": [1, null]}}"#).await;
    let name = FlagPatch { name: Some("Now".to_owned()), ..FlagPatch::default() };
    let after = bench.update(flag.id, name).await;
    let expected = PlainFields {
        tags: vec!["x".to_owned()],
        unknown: [("later".to_owned(), json!({"kept": [1, null]}))].into_iter().collect(),
        ..PlainFields::default()
    };
    assert_eq!((after.name.as_str(), &after.plain), ("Now", &expected));
    assert_eq!(after.compared().get("later"), None);
    let select = sql::query_scalar("SELECT body FROM feature_flags");
    let body: String = select.fetch_one(&mut bench.reader().await).await.expect("a body");
    assert_eq!(body, r#"{"later":{"kept":[1,null]},"tags":["x"]}"#, "without defaults");
    bench.check_snapshot().await;

    put(r#"{"archived": "yes"}"#).await;
    let opened = bench.place.open(bench.clock.clone()).await;
    let is_refused = matches!(opened, Err(MetadataError::Corrupt { table: "feature_flags", .. }));
    assert!(is_refused, "{opened:?}");
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

    // Creating a flag permanently removes the deleted one with its key.
    bench.update(a.id, set_deleted(true)).await;
    let again = bench.create("a").await;
    assert_eq!(again.id, FlagId(3));
    assert_eq!(kind(metadata.flag(PROJECT, a.id).await), Kind::NotFound);
    // Renaming one does the same.
    bench.update(again.id, set_deleted(true)).await;
    bench.update(b.id, set_key("a")).await;
    assert_eq!(kind(metadata.flag(PROJECT, again.id).await), Kind::NotFound);
    bench.check_snapshot().await;

    // Keys of another project do not conflict.
    let other = metadata
        .create_project(USER, "Other", ProjectPatch::default(), &seed(2))
        .await
        .expect("project");
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
    assert!(metadata.flag(PROJECT, flag.id).await.expect("flag").deleted);
    bench.check_snapshot().await;
    let restored = bench.update(flag.id, set_deleted(false)).await;
    assert_eq!((restored.deleted, restored.version), (false, 3));
    assert_eq!(metadata.snapshot().flags(PROJECT), [restored]);

    // Not if its key is taken: a flag may get the key while another one is created as deleted.
    let hidden = FlagPatch { deleted: Some(true), ..new("b") };
    let hidden = metadata.create_flag(PROJECT, USER, hidden).await.expect("create");
    let mut write = metadata.begin().await.expect("begin");
    sql::query("UPDATE feature_flags SET key = 'b' WHERE id = 1")
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
    let other = metadata
        .create_project(USER, "Other", ProjectPatch::default(), &seed(2))
        .await
        .expect("project")
        .id;
    let flag = bench.create("a").await;
    assert_eq!(kind(metadata.flag(other, flag.id).await), Kind::NotFound);
    let update = metadata.update_flag(other, USER, flag.id, set_deleted(true)).await;
    assert_eq!(kind(update), Kind::NotFound);
    assert_eq!(metadata.snapshot().flags(other), []);
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
    let other = metadata
        .create_project(USER, "Other", ProjectPatch::default(), &seed(2))
        .await
        .expect("project")
        .id;
    let foreign = FlagPatch { filters: Some(needs(a.id)), ..new("c") };
    assert_eq!(code(metadata.create_flag(other, USER, foreign).await), "invalid_input");
}

#[tokio::test]
async fn filters_are_bounded() {
    let bench = Bench::started().await;
    let filters = json!({"groups": [{"description": "x".repeat(512 * 1024)}]});
    let new = FlagPatch { filters: Some(filters), ..new("big") };
    assert_eq!(code(bench.metadata.create_flag(PROJECT, USER, new).await), "invalid_input");
}

#[tokio::test]
async fn lists_are_newest_first() {
    let bench = Bench::started().await;
    for key in ["a", "b", "c"] {
        bench.create(key).await;
    }
    let early = FlagPatch { created_at: Some(UnixMicros(1)), ..FlagPatch::default() };
    bench.update(FlagId(2), early).await;
    bench.clock.advance(Duration::from_secs(1));
    bench.create("d").await;
    let snapshot = bench.metadata.snapshot();
    let keys: Vec<&str> = snapshot.flags(PROJECT).iter().map(|flag| flag.key.as_str()).collect();
    assert_eq!(keys, ["d", "c", "a", "b"]);
    bench.check_snapshot().await;
}

/// A device is the same before and after a login.
#[tokio::test]
async fn flags_by_device_keep_nothing_across_a_login() {
    let bench = Bench::started().await;
    let continuous = |continuity| PlainPatch {
        ensure_experience_continuity: Some(continuity),
        ..PlainPatch::default()
    };
    let by_device = |key: &str, continuity: bool| FlagPatch {
        plain: PlainPatch {
            bucketing_identifier: Some(Some("device_id".to_owned())),
            ..continuous(continuity)
        },
        ..new(key)
    };
    let both = bench.metadata.create_flag(PROJECT, USER, by_device("both", true)).await;
    assert_eq!(code(both), "invalid_input");
    let flag = bench.metadata.create_flag(PROJECT, USER, by_device("one", false)).await;
    let patch = FlagPatch { plain: continuous(true), ..FlagPatch::default() };
    let id = flag.expect("create").id;
    assert_eq!(code(bench.metadata.update_flag(PROJECT, USER, id, patch).await), "invalid_input");
}

#[tokio::test]
async fn the_dashboard_of_a_flag_has_its_key_in_its_name() {
    let bench = Bench::started().await;
    let flag = bench.create("old").await;
    let name = async || -> String {
        let id = flag.usage_dashboard.expect("a dashboard");
        let found = bench.metadata.document(PROJECT, Dashboard, id).await;
        found.expect("a dashboard").text("name").to_owned()
    };
    assert_eq!(name().await, "Generated Dashboard: old Usage");
    bench.update(flag.id, set_key("new")).await;
    assert_eq!(name().await, "Generated Dashboard: new Usage");
}

/// A flag that takes the key of a deleted one removes that permanently, with its dashboard.
#[tokio::test]
async fn a_purged_flag_leaves_no_dashboard() {
    let bench = Bench::started().await;
    let gone = bench.create("a").await;
    bench.update(gone.id, set_deleted(true)).await;
    let next = bench.create("a").await;
    let select = sql::query_scalar("SELECT id FROM documents");
    let left: Vec<i64> = select.fetch_all(&mut bench.reader().await).await.expect("read");
    assert_eq!(left.into_iter().map(Some).collect::<Vec<_>>(), [next.usage_dashboard]);
}
