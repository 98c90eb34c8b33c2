//! What building columns takes of a project: a copy, so that no lock is held meanwhile.

use weir_event::geoip::Places;
use weir_event::id::ProjectId;

/// What building columns needs to know of a project.
#[derive(Clone, Debug)]
pub struct ProjectFacts {
    /// The project.
    pub id: ProjectId,
    /// Names of its group types, by index.
    pub group_types: Vec<String>,
    /// Whether client addresses are left out of the events, after their place was looked up.
    pub anonymize_ips: bool,
    /// Finds the place of an address.
    pub places: Places,
}
