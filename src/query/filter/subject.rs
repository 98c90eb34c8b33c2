//! What filters ask of persons besides their properties: their cohorts, and what [`place_value`] gives.

use serde_json::Value;
use uuid::Uuid;

use weir_base::clock::UnixMicros;
use weir_identity::person::Person;
use weir_identity::view::View;

/// Whether a person, who is read from the view, is in the cohort with this id.
pub type InCohort = Box<dyn Fn(&View, i64, &Person) -> bool + Send + Sync>;

/// What filters of the type `person_metadata` ask of a person, by its name: of the uuid, the time of
/// creation, and whether it is identified.
pub(crate) fn place_value(
    key: &str,
    uuid: Uuid,
    created_at: UnixMicros,
    is_identified: bool,
) -> Option<Value> {
    match key {
        "created_at" => Some(Value::from(created_at.to_rfc3339())),
        "id" | "uuid" => Some(Value::from(uuid.to_string())),
        "is_identified" => Some(Value::from(is_identified)),
        _ => None,
    }
}
