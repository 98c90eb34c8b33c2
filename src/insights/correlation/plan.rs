//! The plan of a correlation: the rows of its funnel, which have no text, and a row with a text for each subject that
//! may correlate.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, cast, when};
use datafusion::prelude::{col, ident, lit};

use crate::columns::time;
use crate::correlation::values::Wanted;
use crate::correlation::{Correlation, Of};
use crate::entity::names_of;
use crate::selection::Unit;
use crate::{Context, InsightError};
use weir_base::clock::UnixMicros;
use weir_query::events::histories::{ACTOR, AT, MASK, TEXT};
use weir_query::kernel::error::QueryError;

impl Correlation {
    /// The rows of the funnel, and the bounds of the times of its events.
    pub(super) async fn funnel_rows(
        &self,
        context: Context<'_>,
    ) -> Result<(DataFrame, (UnixMicros, UnixMicros)), InsightError> {
        let (rows, bounds) = self.funnels.own_rows(context).await?;
        Ok((rows.with_column(TEXT, lit(ScalarValue::Utf8View(None)))?, bounds))
    }

    /// All rows to fold.
    pub(super) async fn rows(&self, context: Context<'_>) -> Result<DataFrame, InsightError> {
        let (funnel, bounds) = self.funnel_rows(context).await?;
        let beside = match &self.of {
            Of::Events(excluded) => {
                let events = self.events(context, bounds, excluded).await?;
                let name = cast(col("event"), DataType::Utf8View);
                self.of_events(events, lit(0_u32), name)?
            }
            Of::EventValues(names, wanted) => {
                let events = self.events(context, bounds, &[]).await?;
                let is_named = names.iter().map(|name| lit(name.as_str())).collect();
                let events = events.filter(col("event").in_list(is_named, false))?;
                let rows = self.of_events(events, number_of(names)?, wanted.clone().list())?;
                unnested(rows)?
            }
            Of::Values(wanted) => unnested(self.of_actors(context, wanted.clone()).await?)?,
        };
        Ok(funnel.union(beside)?)
    }

    /// The events of all actors within bounds, except those of the funnel's steps and those with `excluded` names.
    pub(super) async fn events(
        &self,
        Context { engine, view, owner }: Context<'_>,
        (from, to): (UnixMicros, UnixMicros),
        excluded: &[String],
    ) -> Result<DataFrame, InsightError> {
        let mut names = names_of(engine, owner.project, self.funnels.steps())?;
        names.extend_from_slice(excluded);
        let events = view.events()?;
        let events = events.filter(col("timestamp").between(time(from), time(to)))?;
        if names.is_empty() {
            return Ok(events);
        }
        let names = names.into_iter().map(lit).collect();
        Ok(events.filter(col("event").in_list(names, true))?)
    }

    /// Converts events to rows of histories.
    pub(super) fn of_events(
        &self,
        events: DataFrame,
        number: Expr,
        text: Expr,
    ) -> Result<DataFrame, QueryError> {
        Ok(events.select(vec![
            self.funnels.unit().actor().alias(ACTOR),
            cast(col("timestamp"), DataType::Int64).alias(AT),
            cast(number, DataType::UInt32).alias(MASK),
            text.alias(TEXT),
        ])?)
    }

    /// The rows of all persons or groups of the project, each with a list of property values.
    async fn of_actors(
        &self,
        context: Context<'_>,
        wanted: Wanted,
    ) -> Result<DataFrame, QueryError> {
        let (actors, actor) = self.actors_table(context).await?;
        of_actors(actors, actor, wanted.list())
    }

    /// All persons or groups of the project, and the expression of the actor of the funnel that each is.
    pub(super) async fn actors_table(
        &self,
        Context { view, .. }: Context<'_>,
    ) -> Result<(DataFrame, Expr), QueryError> {
        let (actors, id) = match self.funnels.unit() {
            Unit::Persons => (view.table("persons").await?, "uuid"),
            Unit::Groups(index) => {
                let groups = view.table("groups").await?;
                (groups.filter(col("group_type_index").eq(lit(i64::from(index))))?, "key")
            }
        };
        Ok((actors, self.funnels.unit().actor_of(view, id)))
    }
}

/// Converts persons or groups to rows of histories, which have no time.
pub(super) fn of_actors(
    actors: DataFrame,
    actor: Expr,
    text: Expr,
) -> Result<DataFrame, QueryError> {
    Ok(actors.select(vec![
        actor.alias(ACTOR),
        lit(0_i64).alias(AT),
        lit(0_u32).alias(MASK),
        text.alias(TEXT),
    ])?)
}

/// A row for each item of the lists of texts, and none for an empty list: its null text would look like a row of the
/// funnel.
fn unnested(rows: DataFrame) -> Result<DataFrame, QueryError> {
    Ok(rows.unnest_columns(&[TEXT])?.filter(ident(TEXT).is_not_null())?)
}

/// The index of an event's name in `names`, which must contain it.
fn number_of(names: &[String]) -> Result<Expr, QueryError> {
    let mut number = lit(0_u32);
    for (name, place) in names.iter().zip(0_u32..).skip(1) {
        number = when(col("event").eq(lit(name.as_str())), lit(place)).otherwise(number)?;
    }
    Ok(number)
}
