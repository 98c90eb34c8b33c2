//! PostgreSQL servers and databases for tests. `WEIR_TEST_POSTGRES` is the URL of a server for tests; without
//! it, a test that needs one starts it. `WEIR_TEST_METADATA=postgres` gives every test server a database on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use uuid::Uuid;

/// A PostgreSQL server of a test, which ends with the value.
#[derive(Debug)]
pub(crate) struct Postgres {
    directory: TempDir,
    url: String,
}

impl Postgres {
    /// Starts a server.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // Its user has to get there.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("permissions");
        let url = script("start", &directory.path().join("server"));
        Self { directory, url }
    }

    /// Ends it as `kill` would.
    pub(crate) fn stop(&self) {
        script("stop", &self.directory());
    }

    /// Starts it again.
    pub(crate) fn go_on(&self) {
        script("start", &self.directory());
    }

    /// An empty database on it.
    pub(crate) fn database(&self) -> Database {
        Database::on(&self.url)
    }

    fn directory(&self) -> PathBuf {
        self.directory.path().join("server")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        script("remove", &self.directory());
    }
}

fn script(what: &str, directory: &Path) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/postgres.sh");
    let output = Command::new(path).arg(what).arg(directory).output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

/// A database, which ends with the value.
#[derive(Debug)]
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    /// An empty database for a test server, if the environment asks for one.
    pub(crate) fn of_environment() -> Option<Self> {
        let chosen = std::env::var_os("WEIR_TEST_METADATA")?;
        assert_eq!(chosen, "postgres", "WEIR_TEST_METADATA");
        let server = std::env::var_os("WEIR_TEST_POSTGRES").expect("WEIR_TEST_POSTGRES");
        Some(Self::on(server.to_str().expect("an address")))
    }

    fn on(server: &str) -> Self {
        let name = format!("weir_{}", Uuid::new_v4().simple());
        sql(server, &format!("CREATE DATABASE {name}"));
        Self { server: server.to_owned(), name }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        let (server, _) = self.server.rsplit_once('/').expect("a database");
        format!("{server}/{}", self.name)
    }

    /// Everything in it, as `pg_dump` writes it.
    pub(crate) fn dump(&self) -> Vec<u8> {
        let dump = Command::new("pg_dump").args(["--format=custom", &self.url()]).output();
        let dump = dump.expect("pg_dump");
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        dump.stdout
    }

    /// Brings what [`Self::dump`] has written into this empty database.
    pub(crate) fn restore(&self, dump: &[u8]) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), dump).expect("the dump");
        let url = self.url();
        let arguments = ["--no-owner", "--exit-on-error", "--dbname", &url];
        let restore = Command::new("pg_restore").args(arguments).arg(file.path()).output();
        let restore = restore.expect("pg_restore");
        assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stderr));
    }

    /// What a query of one value prints.
    pub(crate) fn value(&self, query: &str) -> String {
        sql(&self.url(), query)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let psql = Command::new("psql").args([&*self.server, "-qc", &drop]).output();
        if let Err(error) = psql {
            eprintln!("psql: {error}");
        }
    }
}

fn sql(url: &str, statement: &str) -> String {
    let psql = Command::new("psql").args([url, "-qtAc", statement]).output().expect("psql");
    assert!(psql.status.success(), "{statement}: {}", String::from_utf8_lossy(&psql.stderr));
    String::from_utf8(psql.stdout).expect("UTF-8").trim().to_owned()
}
