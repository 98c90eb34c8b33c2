//! Runs the plans of a trend and shapes the response: a series for each period, series and breakdown value.

use std::collections::{HashMap, HashSet};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int32Type};
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::when;
use datafusion::prelude::{ident, lit};

use crate::breakdown::{Breakdown, OTHER, SEPARATOR, in_cohort};
use crate::columns::texts;
use crate::compare::{Compare, PERIODS};
use crate::date_range::DateRange;
use crate::entity::{Entity, note_named};
use crate::formula::Formula;
use crate::interval::{Buckets, Interval};
use crate::selection::buckets;
use crate::series::{Math, SERIES_MAX, Series};
use crate::trends::plan::{BREAKDOWN, BUCKET, NULL, SeriesPlan, Shape, VALUE};
use crate::trends::{Display, Trends};
use crate::{InsightError, ProjectSettings};
use weir_api::insights::series::{Day, Series as Shown, SeriesEntity};
use weir_api::insights::value::{BreakdownValue, Number};
use weir_api::node::NodeError;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// Most numbers in a response. Each takes about 150 bytes with its label and its day.
const NUMBERS_MAX: usize = 100_000;

/// Most rows and most bytes of a breakdown that are read at once. If there are more, a second query reads those of
/// the largest values only.
const ROWS_AT_ONCE_MAX: usize = 100_000;
const BYTES_AT_ONCE_MAX: usize = 32 << 20;

/// A series of the response, before formulas are applied.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    /// The period: 0 for the current one.
    period: usize,
    /// The number of the series in the request.
    series: usize,
    /// The breakdown value.
    value: Option<BreakdownValue>,
    /// One number for each bucket; a single one if the whole range is one.
    data: Vec<f64>,
}

impl Trends {
    /// The series of the response, as in PostHog's API, in order.
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<Shown>, InsightError> {
        note_named(engine, owner.project, self.entities())?;
        let view = engine.view(owner.project).await?;
        let mut shown = Vec::new();
        let mut periods = Vec::new();
        for period in self.periods(engine, &view, owner).await? {
            periods.push(self.buckets(&period, owner)?);
        }
        self.check_size(&periods)?;
        let mut lines = Vec::new();
        for (period, buckets) in periods.iter().enumerate() {
            for (at, series) in self.series.iter().enumerate() {
                let found = self.lines(engine, (&view, owner), series, buckets).await?;
                let line = |(value, data)| Line { period, series: at, value, data };
                lines.extend(found.into_iter().map(line));
            }
        }
        if self.formulas.is_empty() {
            shown.extend(lines.iter().map(|line| self.shown(line, &periods)));
        }
        for formula in &self.formulas {
            for line in
                calculated(&lines, formula, periods.first().map_or(1, |first| self.width(first)))
            {
                let label = match &line.value {
                    Some(value) => format!("{} - {}", formula.label(), label_of(value)),
                    None => formula.label(),
                };
                shown.push(self.body(&line, &periods, (label, None)));
            }
        }
        Ok(shown)
    }

    /// The entities of its series.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.series.iter().map(|series| &series.entity)
    }

    /// Refuses a request with too large a response.
    fn check_size(&self, periods: &[Buckets]) -> Result<(), NodeError> {
        let values = match &self.breakdown {
            Breakdown::Nothing => 1,
            Breakdown::Cohorts(cohorts) => cohorts.len(),
            Breakdown::Properties { limit, .. } => limit + 2,
        };
        let numbers: usize = periods.iter().map(|buckets| self.width(buckets)).sum();
        // A formula has a line for each breakdown value of any series.
        let lines =
            values.saturating_mul(self.series.len()).saturating_mul(self.formulas.len().max(1));
        if numbers.saturating_mul(lines) <= NUMBERS_MAX {
            return Ok(());
        }
        let detail = format!(
            "Series, values of the breakdown and intervals make more than {NUMBERS_MAX} numbers. \
             Use longer intervals or a lower breakdown_limit."
        );
        Err(NodeError { field: "interval".to_owned(), detail })
    }

    /// The number of values of a series.
    fn width(&self, buckets: &Buckets) -> usize {
        if self.display == Display::Total { 1 } else { buckets.len() }
    }

    /// The date ranges: the current one, and the one it is compared with, if there is one.
    pub(super) async fn periods(
        &self,
        engine: &Engine,
        view: &View,
        owner: &ProjectSettings,
    ) -> Result<Vec<DateRange>, InsightError> {
        let interval = self.interval();
        let dates = &self.selection.dates;
        self.compare.ranges(engine, (view, owner), dates, interval).await
    }

    /// The interval of the buckets: a single number for the whole range is computed by day, whatever the interval of
    /// the request.
    fn interval(&self) -> Interval {
        if self.display == Display::Total { Interval::Day } else { self.interval }
    }

    pub(super) fn buckets(
        &self,
        range: &DateRange,
        owner: &ProjectSettings,
    ) -> Result<Buckets, InsightError> {
        Ok(buckets(range, self.interval(), owner)?)
    }

    /// The lines of one series, in their order.
    async fn lines(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        series: &Series,
        buckets: &Buckets,
    ) -> Result<Vec<(Option<BreakdownValue>, Vec<f64>)>, InsightError> {
        let filters = self.selection.filters(owner)?;
        let plan = SeriesPlan {
            engine,
            view,
            project: owner.project,
            series,
            filters: &filters,
            breakdown: &[],
            bins: &[],
            buckets,
            shape: self.shape(series),
        };
        let width = self.width(buckets);
        match &self.breakdown {
            Breakdown::Nothing => {
                let rows = engine.compute(plan.values().await?).await?;
                let mut found = by_value(rows.iter().flat_map(rows_of), width);
                let data = found.remove("").unwrap_or_else(|| vec![0.0; width]);
                Ok(vec![(None, self.finished(data))])
            }
            Breakdown::Cohorts(cohorts) => {
                let mut lines = Vec::new();
                for cohort in cohorts {
                    let filters = in_cohort(&filters, *cohort)?;
                    let plan = SeriesPlan { filters: &filters, ..plan };
                    let rows = engine.compute(plan.values().await?).await?;
                    let mut found = by_value(rows.iter().flat_map(rows_of), width);
                    let data = found.remove("").unwrap_or_else(|| vec![0.0; width]);
                    let all = || BreakdownValue::One("all".to_owned());
                    let value = cohort.map_or_else(all, BreakdownValue::Cohort);
                    lines.push((Some(value), self.finished(data)));
                }
                Ok(lines)
            }
            Breakdown::Properties { properties, limit, offset, is_other_hidden } => {
                let plan = SeriesPlan { breakdown: properties, ..plan };
                let bins = plan.measured().await?;
                let plan = SeriesPlan { bins: &bins, ..plan };
                let values = plan.values().await?;
                let Largest { values: top, is_more, rows } =
                    largest(engine, values.clone(), limit.saturating_add(*offset)).await?;
                // Values of earlier pages are neither shown nor counted among the others.
                let (before, shown) = top.split_at(top.len().min(*offset));
                let null = if *offset == 0 { Some(NULL) } else { None };
                let before = before.iter().map(String::as_str);
                let earlier: HashSet<&str> = before.chain((*offset > 0).then_some(NULL)).collect();
                let rows = match rows {
                    Some(rows) => rows,
                    None => {
                        let left_out = earlier.iter().map(|value| lit(*value)).collect();
                        let values = values.filter(ident(BREAKDOWN).in_list(left_out, true))?;
                        engine.compute(within(values, shown, is_more)?).await?
                    }
                };
                let own: HashSet<&str> = shown.iter().map(String::as_str).chain(null).collect();
                let rows = rows.iter().flat_map(rows_of);
                let rows = rows.filter(|(value, ..)| !earlier.contains(value.as_str()));
                let rows =
                    rows.filter(|(value, ..)| !is_other_hidden || own.contains(value.as_str()));
                let rows = rows.map(|(value, bucket, number)| {
                    let is_own = own.contains(value.as_str());
                    (if is_own { value } else { OTHER.to_owned() }, bucket, number)
                });
                let mut found = by_value(rows, width);
                let others = if is_more && !is_other_hidden { Some(OTHER) } else { None };
                let order = shown.iter().map(String::as_str).chain(null).chain(others);
                let several = properties.len() > 1;
                let line = |value: &str| {
                    let data = found.remove(value)?;
                    Some((Some(value_of(value, several)), self.finished(data)))
                };
                Ok(order.filter_map(line).collect())
            }
        }
    }

    pub(super) fn shape(&self, series: &Series) -> Shape {
        match (self.display, &series.math) {
            (Display::Total, _) => Shape::Total,
            (Display::Cumulative, Math::Actors | Math::Groups(_)) => Shape::FirstIntervals,
            _ => Shape::Intervals,
        }
    }

    /// Applies cumulative sums or the moving average.
    fn finished(&self, mut data: Vec<f64>) -> Vec<f64> {
        if self.display == Display::Cumulative {
            let mut sum = 0.0;
            for number in &mut data {
                sum += *number;
                *number = sum;
            }
        }
        if self.smoothing > 1 && self.display != Display::Total {
            data = smoothed(&data, self.smoothing);
        }
        data
    }

    fn shown(&self, line: &Line, periods: &[Buckets]) -> Shown {
        let series = self.series.get(line.series);
        let name = series.map_or("", |series| series.entity.label());
        let label = match &line.value {
            None => name.to_owned(),
            Some(value) if self.series.len() == 1 => label_of(value),
            Some(value) => format!("{name} - {}", label_of(value)),
        };
        self.body(line, periods, (label, series.map(|series| series.action.clone())))
    }

    fn body(
        &self,
        line: &Line,
        periods: &[Buckets],
        (label, action): (String, Option<SeriesEntity>),
    ) -> Shown {
        let compare = !matches!(self.compare, Compare::Nothing);
        let compare_label = PERIODS.get(line.period).copied().filter(|_| compare);
        let breakdown_value = line.value.clone();
        let order = Some(line.series);
        let own = Shown {
            action,
            breakdown_value,
            compare,
            compare_label,
            label,
            order,
            ..Shown::default()
        };
        if self.display == Display::Total {
            let number = line.data.first().copied().unwrap_or(0.0);
            return Shown { aggregated_value: Some(Number(number)), ..own };
        }
        let count = match self.display {
            Display::Cumulative => line.data.last().copied().unwrap_or(0.0),
            _ => line.data.iter().sum(),
        };
        let buckets = periods.get(line.period).into_iter();
        let buckets = buckets.flat_map(|own| (0..own.len()).map(move |at| (own, at)));
        Shown {
            count: Number(count),
            data: line.data.iter().copied().map(Number).collect(),
            days: buckets.clone().map(|(own, at)| Day::Beginning(own.day(at))).collect(),
            labels: buckets.map(|(own, at)| own.label(at)).collect(),
            ..own
        }
    }
}

/// The breakdown values with the largest sums, without the null value.
pub(super) struct Largest {
    pub(super) values: Vec<String>,
    /// Whether there are more values.
    is_more: bool,
    /// The rows of all values, unless there are too many to read at once.
    rows: Option<Vec<RecordBatch>>,
}

/// The `limit` breakdown values with the largest sums in `rows`.
pub(super) async fn largest(
    engine: &Engine,
    rows: DataFrame,
    limit: usize,
) -> Result<Largest, QueryError> {
    let all = engine.compute_small(rows.clone(), ROWS_AT_ONCE_MAX, BYTES_AT_ONCE_MAX).await?;
    let mut values = match &all {
        Some(all) => largest_of(all.iter().flat_map(rows_of)),
        None => largest_of_many(engine, rows, limit).await?,
    };
    let is_more = values.len() > limit;
    values.truncate(limit);
    Ok(Largest { values, is_more, rows: all })
}

/// All values, by descending sum.
fn largest_of(rows: impl Iterator<Item = (String, usize, f64)>) -> Vec<String> {
    let mut sums: HashMap<String, f64> = HashMap::new();
    for (value, _, number) in rows {
        *sums.entry(value).or_default() += number;
    }
    sums.remove(NULL);
    let mut sums: Vec<(String, f64)> = sums.into_iter().collect();
    sums.sort_unstable_by(|(value, sum), (other, of_other)| {
        of_other.total_cmp(sum).then_with(|| value.cmp(other))
    });
    sums.into_iter().map(|(value, _)| value).collect()
}

/// The values with the largest sums: `limit` and one more, if there are so many.
async fn largest_of_many(
    engine: &Engine,
    rows: DataFrame,
    limit: usize,
) -> Result<Vec<String>, QueryError> {
    let sums = rows.filter(ident(BREAKDOWN).not_eq(lit(NULL)))?;
    let sums = sums.aggregate(vec![ident(BREAKDOWN)], vec![sum(ident(VALUE)).alias(VALUE)])?;
    let order = vec![ident(VALUE).sort(false, false), ident(BREAKDOWN).sort(true, false)];
    let sums = sums.sort(order)?.limit(0, Some(limit.saturating_add(1)))?;
    let batches = engine.compute(sums).await?;
    Ok(batches.iter().flat_map(|batch| texts(batch, BREAKDOWN)).collect())
}

/// The rows of the top values and of the null value, with all others aggregated into one; `values` unchanged if there
/// are no others.
fn within(values: DataFrame, top: &[String], is_more: bool) -> Result<DataFrame, QueryError> {
    if !is_more {
        return Ok(values);
    }
    let shown = top.iter().map(|value| lit(value.as_str())).chain([lit(NULL)]).collect();
    let value =
        when(ident(BREAKDOWN).in_list(shown, false), ident(BREAKDOWN)).otherwise(lit(OTHER))?;
    let values = values.select(vec![ident(BUCKET), value.alias(BREAKDOWN), ident(VALUE)])?;
    let keys = vec![ident(BUCKET), ident(BREAKDOWN)];
    Ok(values.aggregate(keys, vec![sum(ident(VALUE)).alias(VALUE)])?)
}

/// The numbers of each breakdown value, by bucket.
fn by_value(
    rows: impl Iterator<Item = (String, usize, f64)>,
    width: usize,
) -> HashMap<String, Vec<f64>> {
    let mut found: HashMap<String, Vec<f64>> = HashMap::new();
    for (value, bucket, number) in rows {
        let data = found.entry(value).or_insert_with(|| vec![0.0; width]);
        if let Some(place) = data.get_mut(bucket) {
            *place += number;
        }
    }
    found
}

/// Breakdown value, bucket and number of each row.
fn rows_of(batch: &RecordBatch) -> Vec<(String, usize, f64)> {
    let buckets = batch.column_by_name(BUCKET);
    let buckets = buckets.and_then(|column| column.as_primitive_opt::<Int32Type>());
    let numbers = batch.column_by_name(VALUE);
    let numbers = numbers.and_then(|column| column.as_primitive_opt::<Float64Type>());
    let (Some(buckets), Some(numbers)) = (buckets, numbers) else { return Vec::new() };
    let rows = texts(batch, BREAKDOWN).into_iter().zip(buckets).zip(numbers);
    let row = |((value, bucket), number): ((String, Option<i32>), Option<f64>)| {
        let bucket = bucket.and_then(|bucket| usize::try_from(bucket).ok())?;
        Some((value, bucket, number.filter(|number| number.is_finite()).unwrap_or(0.0)))
    };
    rows.filter_map(row).collect()
}

/// A breakdown value in the form of the response: a list if it has several parts.
fn value_of(value: &str, is_list: bool) -> BreakdownValue {
    match (is_list, value) {
        (true, OTHER) => BreakdownValue::Several(vec![OTHER.to_owned()]),
        (true, _) => BreakdownValue::Several(value.split(SEPARATOR).map(str::to_owned).collect()),
        (false, _) => BreakdownValue::One(value.to_owned()),
    }
}

/// A breakdown value in the form of labels.
fn label_of(value: &BreakdownValue) -> String {
    let text = |value: &str| match value {
        NULL => "None (i.e. no value)".to_owned(),
        OTHER => "Other (i.e. all remaining values)".to_owned(),
        text => text.to_owned(),
    };
    match value {
        BreakdownValue::Cohort(id) => id.to_string(),
        BreakdownValue::One(value) => text(value),
        BreakdownValue::Several(parts) => {
            parts.iter().map(|part| text(part)).collect::<Vec<_>>().join("::")
        }
    }
}

/// The moving average over up to `intervals` numbers, rounded down, as in PostHog.
fn smoothed(data: &[f64], intervals: usize) -> Vec<f64> {
    let mean = |end: usize| {
        let window = data.get((end + 1).saturating_sub(intervals)..=end).unwrap_or_default();
        let count = u32::try_from(window.len().max(1)).map_or(f64::MAX, f64::from);
        (window.iter().sum::<f64>() / count).floor()
    };
    (0..data.len()).map(mean).collect()
}

/// The lines of a formula: one for each period and each breakdown value of any series, in the order of first
/// occurrence.
fn calculated(lines: &[Line], formula: &Formula, width: usize) -> Vec<Line> {
    let mut places: HashMap<(usize, Option<&BreakdownValue>), usize> = HashMap::new();
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        let key = (line.period, line.value.as_ref());
        let place = *places.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    let calculate = |group: Vec<&Line>| {
        let first = group.first()?;
        let of = |series: usize| group.iter().find(|line| line.series == series);
        let series: Vec<_> = (0..SERIES_MAX).map(of).collect();
        let width = group.iter().map(|line| line.data.len()).max().unwrap_or(width);
        let number = |at: usize| {
            formula.evaluate(&|number| {
                let line = series.get(number).copied().flatten();
                line.and_then(|line| line.data.get(at)).copied().unwrap_or(0.0)
            })
        };
        let data = (0..width).map(number).collect();
        Some(Line { period: first.period, series: 0, value: first.value.clone(), data })
    };
    groups.into_iter().filter_map(calculate).collect()
}

#[cfg(test)]
mod tests {
    use super::{BreakdownValue, Line, NULL, OTHER, calculated, label_of, smoothed, value_of};
    use crate::formula::Formula;

    #[test]
    fn means_are_of_the_last_intervals() {
        assert_eq!(smoothed(&[1.0, 3.0, 8.0, 0.0], 3), [1.0, 2.0, 4.0, 3.0]);
        assert_eq!(smoothed(&[], 3), [0.0; 0]);
    }

    #[test]
    fn values_and_labels_of_breakdowns() {
        let several = |parts: [&str; 2]| BreakdownValue::Several(parts.map(str::to_owned).to_vec());
        assert_eq!(value_of("a\u{1f}b", true), several(["a", "b"]));
        assert_eq!(label_of(&several(["a", NULL])), "a::None (i.e. no value)");
        assert_eq!(value_of(OTHER, true), BreakdownValue::Several(vec![OTHER.to_owned()]));
        assert_eq!(label_of(&BreakdownValue::Cohort(4)), "4");
    }

    #[test]
    fn formulas_see_zero_where_a_series_has_no_such_value() {
        let line = |period, series, value: Option<BreakdownValue>, data: &[f64]| Line {
            period,
            series,
            value,
            data: data.to_vec(),
        };
        let (a, b) = (Some(value_of("a", false)), Some(value_of("b", false)));
        let lines = [
            line(0, 0, a.clone(), &[4.0, 6.0]),
            line(0, 1, a.clone(), &[2.0, 0.0]),
            line(0, 1, b.clone(), &[5.0, 5.0]),
            line(1, 0, a.clone(), &[1.0, 1.0]),
        ];
        let found = calculated(&lines, &Formula::parse("A / B", 2).unwrap(), 2);
        let expected = [
            line(0, 0, a.clone(), &[2.0, 0.0]),
            line(0, 0, b, &[0.0, 0.0]),
            line(1, 0, a, &[0.0, 0.0]),
        ];
        assert_eq!(found, expected);
        assert!(calculated(&[], &Formula::parse("A", 1).unwrap(), 2).is_empty());
    }
}
