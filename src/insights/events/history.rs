//! Events in the order of time, as they come: those of one person, and those that say what groups are like.

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

/// The name of events that say what a group is like.
const GROUP_IDENTIFY: &str = "$groupidentify";

/// Events as they come.
#[derive(Debug)]
pub struct History(Answer);

impl History {
    /// The next events; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Vec<EventRow>, QueryError>> {
        Some(self.0.next().await?.map(|batch| event_rows(&batch)))
    }
}

/// The events of a person up to a time, oldest first, as they come.
///
/// # Errors
///
/// See [`QueryError`]; more may come with the events.
pub async fn of_person(
    engine: &Engine,
    project: ProjectId,
    person: Uuid,
    until: UnixMicros,
) -> Result<History, QueryError> {
    let person = events::of_person(engine, project, person).await?;
    in_order(engine, project, person, until).await
}

/// The events up to a time that say what the groups of a type with these keys are like, oldest first,
/// as they come.
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

/// The events up to a time for which a condition holds.
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
