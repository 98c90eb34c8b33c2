//! Cohorts: sets of persons by a rule, or as a list.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::accounts::User;

/// A cohort.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Cohort {
    /// The id in paths.
    pub id: i64,
    /// The name.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// Format used before `filters`; always empty.
    pub groups: [bool; 0],
    /// Whether it is deleted.
    pub deleted: bool,
    /// The rule: a tree of AND and OR under `properties`.
    pub filters: Value,
    /// A query instead of a rule; Weir has none.
    pub query: Option<bool>,
    /// Whether its members are being counted for the first time since the rule changed.
    pub is_calculating: bool,
    /// Who made it.
    pub created_by: Option<User>,
    /// The time of its creation.
    pub created_at: String,
    /// The time of the last count.
    pub last_calculation: Option<String>,
    /// Counts that failed, one after the other.
    pub errors_calculating: i64,
    /// Its members at the last count.
    pub count: Option<i64>,
    /// Whether it is a list of persons, without a rule.
    pub is_static: bool,
    /// `static` for a list, `behavioral` for a rule on events, else `person_property`.
    #[schemars(extend("enum" = ["static", "person_property", "behavioral"]))]
    pub cohort_type: String,
    /// Experiments with it; Weir has none.
    pub experiment_set: [i64; 0],
    /// The number of the version, from 1 on.
    pub version: i64,
}

/// A person in a list of members.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(rename = "CohortMember")]
pub struct Member {
    /// The number of the person.
    pub id: i64,
    /// The id of the person in paths.
    #[schemars(extend("format" = "uuid"))]
    pub uuid: String,
    /// The distinct ids, in the order in which they were added.
    pub distinct_ids: Vec<String>,
    /// The properties.
    pub properties: Map<String, Value>,
    /// When the person was first seen.
    pub created_at: String,
    /// Whether the person was identified.
    pub is_identified: bool,
}

/// The cohort of those for whom a flag is on.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CohortOfFlag {
    /// The cohort.
    pub cohort: Cohort,
}
