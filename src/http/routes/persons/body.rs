//! The JSON form of persons.

use serde_json::{Map, Value};

use weir_api::persons as api;
use weir_identity::person::Person;
use weir_insights::person_name;
use weir_metadata::accounts::Project;

/// A single person: ids that look generated come last; otherwise ids are in the order in which they were added.
pub(super) fn retrieved(project: &Project, person: Person, mut ids: Vec<String>) -> api::Person {
    ids.sort_by_key(|id| is_anonymous(id));
    listed(project, person, ids)
}

/// A person in a list: its ids in the order in which they were added.
pub(in crate::routes) fn listed(
    project: &Project,
    person: Person,
    ids: Vec<String>,
) -> api::Person {
    api::Person {
        id: person.number,
        name: name(project, &person.properties, &ids, person.number),
        distinct_ids: ids,
        properties: person.properties,
        created_at: person.created_at.to_rfc3339(),
        uuid: person.uuid.to_string(),
        is_identified: person.is_identified,
        success: None,
    }
}

/// The same person as the response of an operation, where clients expect `success`.
pub(super) fn succeeded(person: api::Person) -> api::Person {
    api::Person { success: Some(true), ..person }
}

/// The first property that names the person, else the first distinct id that does not look
/// generated, else the first distinct id, else the number.
fn name(project: &Project, properties: &Map<String, Value>, ids: &[String], id: i64) -> String {
    let named = person_name::of(project.person_display_name_properties.as_deref(), properties);
    let chosen = || ids.iter().find(|id| !is_anonymous(id)).or(ids.first()).cloned();
    named.or_else(chosen).unwrap_or_else(|| id.to_string())
}

/// Five groups of lower-case letters and digits, separated by dashes: the ids that SDKs generate.
fn is_anonymous(id: &str) -> bool {
    let part = |part: &str| {
        let ok = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !part.is_empty() && part.bytes().all(ok)
    };
    id.split('-').count() == 5 && id.split('-').all(part)
}

#[cfg(test)]
mod tests {
    use super::is_anonymous;

    #[test]
    fn made_up_ids_are_told_from_names() {
        for (id, expected) in [
            ("0192f0c1-7f3a-7b9e-8a53-1f0e6a9b3c4d", true),
            ("a-b-c-d-e", true),
            ("a-b-c-d", false),
            ("A-b-c-d-e", false),
            ("user@example.com", false),
            ("----", false),
        ] {
            assert_eq!(is_anonymous(id), expected, "{id}");
        }
    }
}
