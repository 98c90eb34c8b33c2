//! Trends: what series of events count in each interval of a range of dates. [`Trends`] is a parsed request;
//! `plan` makes a plan of a series, `answer` runs the plans and shapes the answer, `actors` finds the persons
//! behind a point. The rules are those of PostHog's trends.

pub mod actors;
mod answer;
mod plan;

use serde_json::Value;

use crate::breakdown::Breakdown;
use crate::compare::Compare;
use crate::dependence::Dependence;
use crate::formula::Formula;
use crate::interval::Interval;
use crate::node::{Node, NodeError};
use crate::selection::Selection;
use crate::series::{SERIES_MAX, Series};
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;

/// Most formulas of one insight.
const FORMULAS_MAX: usize = 26;

/// Most intervals over which an average is taken.
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

/// What is shown of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Display {
    /// A value for each interval.
    Intervals,
    /// The sums up to each interval.
    Cumulative,
    /// One value for the whole range.
    Total,
}

impl Trends {
    /// Reads a `TrendsQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let node = Node::new(Some(query), "")?;
        node.without(&["aggregation_group_type_index", "conversionGoal"])?;
        let sent = node.list("series")?;
        if sent.is_empty() || sent.len() > SERIES_MAX {
            return Err(node.refuse("series", format!("Expected 1 to {SERIES_MAX} series.")));
        }
        let series = sent.iter().zip(0..).map(|(series, order)| Series::parse(series, order));
        let series = series.collect::<Result<Vec<_>, _>>()?;
        let interval = Interval::parse(&node)?;
        let options = Node::new(node.value("trendsFilter"), "trendsFilter")?;
        let smoothing = options.number("smoothingIntervals")?.unwrap_or(1).max(1);
        if smoothing > SMOOTHING_MAX {
            let detail = format!("Expected at most {SMOOTHING_MAX} intervals.");
            return Err(options.refuse("smoothingIntervals", detail));
        }
        Ok(Self {
            formulas: formulas(&options, series.len())?,
            selection: Selection::parse(&node)?,
            series,
            interval,
            breakdown: Breakdown::parse(node.value("breakdownFilter"))?,
            compare: Compare::parse(node.value("compareFilter"))?,
            display: Display::parse(&options)?,
            smoothing,
        })
    }
}

impl Trends {
    /// Looks up how the actions of its series are called now.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.series.iter_mut().try_for_each(|series| series.look_up(engine, project))
    }

    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }
}

impl Display {
    fn parse(options: &Node<'_>) -> Result<Self, NodeError> {
        match options.text("display")? {
            None
            | Some(
                "Auto"
                | "ActionsLineGraph"
                | "ActionsAreaGraph"
                | "ActionsBar"
                | "ActionsUnstackedBar"
                | "ActionsStackedBar",
            ) => Ok(Self::Intervals),
            Some("ActionsLineGraphCumulative") => Ok(Self::Cumulative),
            Some(
                "BoldNumber" | "ActionsPie" | "ActionsBarValue" | "ActionsTable" | "WorldMap"
                | "CalendarHeatmap",
            ) => Ok(Self::Total),
            Some(other) => {
                let other: String = other.chars().take(100).collect();
                Err(options.refuse("display", format!("{other} is not available.")))
            }
        }
    }
}

/// The formulas of `formula`, `formulas` and `formulaNodes`.
fn formulas(options: &Node<'_>, series: usize) -> Result<Vec<Formula>, NodeError> {
    let plain = options.list("formulas")?.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
    let plain = plain.ok_or_else(|| options.refuse("formulas", "Expected a list of texts."))?;
    let mut texts: Vec<(String, Option<String>)> = options
        .text("formula")?
        .into_iter()
        .chain(plain)
        .map(|text| (text.to_owned(), None))
        .collect();
    for (formula, at) in options.list("formulaNodes")?.iter().zip(0..) {
        let path = format!("trendsFilter.formulaNodes.{at}");
        let node = Node::new(Some(formula), &path)?;
        let name = node.text("custom_name")?.map(str::to_owned);
        texts.extend(node.text("formula")?.map(|text| (text.to_owned(), name)));
    }
    if texts.len() > FORMULAS_MAX {
        return Err(
            options.refuse("formulas", format!("Expected at most {FORMULAS_MAX} formulas."))
        );
    }
    let parse = |(text, name): (String, Option<String>)| {
        let formula = Formula::parse(&text, series);
        let formula = formula.map_err(|detail| options.refuse("formula", detail))?;
        Ok(formula.named(name))
    };
    texts.into_iter().map(parse).collect()
}

impl Trends {
    /// Adds what its answer depends on.
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
