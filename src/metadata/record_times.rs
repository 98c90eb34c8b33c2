//! Times at which the records of the log took effect on persons, to the minute. Used to find
//! persons changed after a time ([`Metadata::records_since`]), because a person has the record of
//! its last change, but no time.
//!
//! Ingest stores the first record of each minute before it applies the record
//! ([`Metadata::upsert_definitions`]), so everything that can be read has its time.

use sqlx::SqliteConnection;

use crate::clock::UnixMicros;
use crate::metadata::Metadata;
use crate::metadata::error::MetadataError;

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
    /// The sequence of the first record in the minute of `at` or later. 0 if `at` is before the
    /// kept times, because all records may be later. `u64::MAX` if there is no such record.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn records_since(&self, at: UnixMicros) -> Result<u64, MetadataError> {
        let minute = minute_of(at);
        let mut connection = self.shared.db.readers().acquire().await?;
        let is_known = "SELECT 1 FROM record_times WHERE minute <= $1 LIMIT 1";
        let is_known: Option<i64> =
            sqlx::query_scalar(is_known).bind(minute).fetch_optional(&mut *connection).await?;
        if is_known.is_none() {
            return Ok(0);
        }
        let first = "SELECT MIN(sequence) FROM record_times WHERE minute >= $1";
        let first: Option<i64> =
            sqlx::query_scalar(first).bind(minute).fetch_one(&mut *connection).await?;
        Ok(first.map_or(u64::MAX, |first| u64::try_from(first).unwrap_or(0)))
    }
}

/// Stores times, and removes those that are too old.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    times: &[RecordTime],
) -> Result<(), MetadataError> {
    for time in times {
        sqlx::query(
            "INSERT INTO record_times (minute, sequence) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        )
        .bind(time.minute)
        .bind(i64::try_from(time.sequence).unwrap_or(i64::MAX))
        .execute(&mut *connection)
        .await?;
    }
    let Some(newest) = times.iter().map(|time| time.minute).max() else { return Ok(()) };
    sqlx::query("DELETE FROM record_times WHERE minute < $1")
        .bind(newest.saturating_sub(KEPT_MINUTES))
        .execute(connection)
        .await?;
    Ok(())
}
