//! A connection to SQLite or PostgreSQL: [`Conn`]. Statements run on it by `sql`.
//!
//! Futures of PostgreSQL's driver are on the heap: those of a new connection take 60 kB, which all that
//! waits for one would be larger by, on SQLite too.

use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Sqlite, SqliteConnection};

use crate::codes::is_stale_plan;
use crate::reach::Reach;

/// A connection, in a transaction or not.
#[derive(Debug)]
pub(super) enum Conn {
    Sqlite(PoolConnection<Sqlite>),
    SqliteIn(sqlx::Transaction<'static, Sqlite>),
    Postgres(PoolConnection<Postgres>, Arc<Reach>),
    PostgresIn(sqlx::Transaction<'static, Postgres>, Arc<Reach>),
}

/// A connection as a statement needs it.
pub(super) enum Link<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection, &'c Reach),
}

impl Conn {
    pub(super) fn link(&mut self) -> Link<'_> {
        match self {
            Self::Sqlite(connection) => Link::Sqlite(connection),
            Self::SqliteIn(tx) => Link::Sqlite(tx),
            Self::Postgres(connection, reach) => Link::Postgres(connection, reach),
            Self::PostgresIn(tx, reach) => Link::Postgres(tx, reach),
        }
    }

    /// `done`, after what its error means for this connection and others.
    pub(super) async fn settled<T>(
        &mut self,
        done: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let (Err(error), Link::Postgres(connection, reach)) = (&done, self.link()) else {
            return done;
        };
        reach.note(error);
        // Another process has migrated the tables: what is prepared here has columns of before.
        if is_stale_plan(error) {
            use sqlx::Connection as _;
            let _ = reach.within(Box::pin(connection.clear_cached_statements())).await;
        }
        done
    }

    /// Ends its transaction.
    pub(super) fn end(self, is_kept: bool) -> BoxFuture<'static, Result<(), sqlx::Error>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(_) | Self::Postgres(..) => {}
                Self::SqliteIn(tx) => ended(tx, is_kept).await?,
                Self::PostgresIn(tx, reach) => {
                    let done = reach.within(Box::pin(ended(tx, is_kept))).await;
                    done.inspect_err(|error| reach.note(error))?;
                }
            }
            Ok(())
        })
    }
}

async fn ended<D: sqlx::Database>(
    tx: sqlx::Transaction<'static, D>,
    is_kept: bool,
) -> Result<(), sqlx::Error> {
    match is_kept {
        true => tx.commit().await,
        false => tx.rollback().await,
    }
}
