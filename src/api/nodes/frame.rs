//! Overrides of insights by a dashboard or a request.

use crate::node;
use crate::nodes::base::BreakdownFilter;
use crate::nodes::filter::Properties;

node! {
    /// What a dashboard changes about its insights.
    Frame {
        /// The beginning of the range of dates
        date_from: Option<String>,
        /// Its end
        date_to: Option<String>,
        /// Whether bounds are taken as they are, not extended to whole intervals
        explicit_date ("explicitDate"): bool,
        /// Filters besides their own
        properties: Option<Properties>,
        /// The breakdown of kinds that have one
        breakdown_filter: Option<BreakdownFilter>,
    }
}
