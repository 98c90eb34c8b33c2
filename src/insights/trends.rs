//! Trends: what series of events count in each interval of a range of dates. [`Trends`] is a parsed request;
//! `plan` makes a plan of a series, `answer` runs the plans and shapes the answer, `actors` finds the persons
//! behind a point. The rules are those of PostHog's trends.

pub mod actors;
mod answer;
mod plan;

use serde_json::Value;

use crate::insights::compare::Compare;
use crate::insights::formula::Formula;
use crate::insights::interval::Interval;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::insights::property::Owner;
use crate::insights::property::Property;
use crate::insights::selection::Selection;
use crate::insights::selection::Unit;
use crate::insights::series::SERIES_MAX;
use crate::insights::series::Series;

/// Values of a breakdown unless a request says otherwise (PostHog's figure).
const BREAKDOWN_LIMIT: usize = 25;

/// Most values of a breakdown that a request may ask for.
const BREAKDOWN_LIMIT_MAX: usize = 500;

/// Most properties that one breakdown combines (PostHog's figure).
const BREAKDOWNS_MAX: usize = 3;

/// Most cohorts of one breakdown.
const COHORTS_MAX: usize = 25;

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

/// What a series is split by.
#[derive(Clone, Debug)]
enum Breakdown {
    Nothing,
    /// The values of properties together.
    Properties {
        properties: Vec<Property>,
        limit: usize,
        is_other_hidden: bool,
    },
    /// Cohorts by their ids; `None` is everybody.
    Cohorts(Vec<Option<i64>>),
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
    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }
}

impl Breakdown {
    fn parse(filter: Option<&Value>) -> Result<Self, NodeError> {
        let node = Node::new(filter, "breakdownFilter")?;
        node.without(&["breakdown_normalize_url", "breakdown_histogram_bin_count"])?;
        let limit = node.number("breakdown_limit")?.unwrap_or(BREAKDOWN_LIMIT);
        if limit == 0 || limit > BREAKDOWN_LIMIT_MAX {
            let detail = format!("Expected 1 to {BREAKDOWN_LIMIT_MAX}.");
            return Err(node.refuse("breakdown_limit", detail));
        }
        let is_other_hidden = node.truth("breakdown_hide_other_aggregation")?;
        let several = node.list("breakdowns")?;
        if several.len() > BREAKDOWNS_MAX {
            let detail = format!("Expected at most {BREAKDOWNS_MAX} breakdowns.");
            return Err(node.refuse("breakdowns", detail));
        }
        if !several.is_empty() {
            let one = |(breakdown, at): (&Value, usize)| {
                let path = format!("breakdownFilter.breakdowns.{at}");
                let node = Node::new(Some(breakdown), &path)?;
                node.without(&["normalize_url", "histogram_bin_count"])?;
                let key = node.text("property")?;
                let key = key.ok_or_else(|| node.refuse("property", "This field is required."))?;
                property(&node, (key, "type"), "group_type_index")
            };
            let properties = several.iter().zip(0..).map(one).collect::<Result<Vec<_>, _>>()?;
            return Ok(Self::Properties { properties, limit, is_other_hidden });
        }
        let Some(sent) = node.value("breakdown") else { return Ok(Self::Nothing) };
        if node.text("breakdown_type")? == Some("cohort") {
            return cohorts(&node, sent);
        }
        let keys: Vec<&str> = match sent {
            Value::Array(keys) => keys.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let [key] = keys.as_slice() else {
            return Err(node.refuse("breakdown", "Expected the name of one property."));
        };
        let property = property(&node, (key, "breakdown_type"), "breakdown_group_type_index")?;
        Ok(Self::Properties { properties: vec![property], limit, is_other_hidden })
    }
}

/// A property that a breakdown names; the type stands in the field `kind`, and that of a group in `index`.
fn property(
    node: &Node<'_>,
    (key, kind): (&str, &str),
    index: &str,
) -> Result<Property, NodeError> {
    let owner = match node.text(kind)?.unwrap_or("event") {
        "event" => Owner::Event,
        "person" => Owner::Person,
        "group" => match Unit::parse(node, index)? {
            Unit::Groups(index) => Owner::Group(index),
            Unit::Persons => {
                return Err(node.refuse(index, "A valid group type index is required."));
            }
        },
        other => {
            let other: String = other.chars().take(100).collect();
            let detail = format!("A breakdown by the type {other} is not available.");
            return Err(node.refuse(kind, detail));
        }
    };
    Ok(Property { owner, key: key.to_owned() })
}

fn cohorts(node: &Node<'_>, sent: &Value) -> Result<Breakdown, NodeError> {
    let list = match sent {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let wrong = || node.refuse("breakdown", "Expected ids of cohorts, or \"all\".");
    let one = |id: &Value| match id {
        Value::String(text) if text == "all" => Ok(None),
        Value::String(text) => text.parse().map(Some).map_err(|_| wrong()),
        Value::Number(number) if number.as_i64() == Some(0) => Ok(None),
        other => other.as_i64().map(Some).ok_or_else(wrong),
    };
    if list.is_empty() || list.len() > COHORTS_MAX {
        return Err(node.refuse("breakdown", format!("Expected 1 to {COHORTS_MAX} cohorts.")));
    }
    Ok(Breakdown::Cohorts(list.iter().map(one).collect::<Result<_, _>>()?))
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
            Some("BoldNumber" | "ActionsPie" | "ActionsBarValue" | "ActionsTable" | "WorldMap") => {
                Ok(Self::Total)
            }
            Some(other) => {
                let other: String = other.chars().take(100).collect();
                Err(options.refuse("display", format!("{other} is not available.")))
            }
        }
    }
}

/// The formulas of `formula`, `formulas` and `formulaNodes`.
fn formulas(options: &Node<'_>, series: usize) -> Result<Vec<Formula>, NodeError> {
    let plain = options.list("formulas")?.iter().filter_map(Value::as_str);
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
