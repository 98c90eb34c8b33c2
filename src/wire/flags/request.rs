//! The body of a request to `/decide` or `/flags`.
//!
//! Read with patience: fields have several names, and an optional field of the wrong type is
//! ignored, because an SDK that is told 400 shows its users no flags at all.

use serde_json::Map;
use serde_json::Value;
use thiserror::Error;

use crate::error::Kind;
use crate::wire::flags::Query;
use crate::wire::repair::repair;

/// Characters of a distinct id that count; capture cuts at the same length.
const DISTINCT_ID_MAX_CHARS: usize = 200;

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The project API key.
    pub token: String,
    /// Who asks. Empty only if it was sent so, or not sent with `disable_flags`.
    pub distinct_id: String,
    /// Who asked before the login.
    pub anon_distinct_id: Option<String>,
    /// The device; from `$device_id` of the person properties if not sent as such.
    pub device_id: Option<String>,
    /// From group type to group key.
    pub groups: Map<String, Value>,
    /// What overlays the stored properties of the person.
    pub person_properties: Map<String, Value>,
    /// From group type to an object that overlays the stored properties of the group.
    pub group_properties: Map<String, Value>,
    /// Only these flags, if given.
    pub flag_keys: Option<Vec<String>>,
    /// Only flags of these contexts, if not empty.
    pub evaluation_contexts: Vec<String>,
    /// `server` or `client`, if the SDK says so.
    pub evaluation_runtime: Option<String>,
    /// Whether the address of the sender says nothing about the person.
    pub geoip_disable: bool,
    /// Whether only the configuration is asked for.
    pub disable_flags: bool,
}

/// A request that is not answered.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The body is not JSON, even after repairs.
    #[error("malformed request data")]
    Malformed(#[source] serde_json::Error),
    /// The body is JSON of another kind.
    #[error("malformed request data: the body is not a JSON object")]
    NotAnObject,
    /// Neither the body nor the query has a token.
    #[error(
        "project API key missing: send it as api_key or token in the body, or as token in the query"
    )]
    MissingToken,
    /// The body does not say who asks.
    #[error("malformed request data: distinct_id is missing")]
    MissingDistinctId,
}

impl RequestError {
    /// What the sender can do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::MissingToken => Kind::Unauthorized,
            Self::Malformed(_) | Self::NotAnObject | Self::MissingDistinctId => Kind::Invalid,
        }
    }

    /// The code of the error body, from the error table of the API specification.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingToken => "invalid_api_key",
            Self::Malformed(_) | Self::NotAnObject | Self::MissingDistinctId => "invalid_payload",
        }
    }
}

/// Reads JSON as SDKs write it: one broken value must not cost the request.
fn json(body: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(body).or_else(|error| {
        let repaired = repair(body).and_then(|body| serde_json::from_slice(&body).ok());
        repaired.ok_or(error)
    })
}

impl Request {
    /// Reads a body that is decoded already.
    ///
    /// # Errors
    ///
    /// [`RequestError`]; none of them is worth another try.
    pub fn parse(body: &[u8], query: &Query) -> Result<Self, RequestError> {
        let body = json(body).map_err(RequestError::Malformed)?;
        let Value::Object(mut fields) = body else { return Err(RequestError::NotAnObject) };
        let token = token(&fields).or_else(|| query.token.clone());
        let token = token.ok_or(RequestError::MissingToken)?;
        let disable_flags = truth(&fields, "disable_flags");
        let distinct_id = match id(&fields, &["distinct_id", "$distinct_id"]) {
            Some(distinct_id) => distinct_id,
            None if disable_flags => String::new(),
            None => return Err(RequestError::MissingDistinctId),
        };
        let person_properties =
            object(&mut fields, &["person_properties", "$person_properties", "$properties"]);
        Ok(Self {
            token,
            distinct_id,
            anon_distinct_id: id(&fields, &["$anon_distinct_id", "anon_distinct_id"]),
            device_id: text(&mut fields, &["device_id", "$device_id"])
                .or_else(|| Some(person_properties.get("$device_id")?.as_str()?.to_owned())),
            groups: object(&mut fields, &["groups", "$groups"]),
            group_properties: object(&mut fields, &["group_properties", "$group_properties"]),
            flag_keys: texts(&fields, &["flag_keys", "flag_keys_to_evaluate"]),
            evaluation_contexts: texts(
                &fields,
                &["evaluation_contexts", "evaluation_environments"],
            )
            .unwrap_or_default(),
            evaluation_runtime: text(&mut fields, &["evaluation_runtime"]),
            // Python SDKs until version 4 call it the other way round.
            geoip_disable: truth(&fields, "geoip_disable") || truth(&fields, "disable_geoip"),
            disable_flags,
            person_properties,
        })
    }
}

fn token(fields: &Map<String, Value>) -> Option<String> {
    let mut tokens =
        ["token", "$token", "api_key"].iter().filter_map(|name| fields.get(*name)?.as_str());
    tokens.find(|token| !token.is_empty()).map(str::to_owned)
}

/// The first of the names that holds a text.
fn text(fields: &mut Map<String, Value>, names: &[&str]) -> Option<String> {
    let name = names.iter().find(|name| fields.get(**name).is_some_and(Value::is_string))?;
    match fields.remove(*name)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The first of the names that holds an object; else an empty one.
fn object(fields: &mut Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let name = names.iter().find(|name| fields.get(**name).is_some_and(Value::is_object));
    match name.and_then(|name| fields.remove(*name)) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// The first of the names that holds a text or a number.
fn id(fields: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| match fields.get(*name)? {
        Value::String(text) => Some(text.chars().take(DISTINCT_ID_MAX_CHARS).collect()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// The first of the names that holds a list; what is not a text in it is left out.
fn texts(fields: &Map<String, Value>, names: &[&str]) -> Option<Vec<String>> {
    let list = names.iter().find_map(|name| fields.get(*name)?.as_array())?;
    Some(list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
}

fn truth(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name) == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::json as parse;

    #[test]
    fn what_sdks_send_is_read() {
        for (body, expected) in [
            (
                &br#"{"a": NaN, "b": [-Infinity, Infinity, -1]}"#[..],
                json!({"a": null, "b": [null, null, -1]}),
            ),
            (br#"{"a": "NaN \" NaN", "b": NaN}"#, json!({"a": "NaN \" NaN", "b": null})),
            (br#"["\ud83d", "x\ude00y", "\ud83d\ude00"]"#, json!(["\u{FFFD}", "x\u{FFFD}y", "😀"])),
            (br#"["\ud83d\u0041", "\\ud83d"]"#, json!(["\u{FFFD}A", "\\ud83d"])),
            (b"[\"a\xffb\"]", json!(["a\u{FFFD}b"])),
            (b"[18446744073709551616]", json!([1.8446744073709552e19])),
            ("[\"ü\", NaN]".as_bytes(), json!(["ü", null])),
        ] {
            assert_eq!(parse(body).expect("repaired"), expected);
        }
    }

    #[test]
    fn what_cannot_be_repaired_is_refused() {
        let deep = "[".repeat(200);
        for body in ["", "{", "nope", "{\"a\": \"", "[\"\\", "[\"\\u12", "[Nan]", "NaN,", &deep] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
