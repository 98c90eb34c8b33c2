//! Stored cohorts: what they are; `operations` creates, changes and looks them up. Matching of persons
//! (`flags::cohorts`) and counts are not here.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::accounts::UserId;
use crate::activity::{Logged, Scope, Subject};
use crate::entity::{Numbered, entity, stored};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::predicate::Matching;
use weir_flags::cohorts::{Cohort, Rule, RuleError};

mod operations;
pub(super) mod rows;

/// Longest name, in characters; the column width of PostHog.
const NAME_MAX_CHARS: usize = 400;

/// Longest description, in characters; PostHog's column width.
const DESCRIPTION_MAX_CHARS: usize = 1000;

/// Most members of a static cohort, and of one by events. They are held in memory, 16 bytes each.
pub const MEMBERS_MAX: usize = 1_000_000;

/// The id of a cohort. Positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortId(pub i64);

impl fmt::Display for CohortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

stored! { CohortId as i64: |id| id.0, |raw| Ok(Self(raw)); }

entity! {
    /// A cohort as stored.
    #[derive(Default)]
    pub struct StoredCohort in "cohorts" {
        /// The id.
        id: CohortId [key],
        /// The project that it belongs to.
        project: ProjectId as "project_id" [once],
        /// Whether it is static: a list of members.
        is_static: bool [once, logged],
        /// The user who created it.
        created_by: Option<UserId> [once],
        /// Time of creation.
        created_at: UnixMicros [once],
        /// 1 at creation, plus 1 with every update.
        version: i64,
        /// Number of members at `last_calculation`.
        count: Option<i64>,
        /// Time of the last count of the members.
        last_calculation: Option<UnixMicros>,
        /// Failed counts since the last successful one.
        errors_calculating: i64,
    }
    apart {
        /// The members of a static cohort, or those that the rule of a cohort by events had at `last_calculation`, in
        /// ascending order.
        members: Arc<[Uuid]>,
    }
    /// Changes to a cohort; `None` leaves a field unchanged.
    pub struct CohortPatch {
        /// Its name.
        name: String [logged],
        /// A description for people.
        description: String [logged],
        /// `{"properties": {"type": "AND" | "OR", "values": [...]}}`; the rule of a cohort that is not static.
        filters: Value [logged],
        /// Whether it was deleted; it can be restored.
        deleted: bool [logged],
    }
}

impl Numbered for StoredCohort {}

impl Logged for StoredCohort {
    const HAS_VERSIONS: bool = true;

    fn subject(&self) -> Subject {
        let (item, name) = (self.id.to_string(), self.name.clone());
        Subject { scope: Scope::Cohort, item, name, project: Some(self.project) }
    }
}

/// A client's data for a new cohort.
#[derive(Clone, Debug, Default)]
pub struct NewCohort {
    /// Its name, which is required, its description and its rule.
    pub values: CohortPatch,
    /// Whether it is static: a list of members.
    pub is_static: bool,
    /// The first members of a static cohort.
    pub members: Vec<Uuid>,
}

impl StoredCohort {
    /// A cohort for tests.
    #[cfg(test)]
    pub(crate) fn sample(id: i64, filters: Value) -> Self {
        Self {
            id: CohortId(id),
            project: ProjectId(1),
            name: format!("c{id}"),
            filters,
            version: 1,
            ..Self::default()
        }
    }

    /// The cohort as flag evaluation reads it.
    pub(super) fn evaluable(&self, matching: Matching) -> Cohort {
        match self.is_static {
            true => Cohort::listed(self.id.0, Arc::clone(&self.members)),
            false => Cohort::by_rule(self.id.0, self.rule(), matching, &self.members),
        }
    }

    /// Whether its rule asks what persons did: its members are those of the last calculation.
    pub fn is_by_events(&self) -> bool {
        let rule = || Rule::parse(self.rule(), Matching::Legacy);
        !self.is_static && rule().is_err_and(|error| error == RuleError::Behavioral)
    }

    /// The rule: a tree of AND and OR.
    pub fn rule(&self) -> &Value {
        self.filters.get("properties").unwrap_or(&Value::Null)
    }
}
