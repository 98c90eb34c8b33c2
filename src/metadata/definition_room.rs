//! How many more definitions a project may have: [`Room`], and what there was none for: [`Beyond`]. Names
//! come from whoever has the public token, so their number is bounded where they are noted.

use std::collections::HashMap;

use sqlx::SqliteConnection;

use crate::event::id::ProjectId;
use crate::metadata::MetadataError;

/// Kinds of definitions, each with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Names of events.
    Events,
    /// Keys of properties.
    Properties,
    /// Pairs of both.
    Pairs,
}

/// That a project has as many definitions of a kind as it may, and there came a further one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The project.
    pub project: ProjectId,
    /// Of what it has as many as it may.
    pub limit: Limit,
    /// The name of the event, if it is about one.
    pub event: Option<String>,
    /// The key of the property, if it is about one.
    pub property: Option<String>,
}

/// What there may be so many of in a project.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    /// Which limit it is.
    pub(super) limit: Limit,
    /// Counts those of the project `$1`, up to `$2`.
    pub(super) count: &'static str,
    /// How many there may be.
    pub(super) max: u32,
}

/// What is left in one transaction. Counted when something new is first noted, so a batch of what is
/// known counts nothing.
#[derive(Debug, Default)]
pub(super) struct Room {
    left: HashMap<(Limit, ProjectId), u32>,
    /// The first of each kind and project that there was no room for.
    beyond: HashMap<(Limit, ProjectId), Beyond>,
}

impl Room {
    /// Remembers that there was no room for something, if it is the first of its kind and project.
    pub(super) fn refuse(&mut self, beyond: Beyond) {
        self.beyond.entry((beyond.limit, beyond.project)).or_insert(beyond);
    }

    /// Whether there was no room for something of this kind.
    pub(super) fn has_refused(&self, limit: Limit, project: ProjectId) -> bool {
        self.beyond.contains_key(&(limit, project))
    }

    /// The first of each kind and project that there was no room for.
    pub(super) fn beyond(self) -> Vec<Beyond> {
        self.beyond.into_values().collect()
    }

    /// How many more there may be.
    pub(super) async fn of(
        &mut self,
        connection: &mut SqliteConnection,
        bounded: Bounded,
        project: ProjectId,
    ) -> Result<u32, MetadataError> {
        let key = (bounded.limit, project);
        if let Some(left) = self.left.get(&key) {
            return Ok(*left);
        }
        let count = sqlx::query_scalar(bounded.count).bind(project.0).bind(i64::from(bounded.max));
        let count: i64 = count.fetch_one(connection).await?;
        let left = bounded.max.saturating_sub(u32::try_from(count).unwrap_or(bounded.max));
        self.left.insert(key, left);
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
            self.left.insert((bounded.limit, project), left);
        }
        Ok(left.is_some())
    }
}
