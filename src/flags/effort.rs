//! Cost estimate of a flag evaluation in nanoseconds, which decides whether it runs on the async
//! thread or on the CPU pool. A request for 350 flags, half of them with one property filter, was
//! measured at about 120 us; the estimate is 130 us. The figures for patterns and cohorts are upper
//! ones from `benches/flags.rs`.

use crate::definition::Definition;
use weir_event::pattern::Pattern;
use weir_event::predicate::filter::Filter;

/// Look-up of a flag, its verdict, and its record in the answer.
const FLAG_NANOS: u64 = 250;

/// A hash, of a condition with a rollout or of variants.
const HASH_NANOS: u64 = 150;

/// A filter that reads one value.
const FILTER_NANOS: u64 = 100;

/// A regular expression on an address: measured 400 ns for one without backtracking, 3,000 ns for
/// one with a look-ahead.
const PATTERN_NANOS: u64 = 3_000;

/// States of a large pattern. Its first use compiles it, up to 1,000 ns for a state, and it may take long on each text.
const LARGE_PATTERN_STATES: usize = 2_000;

/// A large pattern: enough to be away from the async threads.
const LARGE_PATTERN_NANOS: u64 = 1_000_000;

/// The first use of a cohort: measured 400 ns for a rule of three filters, 300 ns for a list of
/// 100,000. Rules may be longer, and for the first list the ids of the person are looked up.
const COHORT_NANOS: u64 = 1_000;

/// Supplied bytes for each nanosecond of a filter. A filter reads the whole text of its property,
/// about a byte per nanosecond; a request supplies many properties, of which a filter reads one.
const SUPPLIED_BYTES_PER_NANO: u64 = 16;

/// The cost estimate of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    nanos: u64,
    /// Filters that read a value.
    filters: u64,
}

fn pattern_nanos(pattern: &Pattern) -> u64 {
    let is_large = pattern.size().states > LARGE_PATTERN_STATES;
    if is_large { LARGE_PATTERN_NANOS } else { PATTERN_NANOS }
}

impl Effort {
    /// The estimate for one flag in which only the last condition matches.
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
                        effort.nanos += match predicate.pattern() {
                            Some(pattern) => pattern_nanos(pattern),
                            None => FILTER_NANOS,
                        };
                    }
                    Filter::Cohort { .. } => effort.nanos += COHORT_NANOS,
                    Filter::Flag { .. } => effort.nanos += FILTER_NANOS,
                }
            }
        }
        effort
    }

    /// The sum of both.
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
    use serde_json::{Value, json};

    use super::Effort;
    use crate::definition::{Definition, Stored};

    fn effort(filters: &Value) -> Effort {
        Effort::of(&Definition::parse(&Stored::new(1, "flag", filters)).unwrap())
    }

    /// Each of these costs more than the previous one.
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
    fn large_patterns_are_for_the_pool() {
        for (value, expected) in [(r"^\w+@corp\.com$", false), (r"^\w{20}$", true)] {
            let filter = json!({"key": "k", "operator": "regex", "value": value});
            let nanos = effort(&json!({"groups": [{"properties": [filter]}]})).nanos(0);
            assert_eq!(nanos > super::LARGE_PATTERN_NANOS, expected, "{value}: {nanos}");
        }
    }

    #[test]
    fn supplied_bytes_cost_filters_only() {
        let open = effort(&json!({"groups": [{"properties": []}]}));
        assert_eq!(open.nanos(1 << 20), open.nanos(0));
        let filters = json!({"groups": [{"properties": [{"key": "k", "value": "a"}]}]});
        let one = effort(&filters);
        assert!(one.nanos(1 << 20) > one.nanos(0) + 10_000);
        assert_eq!(one.and(open).nanos(4096), one.nanos(4096) + open.nanos(0));
        assert!(one.nanos(usize::MAX) > 1 << 50, "no overflow");
    }
}
