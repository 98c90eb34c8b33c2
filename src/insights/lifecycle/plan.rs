//! The intervals of a lifecycle, and the plan that reads its events as rows of histories.

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, ident, lit};

use crate::entity::note_named;
use crate::interval::{Buckets, TooManyBuckets};
use crate::lifecycle::Lifecycle;
use crate::lifecycle::status::{Status, each};
use crate::selection::Unit;
use crate::{InsightError, ProjectSettings};
use weir_api::node::NodeError;
use weir_event::schema::promoted_column_name;
use weir_query::events::expression_columns::with_columns;
use weir_query::events::histories::{ACTOR, AT, MASK, Marks, Row, Rows};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// Bits of rows: an event, and the creation of the actor, who may have no event.
const EVENT: u32 = 1;
const CREATED: u32 = 2;

/// The property that is false on events without a person profile.
const PROFILE: &str = "$process_person_profile";

impl Lifecycle {
    /// The intervals of the range.
    pub(super) async fn intervals(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
    ) -> Result<Buckets, InsightError> {
        self.selection.dates.buckets(engine, (view, owner), self.interval).await
    }

    /// The plan. `AT` is the number of the interval, where 0 is the one before the range.
    pub(super) async fn plan(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        intervals: &Buckets,
    ) -> Result<DataFrame, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let too_many = |error: TooManyBuckets| NodeError {
            field: "dateRange".to_owned(),
            detail: error.to_string(),
        };
        let seen = intervals.clone().with_earlier(1, owner.is_monday_first);
        let seen = seen.map_err(too_many)?.whole();
        let unit = self.selection.unit;
        let events = self.selection.events(engine, (view, owner), seen.bounds()).await?;
        let of_series = self.series.entity.condition(engine, (view, owner.project))?;
        let events = with_columns(view, events, seen.bounds(), [&of_series]).await?;
        let mut events = events.filter(of_series)?;
        if unit == Unit::Persons {
            events = events.filter(ident(promoted_column_name(PROFILE)).is_not_false())?;
        }
        let at = cast(seen.expression(), DataType::Int64);
        let events = events.select(row(unit.actor(), at, EVENT))?;
        Ok(events.union(created(view, unit, &seen).await?)?)
    }
}

/// The rows that the fold needs from a plan with these intervals.
pub(super) fn rows(intervals: &Buckets) -> Rows {
    Rows::Marked(Marks { times: intervals.len() + 1, masks: &[EVENT, CREATED] })
}

fn row(actor: Expr, at: Expr, mask: u32) -> Vec<Expr> {
    vec![actor.alias(ACTOR), at.alias(AT), lit(mask).alias(MASK)]
}

/// A row for each actor that was created in an interval.
async fn created(view: &View, unit: Unit, intervals: &Buckets) -> Result<DataFrame, QueryError> {
    let (actors, key) = match unit {
        Unit::Persons => (view.table("persons").await?, "uuid"),
        Unit::Groups(index) => {
            let of_type = col("group_type_index").eq(lit(i64::from(index)));
            (view.table("groups").await?.filter(of_type)?, "key")
        }
    };
    let interval = cast(intervals.expression_of(ident("created_at")), DataType::Int64);
    let actors = actors.filter(interval.clone().is_not_null())?;
    Ok(actors.select(row(unit.actor_of(view, key), interval, CREATED))?)
}

/// Calls `tell` with each interval of the range in which the actor of these rows has a status, and with the status.
pub(super) fn statuses(rows: &[Row], intervals: usize, mut tell: impl FnMut(usize, Status)) {
    let events = || rows.iter().filter(|row| row.mask & EVENT != 0);
    let active = events().filter_map(|row| usize::try_from(row.at).ok());
    let first = events().next().map(|row| row.at);
    let is_created_in_first =
        rows.iter().any(|row| row.mask & CREATED != 0 && Some(row.at) == first);
    each(active, is_created_in_first, |interval, status| {
        // The interval before the range only provides the status of the first one.
        if let Some(interval) = interval.checked_sub(1).filter(|own| *own < intervals) {
            tell(interval, status);
        }
    });
}
