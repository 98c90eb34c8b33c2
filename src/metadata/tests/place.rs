//! Where the stores of tests are: a file, or a database of a PostgreSQL server. The whole suite runs on
//! either: `WEIR_TEST_METADATA=postgres` chooses PostgreSQL. `WEIR_TEST_POSTGRES` is the URL of a server
//! for tests; without it, a test that needs one starts it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::Metadata;
use crate::error::MetadataError;
use crate::postgres::MetadataAccess;
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;

/// A place for one store, which ends with the value.
pub(super) enum Backend {
    File(tempfile::TempDir),
    Database(Database),
}

/// A server for tests. One that was started for this value ends with it.
pub(super) struct Server {
    pub(super) url: String,
    directory: Option<tempfile::TempDir>,
}

/// A database on a server.
pub(super) struct Database {
    name: String,
    server: Server,
    /// The limit of statements.
    limit: Duration,
}

impl Backend {
    /// A place for a store, where the environment chooses.
    pub(super) async fn new() -> Self {
        match std::env::var_os("WEIR_TEST_METADATA") {
            Some(chosen) if chosen == "postgres" => Self::Database(Database::new().await),
            Some(other) => panic!("WEIR_TEST_METADATA is {}", other.display()),
            None => Self::file(),
        }
    }

    /// A place for a file.
    pub(super) fn file() -> Self {
        Self::File(tempfile::tempdir().expect("directory"))
    }

    /// Opens the store there.
    pub(super) async fn open(&self, clock: Clock) -> Result<Metadata, MetadataError> {
        match self {
            Self::File(_) => Metadata::open(&self.path(), clock).await,
            Self::Database(database) => database.open(clock).await,
        }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File(directory) => directory.path().join("metadata.db"),
            Self::Database(_) => panic!("not in a file"),
        }
    }

    /// Applies the migrations of `migrator`, and runs the statements.
    pub(super) async fn prepare(&self, migrator: &Migrator, statements: &[&str]) {
        match self {
            Self::File(_) => {
                let options = SqliteConnectOptions::new().filename(self.path());
                let options = options.create_if_missing(true);
                let connected = sqlx::SqliteConnection::connect_with(&options).await;
                let mut connection = connected.expect("a database");
                migrator.run(&mut connection).await.expect("migrations");
                run(&mut connection, statements).await;
                connection.close().await.expect("the end");
            }
            Self::Database(database) => {
                let mut connection = database.connect().await;
                run(&mut connection, &["CREATE SCHEMA weir"]).await;
                migrator.run(&mut connection).await.expect("migrations");
                run(&mut connection, statements).await;
            }
        }
    }
}

/// Runs statements without values.
async fn run<C>(connection: &mut C, statements: &[&str])
where
    for<'c> &'c mut C: Executor<'c>,
{
    for sql in statements {
        let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(*sql))).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

impl Server {
    /// The server of the environment, or one of its own.
    pub(super) fn shared() -> Self {
        match std::env::var_os("WEIR_TEST_POSTGRES") {
            Some(url) => Self { url: url.into_string().expect("a URL"), directory: None },
            None => Self::own(),
        }
    }

    /// A server of its own, which can be stopped.
    pub(super) fn own() -> Self {
        Self::started("start")
    }

    /// A server of its own with a certificate, whose path is returned.
    pub(super) fn encrypted() -> (Self, PathBuf) {
        let server = Self::started("start-tls");
        let certificate = server.directory().join("data/server.crt");
        (server, certificate)
    }

    fn started(how: &str) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        // Its user has to get there.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("permissions");
        let url = script(how, &directory.path().join("server"));
        Self { url, directory: Some(directory) }
    }

    /// Ends it as `kill` would.
    pub(super) fn stop(&self) {
        script("stop", &self.directory());
    }

    /// Starts it again.
    pub(super) fn start(&self) {
        script("start", &self.directory());
    }

    fn directory(&self) -> PathBuf {
        let directory = self.directory.as_ref().expect("a server of its own");
        directory.path().join("server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.directory.is_some() {
            script("remove", &self.directory());
        }
    }
}

fn script(what: &str, directory: &Path) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres.sh");
    let output = Command::new(path).arg(what).arg(directory).output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

impl Database {
    /// An empty database on the server of the environment.
    pub(super) async fn new() -> Self {
        Self::on(Server::shared(), Duration::from_secs(60)).await
    }

    /// An empty database, with this limit of statements.
    pub(super) async fn on(server: Server, limit: Duration) -> Self {
        let name = format!("weir_{}", uuid::Uuid::new_v4().simple());
        let created = administer(&server.url, &format!("CREATE DATABASE {name}")).await;
        created.expect("a database");
        Self { name, server, limit }
    }

    /// The server.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// The settings that lead to it.
    pub(super) fn settings(&self) -> MetadataConfig {
        let (server, _) = self.server.url.rsplit_once('/').expect("a database");
        let url = format!("{server}/{}", self.name);
        MetadataConfig {
            metadata_url: Some(url.parse().expect("a URL")),
            metadata_connections_max: 4,
            metadata_timeout: self.limit,
        }
    }

    /// A connection for what tests do themselves.
    pub(super) async fn connect(&self) -> PgConnection {
        let settings = self.settings();
        let url = settings.metadata_url.expect("a URL");
        let options = PgConnectOptions::from_str(url.value()).expect("a URL");
        let options = options.options([("search_path", "weir")]);
        PgConnection::connect_with(&options).await.expect("a connection")
    }

    /// Opens the store in it.
    pub(super) async fn open(&self, clock: Clock) -> Result<Metadata, MetadataError> {
        let settings = self.settings();
        let url = settings.metadata_url.clone().expect("a URL");
        Metadata::connect(&settings, &url, clock, MetadataAccess::Write).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.server.directory.is_some() {
            return;
        }
        // On a thread without a runtime.
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(administer(&self.server.url, &drop))
            });
        });
    }
}

pub(super) async fn administer(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
    connection.close().await
}

/// Waits until `look` says yes.
pub(super) async fn patiently<F: Future<Output = bool>>(mut look: impl FnMut() -> F) {
    for _ in 0..600 {
        if look().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited for 30 s in vain");
}
