//! Deletions: events that operators have deleted and queries must not return, and the state of each
//! request.
//!
//! # Which events
//!
//! A request deletes the events of a person. It records the person's distinct ids at that moment,
//! with the log sequence of the request. An event belongs to the owner of its distinct id, whatever
//! uuid it is stored with. So this is exact: later merges and splits change nothing, and an event
//! of the same distinct id after the request stays.
//!
//! # Which events come before the request
//!
//! A row in memory has its log sequence. A file has the highest sequence that it contains
//! (`position`, see `naming` of the crate `weir-storage`). That is enough because of two rules for writers of
//! files. A memtable is written only when every request up to its highest sequence is known here,
//! and without the rows that these delete. A merge leaves out the rows of the requests known when
//! it begins. So a file that reaches beyond a request has none of the rows that it deletes, and
//! every row of another file is from before it: comparing the file's sequence with the request's is
//! as good as comparing that of each row.
//!
//! Other engines may rewrite files of the table, and their files have no sequence. Their rows are
//! deleted by time: that at which the server received the row, against that of the request. Only
//! rows received while a request is being processed may fall on either side.
//!
//! # Projects and ages
//!
//! All events of a deleted project are deleted, whatever their places: its id is not given again. And a project may keep
//! events for some time only: those from before a time are deleted wherever they are, whenever they come
//! ([`Deletions::with_kept_from`]). That time depends on the clock and the settings of the project, so it comes from
//! outside, for each use of these deletions.
//!
//! # Why
//!
//! Readers hold a whole version, so a change makes a new one. The parts double in size as in a
//! log-structured tree, so that adding to many costs little, and a look-up reads few parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::gone::GoneProjects;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// One request to delete the events of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The person; it may be deleted.
    pub person: Uuid,
    /// Time of the request; from then on no query returns the events.
    pub asked_at: UnixMicros,
    /// Time at which no live file and no memory had them any more.
    pub done_at: Option<UnixMicros>,
}

/// The key of a request. The requests of a project sort in the order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey {
    pub(super) project: ProjectId,
    /// Sequence of the record.
    pub(super) sequence: u64,
    /// Number within the record.
    pub(super) ordinal: u32,
}

/// A request that is being applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) place: RequestKey,
    pub(super) person: Uuid,
    pub(super) asked_at: UnixMicros,
    /// All distinct ids of the person.
    pub(super) ids: Vec<Box<str>>,
}

/// The origin of an event, which decides whether a request deletes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Log sequence of the row, or the highest one of its file.
    Log(u64),
    /// In a file of another engine: the time at which the server received the event.
    Received(UnixMicros),
}

impl Origin {
    /// The origin of a row received at `received_at`, in a file with `position`, or 0 if it has none.
    pub fn of(position: u64, received_at: UnixMicros) -> Self {
        match position {
            0 => Self::Received(received_at),
            position => Self::Log(position),
        }
    }
}

/// The upper bound of the deleted events of a distinct id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    sequence: u64,
    asked_at: UnixMicros,
}

impl Limit {
    fn covers(self, origin: Origin) -> bool {
        match origin {
            Origin::Log(position) => position < self.sequence,
            Origin::Received(at) => at < self.asked_at,
        }
    }
}

/// A distinct id with deleted events, and the bound up to which they are deleted, for processes that do not have the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedId {
    distinct_id: Box<str>,
    sequence: u64,
    /// Microseconds since 1970.
    asked_at: i64,
}

/// The time before which no event of a project is kept, for the projects that have one.
pub type KeptFrom = BTreeMap<ProjectId, UnixMicros>;

/// For each distinct id, the bound up to which its events are deleted.
type Limits = HashMap<Box<str>, Limit>;

/// A request with the distinct ids that it deletes.
pub(super) type Request = (RequestKey, UnixMicros, Vec<Box<str>>);

#[derive(Debug, Default)]
struct Part {
    ids: usize,
    projects: HashMap<ProjectId, Limits>,
}

impl Part {
    fn add(&mut self, project: ProjectId, id: Box<str>, limit: Limit) {
        let limits = self.projects.entry(project).or_default();
        match limits.get_mut(&id) {
            Some(known) => {
                known.sequence = limit.sequence.max(known.sequence);
                known.asked_at = limit.asked_at.max(known.asked_at);
            }
            None => {
                limits.insert(id, limit);
                self.ids += 1;
            }
        }
    }
}

/// All unfinished deletions as of some applied sequence.
#[derive(Clone, Debug, Default)]
pub struct Deletions {
    /// In descending order of size.
    parts: Vec<Arc<Part>>,
    requests: usize,
    newest: u64,
    /// Deleted projects.
    projects: Arc<GoneProjects>,
    kept_from: Arc<KeptFrom>,
}

impl Deletions {
    pub(super) fn new(requests: impl Iterator<Item = Request>) -> Self {
        Self::default().with(requests)
    }

    /// Whether there is none, so that no row needs a check.
    pub fn is_empty(&self) -> bool {
        self.requests == 0 && self.kept_from.is_empty()
    }

    /// Whether the project has any, apart from those for their age.
    pub fn concerns(&self, project: ProjectId) -> bool {
        self.projects.contains(&project)
            || self.parts.iter().any(|part| part.projects.contains_key(&project))
    }

    /// The projects with deletions of persons' events; may contain one twice.
    pub fn projects(&self) -> impl Iterator<Item = ProjectId> + '_ {
        self.parts.iter().flat_map(|part| part.projects.keys().copied())
    }

    /// The deleted projects.
    pub fn deleted_projects(&self) -> impl Iterator<Item = ProjectId> + '_ {
        self.projects.iter().copied()
    }

    /// Whether a project is deleted.
    pub fn is_project_deleted(&self, project: ProjectId) -> bool {
        self.projects.contains(&project)
    }

    /// The times before which no event of a project is kept.
    pub fn kept_from(&self) -> &KeptFrom {
        &self.kept_from
    }

    /// Whether an event of this time is too old to be kept.
    pub fn is_too_old(&self, project: ProjectId, timestamp: UnixMicros) -> bool {
        self.kept_from.get(&project).is_some_and(|from| timestamp < *from)
    }

    /// The same deletions, and those of events from before these times.
    pub fn with_kept_from(&self, kept_from: &Arc<KeptFrom>) -> Self {
        Self { kept_from: Arc::clone(kept_from), ..self.clone() }
    }

    /// Whether an event of this distinct id is deleted, apart from its age.
    pub fn is_deleted(&self, project: ProjectId, distinct_id: &str, origin: Origin) -> bool {
        if self.projects.contains(&project) {
            return true;
        }
        let limits = self.parts.iter().filter_map(|part| part.projects.get(&project));
        limits.filter_map(|limits| limits.get(distinct_id)).any(|limit| limit.covers(origin))
    }

    /// The distinct ids of a project with deleted events; `None` if they are more than `ids_max`, or the whole project is
    /// deleted.
    pub fn listed(&self, project: ProjectId, ids_max: usize) -> Option<Vec<DeletedId>> {
        let limits = self.parts.iter().filter_map(|part| part.projects.get(&project));
        let count = limits.clone().map(|limits| limits.len()).fold(0, usize::saturating_add);
        if count > ids_max || self.projects.contains(&project) {
            return None;
        }
        let listed = |distinct_id: &str, limit: &Limit| DeletedId {
            distinct_id: distinct_id.into(),
            sequence: limit.sequence,
            asked_at: limit.asked_at.0,
        };
        Some(limits.flatten().map(|(id, limit)| listed(id, limit)).collect())
    }

    /// The deletions of a project by its list. They tell what is deleted, and nothing of the requests.
    pub fn of_list(project: ProjectId, ids: Vec<DeletedId>) -> Self {
        let mut part = Part::default();
        for DeletedId { distinct_id, sequence, asked_at } in ids {
            part.add(project, distinct_id, Limit { sequence, asked_at: UnixMicros(asked_at) });
        }
        Self { parts: vec![Arc::new(part)], ..Self::default() }
    }

    /// The distinct ids with deleted events at this log sequence, of all projects; may contain one twice.
    /// All of them for 0, the position of a file without a sequence, which may contain any events.
    pub fn distinct_ids(&self, position: u64) -> impl Iterator<Item = &str> + '_ {
        let limits = self.parts.iter().flat_map(|part| part.projects.values()).flatten();
        limits.filter(move |(_, limit)| position < limit.sequence).map(|(id, _)| id.as_ref())
    }

    /// Number of distinct ids; one that is in two parts counts twice.
    pub fn ids(&self) -> usize {
        self.parts.iter().map(|part| part.ids).sum()
    }

    /// Number of requests, those to delete projects included.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Sequence of the newest request; 0 for none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The next version, in which these projects are deleted by records with these sequences.
    pub(super) fn with_projects(&self, projects: impl Iterator<Item = (ProjectId, u64)>) -> Self {
        let mut next = self.clone();
        for (project, sequence) in projects {
            next.requests += 1;
            next.newest = next.newest.max(sequence);
            Arc::make_mut(&mut next.projects).insert(project);
        }
        next
    }

    /// The next version, which adds `requests`.
    pub(super) fn with(&self, requests: impl Iterator<Item = Request>) -> Self {
        let mut next = self.clone();
        let mut part = Part::default();
        for (place, asked_at, ids) in requests {
            next.requests += 1;
            next.newest = next.newest.max(place.sequence);
            for id in ids {
                part.add(place.project, id, Limit { sequence: place.sequence, asked_at });
            }
        }
        if part.ids == 0 {
            return next;
        }
        // Each part that stays is at least twice as large as the next.
        while let Some(smaller) = next.parts.pop_if(|last| last.ids / 2 < part.ids) {
            for (project, limits) in &smaller.projects {
                for (id, limit) in limits {
                    part.add(*project, id.clone(), *limit);
                }
            }
        }
        next.parts.push(Arc::new(part));
        next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Deletions, Origin, RequestKey};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        /// Goal: whatever order requests come in, an event is deleted exactly if a request for its
        /// distinct id came after it, by log sequence or, for events without one, by the clock.
        #[test]
        fn an_event_is_deleted_by_a_later_request(
            marks in prop::collection::vec((1..3_i64, prop::collection::vec("[a-e]", 0..4)), 0..40),
        ) {
            // A request each minute.
            let time = |sequence: u64| UnixMicros(i64::try_from(sequence).unwrap() * 60_000_000);
            let mut deletions = Deletions::default();
            let mut limits: BTreeMap<(i64, String), u64> = BTreeMap::new();
            for (sequence, (project, ids)) in (1..).zip(&marks) {
                let place = RequestKey { project: ProjectId(*project), sequence, ordinal: 0 };
                let own = ids.iter().map(|id| id.as_str().into()).collect();
                let before = deletions.clone();
                deletions = deletions.with(std::iter::once((place, time(sequence), own)));
                prop_assert_eq!(before.newest(), sequence - 1, "a version does not change");
                limits.extend(ids.iter().map(|id| ((*project, id.clone()), sequence)));
            }
            prop_assert_eq!(deletions.requests(), marks.len());
            prop_assert_eq!(deletions.is_empty(), marks.is_empty());
            prop_assert!(deletions.parts.is_sorted_by(|larger, part| larger.ids / 2 >= part.ids));
            for project in 1..3 {
                let ids = deletions.listed(ProjectId(project), 200).unwrap();
                prop_assert!(ids.is_empty() || deletions.listed(ProjectId(project), 0).is_none());
                let read = Deletions::of_list(ProjectId(project), ids);
                for id in ["a", "b", "c", "d", "e", "f"] {
                    let limit = limits.get(&(project, id.to_owned())).copied().unwrap_or(0);
                    for position in [0, 1, 2, 5, 10, 20, 39, 40, 41] {
                        let found = |origin| {
                            let found = deletions.is_deleted(ProjectId(project), id, origin);
                            assert_eq!(read.is_deleted(ProjectId(project), id, origin), found);
                            found
                        };
                        let expected = position < limit;
                        let by_log = found(Origin::Log(position));
                        prop_assert_eq!(by_log, expected, "{} at {}", id, position);
                        let by_time = found(Origin::of(0, time(position)));
                        prop_assert_eq!(by_time, expected, "{} at the time of {}", id, position);
                        let by_log = found(Origin::of(position.max(1), time(99)));
                        prop_assert_eq!(by_log, position.max(1) < limit, "a place is enough");
                    }
                }
                let any = limits.keys().any(|(own, _)| *own == project);
                prop_assert_eq!(deletions.concerns(ProjectId(project)), any);
            }
            let mut found: Vec<&str> = deletions.distinct_ids(10).collect();
            let late = limits.iter().filter(|(_, limit)| **limit > 10);
            let mut expected: Vec<&str> = late.map(|((_, id), _)| id.as_str()).collect();
            for ids in [&mut found, &mut expected] {
                ids.sort_unstable();
                ids.dedup();
            }
            prop_assert_eq!(found, expected);
        }
    }
}
