//! Scheduled changes as rows. SQL only; the rules are in `schedules`.

use crate::connection::Conn;
use crate::entity::Columns;
use crate::error::MetadataError;
use crate::flags::FlagId;
use crate::schedules::{ScheduleId, ScheduledChange};
use crate::sql::Builder;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// Pending changes: neither finished nor paused.
const OPEN: &str = "executed_at IS NULL
    AND (is_recurring OR (recurrence_interval IS NULL AND cron_expression IS NULL))";

/// Reads one change.
pub(super) async fn by_id(
    connection: &mut Conn,
    id: ScheduleId,
) -> Result<Option<ScheduledChange>, MetadataError> {
    let select = ScheduledChange::select("WHERE id = $1").bind(id.0);
    Ok(select.fetch_optional(connection).await?)
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
    let matching = |mut select: Builder| {
        select.push(" WHERE project_id = ").push_bind(project.0);
        if let Some(flag) = flag {
            select.push(" AND flag_id = ").push_bind(flag.0);
        }
        select
    };
    let count = matching(Builder::new("SELECT COUNT(*) FROM scheduled_changes"));
    let count: i64 = count.build_scalar().fetch_one(&mut *connection).await?;
    let mut rows = matching(ScheduledChange::selecting(""));
    rows.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
    rows.push(" OFFSET ").push_bind(i64::try_from(offset).unwrap_or(i64::MAX));
    let changes = rows.build_as().fetch_all(connection).await?;
    Ok((usize::try_from(count).unwrap_or(0), changes))
}

/// Reads the changes of a flag that are not finished.
pub(super) async fn pending(
    connection: &mut Conn,
    flag: FlagId,
) -> Result<Vec<ScheduledChange>, MetadataError> {
    Ok(ScheduledChange::select("WHERE flag_id = $1 AND executed_at IS NULL ORDER BY id")
        .bind(flag.0)
        .fetch_all(connection)
        .await?)
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
