//! Streams events in the order of time: those of one person, and `$groupidentify` events, which set properties of
//! groups.

use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};
use uuid::Uuid;

use crate::columns::time;
use crate::events;
use crate::events::{COLUMNS, EventRow, event_rows};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_query::events::event_property::event_text;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::run::Answer;

/// The name of events that set properties of a group.
const GROUP_IDENTIFY: &str = "$groupidentify";

/// A stream of events.
#[derive(Debug)]
pub struct History(Answer);

impl History {
    /// The next batch of events; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Vec<EventRow>, QueryError>> {
        Some(self.0.next().await?.map(|batch| event_rows(&batch)))
    }
}

/// Streams the events of a person up to and including a time, oldest first.
///
/// # Errors
///
/// See [`QueryError`]; the stream may return further errors.
pub async fn of_person(
    engine: &Engine,
    project: ProjectId,
    person: Uuid,
    until: UnixMicros,
) -> Result<History, QueryError> {
    let person = events::of_person(engine, project, person).await?;
    in_order(engine, project, person, until).await
}

/// Streams the events up to and including a time that set properties of the groups of a type with these keys, oldest
/// first.
///
/// # Errors
///
/// As [`of_person`].
pub async fn of_groups(
    engine: &Engine,
    project: ProjectId,
    (group_type, keys): (&str, &[String]),
    until: UnixMicros,
) -> Result<History, QueryError> {
    let keys = keys.iter().map(|key| lit(key.clone())).collect();
    let says = col("event")
        .eq(lit(GROUP_IDENTIFY))
        .and(event_text("$group_type").eq(lit(group_type)))
        .and(event_text("$group_key").in_list(keys, false));
    in_order(engine, project, says, until).await
}

/// Streams the events up to and including a time that meet a condition.
async fn in_order(
    engine: &Engine,
    project: ProjectId,
    condition: Expr,
    until: UnixMicros,
) -> Result<History, QueryError> {
    let rows = engine.view(project).await?.table("events").await?;
    let rows = rows.filter(col("timestamp").lt_eq(time(until)))?.filter(condition)?;
    let order = vec![col("timestamp").sort(true, false), col("uuid").sort(true, false)];
    let columns: Vec<Expr> = COLUMNS.iter().map(|name| col(*name)).collect();
    Ok(History(engine.stream(rows.sort(order)?.select(columns)?).await?))
}
