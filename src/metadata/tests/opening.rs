//! Opening the file: migrations, pragmas, rejected files.

use super::*;

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
    assert!(matches!(&error, MetadataError::Damaged { path: named, .. } if *named == path));
    assert!(error.to_string().contains("metadata.db is damaged"), "{error}");
    let missing = directory.path().join("missing/metadata.db");
    let error = Metadata::open(&missing, Clock::test(START)).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unavailable);
}

/// Goal: a file without some of its pages is not opened, whichever they are, and a check reports it.
#[tokio::test]
async fn a_database_without_all_its_pages_is_refused() {
    let bench = Bench::started().await;
    bench.metadata.close().await;
    let whole = std::fs::read(bench.path()).expect("the file");
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

/// Annotations of definitions used to be in two tables, with labels of properties among them.
#[tokio::test]
async fn annotations_of_older_schemas_are_kept() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("metadata.db");
    let mut of_before = sqlx::migrate!("./schemas/metadata");
    let all = of_before.migrations.to_mut();
    all.retain(|migration| migration.version < 60);
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.expect("a database");
    of_before.run(&pool).await.expect("migrations");
    let (event, property) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    for sql in [
        "INSERT INTO organizations VALUES ('00000000-0000-0000-0000-000000000009', 'o', 0)",
        "INSERT INTO projects (id, organization, name, api_token, timezone, created_at)
         VALUES (1, '00000000-0000-0000-0000-000000000009', 'p', 't', 'UTC', 0)",
        "INSERT INTO event_definitions
         VALUES ('00000000-0000-0000-0000-000000000001', 1, 'e', 5, 6, '[\"x\"]', TRUE)",
        "INSERT INTO event_definition_notes VALUES ('00000000-0000-0000-0000-000000000001', 'why',
         NULL, TRUE, 7, NULL, FALSE, 8, NULL, '[\"event\"]')",
        "INSERT INTO property_definitions
         (id, project_id, kind, group_type_index, name, property_type)
         VALUES ('00000000-0000-0000-0000-000000000002', 1, 1, -1, 'q', 'String')",
        "INSERT INTO property_definition_notes VALUES ('00000000-0000-0000-0000-000000000002',
         '[\"y\"]', 'what', FALSE, NULL, NULL, TRUE, 9, NULL)",
    ] {
        sqlx::query(sql).execute(&pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    pool.close().await;
    let metadata = Metadata::open(&path, Clock::test(START)).await.expect("open");
    let (definition, notes) = metadata.definition(PROJECT, event).await.expect("the event");
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
    let (definition, notes) = metadata.property_definition(PROJECT, property).await.expect("one");
    assert_eq!(definition.tags, ["y"]);
    assert_eq!((notes.description.as_deref(), notes.hidden), (Some("what"), true));
    assert_eq!((notes.verified, notes.updated_at), (false, Some(UnixMicros(9))));
}
