//! The operation of a scheduled change: its payload, and the change of a flag that it makes. Pure.
//! A payload may be as long as the filters of a flag.

use serde_json::{Map, Value};

use crate::flag_rules::FILTERS_MAX_BYTES;
use crate::flags::{FlagPatch, StoredFlag};
use crate::violation::Violation;

/// The parsed payload of a change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    /// Activates or deactivates the flag.
    UpdateStatus(bool),
    /// Appends conditions to those that the flag has at that time.
    AddReleaseCondition(Vec<Value>),
    /// Replaces variants and payloads.
    UpdateVariants { variants: Value, payloads: Value },
}

impl Operation {
    /// Parses `{"operation", "value"}`.
    ///
    /// # Errors
    ///
    /// A violation in `payload`. Whether the flag accepts it is not checked.
    pub(super) fn read(payload: &Value) -> Result<Self, Violation> {
        if payload.to_string().len() > FILTERS_MAX_BYTES {
            return Err(wrong(format!("Payload is larger than {FILTERS_MAX_BYTES} bytes.")));
        }
        let name = payload.get("operation").and_then(Value::as_str);
        let (Some(name), Some(value)) = (name, payload.get("value")) else {
            return Err(wrong("Invalid payload"));
        };
        let object = || value.as_object().ok_or_else(|| wrong("Invalid payload"));
        match name {
            "update_status" => {
                let active = value.as_bool().ok_or_else(|| wrong("Must be a valid boolean."))?;
                Ok(Self::UpdateStatus(active))
            }
            "add_release_condition" => match object()?.get("groups") {
                None => Ok(Self::AddReleaseCondition(Vec::new())),
                Some(Value::Array(groups)) => Ok(Self::AddReleaseCondition(groups.clone())),
                Some(_) => Err(wrong("Invalid payload")),
            },
            "update_variants" => {
                let value = object()?;
                let part = |name: &str, default: Value| value.get(name).cloned().unwrap_or(default);
                Ok(Self::UpdateVariants {
                    variants: part("variants", Value::Array(Vec::new())),
                    payloads: part("payloads", Value::Object(Map::new())),
                })
            }
            other => Err(wrong(format!("Unrecognized operation: {other}"))),
        }
    }

    /// Whether repeating it changes more than applying it once.
    pub(super) fn accumulates(&self) -> bool {
        matches!(self, Self::AddReleaseCondition(_))
    }

    /// The change of `flag`.
    pub(super) fn patch(self, flag: &StoredFlag) -> FlagPatch {
        let mut filters = flag.filters.clone();
        match self {
            Self::UpdateStatus(active) => {
                return FlagPatch { active: Some(active), ..FlagPatch::default() };
            }
            Self::AddReleaseCondition(new) => {
                if let Some(Value::Array(groups)) = filters.get_mut("groups") {
                    groups.extend(new);
                }
            }
            Self::UpdateVariants { variants, payloads } => {
                if let Value::Object(filters) = &mut filters {
                    let multivariate = filters.entry("multivariate").or_insert(Value::Null);
                    if !multivariate.is_object() {
                        *multivariate = Value::Object(Map::new());
                    }
                    if let Value::Object(multivariate) = multivariate {
                        multivariate.insert("variants".to_owned(), variants);
                    }
                    filters.insert("payloads".to_owned(), payloads);
                }
            }
        }
        FlagPatch { filters: Some(filters), ..FlagPatch::default() }
    }
}

fn wrong(detail: impl Into<String>) -> Violation {
    Violation { code: "invalid_input", detail: detail.into(), attr: Some("payload") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Operation;

    #[test]
    fn invalid_payloads_are_rejected() {
        for (payload, detail) in [
            (json!({}), "Invalid payload"),
            (json!([]), "Invalid payload"),
            (json!("update_status"), "Invalid payload"),
            (json!({"operation": "update_status"}), "Invalid payload"),
            (json!({"operation": 1, "value": 1}), "Invalid payload"),
            (json!({"operation": "update_status", "value": "on"}), "Must be a valid boolean."),
            (json!({"operation": "add_release_condition", "value": []}), "Invalid payload"),
            (
                json!({"operation": "add_release_condition", "value": {"groups": 1}}),
                "Invalid payload",
            ),
            (json!({"operation": "update_variants", "value": null}), "Invalid payload"),
            (json!({"operation": "delete", "value": 1}), "Unrecognized operation: delete"),
        ] {
            let violation = Operation::read(&payload).unwrap_err();
            assert_eq!((violation.detail.as_str(), violation.attr), (detail, Some("payload")));
        }
    }
}
