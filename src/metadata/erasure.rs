//! Cascade of a person deletion: removes its memberships of cohorts that have a list of members, and the hash keys that flags
//! kept for it. Runs in the transaction of the activity entry, which is written once. So a replay after a
//! crash does not repeat it, and a person who came back meanwhile keeps its new rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::activity::Forgotten;
use crate::cohorts::StoredCohort;
use crate::entity::Entity;
use crate::error::MetadataError;
use crate::{Write, cohorts, sql};
use weir_event::id::ProjectId;

/// The cohorts of a project after members were removed.
#[derive(Debug, Default)]
pub(super) struct Left(Vec<Arc<StoredCohort>>);

impl Left {
    /// Whether no cohort changed.
    pub(super) fn is_as_before(&self) -> bool {
        self.0.is_empty()
    }

    /// The cohorts that changed.
    pub(super) fn cohorts(self) -> impl Iterator<Item = Arc<StoredCohort>> {
        self.0.into_iter()
    }
}

impl Write {
    /// Removes memberships and hash keys of persons of a project; see the head of this file.
    pub(super) async fn forget(
        &mut self,
        project: ProjectId,
        persons: &[&Forgotten],
    ) -> Result<Left, MetadataError> {
        for distinct_id in persons.iter().flat_map(|person| &person.distinct_ids) {
            sql::query("DELETE FROM hash_keys WHERE project_id = $1 AND distinct_id = $2")
                .bind(project.0)
                .bind(distinct_id)
                .execute(self.connection())
                .await?;
        }
        let uuids: BTreeSet<Uuid> =
            persons.iter().flat_map(|person| person.uuids.iter().copied()).collect();
        self.remove_from_deleted_cohorts(project, &uuids).await?;
        let (mut left, now) = (Left::default(), self.shared.clock.now());
        let base = Arc::clone(&self.base);
        for stored in base.cohorts(project).iter().filter(|cohort| !cohort.members.is_empty()) {
            let is_member = |uuid: &&Uuid| stored.members.binary_search(uuid).is_ok();
            let removed: Vec<Uuid> = uuids.iter().filter(is_member).copied().collect();
            if removed.is_empty() {
                continue;
            }
            cohorts::rows::remove_members(self.connection(), stored.id, &removed).await?;
            let mut cohort = stored.as_ref().clone();
            cohort.members =
                stored.members.iter().filter(|uuid| !uuids.contains(uuid)).copied().collect();
            cohort.count = Some(i64::try_from(cohort.members.len()).unwrap_or(i64::MAX));
            cohort.last_calculation = Some(now);
            cohort.update().execute(self.connection()).await?;
            left.0.push(Arc::new(cohort));
        }
        Ok(left)
    }

    /// Removes members of deleted cohorts, which may be restored. One statement for each person.
    async fn remove_from_deleted_cohorts(
        &mut self,
        project: ProjectId,
        uuids: &BTreeSet<Uuid>,
    ) -> Result<(), MetadataError> {
        for uuid in uuids {
            sql::query(
                "DELETE FROM cohort_members WHERE person = $2 AND cohort_id IN
                 (SELECT id FROM cohorts WHERE project_id = $1 AND deleted)",
            )
            .bind(project.0)
            .bind(uuid.to_string())
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}
