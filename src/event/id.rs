//! Checked ids: [`ProjectId`], [`ShardId`], [`EventId`], [`EventKey`], [`PersonId`]. A value of these types is valid.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The tenant that owns events. Positive; the first project of a data directory is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(pub i64);

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of a cluster: one log and one pair of tables, which one node at a time writes. Each project lives in exactly one.
/// A cluster that was never split has [`ShardId::FIRST`] alone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The shard that there always is.
    pub const FIRST: Self = Self(0);

    /// The prefix of its objects in a bucket.
    pub fn prefix(self) -> String {
        format!("shards/{self}")
    }
}

/// With four digits, as in names of leases: `0003`.
impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}", self.0)
    }
}

/// The id of one event: the SDK's uuid, of any version, or one that the server generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub Uuid);

/// Deduplication key: two events of a project with the same id, name and distinct id are one event that was
/// sent twice, as in the key of PostHog's events table. The id alone is not enough: some senders use
/// ids of their own objects, so that different events have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey(Uuid);

impl EventKey {
    /// The key of an event, by its stored values.
    pub fn new(id: Uuid, event: &str, distinct_id: &str) -> Self {
        let digest = FixedState::with_seed(0).hash_one((event, distinct_id));
        // As bytes, which pack tightly beside a project id: millions of keys are in memory.
        Self(Uuid::from_u128(id.as_u128() ^ u128::from(digest)))
    }
}

/// The id of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersonId(pub Uuid);

/// Namespace of person uuids. PostHog uses the same (`personUUIDv5` of its plugin server), so that
/// ids agree with data exported from there.
const PERSON_NAMESPACE: Uuid = Uuid::from_u128(0x932979b4_65c3_4424_8467_0b66ec27bc22);

impl PersonId {
    /// The id of the person whose first distinct id is `distinct_id`: UUIDv5 of
    /// `<project>:<distinct id>`. A pure function, so that columns are built without a look-up; ids that were
    /// merged into another person are mapped by the overrides.
    pub fn of(project: ProjectId, distinct_id: &str) -> Self {
        let mut name = String::with_capacity(distinct_id.len() + 8);
        name.push_str(&project.0.to_string());
        name.push(':');
        name.push_str(distinct_id);
        Self(Uuid::new_v5(&PERSON_NAMESPACE, name.as_bytes()))
    }
}

impl fmt::Display for PersonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{PersonId, ProjectId, ShardId};

    #[test]
    fn shards_have_four_digits() {
        assert_eq!(ShardId::FIRST.to_string(), "0000");
        assert_eq!(ShardId(3).to_string(), "0003");
        assert_eq!(ShardId(12_345).to_string(), "12345");
        assert_eq!(ShardId::default(), ShardId::FIRST);
        assert!(ShardId(9) < ShardId(10));
        assert_eq!(serde_json::to_string(&ShardId(3)).expect("a number"), "3");
    }

    /// Vectors computed with Python's `uuid.uuid5`.
    #[test]
    fn person_ids_are_those_of_posthog() {
        for (project, distinct_id, expected) in [
            (1, "user1", "7846de25-11f3-5d27-9b1c-fde22d29cf31"),
            (1, "anon1", "3aa19f72-b8f7-59e2-8a90-5da5ddd8eda1"),
            (2, "user1", "01d23bba-ccf9-5038-a87c-be95b4400d47"),
        ] {
            assert_eq!(PersonId::of(ProjectId(project), distinct_id).to_string(), expected);
        }
    }
}
