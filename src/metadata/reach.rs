//! Whether PostgreSQL can be reached, and how long to wait for it.
//!
//! The first operation that fails to reach it notes that; from then on operations fail at once, so that
//! nothing of the write path and of flags waits for it, until [`super::Metadata::refresh`] finds it back.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::PgPool;

use crate::codes::is_away;
use crate::error::MetadataError;

/// How much longer than PostgreSQL itself to wait for the end of a statement. If that passes, nobody is
/// at the other end.
const MARGIN: Duration = Duration::from_secs(1);

/// Whether PostgreSQL can be reached, and how long to wait for it.
#[derive(Debug)]
pub(super) struct Reach {
    is_away: AtomicBool,
    limit: Duration,
}

impl Reach {
    /// It can be reached, and statements may take this long.
    pub(super) fn new(limit: Duration) -> Self {
        Self { is_away: AtomicBool::new(false), limit }
    }

    /// The connection that `acquired` gets from `pool`. Fails at once while PostgreSQL is away.
    pub(super) async fn connected<T>(
        &self,
        acquired: impl Future<Output = Result<T, sqlx::Error>>,
        pool: &PgPool,
    ) -> Result<T, MetadataError> {
        match self.is_away.load(Ordering::Acquire) {
            true => Err(MetadataError::Away),
            false => self.tried(acquired, pool).await,
        }
    }

    /// The same, while it is away as well.
    pub(super) async fn tried<T>(
        &self,
        acquired: impl Future<Output = Result<T, sqlx::Error>>,
        pool: &PgPool,
    ) -> Result<T, MetadataError> {
        match self.within(acquired).await {
            // The pool waits for a refused connection to succeed, and then only says that time is up.
            Err(sqlx::Error::PoolTimedOut)
                if pool.size() < pool.options().get_max_connections() =>
            {
                self.is_away.store(true, Ordering::Release);
                Err(MetadataError::Away)
            }
            Err(error) => {
                self.note(&error);
                Err(error.into())
            }
            Ok(connection) => Ok(connection),
        }
    }

    /// Runs `work`, which is to end within the limit of PostgreSQL and a margin.
    pub(super) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        match tokio::time::timeout(self.limit.saturating_add(MARGIN), work).await {
            Ok(done) => done,
            Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
        }
    }

    /// Notes that PostgreSQL is away, if `error` says so.
    pub(super) fn note(&self, error: &sqlx::Error) {
        let is_away = match error {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) => true,
            sqlx::Error::Database(error) => error.code().is_some_and(|code| is_away(&code)),
            _ => false,
        };
        if is_away {
            self.is_away.store(true, Ordering::Release);
        }
    }

    /// Notes that PostgreSQL answers.
    pub(super) fn note_back(&self) {
        self.is_away.store(false, Ordering::Release);
    }
}
