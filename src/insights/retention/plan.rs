//! The intervals of a retention, and the plan of its events as rows of histories.

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::cast;
use datafusion::prelude::col;
use datafusion::prelude::lit;

use crate::clock::UnixMicros;
use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::columns::time;
use crate::insights::entity::note_named;
use crate::insights::interval::Buckets;
use crate::insights::interval::TooManyBuckets;
use crate::insights::node::NodeError;
use crate::insights::retention::Kind;
use crate::insights::retention::Retention;
use crate::insights::retention::rows::BEFORE;
use crate::insights::retention::rows::NAMED;
use crate::insights::retention::rows::RETURNING;
use crate::insights::retention::rows::Rule;
use crate::insights::retention::rows::TARGET;
use crate::insights::selection::buckets;
use crate::query::engine::Engine;
use crate::query::histories::ACTOR;
use crate::query::histories::AT;
use crate::query::histories::MASK;
use crate::query::histories::Rows;
use crate::query::session_columns::with_sessions;
use crate::query::view::View;

/// Most cells of one answer.
const CELLS_MAX: usize = 100_000;

/// What is needed to fold the events.
pub(super) struct Folded {
    pub(super) plan: DataFrame,
    pub(super) rows: Rows,
    pub(super) rule: Rule,
    /// The intervals, one for each row of the answer.
    pub(super) intervals: Buckets,
}

impl Retention {
    /// The plan, and what to do with its rows.
    pub(super) async fn folded(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Folded, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let intervals = self.intervals(engine, (&view, owner)).await?;
        let plan = self.plan(engine, (&view, owner), &intervals).await?;
        let times = (self.kind == Kind::FirstEver).then(|| intervals.clone());
        let rule = Rule {
            kind: self.kind,
            cells: self.intervals,
            is_cumulative: self.is_cumulative,
            occurrences: self.occurrences,
            times,
        };
        let rows = if self.occurrences > 1 { Rows::All } else { Rows::Distinct };
        Ok(Folded { plan, rows, rule, intervals })
    }

    /// The intervals from that of `date_from` to that of `date_to`, all of them whole; without `date_from` as many as
    /// a row has cells.
    async fn intervals(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
    ) -> Result<Buckets, InsightError> {
        let dates = &self.selection.dates;
        let range = dates.range(engine, (view, owner), self.period).await?;
        let intervals = match dates.from {
            Some(_) => buckets(&range, self.period, owner)?,
            None => {
                let last = buckets(&range.since(range.to), self.period, owner)?;
                let earlier = last.with_earlier(self.intervals - 1, owner.is_monday_first);
                let too_many = |error: TooManyBuckets| NodeError {
                    field: "retentionFilter.totalIntervals".to_owned(),
                    detail: error.to_string(),
                };
                earlier.map_err(too_many)?
            }
        };
        if intervals.len().saturating_mul(self.intervals) > CELLS_MAX {
            let detail = format!(
                "Rows and their intervals make more than {CELLS_MAX} cells. Use a longer period or less \
                 of either."
            );
            return Err(NodeError { field: "dateRange".to_owned(), detail }.into());
        }
        Ok(intervals.whole())
    }

    /// Rows of histories: places are intervals, or for the first event ever times.
    async fn plan(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        intervals: &Buckets,
    ) -> Result<DataFrame, InsightError> {
        let (first, to) = intervals.bounds();
        // Of what was first, all of the past has a say.
        let from = if self.kind == Kind::Recurring { first } else { UnixMicros(i64::MIN) };
        let events = self.selection.events(engine, (view, owner), (from, to)).await?;
        let target = self.target.condition(engine, (view, owner.project))?;
        let returning = self.returning.condition(engine, (view, owner.project))?;
        let returning = returning.and(col("timestamp").gt_eq(time(first)));
        let named = self.target.is_named(engine, (view, owner.project))?;
        let used = [&target, &returning, &named];
        let events = with_sessions(view, events, (from, to), used).await?;
        let bit = |is: &Expr, bit: u32| cast(is.clone(), DataType::UInt32) * lit(bit);
        let bits = bit(&target, TARGET) + bit(&returning, RETURNING);
        let (bits, at, matter) = match self.kind {
            Kind::FirstEver => {
                let at = cast(col("timestamp"), DataType::Int64);
                (bits + bit(&named, NAMED), at, named.or(returning))
            }
            _ => {
                let interval = cast(intervals.expression(), DataType::Int64);
                (bits, coalesce(vec![interval, lit(BEFORE)]), target.or(returning))
            }
        };
        Ok(events.filter(matter)?.select(vec![
            self.selection.unit.actor().alias(ACTOR),
            at.alias(AT),
            cast(bits, DataType::UInt32).alias(MASK),
        ])?)
    }
}
