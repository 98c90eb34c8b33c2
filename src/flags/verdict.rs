//! The outcome for one flag: a verdict with its reason, or why there is none.

use std::borrow::Cow;

use serde_json::Value;

/// What a flag is for a subject, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict<'d> {
    /// Whether the flag is on.
    pub enabled: bool,
    /// The variant, for a flag that is on and has some.
    pub variant: Option<&'d str>,
    /// The strongest reason that was met.
    pub reason: Reason,
    /// The condition that the reason is about, from 0.
    pub condition_index: Option<usize>,
    /// The payload as stored.
    pub payload: Option<&'d Value>,
}

/// Why a verdict is what it is; later ones are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The flag depends on one that does not exist, or on itself.
    MissingDependency,
    /// The flag is switched off.
    FlagDisabled,
    /// The condition is about a group, and the request names none of that type.
    NoGroupType,
    /// The filters of the condition do not match.
    NoConditionMatch,
    /// The filters match; the rollout does not reach the subject.
    OutOfRolloutBound,
    /// The condition matches.
    ConditionMatch,
    /// The subject is kept out of the experiment.
    HoldoutConditionValue,
    /// The person joined or left the early access.
    SuperConditionValue,
}

/// Why there is no verdict. The response carries `errorsWhileComputingFlags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The hash keys of the person could not be read.
    HashKeys,
    /// The members of this cohort are not known.
    Cohort(i64),
    /// The verdict depends on this flag, which has none.
    Dependency(i64),
    /// The stored flag cannot be read.
    Definition,
}

impl<'d> Verdict<'d> {
    /// A flag that is false.
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
