//! The SQLite database: how it is opened and checked, and the classes of its errors; the migrations,
//! which PostgreSQL has as well, and how columns are read.
//!
//! SQLite through sqlx, in WAL mode with `synchronous=FULL`: a commit is durable when it returns,
//! because an acknowledged management write must survive a power cut as an event does. (`NORMAL`
//! syncs at checkpoints only.) One connection writes, a few read.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlitePool};
use uuid::Uuid;

use crate::db::Db;
use crate::error::MetadataError;
use crate::violation::Violation;

/// How long a statement waits for a lock that another process holds. Writes of the server take
/// milliseconds; this is for a command line tool that writes while the server runs.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request waits for a connection before it fails as overloaded.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections for reading. Hot paths read the snapshot, so a few serve all the rest; each has a
/// thread and a page cache (2 MB by SQLite's default).
const READERS: u32 = 4;

/// Largest file whose structure is checked at each open, which takes about 1 s at this size. Larger
/// ones are checked by `weir inspect --verify` only.
const CHECKED_MAX_BYTES: u64 = 256 << 20;

/// The migrations, in SQL that both databases take.
pub(super) static MIGRATIONS: Migrator = sqlx_macros::migrate!("../../schemas/metadata");

/// Why the migrations did not run. Those of a store that a newer version has changed are not all known here, which is
/// no damage.
pub(super) fn unmigrated(error: MigrateError) -> MetadataError {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    match error {
        MigrateError::VersionMissing(found) if found > known => {
            MetadataError::Newer { found, known }
        }
        error => MetadataError::Migrate(error),
    }
}

/// Opens or creates the file and applies the migrations.
pub(super) async fn open(path: &Path) -> Result<Db, MetadataError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    // The writing connection lives as long as the store: its `data_version` is comparable only
    // with its own earlier values.
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let writer = pool(1)
        .connect_with(options.clone().create_if_missing(true))
        .await
        .map_err(|source| MetadataError::Open { path: path.to_path_buf(), source })
        .map_err(|error| named_if_damaged(path, error))?;
    let prepare = async {
        if bytes <= CHECKED_MAX_BYTES {
            check(path, &writer).await?;
        }
        MIGRATIONS.run(&writer).await.map_err(unmigrated)
    };
    prepare.await.map_err(|error| named_if_damaged(path, error))?;
    let readers = pool(READERS).connect_lazy_with(options.pragma("query_only", "ON"));
    Ok(Db::Sqlite { writer, readers })
}

fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // Connections to a file do not break: no maximum age, no idle time, no test before use.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Checks that the tables and indexes of the file `path` are consistent. SQLite has no checksums: a
/// changed value is not detected.
async fn check(path: &Path, pool: &SqlitePool) -> Result<(), MetadataError> {
    let problem: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(pool).await?;
    match problem.as_str() {
        "ok" => Ok(()),
        _ => Err(MetadataError::Damaged { path: path.to_path_buf(), problem }),
    }
}

/// See [`crate::Metadata::verify`].
pub(super) async fn verify(path: &Path, findings_max: u32) -> Result<Vec<String>, MetadataError> {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let failed = |source| MetadataError::Open { path: path.to_path_buf(), source };
    let pool = pool(1).connect_with(options).await.map_err(failed)?;
    let pragma = format!("PRAGMA integrity_check({findings_max})");
    let found = sqlx::query_scalar(sqlx::AssertSqlSafe(pragma)).fetch_all(&pool).await;
    pool.close().await;
    let mut found: Vec<String> = found.map_err(failed)?;
    found.retain(|line| line != "ok");
    Ok(found)
}

/// `error`, or, if it reports damage of the database file `path`, an error that names the file.
pub(super) fn named_if_damaged(path: &Path, error: MetadataError) -> MetadataError {
    let source = match &error {
        MetadataError::Open { source, .. } | MetadataError::Database(source) => source,
        MetadataError::Migrate(
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _),
        ) => source,
        _ => return error,
    };
    let sqlx::Error::Database(database) = source else { return error };
    let code = database.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
    // SQLITE_CORRUPT and SQLITE_NOTADB by the low byte, and SQLITE_IOERR_SHORT_READ.
    match (code & 0xff, code) {
        (11 | 26, _) | (_, 522) => {
            MetadataError::Damaged { path: path.to_path_buf(), problem: database.to_string() }
        }
        _ => error,
    }
}

/// `error`, or `taken` if it is the violation of a unique index. If the rule checked the snapshot
/// first, another process wrote after the check.
pub(super) fn unless_taken(
    error: MetadataError,
    taken: impl FnOnce() -> Violation,
) -> MetadataError {
    match error {
        MetadataError::Database(sqlx::Error::Database(error)) if error.is_unique_violation() => {
            taken().into()
        }
        other => other,
    }
}

/// Reads a UUID column of `table`.
pub(super) fn from_uuid(table: &'static str, text: &str) -> Result<Uuid, MetadataError> {
    Uuid::parse_str(text)
        .map_err(|error| MetadataError::Corrupt { table, problem: error.to_string() })
}
