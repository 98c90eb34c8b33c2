//! The body of a response of `/decide` or `/flags`.
//!
//! One set of records in, the bytes of one of four [`Shape`]s out. A flag that failed is marked in
//! [`Shape::Records`] and left out of the older shapes, which cannot say so: with the error flag
//! set, SDKs then keep the value they had.

use std::borrow::Cow;

use serde::Serialize;
use serde::Serializer;
use serde::ser::SerializeMap;
use serde_json::Value;

use crate::wire::flags::Endpoint;
use crate::wire::flags::Query;
use crate::wire::flags::Shape;
use crate::wire::remote_config::Asker;
use crate::wire::remote_config::RemoteConfig;

/// The answer for one flag.
#[derive(Clone, Debug)]
pub struct FlagRecord<'a> {
    /// What SDKs ask for.
    pub key: &'a str,
    /// The id of the flag.
    pub id: i64,
    /// The version of the flag.
    pub version: i64,
    /// Whether it is on.
    pub enabled: bool,
    /// The variant of a flag that is on.
    pub variant: Option<&'a str>,
    /// Why, for programs.
    pub reason_code: &'a str,
    /// Why, for people.
    pub reason_description: Cow<'a, str>,
    /// The condition that decided, from 0.
    pub condition_index: Option<usize>,
    /// As stored, usually a string that contains JSON.
    pub payload: Option<&'a Value>,
    /// Whether the flag could not be evaluated; it is not enabled then.
    pub failed: bool,
    /// Every step that led here, for a detailed analysis; only in [`Shape::Records`].
    pub conditions: Option<Value>,
}

/// What a response says beside the flags.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// What was asked for.
    pub query: &'a Query,
    /// A uuid; SDKs send it back with `$feature_flag_called`.
    pub request_id: &'a str,
    /// Milliseconds since 1970.
    pub evaluated_at: i64,
    /// Whether some flags could not be evaluated.
    pub has_errors: bool,
    /// Whether the project has flags at all. Browsers do not ask again if it has none.
    pub has_flags: bool,
}

impl Response<'_> {
    /// Writes the response as JSON. Keys of flags are unique, so that maps are.
    ///
    /// # Errors
    ///
    /// None that data can cause; serde's signature.
    pub fn encode<'r, R>(&self, records: R) -> Result<Vec<u8>, serde_json::Error>
    where
        R: Iterator<Item = &'r FlagRecord<'r>> + Clone,
    {
        serde_json::to_vec(&Body { response: self, records })
    }
}

struct Body<'b, R> {
    response: &'b Response<'b>,
    records: R,
}

impl<'r, R: Iterator<Item = &'r FlagRecord<'r>> + Clone> Serialize for Body<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Response { query, request_id, evaluated_at, has_errors, has_flags } = *self.response;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("errorsWhileComputingFlags", &has_errors)?;
        let records = self.records.clone();
        match query.shape {
            Shape::EnabledKeys => {
                let enabled = records.filter(|record| record.enabled);
                body.serialize_entry("featureFlags", &List(enabled.map(|record| record.key)))?;
            }
            Shape::EnabledValues => {
                let enabled = records.filter(|record| record.enabled);
                body.serialize_entry("featureFlags", &Entries(enabled.map(value)))?;
            }
            Shape::Values => {
                let known = records.filter(|record| !record.failed);
                body.serialize_entry("featureFlags", &Entries(known.clone().map(value)))?;
                let enabled = known.filter(|record| record.enabled);
                let payloads = enabled.filter_map(|record| Some((record.key, record.payload?)));
                body.serialize_entry("featureFlagPayloads", &Entries(payloads))?;
            }
            Shape::Records => {
                let records = records.map(|record| (record.key, Record::new(record)));
                body.serialize_entry("flags", &Entries(records))?;
            }
        }
        body.serialize_entry("requestId", request_id)?;
        body.serialize_entry("evaluatedAt", &evaluated_at)?;
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

/// The value of a flag in the older shapes.
#[derive(Serialize)]
#[serde(untagged)]
enum FlagValue<'a> {
    Switch(bool),
    Variant(&'a str),
}

fn value<'r>(record: &'r FlagRecord<'r>) -> (&'r str, FlagValue<'r>) {
    let value = match record.variant {
        Some(variant) if record.enabled => FlagValue::Variant(variant),
        _ => FlagValue::Switch(record.enabled),
    };
    (record.key, value)
}

#[derive(Serialize)]
struct Record<'a> {
    key: &'a str,
    enabled: bool,
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    reason: RecordReason<'a>,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<&'a Value>,
}

#[derive(Serialize)]
struct RecordReason<'a> {
    code: &'a str,
    condition_index: Option<usize>,
    description: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    id: i64,
    version: i64,
    /// Always null; SDKs expect the key.
    description: Option<&'a str>,
    payload: Option<&'a Value>,
    has_experiment: bool,
}

impl<'a> Record<'a> {
    fn new(record: &'a FlagRecord<'a>) -> Self {
        Self {
            key: record.key,
            enabled: record.enabled,
            variant: record.variant,
            failed: record.failed,
            reason: RecordReason {
                code: record.reason_code,
                condition_index: record.condition_index,
                description: &record.reason_description,
            },
            metadata: Metadata {
                id: record.id,
                version: record.version,
                description: None,
                payload: record.payload,
                has_experiment: false,
            },
            conditions: record.conditions.as_ref(),
        }
    }
}

/// A JSON array out of an iterator.
struct List<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// A JSON object out of an iterator of pairs.
struct Entries<I>(I);

impl<'k, V: Serialize, I: Iterator<Item = (&'k str, V)> + Clone> Serialize for Entries<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}
