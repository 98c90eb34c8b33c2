//! Common code for results of all kinds of insights: values of breakdowns, and the rendered result: [`Shown`].

use maud::Markup;

use crate::chart::table::Table;
use weir_api::insights::value::BreakdownValue;

/// Display names of the placeholder values of a breakdown: events without a value, and all other values.
const BREAKDOWN_NAMES: [(&str, &str); 3] = [
    ("$$_posthog_breakdown_null_$$", "(none)"),
    ("$$_posthog_breakdown_other_$$", "(all others)"),
    ("", "(empty)"),
];

/// A rendered result.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The chart.
    pub chart: Markup,
    /// Its numbers.
    pub table: Table,
    /// Whether the chart is itself a table of all its numbers.
    pub is_table: bool,
    /// Whether nothing matches the query.
    pub is_empty: bool,
}

/// Display name of a breakdown value.
pub(super) fn value_name(value: &str) -> &str {
    BREAKDOWN_NAMES.iter().find(|(own, _)| *own == value).map_or(value, |(_, name)| name)
}

/// The breakdown values of a result: texts of one or of several properties.
pub(super) fn values(value: Option<&BreakdownValue>) -> Vec<String> {
    match value {
        None => Vec::new(),
        Some(BreakdownValue::Cohort(id)) => vec![id.to_string()],
        Some(BreakdownValue::One(value)) => vec![value.clone()],
        Some(BreakdownValue::Several(values)) => values.clone(),
    }
}
