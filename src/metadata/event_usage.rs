//! Usage of event definitions: queries that named an event, by day. Statistics that are accumulated
//! in memory and added here from time to time ([`Metadata::add_event_usage`]), so a crash may lose
//! the last ones.

use uuid::Uuid;

use crate::error::MetadataError;
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Days that are stored and counted, today included (PostHog's figure).
pub const USAGE_DAYS: i64 = 30;

const DAY_MICROS: i64 = 86_400_000_000;

/// Number of queries on one day that named an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventUsage {
    /// The project of the event.
    pub project: ProjectId,
    /// The name of the event, which need not have a definition.
    pub event: String,
    /// Days since 1970-01-01.
    pub day: i64,
    /// Number of queries.
    pub count: u64,
}

impl EventUsage {
    /// The day that `at` is in.
    pub fn day_of(at: UnixMicros) -> i64 {
        at.0.div_euclid(DAY_MICROS)
    }
}

impl Metadata {
    /// Adds counts of queries to those of their events and days, and removes counts that are too
    /// old. Events without a definition are skipped. All or nothing.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn add_event_usage(&self, usage: &[EventUsage]) -> Result<(), MetadataError> {
        if usage.is_empty() {
            return Ok(());
        }
        let mut write = self.begin().await?;
        for usage in usage {
            sql::query(
                "INSERT INTO event_usage (definition, day, count)
                 SELECT id, $3, $4 FROM event_definitions WHERE project_id = $1 AND name = $2
                 ON CONFLICT (definition, day) DO UPDATE SET count = event_usage.count + excluded.count",
            )
            .bind(usage.project.0)
            .bind(&usage.event)
            .bind(usage.day)
            .bind(i64::try_from(usage.count).unwrap_or(i64::MAX))
            .execute(write.connection())
            .await?;
        }
        let oldest = EventUsage::day_of(self.now()).saturating_sub(USAGE_DAYS);
        sql::query("DELETE FROM event_usage WHERE day <= $1")
            .bind(oldest)
            .execute(write.connection())
            .await?;
        write.commit_unseen().await
    }

    /// Number of queries that named the event of a definition in the last [`USAGE_DAYS`].
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn event_usage(&self, definition: Uuid) -> Result<u64, MetadataError> {
        let oldest = EventUsage::day_of(self.now()).saturating_sub(USAGE_DAYS);
        let select = "SELECT CAST(COALESCE(SUM(count), 0) AS BIGINT) FROM event_usage
             WHERE definition = $1 AND day > $2";
        let count: i64 = sql::query_scalar(select)
            .bind(definition.to_string())
            .bind(oldest)
            .fetch_one(&mut self.shared.db.reader().await?)
            .await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}
