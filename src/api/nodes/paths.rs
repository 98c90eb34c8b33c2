//! Paths.

use crate::nodes::base::Insight;
use crate::nodes::insights::FunnelsQuery;
use crate::nodes::reasons::SHOWN;
use crate::{node, words};

node! {
    /// Which steps persons take one after another.
    PathsQuery "PathsQuery": Insight {
        /// Which events are steps, and which paths are shown
        paths_filter ("pathsFilter"): PathsFilter,
        /// A funnel around a step of which the paths are
        funnel_paths_filter ("funnelPathsFilter"): Option<FunnelPathsFilter>,
    }
    lacking ["pathsV2Filter"];

    /// The options of paths.
    PathsFilter {
        /// Which events are steps: $pageview, $screen, custom_event, hogql; all unless some are sent
        include_event_types ("includeEventTypes"): Vec<String>,
        /// At most 1000 items that are left out
        exclude_events ("excludeEvents"): Vec<String>,
        /// The item that paths begin at
        start_point ("startPoint"): Option<String>,
        /// The item that paths end at
        end_point ("endPoint"): Option<String>,
        /// Most steps of a path: 5 unless it is sent, at most 100
        step_limit ("stepLimit"): Option<usize>,
        /// Most edges of an answer: 50 unless it is sent, at most 2000
        edge_limit ("edgeLimit"): Option<usize>,
        /// Fewest persons of an edge
        min_edge_weight ("minEdgeWeight"): Option<usize>,
        /// Most persons of an edge
        max_edge_weight ("maxEdgeWeight"): Option<usize>,
        /// Patterns with * whose items are one
        path_groupings ("pathGroupings"): Vec<String>,
        /// What replaces parts of items, one after the other
        local_path_cleaning_filters ("localPathCleaningFilters"): Vec<PathCleaningFilter>,
        /// Whether rules of the project hold, of which there are none
        path_replacements ("pathReplacements"): bool,
        /// An expression of SQL that says what other events are called
        paths_hogql_expression ("pathsHogQLExpression"): Option<String>,
        /// Of persons behind a step: the place and the item that they come from, such as 1_/home
        path_start_key ("pathStartKey"): Option<String>,
        /// Where they come to
        path_end_key ("pathEndKey"): Option<String>,
        /// Where they end
        path_dropoff_key ("pathDropoffKey"): Option<String>,
    }
    ignored SHOWN ["showFullUrls"];
    lacking ["funnelFilter", "funnelPaths"];

    /// A rule; they hold in the order of the list.
    PathCleaningFilter {
        /// The text that replaces what matches
        alias: Option<String>,
        /// A regular expression
        regex: Option<String>,
    }
    ignored SHOWN ["order"];

    /// The funnel around a step of which paths are.
    FunnelPathsFilter {
        /// Which part of the time is meant
        funnel_path_type ("funnelPathType"): Option<FunnelPathType>,
        /// The funnel
        funnel_source ("funnelSource"): Option<FunnelsQuery>,
        /// The step, from 1 on; below 0 those who drop off before it
        funnel_step ("funnelStep"): Option<i64>,
    }
}

words! {
    /// Which part of the time of an actor is meant.
    FunnelPathType {
        /// Up to the step.
        Before = "funnel_path_before_step",
        /// From the step before it on up to the step.
        Between = "funnel_path_between_steps",
        /// From the step on.
        After = "funnel_path_after_step",
    }
}
