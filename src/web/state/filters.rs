//! Conditions on events: [`Filter`], in an address as `f1.key`, `f1.op`, `f1.value` and `f1.of`.

use crate::state::parameters::{Parameters, Printer, Wrong};

/// Most filters of an insight, or of one of its series.
pub const FILTERS_MAX: usize = 20;

/// Most values of a filter.
const VALUES_MAX: usize = 100;

/// Owner of the property; the first is the default.
pub const OWNERS: [&str; 10] = [
    "event",
    "person",
    "cohort",
    "event_metadata",
    "person_metadata",
    "group0",
    "group1",
    "group2",
    "group3",
    "group4",
];

/// Operators and their display names; the first is the default.
pub const OPERATORS: [(&str, &str); 20] = [
    ("exact", "is"),
    ("is_not", "is not"),
    ("icontains", "contains"),
    ("not_icontains", "does not contain"),
    ("starts_with", "begins with"),
    ("not_starts_with", "does not begin with"),
    ("ends_with", "ends with"),
    ("not_ends_with", "does not end with"),
    ("regex", "matches"),
    ("not_regex", "does not match"),
    ("gt", ">"),
    ("gte", "≥"),
    ("lt", "<"),
    ("lte", "≤"),
    ("is_set", "is set"),
    ("is_not_set", "is not set"),
    ("is_date_exact", "is on"),
    ("is_date_before", "is before"),
    ("is_date_after", "is after"),
    ("not_in", "is not in"),
];

/// Operators without a value.
const WITHOUT_VALUE: [&str; 2] = ["is_set", "is_not_set"];

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// One of [`OWNERS`].
    pub owner: &'static str,
    /// The property; for a cohort its id.
    pub key: String,
    /// One of [`OPERATORS`].
    pub operator: &'static str,
    /// The values, of which any may match.
    pub values: Vec<String>,
}

impl Filter {
    /// Whether the filter has values.
    pub fn has_values(&self) -> bool {
        self.owner != "cohort" && !WITHOUT_VALUE.contains(&self.operator)
    }
}

/// Takes the filters whose names begin with `prefix`. Those without a key are skipped: forms have an empty row.
///
/// # Errors
///
/// One is incomplete or of an unknown kind.
pub fn parse(parameters: &mut Parameters, prefix: &str) -> Result<Vec<Filter>, Wrong> {
    let operators = OPERATORS.map(|(operator, _)| operator);
    let mut filters = Vec::new();
    for number in 1..=FILTERS_MAX {
        let name = |field: &str| format!("{prefix}f{number}.{field}");
        let key = parameters.take(&name("key"))?;
        let owner = parameters.choice(&name("of"), &OWNERS)?.unwrap_or("event");
        let operator = parameters.choice(&name("op"), &operators)?.unwrap_or("exact");
        let values = parameters.take_all(&name("value"));
        let Some(key) = key else { continue };
        let mut filter = Filter { owner, key, operator, values };
        if owner == "cohort" {
            if filter.key.parse::<u32>().is_err() {
                return Err(Wrong::new(name("key"), "Expected the id of a cohort."));
            }
            filter.operator = if operator == "not_in" { "not_in" } else { "exact" };
        } else if operator == "not_in" {
            return Err(Wrong::new(name("op"), "This compares with cohorts only."));
        }
        if !filter.has_values() {
            filter.values.clear();
        } else if filter.values.is_empty() {
            return Err(Wrong::new(name("value"), "A filter needs a value to compare with."));
        } else if filter.values.len() > VALUES_MAX {
            let detail = format!("A filter compares with at most {VALUES_MAX} values.");
            return Err(Wrong::new(name("value"), detail));
        }
        filters.push(filter);
    }
    Ok(filters)
}

/// Adds filters to an address.
pub fn print(filters: &[Filter], printer: &mut Printer, prefix: &str) {
    for (filter, number) in filters.iter().zip(1..) {
        let name = |field: &str| format!("{prefix}f{number}.{field}");
        printer.add(&name("of"), Some(filter.owner).filter(|owner| *owner != "event"));
        printer.add(&name("key"), Some(&filter.key));
        printer.add(&name("op"), Some(filter.operator).filter(|operator| *operator != "exact"));
        printer.add_all(&name("value"), &filter.values);
    }
}
