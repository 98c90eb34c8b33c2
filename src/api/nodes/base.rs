//! What nodes of several kinds have: modifiers, dates, breakdowns, comparisons, and the fields of all insights.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::node;
use crate::node::{Content, Form, NodeError};
use crate::nodes::filter::Properties;
use crate::nodes::reasons::{LOGGED, NO_RULES, OLD_ANSWER, SHOWN, SPEED};

/// A modifier whose only accepted values describe what is the case anyway.
macro_rules! fixed {
    ($($(#[doc = $doc:literal])+ $name:ident: $values:expr;)+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl Content for $name {
            const FORM: Form = Form::Fixed(&$values);

            fn read(_: &Value, _: &str) -> Result<Self, NodeError> {
                Ok(Self)
            }

            fn write(&self) -> Option<Value> {
                None
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({})
            }
        }
    )+ };
}

fixed! {
    /// Persons are those of now.
    PersonsOnEventsMode: ["\"disabled\"", "\"person_id_override_properties_joined\""];
    /// Times are in the time zone of the project.
    ConvertToProjectTimezone: ["true"];
}

node! {
    /// How the original computes. What changes numbers is taken where it says what is so here.
    Modifiers {
        /// Persons are those of now
        persons_on_events_mode ("personsOnEventsMode"): PersonsOnEventsMode,
        /// true: times are in the time zone of the project
        convert_to_project_timezone ("convertToProjectTimezone"): ConvertToProjectTimezone,
    }
    ignored SPEED [
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
    ];
    lacking [
        "bounceRateDurationSeconds",
        "bounceRatePageViewMode",
        "customChannelTypeRules",
        "dataWarehouseEventsModifiers",
        "formatCsvAllowDoubleQuotes",
        "personsJoinMode",
    ];

    /// What every node has. PostHog raises the `version` of a node when it changes its form.
    Common {
        /// How the original computes
        modifiers: Modifiers,
    }
    ignored LOGGED ["tags"], OLD_ANSWER ["response", "version"];

    /// What all insights have.
    Insight: Common {
        /// Of what time the events are
        date_range ("dateRange"): Dates,
        /// Filters of events
        properties: Option<Properties>,
        /// Whether the events of the project's test accounts are left out
        filter_test_accounts ("filterTestAccounts"): bool,
        /// 1: there is no sampling
        sampling_factor ("samplingFactor"): Option<f64>,
        /// The index of the type of the groups that are counted in the place of persons
        aggregation_group_type_index: Option<usize>,
    }
    ignored SHOWN ["dataColorTheme"];

    /// A range of dates.
    Dates {
        /// A date, a time, a span such as -7d (the default), or all
        date_from: Option<String>,
        /// A date, a time or a span; now unless it is sent
        date_to: Option<String>,
        /// Whether bounds are taken as they are, not extended to whole intervals
        explicit_date ("explicitDate"): bool,
    }

    /// What an insight is split by.
    BreakdownFilter {
        /// The name of a property, or a list of 1 to 3; of cohorts the ids, or all
        breakdown: Option<Value>,
        /// Whose property it is: event (the default), person, group, session, event_metadata, hogql; or cohort
        breakdown_type: Option<String>,
        /// At most 3 properties whose values are combined
        breakdowns: Vec<BreakdownProperty>,
        /// Most values that are shown on their own: 25 unless it is sent, at most 500
        breakdown_limit: Option<usize>,
        /// How many larger ones come before them, in trends
        breakdown_offset: Option<usize>,
        /// The index of the type of groups whose property it is
        breakdown_group_type_index: Option<usize>,
        /// Whether addresses that differ in what ends them alone are one
        breakdown_normalize_url: bool,
        /// How many bins its numbers are put into
        breakdown_histogram_bin_count: Option<usize>,
        /// Whether the values beyond the limit are left out
        breakdown_hide_other_aggregation: bool,
    }
    ignored NO_RULES ["breakdown_path_cleaning"];

    /// One of several properties of a breakdown.
    BreakdownProperty {
        /// Its name
        property: Option<String>,
        /// Whose it is: event (the default), person, group, session, event_metadata, hogql
        kind ("type"): Option<String>,
        /// The index of the type of groups whose property it is
        group_type_index: Option<usize>,
        /// Whether addresses that differ in what ends them alone are one
        normalize_url: bool,
        /// How many bins its numbers are put into
        histogram_bin_count: Option<usize>,
    }

    /// Which other period is shown, too.
    CompareFilter {
        /// Whether one is
        compare: bool,
        /// How long before: a duration such as -1w; right before unless it is sent
        compare_to: Option<String>,
    }
}
