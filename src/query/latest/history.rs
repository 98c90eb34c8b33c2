//! Events in the order of time, as they come: those of one person, and those that say what groups are like.

use datafusion::logical_expr::Expr;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::query::Engine;
use crate::query::QueryError;
use crate::query::latest::COLUMNS;
use crate::query::latest::EventRow;
use crate::query::latest::event_rows;
use crate::query::latest::property_text;
use crate::query::latest::time;
use crate::query::run::Answer;

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

impl Engine {
    /// The events of a person up to a time, oldest first, as they come.
    ///
    /// # Errors
    ///
    /// See [`QueryError`]; more may come with the events.
    pub async fn history(
        &self,
        project: ProjectId,
        person: Uuid,
        until: UnixMicros,
    ) -> Result<History, QueryError> {
        let person = self.of_person(project, person).await?;
        self.in_order(project, person, until).await
    }

    /// The events up to a time that say what the groups of a type with these keys are like, oldest first,
    /// as they come.
    ///
    /// # Errors
    ///
    /// As [`Engine::history`].
    pub async fn group_history(
        &self,
        project: ProjectId,
        (group_type, keys): (&str, &[String]),
        until: UnixMicros,
    ) -> Result<History, QueryError> {
        let keys = keys.iter().map(|key| lit(key.clone())).collect();
        let says = col("event")
            .eq(lit(GROUP_IDENTIFY))
            .and(property_text("$group_type").eq(lit(group_type)))
            .and(property_text("$group_key").in_list(keys, false));
        self.in_order(project, says, until).await
    }

    /// The events up to a time for which a condition holds.
    async fn in_order(
        &self,
        project: ProjectId,
        condition: Expr,
        until: UnixMicros,
    ) -> Result<History, QueryError> {
        self.wait().await?;
        let source = self.source(project, Some(condition));
        let rows = source.table()?;
        let rows = source.filtered(rows.filter(col("timestamp").lt_eq(time(until.0)))?)?;
        let order = vec![col("timestamp").sort(true, false), col("uuid").sort(true, false)];
        let columns: Vec<Expr> = COLUMNS.iter().map(|name| col(*name)).collect();
        Ok(History(self.stream(rows.sort(order)?.select(columns)?).await?))
    }
}
