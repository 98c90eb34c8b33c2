//! Times at which the records of the log of this server took effect on persons, to the minute. Used to find
//! persons changed after a time ([`Metadata::records_since`]), because a person has the record of
//! its last change, but no time.
//!
//! Ingest stores the first record of each minute before it applies the record
//! ([`Metadata::upsert_definitions`]), so everything that can be read has its time.

use std::sync::Arc;

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;

const MINUTE_MICROS: i64 = 60_000_000;

/// How long times are kept, in minutes: 400 days, up to about ten megabytes.
const KEPT_MINUTES: i64 = 400 * 24 * 60;

/// The first record of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTime {
    /// Minutes since 1970-01-01.
    pub minute: i64,
    /// The log sequence of the record.
    pub sequence: u64,
}

impl RecordTime {
    /// A record that takes effect at `at`; it may be the first one of its minute.
    pub fn new(at: UnixMicros, sequence: u64) -> Self {
        Self { minute: minute_of(at), sequence }
    }
}

fn minute_of(at: UnixMicros) -> i64 {
    at.0.div_euclid(MINUTE_MICROS)
}

impl Metadata {
    /// The same store for the records of the log with this name, which may be one of several on the database. Times of a
    /// log without a name, as from a store of before, become those of this one.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn of_log(&self, name: &str) -> Result<Self, MetadataError> {
        let own = Self { shared: Arc::clone(&self.shared), log: Arc::from(name) };
        let unnamed = "SELECT TRUE FROM log_times WHERE log = '' LIMIT 1";
        let unnamed: Option<bool> =
            sql::query_scalar(unnamed).fetch_optional(&mut self.shared.db.reader().await?).await?;
        if unnamed.is_none() || self.shared.db.is_read_only() {
            return Ok(own);
        }
        let mut write = self.begin().await?;
        let adopt = "UPDATE log_times SET log = $1 WHERE log = '' AND NOT EXISTS
             (SELECT 1 FROM log_times other WHERE other.log = $1 AND other.minute = log_times.minute)";
        sql::query(adopt).bind(name).execute(write.connection()).await?;
        sql::query("DELETE FROM log_times WHERE log = ''").execute(write.connection()).await?;
        write.commit_unseen().await?;
        Ok(own)
    }

    /// The sequence of the first record in the minute of `at` or later. 0 if `at` is before the
    /// kept times, because all records may be later. `u64::MAX` if there is no such record.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn records_since(&self, at: UnixMicros) -> Result<u64, MetadataError> {
        let (minute, log) = (minute_of(at), &*self.log);
        let mut connection = self.shared.db.reader().await?;
        let is_known = "SELECT TRUE FROM log_times WHERE log = $1 AND minute <= $2 LIMIT 1";
        let is_known: Option<bool> = sql::query_scalar(is_known)
            .bind(log)
            .bind(minute)
            .fetch_optional(&mut connection)
            .await?;
        if is_known.is_none() {
            return Ok(0);
        }
        let first = "SELECT MIN(sequence) FROM log_times WHERE log = $1 AND minute >= $2";
        let first: Option<i64> =
            sql::query_scalar(first).bind(log).bind(minute).fetch_one(&mut connection).await?;
        Ok(first.map_or(u64::MAX, |first| u64::try_from(first).unwrap_or(0)))
    }
}

/// Stores times, and removes those that are too old.
pub(super) async fn insert(
    connection: &mut Conn,
    log: &str,
    times: &[RecordTime],
) -> Result<(), MetadataError> {
    for time in times {
        sql::query(
            "INSERT INTO log_times (log, minute, sequence) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(log)
        .bind(time.minute)
        .bind(i64::try_from(time.sequence).unwrap_or(i64::MAX))
        .execute(&mut *connection)
        .await?;
    }
    let Some(newest) = times.iter().map(|time| time.minute).max() else { return Ok(()) };
    sql::query("DELETE FROM log_times WHERE log = $1 AND minute < $2")
        .bind(log)
        .bind(newest.saturating_sub(KEPT_MINUTES))
        .execute(connection)
        .await?;
    Ok(())
}
