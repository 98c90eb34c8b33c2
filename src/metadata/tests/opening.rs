//! How the file is opened: its migrations, its pragmas, what is refused.

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
