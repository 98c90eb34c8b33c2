//! Scheduled changes as rows. SQL only; the rules are in `schedules`.

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::error::MetadataError;
use crate::flags::FlagId;
use crate::schedules::{Interval, ScheduleId, ScheduledChange, Timing};
use crate::sql::{Builder, Query};
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

const TABLE: &str = "scheduled_changes";

/// Pending changes: neither finished nor paused.
const OPEN: &str = "executed_at IS NULL
    AND (is_recurring OR (recurrence_interval IS NULL AND cron_expression IS NULL))";

/// The id for the next change.
pub(super) async fn next_id(connection: &mut Conn) -> Result<ScheduleId, MetadataError> {
    let sql = "SELECT COALESCE(MAX(id), 0) + 1 FROM scheduled_changes";
    disk::next_id(connection, sql).await.map(ScheduleId)
}

/// Binds the first values of a statement: the fields that can change, and the id.
fn bind(statement: Query, change: &ScheduledChange) -> Query {
    statement
        .bind(change.payload.to_string())
        .bind(change.timing.scheduled_at.0)
        .bind(change.timing.is_recurring)
        .bind(change.timing.interval.map(Interval::name))
        .bind(change.timing.cron.as_deref())
        .bind(change.timing.end_date.map(|time| time.0))
        .bind(change.executed_at.map(|time| time.0))
        .bind(change.last_executed_at.map(|time| time.0))
        .bind(change.failure_reason.as_deref())
        .bind(change.failure_count)
        .bind(change.not_before.map(|time| time.0))
        .bind(change.updated_at.0)
        .bind(change.id.0)
}

/// Inserts a change.
pub(super) async fn insert(
    connection: &mut Conn,
    change: &ScheduledChange,
) -> Result<(), MetadataError> {
    let insert = sql::query(
        "INSERT INTO scheduled_changes
         (payload, scheduled_at, is_recurring, recurrence_interval, cron_expression, end_date,
          executed_at, last_executed_at, failure_reason, failure_count, not_before, updated_at, id,
          project_id, flag_id, timezone, created_by, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
    );
    bind(insert, change)
        .bind(change.project.0)
        .bind(change.flag.0)
        .bind(&change.timezone)
        .bind(change.created_by.0)
        .bind(change.created_at.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Overwrites the fields of a change that can change.
pub(super) async fn update(
    connection: &mut Conn,
    change: &ScheduledChange,
) -> Result<(), MetadataError> {
    let update = sql::query(
        "UPDATE scheduled_changes
         SET payload = $1, scheduled_at = $2, is_recurring = $3, recurrence_interval = $4,
             cron_expression = $5, end_date = $6, executed_at = $7, last_executed_at = $8,
             failure_reason = $9, failure_count = $10, not_before = $11, updated_at = $12
         WHERE id = $13",
    );
    bind(update, change).execute(connection).await?;
    Ok(())
}

/// Removes a change permanently.
pub(super) async fn delete(connection: &mut Conn, id: ScheduleId) -> Result<(), MetadataError> {
    sql::query("DELETE FROM scheduled_changes WHERE id = $1")
        .bind(id.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Reads one change.
pub(super) async fn by_id(
    connection: &mut Conn,
    id: ScheduleId,
) -> Result<Option<ScheduledChange>, MetadataError> {
    let row: Option<Row> = sql::query_as("SELECT * FROM scheduled_changes WHERE id = $1")
        .bind(id.0)
        .fetch_optional(connection)
        .await?;
    row.map(ScheduledChange::try_from).transpose()
}

/// Reads the changes of a project, or of one flag, in the order in which they were created: the
/// `limit` after the first `offset`, and the number of all.
pub(super) async fn page(
    connection: &mut Conn,
    project: ProjectId,
    flag: Option<FlagId>,
    limit: usize,
    offset: usize,
) -> Result<(usize, Vec<ScheduledChange>), MetadataError> {
    let select = |columns: &'static str| {
        let mut select = Builder::new("SELECT ");
        select.push(columns).push(" FROM scheduled_changes WHERE project_id = ");
        select.push_bind(project.0);
        if let Some(flag) = flag {
            select.push(" AND flag_id = ").push_bind(flag.0);
        }
        select
    };
    let count: i64 = select("COUNT(*)").build_scalar().fetch_one(&mut *connection).await?;
    let mut rows = select("*");
    rows.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
    rows.push(" OFFSET ").push_bind(i64::try_from(offset).unwrap_or(i64::MAX));
    let rows = rows.build_as::<Row>().fetch_all(connection).await?;
    let changes = rows.into_iter().map(ScheduledChange::try_from).collect::<Result<_, _>>()?;
    Ok((usize::try_from(count).unwrap_or(0), changes))
}

/// Reads the changes of a flag that are not finished.
pub(super) async fn pending(
    connection: &mut Conn,
    flag: FlagId,
) -> Result<Vec<ScheduledChange>, MetadataError> {
    let sql =
        "SELECT * FROM scheduled_changes WHERE flag_id = $1 AND executed_at IS NULL ORDER BY id";
    let rows: Vec<Row> = sql::query_as(sql).bind(flag.0).fetch_all(connection).await?;
    rows.into_iter().map(ScheduledChange::try_from).collect()
}

/// Finds the changes that are due at `now`, at most `limit`, the longest overdue first.
pub(super) async fn due(
    connection: &mut Conn,
    now: UnixMicros,
    limit: i64,
) -> Result<Vec<ScheduleId>, MetadataError> {
    let mut select = Builder::new("SELECT id FROM scheduled_changes WHERE ");
    select.push(OPEN).push(" AND scheduled_at <= ").push_bind(now.0);
    select.push(" AND (not_before IS NULL OR not_before <= ").push_bind(now.0);
    select.push(") ORDER BY scheduled_at, id LIMIT ").push_bind(limit);
    let ids: Vec<i64> = select.build_scalar().fetch_all(connection).await?;
    Ok(ids.into_iter().map(ScheduleId).collect())
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    id: i64,
    project_id: i64,
    flag_id: i64,
    payload: String,
    scheduled_at: i64,
    is_recurring: bool,
    recurrence_interval: Option<String>,
    cron_expression: Option<String>,
    end_date: Option<i64>,
    timezone: String,
    executed_at: Option<i64>,
    last_executed_at: Option<i64>,
    failure_reason: Option<String>,
    failure_count: i64,
    not_before: Option<i64>,
    created_by: i64,
    created_at: i64,
    updated_at: i64,
}

impl TryFrom<Row> for ScheduledChange {
    type Error = MetadataError;

    fn try_from(row: Row) -> Result<Self, MetadataError> {
        let interval = row.recurrence_interval.as_deref().map(|name| {
            let problem = || format!("no such interval: {name}");
            Interval::parse(name)
                .ok_or_else(|| MetadataError::Corrupt { table: TABLE, problem: problem() })
        });
        Ok(Self {
            id: ScheduleId(row.id),
            project: ProjectId(row.project_id),
            flag: FlagId(row.flag_id),
            payload: disk::from_json(TABLE, &row.payload)?,
            timing: Timing {
                scheduled_at: UnixMicros(row.scheduled_at),
                is_recurring: row.is_recurring,
                interval: interval.transpose()?,
                cron: row.cron_expression,
                end_date: row.end_date.map(UnixMicros),
            },
            timezone: row.timezone,
            executed_at: row.executed_at.map(UnixMicros),
            last_executed_at: row.last_executed_at.map(UnixMicros),
            failure_reason: row.failure_reason,
            failure_count: row.failure_count,
            not_before: row.not_before.map(UnixMicros),
            created_by: UserId(row.created_by),
            created_at: UnixMicros(row.created_at),
            updated_at: UnixMicros(row.updated_at),
        })
    }
}
