//! Stored cohorts: what they are; `operations` creates, changes and looks them up. Matching of persons
//! (`flags::cohorts`) and counts are not here.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::accounts::UserId;
use crate::activity;
use crate::activity::{Change, Scope, Verb};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CohortId(pub i64);

impl fmt::Display for CohortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cohort as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCohort {
    /// The id.
    pub id: CohortId,
    /// The project that it belongs to.
    pub project: ProjectId,
    /// Its name.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// `{"properties": {"type": "AND" | "OR", "values": [...]}}`; the rule of a cohort that is not static.
    pub filters: Value,
    /// Whether it is static: a list of members.
    pub is_static: bool,
    /// Whether it was deleted; it can be restored.
    pub deleted: bool,
    /// The user who created it.
    pub created_by: Option<UserId>,
    /// Time of creation.
    pub created_at: UnixMicros,
    /// 1 at creation, plus 1 with every update.
    pub version: i64,
    /// Number of members at `last_calculation`.
    pub count: Option<i64>,
    /// Time of the last count of the members.
    pub last_calculation: Option<UnixMicros>,
    /// Failed counts since the last successful one.
    pub errors_calculating: i64,
    /// The members of a static cohort, or those that the rule of a cohort by events had at `last_calculation`, in
    /// ascending order.
    pub members: Arc<[Uuid]>,
}

/// A client's data for a new cohort.
#[derive(Clone, Debug, Default)]
pub struct NewCohort {
    /// The name; required.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The rule; `None` for none.
    pub filters: Option<Value>,
    /// Whether it is static: a list of members.
    pub is_static: bool,
    /// The first members of a static cohort.
    pub members: Vec<Uuid>,
}

/// Changes to a cohort; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct CohortPatch {
    /// Another name.
    pub name: Option<String>,
    /// Another description.
    pub description: Option<String>,
    /// Another rule.
    pub filters: Option<Value>,
    /// Deletes or restores the cohort.
    pub deleted: Option<bool>,
}

impl StoredCohort {
    /// A cohort for tests.
    #[cfg(test)]
    pub(crate) fn sample(id: i64, filters: Value) -> Self {
        Self {
            id: CohortId(id),
            project: ProjectId(1),
            name: format!("c{id}"),
            description: String::new(),
            filters,
            is_static: false,
            deleted: false,
            created_by: None,
            created_at: UnixMicros(0),
            version: 1,
            count: None,
            last_calculation: None,
            errors_calculating: 0,
            members: Arc::from([]),
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

    /// The fields that the activity log compares.
    fn logged(&self) -> Map<String, Value> {
        let fields = json!({
            "name": self.name,
            "description": self.description,
            "filters": self.filters,
            "is_static": self.is_static,
            "deleted": self.deleted,
        });
        activity::fields(fields)
    }

    fn change(&self, verb: Verb, fields: Vec<Value>) -> Change {
        let (item, name) = (self.id.to_string(), self.name.clone());
        Change { scope: Scope::Cohort, item, verb, name, fields }
    }
}
