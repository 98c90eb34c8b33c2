//! JSON form of cohorts, in PostHog's format.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::fields::{Fields, refused};
use crate::response::Problem;
use crate::routes::user_body::user;
use weir_identity::person::Person;
use weir_metadata::cohorts::{CohortPatch, StoredCohort};
use weir_metadata::snapshot::Snapshot;

/// Most persons that one field of a body names.
const LISTED_MAX: usize = 100_000;

/// A cohort as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "Cohort")]
pub(in crate::routes) struct CohortBody<'a> {
    id: i64,
    name: &'a str,
    description: &'a str,
    /// Format used before `filters`; always empty.
    groups: [bool; 0],
    deleted: bool,
    filters: &'a Value,
    /// A query instead of a rule; Weir has none.
    query: Option<bool>,
    is_calculating: bool,
    created_by: Option<weir_api::accounts::User>,
    created_at: String,
    last_calculation: Option<String>,
    errors_calculating: i64,
    count: Option<i64>,
    is_static: bool,
    #[schemars(extend("enum" = ["static", "person_property", "behavioral"]))]
    cohort_type: &'static str,
    experiment_set: [i64; 0],
    version: i64,
}

impl<'a> CohortBody<'a> {
    /// The body of `cohort`; `snapshot` contains its creator.
    pub(in crate::routes) fn new(cohort: &'a StoredCohort, snapshot: &'a Snapshot) -> Self {
        let created_by = cohort.created_by.and_then(|user| snapshot.user(user));
        Self {
            id: cohort.id.0,
            name: &cohort.name,
            description: &cohort.description,
            groups: [],
            deleted: cohort.deleted,
            filters: &cohort.filters,
            query: None,
            is_calculating: cohort.count.is_none() && cohort.errors_calculating == 0,
            created_by: created_by.map(|found| user(found)),
            created_at: cohort.created_at.to_rfc3339(),
            last_calculation: cohort.last_calculation.map(|time| time.to_rfc3339()),
            errors_calculating: cohort.errors_calculating,
            count: cohort.count,
            is_static: cohort.is_static,
            cohort_type: match cohort.is_static {
                true => "static",
                false if cohort.is_by_events() => "behavioral",
                false => "person_property",
            },
            experiment_set: [],
            version: cohort.version,
        }
    }
}

/// Persons named in a body.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// By uuid.
    pub(super) uuids: Vec<Uuid>,
    /// By distinct id.
    pub(super) distinct_ids: Vec<String>,
}

impl Listed {
    /// Whether no person is named.
    pub(super) fn is_empty(&self) -> bool {
        self.uuids.is_empty() && self.distinct_ids.is_empty()
    }
}

/// Reads a change. `groups`, the format used before `filters`, becomes a rule: an OR of ANDs.
pub(super) fn patch(fields: &mut Fields) -> Result<CohortPatch, Problem> {
    let groups = fields.nullable_value("groups").flatten();
    let groups = groups.filter(|groups| groups.as_array().is_some_and(|groups| !groups.is_empty()));
    let filters = fields.nullable_value("filters").flatten();
    Ok(CohortPatch {
        name: fields.text("name")?,
        description: match fields.nullable_value("description") {
            None => None,
            Some(None) => Some(String::new()),
            Some(Some(Value::String(text))) => Some(text),
            Some(Some(_)) => {
                return Err(refused("description", "invalid_input", "Not a valid string."));
            }
        },
        filters: filters.or_else(|| groups.as_ref().map(rule_of_groups)),
        deleted: fields.boolean("deleted")?,
    })
}

fn rule_of_groups(groups: &Value) -> Value {
    let groups = groups.as_array().into_iter().flatten();
    let values: Vec<Value> = groups
        .map(
            |group| json!({"type": "AND", "values": group.get("properties").unwrap_or(&json!([]))}),
        )
        .collect();
    json!({"properties": {"type": "OR", "values": values}})
}

/// Reads the persons of a body from the fields of PostHog's API, and from `distinct_ids`.
pub(super) fn members(fields: &mut Fields) -> Result<Listed, Problem> {
    let mut listed = Listed::default();
    let mut texts = Vec::new();
    for name in ["_create_static_person_ids", "person_ids"] {
        texts.extend(fields.texts_within(name, LISTED_MAX)?.unwrap_or_default());
    }
    texts.extend(fields.text("person_id")?);
    for text in texts {
        let uuid = Uuid::try_parse(&text).map_err(|_| {
            refused("person_ids", "invalid_input", format!("\"{text}\" is not a valid UUID."))
        })?;
        listed.uuids.push(uuid);
    }
    listed.distinct_ids =
        fields.exact_texts_within("distinct_ids", LISTED_MAX)?.unwrap_or_default();
    Ok(listed)
}

/// A person in a list of members, as sent to clients.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "CohortMember")]
pub(super) struct MemberBody {
    id: i64,
    uuid: Uuid,
    distinct_ids: Vec<String>,
    properties: Map<String, Value>,
    created_at: String,
    is_identified: bool,
}

impl MemberBody {
    /// The body of a person.
    pub(super) fn new(person: &Person, distinct_ids: Vec<String>) -> Self {
        Self {
            id: person.number,
            uuid: person.uuid,
            distinct_ids,
            properties: person.properties.clone(),
            created_at: person.created_at.to_rfc3339(),
            is_identified: person.is_identified,
        }
    }
}
