//! The plan of one series: [`SeriesPlan::values`] returns a row with a number for each bucket and each breakdown
//! value.

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::{coalesce, nullif};
use datafusion::functions_aggregate::expr_fn::{
    array_agg, avg, count, count_distinct, first_value, max, min, sum,
};
use datafusion::logical_expr::{Expr, cast};
use datafusion::prelude::{col, ident, lit};

use crate::InsightError;
use crate::bins::Bins;
use crate::breakdown::joined;
use crate::columns::time;
use crate::filters::Filters;
use crate::interval::{Buckets, Window};
use crate::property::{Owner, Property};
use crate::series::{First, Math, Series, Statistic};
use crate::trends::active;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_query::events::event_property::{event_number, event_text};
use weir_query::events::expression_columns::with_columns;
use weir_query::events::session_columns;
use weir_query::events::table::PERSON_NUMBER;
use weir_query::filter::matches::GROUPS;
use weir_query::functions::number_set::{count_numbers, count_union, number_set};
use weir_query::functions::quantile::quantile;
use weir_query::functions::text_number::number;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// The breakdown value in responses for events without the property (PostHog's).
pub(super) const NULL: &str = "$$_posthog_breakdown_null_$$";

/// Names of columns in plans.
pub(super) const BUCKET: &str = "bucket";
pub(super) const BREAKDOWN: &str = "breakdown";
pub(super) const VALUE: &str = "value";
pub(super) const NUMBER: &str = "number";
pub(super) const GATHERED: &str = "gathered";

/// The column with the text of a person property, before it is parsed as a number.
const TEXT: &str = "text_of_person";

/// What is needed to compile the plan of a series.
#[derive(Clone, Copy)]
pub(super) struct SeriesPlan<'r> {
    pub(super) engine: &'r Engine,
    pub(super) view: &'r View,
    pub(super) project: ProjectId,
    pub(super) series: &'r Series,
    /// Filters of the whole insight.
    pub(super) filters: &'r Filters,
    /// The properties of the breakdown.
    pub(super) breakdown: &'r [Property],
    /// For each of these the bins of its numbers, if it has bins: see [`Self::measured`].
    pub(super) bins: &'r [Option<Bins>],
    pub(super) buckets: &'r Buckets,
    pub(super) shape: Shape,
}

/// The buckets of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One for each interval.
    Intervals,
    /// One for each interval; each actor is counted only in its first interval.
    FirstIntervals,
    /// A single one for the whole range.
    Total,
}

impl SeriesPlan<'_> {
    /// Rows of bucket, breakdown value and number. There is no row for a bucket without events.
    pub(super) async fn values(self) -> Result<DataFrame, InsightError> {
        match &self.series.math {
            Math::ActiveIn(days) => return self.active(*days).await,
            Math::First(first) => return self.first_times(*first).await,
            _ => {}
        }
        let events = self.in_buckets(self.events(self.buckets.bounds()).await?)?;
        let events = self.with_breakdown(events).await?;
        Ok(self.counted(events).await?)
    }

    /// The events of the series within bounds, both inclusive.
    pub(super) async fn events(
        self,
        (from, to): (UnixMicros, UnixMicros),
    ) -> Result<DataFrame, InsightError> {
        let events = self.view.events()?;
        let events = events.filter(col("timestamp").between(time(from), time(to)))?;
        let (named, conditions) = (self.is_named()?, self.conditions());
        let used = conditions.iter().chain([&named]);
        let events = self.with_columns(events, (from, to), used).await?;
        let filtered = |events: DataFrame, condition| events.filter(condition);
        Ok(conditions.into_iter().try_fold(events.filter(named)?, filtered)?)
    }

    /// The condition that an event has the name or the action of the series, without the filters.
    fn is_named(self) -> Result<Expr, InsightError> {
        Ok(self.series.entity.is_named(self.engine, (self.view, self.project))?)
    }

    /// Adds the columns to `events` that conditions, the breakdown or the math read beside those of events.
    async fn with_columns(
        self,
        events: DataFrame,
        bounds: (UnixMicros, UnixMicros),
        conditions: impl Iterator<Item = &Expr>,
    ) -> Result<DataFrame, QueryError> {
        let mut used: Vec<Expr> = conditions.cloned().collect();
        used.extend(Property::of_sessions(self.breakdown));
        if let Math::OfSessions(_, property) = &self.series.math {
            used.push(session_columns::number(property));
        }
        with_columns(self.view, events, bounds, &used).await
    }

    fn conditions(self) -> Vec<Expr> {
        let filters = [self.filters, &self.series.entity.filters];
        let conditions =
            filters.map(|filters| filters.condition(self.engine, self.project, self.view.exact()));
        conditions.into_iter().flatten().collect()
    }

    /// Adds the column of the bucket to `events`.
    pub(super) fn in_buckets(self, events: DataFrame) -> Result<DataFrame, QueryError> {
        let bucket = match self.shape {
            Shape::Total => lit(0_i32),
            Shape::Intervals | Shape::FirstIntervals => self.buckets.expression(),
        };
        Ok(events.with_column(BUCKET, bucket)?)
    }

    /// Adds the breakdown values to `events`, each property in a column of its own, so that grouping uses the
    /// representation of the files; null without a value. [`Self::labelled`] concatenates those of a group to one
    /// text.
    pub(super) async fn with_breakdown(self, events: DataFrame) -> Result<DataFrame, QueryError> {
        let mut events = events;
        for (at, (property, part)) in self.breakdown.iter().zip(self.parts()).enumerate() {
            events = property.add_to(self.view, events, &part).await?;
            let text = match self.bins.get(at) {
                Some(Some(bins)) => bins.labels_of(&part),
                _ => nullif(ident(&part), lit("")),
            };
            events = events.with_column(&part, text)?;
        }
        Ok(events)
    }

    /// Determines the bins of the breakdown from all events that are counted, since bins of a subset would differ.
    pub(super) async fn measured(self) -> Result<Vec<Option<Bins>>, InsightError> {
        let binned = self.breakdown.iter().zip(self.parts());
        let binned = binned.filter_map(|(property, part)| Some((part, property.bins?)));
        let columns: Vec<(String, u16)> = binned.collect();
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let plain = SeriesPlan { bins: &[], ..self };
        let events = match &self.series.math {
            Math::First(first) => plain.first_events(*first).await?,
            Math::ActiveIn(days) => {
                let window = if self.shape == Shape::Total { None } else { self.window(*days)? };
                let bounds = match window {
                    Some(window) => window.steps.bounds(),
                    None => self.active_bounds(*days, None)?,
                };
                plain.with_breakdown(plain.events(bounds).await?).await?
            }
            _ => plain.with_breakdown(plain.events(self.buckets.bounds()).await?).await?,
        };
        let mut found = Bins::measured(self.engine, events, &columns).await?.into_iter();
        let of = |property: &Property| property.bins.and_then(|_| found.next());
        Ok(self.breakdown.iter().map(of).collect())
    }

    /// The names of the breakdown columns.
    fn parts(self) -> impl Iterator<Item = String> {
        (0..self.breakdown.len()).map(|at| format!("{BREAKDOWN}_{at}"))
    }

    /// The grouping keys: `columns`, and the breakdown columns.
    fn keys(self, columns: &[&str]) -> Vec<Expr> {
        columns.iter().map(|name| ident(*name)).chain(self.parts().map(ident)).collect()
    }

    /// Adds the breakdown value to `rows` as one text that is never null.
    pub(super) fn labelled(self, rows: DataFrame) -> Result<DataFrame, QueryError> {
        let text = |part| coalesce(vec![cast(ident(part), DataType::Utf8), lit(NULL)]);
        let value = joined(self.parts().map(text));
        Ok(rows.with_column(BREAKDOWN, cast(value, DataType::Utf8))?)
    }

    /// Aggregates `events`, which have a bucket and the breakdown, by the math of the series.
    async fn counted(self, events: DataFrame) -> Result<DataFrame, QueryError> {
        match &self.series.math {
            Math::Actors | Math::ActiveIn(_) | Math::First(_) => self.distinct_persons(events),
            Math::Sessions => {
                let session = coalesce(vec![event_text("$session_id"), lit("")]);
                self.distinct(events, session)
            }
            Math::Groups(index) => {
                let key = GROUPS.get(usize::from(*index)).copied().unwrap_or_default();
                self.distinct(events.filter(ident(key).not_eq(lit("")))?, ident(key))
            }
            Math::Total => self.aggregated(events, count(lit(1)), None),
            Math::Property(statistic, key) => {
                let events = events.with_column(NUMBER, event_number(key, self.view.exact()))?;
                self.aggregated(events, statistic.of(ident(NUMBER)), Some(*statistic))
            }
            Math::OfPersons(statistic, key) => {
                let events = of_persons(self.view, events, key).await?;
                self.aggregated(events, statistic.of(ident(NUMBER)), Some(*statistic))
            }
            Math::Sql(expression) => {
                let keys: Vec<String> =
                    std::iter::once(BUCKET.to_owned()).chain(self.parts()).collect();
                let rows = expression.grouped(self.view, events, &keys, GATHERED).await?;
                self.finished(rows, None)
            }
            Math::OfSessions(statistic, property) => {
                let sessions = of_sessions(events, self.keys(&[BUCKET]), property)?;
                self.aggregated(sessions, statistic.of(ident(NUMBER)), Some(*statistic))
            }
            Math::PerActor(statistic) => {
                let keys = self.keys(&[BUCKET, PERSON_NUMBER]);
                let counts = events.aggregate(keys, vec![count(lit(1)).alias("events")])?;
                let number = cast(ident("events"), DataType::Float64);
                self.aggregated(counts, statistic.of(number), Some(*statistic))
            }
        }
    }

    /// Counts the distinct values of `of`.
    fn distinct(self, events: DataFrame, of: Expr) -> Result<DataFrame, QueryError> {
        if self.shape != Shape::FirstIntervals {
            return self.aggregated(events, count_distinct(of), None);
        }
        let keys = self.keys(&[]).into_iter().chain([of.alias("counted")]).collect();
        let firsts = events.aggregate(keys, vec![min(ident(BUCKET)).alias(BUCKET)])?;
        self.aggregated(firsts, count(lit(1)), None)
    }

    fn distinct_persons(self, events: DataFrame) -> Result<DataFrame, QueryError> {
        let number = ident(PERSON_NUMBER);
        match self.shape {
            Shape::FirstIntervals => self.distinct(events, number),
            _ => self.aggregated(events, count_numbers(number), None),
        }
    }

    fn aggregated(
        self,
        rows: DataFrame,
        value: Expr,
        statistic: Option<Statistic>,
    ) -> Result<DataFrame, QueryError> {
        let rows = rows.aggregate(self.keys(&[BUCKET]), vec![value.alias(GATHERED)])?;
        self.finished(rows, statistic)
    }

    /// Converts aggregated rows to rows of bucket, breakdown value and number.
    fn finished(
        self,
        rows: DataFrame,
        statistic: Option<Statistic>,
    ) -> Result<DataFrame, QueryError> {
        let rows = self.labelled(rows)?;
        let value = finished(statistic, ident(GATHERED)).alias(VALUE);
        Ok(rows.select(vec![ident(BUCKET), ident(BREAKDOWN), value])?)
    }

    /// Counts the persons that were active in the `days` up to each bucket.
    async fn active(self, days: u32) -> Result<DataFrame, InsightError> {
        let window = match self.shape {
            Shape::Total => None,
            _ => self.window(days)?,
        };
        let Some(window) = window else {
            let events = self.events(self.active_bounds(days, None)?).await?;
            return Ok(self.counted(self.with_breakdown(self.in_buckets(events)?).await?).await?);
        };
        let events = self.events(window.steps.bounds()).await?;
        if self.breakdown.is_empty() && active::has_few_steps(&window) {
            let names = [BUCKET, GATHERED];
            let counts = active::counts(self.engine, events, window, names).await?;
            return Ok(self.finished(self.view.rows(counts)?, None)?);
        }
        let events = events.with_column("step", window.steps.expression())?;
        let events = self.with_breakdown(events).await?;
        let active = number_set(ident(PERSON_NUMBER)).alias("active");
        let active = events.aggregate(self.keys(&["step"]), vec![active])?;
        let active = active.with_column(BUCKET, window.buckets_of(ident("step")))?;
        let active = active.unnest_columns(&[BUCKET])?.filter(ident(BUCKET).is_not_null())?;
        Ok(self.aggregated(active, count_union(ident("active")), None)?)
    }

    fn window(self, days: u32) -> Result<Option<Window>, QueryError> {
        let window = self.buckets.window(days);
        window.map_err(|error| QueryError::Invalid(error.to_string()))
    }

    /// The bounds of the times of events that are counted in a bucket of persons active in the last `days`, or in the
    /// whole range as one bucket.
    pub(super) fn active_bounds(
        self,
        days: u32,
        bucket: Option<usize>,
    ) -> Result<(UnixMicros, UnixMicros), QueryError> {
        let (from, to) = self.buckets.bounds();
        let own = bucket.and_then(|bucket| self.buckets.bounds_of(bucket));
        match (self.window(days)?, bucket) {
            (Some(window), Some(bucket)) => Ok(window.bounds_of(bucket).unwrap_or((from, to))),
            (None, Some(_)) => Ok(own.unwrap_or((from, to))),
            (None, None) if self.shape != Shape::Total => Ok((from, to)),
            (_, None) => Ok((self.buckets.last_days(days), to)),
        }
    }

    /// Counts the persons whose first event ever is in a bucket: the first that matches, or the first with the name,
    /// which must then match.
    async fn first_times(self, first: First) -> Result<DataFrame, InsightError> {
        let events = self.first_events(first).await?;
        Ok(self.counted(self.in_buckets(events)?).await?)
    }

    /// A row for each such person, with the time and the breakdown of its first event.
    pub(super) async fn first_events(self, first: First) -> Result<DataFrame, InsightError> {
        let (from, to) = self.buckets.bounds();
        let events = self.view.events()?;
        let events = events.filter(col("timestamp").lt_eq(time(to)))?;
        let holds = self.conditions().into_iter().reduce(Expr::and).unwrap_or(lit(true));
        let named = self.is_named()?;
        let used = [&named, &holds].into_iter();
        let events = self.with_columns(events, (UnixMicros(i64::MIN), to), used).await?;
        let events = events.filter(named)?;
        let events = match first {
            First::Matching => events.filter(holds)?.with_column("holds", lit(true))?,
            First::OfName => events.with_column("holds", holds)?,
        };
        let events = self.with_breakdown(events).await?;
        // Of several events at the same time, one that matches suffices. Their ids are not used to break ties, since
        // the same events have other ids if they are sent again.
        let order = || {
            let of_event =
                [ident("timestamp").sort(true, false), ident("holds").sort(false, false)];
            let parts = self.parts().map(|part| ident(part).sort(true, true));
            of_event.into_iter().chain(parts).collect()
        };
        let first = |name: String| first_value(ident(&name), order()).alias(name);
        let columns = ["timestamp", "holds"].map(str::to_owned).into_iter().chain(self.parts());
        let firsts = events.aggregate(vec![ident(PERSON_NUMBER)], columns.map(first).collect())?;
        let is_in_range = ident("timestamp").between(time(from), time(to));
        Ok(firsts.filter(ident("holds").and(is_in_range))?)
    }
}

/// Rows with the [`NUMBER`] of each distinct session of `events`, grouped by the additional `keys`.
pub(super) fn of_sessions(
    events: DataFrame,
    mut keys: Vec<Expr>,
    property: &str,
) -> Result<DataFrame, QueryError> {
    keys.push(event_text("$session_id"));
    // The value is the same for all events of a session.
    let number = min(session_columns::number(property));
    Ok(events.aggregate(keys, vec![number.alias(NUMBER)])?)
}

/// Adds the column [`NUMBER`] to `events`: a numeric property of their persons.
pub(super) async fn of_persons(
    view: &View,
    events: DataFrame,
    key: &str,
) -> Result<DataFrame, QueryError> {
    let property = Property::plain(Owner::Person, key);
    let events = property.add_to(view, events, TEXT).await?;
    Ok(events.with_column(NUMBER, number(ident(TEXT)))?)
}

impl Statistic {
    /// The aggregate over the numbers of a group, from which [`finished`] computes the statistic.
    pub(super) fn of(self, number: Expr) -> Expr {
        match self {
            Self::Sum => sum(number),
            Self::Average => avg(number),
            Self::Minimum => min(number),
            Self::Maximum => max(number),
            Self::Quantile(_) => array_agg(number),
        }
    }
}

/// The statistic as a number, from what was aggregated.
pub(super) fn finished(statistic: Option<Statistic>, gathered: Expr) -> Expr {
    match statistic {
        Some(Statistic::Quantile(part)) => quantile(part, gathered),
        _ => cast(gathered, DataType::Float64),
    }
}
