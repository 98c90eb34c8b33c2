//! Opening the file: migrations, pragmas, rejected files.

use super::*;
use crate::definitions::EventDefinition;
use crate::flags::plain::PlainFields;
use crate::promotions::PromotedProperty;
use crate::properties::PropertyDefinition;
use crate::sql;
use weir_event::id::ShardId;
use weir_event::promotion::PromotedTable;
use weir_event::schema::PropertyType;

#[tokio::test]
async fn migrations_apply_once() {
    let bench = Bench::empty().await;
    assert_eq!(bench.metadata.snapshot().projects().len(), 0);
    for _ in 0..2 {
        bench.other().await.close().await;
    }
}

/// Acknowledged writes survive a power cut: WAL, and a sync with every commit (2 is FULL).
#[tokio::test]
async fn commits_to_a_file_are_synced() {
    let bench = Bench::at(Backend::file()).await;
    let mut tx = bench.metadata.shared.db.begin().await.expect("begin");
    let journal = sql::query_scalar::<String>("PRAGMA journal_mode");
    assert_eq!(journal.fetch_one(tx.connection()).await.expect("journal"), "wal");
    let synchronous = sql::query_scalar::<i64>("PRAGMA synchronous");
    assert_eq!(synchronous.fetch_one(tx.connection()).await.expect("synchronous"), 2);
}

#[tokio::test]
async fn readers_cannot_write() {
    let bench = Bench::started().await;
    let delete = sql::query("DELETE FROM personal_keys");
    assert!(delete.execute(&mut bench.reader().await).await.is_err());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("metadata.db");
    std::fs::write(&path, "this is not a database, and long enough to be looked at")
        .expect("write");
    let error = Metadata::open(&path, Clock::test(START)).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(matches!(&error, MetadataError::Damaged { path: named, .. } if *named == path));
    assert!(error.to_string().contains("metadata.db is damaged"), "{error}");
    let missing = directory.path().join("missing/metadata.db");
    let error = Metadata::open(&missing, Clock::test(START)).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unavailable);
}

/// Goal: a file without some of its pages is not opened, whichever they are, and a check reports it.
#[tokio::test]
async fn a_database_without_all_its_pages_is_refused() {
    let bench = Bench::started_at(Backend::file()).await;
    bench.metadata.close().await;
    let whole = std::fs::read(bench.place.path()).expect("the file");
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("metadata.db");
    std::fs::write(&path, &whole).expect("write");
    assert_eq!(Metadata::verify(&path, 10).await.expect("opens"), [""; 0]);
    let pages = whole.len() / 4096;
    assert!(pages > 20, "{pages}");
    for kept in [1, 2, pages / 2, pages - 1] {
        std::fs::write(&path, &whole[..kept * 4096]).expect("write");
        let opened = Metadata::open(&path, Clock::test(START)).await;
        assert!(matches!(opened, Err(MetadataError::Damaged { .. })), "{kept}: {opened:?}");
        let found = Metadata::verify(&path, 10).await;
        assert!(found.is_err() || found.is_ok_and(|found| !found.is_empty()), "{kept}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let bench = Bench::empty().await;
    let insert =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', TRUE, '', 0)";
    bench.run(insert).await;
    let result = bench.place.open(bench.clock.clone()).await;
    assert!(matches!(result, Err(MetadataError::Newer { found: 9999, .. })), "{result:?}");
    let told = result.unwrap_err().to_string();
    assert!(told.contains("made by a newer Weir") && !told.contains("damaged"), "{told}");
}

/// A database with the migrations before number `version`, an organization, a project, and what `inserts` add.
async fn of_before(version: i64, inserts: &[&str]) -> Backend {
    let mut of_before = sqlx_macros::migrate!("../../schemas/metadata");
    of_before.migrations.to_mut().retain(|migration| migration.version < version);
    let place = [
        "INSERT INTO organizations VALUES ('00000000-0000-0000-0000-000000000009', 'o', 0)",
        "INSERT INTO projects (id, organization, name, api_token, timezone, created_at)
         VALUES (1, '00000000-0000-0000-0000-000000000009', 'p', 't', 'UTC', 0)",
    ];
    let statements: Vec<&str> = place.into_iter().chain(inserts.iter().copied()).collect();
    let place = Backend::new().await;
    place.prepare(&of_before, &statements).await;
    place
}

/// Annotations of definitions used to be in two tables, with labels of properties among them.
#[tokio::test]
async fn annotations_of_older_schemas_are_kept() {
    let (event, property) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    let place = of_before(
        60,
        &[
            "INSERT INTO event_definitions
             VALUES ('00000000-0000-0000-0000-000000000001', 1, 'e', 5, 6, '[\"x\"]', TRUE)",
            "INSERT INTO event_definition_notes VALUES ('00000000-0000-0000-0000-000000000001',
             'why', NULL, TRUE, 7, NULL, FALSE, 8, NULL, '[\"event\"]')",
            "INSERT INTO property_definitions
             (id, project_id, kind, group_type_index, name, property_type)
             VALUES ('00000000-0000-0000-0000-000000000002', 1, 1, -1, 'q', 'String')",
            "INSERT INTO property_definition_notes VALUES ('00000000-0000-0000-0000-000000000002',
             '[\"y\"]', 'what', FALSE, NULL, NULL, TRUE, 9, NULL)",
        ],
    )
    .await;
    let metadata = place.open(Clock::test(START)).await.expect("open");
    let (definition, notes) =
        metadata.definition::<EventDefinition>(PROJECT, event).await.expect("the event");
    assert_eq!(definition.tags, ["x"]);
    assert_eq!(
        (notes.description.as_deref(), notes.verified_at),
        (Some("why"), Some(UnixMicros(7)))
    );
    assert_eq!((notes.verified, notes.hidden), (true, false));
    assert_eq!(
        (notes.updated_at, notes.default_columns),
        (Some(UnixMicros(8)), vec!["event".into()])
    );
    let (definition, notes) =
        metadata.definition::<PropertyDefinition>(PROJECT, property).await.expect("one");
    assert_eq!(definition.tags, ["y"]);
    assert_eq!((notes.description.as_deref(), notes.hidden), (Some("what"), true));
    assert_eq!((notes.verified, notes.updated_at), (false, Some(UnixMicros(9))));
}

/// Every field of a flag used to have a column.
#[tokio::test]
async fn flags_of_older_schemas_are_kept() {
    // As deep as no request can nest it any more, and deeper than SQLite's functions would take.
    let deep = format!("{}7{}", "[".repeat(1500), "]".repeat(1500));
    let deleted = format!(
        "INSERT INTO feature_flags VALUES (3, 1, '', 'gone', '{{\"groups\": []}}', FALSE, TRUE, NULL, 1,
         2, 3, FALSE, '{deep}', FALSE, '[]', NULL, '[]', TRUE, 'distinct_id', 'all', '[]', FALSE,
         FALSE, NULL)"
    );
    let place = of_before(
        100,
        &[
            "INSERT INTO users (id, organization, uuid, distinct_id, first_name, email,
             is_email_verified, created_at)
             VALUES (1, '00000000-0000-0000-0000-000000000009',
             '00000000-0000-0000-0000-000000000001', 'd', 'n', 'e', TRUE, 0)",
            "INSERT INTO feature_flags VALUES (1, 1, 'About', 'full', '{\"groups\": []}', FALSE, FALSE,
             1, 5, 6, 7, TRUE, '[{\"at\": 0.1, \"why\": \"\\\"ü\\\"\"}]', TRUE, '[\"b\", \"a\"]',
             3, '[4, 2]', FALSE, 'device_id', 'server', '[\"web\"]', TRUE, TRUE, 1)",
            "INSERT INTO feature_flags VALUES (2, 1, '', 'bare', '{\"groups\": []}', TRUE, FALSE, NULL,
             4, 4, 1, FALSE, NULL, NULL, '[]', NULL, '[]', NULL, NULL, NULL, '[]', FALSE, FALSE,
             NULL)",
            &deleted,
        ],
    )
    .await;
    let metadata = place.open(Clock::test(START)).await.expect("open");
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let full = StoredFlag {
        name: "About".to_owned(),
        filters: json!({"groups": []}),
        active: false,
        created_by: Some(USER),
        created_at: UnixMicros(5),
        updated_at: UnixMicros(6),
        version: 7,
        usage_dashboard: Some(3),
        plain: PlainFields {
            ensure_experience_continuity: true,
            rollback_conditions: Some(json!([{"at": 0.1, "why": "\"ü\""}])),
            performed_rollback: Some(true),
            tags: texts(&["b", "a"]),
            analytics_dashboards: vec![4, 2],
            has_enriched_analytics: Some(false),
            archived: true,
            bucketing_identifier: Some("device_id".to_owned()),
            evaluation_runtime: Some("server".to_owned()),
            evaluation_contexts: texts(&["web"]),
            is_remote_configuration: true,
            unknown: serde_json::Map::new(),
        },
        last_modified_by: Some(USER),
        ..StoredFlag::sample(1, "full")
    };
    let bare = StoredFlag {
        filters: json!({"groups": []}),
        created_at: UnixMicros(4),
        updated_at: UnixMicros(4),
        ..StoredFlag::sample(2, "bare")
    };
    assert_eq!(metadata.snapshot().flags(PROJECT), [Arc::new(full), Arc::new(bare)]);
    let gone = metadata.flag(PROJECT, FlagId(3)).await.expect("the deleted one");
    let text = |text: &str| Some(text.to_owned());
    let expected = PlainFields {
        performed_rollback: Some(false),
        has_enriched_analytics: Some(true),
        bucketing_identifier: text("distinct_id"),
        evaluation_runtime: text("all"),
        rollback_conditions: gone.plain.rollback_conditions.clone(),
        ..PlainFields::default()
    };
    assert_eq!((gone.deleted, &gone.plain), (true, &expected));
    assert!(
        gone.plain.rollback_conditions.as_ref().is_some_and(|deep| deep.pointer("/0/0").is_some())
    );
    let select = sql::query_scalar::<String>("SELECT body FROM feature_flags WHERE id = 2");
    let mut reader = metadata.shared.db.reader().await.expect("a connection");
    let body = select.fetch_one(&mut reader).await.expect("a body");
    assert_eq!(body, "{}");
}

/// Documents came with a table of their own, where dashboards of flags are now, too.
#[tokio::test]
async fn older_databases_get_room_for_documents() {
    let place = of_before(
        110,
        &["INSERT INTO users (id, organization, uuid, distinct_id, first_name, email,
             is_email_verified, created_at)
             VALUES (1, '00000000-0000-0000-0000-000000000009',
             '00000000-0000-0000-0000-000000000001', 'd', 'n', 'e', TRUE, 0)",
            "INSERT INTO usage_dashboards VALUES (3, 1, 'Generated Dashboard: a-b_1 Usage', FALSE, 5),
             (4, 1, 'Generated Dashboard: b Usage', TRUE, 6)",
        ],
    )
    .await;
    let metadata = place.open(Clock::test(START)).await.expect("open");
    let dashboard = async |id| {
        let kind = crate::documents::Kind::Dashboard;
        metadata.document(PROJECT, kind, id).await.expect("a dashboard")
    };
    let (plain, enriched) = (dashboard(3).await, dashboard(4).await);
    assert_eq!(plain.text("name"), "Generated Dashboard: a-b_1 Usage");
    assert_eq!((plain.created_at, plain.is("is_enriched")), (UnixMicros(5), false));
    assert!(enriched.is("is_enriched"));
    assert_eq!(metadata.snapshot().actions(PROJECT).len(), 0);
    let kind = crate::documents::Kind::Action;
    let fields = serde_json::Map::from_iter([("name".to_owned(), json!("a"))]);
    let made = metadata.create_document(PROJECT, USER, kind, fields).await.expect("one");
    metadata.close().await;
    let again = place.open(Clock::test(START)).await.expect("open again");
    assert_eq!(again.snapshot().actions(PROJECT), [made]);
}

/// There used to be one shard. Servers of before make projects in it while newer ones have several.
#[tokio::test]
async fn projects_of_older_schemas_are_in_the_first_shard() {
    let place = of_before(230, &[]).await;
    let clock = Clock::test(START);
    let metadata = place.open(clock.clone()).await.expect("open");
    assert_eq!(metadata.add_shards("s3://a/b", 1).await.expect("shards"), 2);
    let insert = "INSERT INTO projects (id, organization, name, api_token, timezone, created_at)
         VALUES (2, '00000000-0000-0000-0000-000000000009', 'q', 'u', 'UTC', 0)";
    let bench = Bench { place, clock, metadata };
    bench.run(insert).await;
    let other = bench.other().await;
    for id in [1, 2] {
        let project = other.snapshot().project(ProjectId(id)).map(|project| project.shard);
        assert_eq!(project, Some(ShardId::FIRST));
    }
}

/// Only properties of events used to be promoted; those of persons are in a table of their own.
#[tokio::test]
async fn promotions_of_older_schemas_are_of_events() {
    let place = of_before(
        210,
        &[
            "INSERT INTO promoted_properties (project_id, key, kind, created_at)
             VALUES (1, 'plan', 'text', 5)",
            "INSERT INTO promoted_properties (project_id, key, kind, created_at)
             VALUES (1, 'A b', 'number', 6)",
        ],
    )
    .await;
    let metadata = place.open(Clock::test(START)).await.expect("open");
    let rows = "SELECT COUNT(*) FROM promoted_properties UNION ALL SELECT COUNT(*) FROM promoted_person_properties";
    let mut connection = metadata.shared.db.reader().await.expect("a connection");
    let rows = sql::query_scalar::<i64>(rows).fetch_all(&mut connection).await.expect("counts");
    assert_eq!(rows, [2, 0], "where older servers look for them");
    drop(connection);
    let old = |key: &str, kind, at| PromotedProperty {
        project: PROJECT,
        table: PromotedTable::Events,
        key: key.to_owned(),
        kind,
        created_at: UnixMicros(at),
    };
    let expected = [old("A b", PropertyType::Double, 6), old("plan", PropertyType::Text, 5)];
    assert_eq!(metadata.snapshot().promoted_properties(PROJECT), expected);
}
