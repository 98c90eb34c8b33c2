//! The fields of each kind of node. What PostHog's clients send without a meaning here stands in `ignored`, with the reason.

use crate::known::fields::Content::{
    Entities, Entity, Filters, List, Map, Node, NodeOf, Object, Value,
};
use crate::known::fields::Fields;
use crate::known::parts::{
    BREAKDOWN, COMPARE, DATES, ENTITY, EXCLUSION, INSIGHT, LOGGED, NODE, NOTHING, SERIES, SHOWN,
    SPEED,
};

const TRENDS: Fields = Fields {
    base: Some(&INSIGHT),
    read: &[
        ("series", Entities(&SERIES)),
        ("interval", Value),
        ("trendsFilter", Object(&TRENDS_FILTER)),
        ("breakdownFilter", Object(&BREAKDOWN)),
        ("compareFilter", Object(&COMPARE)),
    ],
    lacking: &["conversionGoal", "calendarHeatmapFilter"],
    ..NOTHING
};

const TRENDS_FILTER: Fields = Fields {
    read: &[
        ("display", Value),
        ("formula", Value),
        ("formulas", Value),
        ("formulaNodes", List(&FORMULA)),
        ("smoothingIntervals", Value),
    ],
    ignored: &[(
        SHOWN,
        &[
            "aggregationAxisFormat",
            "aggregationAxisPostfix",
            "aggregationAxisPrefix",
            "confidenceLevel",
            "decimalPlaces",
            "detailedResultsAggregationType",
            "excludeBoxPlotOutliers",
            "goalLines",
            "hiddenLegendIndexes",
            "hideWeekends",
            "legendPosition",
            "metricChangeDecreaseColor",
            "metricChangeIncreaseColor",
            "metricColorByDirection",
            "metricLineDecreaseColor",
            "metricLineIncreaseColor",
            "metricShowChange",
            "metricSummary",
            "minDecimalPlaces",
            "movingAverageIntervals",
            "resultCustomizationBy",
            "resultCustomizations",
            "showAlertThresholdLines",
            "showAnnotations",
            "showConfidenceIntervals",
            "showLabelsOnSeries",
            "showLegend",
            "showMovingAverage",
            "showMultipleYAxes",
            "showPercentStackView",
            "showTrendLines",
            "showValuesOnSeries",
            "stackBreakdownValues",
            "xAxisLabel",
            "yAxisLabel",
            "yAxisScaleType",
        ],
    )],
    lacking: &["breakdown_histogram_bin_count"],
    ..NOTHING
};

const FORMULA: Fields = Fields { read: &[("formula", Value), ("custom_name", Value)], ..NOTHING };

const FUNNELS: Fields = Fields {
    base: Some(&INSIGHT),
    read: &[
        ("series", Entities(&SERIES)),
        ("interval", Value),
        ("funnelsFilter", Object(&FUNNELS_FILTER)),
        ("breakdownFilter", Object(&BREAKDOWN)),
    ],
    lacking: &["compareFilter"],
    ..NOTHING
};

const FUNNELS_FILTER: Fields = Fields {
    read: &[
        ("exclusions", Entities(&EXCLUSION)),
        ("binCount", Value),
        ("breakdownAttributionType", Value),
        ("breakdownAttributionValue", Value),
        ("funnelAggregateByHogQL", Value),
        ("funnelFromStep", Value),
        ("funnelToStep", Value),
        ("funnelOrderType", Value),
        ("funnelVizType", Value),
        ("funnelWindowInterval", Value),
        ("funnelWindowIntervalUnit", Value),
    ],
    ignored: &[
        (
            SHOWN,
            &[
                "breakdownSorting",
                "funnelStepReference",
                "goalLines",
                "hiddenLegendBreakdowns",
                "hideIncompleteConversionWindowPeriods",
                "layout",
                "legendPosition",
                "resultCustomizations",
                "showAnnotations",
                "showLegend",
                "showTrendLines",
                "showValuesOnSeries",
            ],
        ),
        (SPEED, &["useUdf"]),
    ],
    lacking: &["customAggregationTarget"],
    ..NOTHING
};

const RETENTION: Fields = Fields {
    base: Some(&INSIGHT),
    read: &[
        ("retentionFilter", Object(&RETENTION_FILTER)),
        ("breakdownFilter", Object(&BREAKDOWN)),
    ],
    ..NOTHING
};

const RETENTION_FILTER: Fields = Fields {
    read: &[
        ("retentionType", Value),
        ("totalIntervals", Value),
        ("minimumOccurrences", Value),
        ("targetEntity", Entity(&ENTITY)),
        ("returningEntity", Entity(&ENTITY)),
        ("period", Value),
        ("cumulative", Value),
        ("timeWindowMode", Value),
        ("retentionCustomBrackets", Value),
        ("aggregationType", Value),
        ("aggregationProperty", Value),
        ("aggregationPropertyType", Value),
    ],
    ignored: &[(
        SHOWN,
        &[
            "cohortLabelStartIndex",
            "dashboardDisplay",
            "display",
            "goalLines",
            "meanRetentionCalculation",
            "retentionReference",
            "selectedInterval",
            "showMean",
            "showTrendLines",
        ],
    )],
    lacking: &["customAggregationTarget"],
    ..NOTHING
};

const PATHS: Fields = Fields {
    base: Some(&INSIGHT),
    read: &[
        ("pathsFilter", Object(&PATHS_FILTER)),
        ("funnelPathsFilter", Object(&FUNNEL_PATHS)),
        ("pathsV2Filter", Value),
    ],
    ..NOTHING
};

const PATHS_FILTER: Fields = Fields {
    read: &[
        ("edgeLimit", Value),
        ("endPoint", Value),
        ("excludeEvents", Value),
        ("funnelFilter", Value),
        ("funnelPaths", Value),
        ("includeEventTypes", Value),
        ("localPathCleaningFilters", List(&CLEANING)),
        ("maxEdgeWeight", Value),
        ("minEdgeWeight", Value),
        ("pathDropoffKey", Value),
        ("pathEndKey", Value),
        ("pathGroupings", Value),
        ("pathReplacements", Value),
        ("pathStartKey", Value),
        ("pathsHogQLExpression", Value),
        ("startPoint", Value),
        ("stepLimit", Value),
    ],
    ignored: &[(SHOWN, &["showFullUrls"])],
    ..NOTHING
};

/// A rule; they hold in the order of the list.
const CLEANING: Fields = Fields {
    read: &[("alias", Value), ("regex", Value)],
    ignored: &[(SHOWN, &["order"])],
    ..NOTHING
};

const FUNNEL_PATHS: Fields = Fields {
    read: &[("funnelPathType", Value), ("funnelSource", NodeOf(&FUNNELS)), ("funnelStep", Value)],
    ..NOTHING
};

const STICKINESS: Fields = Fields {
    base: Some(&INSIGHT),
    read: &[
        ("series", Entities(&SERIES)),
        ("interval", Value),
        ("intervalCount", Value),
        ("stickinessFilter", Object(&STICKINESS_FILTER)),
        ("compareFilter", Object(&COMPARE)),
        ("breakdownFilter", Value),
    ],
    ..NOTHING
};

const STICKINESS_FILTER: Fields = Fields {
    read: &[("computedAs", Value), ("stickinessCriteria", Object(&CRITERIA))],
    ignored: &[(
        SHOWN,
        &[
            "display",
            "hiddenLegendIndexes",
            "legendPosition",
            "resultCustomizationBy",
            "resultCustomizations",
            "showLegend",
            "showMultipleYAxes",
            "showValuesOnSeries",
        ],
    )],
    ..NOTHING
};

const CRITERIA: Fields = Fields { read: &[("operator", Value), ("value", Value)], ..NOTHING };

const LIFECYCLE: Fields = Fields {
    base: Some(&INSIGHT),
    read: &[
        ("series", Entities(&SERIES)),
        ("interval", Value),
        ("lifecycleFilter", Object(&LIFECYCLE_FILTER)),
        ("breakdownFilter", Value),
        ("customAggregationTarget", Value),
    ],
    ..NOTHING
};

const LIFECYCLE_FILTER: Fields = Fields {
    read: &[("toggledLifecycles", Value)],
    ignored: &[(
        SHOWN,
        &[
            "legendPosition",
            "showLegend",
            "showPercentagesOnSeries",
            "showValuesOnSeries",
            "stacked",
        ],
    )],
    ..NOTHING
};

const CORRELATION: Fields = Fields {
    base: Some(&NODE),
    read: &[
        ("source", NodeOf(&FUNNEL_ACTORS)),
        ("funnelCorrelationType", Value),
        ("funnelCorrelationEventNames", Value),
        ("funnelCorrelationEventExcludePropertyNames", Value),
        ("funnelCorrelationExcludeEventNames", Value),
        ("funnelCorrelationExcludeNames", Value),
        ("funnelCorrelationNames", Value),
    ],
    ..NOTHING
};

/// Who is behind a point. There are no recordings.
const BEHIND: Fields = Fields {
    base: Some(&NODE),
    read: &[("source", Node)],
    ignored: &[(SHOWN, &["includeRecordings"])],
    ..NOTHING
};

const INSIGHT_ACTORS: Fields = Fields {
    base: Some(&BEHIND),
    read: &[
        ("day", Value),
        ("series", Value),
        ("interval", Value),
        ("status", Value),
        ("breakdown", Value),
        ("compare", Value),
        ("operator", Value),
    ],
    ..NOTHING
};

const FUNNEL_ACTORS: Fields = Fields {
    base: Some(&BEHIND),
    read: &[
        ("source", NodeOf(&FUNNELS)),
        ("funnelStep", Value),
        ("funnelCustomSteps", Value),
        ("funnelStepBreakdown", Value),
        ("funnelTrendsDropOff", Value),
        ("funnelTrendsEntrancePeriodStart", Value),
    ],
    ..NOTHING
};

const CORRELATION_ACTORS: Fields = Fields {
    base: Some(&BEHIND),
    read: &[
        ("funnelCorrelationPersonConverted", Value),
        ("funnelCorrelationPersonEntity", Entity(&ENTITY)),
        ("funnelCorrelationPropertyValues", Filters),
    ],
    ..NOTHING
};

/// A page of a list.
const PAGE: Fields = Fields {
    base: Some(&NODE),
    read: &[
        ("select", Value),
        ("where", Value),
        ("orderBy", Value),
        ("limit", Value),
        ("offset", Value),
        ("properties", Filters),
        ("fixedProperties", Filters),
    ],
    ..NOTHING
};

const EVENTS: Fields = Fields {
    base: Some(&PAGE),
    read: &[
        ("event", Value),
        ("events", Value),
        ("actionId", Value),
        ("actionSteps", List(&STEP)),
        ("personId", Value),
        ("filterTestAccounts", Value),
        ("after", Value),
        ("before", Value),
        ("source", Value),
    ],
    ..NOTHING
};

/// A step of an action, with what clients keep of one that was saved.
pub(super) const STEP: Fields = Fields {
    read: &[
        ("event", Value),
        ("properties", Filters),
        ("selector", Value),
        ("tag_name", Value),
        ("text", Value),
        ("text_matching", Value),
        ("href", Value),
        ("href_matching", Value),
        ("url", Value),
        ("url_matching", Value),
    ],
    ignored: &[(SHOWN, &["id", "isNew", "name", "selector_regex"])],
    ..NOTHING
};

const ACTORS: Fields = Fields {
    base: Some(&PAGE),
    read: &[("source", Node), ("search", Value), ("cohort", Value), ("distinctId", Value)],
    ..NOTHING
};

const GROUPS: Fields = Fields {
    base: Some(&PAGE),
    read: &[
        ("group_type_index", Value),
        ("search", Value),
        ("source", Value),
        ("cohort", Value),
        ("distinctId", Value),
    ],
    ..NOTHING
};

const SQL: Fields = Fields {
    base: Some(&NODE),
    read: &[
        ("query", Value),
        ("filters", Object(&SQL_FILTERS)),
        ("values", Value),
        ("variables", Map(&VARIABLE)),
    ],
    ignored: &[(LOGGED, &["name"])],
    lacking: &["connectionId", "sendRawQuery", "explain"],
};

const SQL_FILTERS: Fields = Fields {
    read: &[("dateRange", Object(&DATES)), ("properties", Filters), ("filterTestAccounts", Value)],
    ..NOTHING
};

/// The value of a variable; the rest is what a form shows of it.
const VARIABLE: Fields = Fields {
    read: &[("code_name", Value), ("value", Value), ("isNull", Value)],
    ignored: &[(
        SHOWN,
        &[
            "variableId",
            "id",
            "name",
            "type",
            "default_value",
            "values",
            "created_at",
            "created_by",
        ],
    )],
    ..NOTHING
};

/// What says how a question is shown; all besides the question.
const WRAPPER: Fields = Fields {
    base: Some(&NODE),
    read: &[("source", Node)],
    ignored: &[(
        SHOWN,
        &[
            "allowSorting",
            "chartSettings",
            "columns",
            "context",
            "contextKey",
            "defaultColumns",
            "display",
            "embedded",
            "expandable",
            "full",
            "hiddenColumns",
            "hidePersonsModal",
            "hideTooltipOnScroll",
            "pinnedColumns",
            "propertiesViaUrl",
            "showAbsoluteTime",
            "showActions",
            "showColumnConfigurator",
            "showCorrelationTable",
            "showCount",
            "showDateRange",
            "showElapsedTime",
            "showEventFilter",
            "showEventsFilter",
            "showExport",
            "showFilters",
            "showHeader",
            "showHogQLEditor",
            "showLastComputation",
            "showLastComputationRefresh",
            "showOpenEditorButton",
            "showPersistentColumnConfigurator",
            "showPropertyFilter",
            "showRecordingColumn",
            "showReload",
            "showResults",
            "showResultsTable",
            "showSavedFilters",
            "showSavedQueries",
            "showSearch",
            "showSourceQueryOptions",
            "showTable",
            "showTableViews",
            "showTestAccountFilters",
            "showTimings",
            "suppressSessionAnalysisWarning",
            "tableSettings",
            "vizSpecificOptions",
        ],
    )],
    ..NOTHING
};

/// The fields of a node of this kind, if it is one that is answered.
pub(super) fn of_kind(kind: &str) -> Option<&'static Fields> {
    Some(match kind {
        "TrendsQuery" => &TRENDS,
        "FunnelsQuery" => &FUNNELS,
        "RetentionQuery" => &RETENTION,
        "PathsQuery" => &PATHS,
        "StickinessQuery" => &STICKINESS,
        "LifecycleQuery" => &LIFECYCLE,
        "FunnelCorrelationQuery" => &CORRELATION,
        "InsightActorsQuery" | "StickinessActorsQuery" => &INSIGHT_ACTORS,
        "FunnelsActorsQuery" => &FUNNEL_ACTORS,
        "FunnelCorrelationActorsQuery" => &CORRELATION_ACTORS,
        "EventsQuery" => &EVENTS,
        "ActorsQuery" | "PersonsQuery" | "PersonsNode" => &ACTORS,
        "GroupsQuery" => &GROUPS,
        "HogQLQuery" => &SQL,
        "InsightVizNode" | "DataTableNode" | "DataVisualizationNode" => &WRAPPER,
        _ => return None,
    })
}
