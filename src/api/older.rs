//! The persons behind points of insights, as older clients get them.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Persons behind a point.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PersonsOfPoint {
    /// Link to the first page.
    pub initial: String,
    /// Always false: they are looked up anew.
    pub is_cached: bool,
    /// Always null.
    pub last_refresh: (),
    /// Always 0.
    pub missing_persons: usize,
    /// Link to the next page.
    pub next: Option<String>,
    /// A list with one item.
    pub results: Vec<People>,
}

/// Persons or groups.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct People {
    /// How many the page has.
    pub count: usize,
    /// They themselves, as lists of persons have them.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub people: Vec<Value>,
}

/// Persons with some number of intervals.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PersonsOfNumber {
    /// Link to the next page.
    pub next: Option<String>,
    /// A list with one item.
    pub results: Vec<People>,
}

/// Persons of a row of a retention.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PersonsOfRow {
    /// Always 0.
    pub missing_persons: usize,
    /// Link to the next page.
    pub next: Option<String>,
    /// The persons.
    pub result: Vec<PersonOfRow>,
}

/// A person of a row of a retention.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(inline)]
pub struct PersonOfRow {
    /// For each interval 1 if the person was active in it, else 0.
    pub appearances: Vec<u8>,
    /// The person, as lists of persons have it.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub person: Value,
}
