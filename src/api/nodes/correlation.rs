//! Correlations.

use crate::nodes::actors::FunnelsActorsQuery;
use crate::nodes::base::Common;
use crate::{node, words};

node! {
    /// Which events or properties go with coming to the end of a funnel.
    FunnelCorrelationQuery "FunnelCorrelationQuery": Common {
        /// Whose funnel it is
        source: Option<FunnelsActorsQuery>,
        /// What is looked at
        correlation_type ("funnelCorrelationType"): Option<CorrelationType>,
        /// The events whose properties are looked at: at most 100
        event_names ("funnelCorrelationEventNames"): Vec<String>,
        /// The properties of these that are left out
        event_exclude_property_names ("funnelCorrelationEventExcludePropertyNames"): Vec<String>,
        /// The events that are left out
        exclude_event_names ("funnelCorrelationExcludeEventNames"): Vec<String>,
        /// The properties of persons that are left out
        exclude_names ("funnelCorrelationExcludeNames"): Vec<String>,
        /// The properties of persons that are looked at; $all for all
        names ("funnelCorrelationNames"): Vec<String>,
    }
}

words! {
    /// What a correlation looks at.
    CorrelationType {
        /// Events.
        Events = "events",
        /// Properties of persons.
        Properties = "properties",
        /// Properties of events.
        EventWithProperties = "event_with_properties",
    }
}
