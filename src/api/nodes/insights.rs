//! Insights over series of events, but for paths.

use crate::insights::series::Status;
use crate::nodes::base::{BreakdownFilter, CompareFilter, Insight};
use crate::nodes::reasons::{SHOWN, SPEED};
use crate::nodes::series::{Entity, Exclusion, Series};
use crate::{node, words};

node! {
    /// What series of events count in each interval.
    TrendsQuery "TrendsQuery": Insight {
        /// The series: 1 to 26
        series: Vec<Series>,
        /// minute, hour, day (the default), week or month
        interval: Option<String>,
        /// What is shown of them
        trends_filter ("trendsFilter"): TrendsFilter,
        /// What they are split by
        breakdown_filter ("breakdownFilter"): BreakdownFilter,
        /// Which other period is shown, too
        compare_filter ("compareFilter"): CompareFilter,
    }
    lacking ["conversionGoal", "calendarHeatmapFilter"];

    /// The options of trends.
    TrendsFilter {
        /// How it is drawn: of some a value is that of the whole range
        display: Option<Display>,
        /// Arithmetic over series, such as A / B
        formula: Option<String>,
        /// Several of them
        formulas: Vec<String>,
        /// The same with names: at most 26 together
        formula_nodes ("formulaNodes"): Vec<FormulaNode>,
        /// Over how many intervals an average is taken: at most 1000
        smoothing_intervals ("smoothingIntervals"): Option<usize>,
    }
    ignored SHOWN [
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
    ];
    lacking ["breakdown_histogram_bin_count"];

    /// A formula.
    FormulaNode {
        /// Arithmetic over series, such as A / B
        formula: Option<String>,
        /// What it is called
        custom_name: Option<String>,
    }

    /// How many go through steps, one after the other.
    FunnelsQuery "FunnelsQuery": Insight {
        /// The steps: 1 to 20
        series: Vec<Series>,
        /// Of trends: minute, hour, day (the default), week or month
        interval: Option<String>,
        /// The options of the funnel
        funnels_filter ("funnelsFilter"): FunnelsFilter,
        /// What it is split by
        breakdown_filter ("breakdownFilter"): BreakdownFilter,
    }
    lacking ["compareFilter"];

    /// The options of a funnel.
    FunnelsFilter {
        /// Events that must not come between steps: at most 12
        exclusions: Vec<Exclusion>,
        /// Into how many bins times are put
        bin_count ("binCount"): Option<usize>,
        /// Of which step the value of the breakdown is
        breakdown_attribution_type ("breakdownAttributionType"): Option<AttributionType>,
        /// The step, from 0 on
        breakdown_attribution_value ("breakdownAttributionValue"): Option<usize>,
        /// An expression of SQL that says who goes through it
        aggregate_by_hogql ("funnelAggregateByHogQL"): Option<String>,
        /// Between which steps conversion is shown, from 0 on
        from_step ("funnelFromStep"): Option<usize>,
        /// The later one
        to_step ("funnelToStep"): Option<usize>,
        /// In which order the steps come
        order_type ("funnelOrderType"): Option<FunnelOrderType>,
        /// What is shown
        viz_type ("funnelVizType"): Option<FunnelVizType>,
        /// The length of the window: 14 unless it is sent
        window_interval ("funnelWindowInterval"): Option<usize>,
        /// Its unit
        window_interval_unit ("funnelWindowIntervalUnit"): Option<WindowUnit>,
    }
    ignored
        SHOWN [
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
        SPEED ["useUdf"];
    lacking ["customAggregationTarget"];

    /// How many come back in later intervals.
    RetentionQuery "RetentionQuery": Insight {
        /// The options of the retention
        retention_filter ("retentionFilter"): RetentionFilter,
        /// What it is split by
        breakdown_filter ("breakdownFilter"): BreakdownFilter,
    }

    /// The options of a retention.
    RetentionFilter {
        /// In which rows an actor is
        retention_type ("retentionType"): Option<RetentionType>,
        /// How many rows and cells: 7 unless it is sent
        total_intervals ("totalIntervals"): Option<usize>,
        /// How many events an interval needs
        minimum_occurrences ("minimumOccurrences"): Option<usize>,
        /// What is done first; $pageview unless it is sent
        target_entity ("targetEntity"): Option<Entity>,
        /// What is done then
        returning_entity ("returningEntity"): Option<Entity>,
        /// Hour, Day (the default), Week or Month
        period: Option<String>,
        /// Whether one who comes back counts in all cells before, too
        cumulative: bool,
        /// Whether cells are of the calendar, or windows from the first event on
        time_window_mode ("timeWindowMode"): Option<TimeWindowMode>,
        /// The lengths of brackets, in the place of single intervals
        retention_custom_brackets ("retentionCustomBrackets"): Vec<f64>,
        /// What is shown of a number of the events
        aggregation_type ("aggregationType"): Option<AggregationType>,
        /// The number
        aggregation_property ("aggregationProperty"): Option<String>,
        /// Whose it is
        aggregation_property_type ("aggregationPropertyType"): Option<AggregationOwner>,
    }
    ignored SHOWN [
        "cohortLabelStartIndex",
        "dashboardDisplay",
        "display",
        "goalLines",
        "meanRetentionCalculation",
        "retentionReference",
        "selectedInterval",
        "showMean",
        "showTrendLines",
    ];
    lacking ["customAggregationTarget"];

    /// In how many intervals actors did something.
    StickinessQuery "StickinessQuery": Insight {
        /// The series: 1 to 26
        series: Vec<Series>,
        /// minute, hour, day (the default), week or month
        interval: Option<String>,
        /// How many intervals make one
        interval_count ("intervalCount"): Option<usize>,
        /// The options of stickiness
        stickiness_filter ("stickinessFilter"): StickinessFilter,
        /// Which other period is shown, too
        compare_filter ("compareFilter"): CompareFilter,
    }
    lacking ["breakdownFilter"];

    /// The options of stickiness.
    StickinessFilter {
        /// Whether actors count for all smaller numbers of intervals, too
        computed_as ("computedAs"): Option<ComputedAs>,
        /// How many events an interval needs
        criteria ("stickinessCriteria"): Option<StickinessCriteria>,
    }
    ignored SHOWN [
        "display",
        "hiddenLegendIndexes",
        "legendPosition",
        "resultCustomizationBy",
        "resultCustomizations",
        "showLegend",
        "showMultipleYAxes",
        "showValuesOnSeries",
    ];

    /// How many events an interval needs.
    StickinessCriteria {
        /// How the number is compared
        operator: Option<CriteriaOperator>,
        /// The number
        value: Option<usize>,
    }

    /// Who is new, comes back or stays away in each interval.
    LifecycleQuery "LifecycleQuery": Insight {
        /// One series, of which the events matter
        series: Vec<Series>,
        /// minute, hour, day (the default), week or month
        interval: Option<String>,
        /// The options of the lifecycle
        lifecycle_filter ("lifecycleFilter"): LifecycleFilter,
        /// Of a data warehouse, which is not available
        custom_aggregation_target ("customAggregationTarget"): bool,
    }
    lacking ["breakdownFilter"];

    /// The options of a lifecycle.
    LifecycleFilter {
        /// What is shown; all unless some are sent
        toggled ("toggledLifecycles"): Vec<Status>,
    }
    ignored SHOWN [
        "legendPosition",
        "showLegend",
        "showPercentagesOnSeries",
        "showValuesOnSeries",
        "stacked",
    ];
}

words! {
    /// How trends are drawn.
    Display {
        /// A value for each interval.
        Auto = "Auto",
        /// A line.
        LineGraph = "ActionsLineGraph",
        /// An area.
        AreaGraph = "ActionsAreaGraph",
        /// Bars.
        Bar = "ActionsBar",
        /// Bars beside each other.
        UnstackedBar = "ActionsUnstackedBar",
        /// Bars upon each other.
        StackedBar = "ActionsStackedBar",
        /// The sums up to each interval.
        Cumulative = "ActionsLineGraphCumulative",
        /// A value for the whole range.
        BoldNumber = "BoldNumber",
        /// The same as a pie.
        Pie = "ActionsPie",
        /// As bars.
        BarValue = "ActionsBarValue",
        /// As a table.
        Table = "ActionsTable",
        /// As a map.
        WorldMap = "WorldMap",
        /// As a calendar.
        CalendarHeatmap = "CalendarHeatmap",
    }

    /// Of which step the value of a breakdown is.
    AttributionType {
        /// The first that has one.
        First = "first_touch",
        /// The last that has one.
        Last = "last_touch",
        /// All have it.
        All = "all_events",
        /// One step.
        Step = "step",
    }

    /// In which order steps come.
    FunnelOrderType {
        /// One after the other, with others between.
        Ordered = "ordered",
        /// Nothing between them.
        Strict = "strict",
        /// In any order.
        Unordered = "unordered",
    }

    /// What is shown of a funnel.
    FunnelVizType {
        /// How many come to each step.
        Steps = "steps",
        /// How long it takes.
        TimeToConvert = "time_to_convert",
        /// The part of those who come to the end, by interval.
        Trends = "trends",
    }

    /// The unit of the window of a funnel.
    WindowUnit {
        /// Seconds.
        Second = "second",
        /// Minutes.
        Minute = "minute",
        /// Hours.
        Hour = "hour",
        /// Days.
        Day = "day",
        /// Weeks.
        Week = "week",
        /// Months of 31 days.
        Month = "month",
    }

    /// In which rows of a retention an actor is.
    RetentionType {
        /// In those of all intervals with a target event.
        Recurring = "retention_recurring",
        /// In that of its first target event.
        FirstTime = "retention_first_time",
        /// In that of its first event of the target's name.
        FirstEver = "retention_first_ever_occurrence",
    }

    /// What the cells of a retention are.
    TimeWindowMode {
        /// Intervals of the calendar.
        Calendar = "strict_calendar_dates",
        /// Windows from the first event on.
        Rolling = "24_hour_windows",
    }

    /// What is shown of a number of events.
    AggregationType {
        /// Nothing: actors are counted alone.
        Count = "count",
        /// Their sum.
        Sum = "sum",
        /// Their mean for each actor.
        Average = "avg",
    }

    /// Whose number it is.
    AggregationOwner {
        /// The event's.
        Event = "event",
        /// The person's.
        Person = "person",
    }

    /// For which numbers of intervals an actor counts.
    ComputedAs {
        /// For its own.
        NonCumulative = "non_cumulative",
        /// For all smaller ones, too.
        Cumulative = "cumulative",
    }

    /// How numbers are compared.
    CriteriaOperator {
        /// At least.
        AtLeast = "gte",
        /// At most.
        AtMost = "lte",
        /// Exactly.
        Exactly = "exact",
    }
}
