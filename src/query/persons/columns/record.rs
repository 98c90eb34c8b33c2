//! Which properties were in memory at the end, for the next start, which reads their columns in advance.

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use weir_event::id::ProjectId;

/// Properties by project.
pub(crate) type Asks = Vec<(ProjectId, Vec<Box<str>>)>;

/// All projects.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Record {
    projects: Vec<ProjectRecord>,
}

#[derive(Deserialize, Serialize)]
struct ProjectRecord {
    project: i64,
    asked: Vec<Box<str>>,
}

impl Record {
    /// A record of these properties.
    pub(crate) fn of(asks: Asks) -> Self {
        let project =
            |(project, asked): (ProjectId, _)| ProjectRecord { project: project.0, asked };
        Self { projects: asks.into_iter().map(project).collect() }
    }

    /// What was noted in a file; nothing if there is none. It is a hint: whatever it says, answers are the same.
    pub(crate) fn read(path: &Path) -> io::Result<Asks> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Asks::new()),
            Err(error) => return Err(error),
        };
        let record: Self = serde_json::from_slice(&text).unwrap_or_default();
        let asks = record.projects.into_iter().map(|own| (ProjectId(own.project), own.asked));
        Ok(asks.collect())
    }

    /// Notes it.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("tmp");
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(&draft, path)
    }
}
