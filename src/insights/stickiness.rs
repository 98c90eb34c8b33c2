//! Stickiness: in how many intervals of a range of dates actors did something. [`Stickiness`] is a parsed request;
//! `active` counts the intervals of an actor, `plan` makes the plan of a series, `answer` counts the actors with
//! each number of intervals, `actors` finds the persons with one, and `legacy` reads the filters of older
//! clients.

pub mod active;
pub mod actors;
mod answer;
pub mod legacy;
mod plan;

use serde_json::Value;

use crate::compare::Compare;
use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::interval::Interval;
use crate::node::{Node, NodeError};
use crate::selection::{Selection, Unit};
use crate::series::{Math, SERIES_MAX, Series};
use crate::stickiness::active::{Criteria, Operator};
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;

/// Most intervals that make one.
const INTERVAL_COUNT_MAX: usize = 1000;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Stickiness {
    selection: Selection,
    series: Vec<Counted>,
    interval: Interval,
    /// How many intervals make one, from the end of the range backwards.
    interval_count: usize,
    /// Whether an actor counts for all smaller numbers of intervals, too.
    is_cumulative: bool,
    /// How many events an interval needs.
    criteria: Option<Criteria>,
    compare: Compare,
}

/// A series, and who is counted.
#[derive(Clone, Debug)]
struct Counted {
    series: Series,
    unit: Unit,
}

impl Stickiness {
    /// Reads a `StickinessQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let node = Node::new(Some(query), "")?;
        node.without(&["breakdownFilter"])?;
        let sent = node.list("series")?;
        if sent.is_empty() || sent.len() > SERIES_MAX {
            return Err(node.refuse("series", format!("Expected 1 to {SERIES_MAX} series.")));
        }
        let selection = Selection::parse(&node)?;
        let counted = |(series, order): (&Value, usize)| {
            let series = Series::parse(series, order)?;
            let unit = match series.math {
                Math::Total | Math::Actors => selection.unit,
                Math::Groups(index) => Unit::Groups(index),
                _ => {
                    let field = format!("series.{order}.math");
                    let detail = "Stickiness counts persons (total, dau) or groups (unique_group).";
                    return Err(NodeError { field, detail: detail.to_owned() });
                }
            };
            Ok(Counted { series, unit })
        };
        let series = sent.iter().zip(0..).map(counted).collect::<Result<_, _>>()?;
        let options = Node::new(node.value("stickinessFilter"), "stickinessFilter")?;
        let is_cumulative = match options.text("computedAs")? {
            None | Some("non_cumulative") => false,
            Some("cumulative") => true,
            Some(other) => {
                let other: String = other.chars().take(100).collect();
                let detail = format!("\"{other}\" is not a valid choice.");
                return Err(options.refuse("computedAs", detail));
            }
        };
        let interval_count = node.number("intervalCount")?.unwrap_or(1);
        if interval_count == 0 || interval_count > INTERVAL_COUNT_MAX {
            let detail = format!("Expected 1 to {INTERVAL_COUNT_MAX}.");
            return Err(node.refuse("intervalCount", detail));
        }
        Ok(Self {
            selection,
            series,
            interval: Interval::parse(&node)?,
            interval_count,
            is_cumulative,
            criteria: criteria(&options)?,
            compare: Compare::parse(node.value("compareFilter"))?,
        })
    }

    /// Looks up how the actions of its series are called now.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.series.iter_mut().try_for_each(|own| own.series.look_up(engine, project))
    }

    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The events that it is about.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.series.iter().map(|own| &own.series.entity)
    }
}

fn criteria(options: &Node<'_>) -> Result<Option<Criteria>, NodeError> {
    let path = "stickinessFilter.stickinessCriteria";
    let Some(sent) = options.value("stickinessCriteria") else { return Ok(None) };
    let node = Node::new(Some(sent), path)?;
    let operator = Operator::parse(&node, "operator")?.unwrap_or(Operator::AtLeast);
    let value = node.number("value")?;
    let value = value.ok_or_else(|| node.refuse("value", "This field is required."))?;
    // An interval without events is none in which anybody was active.
    if value == 0 && operator != Operator::AtLeast {
        return Err(node.refuse("value", "Expected 1 or more."));
    }
    Ok(Some(Criteria { operator, value }).filter(|own| *own != Criteria::ANY && value > 0))
}

impl Stickiness {
    /// Adds what its answer depends on.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self {
            selection,
            series,
            interval,
            interval_count: _,
            is_cumulative: _,
            criteria: _,
            compare: _,
        } = self;
        on.selection(selection, *interval);
        for Counted { series, unit: _ } in series {
            on.series(series);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Criteria, Operator, Stickiness};

    #[test]
    fn series_and_options_are_read() {
        let parsed = Stickiness::parse(&json!({
            "series": [{"event": "a"}, {"event": "b", "math": "dau"}],
            "intervalCount": 2, "interval": "week",
            "stickinessFilter": {"computedAs": "cumulative", "display": "ActionsLineGraph",
                                 "stickinessCriteria": {"operator": "lte", "value": 3}},
        }));
        let parsed = parsed.unwrap();
        assert_eq!(
            (parsed.series.len(), parsed.interval_count, parsed.is_cumulative),
            (2, 2, true)
        );
        let most = Criteria { operator: Operator::AtMost, value: 3 };
        assert_eq!(parsed.criteria, Some(most));
        let any = json!({"series": [{}], "stickinessFilter": {"stickinessCriteria": {"operator": "gte", "value": 1}}});
        assert_eq!(Stickiness::parse(&any).unwrap().criteria, None);
    }

    #[test]
    fn what_is_wrong_or_not_available_is_refused_by_its_name() {
        for (more, field) in [
            (json!({"series": []}), "series"),
            (json!({"series": [{"math": "sum", "math_property": "a"}]}), "series.0.math"),
            (json!({"series": [{"math": "weekly_active"}]}), "series.0.math"),
            (json!({"intervalCount": 0}), "intervalCount"),
            (json!({"interval": "year"}), "interval"),
            (json!({"breakdownFilter": {"breakdown": "a"}}), "breakdownFilter"),
            (json!({"stickinessFilter": {"computedAs": "x"}}), "stickinessFilter.computedAs"),
            (
                json!({"stickinessFilter": {"stickinessCriteria": {"operator": "gt", "value": 1}}}),
                "stickinessFilter.stickinessCriteria.operator",
            ),
            (
                json!({"stickinessFilter": {"stickinessCriteria": {"operator": "gte"}}}),
                "stickinessFilter.stickinessCriteria.value",
            ),
            (
                json!({"stickinessFilter": {"stickinessCriteria": {"operator": "lte", "value": 0}}}),
                "stickinessFilter.stickinessCriteria.value",
            ),
        ] {
            let mut query = json!({"series": [{"event": "a"}]});
            query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(Stickiness::parse(&query).unwrap_err().field, field, "{more}");
        }
    }
}
