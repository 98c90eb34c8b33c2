//! The body of a request to `/decide` or `/flags`.
//!
//! Lenient parsing: fields have several names, and an optional field of the wrong type is ignored,
//! because an SDK that gets a 400 has no flags at all for its users.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::flags::Query;
use crate::repair::repair;
use weir_base::error::Kind;
use weir_event::json::Plain;

/// Limit of a distinct id, in characters; capture cuts at the same length.
const DISTINCT_ID_MAX_CHARS: usize = 200;

/// The parsed body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The project API key.
    pub token: String,
    /// The distinct id of the person. Empty only if it was sent so, or left out with `disable_flags`.
    pub distinct_id: String,
    /// The distinct id before the login.
    pub anon_distinct_id: Option<String>,
    /// The device; from `$device_id` of the person properties if not sent as a field.
    pub device_id: Option<String>,
    /// Group key by group type.
    pub groups: Map<String, Value>,
    /// Overrides of the stored properties of the person.
    pub person_properties: Map<String, Value>,
    /// By group type, overrides of the stored properties of the group.
    pub group_properties: Map<String, Value>,
    /// Only these flags are evaluated, if given.
    pub flag_keys: Option<Vec<String>>,
    /// Only flags of these contexts are evaluated, if not empty.
    pub evaluation_contexts: Vec<String>,
    /// `server` or `client`, if the SDK sent it.
    pub evaluation_runtime: Option<String>,
    /// Whether the sender's address must not be used for the person's place.
    pub geoip_disable: bool,
    /// Whether only the configuration is requested.
    pub disable_flags: bool,
}

/// Why a request is rejected.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The body is not JSON, even after repairs.
    #[error("malformed request data: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The body is JSON, but not an object.
    #[error("malformed request data: the body is not a JSON object")]
    NotAnObject,
    /// Neither the body nor the query contains a token.
    #[error(
        "project API key missing: send it as api_key or token in the body, or as token in the query"
    )]
    MissingToken,
    /// The body contains no distinct id.
    #[error("malformed request data: distinct_id is missing")]
    MissingDistinctId,
}

impl RequestError {
    /// The class of the error: what the sender can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::MissingToken => Kind::Unauthorized,
            Self::Malformed(_) | Self::NotAnObject | Self::MissingDistinctId => Kind::Invalid,
        }
    }

    /// The code of the error body, by the error table of the API specification.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingToken => "invalid_api_key",
            Self::Malformed(_) | Self::NotAnObject | Self::MissingDistinctId => "invalid_payload",
        }
    }
}

/// Parses JSON as SDKs write it: one malformed value must not cost the request.
fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).or_else(|error| {
        let repaired = repair(body).and_then(|body| serde_json::from_slice(&body).ok());
        repaired.ok_or(error)
    })
}

impl Request {
    /// Parses a decoded body.
    ///
    /// # Errors
    ///
    /// [`RequestError`]; a retry of the same request fails again.
    pub fn parse(body: &[u8], query: &Query) -> Result<Self, RequestError> {
        let body: Body = json(body).map_err(|error| match error.classify() {
            Category::Data => RequestError::NotAnObject,
            Category::Io | Category::Syntax | Category::Eof => RequestError::Malformed(error),
        })?;
        let token = body.token.take().or_else(|| query.token.clone());
        let token = token.ok_or(RequestError::MissingToken)?;
        let disable_flags = body.disable_flags;
        let distinct_id = match body.distinct_id.take() {
            Some(distinct_id) => distinct_id,
            None if disable_flags => String::new(),
            None => return Err(RequestError::MissingDistinctId),
        };
        let person_properties = body.person_properties.take().unwrap_or_default();
        let device_id = body
            .device_id
            .take()
            .or_else(|| Some(person_properties.get("$device_id")?.as_str()?.to_owned()));
        // Browsers send it beside the properties, servers in the properties.
        let anon_distinct_id = body.anon_distinct_id.take().or_else(|| {
            let among = person_properties.get("$anon_distinct_id")?;
            among.as_str().and_then(|among| id(among.into()))
        });
        Ok(Self {
            token,
            distinct_id,
            anon_distinct_id,
            device_id,
            groups: body.groups.take().unwrap_or_default(),
            person_properties,
            group_properties: body.group_properties.take().unwrap_or_default(),
            flag_keys: body.flag_keys.take(),
            evaluation_contexts: body.evaluation_contexts.take().unwrap_or_default(),
            evaluation_runtime: body.evaluation_runtime.take(),
            geoip_disable: body.geoip_disable,
            disable_flags,
        })
    }
}

/// A body while it is parsed. Unknown names are skipped.
#[derive(Default)]
struct Body {
    token: Named<String>,
    distinct_id: Named<String>,
    anon_distinct_id: Named<String>,
    device_id: Named<String>,
    groups: Named<Map<String, Value>>,
    person_properties: Named<Map<String, Value>>,
    group_properties: Named<Map<String, Value>>,
    flag_keys: Named<Vec<String>>,
    evaluation_contexts: Named<Vec<String>>,
    evaluation_runtime: Named<String>,
    geoip_disable: bool,
    disable_flags: bool,
}

/// A field with several names: the value under the name of the lowest rank that has a valid value.
#[derive(Default)]
struct Named<T>(Option<(u8, T)>);

impl<T> Named<T> {
    /// Offers a `value` under the name of this `rank`; a valid value under a lower rank wins.
    fn offer(&mut self, rank: u8, value: Option<T>) {
        if self.0.as_ref().is_none_or(|(known, _)| rank <= *known) {
            self.0 = value.map(|value| (rank, value)).or_else(|| self.0.take());
        }
    }

    fn take(self) -> Option<T> {
        self.0.map(|(_, value)| value)
    }
}

/// The field names in a body.
#[derive(Deserialize)]
#[serde(field_identifier)]
enum Name {
    #[serde(rename = "token")]
    Token,
    #[serde(rename = "$token")]
    DollarToken,
    #[serde(rename = "api_key")]
    ApiKey,
    #[serde(rename = "distinct_id")]
    DistinctId,
    #[serde(rename = "$distinct_id")]
    DollarDistinctId,
    #[serde(rename = "$anon_distinct_id")]
    DollarAnonDistinctId,
    #[serde(rename = "anon_distinct_id")]
    AnonDistinctId,
    #[serde(rename = "device_id")]
    DeviceId,
    #[serde(rename = "$device_id")]
    DollarDeviceId,
    #[serde(rename = "groups")]
    Groups,
    #[serde(rename = "$groups")]
    DollarGroups,
    #[serde(rename = "person_properties")]
    PersonProperties,
    #[serde(rename = "$person_properties")]
    DollarPersonProperties,
    #[serde(rename = "$properties")]
    DollarProperties,
    #[serde(rename = "group_properties")]
    GroupProperties,
    #[serde(rename = "$group_properties")]
    DollarGroupProperties,
    #[serde(rename = "flag_keys")]
    FlagKeys,
    #[serde(rename = "flag_keys_to_evaluate")]
    FlagKeysToEvaluate,
    #[serde(rename = "evaluation_contexts")]
    EvaluationContexts,
    #[serde(rename = "evaluation_environments")]
    EvaluationEnvironments,
    #[serde(rename = "evaluation_runtime")]
    EvaluationRuntime,
    #[serde(rename = "geoip_disable")]
    GeoipDisable,
    /// Python SDKs before version 4 use this name.
    #[serde(rename = "disable_geoip")]
    DisableGeoip,
    #[serde(rename = "disable_flags")]
    DisableFlags,
    #[serde(other)]
    Other,
}

impl Body {
    fn put(&mut self, name: Name, value: Value) {
        match name {
            Name::Token => self.token.offer(0, token(value)),
            Name::DollarToken => self.token.offer(1, token(value)),
            Name::ApiKey => self.token.offer(2, token(value)),
            Name::DistinctId => self.distinct_id.offer(0, id(value)),
            Name::DollarDistinctId => self.distinct_id.offer(1, id(value)),
            Name::DollarAnonDistinctId => self.anon_distinct_id.offer(0, id(value)),
            Name::AnonDistinctId => self.anon_distinct_id.offer(1, id(value)),
            Name::DeviceId => self.device_id.offer(0, text(value)),
            Name::DollarDeviceId => self.device_id.offer(1, text(value)),
            Name::Groups => self.groups.offer(0, object(value)),
            Name::DollarGroups => self.groups.offer(1, object(value)),
            Name::PersonProperties => self.person_properties.offer(0, object(value)),
            Name::DollarPersonProperties => self.person_properties.offer(1, object(value)),
            Name::DollarProperties => self.person_properties.offer(2, object(value)),
            Name::GroupProperties => self.group_properties.offer(0, object(value)),
            Name::DollarGroupProperties => self.group_properties.offer(1, object(value)),
            Name::FlagKeys => self.flag_keys.offer(0, texts(value)),
            Name::FlagKeysToEvaluate => self.flag_keys.offer(1, texts(value)),
            Name::EvaluationContexts => self.evaluation_contexts.offer(0, texts(value)),
            Name::EvaluationEnvironments => self.evaluation_contexts.offer(1, texts(value)),
            Name::EvaluationRuntime => self.evaluation_runtime.offer(0, text(value)),
            Name::GeoipDisable | Name::DisableGeoip => {
                self.geoip_disable |= value == Value::Bool(true);
            }
            Name::DisableFlags => self.disable_flags = value == Value::Bool(true),
            Name::Other => {}
        }
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Body, M::Error> {
        let mut body = Body::default();
        while let Some(name) = fields.next_key()? {
            match name {
                Name::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
                name => body.put(name, fields.next_value::<Plain>()?.0),
            }
        }
        Ok(body)
    }
}

fn token(value: Value) -> Option<String> {
    text(value).filter(|token| !token.is_empty())
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// A string, cut to the limit, or a number.
fn id(value: Value) -> Option<String> {
    match value {
        Value::String(mut text) => {
            if let Some((end, _)) = text.char_indices().nth(DISTINCT_ID_MAX_CHARS) {
                text.truncate(end);
            }
            Some(text)
        }
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A list of strings; items of other types are left out.
fn texts(value: Value) -> Option<Vec<String>> {
    match value {
        Value::Array(items) => Some(items.into_iter().filter_map(text).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::json as parse;
    use weir_event::json::Plain;

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
            assert_eq!(parse::<Plain>(body).expect("repaired").0, expected);
        }
    }

    #[test]
    fn what_cannot_be_repaired_is_refused() {
        let deep = "[".repeat(200);
        for body in ["", "{", "nope", "{\"a\": \"", "[\"\\", "[\"\\u12", "[Nan]", "NaN,", &deep] {
            assert!(parse::<Plain>(body.as_bytes()).is_err(), "{body}");
        }
    }
}
