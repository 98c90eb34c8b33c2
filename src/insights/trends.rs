//! Trends: aggregates of series of events in each interval of a date range. [`Trends`] is a parsed request; `plan`
//! compiles the plan of a series, `answer` runs the plans and shapes the response, `actors` lists the persons behind
//! a data point. The rules are those of PostHog's trends.

pub(crate) mod active;
pub mod actors;
mod answer;
mod plan;

use serde_json::Value;

use crate::breakdown::Breakdown;
use crate::compare::Compare;
use crate::dependence::Dependence;
use crate::formula::Formula;
use crate::interval::Interval;
use crate::selection::Selection;
use crate::series::Series;
use weir_api::node::NodeError;
use weir_api::nodes::check::parse;
use weir_api::nodes::insights;
use weir_api::nodes::insights::{TrendsFilter, TrendsQuery};
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;

/// Most formulas of one insight.
const FORMULAS_MAX: usize = 26;

/// Longest window of the moving average, in intervals.
const SMOOTHING_MAX: usize = 1000;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Trends {
    selection: Selection,
    series: Vec<Series>,
    interval: Interval,
    breakdown: Breakdown,
    compare: Compare,
    display: Display,
    formulas: Vec<Formula>,
    smoothing: usize,
}

/// The values of a series that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Display {
    /// A value for each interval.
    Intervals,
    /// The cumulative sum up to each interval.
    Cumulative,
    /// One value for the whole range.
    Total,
}

impl Trends {
    /// Parses a `TrendsQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<TrendsQuery>(query)?;
        if sent.base.aggregation_group_type_index.is_some() {
            let detail = "aggregation_group_type_index is not available.";
            return Err(NodeError::new("aggregation_group_type_index", detail));
        }
        let series = Series::all(sent.series)?;
        let options = sent.trends_filter;
        let smoothing = options.smoothing_intervals.unwrap_or(1).max(1);
        if smoothing > SMOOTHING_MAX {
            let detail = format!("Expected at most {SMOOTHING_MAX} intervals.");
            return Err(NodeError::new("trendsFilter.smoothingIntervals", detail));
        }
        Ok(Self {
            display: Display::of(options.display),
            formulas: formulas(options, series.len())?,
            selection: Selection::of(sent.base)?,
            series,
            interval: Interval::parse(sent.interval.as_deref())?,
            breakdown: Breakdown::of(sent.breakdown_filter)?,
            compare: Compare::of(sent.compare_filter)?,
            smoothing,
        })
    }
}

impl Trends {
    /// Looks up the current names of the actions of its series.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.series.iter_mut().try_for_each(|series| series.look_up(engine, project))
    }

    /// Its selection: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }
}

impl Display {
    fn of(sent: Option<insights::Display>) -> Self {
        use insights::Display as Sent;
        match sent.unwrap_or(Sent::Auto) {
            Sent::Auto
            | Sent::LineGraph
            | Sent::AreaGraph
            | Sent::Bar
            | Sent::UnstackedBar
            | Sent::StackedBar => Self::Intervals,
            Sent::Cumulative => Self::Cumulative,
            Sent::BoldNumber
            | Sent::Pie
            | Sent::BarValue
            | Sent::Table
            | Sent::WorldMap
            | Sent::CalendarHeatmap => Self::Total,
        }
    }
}

/// Parses the formulas of `formula`, `formulas` and `formulaNodes`.
fn formulas(options: TrendsFilter, series: usize) -> Result<Vec<Formula>, NodeError> {
    let plain = options.formula.into_iter().chain(options.formulas).map(|text| (text, None));
    let named = options.formula_nodes.into_iter();
    let named = named.filter_map(|node| Some((node.formula?, node.custom_name)));
    let texts: Vec<(String, Option<String>)> = plain.chain(named).collect();
    if texts.len() > FORMULAS_MAX {
        let detail = format!("Expected at most {FORMULAS_MAX} formulas.");
        return Err(NodeError::new("trendsFilter.formulas", detail));
    }
    let parse = |(text, name): (String, Option<String>)| {
        let formula = Formula::parse(&text, series);
        let formula = formula.map_err(|detail| NodeError::new("trendsFilter.formula", detail))?;
        Ok(formula.named(name))
    };
    texts.into_iter().map(parse).collect()
}

impl Trends {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self {
            selection,
            series,
            interval,
            breakdown,
            compare: _,
            display: _,
            formulas: _,
            smoothing: _,
        } = self;
        on.selection(selection, *interval);
        series.iter().for_each(|series| on.series(series));
        on.breakdown(breakdown);
    }
}
