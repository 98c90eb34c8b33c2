//! What a flag gives to whom, as it is drawn: [`FlagFilters`]; and what a change of a flag changed: [`Change`].

use serde_json::Value;

use crate::parts::{plain, short};
use crate::state::json::{items, text};
use crate::state::rules::Conditions;
use weir_api::activity::Entry;
use weir_event::json as reader;

/// Filters of a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagFilters {
    /// Who gets it.
    pub conditions: Conditions,
    /// The variants.
    pub variants: Vec<Variant>,
    /// Key and value of the payloads that clients get.
    pub payloads: Vec<(String, String)>,
}

/// A variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its part, in percent.
    pub percent: String,
}

impl FlagFilters {
    /// Stored filters.
    pub fn of(stored: &Value) -> Self {
        let variants = stored.get("multivariate").map(|of| items(of, "variants"));
        let variant = |own: &Value| Variant {
            key: text(own, "key").to_owned(),
            name: text(own, "name").to_owned(),
            percent: plain(own.get("rollout_percentage").unwrap_or(&Value::Null)),
        };
        let payloads = stored.get("payloads").and_then(Value::as_object);
        let payloads = payloads.into_iter().flatten();
        Self {
            conditions: Conditions::of(stored),
            variants: variants.unwrap_or_default().iter().map(variant).collect(),
            payloads: payloads.map(|(key, payload)| (key.clone(), short(payload))).collect(),
        }
    }
}

/// A changed field.
#[derive(Clone, Debug)]
pub enum Change {
    /// The filters, before and after. Variants and payloads that stayed the same are left out.
    Filters(Box<[FlagFilters; 2]>),
    /// Another field: its name, and its value before and after.
    Field(String, [String; 2]),
}

impl Change {
    /// Those of an entry of the activity log.
    pub fn all(entry: &Entry) -> Vec<Self> {
        let stored = entry.detail.changes.as_ref();
        let read = stored.map(|changes| reader::restore::<Vec<Value>>(changes.get().as_bytes()));
        let changes = read.and_then(Result::ok).unwrap_or_default();
        changes.iter().map(Self::of).collect()
    }

    fn of(stored: &Value) -> Self {
        let [before, after] =
            ["before", "after"].map(|side| stored.get(side).unwrap_or(&Value::Null));
        match text(stored, "field") {
            "filters" => Self::Filters(Box::new([unlike(before, after), unlike(after, before)])),
            field => Self::Field(field.to_owned(), [short(before), short(after)]),
        }
    }

    /// Whether it is one of the flag itself, of which each makes a version.
    pub fn is_of_flag(&self) -> bool {
        !matches!(self, Self::Field(field, _) if field == "role_access")
    }
}

/// Filters without the variants and payloads that are equal on the other side.
fn unlike(filters: &Value, other: &Value) -> FlagFilters {
    let is_same = |name: &str| filters.get(name) == other.get(name);
    let mut own = FlagFilters::of(filters);
    if is_same("multivariate") {
        own.variants.clear();
    }
    if is_same("payloads") {
        own.payloads.clear();
    }
    own
}

/// The effect of a scheduled change.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduledEffect {
    /// It turns the flag on or off.
    Switch(bool),
    /// It adds conditions.
    Conditions(Conditions),
    /// Another operation with its value.
    Other(String, String),
}

impl ScheduledEffect {
    /// That of a stored payload.
    pub fn of(payload: &Value) -> Self {
        let value = payload.get("value").unwrap_or(&Value::Null);
        match text(payload, "operation") {
            "update_status" => Self::Switch(value == &Value::Bool(true)),
            "add_release_condition" => Self::Conditions(Conditions::of(value)),
            other => Self::Other(other.replace('_', " "), short(value)),
        }
    }
}
