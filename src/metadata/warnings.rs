//! Ingestion warnings: cases in which ingest changed or ignored data of an event, counted by kind
//! and day, with the newest few samples of each.
//!
//! They are statistics: ingest accumulates them in memory and adds them here every few seconds
//! ([`Metadata::add_warnings`]), so a crash may lose the last ones. Ingest defines the kinds.

use serde_json::{Map, Value, json};

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::{Metadata, disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

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

/// The warnings of one kind on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayOfWarnings {
    /// The project of the events.
    pub project: ProjectId,
    /// The kind, such as `cannot_merge_already_identified`.
    pub kind: String,
    /// Days since 1970-01-01.
    pub day: i64,
    /// Number of warnings.
    pub count: u64,
    /// Time of the first warning.
    pub first_seen_at: UnixMicros,
    /// Time of the last warning.
    pub last_seen_at: UnixMicros,
    /// The newest few, newest first.
    pub samples: Vec<WarningSample>,
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
    /// Adds warnings to those of their kinds and days. All or nothing.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], also for a project that does not exist.
    pub async fn add_warnings(&self, days: &[DayOfWarnings]) -> Result<(), MetadataError> {
        if days.is_empty() {
            return Ok(());
        }
        let mut write = self.begin().await?;
        for day in days {
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
        let rows: Vec<WarningRow> = sql::query_as(
            "SELECT * FROM ingestion_warnings WHERE project_id = $1
             ORDER BY day DESC, last_seen_at DESC, kind",
        )
        .bind(project.0)
        .fetch_all(&mut self.shared.db.reader().await?)
        .await?;
        rows.into_iter().map(DayOfWarnings::try_from).collect()
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
    let known: Option<WarningRow> = sql::query_as(
        "SELECT * FROM ingestion_warnings WHERE project_id = $1 AND kind = $2 AND day = $3",
    )
    .bind(new.project.0)
    .bind(&new.kind)
    .bind(new.day)
    .fetch_optional(&mut *connection)
    .await?;
    let sum = match known {
        None => new,
        Some(row) => {
            let mut sum = DayOfWarnings::try_from(row)?;
            sum.add(new);
            sum
        }
    };
    sql::query(
        "INSERT INTO ingestion_warnings
         (project_id, kind, day, count, first_seen_at, last_seen_at, samples)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (project_id, kind, day) DO UPDATE SET count = excluded.count,
         first_seen_at = excluded.first_seen_at, last_seen_at = excluded.last_seen_at,
         samples = excluded.samples",
    )
    .bind(sum.project.0)
    .bind(&sum.kind)
    .bind(sum.day)
    .bind(i64::try_from(sum.count).unwrap_or(i64::MAX))
    .bind(sum.first_seen_at.0)
    .bind(sum.last_seen_at.0)
    .bind(samples_json(&sum.samples))
    .execute(connection)
    .await?;
    Ok(())
}

/// Samples as stored and as SQL returns them: `[{"at": microseconds, "details": {...}}, ...]`.
pub fn samples_json(samples: &[WarningSample]) -> String {
    let json = |sample: &WarningSample| json!({"at": sample.at.0, "details": sample.details});
    Value::Array(samples.iter().map(json).collect()).to_string()
}

#[derive(sqlx_macros::FromRow)]
struct WarningRow {
    project_id: i64,
    kind: String,
    day: i64,
    count: i64,
    first_seen_at: i64,
    last_seen_at: i64,
    samples: String,
}

impl TryFrom<WarningRow> for DayOfWarnings {
    type Error = MetadataError;

    fn try_from(row: WarningRow) -> Result<Self, MetadataError> {
        const TABLE: &str = "ingestion_warnings";
        let corrupt =
            |problem: &str| MetadataError::Corrupt { table: TABLE, problem: problem.into() };
        let samples: Vec<Value> = disk::from_json(TABLE, &row.samples)?;
        let sample = |sample: Value| {
            let at = sample.get("at").and_then(Value::as_i64)?;
            let details = sample.get("details").and_then(Value::as_object)?.clone();
            Some(WarningSample { at: UnixMicros(at), details })
        };
        let samples: Option<Vec<WarningSample>> = samples.into_iter().map(sample).collect();
        Ok(Self {
            project: ProjectId(row.project_id),
            kind: row.kind,
            day: row.day,
            count: u64::try_from(row.count).map_err(|_| corrupt("a count below zero"))?,
            first_seen_at: UnixMicros(row.first_seen_at),
            last_seen_at: UnixMicros(row.last_seen_at),
            samples: samples.ok_or_else(|| corrupt("a sample without time or details"))?,
        })
    }
}
