//! What nodes of several kinds have: modifiers, filters, dates, entities, breakdowns. What PostHog's clients send without a
//! meaning here stands in `ignored`, with the reason.

use crate::known::fields::Content::{Filters, Fixed, List, Object, Value};
use crate::known::fields::Fields;

/// Reasons why fields are taken that change nothing.
pub(super) const SHOWN: &str = "only says how an answer is drawn";
pub(super) const LOGGED: &str = "goes into a log of queries, which Weir has by itself";
pub(super) const OLD_ANSWER: &str = "an earlier answer or state that clients keep in the node";
pub(super) const SPEED: &str =
    "only says how the database of the original computes the same answer";
pub(super) const OTHER_USE: &str =
    "clients send entities with it, and it has a meaning in other places alone";
pub(super) const NO_RULES: &str = "applies rules of a project, of which there are none";

pub(super) const NOTHING: Fields = Fields { base: None, read: &[], ignored: &[], lacking: &[] };

/// What every node has. PostHog raises the `version` of a node when it changes its form.
pub(super) const NODE: Fields = Fields {
    read: &[("kind", Value), ("modifiers", Object(&MODIFIERS))],
    ignored: &[(LOGGED, &["tags"]), (OLD_ANSWER, &["response", "version"])],
    ..NOTHING
};

/// How the original computes. What changes numbers is taken where it says what is so here: persons are those of now.
pub(super) const MODIFIERS: Fields = Fields {
    read: &[
        (
            "personsOnEventsMode",
            Fixed(&["\"disabled\"", "\"person_id_override_properties_joined\""]),
        ),
        ("convertToProjectTimezone", Fixed(&["true"])),
    ],
    ignored: &[(
        SPEED,
        &[
            "debug",
            "forceClickhouseDataSkippingIndexes",
            "inCohortVia",
            "inlineCohortCalculation",
            "materializationMode",
            "materializedColumnsOptimizationMode",
            "optimizeJoinedFilters",
            "optimizeProjections",
            "parserMode",
            "personsArgMaxVersion",
            "propertyGroupsMode",
            "pushDownPredicates",
            "s3TableUseInvalidColumns",
            "sessionIdPushdown",
            "sessionPropertyPreAggregation",
            "sessionTableVersion",
            "sessionsV2JoinMode",
            "timings",
            "useMaterializedViews",
            "usePreaggregatedIntermediateResults",
            "usePreaggregatedTableTransforms",
            "useWebAnalyticsPreAggregatedTables",
        ],
    )],
    lacking: &[
        "bounceRateDurationSeconds",
        "bounceRatePageViewMode",
        "customChannelTypeRules",
        "dataWarehouseEventsModifiers",
        "formatCsvAllowDoubleQuotes",
        "personsJoinMode",
    ],
    ..NOTHING
};

/// A filter of a property. `label` and the names of cohorts and groups are what a form shows of it.
pub(super) const FILTER: Fields = Fields {
    read: &[
        ("key", Value),
        ("value", Value),
        ("operator", Value),
        ("type", Value),
        ("group_type_index", Value),
        ("negation", Value),
    ],
    ignored: &[(SHOWN, &["label", "cohort_name", "group_key_names", "propertyFilterType"])],
    ..NOTHING
};

/// A group of filters; `id` and `sort_key` are what a form knows it by.
pub(super) const FILTER_GROUP: Fields = Fields {
    read: &[("type", Value), ("values", Filters)],
    ignored: &[(SHOWN, &["id", "sort_key"])],
    ..NOTHING
};

/// What a dashboard changes about its insights.
pub(super) const FRAME: Fields = Fields {
    read: &[
        ("date_from", Value),
        ("date_to", Value),
        ("explicitDate", Value),
        ("properties", Filters),
        ("breakdown_filter", Object(&BREAKDOWN)),
    ],
    ..NOTHING
};

pub(super) const DATES: Fields = Fields {
    read: &[("date_from", Value), ("date_to", Value), ("explicitDate", Value)],
    ..NOTHING
};

/// Events of a name or an action, also as older clients send them. Of PostHog's node of events `limit` and `orderBy` are
/// for its list of events.
pub(super) const ENTITY: Fields = Fields {
    read: &[
        ("kind", Value),
        ("type", Value),
        ("id", Value),
        ("event", Value),
        ("name", Value),
        ("custom_name", Value),
        ("properties", Filters),
        ("fixedProperties", Filters),
    ],
    ignored: &[
        (SHOWN, &["order", "index", "uuid"]),
        (OLD_ANSWER, &["response", "version"]),
        (
            OTHER_USE,
            &[
                "limit",
                "orderBy",
                "math",
                "math_property",
                "math_property_type",
                "math_hogql",
                "math_group_type_index",
                "optionalInFunnel",
            ],
        ),
    ],
    lacking: &["math_multiplier", "math_property_revenue_currency"],
    ..NOTHING
};

/// A series; a funnel reads whether a step is optional.
pub(super) const SERIES: Fields = Fields {
    base: Some(&ENTITY),
    read: &[
        ("math", Value),
        ("math_property", Value),
        ("math_property_type", Value),
        ("math_hogql", Value),
        ("math_group_type_index", Value),
        ("math_multiplier", Value),
        ("optionalInFunnel", Value),
    ],
    ..NOTHING
};

pub(super) const EXCLUSION: Fields = Fields {
    base: Some(&ENTITY),
    read: &[("funnelFromStep", Value), ("funnelToStep", Value)],
    ..NOTHING
};

/// What all insights have.
pub(super) const INSIGHT: Fields = Fields {
    base: Some(&NODE),
    read: &[
        ("dateRange", Object(&DATES)),
        ("properties", Filters),
        ("filterTestAccounts", Value),
        ("samplingFactor", Value),
        ("aggregation_group_type_index", Value),
    ],
    ignored: &[(SHOWN, &["dataColorTheme"])],
    ..NOTHING
};

pub(super) const BREAKDOWN: Fields = Fields {
    read: &[
        ("breakdown", Value),
        ("breakdown_type", Value),
        ("breakdowns", List(&BREAKDOWN_OF_SEVERAL)),
        ("breakdown_limit", Value),
        ("breakdown_offset", Value),
        ("breakdown_group_type_index", Value),
        ("breakdown_normalize_url", Value),
        ("breakdown_histogram_bin_count", Value),
        ("breakdown_hide_other_aggregation", Value),
    ],
    ignored: &[(NO_RULES, &["breakdown_path_cleaning"])],
    ..NOTHING
};

pub(super) const BREAKDOWN_OF_SEVERAL: Fields = Fields {
    read: &[
        ("property", Value),
        ("type", Value),
        ("group_type_index", Value),
        ("normalize_url", Value),
        ("histogram_bin_count", Value),
    ],
    ..NOTHING
};

pub(super) const COMPARE: Fields =
    Fields { read: &[("compare", Value), ("compare_to", Value)], ..NOTHING };
