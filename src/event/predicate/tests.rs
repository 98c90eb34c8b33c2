//! Rows are those of PostHog's own tests where it has them (`reference` in the comments), and
//! otherwise follow from the documented rule of the operator.

use chrono_tz::Tz;
use serde_json::{Value, json};

use super::filter::{Expected, Filter, Membership, Scope};
use super::{Invalid, Matching, Predicate, PredicateError, Test};
use crate::pattern::PatternError;
use crate::predicate::moment::Now;
use weir_base::clock::UnixMicros;

/// 2026-03-31T12:00:00Z: the end of a month, so that calendar arithmetic has to cut the day.
const NOW: Now = Now { at: UnixMicros(1_774_958_400_000_000), zone: Tz::UTC };

fn predicate(operator: &str, value: &Value, matching: Matching) -> Predicate {
    Predicate::parse("key", Some(operator), Some(value), matching).expect("known operator")
}

fn matches(operator: &str, value: &Value, actual: Option<&Value>) -> bool {
    let predicate = predicate(operator, value, Matching::Legacy);
    let matches = predicate.matches_value(actual, NOW);
    let written = serde_json::to_vec(&predicate).expect("it is written");
    let read: Predicate = serde_json::from_slice(&written).expect("it is read");
    assert_eq!(read.matches_value(actual, NOW), matches, "{predicate:?} as it is read again");
    matches
}

/// Checks rows of (operator, filter value, actual value, expected) on a property that is present,
/// and the negated operator, where one is given, on the same rows.
fn check(operator: &str, negated: Option<&str>, rows: &[(Value, Value, bool)]) {
    for (value, actual, expected) in rows {
        let row = format!("{operator} {value} / {actual}");
        assert_eq!(matches(operator, value, Some(actual)), *expected, "{row}");
        if let Some(negated) = negated {
            assert_eq!(matches(negated, value, Some(actual)), !expected, "not {row}");
        }
    }
}

/// The published vectors of both property-matching versions: filter, actual, legacy, explicit.
#[test]
fn exact_asks_for_truth_in_legacy_matching() {
    for (value, actual, legacy, explicit) in [
        (json!(false), json!("banana"), true, false),
        (json!(false), json!(0), true, false),
        (json!(["true", "false"]), json!("true"), false, true),
        (json!(["true", "false"]), json!("pro"), true, false),
        (json!([]), json!(true), true, true),
        (json!([]), json!([]), true, true),
        (json!(true), json!([true]), true, false),
        (json!(false), json!("FALSE"), true, true),
        (json!(false), json!(null), true, false),
        (json!(false), json!(""), true, false),
        (json!([]), json!([true, ["TRUE", []]]), true, true),
        (json!([]), json!([true, false]), false, false),
        (json!([]), json!(false), false, false),
        (json!([]), json!(0), false, false),
        (json!([]), json!("banana"), false, false),
        (json!([true, "PRO"]), json!("TRUE"), true, true),
        (json!([false, "PRO"]), json!("banana"), false, false),
        (json!(["FREE", "PRO"]), json!("pro"), true, true),
        (json!("Ä"), json!("ä"), true, true),
    ] {
        for (matching, expected) in [(Matching::Legacy, legacy), (Matching::Explicit, explicit)] {
            let row = format!("{value} / {actual} {matching:?}");
            let exact = predicate("exact", &value, matching);
            assert_eq!(exact.matches_value(Some(&actual), NOW), expected, "{row}");
            let is_not = predicate("is_not", &value, matching);
            assert_eq!(is_not.matches_value(Some(&actual), NOW), !expected, "{row}");
        }
    }
}

#[test]
fn exact_compares_texts_without_case() {
    check(
        "exact",
        Some("is_not"),
        &[
            (json!("value"), json!("value"), true),
            (json!("value"), json!("VALUE"), true),
            (json!("value"), json!("value2"), false),
            (json!("value"), json!(null), false),
            (json!("1"), json!(1), true),
            (json!(1), json!("1"), true),
            (json!(1.0), json!("1"), false),
            (json!("null"), json!(null), true),
            (json!({"a": 1}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!(["US", "CA", "Uk"]), json!("uk"), true),
            (json!(["US", "CA", "Uk"]), json!("de"), false),
            (json!(["1", 2]), json!(2), true),
            (json!("straße"), json!("STRASSE"), false),
            (json!("ΟΔΟΣ"), json!("οδος"), true),
        ],
    );
}

#[test]
fn texts_are_found_without_ascii_case() {
    check(
        "icontains",
        Some("not_icontains"),
        &[
            (json!("valUe"), json!("343tfvalue5"), true),
            (json!("valUe"), json!("vaLue4"), true),
            (json!("valUe"), json!("Alakazam"), false),
            (json!("valUe"), json!(123), false),
            (json!("3"), json!(323), true),
            (json!("3"), json!("three"), false),
            (json!("Ä"), json!("ä"), false),
            (json!("NULL"), json!(null), true),
            (json!(""), json!("x"), true),
            (json!("\"b\":[1"), json!({"b": [1, 2]}), true),
        ],
    );
    check(
        "icontains_multi",
        Some("not_icontains_multi"),
        &[
            (json!(["foo", "BAR"]), json!("a bar"), true),
            (json!(["foo", "bar"]), json!("baz"), false),
            (json!("foo"), json!("FOO"), true),
            (json!([]), json!("x"), false),
        ],
    );
    check(
        "starts_with",
        Some("not_starts_with"),
        &[
            (json!("Val"), json!("value"), true),
            (json!("Val"), json!("a value"), false),
            (json!(1), json!(12), true),
        ],
    );
    check(
        "ends_with",
        Some("not_ends_with"),
        &[
            (json!("UE"), json!("value"), true),
            (json!("val"), json!("value"), false),
            (json!(2), json!(12), true),
        ],
    );
}

#[test]
fn regular_expressions_are_searched_for() {
    check(
        "regex",
        Some("not_regex"),
        &[
            (json!("\\.com$"), json!("value.com"), true),
            (json!("\\.com$"), json!("value2com"), false),
            (json!("alu"), json!("value"), true),
            (json!("Alu"), json!("value"), false),
            (json!("(?i)Alu"), json!("value"), true),
            (json!("3"), json!(323), true),
            (json!("^(?!.*@test\\.com$).+$"), json!("a@posthog.com"), true),
            (json!("^(?!.*@test\\.com$).+$"), json!("a@test.com"), false),
        ],
    );
    for operator in ["regex", "not_regex"] {
        assert!(!matches(operator, &json!("?*"), Some(&json!("value"))), "{operator}");
        // Needs more steps than the limit.
        let hopeless = json!("a".repeat(40));
        assert!(!matches(operator, &json!("^(?=a)(a|a)*(?=b)c$"), Some(&hopeless)), "{operator}");
    }
    assert_eq!(
        predicate("not_regex", &json!("?*"), Matching::Legacy).invalid(),
        Some(Invalid::Regex(PatternError::Invalid))
    );
}

#[test]
fn numbers_are_compared_as_numbers_only() {
    for (operator, value, actual, expected) in [
        ("gt", json!(1), json!(2), true),
        ("gt", json!(1), json!(1), false),
        ("gte", json!(1), json!(1), true),
        ("min", json!(1), json!(1), true),
        ("lt", json!(1), json!(0), true),
        ("lt", json!(1), json!(1), false),
        ("lte", json!(1), json!(1), true),
        ("max", json!(1), json!(2), false),
        ("gt", json!("1"), json!("2.5"), true),
        ("gt", json!("9"), json!("10"), true),
        ("gt", json!(1), json!("abc"), false),
        ("lt", json!(1), json!("abc"), false),
        ("lt", json!(1), json!(null), false),
        ("gte", json!(0), json!(true), false),
        ("lt", json!("abc"), json!(1), false),
        ("lt", json!(1), json!("NaN"), false),
        ("gt", json!(1), json!("inf"), false),
        ("gt", json!(1), json!("1e400"), false),
        ("gt", json!(1), json!(" 5 "), true),
        ("gt", json!(" 1 "), json!("5"), true),
        ("between", json!([1, 5]), json!("\t5"), true),
        ("gt", json!(9_007_199_254_740_992_u64), json!(9_007_199_254_740_993_u64), true),
        ("gte", json!("9007199254740993"), json!(9_007_199_254_740_992_u64), false),
        ("lt", json!(1e30), json!("9007199254740993"), true),
        ("between", json!([1, 3]), json!(1), true),
        ("between", json!([1, 3]), json!("3"), true),
        ("between", json!([1, 3]), json!(3.1), false),
        ("between", json!(["1", "3"]), json!(2), true),
        ("not_between", json!([1, 3]), json!(4), true),
        ("not_between", json!([1, 3]), json!(2), false),
        ("not_between", json!([1, 3]), json!("NaN"), false),
        ("not_between", json!([1, 3]), json!("abc"), false),
        ("not_between", json!([3, 1]), json!(9), false),
        ("between", json!([3, 1]), json!(2), false),
        ("not_between", json!([1]), json!(9), false),
        ("not_between", json!(["NaN", 1]), json!(9), false),
    ] {
        let row = format!("{operator} {value} / {actual}");
        assert_eq!(matches(operator, &value, Some(&actual)), expected, "{row}");
    }
}

#[test]
fn absence_satisfies_the_negated_operators_only() {
    let value = json!(["1", "2"]);
    for operator in [
        "is_not",
        "not_icontains",
        "not_icontains_multi",
        "not_starts_with",
        "not_ends_with",
        "not_regex",
        "not_between",
        "is_not_set",
    ] {
        assert!(matches(operator, &value, None), "{operator}");
    }
    for operator in [
        "exact",
        "icontains",
        "icontains_multi",
        "starts_with",
        "ends_with",
        "regex",
        "gt",
        "gte",
        "lt",
        "lte",
        "between",
        "is_set",
        "is_date_exact",
        "is_date_before",
        "is_date_after",
        "semver_eq",
        "semver_neq",
        "semver_gt",
        "semver_gte",
        "semver_lt",
        "semver_lte",
        "semver_tilde",
        "semver_caret",
        "semver_wildcard",
        "in",
        "not_in",
        "flag_evaluates_to",
    ] {
        assert!(!matches(operator, &value, None), "{operator}");
    }
}

#[test]
fn presence_ignores_values_and_null_is_one() {
    for value in [json!(null), json!("value"), json!("is_not_set")] {
        assert!(matches("is_set", &value, Some(&json!(null))));
        assert!(!matches("is_not_set", &value, Some(&json!(null))));
        assert!(matches("is_set", &value, Some(&json!(""))));
    }
    let without_value = Predicate::parse("key", Some("is_set"), None, Matching::Legacy);
    assert!(without_value.expect("known operator").matches_value(Some(&json!(1)), NOW));
}

#[test]
fn a_filter_without_value_matches_nothing() {
    for operator in ["exact", "is_not", "icontains", "not_icontains", "not_regex", "lt"] {
        for actual in [None, Some(json!("x")), Some(json!(null))] {
            let actual = actual.as_ref();
            assert!(!matches(operator, &json!(null), actual), "{operator}");
            let absent = Predicate::parse("key", Some(operator), None, Matching::Legacy);
            assert!(!absent.expect("known operator").matches_value(actual, NOW), "{operator}");
        }
    }
}

#[test]
fn an_absent_operator_is_exact_and_an_unknown_one_an_error() {
    let exact = Predicate::parse("key", None, Some(&json!("a")), Matching::Legacy);
    assert!(exact.expect("exact").matches_value(Some(&json!("A")), NOW));
    assert_eq!(
        Predicate::parse("key", Some("like"), Some(&json!("a")), Matching::Legacy).err(),
        Some(PredicateError::UnknownOperator("like".to_owned()))
    );
}

/// Dates without an offset are in the project's time zone, in filters and in values; see flags.md of the reference, and
/// PostHog#65337.
#[test]
fn dates_without_an_offset_are_of_the_projects_clocks() {
    for (zone, operator, value, actual, expected) in [
        // Midnight in Berlin is 22:00 UTC in summer and 23:00 UTC in winter.
        (Tz::Europe__Berlin, "is_date_after", "2026-06-02", json!("2026-06-01T22:00:01Z"), true),
        (Tz::Europe__Berlin, "is_date_after", "2026-06-02", json!("2026-06-01T21:59:59Z"), false),
        (Tz::Europe__Berlin, "is_date_before", "2026-06-02", json!("2026-06-01T22:30:00Z"), false),
        (Tz::Europe__Berlin, "is_date_exact", "2026-01-02", json!("2026-01-01T23:00:00Z"), true),
        (Tz::Europe__Berlin, "is_date_exact", "2026-06-02 00:30", json!(1_780_353_000), true),
        (
            Tz::Europe__Berlin,
            "is_date_exact",
            "2026-06-02T00:00:00Z",
            json!("2026-06-02 02:00"),
            true,
        ),
        (Tz::Europe__Berlin, "is_date_exact", "2026-06-02", json!("2026-06-02"), true),
        // Skipped by clocks, and shown twice by them.
        (
            Tz::Europe__Berlin,
            "is_date_exact",
            "2026-03-29 02:30",
            json!("2026-03-29T01:30:00Z"),
            true,
        ),
        (
            Tz::Europe__Berlin,
            "is_date_exact",
            "2026-10-25 02:30",
            json!("2026-10-25T00:30:00Z"),
            true,
        ),
        (Tz::Asia__Kathmandu, "is_date_exact", "2026-06-02", json!("2026-06-01T18:15:00Z"), true),
        (Tz::Asia__Kolkata, "is_date_exact", "2026-06-02", json!("2026-06-01T18:30:00Z"), true),
        (Tz::America__St_Johns, "is_date_exact", "2026-06-02", json!("2026-06-02T02:30:00Z"), true),
        (Tz::UTC, "is_date_exact", "2026-06-02", json!("2026-06-02T00:00:00Z"), true),
        // Relative ones stay: 12:00 UTC.
        (Tz::Europe__Berlin, "is_date_exact", "-1d", json!("2026-03-30T12:00:00Z"), true),
        (Tz::Asia__Kolkata, "is_date_exact", "-7d", json!("2026-03-24T12:00:00Z"), true),
    ] {
        let now = Now { at: NOW.at, zone };
        let test = predicate(operator, &json!(value), Matching::Legacy);
        assert_eq!(test.matches_value(Some(&actual), now), expected, "{zone} {value} {actual}");
    }
}

#[test]
fn dates_are_instants_or_spans_before_now() {
    for (operator, value, actual, expected) in [
        // Absolute.
        ("is_date_before", "2026-01-02", json!("2026-01-01"), true),
        ("is_date_before", "2026-01-02", json!("2026-01-02"), false),
        ("is_date_after", "2026-01-02", json!("2026-01-02T00:00:00.000001Z"), true),
        ("is_date_exact", "2026-01-02", json!("2026-01-02T00:00:00Z"), true),
        ("is_date_exact", "2026-01-02T01:00:00+01:00", json!("2026-01-02 00:00:00"), true),
        ("is_date_exact", "2026-01-02T01:00", json!("2026-01-02 01:00:00.0"), true),
        ("is_date_exact", "2026-01-02 01:00:00+0100", json!("2026-01-02"), true),
        // The forms of events, as in PostHog.
        ("is_date_exact", "1/2/2026 1:00 PM", json!("2026/01/02 13:00 GMT"), true),
        ("is_date_after", "2026-01-02", json!("Fri, 02 Jan 2026 13:00:00 GMT"), true),
        ("is_date_before", "2026-01-02", json!(1_767_312_000), false),
        ("is_date_exact", "2026-01-02", json!(1_767_312_000), true),
        ("is_date_exact", "2026-01-02", json!("1767312000.0"), true),
        ("is_date_exact", "2026-01-02T00:00:00.123456Z", json!(1_767_312_000.123_456), true),
        ("is_date_before", "1970-01-01", json!(-0.5), true),
        // Unreadable.
        ("is_date_before", "2026-01-02", json!("soon"), false),
        ("is_date_after", "2026-01-02", json!("soon"), false),
        ("is_date_after", "soon", json!("2026-01-02"), false),
        ("is_date_after", "2026-01-02", json!(true), false),
        ("is_date_after", "2026-01-02", json!(null), false),
        ("is_date_after", "2026-01-02", json!("NaN"), false),
        ("is_date_after", "2026-02-30", json!("2026-03-15"), false),
        // Spans, whatever their sign. Now is 2026-03-31T12:00:00Z.
        ("is_date_exact", "-6h", json!("2026-03-31T06:00:00Z"), true),
        ("is_date_exact", "6h", json!("2026-03-31T06:00:00Z"), true),
        ("is_date_exact", "-7d", json!("2026-03-24T12:00:00Z"), true),
        ("is_date_exact", "-2w", json!("2026-03-17T12:00:00Z"), true),
        ("is_date_exact", "-1m", json!("2026-02-28T12:00:00Z"), true),
        ("is_date_exact", "-25m", json!("2024-02-29T12:00:00Z"), true),
        ("is_date_exact", "-2y", json!("2024-03-31T12:00:00Z"), true),
        ("is_date_after", "-7d", json!("2026-03-25"), true),
        ("is_date_before", "-7d", json!("2026-03-25"), false),
        ("is_date_after", "-7d", json!("-1d"), true),
        ("is_date_after", "-9999y", json!("2026-03-25"), true),
        ("is_date_after", "-10000d", json!("2026-03-25"), false),
        ("is_date_after", "--7d", json!("2026-03-25"), false),
        ("is_date_after", "-7x", json!("2026-03-25"), false),
        ("is_date_after", "d", json!("2026-03-25"), false),
    ] {
        let row = format!("{operator} {value} / {actual}");
        assert_eq!(matches(operator, &json!(value), Some(&actual)), expected, "{row}");
    }
    assert!(!matches("is_date_after", &json!(1), Some(&json!("2026-03-25"))));
}

#[test]
fn versions_have_the_order_of_semver() {
    // The chain of semver.org, section 11, and what apps send.
    let ascending = [
        "0.9.9",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.2",
        "1.10",
        "v2",
        "3.08",
        " v3.9.0 ",
        "3.10",
    ];
    for (i, left) in ascending.iter().enumerate() {
        for (j, right) in ascending.iter().enumerate() {
            for (operator, expected) in [
                ("semver_eq", i == j),
                ("semver_neq", i != j),
                ("semver_gt", i > j),
                ("semver_gte", i >= j),
                ("semver_lt", i < j),
                ("semver_lte", i <= j),
            ] {
                let actual = matches(operator, &json!(right), Some(&json!(left)));
                assert_eq!(actual, expected, "{left} {operator} {right}");
            }
        }
    }
    for (operator, value, actual, expected) in [
        ("semver_eq", json!("1.2.0"), json!(1.2), true),
        ("semver_eq", json!("3.8.0"), json!("3.08"), true),
        ("semver_eq", json!("V1.2.3"), json!("1.2.3+build.7"), true),
        ("semver_neq", json!("1.0.0"), json!("abc"), false),
        ("semver_neq", json!("abc"), json!("1.0.0"), false),
        ("semver_gt", json!("0"), json!("1.2.3.4"), false),
        ("semver_gt", json!("0"), json!("1..2"), false),
        ("semver_gt", json!("0"), json!("1.2.x"), false),
        ("semver_gt", json!("0"), json!("+1.2.3"), false),
        ("semver_gt", json!("0"), json!("1.2.3-"), false),
        ("semver_gt", json!("0"), json!("1.2.3-01"), false),
        ("semver_gt", json!("0"), json!("99999999999999999999"), false),
        ("semver_gt", json!("0"), json!("1.0x2.3"), false),
        ("semver_gt", json!("0"), json!("1.2.3+"), false),
        ("semver_gt", json!("0"), json!("1.2.3 4"), false),
        ("semver_gt", json!("0"), json!("*"), false),
        ("semver_eq", json!("0"), json!("v000"), true),
        ("semver_eq", json!("1.0.0-alpha.1"), json!("v1-alpha.1+build.01"), true),
        ("semver_lte", json!("1.2.3+build.7"), json!("1.2.3+build.8"), true),
        // A number of a pre-release may have any length.
        ("semver_lt", json!("1.0.0-9"), json!("1.0.0-99999999999999999999"), false),
        ("semver_lt", json!("1.0.0-99999999999999999999"), json!("1.0.0-100"), true),
        ("semver_gt", json!("0"), json!(""), false),
        ("semver_gt", json!("0"), json!(null), false),
    ] {
        let row = format!("{actual} {operator} {value}");
        assert_eq!(matches(operator, &value, Some(&actual)), expected, "{row}");
    }
}

#[test]
fn version_ranges_end_before_the_next_change() {
    for (operator, value, inside, outside) in [
        ("semver_tilde", "1.2.3", vec!["1.2.3", "1.2.99"], vec!["1.2.2", "1.3.0", "1.2.9-beta"]),
        ("semver_tilde", "1.2", vec!["1.2.0", "1.2.9"], vec!["1.1.9", "1.3.0"]),
        ("semver_caret", "1.2.3", vec!["1.2.3", "1.9.0"], vec!["1.2.2", "2.0.0", "2.0.0-beta"]),
        ("semver_caret", "0.2.3", vec!["0.2.3", "0.2.9"], vec!["0.2.2", "0.3.0", "1.0.0"]),
        ("semver_caret", "0.0.3", vec!["0.0.3"], vec!["0.0.2", "0.0.4"]),
        (
            "semver_caret",
            "1.2.3-beta.2",
            vec!["1.2.3-beta.2", "1.2.3-rc", "1.2.3", "1.3.0"],
            vec!["1.2.3-beta.1", "1.2.4-beta.3", "2.0.0"],
        ),
        ("semver_wildcard", "1.2.*", vec!["1.2.0", "1.2.7", "v1.02"], vec!["1.1.9", "1.3.0"]),
        ("semver_wildcard", "1.*", vec!["1.0.0", "1.9.9"], vec!["0.9.9", "2.0.0"]),
        ("semver_wildcard", "1.*.*", vec!["1.0.0", "1.9.9"], vec!["2.0.0"]),
        ("semver_wildcard", "3.08.*", vec!["3.8.1"], vec!["3.9.0"]),
        ("semver_wildcard", "*", vec!["0.0.0", "9.9.9"], vec!["x"]),
        ("semver_wildcard", "1.2", vec!["1.2.0", "1.9.0"], vec!["1.1.0", "2.0.0"]),
        ("semver_wildcard", "1.*.3", vec![], vec!["1.2.3", "1.0.0"]),
        ("semver_wildcard", "1.2*", vec![], vec!["1.2.0"]),
        ("semver_wildcard", "0.0", vec!["0.0.7"], vec!["0.1.0"]),
        ("semver_wildcard", "0", vec!["0.9.9"], vec!["1.0.0"]),
        ("semver_wildcard", "1.2.3-beta", vec!["1.2.3-rc", "1.9.0"], vec!["1.9.0-beta", "2.0.0"]),
        ("semver_wildcard", "*", vec![], vec!["1.0.0-beta"]),
        ("semver_wildcard", "0*", vec![], vec!["0.0.0", "1.2.3"]),
        // As PostHog reads them.
        ("semver_wildcard", "1.x", vec!["1.9.9"], vec!["2.0.0"]),
        ("semver_wildcard", ">=1.2, <1.5", vec!["1.2.0", "1.4.9"], vec!["1.1.9", "1.5.0"]),
        ("semver_wildcard", "1.2-beta", vec![], vec!["1.2.0-beta", "1.2.0"]),
        ("semver_wildcard", "*.*", vec![], vec!["1.2.0"]),
        ("semver_tilde", "1.2.3, <1.2.5", vec![], vec!["1.2.3", "1.2.4"]),
        ("semver_caret", "18446744073709551615", vec!["18446744073709551615.2"], vec!["1.0.0"]),
        ("semver_caret", "abc", vec![], vec!["1.2.3"]),
        ("semver_tilde", "", vec![], vec!["0.0.0", "1.2.3"]),
    ] {
        for (version, expected) in inside
            .iter()
            .map(|version| (version, true))
            .chain(outside.iter().map(|version| (version, false)))
        {
            let actual = matches(operator, &json!(value), Some(&json!(version)));
            assert_eq!(actual, expected, "{version} {operator} {value}");
        }
    }
}

#[test]
fn filters_are_routed_by_type() {
    let parse = |json: Value| Filter::parse(&json, Matching::Legacy);
    for (json, expected) in [
        (json!({"key": "a", "value": 1}), Scope::Person),
        (json!({"key": "a", "value": 1, "type": "person"}), Scope::Person),
        (json!({"key": "a", "value": 1, "type": null}), Scope::Person),
        (json!({"key": "a", "value": 1, "type": "person_metadata"}), Scope::PersonMetadata),
        (json!({"key": "a", "value": 1, "type": "group"}), Scope::Group(None)),
        (json!({"key": "a", "type": "group", "group_type_index": 2}), Scope::Group(Some(2))),
        (json!({"key": "a", "value": 1, "type": "event"}), Scope::Event),
        (json!({"key": "a", "value": 1, "type": "feature"}), Scope::Event),
    ] {
        let Ok(Filter::Property { scope, predicate }) = parse(json.clone()) else {
            panic!("{json}");
        };
        assert_eq!((scope, &*predicate.key), (expected, "a"), "{json}");
    }
    for (json, expected) in [
        (json!({"key": "id", "type": "cohort", "value": 7}), Membership::In),
        (json!({"key": "id", "type": "cohort", "value": "7"}), Membership::In),
        (json!({"type": "cohort", "value": 7, "operator": "in"}), Membership::In),
        (json!({"type": "cohort", "value": 7, "operator": "exact"}), Membership::In),
        (json!({"type": "cohort", "value": 7, "operator": "not_in"}), Membership::NotIn),
        (json!({"type": "cohort", "value": 7, "operator": "is_not"}), Membership::Nobody),
        (json!({"type": "cohort", "value": 7, "operator": "gt"}), Membership::Nobody),
    ] {
        let Ok(Filter::Cohort { id: 7, membership }) = parse(json.clone()) else {
            panic!("{json}");
        };
        assert_eq!(membership, expected, "{json}");
    }
    for (value, operator, expected) in [
        (json!(true), "flag_evaluates_to", Expected::On),
        (json!(false), "flag_evaluates_to", Expected::Off),
        (json!("b"), "flag_evaluates_to", Expected::Variant("b".into())),
        (json!(1), "flag_evaluates_to", Expected::Nothing),
        (json!(true), "exact", Expected::Nothing),
    ] {
        let json = json!({"key": "12", "type": "flag", "value": value, "operator": operator});
        let Ok(Filter::Flag { id: 12, expected: actual }) = parse(json.clone()) else {
            panic!("{json}");
        };
        assert_eq!(actual, expected, "{json}");
    }
    for (json, expected) in [
        (json!("a"), PredicateError::NotAnObject),
        (json!({"value": 1}), PredicateError::MissingKey),
        (json!({"key": "a", "type": "x"}), PredicateError::UnknownType("x".to_owned())),
        (json!({"key": "a", "operator": "x"}), PredicateError::UnknownOperator("x".to_owned())),
        (json!({"type": "cohort"}), PredicateError::InvalidId("null".to_owned())),
        (json!({"type": "flag", "key": "beta"}), PredicateError::InvalidId("\"beta\"".to_owned())),
        (
            json!({"key": "a", "type": "group", "group_type_index": -1}),
            PredicateError::InvalidGroupType("-1".to_owned()),
        ),
    ] {
        assert_eq!(parse(json.clone()).err(), Some(expected), "{json}");
    }
}

#[test]
fn cohort_and_flag_operators_match_no_property() {
    for operator in ["in", "not_in", "flag_evaluates_to"] {
        let test = predicate(operator, &json!(true), Matching::Legacy).test;
        assert!(matches!(test, Test::Never), "{operator}");
    }
}
