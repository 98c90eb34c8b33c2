//! Persons or groups behind a point of an insight. There are no recordings.

use serde_json::Value;

use crate::insights::series::Status;
use crate::node;
use crate::node::AnyNode;
use crate::nodes::base::Common;
use crate::nodes::filter::Properties;
use crate::nodes::insights::{CriteriaOperator, FunnelsQuery};
use crate::nodes::reasons::SHOWN;
use crate::nodes::series::Entity;

node! {
    /// Those behind a point of trends, retention, a lifecycle, stickiness or paths.
    InsightActorsQuery "InsightActorsQuery" | "StickinessActorsQuery": Common {
        /// The insight
        source: Option<AnyNode>,
        /// Its interval, as in days; of stickiness the number of intervals
        day: Option<Value>,
        /// The number of its series, from 0 on
        series: Option<usize>,
        /// The number of a row of a retention
        interval: Option<usize>,
        /// What they are in a lifecycle
        status: Option<Status>,
        /// The value of the breakdown, or the list of those of several properties
        breakdown: Option<Value>,
        /// previous: of the period that the current one is compared with
        compare: Option<String>,
        /// How the number of intervals of stickiness is compared
        operator: Option<CriteriaOperator>,
    }
    ignored SHOWN ["includeRecordings"];

    /// Those who came to a step of a funnel, or dropped off before it.
    FunnelsActorsQuery "FunnelsActorsQuery": Common {
        /// The funnel
        source: Option<FunnelsQuery>,
        /// The step, from 1 on; below 0 those who drop off before it
        funnel_step ("funnelStep"): Option<i64>,
        /// Those whose last step is one of these
        funnel_custom_steps ("funnelCustomSteps"): Vec<i64>,
        /// The value of the breakdown
        funnel_step_breakdown ("funnelStepBreakdown"): Option<Value>,
        /// Of trends of a funnel: whether they dropped off
        funnel_trends_drop_off ("funnelTrendsDropOff"): Option<bool>,
        /// Of trends of a funnel: the beginning of an interval, as in days
        funnel_trends_entrance_period_start ("funnelTrendsEntrancePeriodStart"): Option<String>,
    }
    ignored SHOWN ["includeRecordings"];

    /// Those with an event or a property of a correlation.
    FunnelCorrelationActorsQuery "FunnelCorrelationActorsQuery": Common {
        /// The correlation
        source: Option<AnyNode>,
        /// Whether they came to the last step; either unless it is sent
        person_converted ("funnelCorrelationPersonConverted"): Option<Value>,
        /// The event
        person_entity ("funnelCorrelationPersonEntity"): Option<Entity>,
        /// The properties
        property_values ("funnelCorrelationPropertyValues"): Option<Properties>,
    }
    ignored SHOWN ["includeRecordings"];
}
