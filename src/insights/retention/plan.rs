//! The intervals of a retention, and the plan that reads its events as rows of histories.

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, ident, lit};

use crate::breakdown::{Breakdown, in_cohort, joined};
use crate::columns::time;
use crate::filters::Filters;
use crate::interval::{Buckets, TooManyBuckets};
use crate::property::{Owner, Property};
use crate::retention::rolling::Rolling;
use crate::retention::rows::{BEFORE, NAMED, RETURNING, Rule, TARGET};
use crate::retention::split::{Split, Splitter};
use crate::retention::sums::with_number;
use crate::retention::{Measure, Retention};
use crate::selection::{buckets, zone};
use crate::{Context, InsightError};
use weir_api::node::NodeError;
use weir_api::nodes::insights::RetentionType;
use weir_base::clock::UnixMicros;
use weir_query::events::event_property::event_number;
use weir_query::events::expression_columns::with_columns;
use weir_query::events::histories::{ACTOR, AT, MASK, Rows, TEXT};
use weir_query::functions::text_number::number;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// Most cells in a response.
const CELLS_MAX: usize = 100_000;

/// A plan with what is needed to fold its rows.
pub(super) struct Folded {
    pub(super) plan: DataFrame,
    pub(super) rows: Rows,
    pub(super) splitter: Splitter,
}

impl Retention {
    /// Compiles the plan and the splitter of its rows, restricted to a cohort if one is given.
    pub(super) async fn folded(
        &self,
        context: Context<'_>,
        intervals: &Buckets,
        cohort: Option<i64>,
    ) -> Result<Folded, InsightError> {
        let plan = self.plan(context, intervals, cohort).await?;
        let rolling = match self.is_rolling {
            true => Some(Rolling::of(self.period, zone(context.owner)?)),
            false => None,
        };
        let times = self.has_times().then(|| intervals.clone());
        let rule = Rule {
            kind: self.kind,
            spans: self.spans.clone(),
            is_cumulative: self.is_cumulative,
            occurrences: self.occurrences,
            times,
            rolling,
        };
        let is_each = self.occurrences > 1 || self.measure.is_some();
        let rows = if is_each { Rows::All } else { Rows::Distinct };
        let is_split = matches!(self.breakdown, Breakdown::Properties { .. });
        let split = Split { is_split, has_numbers: self.measure.is_some() };
        let splitter = Splitter::new(rule, split);
        Ok(Folded { plan, rows, splitter })
    }

    /// The intervals of the rows, from that of `date_from` to that of `date_to`, both whole; without `date_from` as
    /// many as requested.
    pub(super) async fn intervals(
        &self,
        Context { engine, view, owner }: Context<'_>,
    ) -> Result<Buckets, InsightError> {
        let dates = &self.selection.dates;
        let range = dates.range(engine, (view, owner), self.period).await?;
        let intervals = match dates.from {
            Some(_) => buckets(&range, self.period, owner)?,
            None => {
                let last = buckets(&range.since(range.to), self.period, owner)?;
                let earlier = last.with_earlier(self.rows - 1, owner.is_monday_first);
                let too_many = |error: TooManyBuckets| NodeError {
                    field: "retentionFilter.totalIntervals".to_owned(),
                    detail: error.to_string(),
                };
                earlier.map_err(too_many)?
            }
        };
        let cells = intervals.len().saturating_mul(self.spans.len());
        let values = match &self.breakdown {
            Breakdown::Nothing => 1,
            Breakdown::Cohorts(cohorts) => cohorts.len(),
            Breakdown::Properties { limit, .. } => limit + 1,
        };
        if cells > CELLS_MAX {
            let detail = format!(
                "Rows and their intervals make more than {CELLS_MAX} cells. Use a longer period or less \
                 of either."
            );
            return Err(NodeError { field: "dateRange".to_owned(), detail }.into());
        }
        if cells.saturating_mul(values) > CELLS_MAX {
            let detail = format!(
                "Rows, their intervals and values of the breakdown make more than {CELLS_MAX} cells. Use \
                 a lower breakdown_limit, a longer period or less of either."
            );
            let field = "breakdownFilter.breakdown_limit".to_owned();
            return Err(NodeError { field, detail }.into());
        }
        Ok(intervals.whole())
    }

    /// Whether the positions (`AT`) of events are times, not numbers of intervals.
    fn has_times(&self) -> bool {
        let is_order_asked = self.measure.as_ref().is_some_and(|measure| !measure.is_same);
        self.is_rolling || self.kind == RetentionType::FirstEver || is_order_asked
    }

    /// The plan: `AT` is an interval or a time, `TEXT` the breakdown value.
    async fn plan(
        &self,
        Context { engine, view, owner }: Context<'_>,
        intervals: &Buckets,
        cohort: Option<i64>,
    ) -> Result<DataFrame, InsightError> {
        let (first, to) = intervals.bounds();
        // To determine what was first, all earlier events are needed.
        let from = if self.kind == RetentionType::Recurring { first } else { UnixMicros(i64::MIN) };
        let mut events = self.selection.events(engine, (view, owner), (from, to)).await?;
        let of_cohort = in_cohort(&Filters::default(), cohort)?;
        if let Some(condition) = of_cohort.condition(engine, owner.project, view.exact()) {
            events = events.filter(condition)?;
        }
        let target = self.target.condition(engine, (view, owner.project))?;
        let returning = self.returning.condition(engine, (view, owner.project))?;
        let returning = returning.and(col("timestamp").gt_eq(time(first)));
        let named = self.target.is_named(engine, (view, owner.project))?;
        let mut used = vec![target.clone(), returning.clone(), named.clone()];
        if let Breakdown::Properties { properties, .. } = &self.breakdown {
            used.extend(Property::of_sessions(properties));
        }
        events = with_columns(view, events, (from, to), &used).await?;
        let bit = |is: &Expr, bit: u32| cast(is.clone(), DataType::UInt32) * lit(bit);
        let bits = bit(&target, TARGET) + bit(&returning, RETURNING);
        let (bits, matter) = match self.kind {
            RetentionType::FirstEver => (bits + bit(&named, NAMED), named.or(returning)),
            _ => (bits, target.or(returning)),
        };
        let at = match self.has_times() {
            true => cast(col("timestamp"), DataType::Int64),
            false => {
                let interval = cast(intervals.expression(), DataType::Int64);
                coalesce(vec![interval, lit(BEFORE)])
            }
        };
        events = events.filter(matter)?;
        let mut columns = vec![
            self.selection.unit.actor().alias(ACTOR),
            at.alias(AT),
            cast(bits, DataType::UInt32).alias(MASK),
        ];
        let text;
        (events, text) = self.text(view, events).await?;
        columns.extend(text.map(|text| text.alias(TEXT)));
        Ok(events.select(columns)?)
    }

    /// Adds the columns that the text needs to `events`, and returns them with the expression of the text: the
    /// breakdown value, preceded by the number if a property is aggregated.
    async fn text(
        &self,
        view: &View,
        mut events: DataFrame,
    ) -> Result<(DataFrame, Option<Expr>), QueryError> {
        let value = match &self.breakdown {
            Breakdown::Properties { properties, .. } => {
                let mut values = Vec::new();
                for (property, at) in properties.iter().zip(0..) {
                    let name = format!("value_{at}");
                    events = property.add_to(view, events, &name).await?;
                    values.push(coalesce(vec![cast(ident(&name), DataType::Utf8), lit("")]));
                }
                Some(joined(values))
            }
            _ => None,
        };
        let Some(Measure { property, .. }) = &self.measure else { return Ok((events, value)) };
        let of_events = match property.owner {
            Owner::Event => event_number(&property.key, view.exact()),
            _ => {
                events = property.add_to(view, events, "measured").await?;
                number(ident("measured"))
            }
        };
        let value = value.unwrap_or_else(|| lit(""));
        Ok((events, Some(with_number(of_events, value))))
    }
}
