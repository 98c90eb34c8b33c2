//! Lifecycle: classifies actors as new, returning, resurrecting or dormant in each interval of a date range.
//! [`Lifecycle`] is a parsed request; `status` classifies an actor, `plan` compiles the plan of the events, `answer`
//! counts the actors, `actors` lists the persons with a status, and `legacy` converts the filters of older clients.

pub mod actors;
mod answer;
pub mod legacy;
mod plan;
pub mod status;

use serde_json::Value;

use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::interval::Interval;
use crate::lifecycle::status::Status;
use crate::selection::Selection;
use crate::series::Series;
use weir_api::node::NodeError;
use weir_api::nodes::check::parse;
use weir_api::nodes::insights::LifecycleQuery;
use weir_event::id::ProjectId;
use weir_query::kernel::engine::Engine;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    selection: Selection,
    series: Series,
    interval: Interval,
    /// The statuses in the response, in this order.
    shown: Vec<Status>,
}

impl Lifecycle {
    /// Parses a `LifecycleQuery`. Only the events of its series are used.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<LifecycleQuery>(query)?;
        if sent.custom_aggregation_target {
            let detail =
                "Only series of a data warehouse have such actors, which are not available.";
            return Err(NodeError::new("customAggregationTarget", detail));
        }
        let Ok([series]) = <[_; 1]>::try_from(sent.series) else {
            return Err(NodeError::new("series", "Expected one series."));
        };
        let toggled = sent.lifecycle_filter.toggled;
        let is_shown = |status: &Status| toggled.is_empty() || toggled.contains(status);
        Ok(Self {
            selection: Selection::of(sent.base)?,
            series: Series::of(series, 0)?,
            interval: Interval::parse(sent.interval.as_deref())?,
            shown: Status::ALL.into_iter().filter(is_shown).collect(),
        })
    }

    /// Looks up the current names of the actions of its series.
    ///
    /// # Errors
    ///
    /// There is no such action.
    pub fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        self.series.look_up(engine, project)
    }

    /// Its selection: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The entity of its series.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        std::iter::once(&self.series.entity)
    }
}

impl Lifecycle {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self { selection, series, interval, shown: _ } = self;
        on.selection(selection, *interval);
        on.series(series);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Lifecycle, Status};

    #[test]
    fn what_is_wrong_or_not_available_is_refused_by_its_name() {
        for (more, field) in [
            (json!({"series": []}), "series"),
            (json!({"series": [{}, {}]}), "series"),
            (json!({"interval": "year"}), "interval"),
            (json!({"breakdownFilter": {"breakdown": "a"}}), "breakdownFilter"),
            (
                json!({"lifecycleFilter": {"toggledLifecycles": ["old"]}}),
                "lifecycleFilter.toggledLifecycles",
            ),
            (json!({"dateRange": 4}), "dateRange"),
        ] {
            let mut query = json!({"series": [{"event": "a"}]});
            query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(Lifecycle::parse(&query).unwrap_err().field, field, "{more}");
        }
        let some = json!({"series": [{"event": "a"}],
                          "lifecycleFilter": {"toggledLifecycles": ["dormant", "new"]}});
        assert_eq!(Lifecycle::parse(&some).unwrap().shown, [Status::New, Status::Dormant]);
        let all = json!({"series": [{"event": "a"}]});
        assert_eq!(Lifecycle::parse(&all).unwrap().shown, Status::ALL);
    }
}
