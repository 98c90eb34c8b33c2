//! The outcome for one flag: a verdict with its reason, or a failure.

use std::borrow::Cow;

use serde_json::Value;

/// The value of a flag for a subject, with its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict<'d> {
    /// Whether the flag is on.
    pub enabled: bool,
    /// The variant, for a flag that is on and has variants.
    pub variant: Option<&'d str>,
    /// The strongest reason found.
    pub reason: Reason,
    /// The condition of the reason, from 0.
    pub condition_index: Option<usize>,
    /// The payload as stored.
    pub payload: Option<&'d Value>,
}

/// The reason of a verdict; later ones are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A flag that it depends on does not exist, or it is in a dependency cycle.
    MissingDependency,
    /// The flag is inactive.
    FlagDisabled,
    /// The condition is for a group, and the request has none of that type.
    NoGroupType,
    /// The filters of the condition do not match.
    NoConditionMatch,
    /// The filters match; the rollout does not include the subject.
    OutOfRolloutBound,
    /// The condition matches.
    ConditionMatch,
    /// The subject is in the holdout of experiments.
    HoldoutConditionValue,
    /// The person joined or left the early access.
    SuperConditionValue,
}

/// The reason for no verdict. The response has `errorsWhileComputingFlags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The hash keys of the person could not be read.
    HashKeys,
    /// The members of this cohort are unknown.
    Cohort(i64),
    /// The verdict depends on this flag, which has no verdict.
    Dependency(i64),
    /// The stored flag is invalid.
    Definition,
}

impl<'d> Verdict<'d> {
    /// A verdict of false.
    pub fn off(reason: Reason, condition_index: Option<usize>) -> Self {
        Self { enabled: false, variant: None, reason, condition_index, payload: None }
    }

    /// A sentence for people, as PostHog words it.
    pub fn description(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self.reason {
            Reason::ConditionMatch => match self.condition_index {
                // Nearly all flags have few conditions.
                Some(0) => "Matched condition set 1",
                Some(1) => "Matched condition set 2",
                Some(2) => "Matched condition set 3",
                Some(index) => return Cow::Owned(format!("Matched condition set {}", index + 1)),
                None => "Matched condition set",
            },
            Reason::MissingDependency => "Flag cannot be evaluated due to missing dependency",
            Reason::FlagDisabled => "Feature flag is disabled",
            Reason::NoGroupType => "No group type",
            Reason::NoConditionMatch => "No matching condition set",
            Reason::OutOfRolloutBound => "Out of rollout bound",
            Reason::HoldoutConditionValue => "Holdout condition value",
            Reason::SuperConditionValue => "Super condition value",
        })
    }
}

impl Reason {
    /// The wire name.
    pub fn code(self) -> &'static str {
        match self {
            Self::MissingDependency => "missing_dependency",
            Self::FlagDisabled => "flag_disabled",
            Self::NoGroupType => "no_group_type",
            Self::NoConditionMatch => "no_condition_match",
            Self::OutOfRolloutBound => "out_of_rollout_bound",
            Self::ConditionMatch => "condition_match",
            Self::HoldoutConditionValue => "holdout_condition_value",
            Self::SuperConditionValue => "super_condition_value",
        }
    }
}

impl Failure {
    /// The wire name.
    pub fn code(self) -> &'static str {
        match self {
            Self::HashKeys => "hash_key_override_error",
            Self::Cohort(_) => "dependency_not_found_cohort",
            Self::Dependency(_) => "dependency_failed_flag",
            Self::Definition => "invalid_definition",
        }
    }

    /// A sentence for people.
    pub fn description(self) -> Cow<'static, str> {
        match self {
            Self::HashKeys => Cow::Borrowed("Hash keys of the person could not be read"),
            Self::Cohort(id) => Cow::Owned(format!("Members of cohort {id} are not known")),
            Self::Dependency(id) => Cow::Owned(format!("Flag {id} could not be evaluated")),
            Self::Definition => Cow::Borrowed("The definition of the flag cannot be read"),
        }
    }
}
