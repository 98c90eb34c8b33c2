//! Lists the persons or groups behind one data point of a trend: [`Trends::actors`]. They are found with the filters
//! of the plan that counted them, so that their number is the value of the point if that is a count of actors.

use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{ident, lit};
use serde_json::Value;

use crate::bins::name_of;
use crate::breakdown::{Breakdown, OTHER, in_cohort, of_value, value_sent};
use crate::columns::{texts, time};
use crate::interval::Buckets;
use crate::selection::Unit;
use crate::series::Math;
use crate::trends::answer::largest;
use crate::trends::plan::{
    BREAKDOWN, GATHERED, NULL, NUMBER, SeriesPlan, Shape, finished, of_persons, of_sessions,
};
use crate::trends::{Display, Trends};
use crate::{Actor, InsightError, ProjectSettings};
use weir_api::node::{NodeError, join};
use weir_api::nodes::actors::InsightActorsQuery;
use weir_base::clock::UnixMicros;
use weir_query::events::event_property::event_number;
use weir_query::events::histories::ACTOR;
use weir_query::events::table::PERSON_NUMBER;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;
use weir_query::persons::people::Part;

/// Selects a data point of a trend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The number of its series.
    pub series: usize,
    /// The beginning of its interval, as in `days` of the response; `None` for the whole range.
    pub day: Option<String>,
    /// Its breakdown value.
    pub breakdown: Option<Value>,
    /// Whether it is in the period that the current one is compared with.
    pub is_previous: bool,
}

impl Point {
    /// Parses the `InsightActorsQuery` at `path`.
    ///
    /// # Errors
    ///
    /// The day is a number.
    pub fn of(sent: &InsightActorsQuery, path: &str) -> Result<Self, NodeError> {
        let day = match &sent.day {
            Some(Value::String(day)) => Some(day.clone()),
            Some(Value::Number(_)) => {
                let detail = "Expected the beginning of an interval, as in days.";
                return Err(NodeError::new(join(path, "day"), detail));
            }
            _ => None,
        };
        let is_previous = sent.compare.as_deref() == Some("previous");
        let breakdown = of_value(sent.breakdown.as_ref());
        Ok(Self { series: sent.series.unwrap_or(0), day, breakdown, is_previous })
    }
}

impl Trends {
    /// The unit that is counted at a point.
    pub fn unit(&self, point: &Point) -> Unit {
        match self.series.get(point.series).map(|series| &series.math) {
            Some(Math::Groups(index)) => Unit::Groups(*index),
            _ => Unit::Persons,
        }
    }

    /// The persons or groups behind a point, those with the largest contributions first; one more than `part` has is
    /// returned if there are more.
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        point: &Point,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let refused = |field: &str, detail: &str| NodeError {
            field: field.to_owned(),
            detail: detail.to_owned(),
        };
        let series = self.series.get(point.series);
        let series = series.ok_or_else(|| refused("series", "There is no such series."))?;
        let view = engine.view(owner.project).await?;
        let periods = self.periods(engine, &view, owner).await?;
        let period = periods.get(usize::from(point.is_previous));
        let period = period.ok_or_else(|| refused("compare", "There is no other period."))?;
        let buckets = self.buckets(period, owner)?;
        let bucket = match point.day.as_deref().filter(|_| self.display != Display::Total) {
            Some(day) => {
                let bucket = buckets.bucket_of_day(day);
                Some(bucket.ok_or_else(|| refused("day", "There is no such interval."))?)
            }
            None => None,
        };
        let filters = self.selection.filters(owner)?;
        let filters = match (&self.breakdown, &point.breakdown) {
            (Breakdown::Cohorts(_), Some(value)) => in_cohort(&filters, value.as_i64())?,
            _ => filters,
        };
        let breakdown = match (&self.breakdown, &point.breakdown) {
            (Breakdown::Properties { properties, .. }, Some(_)) => properties.as_slice(),
            _ => &[],
        };
        let plan = SeriesPlan {
            engine,
            view: &view,
            project: owner.project,
            series,
            filters: &filters,
            breakdown,
            bins: &[],
            buckets: &buckets,
            shape: self.shape(series),
        };
        let bins = plan.measured().await?;
        let plan = SeriesPlan { bins: &bins, shape: Shape::Total, ..plan };
        let (events, math) = self.behind(plan, bucket).await?;
        let events = self.of_value(engine, plan, events, point.breakdown.as_ref()).await?;
        let unit = self.unit(point);
        let (actors, number) = numbers(&view, events, (math, unit)).await?;
        let actors = actors.filter(ident(ACTOR).is_not_null())?;
        let number = number.alias("number");
        let id = match unit {
            Unit::Persons => view.person_of(ident(ACTOR)),
            Unit::Groups(_) => ident(ACTOR),
        };
        let actors = actors.select(vec![id.alias("id"), number])?;
        let order = vec![ident("number").sort(false, false), ident("id").sort(true, false)];
        let actors = actors.sort(order)?.limit(part.offset, Some(part.limit.saturating_add(1)))?;
        let batches = engine.compute(actors).await?;
        let actors = batches.iter().flat_map(|batch| {
            let numbers = batch.column_by_name("number");
            let numbers = numbers.and_then(|column| column.as_primitive_opt::<Float64Type>());
            let numbers = numbers.map(|numbers| numbers.iter().collect::<Vec<_>>());
            texts(batch, "id").into_iter().zip(numbers.unwrap_or_default())
        });
        let actor = |(id, number): (String, Option<f64>)| {
            Some(Actor::new(unit.who(&id)?, number.unwrap_or(0.0)))
        };
        Ok(actors.filter_map(actor).collect())
    }

    /// The events of a bucket, or of all buckets, with their breakdown.
    async fn behind<'r>(
        &self,
        plan: SeriesPlan<'r>,
        bucket: Option<usize>,
    ) -> Result<(DataFrame, &'r Math), InsightError> {
        let math = &plan.series.math;
        if let Math::First(first) = math {
            let events = plan.first_events(*first).await?;
            let within = |(from, to): (UnixMicros, UnixMicros)| {
                ident("timestamp").between(time(from), time(to))
            };
            let bounds = self.bounds(plan.buckets, bucket);
            return Ok((events.filter(within(bounds))?, math));
        }
        let bounds = match math {
            Math::ActiveIn(days) => plan.active_bounds(*days, bucket)?,
            _ => self.bounds(plan.buckets, bucket),
        };
        let events = plan.events(bounds).await?;
        Ok((plan.with_breakdown(events).await?, math))
    }

    fn bounds(&self, buckets: &Buckets, bucket: Option<usize>) -> (UnixMicros, UnixMicros) {
        let all = buckets.bounds();
        let own = bucket.and_then(|bucket| buckets.bounds_of(bucket)).unwrap_or(all);
        // A cumulative value includes all events before.
        if self.display == Display::Cumulative { (all.0, own.1) } else { own }
    }

    /// The events with a breakdown value.
    async fn of_value(
        &self,
        engine: &Engine,
        plan: SeriesPlan<'_>,
        events: DataFrame,
        value: Option<&Value>,
    ) -> Result<DataFrame, InsightError> {
        let (Breakdown::Properties { limit, offset, .. }, Some(value)) = (&self.breakdown, value)
        else {
            return Ok(events);
        };
        let bin = if matches!(plan.bins, [Some(_)]) { name_of(value) } else { None };
        let value = bin.unwrap_or_else(|| value_sent(value));
        let events = plan.labelled(events)?;
        if value != OTHER {
            return Ok(events.filter(ident(BREAKDOWN).eq(lit(value)))?);
        }
        let all = SeriesPlan { shape: self.shape(plan.series), ..plan };
        let limit = limit.saturating_add(*offset);
        let shown = largest(engine, all.values().await?, limit).await?.values;
        // A property value that equals this text is shown in one line with all others.
        let shown = shown.iter().map(String::as_str).filter(|value| *value != OTHER);
        let shown = shown.chain([NULL]).map(lit).collect();
        Ok(events.filter(ident(BREAKDOWN).in_list(shown, true))?)
    }
}

/// Aggregates events by actor, with the contribution of each actor to the point.
async fn numbers(
    view: &View,
    events: DataFrame,
    (math, unit): (&Math, Unit),
) -> Result<(DataFrame, Expr), QueryError> {
    let (events, number, statistic) = match math {
        Math::Property(statistic, key) => {
            (events, statistic.of(event_number(key, view.exact())), Some(*statistic))
        }
        Math::OfPersons(statistic, key) => {
            let events = of_persons(view, events, key).await?;
            (events, statistic.of(ident(NUMBER)), Some(*statistic))
        }
        Math::OfSessions(statistic, property) => {
            let sessions = of_sessions(events, vec![ident(PERSON_NUMBER)], property)?;
            (sessions, statistic.of(ident(NUMBER)), Some(*statistic))
        }
        _ => (events, count(lit(1)), None),
    };
    let actor = unit.actor().alias(ACTOR);
    let actors = match math {
        Math::Sql(expression) => {
            let events = events.with_column(ACTOR, actor)?;
            expression.grouped(view, events, &[ACTOR.to_owned()], GATHERED).await?
        }
        _ => events.aggregate(vec![actor], vec![number.alias(GATHERED)])?,
    };
    Ok((actors, finished(statistic, ident(GATHERED))))
}
