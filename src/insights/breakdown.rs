//! Breakdown of an insight by property values or cohorts: [`Breakdown`].

use std::collections::HashSet;

use datafusion::functions::expr_fn::concat;
use datafusion::logical_expr::Expr;
use datafusion::prelude::lit;
use serde_json::{Value, json};

use crate::filters::Filters;
use crate::property::{Owner, Property};
use crate::selection::Unit;
use weir_api::node::{NodeError, shortened};
use weir_api::nodes::base::{BreakdownFilter, BreakdownProperty};
use weir_query::dialect::expression::Expression;
use weir_query::events::event_sessions;
use weir_query::events::event_sessions::Kind;
use weir_query::filter::matches::metadata_column;
use weir_query::kernel::error::QueryError;

/// Default of `breakdown_limit`, the number of values (PostHog's figure).
const BREAKDOWN_LIMIT: usize = 25;

/// Largest `breakdown_limit`.
const BREAKDOWN_LIMIT_MAX: usize = 500;

/// Largest `breakdown_offset`.
const OFFSET_MAX: usize = 10_000;

/// Most properties that one breakdown combines (PostHog's figure).
const BREAKDOWNS_MAX: usize = 3;

/// Most bins of the numbers of one property.
const BINS_MAX: u16 = 500;

/// Most cohorts of one breakdown.
const COHORTS_MAX: usize = 25;

/// Separates the values of several properties in one text.
pub const SEPARATOR: &str = "\u{1f}";

/// Breakdown value that represents all values beyond the limit together (PostHog's).
pub const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// The values of several properties concatenated to one text, as plans represent them.
pub fn joined(values: impl IntoIterator<Item = Expr>) -> Expr {
    let mut parts = Vec::new();
    for value in values {
        if !parts.is_empty() {
            parts.push(lit(SEPARATOR));
        }
        parts.push(value);
    }
    match parts.len() {
        0 => lit(""),
        1 => parts.swap_remove(0),
        _ => concat(parts),
    }
}

/// The text in plans for a breakdown value as a client sends it; for several properties that is a list.
pub fn value_sent(value: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(SEPARATOR),
        one => text(one),
    }
}

/// The breakdown value whose actors a client requests; an empty list means none.
pub fn of_value(sent: Option<&Value>) -> Option<Value> {
    sent.filter(|value| value.as_array().is_none_or(|values| !values.is_empty())).cloned()
}

/// Filter of breakdown values.
#[derive(Debug)]
pub enum OfValue {
    /// All values.
    Any,
    /// Only this one.
    One(String),
    /// All but these.
    Others(HashSet<String>),
}

impl OfValue {
    /// Whether a value counts.
    pub fn has(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(own) => own == value,
            Self::Others(shown) => !shown.contains(value),
        }
    }
}

/// The breakdown of a series or a funnel.
#[derive(Clone, Debug)]
pub enum Breakdown {
    /// No breakdown.
    Nothing,
    /// Breakdown by the combined values of properties.
    Properties {
        /// The properties: at least one.
        properties: Vec<Property>,
        /// Number of values that are shown on their own.
        limit: usize,
        /// In trends: how many larger values are skipped before them, those of earlier pages.
        offset: usize,
        /// Whether the values beyond the limit are omitted, instead of shown as one.
        is_other_hidden: bool,
    },
    /// Breakdown by cohort ids; `None` represents all persons.
    Cohorts(Vec<Option<i64>>),
}

impl Breakdown {
    /// Parses a `breakdownFilter`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn of(sent: BreakdownFilter) -> Result<Self, NodeError> {
        let limit = sent.breakdown_limit.unwrap_or(BREAKDOWN_LIMIT);
        if limit == 0 || limit > BREAKDOWN_LIMIT_MAX {
            return Err(refused(
                "breakdown_limit",
                format!("Expected 1 to {BREAKDOWN_LIMIT_MAX}."),
            ));
        }
        let offset = sent.breakdown_offset.unwrap_or(0);
        if offset > OFFSET_MAX {
            return Err(refused("breakdown_offset", format!("Expected at most {OFFSET_MAX}.")));
        }
        let is_other_hidden = sent.breakdown_hide_other_aggregation;
        if sent.breakdowns.len() > BREAKDOWNS_MAX {
            let detail = format!("Expected at most {BREAKDOWNS_MAX} breakdowns.");
            return Err(refused("breakdowns", detail));
        }
        if !sent.breakdowns.is_empty() {
            let numbered = sent.breakdowns.into_iter().enumerate();
            let properties = numbered.map(|(at, one)| one_of_several(one, at));
            let properties = properties.collect::<Result<Vec<_>, _>>()?;
            return Ok(Self::Properties { properties, limit, offset, is_other_hidden });
        }
        let Some(breakdown) = sent.breakdown else { return Ok(Self::Nothing) };
        if sent.breakdown_type.as_deref() == Some("cohort") {
            return cohorts(&breakdown);
        }
        let keys: Vec<&str> = match &breakdown {
            Value::Array(keys) => {
                keys.iter().map(Value::as_str).collect::<Option<_>>().unwrap_or_default()
            }
            one => one.as_str().into_iter().collect(),
        };
        if keys.is_empty() || keys.len() > BREAKDOWNS_MAX {
            let detail = format!("Expected the names of 1 to {BREAKDOWNS_MAX} properties.");
            return Err(refused("breakdown", detail));
        }
        let bins =
            bins(sent.breakdown_histogram_bin_count, &field("breakdown_histogram_bin_count"))?;
        let one = |key: &&str| {
            let owner = Owned {
                key,
                owner: sent.breakdown_type.as_deref(),
                group: sent.breakdown_group_type_index,
                names: ["breakdown", "breakdown_type", "breakdown_group_type_index"].map(field),
            };
            let is_url = sent.breakdown_normalize_url;
            Ok(Property { is_url, bins, ..owner.property()? })
        };
        let properties = keys.iter().map(one).collect::<Result<Vec<_>, NodeError>>()?;
        Ok(Self::Properties { properties, limit, offset, is_other_hidden })
    }

    /// Parses the `breakdownFilter` of an insight that shows only the largest values, without further pages.
    ///
    /// # Errors
    ///
    /// As [`Breakdown::of`]; or it has an offset.
    pub fn unpaged(sent: BreakdownFilter) -> Result<Self, NodeError> {
        match Self::of(sent)? {
            Self::Properties { offset, .. } if offset > 0 => {
                Err(refused("breakdown_offset", "Only trends have further pages of values."))
            }
            other => Ok(other),
        }
    }

    /// The rank, among all values, of the first one after those that it shows on their own.
    pub fn end_of_page(&self) -> usize {
        match self {
            Self::Properties { limit, offset, .. } => offset.saturating_add(*limit),
            Self::Nothing | Self::Cohorts(_) => 0,
        }
    }
}

/// The path of a field of `breakdownFilter`.
fn field(name: &str) -> String {
    format!("breakdownFilter.{name}")
}

fn refused(name: &str, detail: impl Into<String>) -> NodeError {
    NodeError::new(field(name), detail)
}

/// One of several properties that are combined.
fn one_of_several(sent: BreakdownProperty, at: usize) -> Result<Property, NodeError> {
    let path = |name: &str| format!("breakdownFilter.breakdowns.{at}.{name}");
    let Some(key) = sent.property else {
        return Err(NodeError::new(path("property"), "This field is required."));
    };
    let owned = Owned {
        key: &key,
        owner: sent.kind.as_deref(),
        group: sent.group_type_index,
        names: ["property", "type", "group_type_index"].map(path),
    };
    let bins = bins(sent.histogram_bin_count, &path("histogram_bin_count"))?;
    Ok(Property { is_url: sent.normalize_url, bins, ..owned.property()? })
}

/// A property that a breakdown names, and the entity that has it.
struct Owned<'s> {
    key: &'s str,
    owner: Option<&'s str>,
    group: Option<usize>,
    /// The request fields that contain these three.
    names: [String; 3],
}

impl Owned<'_> {
    fn property(&self) -> Result<Property, NodeError> {
        let [of_key, of_owner, of_group] = &self.names;
        let key = self.key;
        let owner = match self.owner.unwrap_or("event") {
            "event" => Owner::Event,
            "person" => Owner::Person,
            "group" => match Unit::of(self.group, of_group)? {
                Unit::Groups(index) => Owner::Group(index),
                Unit::Persons => {
                    let detail = "A valid group type index is required.";
                    return Err(NodeError::new(of_group, detail));
                }
            },
            "session" => match event_sessions::kind(key) {
                Some(Kind::Text | Kind::Number | Kind::Truth) => Owner::Session,
                Some(Kind::Time) | None => {
                    let key = shortened(key);
                    let detail = format!("A breakdown by {key} of sessions is not available.");
                    return Err(NodeError::new(of_owner, detail));
                }
            },
            "event_metadata" => match metadata_column(key) {
                Some(_) => Owner::EventMetadata,
                None => {
                    let key = shortened(key);
                    let detail = format!("Events have no \"{key}\" besides their properties.");
                    return Err(NodeError::new(of_owner, detail));
                }
            },
            "hogql" => {
                let wrong = |error: QueryError| NodeError::new(of_key, error.to_string());
                Expression::parse(key).map_err(wrong)?;
                Owner::Expression
            }
            other => {
                let other = shortened(other);
                let detail = format!("A breakdown by the type {other} is not available.");
                return Err(NodeError::new(of_owner, detail));
            }
        };
        Ok(Property::plain(owner, key))
    }
}

/// Parses the number of histogram bins of a property, from the request field `name`.
fn bins(sent: Option<usize>, name: &str) -> Result<Option<u16>, NodeError> {
    let Some(sent) = sent else { return Ok(None) };
    let bins = u16::try_from(sent).ok().filter(|bins| (1..=BINS_MAX).contains(bins));
    let wrong = || NodeError::new(name, format!("Expected 1 to {BINS_MAX}."));
    Ok(Some(bins.ok_or_else(wrong)?))
}

fn cohorts(sent: &Value) -> Result<Breakdown, NodeError> {
    let list = match sent {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let wrong = || refused("breakdown", "Expected ids of cohorts, or \"all\".");
    let one = |id: &Value| match id {
        Value::String(text) if text == "all" => Ok(None),
        Value::String(text) => text.parse().map(Some).map_err(|_| wrong()),
        Value::Number(number) if number.as_i64() == Some(0) => Ok(None),
        other => other.as_i64().map(Some).ok_or_else(wrong),
    };
    if list.is_empty() || list.len() > COHORTS_MAX {
        return Err(refused("breakdown", format!("Expected 1 to {COHORTS_MAX} cohorts.")));
    }
    Ok(Breakdown::Cohorts(list.iter().map(one).collect::<Result<_, _>>()?))
}

/// The filters, and that the person is in a cohort; `None` represents all persons.
///
/// # Errors
///
/// There are too many filters with the additional one.
pub fn in_cohort(filters: &Filters, cohort: Option<i64>) -> Result<Filters, NodeError> {
    let mut filters = filters.clone();
    if let Some(id) = cohort {
        let filter = json!([{"key": "id", "type": "cohort", "value": id}]);
        filters.add(&filter, "breakdownFilter.breakdown")?;
    }
    Ok(filters)
}
