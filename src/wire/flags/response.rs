//! The body of a response of `/decide` or `/flags`.
//!
//! Writes one set of records in one of four [`Shape`]s. A flag that failed is marked in
//! [`Shape::Records`]. The older shapes cannot express that and omit it: with the error flag set, SDKs
//! then keep the previous value.
//!
//! Current SDKs request hundreds of records at once. So records are written field by field into one
//! buffer: most of their bytes are the same in all of them. Everything else is left to serde.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::flags::{Endpoint, Query, Shape};
use crate::remote_config::{Asker, RemoteConfig};

/// Initial capacity for the response without its flags.
const REST_BYTES: usize = 1024;

/// Initial capacity per record, for a key of 20 characters. The buffer grows if needed.
const RECORD_BYTES: usize = 256;

/// The result of one flag.
#[derive(Clone, Debug)]
pub struct FlagRecord<'a> {
    /// The key of the flag.
    pub key: &'a str,
    /// The id of the flag.
    pub id: i64,
    /// The version of the flag.
    pub version: i64,
    /// Whether it is on.
    pub enabled: bool,
    /// The variant of a flag that is on.
    pub variant: Option<&'a str>,
    /// The reason, for programs.
    pub reason_code: &'a str,
    /// The reason, for people.
    pub reason_description: Cow<'a, str>,
    /// Index of the condition that decided.
    pub condition_index: Option<usize>,
    /// As stored, usually a string that contains JSON.
    pub payload: Option<&'a Value>,
    /// Whether the flag could not be evaluated; it is not enabled then.
    pub failed: bool,
    /// Every step of the evaluation, for a detailed analysis; only in [`Shape::Records`].
    pub conditions: Option<&'a Value>,
}

/// The response without its flags.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The query of the request.
    pub query: &'a Query,
    /// A uuid; SDKs send it back with `$feature_flag_called`.
    pub request_id: &'a str,
    /// Milliseconds since 1970.
    pub evaluated_at: i64,
    /// Whether some flags could not be evaluated.
    pub has_errors: bool,
    /// Whether the project has any flags. Browsers do not request flags again if it has none.
    pub has_flags: bool,
    /// Whether SDKs may leave properties unrelated to the flag out of `$feature_flag_called`; only in
    /// [`Shape::Records`].
    pub minimal_called_events: bool,
}

impl Response<'_> {
    /// Writes the response as JSON. Keys of flags are unique, so the keys of its maps are too.
    ///
    /// # Errors
    ///
    /// No data can cause one; the signature is serde's.
    pub fn encode<'r, R>(&self, records: R) -> Result<Vec<u8>, serde_json::Error>
    where
        R: Iterator<Item = FlagRecord<'r>> + Clone,
    {
        let room = records.size_hint().0.saturating_mul(RECORD_BYTES).saturating_add(REST_BYTES);
        let mut body = Vec::with_capacity(room);
        put(&mut body, "{\"errorsWhileComputingFlags\":");
        put(&mut body, if self.has_errors { "true" } else { "false" });
        self.put_flags(&mut body, records)?;
        let rest = body.len();
        serde_json::to_writer(&mut body, &Rest(self))?;
        // The rest continues the object that contains the flags.
        if let Some(brace) = body.get_mut(rest) {
            *brace = b',';
        }
        Ok(body)
    }

    fn put_flags<'r, R>(&self, body: &mut Vec<u8>, records: R) -> Result<(), serde_json::Error>
    where
        R: Iterator<Item = FlagRecord<'r>> + Clone,
    {
        match self.query.shape {
            Shape::EnabledKeys => {
                let enabled = records.filter(|record| record.enabled);
                put_field(body, "featureFlags", &List(enabled.map(|record| record.key)))
            }
            Shape::EnabledValues => {
                let enabled = records.filter(|record| record.enabled);
                put_field(body, "featureFlags", &Entries(enabled.map(value)))
            }
            Shape::Values => {
                let known = records.filter(|record| !record.failed);
                put_field(body, "featureFlags", &Entries(known.clone().map(value)))?;
                let enabled = known.filter(|record| record.enabled);
                let payloads = enabled.filter_map(|record| Some((record.key, record.payload?)));
                put_field(body, "featureFlagPayloads", &Entries(payloads))
            }
            Shape::Records => {
                put(body, ",\"flags\":");
                let mut before = "{";
                for record in records {
                    put(body, before);
                    put_record(body, &record)?;
                    before = ",";
                }
                put(body, if before == "{" { "{}" } else { "}" });
                Ok(())
            }
        }
    }
}

/// The part of the response after the flags.
struct Rest<'r>(&'r Response<'r>);

impl Serialize for Rest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Response { query, request_id, evaluated_at, has_errors, has_flags, .. } = *self.0;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("requestId", request_id)?;
        body.serialize_entry("evaluatedAt", &evaluated_at)?;
        if self.0.minimal_called_events && query.shape == Shape::Records {
            body.serialize_entry("minimalFlagCalledEvents", &true)?;
        }
        let is_decide = query.endpoint == Endpoint::Decide;
        if is_decide {
            // The documented name of the error flag; SDKs read the other one.
            body.serialize_entry("errorComputingFlags", &has_errors)?;
        }
        if query.with_config {
            let asker = if is_decide { Asker::Decide } else { Asker::Current };
            RemoteConfig { has_flags, asker }.write(&mut body)?;
        }
        body.end()
    }
}

fn put(body: &mut Vec<u8>, json: &str) {
    body.extend_from_slice(json.as_bytes());
}

fn put_field(
    body: &mut Vec<u8>,
    name: &str,
    value: &impl Serialize,
) -> Result<(), serde_json::Error> {
    body.push(b',');
    put_text(body, name)?;
    body.push(b':');
    serde_json::to_writer(body, value)
}

/// Writes a text as a JSON string.
fn put_text(body: &mut Vec<u8>, text: &str) -> Result<(), serde_json::Error> {
    // Without an early exit, so that the compiler can vectorise it.
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if !text.bytes().fold(true, |so_far, byte| so_far & is_plain(byte)) {
        return serde_json::to_writer(body, text);
    }
    body.push(b'"');
    put(body, text);
    body.push(b'"');
    Ok(())
}

/// Writes a record under its key.
fn put_record(body: &mut Vec<u8>, record: &FlagRecord<'_>) -> Result<(), serde_json::Error> {
    let key = body.len();
    put_text(body, record.key)?;
    let key = key..body.len();
    put(body, ":{\"key\":");
    body.extend_from_within(key);
    put(body, if record.enabled { ",\"enabled\":true" } else { ",\"enabled\":false" });
    match record.variant {
        Some(variant) => {
            put(body, ",\"variant\":");
            put_text(body, variant)?;
        }
        None => put(body, ",\"variant\":null"),
    }
    if record.failed {
        put(body, ",\"failed\":true");
    }
    put(body, ",\"reason\":{\"code\":");
    put_text(body, record.reason_code)?;
    put(body, ",\"condition_index\":");
    serde_json::to_writer(&mut *body, &record.condition_index)?;
    put(body, ",\"description\":");
    put_text(body, &record.reason_description)?;
    put(body, "},\"metadata\":{\"id\":");
    serde_json::to_writer(&mut *body, &record.id)?;
    put(body, ",\"version\":");
    serde_json::to_writer(&mut *body, &record.version)?;
    // The description is always null, but SDKs expect the key.
    put(body, ",\"description\":null,\"payload\":");
    serde_json::to_writer(&mut *body, &record.payload)?;
    put(body, ",\"has_experiment\":false}");
    if let Some(conditions) = record.conditions {
        put_field(body, "conditions", conditions)?;
    }
    put(body, "}");
    Ok(())
}

/// The value of a flag in the older shapes: a boolean or a variant.
#[derive(Serialize)]
#[serde(untagged)]
enum FlagValue<'a> {
    Switch(bool),
    Variant(&'a str),
}

fn value(record: FlagRecord<'_>) -> (&str, FlagValue<'_>) {
    let value = match record.variant {
        Some(variant) if record.enabled => FlagValue::Variant(variant),
        _ => FlagValue::Switch(record.enabled),
    };
    (record.key, value)
}

/// Serializes an iterator as a JSON array.
struct List<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// Serializes an iterator of pairs as a JSON object.
struct Entries<I>(I);

impl<'k, V: Serialize, I: Iterator<Item = (&'k str, V)> + Clone> Serialize for Entries<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}
