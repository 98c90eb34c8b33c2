//! How many more definitions a project may have: [`Room`]. Names come from whoever has the public
//! token, so their number is bounded where they are noted.

use std::collections::HashMap;

use sqlx::SqliteConnection;

use crate::event::id::ProjectId;
use crate::metadata::MetadataError;

/// What there may be so many of in a project.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    /// Counts those of the project `$1`, up to `$2`.
    pub(super) count: &'static str,
    /// How many there may be.
    pub(super) max: u32,
}

/// What is left in one transaction. Counted when something new is first noted, so a batch of what is
/// known counts nothing.
#[derive(Debug, Default)]
pub(super) struct Room(HashMap<(&'static str, ProjectId), u32>);

impl Room {
    /// How many more there may be.
    pub(super) async fn of(
        &mut self,
        connection: &mut SqliteConnection,
        bounded: Bounded,
        project: ProjectId,
    ) -> Result<u32, MetadataError> {
        let key = (bounded.count, project);
        if let Some(left) = self.0.get(&key) {
            return Ok(*left);
        }
        let count = sqlx::query_scalar(bounded.count).bind(project.0).bind(i64::from(bounded.max));
        let count: i64 = count.fetch_one(connection).await?;
        let left = bounded.max.saturating_sub(u32::try_from(count).unwrap_or(bounded.max));
        self.0.insert(key, left);
        Ok(left)
    }

    /// Takes the place of one more; false if there is none.
    pub(super) async fn take(
        &mut self,
        connection: &mut SqliteConnection,
        bounded: Bounded,
        project: ProjectId,
    ) -> Result<bool, MetadataError> {
        let left = self.of(connection, bounded, project).await?.checked_sub(1);
        if let Some(left) = left {
            self.0.insert((bounded.count, project), left);
        }
        Ok(left.is_some())
    }
}
