//! The plan of a funnel: a row for each event of a step or an exclusion within the date range, grouped by actor.

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::{coalesce, nullif};
use datafusion::logical_expr::{Expr, bitwise_or, cast, when};
use datafusion::prelude::{ident, lit};

use crate::bins::Bins;
use crate::breakdown::{Breakdown, SEPARATOR, in_cohort, joined};
use crate::entity::Entity;
use crate::filters::Filters;
use crate::funnels::split::{Attribution, Splitter};
use crate::funnels::{Funnels, Shown};
use crate::interval::Buckets;
use crate::property::Property;
use crate::{Context, InsightError};
use weir_api::nodes::insights::FunnelOrderType;
use weir_base::clock::UnixMicros;
use weir_query::dialect::expression::{Expression, Taken};
use weir_query::events::expression_columns::with_columns;
use weir_query::events::histories::{ACTOR, AT, MASK, PartialFold, Rows, TEXT};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// The column of actors that are values of an expression.
const NAMED: &str = "actor_of_expression";

impl Funnels {
    /// The bounds of the times of its events.
    pub(super) async fn bounds(
        &self,
        context: Context<'_>,
    ) -> Result<(UnixMicros, UnixMicros), InsightError> {
        let Context { engine, view, owner } = context;
        let range = self.selection.dates.range(engine, (view, owner), self.interval).await?;
        Ok((range.from, range.to))
    }

    /// The splitter of the rows of an actor: by interval if `buckets` are given, else all as one.
    pub(super) fn splitter(&self, buckets: Option<Buckets>) -> Splitter {
        let has_values = matches!(self.split(), Breakdown::Properties { .. });
        let attribution = has_values.then_some(self.attribution);
        let mut course = match buckets {
            Some(_) => self.course.by_interval(self.between.1),
            None => self.course.clone(),
        };
        if let Some(Attribution::Step(step)) = attribution {
            course.attributed = Some(step);
        }
        Splitter { course, attribution, buckets }
    }

    /// The breakdown in use: times to convert have none.
    pub(super) fn split(&self) -> &Breakdown {
        match self.shown {
            Shown::TimeToConvert(_) => &Breakdown::Nothing,
            Shown::Steps | Shown::Trends => &self.breakdown,
        }
    }

    /// Folds the rows of each actor within bounds, restricted to a cohort if one is given.
    pub(super) async fn fold<F: PartialFold>(
        &self,
        context: Context<'_>,
        (bounds, cohort): ((UnixMicros, UnixMicros), Option<i64>),
        fold: F,
    ) -> Result<F, InsightError> {
        let rows = self.rows(context, bounds, cohort).await?;
        // Duplicate rows are kept: equal events at the same time are different events, each of which may complete a
        // step.
        Ok(context.engine.histories_in_parts(rows, Rows::All, fold).await?)
    }

    /// The plan of the rows of each actor within bounds, restricted to a cohort if one is given.
    pub(super) async fn rows(
        &self,
        context: Context<'_>,
        bounds: (UnixMicros, UnixMicros),
        cohort: Option<i64>,
    ) -> Result<DataFrame, InsightError> {
        let Context { engine, view, owner } = context;
        let mut events = self.selection.events(engine, (view, owner), bounds).await?;
        if cohort.is_some() {
            let filters = in_cohort(&Filters::default(), cohort)?;
            if let Some(condition) = filters.condition(engine, owner.project, view.exact()) {
                events = events.filter(condition)?;
            }
        }
        let condition = |entity: &Entity| entity.condition(engine, (view, owner.project));
        let entities = self.steps.iter().chain(&self.exclusions);
        let mut used = entities.map(condition).collect::<Result<Vec<_>, _>>()?;
        if let Breakdown::Properties { properties, .. } = self.split() {
            used.extend(Property::of_sessions(properties));
        }
        events = with_columns(view, events, bounds, &used).await?;
        if self.course.order != FunnelOrderType::Strict {
            let entities = self.steps.iter().chain(&self.exclusions);
            let any = entities.map(condition).collect::<Result<Vec<_>, _>>()?;
            let any = any.into_iter().reduce(Expr::or);
            events = events.filter(any.unwrap_or_else(|| lit(false)))?;
        }
        if let Some(actor) = &self.actor {
            events = Expression::add_all(view, events, &[(actor, Taken::Text, NAMED)]).await?;
        }
        events = self.with_first_times(context, events, bounds.1).await?;
        let mut mask = lit(0_u32);
        let steps = self.steps.iter().enumerate();
        let steps = steps.map(|(step, entity)| (entity, 1_u32 << step, self.is_first(step)));
        let exclusions = self.exclusions.iter().zip(&self.course.exclusions);
        let exclusions = exclusions.map(|(entity, exclusion)| (entity, exclusion.mask, None));
        for (entity, bit, first) in steps.chain(exclusions) {
            let is_of_it = first.into_iter().fold(condition(entity)?, Expr::and);
            let own = when(is_of_it, lit(bit)).otherwise(lit(0_u32))?;
            mask = bitwise_or(mask, own);
        }
        let mut columns = vec![
            match self.actor {
                Some(_) => nullif(cast(ident(NAMED), DataType::Utf8View), lit("")).alias(ACTOR),
                None => self.selection.unit.actor().alias(ACTOR),
            },
            cast(ident("timestamp"), DataType::Int64).alias(AT),
            cast(mask, DataType::UInt32).alias(MASK),
        ];
        if let Breakdown::Properties { properties, .. } = self.split() {
            let value;
            (events, value) = with_value((engine, view), events, properties).await?;
            columns.push(value.alias(TEXT));
        }
        Ok(events.select(columns)?)
    }
}

/// Adds the columns of the breakdown to `events`, and returns them with the expression of the breakdown value: null
/// if all properties are empty.
async fn with_value(
    (engine, view): (&Engine, &View),
    mut events: DataFrame,
    properties: &[Property],
) -> Result<(DataFrame, Expr), QueryError> {
    let mut columns = Vec::new();
    for (property, at) in properties.iter().zip(0..) {
        let name = format!("value_{at}");
        events = property.add_to(view, events, &name).await?;
        columns.push(name);
    }
    let binned = columns.iter().zip(properties);
    let binned = binned.filter_map(|(name, property)| Some((name.clone(), property.bins?)));
    let binned: Vec<(String, u16)> = binned.collect();
    let mut bins = match binned.is_empty() {
        true => Vec::new(),
        // From all events of the funnel.
        false => Bins::measured(engine, events.clone(), &binned).await?,
    }
    .into_iter();
    let mut values = Vec::new();
    for (name, property) in columns.iter().zip(properties) {
        let text = match property.bins.and_then(|_| bins.next()) {
            Some(bins) => bins.labels_of(name),
            None => cast(ident(name), DataType::Utf8),
        };
        values.push(coalesce(vec![text, lit("")]));
    }
    let empty = SEPARATOR.repeat(properties.len().saturating_sub(1));
    Ok((events, nullif(cast(joined(values), DataType::Utf8), lit(empty))))
}
