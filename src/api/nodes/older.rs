//! The fields of the filters of older clients: [`check`].

use serde_json::Map;

use crate::node::Form::{Filters, List, Value};
use crate::node::{Fields, Form, NOTHING, Node, NodeError};
use crate::nodes::check::check_object;
use crate::nodes::reasons::{OF_FORM, OF_SERVER, SHOWN};
use crate::nodes::series::{Entity, Series};

/// An exclusion of a funnel, as it was called then.
const EXCLUSION: Fields = Fields {
    base: Some(&Entity::FIELDS),
    read: &[("funnel_from_step", Value), ("funnel_to_step", Value)],
    ..NOTHING
};

/// A series as it was sent then: without a node around it.
const ENTITIES: Form = List(&Fields { is_entity: false, ..Series::FIELDS });

/// Those of all insights together, as PostHog has them in one type, and those of the persons behind them.
const FILTER: Fields = Fields {
    read: &[
        ("actions", ENTITIES),
        ("aggregation_group_type_index", Value),
        ("aggregation_property", Value),
        ("aggregation_property_type", Value),
        ("aggregation_type", Value),
        ("bin_count", Value),
        ("breakdown", Value),
        ("breakdown_attribution_type", Value),
        ("breakdown_attribution_value", Value),
        ("breakdown_group_type_index", Value),
        ("breakdown_hide_other_aggregation", Value),
        ("breakdown_histogram_bin_count", Value),
        ("breakdown_limit", Value),
        ("breakdown_normalize_url", Value),
        ("breakdown_offset", Value),
        ("breakdown_type", Value),
        ("breakdown_value", Value),
        ("breakdown_values", Value),
        ("breakdowns", Value),
        ("client_query_id", Value),
        ("compare", Value),
        ("compare_to", Value),
        ("computed_as", Value),
        ("cumulative", Value),
        ("date_from", Value),
        ("date_to", Value),
        ("day", Value),
        ("display", Value),
        ("drop_off", Value),
        ("edge_limit", Value),
        ("end_point", Value),
        ("entity_id", Value),
        ("entity_math", Value),
        ("entity_order", Value),
        ("entity_type", Value),
        ("entrance_period_start", Value),
        ("events", ENTITIES),
        ("exclude_events", Value),
        ("exclusions", List(&EXCLUSION)),
        ("explicit_date", Value),
        ("filter_test_accounts", Value),
        ("format", Value),
        ("formula", Value),
        ("funnel_aggregate_by_hogql", Value),
        ("funnel_correlation_event_exclude_property_names", Value),
        ("funnel_correlation_event_names", Value),
        ("funnel_correlation_exclude_event_names", Value),
        ("funnel_correlation_exclude_names", Value),
        ("funnel_correlation_names", Value),
        ("funnel_correlation_person_converted", Value),
        ("funnel_correlation_person_entity", Value),
        ("funnel_correlation_person_limit", Value),
        ("funnel_correlation_person_offset", Value),
        ("funnel_correlation_property_values", Value),
        ("funnel_correlation_type", Value),
        ("funnel_custom_steps", Value),
        ("funnel_filter", Value),
        ("funnel_from_step", Value),
        ("funnel_order_type", Value),
        ("funnel_paths", Value),
        ("funnel_step", Value),
        ("funnel_step_breakdown", Value),
        ("funnel_to_step", Value),
        ("funnel_viz_type", Value),
        ("funnel_window_days", Value),
        ("funnel_window_interval", Value),
        ("funnel_window_interval_unit", Value),
        ("include_event_types", Value),
        ("insight", Value),
        ("interval", Value),
        ("interval_count", Value),
        ("lifecycle_type", Value),
        ("limit", Value),
        ("local_path_cleaning_filters", Value),
        ("max_edge_weight", Value),
        ("min_edge_weight", Value),
        ("minimum_occurrences", Value),
        ("offset", Value),
        ("path_dropoff_key", Value),
        ("path_end_key", Value),
        ("path_groupings", Value),
        ("path_replacements", Value),
        ("path_start_key", Value),
        ("path_type", Value),
        ("paths_hogql_expression", Value),
        ("period", Value),
        ("properties", Filters),
        ("refresh", Value),
        ("retention_type", Value),
        ("returning_entity", Value),
        ("sampling_factor", Value),
        ("search", Value),
        ("selected_interval", Value),
        ("smoothing_intervals", Value),
        ("start_point", Value),
        ("step_limit", Value),
        ("stickiness_criteria", Value),
        ("stickiness_days", Value),
        ("target_date", Value),
        ("target_entity", Value),
        ("toggledLifecycles", Value),
        ("total_intervals", Value),
    ],
    ignored: &[
        (
            SHOWN,
            &[
                "aggregation_axis_format",
                "aggregation_axis_postfix",
                "aggregation_axis_prefix",
                "dashboard_display",
                "decimal_places",
                "funnel_step_reference",
                "goal_lines",
                "hiddenLegendIndexes",
                "hidden_legend_breakdowns",
                "hidden_legend_indexes",
                "hidden_legend_keys",
                "layout",
                "mean_retention_calculation",
                "min_decimal_places",
                "result_customization_by",
                "result_customizations",
                "retention_reference",
                "show_labels_on_series",
                "show_legend",
                "show_mean",
                "show_multiple_y_axes",
                "show_percent_stack_view",
                "show_values_on_series",
                "shown_as",
                "x_axis_label",
                "y_axis_label",
                "y_axis_scale_type",
            ],
        ),
        (
            OF_FORM,
            &[
                "entity_name",
                "from_dashboard",
                "funnel_advanced",
                "is_simplified",
                "new_entity",
                "short_id",
                "type",
            ],
        ),
        (OF_SERVER, &["export_limit", "is_csv_export", "personal_api_key", "session_id", "token"]),
    ],
    lacking: &["data_warehouse", "time_window_mode", "wildcards"],
    ..NOTHING
};

/// Refuses filters of older clients with an unknown field. Values may be JSON, or the text of it, which `parse` reads.
///
/// # Errors
///
/// The first such field.
pub fn check(
    filter: &Map<String, serde_json::Value>,
    parse: impl Fn(&str) -> Option<serde_json::Value>,
) -> Result<(), NodeError> {
    let nested = |name: &String, value: &serde_json::Value| {
        let form = FILTER.form(name)?;
        if matches!(form, Form::Value) {
            return None;
        }
        // A text that is no JSON is for the reader of the field to refuse.
        Some((name.clone(), parse(value.as_str()?)?))
    };
    check_object(&serde_json::Value::Object(filter.clone()), &FILTER, "")?;
    let texts: Map<_, _> = filter.iter().filter_map(|(name, value)| nested(name, value)).collect();
    check_object(&serde_json::Value::Object(texts), &FILTER, "")
}
