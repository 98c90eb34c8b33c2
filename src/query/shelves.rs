//! Columns of persons on disk, which are kept in the background: [`Engine::freshen_columns`]. What they are
//! stands in `columns`.

use std::sync::Arc;

use crate::event::id::ProjectId;
use crate::query::Engine;
use crate::query::QueryError;
use crate::query::Sources;
use crate::query::columns::AskedBefore;
use crate::query::columns::Columns;

pub use crate::query::columns::Step;

/// The columns of an engine, and the properties that were in memory at the end before. Without a
/// directory that can be used they are in memory only.
pub(super) fn open(sources: &Sources, bytes_max: u64) -> (Columns, AskedBefore) {
    let Some(directory) = &sources.columns else { return (Columns::new(bytes_max), Vec::new()) };
    match Columns::open(bytes_max, directory.clone(), &sources.identities) {
        Ok(opened) => opened,
        Err(error) => {
            let path = directory.display().to_string();
            tracing::warn!(%error, path, "no columns of persons are kept on disk");
            (Columns::new(bytes_max), Vec::new())
        }
    }
}

impl Engine {
    /// Makes or renews one file of columns of a project, if one is worth it: a step of less than a second,
    /// as a rule, on a thread that may wait.
    ///
    /// # Errors
    ///
    /// The store or the disk failed.
    pub async fn freshen_columns(&self, project: ProjectId) -> Result<Step, QueryError> {
        let (columns, identities) = (Arc::clone(&self.shared.columns), self.identities().clone());
        let step =
            self.shared.runtime.spawn_blocking(move || columns.step(&identities, project)).await;
        step.unwrap_or(Err(QueryError::Unavailable("the process is ending")))
    }

    /// Reads the columns that were in memory at the end before.
    ///
    /// # Errors
    ///
    /// The store failed; those of other projects may be left out then.
    pub async fn recall_columns(&self) -> Result<(), QueryError> {
        let limit = self.shared.settings.query_timeout;
        let asked = std::mem::take(&mut *self.shared.asked.lock());
        for (project, keys) in asked {
            self.provide(project, keys, (limit, limit)).await?;
        }
        Ok(())
    }

    /// Notes for the next start what columns there are. The last step of a clean end, when persons change
    /// no more. Blocks.
    pub fn close_columns(&self) {
        if let Err(error) = self.shared.columns.close() {
            tracing::warn!(%error, "columns of persons will have to be read anew");
        }
    }
}
