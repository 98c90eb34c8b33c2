//! Stickiness: in how many intervals of a date range actors were active. [`Stickiness`] is a parsed request; `active`
//! counts the intervals of an actor, `plan` compiles the plan of a series, `answer` counts the actors by number of
//! intervals, `actors` lists the persons with a number of intervals, and `legacy` converts the filters of older
//! clients.

pub mod active;
pub mod actors;
pub(crate) mod answer;
pub mod legacy;
mod plan;

use serde_json::Value;

use crate::compare::Compare;
use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::interval::Interval;
use crate::selection::{Selection, Unit};
use crate::series::{Math, Series};
use crate::stickiness::active::Criteria;
use weir_api::node::NodeError;
use weir_api::nodes::check::parse;
use weir_api::nodes::insights::{
    ComputedAs, CriteriaOperator, StickinessCriteria, StickinessQuery,
};
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;

/// Most intervals that are grouped into one.
const INTERVAL_COUNT_MAX: usize = 1000;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Stickiness {
    selection: Selection,
    series: Vec<Counted>,
    interval: Interval,
    /// How many intervals are grouped into one, from the end of the range backwards.
    interval_count: usize,
    /// Whether an actor is also counted for all smaller numbers of intervals.
    is_cumulative: bool,
    /// Condition on the number of events in an interval; `None` for at least one.
    criteria: Option<Criteria>,
    compare: Compare,
}

/// A series, and the unit that it counts.
#[derive(Clone, Debug)]
struct Counted {
    series: Series,
    unit: Unit,
}

impl Stickiness {
    /// Parses a `StickinessQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<StickinessQuery>(query)?;
        let selection = Selection::of(sent.base)?;
        let counted = |series: Series| {
            let unit = match series.math {
                Math::Total | Math::Actors => selection.unit,
                Math::Groups(index) => Unit::Groups(index),
                _ => {
                    let field = format!("series.{}.math", series.action.order);
                    let detail = "Stickiness counts persons (total, dau) or groups (unique_group).";
                    return Err(NodeError::new(field, detail));
                }
            };
            Ok(Counted { series, unit })
        };
        let series = Series::all(sent.series)?;
        let series = series.into_iter().map(counted).collect::<Result<_, _>>()?;
        let options = sent.stickiness_filter;
        let interval_count = sent.interval_count.unwrap_or(1);
        if interval_count == 0 || interval_count > INTERVAL_COUNT_MAX {
            let detail = format!("Expected 1 to {INTERVAL_COUNT_MAX}.");
            return Err(NodeError::new("intervalCount", detail));
        }
        Ok(Self {
            selection,
            series,
            interval: Interval::parse(sent.interval.as_deref())?,
            interval_count,
            is_cumulative: options.computed_as == Some(ComputedAs::Cumulative),
            criteria: options.criteria.map(criteria).transpose()?.flatten(),
            compare: Compare::of(sent.compare_filter)?,
        })
    }

    /// Looks up the current names of the actions of its series.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.series.iter_mut().try_for_each(|own| own.series.look_up(engine, project))
    }

    /// Its selection: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The entities of its series.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.series.iter().map(|own| &own.series.entity)
    }
}

fn criteria(sent: StickinessCriteria) -> Result<Option<Criteria>, NodeError> {
    let refused =
        |detail: &str| NodeError::new("stickinessFilter.stickinessCriteria.value", detail);
    let operator = sent.operator.unwrap_or(CriteriaOperator::AtLeast);
    let value = sent.value.ok_or_else(|| refused("This field is required."))?;
    // An interval without events is never active, so no other condition on 0 is useful.
    if value == 0 && operator != CriteriaOperator::AtLeast {
        return Err(refused("Expected 1 or more."));
    }
    Ok(Some(Criteria { operator, value }).filter(|own| *own != Criteria::ANY && value > 0))
}

impl Stickiness {
    /// Adds the dependencies of its result.
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

    use super::{Criteria, CriteriaOperator, Stickiness};

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
        let most = Criteria { operator: CriteriaOperator::AtMost, value: 3 };
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
