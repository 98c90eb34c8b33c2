//! The PostgreSQL database: how it is opened, and its time limits.
//!
//! Everything is in the schema `weir` of the database, so that it may share one. Text compares by bytes
//! there (`COLLATE "C"`) as in SQLite, or lists that are read in parts by name would depend on the
//! locale.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::Migrate;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::Metadata;
use crate::db::Db;
use crate::disk::{MIGRATIONS, unmigrated};
use crate::error::MetadataError;
use crate::reach::Reach;
use weir_base::config::metadata::{MetadataConfig, MetadataUrl};

/// The name by which PostgreSQL lists the connections.
const APPLICATION: &str = "weir";

/// How long a connection is used, at most: addresses and plans of before go with it.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Makes text compare by bytes.
const COLLATE: &str = r#"
DO $$
DECLARE altered RECORD;
BEGIN
    FOR altered IN
        SELECT c.table_name AS name,
               string_agg(format('ALTER COLUMN %I TYPE TEXT COLLATE "C"', c.column_name), ', ') AS columns
        FROM information_schema.columns c
        WHERE c.table_schema = 'weir' AND c.table_name <> '_sqlx_migrations' AND c.data_type = 'text'
          AND c.collation_name IS DISTINCT FROM 'C'
        GROUP BY c.table_name ORDER BY c.table_name
    LOOP
        EXECUTE format('ALTER TABLE weir.%I %s', altered.name, altered.columns);
    END LOOP;
END $$"#;

/// What a store in PostgreSQL is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataAccess {
    /// To be read only: its tables have to be there, and writes fail.
    Read,
    /// To be read and written.
    Write,
    /// For single statements about what no snapshot has: its tables have to be there, and no snapshot is loaded.
    Apart,
}

impl Metadata {
    /// Whether `url` names another machine, and allows a connection to it that is not encrypted. One that cannot be read
    /// does not.
    pub fn is_unprotected(url: &MetadataUrl) -> bool {
        PgConnectOptions::from_str(url.value()).is_ok_and(|options| is_unprotected(&options))
    }
}

fn is_unprotected(options: &PgConnectOptions) -> bool {
    let host = options.get_host().trim_matches(['[', ']']);
    // PostgreSQL takes a host that begins with a slash for the directory of a socket.
    let is_local = options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
    // `prefer`, the default, goes on without encryption where somebody between says that there is none.
    let is_encrypted = match options.get_ssl_mode() {
        PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer => false,
        PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => true,
    };
    !is_local && !is_encrypted
}

/// Connects, applies the migrations that the database lacks, and makes the pools.
pub(super) async fn open(
    settings: &MetadataConfig,
    url: &MetadataUrl,
    access: MetadataAccess,
) -> Result<Db, MetadataError> {
    let place = url.to_string();
    let failed = |source| MetadataError::Connect { place: place.clone(), source };
    let options = PgConnectOptions::from_str(url.value()).map_err(failed)?;
    let options = options
        .application_name(APPLICATION)
        .options([("search_path", "weir")])
        .disable_statement_logging();
    let limit = settings.metadata_timeout;
    let connect = tokio::time::timeout(limit, PgConnection::connect_with(&options));
    let timed_out = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    let connected = connect.await.map_err(timed_out).and_then(|connected| connected);
    let connection = connected.map_err(failed)?;
    if access == MetadataAccess::Write {
        prepare(connection, &place).await?;
    }
    let millis = limit.as_millis().to_string();
    // The last one ends the transaction of a process that was stopped, and whose lock others wait for.
    let limited = options.options([
        ("statement_timeout", millis.as_str()),
        ("idle_in_transaction_session_timeout", millis.as_str()),
    ]);
    let reading = limited.clone().options([("default_transaction_read_only", "on")]);
    let readers = match access {
        MetadataAccess::Apart => 1,
        MetadataAccess::Read | MetadataAccess::Write => {
            settings.metadata_connections_max.saturating_sub(1).max(1)
        }
    };
    let one = || pool(1, limit).connect_lazy_with(limited.clone());
    let (writer, apart) = match access {
        MetadataAccess::Read => (None, None),
        MetadataAccess::Write => (Some(one()), Some(one())),
        MetadataAccess::Apart => (None, Some(one())),
    };
    Ok(Db::Postgres {
        writer,
        apart,
        readers: pool(readers, limit).connect_lazy_with(reading),
        reach: Arc::new(Reach::new(limit)),
    })
}

/// Brings the tables to the schema of this version.
async fn prepare(mut connection: PgConnection, place: &str) -> Result<(), MetadataError> {
    let failed = |source| MetadataError::Connect { place: place.to_owned(), source };
    let encoding: String = sqlx::query_scalar("SHOW server_encoding")
        .fetch_one(&mut connection)
        .await
        .map_err(failed)?;
    if encoding != "UTF8" {
        let problem = format!("has the encoding {encoding}: create one with ENCODING 'UTF8'");
        return Err(MetadataError::Unfit { place: place.to_owned(), problem });
    }
    // Of servers that start at once on an empty database, one makes the schema and all that is in it. The lock is that of the
    // migrations, which takes it once more; it ends with the connection.
    connection.lock().await.map_err(unmigrated)?;
    let has_schema = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'weir')";
    let has_schema: bool =
        sqlx::query_scalar(has_schema).fetch_one(&mut connection).await.map_err(failed)?;
    // Asked before, because it takes the right to create schemas even where there is one.
    if !has_schema {
        let create = sqlx::query("CREATE SCHEMA IF NOT EXISTS weir");
        create.execute(&mut connection).await.map_err(failed)?;
    }
    MIGRATIONS.run(&mut connection).await.map_err(unmigrated)?;
    sqlx::raw_sql(COLLATE).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

fn pool(connections: u32, limit: Duration) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(limit)
        .max_lifetime(LIFETIME)
        // A connection goes back when it answers, and after the rollback of what was not committed. One
        // that does not answer must not take a place of the pool for long.
        .after_release(move |connection, _| {
            Box::pin(async move {
                Ok(matches!(tokio::time::timeout(limit, connection.ping()).await, Ok(Ok(()))))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::Metadata;

    #[test]
    fn an_address_elsewhere_needs_encryption() {
        for (url, expected) in [
            ("postgres://u:p@db.example/weir", true),
            ("postgres://u:p@192.0.2.7:5432/weir?sslmode=disable", true),
            ("postgres://u:p@[2001:db8::1]/weir?sslmode=allow", true),
            ("postgres://u:p@db.example/weir?sslmode=prefer", true),
            ("postgres://u:p@localhost.example/weir", true),
            ("postgres://u:p@db.example/weir?sslmode=require", false),
            ("postgres://u:p@db.example/weir?sslmode=verify-ca", false),
            ("postgres://u:p@db.example/weir?sslmode=verify-full", false),
            ("postgres://u:p@localhost/weir", false),
            ("postgres://u:p@127.0.0.1/weir?sslmode=disable", false),
            ("postgres://u:p@127.9.9.9/weir", false),
            ("postgres://u:p@[::1]/weir", false),
            ("postgres:///weir?host=/var/run/postgresql", false),
        ] {
            assert_eq!(Metadata::is_unprotected(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
