//! The calendar by which SQL counts: that of a project ([`Calendar`]).

use weir_event::id::ProjectId;
use weir_metadata::Metadata;

/// The zone and the weeks of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    /// The name of the time zone.
    pub(crate) zone: String,
    /// Whether weeks begin on Monday, and not on Sunday.
    pub(crate) is_monday_first: bool,
}

impl Default for Calendar {
    /// That of a new project.
    fn default() -> Self {
        Self { zone: "UTC".to_owned(), is_monday_first: false }
    }
}

impl Calendar {
    /// The calendar of a project as of now.
    pub(crate) fn of(metadata: &Metadata, project: ProjectId) -> Self {
        let known = metadata.snapshot();
        known.project(project).map_or_else(Self::default, |own| Self {
            zone: own.timezone.clone(),
            is_monday_first: own.week_start_day == 1,
        })
    }
}
