//! Applies merges, within limits on how many distinct ids one request moves. The rules are in
//! `decide`.

use std::sync::Arc;

use crate::auto_set::Settled;
use crate::change::{OPERATION_MAX_IDS, Op, OpKind, WarningKind};
use crate::decide::split::Ids;
use crate::decide::{Change, Merger};
use crate::person::DistinctId;
use crate::write_set::{WriteSet, memory_estimate};
use crate::{IdentityError, decide};
use weir_event::id::ProjectId;

/// Most distinct ids of a person that is merged away. Each id moves while other records wait. More
/// ids mean that many people share one id. PostHog's `LIMIT` mode of merges.
const MERGE_MAX_IDS: usize = 10_000;

/// Most distinct ids that the merges of one record move, not counting the first [`FREE_MOVES`] of
/// each. Without it, a chain of merges in one request moves all previous ids again at each step.
const RECORD_MAX_MOVES: usize = 200_000;
const FREE_MOVES: usize = 16;

impl WriteSet<'_> {
    /// Merges two persons, unless that would move too many distinct ids.
    pub(super) fn merge(
        &mut self,
        project: ProjectId,
        op: &Op,
        merger: Merger,
    ) -> Result<(), IdentityError> {
        if self.may_merge(project, merger.source)? {
            self.join(project, op, merger)
        } else {
            self.refuse_merge(project, op, merger.target)
        }
    }

    fn join(&mut self, project: ProjectId, op: &Op, merger: Merger) -> Result<(), IdentityError> {
        const GONE: IdentityError = IdentityError::Damaged { what: "person of a merge" };
        let moving = self.detach_all(project, merger.source)?;
        let source = self.row_to_change(merger.source)?;
        source.settled = Some(Settled::default());
        let source_uuid = source.person.take().ok_or(GONE)?.uuid;
        self.uuids.insert((project, source_uuid), None);
        let sequence = self.sequence();
        let target = self.row_to_change(merger.target)?;
        target.settled = Some(Settled::default());
        let person = target.person.as_mut().map(Arc::make_mut).ok_or(GONE)?;
        let target_uuid = person.uuid;
        person.created_at = merger.created_at;
        person.properties = merger.properties;
        person.version = merger.version;
        person.is_identified = true;
        person.changed_sequence = sequence;
        let bytes = memory_estimate::changed_person(person);
        self.grow(bytes);
        for (position, id) in moving {
            let id = DistinctId { since: Some(op.timestamp), ..id };
            self.assign(project, &id.text, merger.target, target_uuid);
            self.attach(project, merger.target, position, id);
        }
        *self.counts.entry(project).or_insert(0) -= 1;
        Ok(())
    }

    /// Whether a person has few enough distinct ids to be merged away. Depends only on the rows and
    /// the record, so a replay merges the same persons.
    fn may_merge(&mut self, project: ProjectId, source: i64) -> Result<bool, IdentityError> {
        let moved = usize::try_from(self.counters.progress.moves).unwrap_or(usize::MAX);
        let left = RECORD_MAX_MOVES.saturating_sub(moved);
        let most = MERGE_MAX_IDS.min(left.saturating_add(FREE_MOVES));
        let ids = self.count_ids(project, source, most.saturating_add(1))?;
        let moved = moved.saturating_add(ids.saturating_sub(FREE_MOVES));
        self.counters.progress.moves = u64::try_from(moved).unwrap_or(u64::MAX);
        Ok(ids <= most)
    }

    /// Applies a merge event without the merge: its own changes, and the target becomes identified.
    fn refuse_merge(
        &mut self,
        project: ProjectId,
        op: &Op,
        target: i64,
    ) -> Result<(), IdentityError> {
        self.warn(project, op, WarningKind::TooManyIds);
        let OpKind::Merge { update, .. } = &op.kind else { return Ok(()) };
        let person = self.find_person(project, target)?;
        let decision = decide::identify(&person, update);
        drop(person);
        decision.warnings.into_iter().for_each(|kind| self.warn(project, op, kind));
        match decision.change {
            Change::Update(revision) => self.revise(project, op, revision),
            _ => Ok(()),
        }
    }

    /// Whether a person whose row is here has too many distinct ids for an operator's operation.
    pub(super) fn has_too_many_ids(
        &self,
        project: ProjectId,
        number: i64,
    ) -> Result<bool, IdentityError> {
        Ok(self.count_ids(project, number, OPERATION_MAX_IDS + 1)? > OPERATION_MAX_IDS)
    }

    /// The number of distinct ids of a person, counted up to `most`.
    fn count_ids(
        &self,
        project: ProjectId,
        number: i64,
        most: usize,
    ) -> Result<usize, IdentityError> {
        let Some(row) = self.persons.get(&number) else { return Ok(0) };
        let mut ids = row.attached.len();
        if row.is_stored {
            for stored in self.view.each_positioned_id(project, number)? {
                if ids >= most {
                    break;
                }
                let (position, _) = stored?;
                let is_there = !self.detached.contains(&(project, number, position))
                    && !row.attached.contains_key(&position);
                ids = ids.saturating_add(usize::from(is_there));
            }
        }
        Ok(ids)
    }

    /// All distinct ids of a person by position, as they are now.
    pub(super) fn ids_of(&self, project: ProjectId, number: i64) -> Result<Ids, IdentityError> {
        let Some(row) = self.persons.get(&number) else { return Ok(Ids::new()) };
        let mut ids = Ids::new();
        if row.is_stored {
            let stored = self.view.positioned_ids(project, number)?.into_iter();
            let is_there = |position: &i64| !self.detached.contains(&(project, number, *position));
            let stored = stored.filter(|(position, _)| is_there(position));
            ids.extend(stored);
        }
        ids.extend(row.attached.iter().map(|(position, id)| (*position, id.clone())));
        Ok(ids)
    }

    /// Removes all distinct ids from a person and returns them.
    pub(super) fn detach_all(
        &mut self,
        project: ProjectId,
        number: i64,
    ) -> Result<Ids, IdentityError> {
        let ids = self.ids_of(project, number)?;
        self.grow(
            ids.values()
                .map(|id| memory_estimate::entry(id.text.len()))
                .fold(0, u64::saturating_add),
        );
        let row = self.row(number)?;
        row.attached.clear();
        if row.is_stored {
            // Removing a key that was never stored has no effect.
            self.detached.extend(ids.keys().map(|position| (project, number, *position)));
        }
        Ok(ids)
    }
}
