//! A project's calendar, on which date functions of SQL are based: [`Calendar`].

use weir_event::id::ProjectId;
use weir_metadata::Metadata;

/// The time zone and the first weekday of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    /// The name of the time zone.
    pub(crate) zone: String,
    /// Whether weeks begin on Monday instead of Sunday.
    pub(crate) is_monday_first: bool,
}

impl Default for Calendar {
    /// The calendar of a new project.
    fn default() -> Self {
        Self { zone: "UTC".to_owned(), is_monday_first: false }
    }
}

impl Calendar {
    /// The current calendar of a project.
    pub(crate) fn of(metadata: &Metadata, project: ProjectId) -> Self {
        let known = metadata.snapshot();
        known.project(project).map_or_else(Self::default, |own| Self {
            zone: own.timezone.clone(),
            is_monday_first: own.week_start_day == 1,
        })
    }
}
