//! What is only in imports: persons without an event, and the times of another server.

use crate::capture::Fields;
use crate::normalize::batch::Batch;
use crate::tape::Value;

/// Name of an item of an import that is no event: its `person_properties` are those of the person of its distinct id,
/// created at its `timestamp`, and `alias` in its properties is another distinct id of the same person.
pub(super) const IMPORTED_PERSON: &str = "$import_person";

impl Batch<'_, '_> {
    /// Whether an item tells of a person, and is not stored.
    pub(super) fn is_imported_person(&self, fields: &Fields<'_>) -> bool {
        let name = fields.event.as_ref().map(|raw| raw.value);
        self.history.import().is_some() && name == Some(Value::String(IMPORTED_PERSON))
    }
}
