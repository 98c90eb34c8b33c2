//! How long an evaluation takes, about: enough to tell what may run on a thread that others wait for.
//! A request for 350 flags, half of which ask for one property, was measured to compute for about 120
//! us; the figures come to 130. Those for patterns and cohorts are from `benches/flags.rs`, taken on the
//! long side.

use crate::event::predicate::Condition;
use crate::event::predicate::Test;
use crate::event::predicate::filter::Filter;
use crate::flags::definition::Definition;

/// Looking a flag up, its verdict, and its record in the answer.
const FLAG_NANOS: u64 = 250;

/// A hash, of a condition with a rollout or of variants.
const HASH_NANOS: u64 = 150;

/// A filter that reads one value.
const FILTER_NANOS: u64 = 100;

/// A regular expression on an address: measured 400 for one that is run without going back, 3,000 for
/// one that looks ahead.
const PATTERN_NANOS: u64 = 3_000;

/// A cohort that is asked for the first time: measured 400 for a rule of three filters, 300 for a list of
/// 100,000. Rules may be longer, and for the first list the ids of the person are looked up.
const COHORT_NANOS: u64 = 1_000;

/// A filter reads the whole text of its property, about a byte in a nanosecond; what a request supplies
/// has many properties, of which a filter reads one.
const SUPPLIED_BYTES_PER_NANO: u64 = 16;

/// What the evaluation of flags takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    nanos: u64,
    /// Filters that read a value.
    filters: u64,
}

impl Effort {
    /// The effort for one flag if none of its conditions matches but the last.
    pub fn of(flag: &Definition) -> Self {
        let mut effort = Self { nanos: FLAG_NANOS, filters: 0 };
        for condition in &flag.conditions {
            if flag.needs_hash(condition) {
                effort.nanos += HASH_NANOS;
            }
            for filter in &condition.filters {
                match filter {
                    Filter::Property { predicate, .. } => {
                        effort.filters += 1;
                        effort.nanos += match &predicate.test {
                            Test::Is(Condition::Regex(_)) | Test::IsNot(Condition::Regex(_)) => {
                                PATTERN_NANOS
                            }
                            _ => FILTER_NANOS,
                        };
                    }
                    Filter::Cohort { .. } => effort.nanos += COHORT_NANOS,
                    Filter::Flag { .. } => effort.nanos += FILTER_NANOS,
                }
            }
        }
        effort
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            filters: self.filters.saturating_add(other.filters),
        }
    }

    /// The time in nanoseconds for a request that supplies properties of `supplied_bytes`.
    pub fn nanos(self, supplied_bytes: usize) -> u64 {
        let supplied = u64::try_from(supplied_bytes).unwrap_or(u64::MAX) / SUPPLIED_BYTES_PER_NANO;
        self.nanos.saturating_add(self.filters.saturating_mul(supplied))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use super::Effort;
    use crate::flags::definition::Definition;
    use crate::flags::definition::Stored;

    fn effort(filters: &Value) -> Effort {
        Effort::of(&Definition::parse(&Stored::new(1, "flag", filters)).unwrap())
    }

    /// Each of these asks for more than the one before.
    #[test]
    fn more_to_do_takes_longer() {
        let property = |operator: &str| json!({"key": "k", "operator": operator, "value": "a"});
        let groups = |properties: Value| json!({"groups": [{"properties": properties}]});
        let mut before = 0;
        for filters in [
            groups(json!([])),
            groups(json!([property("exact")])),
            groups(json!([property("exact"), property("icontains")])),
            groups(json!([property("regex")])),
            groups(json!([property("not_regex"), property("exact")])),
            groups(
                json!([property("regex"), {"key": "id", "type": "cohort", "value": 1, "operator": "in"}]),
            ),
        ] {
            let nanos = effort(&filters).nanos(0);
            assert!(nanos > before, "{filters}");
            before = nanos;
        }
        let hashed = json!({"groups": [{"properties": [], "rollout_percentage": 50}]});
        assert!(effort(&hashed).nanos(0) > effort(&groups(json!([]))).nanos(0));
    }

    #[test]
    fn what_is_supplied_is_read_by_filters_only() {
        let open = effort(&json!({"groups": [{"properties": []}]}));
        assert_eq!(open.nanos(1 << 20), open.nanos(0));
        let filters = json!({"groups": [{"properties": [{"key": "k", "value": "a"}]}]});
        let one = effort(&filters);
        assert!(one.nanos(1 << 20) > one.nanos(0) + 10_000);
        assert_eq!(one.and(open).nanos(4096), one.nanos(4096) + open.nanos(0));
        assert!(one.nanos(usize::MAX) > 1 << 50, "no overflow");
    }
}
