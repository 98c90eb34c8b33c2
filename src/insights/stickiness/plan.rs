//! The plan that reads a series of a stickiness as rows of histories: `AT` is the interval of the range.

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::cast;
use datafusion::prelude::lit;

use crate::date_range::DateRange;
use crate::interval::Buckets;
use crate::selection::buckets;
use crate::stickiness::active::{Criteria, Rule};
use crate::stickiness::{Counted, Stickiness};
use crate::{InsightError, ProjectSettings};
use weir_query::events::expression_columns::with_columns;
use weir_query::events::histories::{ACTOR, AT, MASK, Marks, Rows};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::view::View;

impl Stickiness {
    /// The rule for active intervals of a range, and its intervals.
    pub(super) fn rule(
        &self,
        range: &DateRange,
        owner: &ProjectSettings,
    ) -> Result<(Rule, Buckets), InsightError> {
        let intervals = buckets(range, self.interval, owner)?;
        let criteria = self.criteria.unwrap_or(Criteria::ANY);
        let rule =
            Rule { interval_count: self.interval_count, intervals: intervals.len(), criteria };
        Ok((rule, intervals))
    }

    /// The date ranges: the current one, and the one it is compared with, if there is one.
    pub(super) async fn ranges(
        &self,
        engine: &Engine,
        view: &View,
        owner: &ProjectSettings,
    ) -> Result<Vec<DateRange>, InsightError> {
        let dates = &self.selection.dates;
        self.compare.ranges(engine, (view, owner), dates, self.interval).await
    }

    /// The plan of a series.
    pub(super) async fn plan(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        Counted { series, unit }: &Counted,
        intervals: &Buckets,
    ) -> Result<DataFrame, InsightError> {
        let bounds = intervals.bounds();
        let events = self.selection.events(engine, (view, owner), bounds).await?;
        let of_series = series.entity.condition(engine, (view, owner.project))?;
        let events = with_columns(view, events, bounds, [&of_series]).await?.filter(of_series)?;
        Ok(events.select(vec![
            unit.actor().alias(ACTOR),
            cast(intervals.expression(), DataType::Int64).alias(AT),
            lit(0_u32).alias(MASK),
        ])?)
    }

    /// The rows that the fold needs from a plan with these intervals.
    pub(super) fn rows(&self, intervals: &Buckets) -> Rows {
        match self.criteria {
            Some(_) => Rows::All,
            None => Rows::Marked(Marks { times: intervals.len(), masks: &[0] }),
        }
    }
}
