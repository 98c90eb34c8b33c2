//! Columns of persons over the end of the process: which were in memory is noted in a file, and they are read in
//! advance after the next start.

use std::path::Path;
use std::{fs, io};

use crate::kernel::engine::Engine;
use crate::kernel::error::QueryError;
use crate::kernel::parts::given_up;
use crate::persons::columns::{Asks, Record};

/// The properties that were in memory at the end before, by a file that is right once: after a crash there is none.
pub(crate) fn take(path: &Path) -> Asks {
    let asks = Record::read(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "columns of persons are read when they are asked for");
        Asks::new()
    });
    // Without an extension it is the directory in which earlier versions had columns of their own, with values that
    // nobody would delete any more.
    for removed in [fs::remove_file(path), fs::remove_dir_all(path.with_extension(""))] {
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = path.display().to_string();
                tracing::warn!(%error, path, "cannot remove what is left of columns of persons");
            }
            _ => {}
        }
    }
    asks
}

impl Engine {
    /// Reads the columns that were in memory at the end before.
    ///
    /// # Errors
    ///
    /// The store failed; those of other projects may be left out then.
    pub async fn recall_columns(&self) -> Result<(), QueryError> {
        let limit = self.shared.settings.query_timeout;
        let asked = std::mem::take(&mut *self.shared.asked.lock());
        let Some(table) = self.shared.sources.persons.clone().filter(|_| !asked.is_empty()) else {
            return Ok(());
        };
        let opened = self.shared.runtime.spawn_blocking(move || table.create());
        if let Err(error) = opened.await.map_err(given_up)? {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "columns of persons are read without files of the persons table");
        }
        for (project, keys) in asked {
            self.provide(project, keys, limit, limit).await?;
        }
        Ok(())
    }

    /// Notes for the next start what columns there are. The last step of a clean end. Blocks.
    pub fn close_columns(&self) {
        let Some(path) = &self.shared.sources.asked else { return };
        if let Err(error) = Record::of(self.shared.columns.asked()).write(path) {
            tracing::warn!(%error, "columns of persons will be read when they are asked for");
        }
    }
}
