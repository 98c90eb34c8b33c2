//! Cohorts as clients send and get them, in PostHog's format.

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::body::{Field, body};
use crate::fields::{Fields, refused};
use crate::openapi::{Body, Shape};
use crate::operation::input::{Creates, InBody, Reading};
use crate::response::Problem;
use crate::routes::cohorts::upload;
use crate::routes::user_body::user;
use weir_api::cohorts as api;
use weir_identity::person::Person;
use weir_metadata::cohorts::{CohortPatch, StoredCohort};
use weir_metadata::snapshot::Snapshot;

/// Most persons that one field of a body names.
const LISTED_MAX: usize = 100_000;

/// `cohort` as clients get it; `snapshot` contains its creator.
pub(in crate::routes) fn shown(cohort: &StoredCohort, snapshot: &Snapshot) -> api::Cohort {
    let created_by = cohort.created_by.and_then(|user| snapshot.user(user));
    let cohort_type = match cohort.is_static {
        true => "static",
        false if cohort.is_by_events() => "behavioral",
        false => "person_property",
    };
    api::Cohort {
        id: cohort.id.0,
        name: cohort.name.clone(),
        description: cohort.description.clone(),
        groups: [],
        deleted: cohort.deleted,
        filters: cohort.filters.clone(),
        query: None,
        is_calculating: cohort.count.is_none() && cohort.errors_calculating == 0,
        created_by: created_by.map(|found| user(found)),
        created_at: cohort.created_at.to_rfc3339(),
        last_calculation: cohort.last_calculation.map(|time| time.to_rfc3339()),
        errors_calculating: cohort.errors_calculating,
        count: cohort.count,
        is_static: cohort.is_static,
        cohort_type: cohort_type.to_owned(),
        experiment_set: [],
        version: cohort.version,
    }
}

/// A member of a cohort as clients get it.
pub(super) fn member(person: &Person, distinct_ids: Vec<String>) -> api::Member {
    api::Member {
        id: person.number,
        uuid: person.uuid.to_string(),
        distinct_ids,
        properties: person.properties.clone(),
        created_at: person.created_at.to_rfc3339(),
        is_identified: person.is_identified,
    }
}

/// A text with its white space; null becomes the empty text. Numbers are refused.
#[derive(Debug)]
pub struct Description(pub String);

impl Field for Option<Description> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        match fields.nullable_value(name) {
            None => Ok(None),
            Some(None) => Ok(Some(Description(String::new()))),
            Some(Some(Value::String(text))) => Ok(Some(Description(text))),
            Some(Some(_)) => Err(refused(name, "invalid_input", "Not a valid string.")),
        }
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"]})
    }
}

/// A rule as it was sent; the store checks it. Null counts as absent.
#[derive(Debug)]
pub struct Rule(pub Value);

impl Field for Option<Rule> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.nullable_value(name).flatten().map(Rule))
    }

    fn schema() -> Value {
        json!({"type": ["object", "null"]})
    }
}

/// A rule in the format used before `filters`: an OR of ANDs. An empty list counts as absent.
#[derive(Debug)]
pub struct Groups(Vec<Value>);

impl Groups {
    fn rule(self) -> Value {
        let none = json!([]);
        let all = |group: &Value| json!({"type": "AND", "values": group.get("properties").unwrap_or(&none)});
        let values: Vec<Value> = self.0.iter().map(all).collect();
        json!({"properties": {"type": "OR", "values": values}})
    }
}

impl Field for Option<Groups> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        match fields.nullable_value(name).flatten() {
            Some(Value::Array(groups)) if !groups.is_empty() => Ok(Some(Groups(groups))),
            _ => Ok(None),
        }
    }

    fn schema() -> Value {
        json!({"type": ["array", "null"], "items": {"type": "object"}})
    }
}

/// Uuids of persons.
#[derive(Debug)]
pub struct Uuids(Vec<Uuid>);

impl Field for Option<Uuids> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        let Some(texts) = fields.texts_within(name, LISTED_MAX)? else { return Ok(None) };
        let uuids = texts.iter().map(|text| uuid(text)).collect::<Result<_, _>>()?;
        Ok(Some(Uuids(uuids)))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string", "format": "uuid"}})
    }
}

/// Distinct ids, with their white space.
#[derive(Debug)]
pub struct DistinctIds(Vec<String>);

impl Field for Option<DistinctIds> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.exact_texts_within(name, LISTED_MAX)?.map(DistinctIds))
    }

    fn schema() -> Value {
        <Option<Vec<String>> as Field>::schema()
    }
}

fn uuid(text: &str) -> Result<Uuid, Problem> {
    Uuid::try_parse(text).map_err(|_| {
        refused("person_ids", "invalid_input", format!("\"{text}\" is not a valid UUID."))
    })
}

body! {
    /// A new cohort, or a change of one.
    #[derive(Default)]
    pub struct CohortWrite {
        name: Option<String>,
        description: Option<Description>,
        /// A tree of AND and OR under properties
        filters: Option<Rule>,
        /// The format of before filters
        groups: Option<Groups>,
        deleted: Option<bool>,
        /// Only when the cohort is made
        is_static: Option<bool>,
        _create_static_person_ids: Option<Uuids>,
        distinct_ids: Option<DistinctIds>,
    }
}

impl CohortWrite {
    /// Splits the body into the change of the cohort and the named persons.
    pub(super) fn parts(self) -> (CohortPatch, Persons) {
        let Self { _create_static_person_ids: uuids, distinct_ids, .. } = self;
        let persons = Persons {
            uuids: uuids.map(|Uuids(uuids)| uuids).unwrap_or_default(),
            distinct_ids: distinct_ids.map(|DistinctIds(ids)| ids).unwrap_or_default(),
        };
        let filters = self.filters.map(|Rule(rule)| rule);
        let patch = CohortPatch {
            name: self.name,
            description: self.description.map(|Description(text)| text),
            filters: filters.or_else(|| self.groups.map(Groups::rule)),
            deleted: self.deleted,
        };
        (patch, persons)
    }

    /// The same with these persons as those named.
    pub(in crate::routes) fn with_persons(self, persons: Persons) -> Self {
        Self {
            _create_static_person_ids: Some(Uuids(persons.uuids)),
            distinct_ids: Some(DistinctIds(persons.distinct_ids)),
            ..self
        }
    }
}

/// A change of a cohort, as JSON, or as a form with a file of persons.
#[derive(Debug, Default)]
pub struct Change {
    /// The JSON fields.
    pub fields: CohortWrite,
    /// The CSV file.
    pub csv: Option<Bytes>,
}

impl InBody for Change {
    const READING: Reading = Reading::ObjectOrForm(upload::fields);

    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<CohortWrite>(false));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        let csv = fields.file();
        Ok(Self { fields: CohortWrite::read(fields)?, csv })
    }
}

impl Creates for Change {
    const NEEDS: &'static [&'static str] = &["name"];
}

body! {
    /// Persons of a list.
    struct CohortMembers {
        person_ids: Option<Uuids>,
        person_id: Option<String> = {"format": "uuid"},
        distinct_ids: Option<DistinctIds>,
    }
}

/// Persons named in a body.
#[derive(Debug, Default)]
pub struct Persons {
    /// By uuid.
    pub uuids: Vec<Uuid>,
    /// By distinct id.
    pub distinct_ids: Vec<String>,
}

impl Persons {
    /// Whether no person is named.
    pub(super) fn is_empty(&self) -> bool {
        self.uuids.is_empty() && self.distinct_ids.is_empty()
    }

    /// Parses uuids, and distinct ids.
    ///
    /// # Errors
    ///
    /// 400 for a text that is not a uuid.
    pub(in crate::routes) fn of(uuids: &[&str], distinct_ids: &[&str]) -> Result<Self, Problem> {
        Ok(Self {
            uuids: uuids.iter().map(|text| uuid(text)).collect::<Result<_, _>>()?,
            distinct_ids: distinct_ids.iter().map(|id| (*id).to_owned()).collect(),
        })
    }
}

impl InBody for Persons {
    fn describe(shape: &mut Shape) {
        shape.body = Some(Body::of::<CohortMembers>(true));
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        let CohortMembers { person_ids, person_id, distinct_ids } = CohortMembers::read(fields)?;
        let mut uuids = person_ids.map(|Uuids(uuids)| uuids).unwrap_or_default();
        uuids.extend(person_id.as_deref().map(uuid).transpose()?);
        let distinct_ids = distinct_ids.map(|DistinctIds(ids)| ids).unwrap_or_default();
        Ok(Self { uuids, distinct_ids })
    }
}
