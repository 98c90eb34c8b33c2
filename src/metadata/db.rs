//! The connections to the database, SQLite or PostgreSQL: [`Db`], and [`Transaction`], which holds the write
//! lock of the store.
//!
//! | | SQLite | PostgreSQL |
//! |---|---|---|
//! | write lock | that of the file, taken by `BEGIN IMMEDIATE` | the row of the table `revision`, locked first |
//! | version of the data | `PRAGMA data_version`, which commits of others change | the number in that row, which each commit of something in snapshots raises; what it changed is noted beside (`changes`) |
//!
//! Hence ids by `MAX(id) + 1` and rules that look before they insert hold over all processes on one
//! database. SQLite's lock has to be taken at the start: a deferred transaction that reads first and
//! writes later fails with `SQLITE_BUSY` at once if another process wrote in between, whatever the
//! busy time-out.
//!
//! What needs a connection is a boxed future, so that the pools and drivers of both databases are compiled in this member
//! alone and not in each one that awaits it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::{PgPool, SqlitePool};

use crate::changes;
use crate::changes::Part;
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::reach::Reach;
use crate::sql::query_scalar;

/// The connections: one writes, others read and cannot write.
#[derive(Debug)]
pub(super) enum Db {
    Sqlite { writer: SqlitePool, readers: SqlitePool },
    Postgres { writer: Option<PgPool>, apart: Option<PgPool>, readers: PgPool, reach: Arc<Reach> },
}

/// A transaction that holds the write lock. Dropping it rolls it back.
#[derive(Debug)]
pub(super) struct Transaction {
    connection: Conn,
    /// The version of the data at its start.
    pub(super) version: i64,
}

impl Db {
    /// Starts a transaction, and waits for the write lock.
    pub(super) fn begin(&self) -> BoxFuture<'_, Result<Transaction, MetadataError>> {
        Box::pin(async move {
            let (mut connection, version) = match self {
                Self::Sqlite { writer, .. } => {
                    let tx = writer.begin_with("BEGIN IMMEDIATE").await?;
                    (Conn::SqliteIn(tx), "PRAGMA data_version")
                }
                Self::Postgres { writer, reach, .. } => {
                    let writer = writer.as_ref().ok_or(MetadataError::ReadOnly)?;
                    let tx = Box::pin(reach.connected(writer.begin(), writer)).await?;
                    (
                        Conn::PostgresIn(tx, Arc::clone(reach)),
                        "SELECT number FROM revision FOR UPDATE",
                    )
                }
            };
            let version = query_scalar(version).fetch_one(&mut connection).await?;
            Ok(Transaction { connection, version })
        })
    }

    /// A connection that sees the last commit and cannot write.
    pub(super) fn reader(&self) -> BoxFuture<'_, Result<Conn, MetadataError>> {
        Box::pin(async move {
            match self {
                Self::Sqlite { readers, .. } => Ok(Conn::Sqlite(readers.acquire().await?)),
                Self::Postgres { readers, reach, .. } => {
                    let connection = Box::pin(reach.connected(readers.acquire(), readers)).await?;
                    Ok(Conn::Postgres(connection, Arc::clone(reach)))
                }
            }
        })
    }

    /// A connection for single statements about what no snapshot and no other write is concerned with. On PostgreSQL they
    /// wait for no write.
    pub(super) fn apart(&self) -> BoxFuture<'_, Result<Conn, MetadataError>> {
        Box::pin(async move {
            match self {
                Self::Sqlite { writer, .. } => Ok(Conn::Sqlite(writer.acquire().await?)),
                Self::Postgres { apart, reach, .. } => {
                    let apart = apart.as_ref().ok_or(MetadataError::ReadOnly)?;
                    let connection = Box::pin(reach.connected(apart.acquire(), apart)).await?;
                    Ok(Conn::Postgres(connection, Arc::clone(reach)))
                }
            }
        })
    }

    /// Looks whether PostgreSQL is there, and returns the version of the data. `None` for SQLite.
    pub(super) fn probe(&self) -> BoxFuture<'_, Result<Option<i64>, MetadataError>> {
        Box::pin(async move {
            let Self::Postgres { readers, reach, .. } = self else { return Ok(None) };
            let connection = Box::pin(reach.tried(readers.acquire(), readers)).await?;
            let mut connection = Conn::Postgres(connection, Arc::clone(reach));
            let version =
                query_scalar("SELECT number FROM revision").fetch_one(&mut connection).await?;
            reach.note_back();
            Ok(Some(version))
        })
    }

    /// A transaction that reads one state of PostgreSQL, and does not wait for writes.
    pub(super) fn frozen(&self) -> BoxFuture<'_, Result<Transaction, MetadataError>> {
        Box::pin(async move {
            let Self::Postgres { readers, reach, .. } = self else { return self.begin().await };
            let begin = readers.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
            let tx = Box::pin(reach.connected(begin, readers)).await?;
            let mut connection = Conn::PostgresIn(tx, Arc::clone(reach));
            let version =
                query_scalar("SELECT number FROM revision").fetch_one(&mut connection).await?;
            Ok(Transaction { connection, version })
        })
    }

    /// Whether it was opened to be read only.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self, Self::Postgres { writer: None, .. })
    }

    pub(super) fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self {
                Self::Sqlite { writer, readers } => {
                    readers.close().await;
                    writer.close().await;
                }
                Self::Postgres { writer, apart, readers, .. } => {
                    readers.close().await;
                    for pool in writer.iter().chain(apart) {
                        pool.close().await;
                    }
                }
            }
        })
    }
}

impl Transaction {
    /// The connection inside the transaction.
    pub(super) fn connection(&mut self) -> &mut Conn {
        &mut self.connection
    }

    /// Whether servers that share the database are told what a commit has changed ([`changes`]).
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.connection, Conn::PostgresIn(..))
    }

    /// Commits changes that snapshots contain, and returns the version of the data then. `parts` are those that have
    /// changed; `None` if that may be anything.
    pub(super) async fn commit_seen(
        mut self,
        parts: Option<&BTreeSet<Part>>,
    ) -> Result<i64, MetadataError> {
        if self.is_shared() && parts.is_none_or(|parts| !parts.is_empty()) {
            let next = "UPDATE revision SET number = number + 1 RETURNING number";
            self.version = query_scalar(next).fetch_one(&mut self.connection).await?;
            if let Some(parts) = parts {
                changes::note(&mut self.connection, self.version, parts).await?;
            }
        }
        let version = self.version;
        self.commit().await?;
        Ok(version)
    }

    /// Commits.
    pub(super) async fn commit(self) -> Result<(), MetadataError> {
        Ok(self.connection.end(true).await?)
    }

    /// Rolls back.
    pub(super) async fn rollback(self) -> Result<(), MetadataError> {
        Ok(self.connection.end(false).await?)
    }
}
