//! Quota of definitions per project: [`Room`] is the remaining quota of a transaction,
//! [`OverQuota`] a rejected name. Anyone with the public token can create names, so their number is
//! bounded where they are stored.

use std::collections::HashMap;

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::sql;
use weir_event::id::ProjectId;

/// Kinds of definitions, each with its own quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Names of events.
    Events,
    /// Keys of properties.
    Properties,
    /// Pairs of event and property.
    Pairs,
}

/// A definition was rejected because its project has reached the quota of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// The project.
    pub project: ProjectId,
    /// The quota that was reached.
    pub limit: Limit,
    /// The name of the event, if it has one.
    pub event: Option<String>,
    /// The key of the property, if it has one.
    pub property: Option<String>,
}

/// A quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    /// The kind.
    pub(super) limit: Limit,
    /// SQL that counts the definitions of the project `$1`, up to `$2`.
    pub(super) count: &'static str,
    /// The quota.
    pub(super) max: u32,
}

/// The remaining quota in one transaction. Counted when a new definition is first written, so a
/// batch of known definitions counts nothing.
#[derive(Debug, Default)]
pub(super) struct Room {
    left: HashMap<(Limit, ProjectId), u32>,
    /// The first rejected definition of each kind and project.
    beyond: HashMap<(Limit, ProjectId), OverQuota>,
}

impl Room {
    /// Records a rejected definition, if it is the first of its kind and project.
    pub(super) fn refuse(&mut self, beyond: OverQuota) {
        self.beyond.entry((beyond.limit, beyond.project)).or_insert(beyond);
    }

    /// Whether a definition of this kind was rejected.
    pub(super) fn has_refused(&self, limit: Limit, project: ProjectId) -> bool {
        self.beyond.contains_key(&(limit, project))
    }

    /// The first rejected definition of each kind and project.
    pub(super) fn beyond(self) -> Vec<OverQuota> {
        self.beyond.into_values().collect()
    }

    /// The remaining quota.
    pub(super) async fn of(
        &mut self,
        connection: &mut Conn,
        bounded: Bounded,
        project: ProjectId,
    ) -> Result<u32, MetadataError> {
        let key = (bounded.limit, project);
        if let Some(left) = self.left.get(&key) {
            return Ok(*left);
        }
        let count = sql::query_scalar(bounded.count).bind(project.0).bind(i64::from(bounded.max));
        let count: i64 = count.fetch_one(connection).await?;
        let left = bounded.max.saturating_sub(u32::try_from(count).unwrap_or(bounded.max));
        self.left.insert(key, left);
        Ok(left)
    }

    /// Takes one from the remaining quota; false if it is used up.
    pub(super) async fn take(
        &mut self,
        connection: &mut Conn,
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
