//! What charts of all kinds read of answers: values of breakdowns; and what they make of them: [`Shown`].

use maud::Markup;

use crate::chart::table::Table;
use weir_api::insights::value::BreakdownValue;

/// How a value of a breakdown is called that stands for events without one, and for all other values.
const BREAKDOWN_NAMES: [(&str, &str); 3] = [
    ("$$_posthog_breakdown_null_$$", "(none)"),
    ("$$_posthog_breakdown_other_$$", "(all others)"),
    ("", "(empty)"),
];

/// An answer that is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The chart.
    pub chart: Markup,
    /// Its numbers.
    pub table: Table,
    /// Whether the chart is itself a table of all of them.
    pub is_table: bool,
    /// Whether nothing fits the question.
    pub is_empty: bool,
}

/// What users call a value of a breakdown.
pub(super) fn value_name(value: &str) -> &str {
    BREAKDOWN_NAMES.iter().find(|(own, _)| *own == value).map_or(value, |(_, name)| name)
}

/// The values of a breakdown in an answer: texts of one or of several properties.
pub(super) fn values(value: Option<&BreakdownValue>) -> Vec<String> {
    match value {
        None => Vec::new(),
        Some(BreakdownValue::Cohort(id)) => vec![id.to_string()],
        Some(BreakdownValue::One(value)) => vec![value.clone()],
        Some(BreakdownValue::Several(values)) => values.clone(),
    }
}
