//! Entities: events of a name or an action, as series, steps and exclusions have them.

use serde_json::Value;

use crate::node;
use crate::nodes::filter::Properties;
use crate::nodes::reasons::{OLD_ANSWER, OTHER_USE, SHOWN};

node! {
    /// Events of a name or an action, also as older clients send them. Of PostHog's node of events `limit` and `orderBy` are
    /// for its list of events.
    Entity {
        /// EventsNode (the default) or ActionsNode
        kind: Option<String>,
        /// The same as older clients have it: events or actions
        kind_of_older ("type"): Option<String>,
        /// The id of an action, or the name of events as older clients have it
        id: Option<Value>,
        /// The name of the events; all events without it
        event: Option<String>,
        /// What they are called
        name: Option<String>,
        /// What a user calls them
        custom_name: Option<String>,
        /// Filters of the events
        properties: Option<Properties>,
        /// The same, which a form does not show
        fixed_properties ("fixedProperties"): Option<Properties>,
    }
    ignored
        SHOWN ["order", "index", "uuid"],
        OLD_ANSWER ["response", "version"],
        OTHER_USE [
            "limit",
            "orderBy",
            "math",
            "math_property",
            "math_property_type",
            "math_hogql",
            "math_group_type_index",
            "optionalInFunnel",
        ];
    lacking ["math_multiplier", "math_property_revenue_currency"];
    is_entity true;

    /// A series.
    Series: Entity {
        /// What is counted: total (the default), dau, weekly_active, monthly_active, unique_session, unique_group, hogql,
        /// first_time_for_user, first_matching_event_for_user; of a property sum, avg, min, max, median, p75, p90, p95, p99;
        /// avg_count_per_actor and its like
        math: Option<String>,
        /// The property
        math_property: Option<String>,
        /// Whose it is: event_properties (the default), person_properties, session_properties
        math_property_type: Option<String>,
        /// An expression of SQL with aggregates
        math_hogql: Option<String>,
        /// The index of the type of the groups that are counted
        math_group_type_index: Option<usize>,
        /// Whether the step of a funnel may be skipped
        optional_in_funnel ("optionalInFunnel"): bool,
    }
    is_entity true;

    /// Events that must not come between steps of a funnel.
    Exclusion: Entity {
        /// After which step, from 0 on
        from_step ("funnelFromStep"): Option<usize>,
        /// Before which step
        to_step ("funnelToStep"): Option<usize>,
    }
    is_entity true;
}
