//! Groups, such as companies, and their types.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// A group.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Group {
    /// The number of its type.
    pub group_type_index: u8,
    /// What it is called in events.
    pub group_key: String,
    /// The properties.
    pub group_properties: Map<String, Value>,
    /// When it was first seen.
    pub created_at: String,
}

/// A type of groups.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "GroupType")]
pub struct Type {
    /// What events call it.
    pub group_type: String,
    /// Its number, by which paths and properties of events name it.
    pub group_type_index: usize,
    /// What one group of it is called; null unless a user has set it.
    pub name_singular: Option<String>,
    /// What several are called; null unless a user has set it.
    pub name_plural: Option<String>,
}

/// A name, and how often it was found.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Count {
    /// A value of a property, or the name of one.
    pub name: String,
    /// How many persons or groups have it.
    pub count: usize,
}
