//! Reference model for the deletion tests: the events that were sent, and those that must remain.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::maintenance::deletions::tests::IDS;
use weir_event::id::{PersonId, ProjectId};
use weir_identity::change::{Extent, OpKind, Record};

/// One record of the log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// Ids of events with their distinct ids.
    pub(super) events: Vec<(Uuid, &'static str)>,
}

/// Owners of distinct ids, and events.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Maps a distinct id to the first distinct id of its person.
    owner: BTreeMap<(ProjectId, &'static str), &'static str>,
    /// Ids of persons that were deleted without their events.
    personless: BTreeSet<(ProjectId, &'static str)>,
    events: BTreeMap<Uuid, (ProjectId, &'static str)>,
    pub(super) deleted: BTreeSet<Uuid>,
    requests: BTreeMap<ProjectId, usize>,
    pub(super) gone: BTreeSet<ProjectId>,
}

impl Model {
    pub(super) fn feed(&mut self, entry: &Entry) {
        let project = entry.record.project;
        let id_of = |text: &str| *IDS.iter().find(|id| **id == text).expect("one of them");
        for op in &entry.record.ops {
            match &op.kind {
                OpKind::Touch => {
                    let id = id_of(&op.distinct_id);
                    self.owner.entry((project, id)).or_insert(id);
                }
                OpKind::Merge { other, .. } => {
                    self.merge(project, id_of(&op.distinct_id), id_of(other));
                }
                OpKind::Delete { person, extent } => self.delete(project, *person, *extent),
                OpKind::DeleteProject => self.delete_project(project),
                other => panic!("{other:?}"),
            }
        }
        self.events.extend(entry.events.iter().map(|(uuid, id)| (*uuid, (project, *id))));
    }

    fn merge(&mut self, project: ProjectId, id: &'static str, other: &'static str) {
        let of = |id| self.owner.get(&(project, id)).copied();
        let (target, source) = match (of(id), of(other)) {
            (Some(target), Some(source)) => (target, Some(source)),
            (Some(target), None) | (None, Some(target)) => (target, None),
            (None, None) => {
                // The person gets the uuid of the id whose events are stored without a person.
                let was_used = |id| self.personless.contains(&(project, id));
                let other_first = was_used(other) && !was_used(id);
                (if other_first { other } else { id }, None)
            }
        };
        for ((own, _), owner) in &mut self.owner {
            if *own == project && Some(*owner) == source {
                *owner = target;
            }
        }
        self.owner.insert((project, id), target);
        self.owner.insert((project, other), target);
    }

    fn delete(&mut self, project: ProjectId, person: Uuid, extent: Extent) {
        let is_theirs = |first: &str| PersonId::of(project, first).0 == person;
        let theirs = self.owner.iter();
        let theirs = theirs.filter(|((own, _), first)| *own == project && is_theirs(first));
        let ids: Vec<&'static str> = theirs.map(|((_, id), _)| *id).collect();
        if extent.has_events() && !ids.is_empty() {
            *self.requests.entry(project).or_insert(0) += 1;
            let theirs =
                self.events.iter().filter(|(_, (own, id))| *own == project && ids.contains(id));
            self.deleted.extend(theirs.map(|(uuid, _)| *uuid));
        }
        if !extent.has_person() {
            return;
        }
        self.owner.retain(|(own, id), _| *own != project || !ids.contains(id));
        for id in ids {
            match extent {
                Extent::Both => self.personless.remove(&(project, id)),
                _ => self.personless.insert((project, id)),
            };
        }
    }

    fn delete_project(&mut self, project: ProjectId) {
        self.gone.insert(project);
        self.requests.remove(&project);
        let own = self.events.iter().filter(|(_, (own, _))| *own == project);
        self.deleted.extend(own.map(|(uuid, _)| *uuid));
    }

    /// Requests for persons of projects that are there.
    pub(super) fn requests(&self) -> usize {
        self.requests.values().sum()
    }

    pub(super) fn events_of(&self, project: ProjectId) -> BTreeSet<Uuid> {
        let own = self.events.iter().filter(|(_, (own, _))| *own == project);
        own.map(|(uuid, _)| *uuid).filter(|uuid| !self.deleted.contains(uuid)).collect()
    }
}
