//! Columns of persons on disk, which are kept in the background: [`Engine::freshen_columns`]. What they are
//! stands in `columns`.

use crate::config::query::QueryConfig;
use crate::event::id::ProjectId;
use crate::query::columns;
use crate::query::columns::AskedBefore;
use crate::query::columns::Columns;
use crate::query::columns::FileLimits;
use crate::query::engine::Engine;
use crate::query::error::QueryError;
use crate::query::sources::ColumnFiles;
use crate::query::sources::Sources;

pub use crate::query::columns::Step;

/// The columns of an engine, and the properties that were in memory at the end before. Without a
/// directory that can be used they are in memory only.
pub(super) fn open(sources: &Sources, settings: &QueryConfig) -> (Columns, AskedBefore) {
    let bytes_max = settings.person_columns_memory_max_bytes.as_u64();
    let Some(ColumnFiles { directory, stale_max }) = &sources.columns else {
        return (Columns::new(bytes_max), Vec::new());
    };
    let limits = FileLimits {
        bytes_max: settings.person_columns_disk_max_bytes.as_u64(),
        persons_min: settings.person_columns_persons_min,
        chunk_persons: columns::PERSONS,
        stale_max: *stale_max,
    };
    match Columns::open(bytes_max, (directory.clone(), limits), &sources.identities) {
        Ok(opened) => opened,
        Err(error) => {
            let path = directory.display().to_string();
            tracing::warn!(%error, path, "no columns of persons are kept on disk");
            (Columns::new(bytes_max), Vec::new())
        }
    }
}

impl Engine {
    /// Makes or renews one file of columns of these projects, if one is worth it: a step of less than a
    /// second, as a rule. They are all there are: files of others go. Blocks; not for the threads of a
    /// runtime.
    ///
    /// # Errors
    ///
    /// The store or the disk failed.
    pub fn freshen_columns(&self, projects: &[ProjectId]) -> Result<Step, QueryError> {
        let (columns, now) = (&self.shared.columns, self.shared.clock.now());
        let step = columns.step(self.identities(), projects, now);
        let bytes = i64::try_from(columns.disk_bytes()).unwrap_or(i64::MAX);
        self.shared.metrics.person_columns_disk_bytes.set(bytes);
        step
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
        if let Err(error) = self.shared.columns.close(self.shared.clock.now()) {
            tracing::warn!(%error, "columns of persons will have to be read anew");
        }
    }
}
