//! What charts of all kinds read of answers: values of breakdowns and texts; and what they make of them: [`Shown`].

use maud::Markup;
use serde_json::Value;

use crate::chart::table::Table;

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
pub(super) fn values(value: Option<&Value>) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(values)) => values.iter().map(text).collect(),
        Some(one) => vec![text(one)],
    }
}

/// The texts of a field that is a list, numbers too.
pub(super) fn texts(of: &Value, name: &str) -> Vec<String> {
    values(Some(of.get(name).unwrap_or(&Value::Array(Vec::new()))))
}
