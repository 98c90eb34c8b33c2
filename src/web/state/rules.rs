//! Conditions of flags, rules of cohorts and filters of dashboards, as they are drawn: [`Conditions`], [`Rule`],
//! [`Filter`]. Read from the JSON that users stored; what has no meaning is left out.

use serde_json::Value;

use crate::parts::{plain, short};
use crate::state::json::{is_true, items, text};

/// Most levels of nested rules that are read; a deeper one is drawn as a filter.
const DEPTH_MAX: usize = 8;

/// Most values of a filter, and filters of an event, that are drawn.
const SHOWN_MAX: usize = 20;

/// Who gets a flag, or is in a cohort.
#[derive(Clone, Debug, PartialEq)]
pub enum Conditions {
    /// The conditions of a flag, any of which has to hold.
    OfFlag(Vec<Condition>),
    /// The rule of a cohort.
    OfCohort(Rule),
}

/// A condition of a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The rollout percentage.
    pub percent: String,
    /// The filters, all of which have to match.
    pub filters: Vec<Filter>,
    /// The variant that matching persons get.
    pub variant: Option<String>,
}

/// Filters, and groups of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// All of these, or any of them.
    Group {
        /// Whether any is enough.
        is_any: bool,
        /// The rules.
        rules: Vec<Rule>,
    },
    /// A filter.
    Filter(Filter),
}

/// A filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// What it looks at.
    pub of: Subject,
    /// The operator.
    pub operator: String,
    /// The values, as text; any of them.
    pub value: String,
    /// Whether it is negated.
    pub is_not: bool,
}

/// What a filter looks at.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A property, of the group if it says so.
    Property {
        /// Its key.
        key: String,
        /// Whether it is one of the group.
        is_of_group: bool,
    },
    /// Whether somebody is in a cohort, whose name is known, or not.
    Cohort(String),
    /// What somebody did.
    Behavior(Box<Behavior>),
}

impl Default for Subject {
    fn default() -> Self {
        Self::Property { key: String::new(), is_of_group: false }
    }
}

/// An event that a person did.
#[derive(Clone, Debug, PartialEq)]
pub struct Behavior {
    /// The kind of filter, such as `performed_event`.
    pub kind: String,
    /// The event.
    pub event: String,
    /// How often, in words and a number; empty for any number of times.
    pub times: (String, String),
    /// Since when; empty without a fixed time.
    pub since: String,
    /// The number and unit of the time before now; empty without one.
    pub within: (String, String),
    /// Filters of the event.
    pub filters: Vec<Filter>,
}

impl Conditions {
    /// Those in the filters of a flag or a cohort.
    pub fn of(filters: &Value) -> Self {
        match filters.get("properties") {
            Some(rules) => Self::OfCohort(Rule::of(rules)),
            None => Self::OfFlag(Condition::all(filters)),
        }
    }
}

impl Condition {
    /// Those in the filters of a flag.
    pub fn all(filters: &Value) -> Vec<Self> {
        items(filters, "groups").iter().map(Self::of).collect()
    }

    /// A stored condition.
    pub fn of(stored: &Value) -> Self {
        let percent = match stored.get("rollout_percentage") {
            None | Some(Value::Null) => "100".to_owned(),
            Some(part) => plain(part),
        };
        let variant = stored.get("variant").and_then(Value::as_str);
        Self {
            percent: format!("{percent} %"),
            filters: items(stored, "properties").iter().map(Filter::of).collect(),
            variant: variant.map(str::to_owned),
        }
    }
}

impl Rule {
    /// A tree of rules, or a list of rules joined by AND.
    pub fn of(stored: &Value) -> Self {
        match stored.as_array() {
            Some(list) => {
                let rules = list.iter().map(|rule| Self::of_depth(rule, 1)).collect();
                Self::Group { is_any: false, rules }
            }
            None => Self::of_depth(stored, 0),
        }
    }

    fn of_depth(stored: &Value, depth: usize) -> Self {
        let values = items(stored, "values");
        if values.is_empty() || depth > DEPTH_MAX {
            return Self::Filter(Filter::of(stored));
        }
        if let [only] = values {
            return Self::of_depth(only, depth + 1);
        }
        let rules = values.iter().map(|rule| Self::of_depth(rule, depth + 1)).collect();
        Self::Group { is_any: text(stored, "type").eq_ignore_ascii_case("or"), rules }
    }
}

impl Filter {
    /// A stored filter.
    pub fn of(stored: &Value) -> Self {
        let key = || short(stored.get("key").unwrap_or(&Value::Null));
        let of = match text(stored, "type") {
            "cohort" | "precalculated-cohort" | "static-cohort" => {
                Subject::Cohort(text(stored, "cohort_name").to_owned())
            }
            "behavioral" => Subject::Behavior(Box::new(Behavior::of(stored))),
            kind => Subject::Property { key: key(), is_of_group: kind == "group" },
        };
        Self {
            of,
            operator: text(stored, "operator").to_owned(),
            value: stored.get("value").map(values).unwrap_or_default(),
            is_not: is_true(stored, "negation"),
        }
    }

    /// A filter on a property of a person.
    pub fn on(key: &str, operator: &str, value: &Value) -> Self {
        let of = Subject::Property { key: key.to_owned(), is_of_group: false };
        Self { of, operator: operator.to_owned(), value: values(value), is_not: false }
    }
}

/// The value of a filter, or several.
fn values(value: &Value) -> String {
    match value {
        Value::Array(all) => all.iter().take(SHOWN_MAX).map(short).collect::<Vec<_>>().join(" or "),
        one => short(one),
    }
}

impl Behavior {
    fn of(stored: &Value) -> Self {
        let number = |name: &str| short(stored.get(name).unwrap_or(&Value::Null));
        let kind = text(stored, "value").to_owned();
        let often = match text(stored, "operator") {
            "gt" => "more than ",
            "gte" => "at least ",
            "lt" => "less than ",
            "lte" => "at most ",
            _ => "",
        };
        let times = match kind == "performed_event_multiple" {
            true => (often.to_owned(), number("operator_value")),
            false => (String::new(), String::new()),
        };
        Self {
            kind,
            event: number("key"),
            times,
            since: text(stored, "explicit_datetime").to_owned(),
            within: (number("time_value"), text(stored, "time_interval").to_owned()),
            filters: items(stored, "event_filters")
                .iter()
                .take(SHOWN_MAX)
                .map(Filter::of)
                .collect(),
        }
    }

    /// Whether this server evaluates it.
    pub fn is_computed(&self) -> bool {
        matches!(&*self.kind, "performed_event" | "performed_event_multiple")
    }
}
