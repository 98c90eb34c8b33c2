//! What an insight is split by: [`Breakdown`].

use std::collections::HashSet;

use datafusion::functions::expr_fn::concat;
use datafusion::logical_expr::Expr;
use datafusion::prelude::lit;
use serde_json::{Value, json};

use crate::filters::Filters;
use crate::node::{Node, NodeError};
use crate::property::{Owner, Property};
use crate::selection::Unit;
use weir_query::dialect::expression::Expression;
use weir_query::events::event_sessions;
use weir_query::events::event_sessions::Kind;
use weir_query::filter::matches::metadata_column;

/// Values of a breakdown unless a request says otherwise (PostHog's figure).
const BREAKDOWN_LIMIT: usize = 25;

/// Most values of a breakdown that a request may ask for.
const BREAKDOWN_LIMIT_MAX: usize = 500;

/// Most values before those of a page.
const OFFSET_MAX: usize = 10_000;

/// Most properties that one breakdown combines (PostHog's figure).
const BREAKDOWNS_MAX: usize = 3;

/// Most bins of the numbers of one property.
const BINS_MAX: u16 = 500;

/// Most cohorts of one breakdown.
const COHORTS_MAX: usize = 25;

/// Between the values of several properties.
pub const SEPARATOR: &str = "\u{1f}";

/// The value of a breakdown that stands for all beyond the limit (PostHog's).
pub const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// The values of several properties as one text, as plans have it.
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

/// A value as a client sends it, a list where there are several properties, as plans have it.
pub fn value_sent(value: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(SEPARATOR),
        one => text(one),
    }
}

/// Which values of a breakdown count.
#[derive(Debug)]
pub enum OfValue {
    /// All.
    Any,
    /// This one.
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

/// What a series or a funnel is split by.
#[derive(Clone, Debug)]
pub enum Breakdown {
    /// It is not split.
    Nothing,
    /// The values of properties together.
    Properties {
        /// The properties: one at least.
        properties: Vec<Property>,
        /// Most values that are shown on their own.
        limit: usize,
        /// How many larger ones come before them, in trends: the values of earlier pages.
        offset: usize,
        /// Whether the values beyond the limit are left out, instead of shown together.
        is_other_hidden: bool,
    },
    /// Cohorts by their ids; `None` is everybody.
    Cohorts(Vec<Option<i64>>),
}

impl Breakdown {
    /// Reads a `breakdownFilter`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(filter: Option<&Value>) -> Result<Self, NodeError> {
        let node = Node::new(filter, "breakdownFilter")?;
        let limit = node.number("breakdown_limit")?.unwrap_or(BREAKDOWN_LIMIT);
        if limit == 0 || limit > BREAKDOWN_LIMIT_MAX {
            let detail = format!("Expected 1 to {BREAKDOWN_LIMIT_MAX}.");
            return Err(node.refuse("breakdown_limit", detail));
        }
        let offset = node.number("breakdown_offset")?.unwrap_or(0);
        if offset > OFFSET_MAX {
            let detail = format!("Expected at most {OFFSET_MAX}.");
            return Err(node.refuse("breakdown_offset", detail));
        }
        let is_other_hidden = node.truth("breakdown_hide_other_aggregation")?;
        let several = node.list("breakdowns")?;
        if several.len() > BREAKDOWNS_MAX {
            let detail = format!("Expected at most {BREAKDOWNS_MAX} breakdowns.");
            return Err(node.refuse("breakdowns", detail));
        }
        if !several.is_empty() {
            let one = |(breakdown, at): (&Value, usize)| {
                let path = format!("breakdownFilter.breakdowns.{at}");
                let node = Node::new(Some(breakdown), &path)?;
                let key = node.text("property")?;
                let key = key.ok_or_else(|| node.refuse("property", "This field is required."))?;
                let is_url = node.truth("normalize_url")?;
                let property = property(&node, (key, "type"), "group_type_index")?;
                Ok(Property { is_url, bins: bins(&node, "histogram_bin_count")?, ..property })
            };
            let properties = several.iter().zip(0..).map(one).collect::<Result<Vec<_>, _>>()?;
            return Ok(Self::Properties { properties, limit, offset, is_other_hidden });
        }
        let Some(sent) = node.value("breakdown") else { return Ok(Self::Nothing) };
        if node.text("breakdown_type")? == Some("cohort") {
            return cohorts(&node, sent);
        }
        let keys: Vec<&str> = match sent {
            Value::Array(keys) => {
                keys.iter().map(Value::as_str).collect::<Option<_>>().unwrap_or_default()
            }
            one => one.as_str().into_iter().collect(),
        };
        if keys.is_empty() || keys.len() > BREAKDOWNS_MAX {
            let detail = format!("Expected the names of 1 to {BREAKDOWNS_MAX} properties.");
            return Err(node.refuse("breakdown", detail));
        }
        let is_url = node.truth("breakdown_normalize_url")?;
        let bins = bins(&node, "breakdown_histogram_bin_count")?;
        let one = |key: &&str| {
            let property = property(&node, (key, "breakdown_type"), "breakdown_group_type_index")?;
            Ok(Property { is_url, bins, ..property })
        };
        let properties = keys.iter().map(one).collect::<Result<Vec<_>, NodeError>>()?;
        Ok(Self::Properties { properties, limit, offset, is_other_hidden })
    }

    /// Reads a `breakdownFilter` of an insight that shows the largest values alone.
    ///
    /// # Errors
    ///
    /// As [`Breakdown::parse`]; or it has an offset.
    pub fn unpaged(filter: Option<&Value>) -> Result<Self, NodeError> {
        match Self::parse(filter)? {
            Self::Properties { offset, .. } if offset > 0 => {
                let node = Node::new(filter, "breakdownFilter")?;
                Err(node.refuse("breakdown_offset", "Only trends have further pages of values."))
            }
            other => Ok(other),
        }
    }

    /// The place of the first value, among all, that comes after those that a `breakdownFilter` shows on their own.
    pub fn end_of_page(filter: Option<&Value>) -> usize {
        match Self::parse(filter) {
            Ok(Self::Properties { limit, offset, .. }) => offset.saturating_add(limit),
            _ => 0,
        }
    }
}

/// A property that a breakdown names; the type stands in the field `kind`, and that of a group in `index`.
fn property(
    node: &Node<'_>,
    (key, kind): (&str, &str),
    index: &str,
) -> Result<Property, NodeError> {
    let owner = match node.text(kind)?.unwrap_or("event") {
        "event" => Owner::Event,
        "person" => Owner::Person,
        "group" => match Unit::parse(node, index)? {
            Unit::Groups(index) => Owner::Group(index),
            Unit::Persons => {
                return Err(node.refuse(index, "A valid group type index is required."));
            }
        },
        "session" => match event_sessions::kind(key) {
            Some(Kind::Text | Kind::Number | Kind::Truth) => Owner::Session,
            Some(Kind::Time) | None => {
                let key: String = key.chars().take(100).collect();
                let detail = format!("A breakdown by {key} of sessions is not available.");
                return Err(node.refuse(kind, detail));
            }
        },
        "event_metadata" => match metadata_column(key) {
            Some(_) => Owner::EventMetadata,
            None => {
                let key: String = key.chars().take(100).collect();
                let detail = format!("Events have no \"{key}\" besides their properties.");
                return Err(node.refuse(kind, detail));
            }
        },
        "hogql" => {
            let own = if kind == "type" { "property" } else { "breakdown" };
            Expression::parse(key).map_err(|error| node.refuse(own, error.to_string()))?;
            Owner::Expression
        }
        other => {
            let other: String = other.chars().take(100).collect();
            let detail = format!("A breakdown by the type {other} is not available.");
            return Err(node.refuse(kind, detail));
        }
    };
    Ok(Property::plain(owner, key))
}

/// How many bins the numbers of a property are put into: in the field `name`.
fn bins(node: &Node<'_>, name: &str) -> Result<Option<u16>, NodeError> {
    let Some(sent) = node.number(name)? else { return Ok(None) };
    let bins = u16::try_from(sent).ok().filter(|bins| (1..=BINS_MAX).contains(bins));
    let wrong = || node.refuse(name, format!("Expected 1 to {BINS_MAX}."));
    Ok(Some(bins.ok_or_else(wrong)?))
}

fn cohorts(node: &Node<'_>, sent: &Value) -> Result<Breakdown, NodeError> {
    let list = match sent {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let wrong = || node.refuse("breakdown", "Expected ids of cohorts, or \"all\".");
    let one = |id: &Value| match id {
        Value::String(text) if text == "all" => Ok(None),
        Value::String(text) => text.parse().map(Some).map_err(|_| wrong()),
        Value::Number(number) if number.as_i64() == Some(0) => Ok(None),
        other => other.as_i64().map(Some).ok_or_else(wrong),
    };
    if list.is_empty() || list.len() > COHORTS_MAX {
        return Err(node.refuse("breakdown", format!("Expected 1 to {COHORTS_MAX} cohorts.")));
    }
    Ok(Breakdown::Cohorts(list.iter().map(one).collect::<Result<_, _>>()?))
}

/// The filters, and that the person is in a cohort; `None` is everybody.
///
/// # Errors
///
/// There are too many filters with it.
pub fn in_cohort(filters: &Filters, cohort: Option<i64>) -> Result<Filters, NodeError> {
    let mut filters = filters.clone();
    if let Some(id) = cohort {
        let filter = json!([{"key": "id", "type": "cohort", "value": id}]);
        filters.add(&filter, "breakdownFilter.breakdown")?;
    }
    Ok(filters)
}
