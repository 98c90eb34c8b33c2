//! Rows: [`Person`] and [`Group`], as readers see them.

use serde_json::{Map, Value};
use uuid::Uuid;

use weir_base::clock::UnixMicros;

/// A person as of some applied sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// The integer `id` of the API; from 1, unique over all projects, never reused.
    pub number: i64,
    /// The id that events are stored with.
    pub uuid: Uuid,
    /// Time of the event that created it; the earliest one of merged persons.
    pub created_at: UnixMicros,
    /// The properties, a JSON object.
    pub properties: Map<String, Value>,
    /// Whether a merge event ever named it.
    pub is_identified: bool,
    /// 0 at creation, plus 1 with every change; after a merge above that of both.
    pub version: u64,
    /// Sequence of the last record that changed the row or its distinct ids.
    pub changed_sequence: u64,
}

/// A distinct id of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctId {
    /// The id.
    pub text: Box<str>,
    /// Time of the event, or of the operator's request, by which the person got it; `None` if an earlier version
    /// of the server stored it.
    pub since: Option<UnixMicros>,
}

/// A group, such as one company.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Time of the `$groupidentify` that created it.
    pub created_at: UnixMicros,
    /// The properties, a JSON object.
    pub properties: Map<String, Value>,
}
