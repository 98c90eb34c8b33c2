//! Ingestion warnings: cases in which ingest changed or ignored data of an event, counted by kind
//! and day, with the newest few samples of each.
//!
//! They are statistics: ingest accumulates them in memory and adds them here every few seconds
//! ([`Metadata::add_warnings`]), so a crash may lose the last ones. Ingest defines the kinds.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::connection::Conn;
use crate::entity::{Columns, Entity, entity, stored};
use crate::error::MetadataError;
use crate::{Metadata, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;

/// Samples kept of one kind on one day.
pub const SAMPLES_MAX: usize = 5;

const DAY_MICROS: i64 = 86_400_000_000;

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarningSample {
    /// Time of the warning.
    pub at: UnixMicros,
    /// The event, and details. Its size is bounded by its producer.
    pub details: Map<String, Value>,
}

stored! {
    u64 as i64: |count| i64::try_from(*count).unwrap_or(i64::MAX), |raw| Self::try_from(raw).map_err(|_| format!("no count: {raw}"));
    Vec<WarningSample> as String: |samples| samples_json(samples), |text| {
        let samples: Vec<Value> = json::restore(text.as_bytes()).map_err(|error| error.to_string())?;
        let sample = |sample: Value| {
            let at = sample.get("at").and_then(Value::as_i64)?;
            let details = sample.get("details").and_then(Value::as_object)?.clone();
            Some(WarningSample { at: UnixMicros(at), details })
        };
        let samples: Option<_> = samples.into_iter().map(sample).collect();
        samples.ok_or_else(|| "a sample without a time and details".to_owned())
    };
}

entity! {
    /// The warnings of one kind on one day.
    pub struct DayOfWarnings in "ingestion_warnings" {
        /// The project of the events.
        project: ProjectId as "project_id" [key],
        /// The kind, such as `cannot_merge_already_identified`.
        kind: String [key],
        /// Days since 1970-01-01.
        day: i64 [key],
        /// Number of warnings.
        count: u64,
        /// Time of the first warning.
        first_seen_at: UnixMicros,
        /// Time of the last warning.
        last_seen_at: UnixMicros,
        /// The newest few, newest first.
        samples: Vec<WarningSample>,
    }
}

impl DayOfWarnings {
    /// The day that `at` is in.
    pub fn day_of(at: UnixMicros) -> i64 {
        at.0.div_euclid(DAY_MICROS)
    }

    /// Adds other warnings of the same kind and day.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.first_seen_at = self.first_seen_at.min(other.first_seen_at);
        self.last_seen_at = self.last_seen_at.max(other.last_seen_at);
        self.samples.extend(other.samples);
        self.samples.sort_by_key(|sample| std::cmp::Reverse(sample.at));
        self.samples.truncate(SAMPLES_MAX);
    }
}

impl Metadata {
    /// Adds warnings to those of their kinds and days; those of deleted projects are left out. All or nothing.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], also for a project that does not exist.
    pub async fn add_warnings(&self, days: &[DayOfWarnings]) -> Result<(), MetadataError> {
        if days.is_empty() {
            return Ok(());
        }
        let mut write = self.begin().await?;
        let base = Arc::clone(&write.base);
        for day in days.iter().filter(|day| !base.is_deleted(day.project)) {
            add(write.connection(), day.clone()).await?;
        }
        write.commit_unseen().await
    }

    /// All stored warnings of a project, latest days first.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn warnings(&self, project: ProjectId) -> Result<Vec<DayOfWarnings>, MetadataError> {
        let select = DayOfWarnings::select(
            "WHERE project_id = $1
             ORDER BY day DESC, last_seen_at DESC, kind",
        )
        .bind(project.0);
        Ok(select.fetch_all(&mut self.shared.db.reader().await?).await?)
    }

    /// Removes the warnings of all days that ended before `before`. Returns the number of rows.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn remove_warnings(&self, before: UnixMicros) -> Result<u64, MetadataError> {
        let mut write = self.begin().await?;
        let removed = sql::query("DELETE FROM ingestion_warnings WHERE day < $1")
            .bind(DayOfWarnings::day_of(before))
            .execute(write.connection())
            .await?;
        write.commit_unseen().await?;
        Ok(removed)
    }
}

async fn add(connection: &mut Conn, new: DayOfWarnings) -> Result<(), MetadataError> {
    let select = DayOfWarnings::select("WHERE project_id = $1 AND kind = $2 AND day = $3")
        .bind(new.project.0)
        .bind(&new.kind)
        .bind(new.day);
    let known: Option<DayOfWarnings> = select.fetch_optional(&mut *connection).await?;
    let sum = match known {
        None => new,
        Some(mut sum) => {
            sum.add(new);
            sum
        }
    };
    sum.put().execute(connection).await?;
    Ok(())
}

/// Samples as stored and as SQL returns them: `[{"at": microseconds, "details": {...}}, ...]`.
pub fn samples_json(samples: &[WarningSample]) -> String {
    let json =
        |sample: &WarningSample| serde_json::json!({"at": sample.at.0, "details": sample.details});
    Value::Array(samples.iter().map(json).collect()).to_string()
}
