//! What goes with a person who is deleted: its places in static cohorts, and the hash keys that flags
//! kept for it. In the transaction of the log's entry, which is there once: whatever is done again
//! after a crash, somebody who came back meanwhile keeps what is new.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::metadata::MetadataError;
use crate::metadata::Write;
use crate::metadata::cohorts;
use crate::metadata::cohorts::StoredCohort;

/// A person who is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Its uuids: its own, and those of persons that were merged into it.
    pub uuids: Vec<Uuid>,
    /// Its distinct ids.
    pub distinct_ids: Vec<String>,
}

/// What of the cohorts of a project is left when persons go.
#[derive(Debug, Default)]
pub(super) struct Left(Vec<Arc<StoredCohort>>);

impl Left {
    /// Whether no cohort is another than before.
    pub(super) fn is_as_before(&self) -> bool {
        self.0.is_empty()
    }

    /// The cohorts that are others than before.
    pub(super) fn cohorts(self) -> impl Iterator<Item = Arc<StoredCohort>> {
        self.0.into_iter()
    }
}

impl Write {
    /// Forgets persons of a project; see the head of this file.
    pub(super) async fn forget(
        &mut self,
        project: ProjectId,
        persons: &[&Forgotten],
    ) -> Result<Left, MetadataError> {
        for distinct_id in persons.iter().flat_map(|person| &person.distinct_ids) {
            sqlx::query("DELETE FROM hash_keys WHERE project_id = $1 AND distinct_id = $2")
                .bind(project.0)
                .bind(distinct_id)
                .execute(self.connection())
                .await?;
        }
        let uuids: BTreeSet<Uuid> =
            persons.iter().flat_map(|person| person.uuids.iter().copied()).collect();
        self.forget_in_deleted_cohorts(project, &uuids).await?;
        let (mut left, now) = (Left::default(), self.shared.clock.now());
        let base = Arc::clone(&self.base);
        for stored in base.cohorts(project).iter().filter(|cohort| cohort.is_static) {
            let is_member = |uuid: &&Uuid| stored.members.binary_search(uuid).is_ok();
            let gone: Vec<Uuid> = uuids.iter().filter(is_member).copied().collect();
            if gone.is_empty() {
                continue;
            }
            cohorts::rows::remove_members(self.connection(), stored.id, &gone).await?;
            let mut cohort = stored.as_ref().clone();
            cohort.members =
                stored.members.iter().filter(|uuid| !uuids.contains(uuid)).copied().collect();
            cohort.count = Some(i64::try_from(cohort.members.len()).unwrap_or(i64::MAX));
            cohort.last_calculation = Some(now);
            cohorts::rows::update(self.connection(), &cohort).await?;
            left.0.push(Arc::new(cohort));
        }
        Ok(left)
    }

    /// In cohorts that may be restored. One statement for each person, however many lists there are.
    async fn forget_in_deleted_cohorts(
        &mut self,
        project: ProjectId,
        uuids: &BTreeSet<Uuid>,
    ) -> Result<(), MetadataError> {
        for uuid in uuids {
            sqlx::query(
                "DELETE FROM cohort_members WHERE person = $2 AND cohort_id IN
                 (SELECT id FROM cohorts WHERE project_id = $1 AND is_static AND deleted)",
            )
            .bind(project.0)
            .bind(uuid.to_string())
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}
