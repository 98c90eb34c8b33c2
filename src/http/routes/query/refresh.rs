//! Controls how a result is obtained: the fields `refresh`, `async` and `client_query_id` of a query.

use serde_json::Value;

use crate::fields::{Fields, refused};
use crate::request::Request;
use crate::response::Problem;
use weir_insights::jobs::ID_MAX_BYTES;

/// The wire names.
const NAMES: [(&str, Refresh); 6] = [
    ("blocking", Refresh::Blocking),
    ("force_blocking", Refresh::ForceBlocking),
    ("force_cache", Refresh::ForceCache),
    ("async", Refresh::Async),
    // A cached result is never out of date, so the lazy mode does not differ.
    ("lazy_async", Refresh::Async),
    ("force_async", Refresh::ForceAsync),
];

/// How a result is obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::routes) enum Refresh {
    /// The cached one if it is still valid, else a new one.
    #[default]
    Blocking,
    /// A new one.
    ForceBlocking,
    /// The cached one, or none.
    ForceCache,
    /// The cached one if it is still valid, else a new one later.
    Async,
    /// A new one later.
    ForceAsync,
}

impl Refresh {
    /// Reads `refresh`, and `async` of older clients.
    pub(super) fn read(fields: &mut Fields) -> Result<Self, Problem> {
        let is_async = matches!(fields.nullable_value("async"), Some(Some(Value::Bool(true))));
        let otherwise = if is_async { Self::Async } else { Self::Blocking };
        match fields.nullable_value("refresh").flatten() {
            None | Some(Value::Bool(false)) => Ok(otherwise),
            Some(Value::Bool(true)) => Ok(Self::ForceBlocking),
            Some(value) => Self::named(value.as_str().unwrap_or_default()),
        }
    }

    /// Reads the parameter `refresh` of a saved insight. Without it, only a cached result is returned.
    pub(in crate::routes) fn of(request: &Request) -> Result<Self, Problem> {
        match request.query("refresh").as_deref() {
            None | Some("" | "false" | "0") => Ok(Self::ForceCache),
            Some("true" | "1") => Ok(Self::ForceBlocking),
            Some(name) => Self::named(name),
        }
    }

    fn named(text: &str) -> Result<Self, Problem> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        let detail = || format!("Expected one of {}.", NAMES.map(|(name, _)| name).join(", "));
        let wrong = || refused("refresh", "invalid_choice", detail());
        known.map(|(_, refresh)| *refresh).ok_or_else(wrong)
    }

    /// Whether a cached result is accepted.
    pub(in crate::routes) fn takes_kept(self) -> bool {
        matches!(self, Self::Blocking | Self::ForceCache | Self::Async)
    }

    /// Whether a new result is computed while the client does not wait.
    pub(in crate::routes) fn is_later(self) -> bool {
        matches!(self, Self::Async | Self::ForceAsync)
    }
}

/// Reads the id under which a client will fetch or cancel its query.
pub(super) fn client_query_id(fields: &mut Fields) -> Result<Option<String>, Problem> {
    const NAME: &str = "client_query_id";
    match fields.nullable_value(NAME).flatten() {
        None => Ok(None),
        Some(Value::String(id)) if id.is_empty() => Ok(None),
        Some(Value::String(id)) if id.len() <= ID_MAX_BYTES && !id.contains('/') => Ok(Some(id)),
        Some(_) => {
            let detail =
                format!("Expected a text of at most {ID_MAX_BYTES} bytes without a slash.");
            Err(refused(NAME, "invalid_input", detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Refresh, client_query_id};
    use crate::fields::Fields;

    fn fields(body: &Value) -> Fields {
        Fields::parse("application/json", body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn modes_are_read_in_all_their_forms() {
        for (body, expected) in [
            (json!({}), Some(Refresh::Blocking)),
            (json!({"refresh": null}), Some(Refresh::Blocking)),
            (json!({"refresh": false}), Some(Refresh::Blocking)),
            (json!({"refresh": true, "async": true}), Some(Refresh::ForceBlocking)),
            (json!({"refresh": "force_cache"}), Some(Refresh::ForceCache)),
            (json!({"refresh": "lazy_async"}), Some(Refresh::Async)),
            (json!({"async": true}), Some(Refresh::Async)),
            (json!({"refresh": "force_async"}), Some(Refresh::ForceAsync)),
            (json!({"refresh": "soon"}), None),
            (json!({"refresh": 1}), None),
        ] {
            assert_eq!(Refresh::read(&mut fields(&body)).ok(), expected, "{body}");
        }
        let id = |body: Value| client_query_id(&mut fields(&body)).ok();
        assert_eq!(id(json!({"client_query_id": "a-b"})), Some(Some("a-b".to_owned())));
        assert_eq!(id(json!({"client_query_id": ""})), Some(None));
        assert_eq!(id(json!({"client_query_id": "a/b"})), None);
        assert_eq!(id(json!({"client_query_id": "x".repeat(201)})), None);
        assert_eq!(id(json!({"client_query_id": 4})), None);
    }
}
