//! Sets are built from tables of (id, key, active, filters).

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Answers, Entry, FlagSet, Selection};
use crate::cohorts::{CohortSet, Memberships};
use crate::definition::{Runtime, Stored};
use crate::subject::{GroupTypes, Subject};
use crate::verdict::{Failure, Reason, Verdict};
use weir_base::clock::UnixMicros;
use weir_event::predicate::Matching;
use weir_event::predicate::moment::Now;

fn stored<'a>(id: i64, key: &'a str, active: bool, filters: &'a Value) -> Stored<'a> {
    let continuity = key.starts_with("kept");
    Stored { version: id + 100, active, continuity, ..Stored::new(id, key, filters) }
}

fn set(flags: &[(i64, &str, bool, Value)]) -> FlagSet {
    let entries = flags.iter().map(|(id, key, active, filters)| {
        Arc::new(Entry::read(&stored(*id, key, *active, filters), usize::MAX))
    });
    FlagSet::new(entries)
}

fn open() -> Value {
    json!({"groups": [{}]})
}

fn closed() -> Value {
    json!({"groups": [{"rollout_percentage": 0}]})
}

/// On if the flags with these ids have these values.
fn on_if(conditions: &[(i64, Value)]) -> Value {
    let properties: Vec<_> = conditions
        .iter()
        .map(|(id, value)| {
            let key = id.to_string();
            json!({"key": key, "type": "flag", "operator": "flag_evaluates_to", "value": value})
        })
        .collect();
    json!({"groups": [{"properties": properties}]})
}

fn evaluate<'s>(set: &'s FlagSet, selection: &Selection<'_>) -> Answers<'s> {
    let nothing = CohortSet::default();
    let cohorts = Memberships::new(&nothing, &|| None);
    set.evaluate(&Subject::new("user-1", Now::utc(UnixMicros(0))), selection, &cohorts)
}

/// Keys of the answers, in order, with `+` for on, `-` for off, `?` for missing, `!` for failed.
fn summary(answers: &Answers<'_>) -> String {
    let mark = |answer: &super::Answer<'_>| match answer.result {
        Err(_) => '!',
        Ok(verdict) if verdict.reason == Reason::MissingDependency => '?',
        Ok(verdict) if verdict.enabled => '+',
        Ok(_) => '-',
    };
    let flags: Vec<_> =
        answers.flags.iter().map(|answer| format!("{}{}", mark(answer), answer.key)).collect();
    flags.join(" ")
}

/// Checks the summary and the error flag of a set.
fn check(flags: &[(i64, &str, bool, Value)], expected: &str, has_errors: bool) {
    let set = set(flags);
    let answers = evaluate(&set, &Selection::default());
    assert_eq!((summary(&answers).as_str(), answers.has_errors), (expected, has_errors));
}

#[test]
fn dependencies_are_evaluated_first_wherever_they_stand() {
    let yes = json!(true);
    let variants = json!({
        "groups": [{"variant": "blue"}],
        "multivariate": {"variants": [{"key": "blue", "rollout_percentage": 100}]},
    });
    check(&[], "", false);
    check(
        &[
            (1, "top", true, on_if(&[(2, yes.clone()), (3, json!("blue"))])),
            (2, "middle", true, on_if(&[(3, yes.clone()), (3, yes.clone())])),
            (3, "bottom", true, variants),
        ],
        "+top +middle +bottom",
        false,
    );
    check(
        &[
            (1, "a", true, on_if(&[(2, json!(false))])),
            (2, "b", true, closed()),
            (3, "c", true, on_if(&[(2, yes)])),
        ],
        "+a -b -c",
        false,
    );
}

#[test]
fn inactive_flags_are_absent_and_false_for_others() {
    let yes = json!(true);
    check(
        &[
            (1, "a", true, on_if(&[(2, yes.clone())])),
            // Dependencies of an inactive flag are ignored: no cycle, nothing missing.
            (2, "b", false, on_if(&[(1, yes.clone()), (99, yes)])),
            (3, "c", true, on_if(&[(2, json!(false))])),
        ],
        "-a +c",
        false,
    );
    check(
        &[(1, "unreadable", false, json!([])), (2, "b", true, on_if(&[(1, json!(false))]))],
        "+b",
        false,
    );
}

#[test]
fn flags_that_depend_on_missing_flags_or_cycles_are_off() {
    let yes = json!(true);
    check(
        &[
            (1, "a", true, on_if(&[(99, yes.clone())])),
            (2, "b", true, on_if(&[(1, json!(false))])),
            (3, "c", true, open()),
        ],
        "?a ?b +c",
        false,
    );
    check(
        &[
            (1, "a", true, on_if(&[(2, yes.clone()), (4, yes.clone())])),
            (2, "b", true, on_if(&[(1, yes.clone())])),
            (3, "behind", true, on_if(&[(2, json!(false))])),
            (4, "before", true, open()),
        ],
        "?a ?b ?behind +before",
        true,
    );
    check(&[(1, "self", true, on_if(&[(1, yes)]))], "?self", true);
}

#[test]
fn unreadable_flags_and_unknown_cohorts_fail() {
    let yes = json!(true);
    check(
        &[
            (1, "broken", true, json!([])),
            (2, "b", true, on_if(&[(1, yes)])),
            (3, "c", true, open()),
        ],
        "!broken !b +c",
        true,
    );
    let cohort = json!({"groups": [{"properties": [{"type": "cohort", "value": 5}]}]});
    check(&[(1, "a", true, cohort), (2, "b", true, open())], "!a +b", true);
}

/// One line of the oracle that `tests/fixtures/flags/sdk.py` writes.
#[derive(Deserialize)]
struct Line {
    now: i64,
    matching: u8,
    flags: Vec<SdkFlag>,
    subjects: Vec<SdkSubject>,
}

#[derive(Deserialize)]
struct SdkFlag {
    id: i64,
    key: String,
    active: bool,
    filters: Value,
}

#[derive(Deserialize)]
struct SdkSubject {
    distinct_id: String,
    person: Map<String, Value>,
    #[serde(default)]
    groups: Map<String, Value>,
    #[serde(default)]
    group: Value,
    flags: Map<String, Value>,
    payloads: Map<String, Value>,
}

/// The value of a flag and its payload as SDKs see them.
fn sdk_value(verdict: &Verdict<'_>) -> (Value, Value) {
    let value = match verdict.variant {
        Some(variant) if verdict.enabled => json!(variant),
        _ => json!(verdict.enabled),
    };
    (value, verdict.payload.cloned().unwrap_or_default())
}

/// What posthog 7.91.1 resolves locally is what the server answers.
#[test]
fn the_python_sdk_evaluates_alike() {
    let types = GroupTypes::new([(0, "organization")]);
    let mut compared = 0;
    for line in include_str!("../../../tests/fixtures/flags/sdk.jsonl").lines() {
        let line: Line = serde_json::from_str(line).expect("the fixture is JSON");
        let matching = if line.matching == 1 { Matching::Legacy } else { Matching::Explicit };
        let read = |flag: &SdkFlag| {
            let stored = stored(flag.id, &flag.key, flag.active, &flag.filters);
            Arc::new(Entry::read(&Stored { matching, ..stored }, usize::MAX))
        };
        let set = FlagSet::new(line.flags.iter().map(read));
        for sdk in &line.subjects {
            let mut subject =
                Subject::new(&*sdk.distinct_id, Now::utc(UnixMicros(line.now * 1_000_000)));
            let group = Map::from_iter([("organization".to_owned(), sdk.group.clone())]);
            subject.supplied = Some(&sdk.person);
            subject.add_groups(&types, Some(&sdk.groups), Some(&group));
            let nothing = CohortSet::default();
            let cohorts = Memberships::new(&nothing, &|| None);
            let answers = set.evaluate(&subject, &Selection::default(), &cohorts);
            assert!(!answers.has_errors);
            for answer in &answers.flags {
                let Some(expected) = sdk.flags.get(answer.key) else { continue };
                let payload = sdk.payloads.get(answer.key).cloned().unwrap_or_default();
                let actual = sdk_value(answer.result.as_ref().expect("a verdict"));
                let filters = &line.flags.iter().find(|flag| flag.key == answer.key);
                let filters = filters.map(|flag| flag.filters.to_string());
                let row =
                    format!("{} {} {filters:?} {:?}", sdk.distinct_id, answer.key, sdk.person);
                assert_eq!(actual, (expected.clone(), payload), "{row}");
                compared += 1;
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn failures_carry_id_version_and_code() {
    let set = set(&[(7, "broken", true, json!(null))]);
    let answers = evaluate(&set, &Selection::default());
    let [answer] = &*answers.flags else { panic!("one flag") };
    assert_eq!((answer.id, answer.key, answer.version), (7, "broken", 107));
    assert_eq!(answer.result, Err(Failure::Definition));
    for (failure, code) in [
        (Failure::Definition, "invalid_definition"),
        (Failure::HashKeys, "hash_key_override_error"),
        (Failure::Cohort(5), "dependency_not_found_cohort"),
        (Failure::Dependency(6), "dependency_failed_flag"),
    ] {
        assert_eq!(failure.code(), code);
        assert!(!failure.description().is_empty());
    }
}

#[test]
fn keys_select_flags_and_bring_their_dependencies_along() {
    let flags = set(&[
        (1, "a", true, on_if(&[(2, json!(true))])),
        (2, "b", true, on_if(&[(3, json!(true))])),
        (3, "c", true, open()),
        (4, "broken", true, json!([])),
        (5, "off", false, open()),
    ]);
    for (keys, expected, has_errors) in [
        (vec!["a"], "+a", false),
        (vec!["c", "a", "a"], "+a +c", false),
        (vec!["unknown", "off"], "", false),
        (vec![], "", false),
        (vec!["broken", "b"], "+b !broken", true),
    ] {
        let keys: Vec<_> = keys.into_iter().map(str::to_owned).collect();
        let answers = evaluate(&flags, &Selection { keys: Some(&keys), ..Selection::default() });
        assert_eq!((summary(&answers).as_str(), answers.has_errors), (expected, has_errors));
    }
}

/// A trace of the selected flags includes their dependencies, selected or not.
#[test]
fn a_trace_agrees_with_the_evaluation() {
    let yes = json!(true);
    let filters = on_if(&[(2, yes.clone())]);
    let set = set(&[
        (1, "a", true, filters.clone()),
        (2, "b", true, on_if(&[(3, yes)])),
        (3, "c", true, open()),
        (4, "d", true, closed()),
    ]);
    let nothing = CohortSet::default();
    let cohorts = Memberships::new(&nothing, &|| None);
    let subject = Subject::new("user-1", Now::utc(UnixMicros(0)));
    for keys in [vec!["a"], vec!["a", "d"], vec!["b", "a"], vec!["a", "b", "c", "d"]] {
        let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
        let selection = Selection { keys: Some(&keys), ..Selection::default() };
        let answers = set.evaluate(&subject, &selection, &cohorts);
        assert!(answers.flags[0].result.as_ref().unwrap().enabled, "{keys:?}");
        let trace = set.trace(&answers, "a", &filters, &subject, &cohorts);
        assert!(trace[0].matched && trace[0].properties[0].matched, "{keys:?}: {trace:?}");
    }
}

#[test]
fn runtime_contexts_and_surveys_select_flags() {
    let filters = open();
    let web = ["web".to_owned()];
    let both = ["web".to_owned(), "app".to_owned()];
    let server = Stored { runtime: Some("server"), ..stored(1, "server", true, &filters) };
    let client = Stored { runtime: Some("client"), ..stored(2, "client", true, &filters) };
    let anywhere = Stored { runtime: Some("all"), ..stored(3, "anywhere", true, &filters) };
    let app = Stored { contexts: &both, ..stored(4, "app", true, &filters) };
    let page = Stored { contexts: &web, ..stored(5, "page", true, &filters) };
    let survey = stored(6, "survey-targeting-x", true, &filters);
    let needy_filters = on_if(&[(2, json!(false))]);
    let needy = stored(7, "needy", true, &needy_filters);
    let flags = [server, client, anywhere, app, page, survey, needy];
    let set = FlagSet::new(flags.iter().map(|flag| Arc::new(Entry::read(flag, usize::MAX))));
    let all = Selection::default();
    let native = ["app".to_owned()];
    let other = ["other".to_owned()];
    for (selection, expected) in [
        (all, "+server +client +anywhere +app +page +survey-targeting-x -needy"),
        // A flag that is not for this runtime is false for flags that depend on it.
        (
            Selection { runtime: Some(Runtime::Server), ..all },
            "+server +anywhere +app +page +survey-targeting-x +needy",
        ),
        (
            Selection { runtime: Some(Runtime::All), ..all },
            "+anywhere +app +page +survey-targeting-x +needy",
        ),
        (
            Selection { contexts: &native, ..all },
            "+server +client +anywhere +app +survey-targeting-x -needy",
        ),
        (
            Selection { contexts: &other, ..all },
            "+server +client +anywhere +survey-targeting-x -needy",
        ),
        (Selection { surveys_only: true, ..all }, "+survey-targeting-x"),
    ] {
        assert_eq!(summary(&evaluate(&set, &selection)), expected, "{selection:?}");
    }
}

#[test]
fn flags_are_found_by_key_and_by_continuity() {
    let flags =
        set(&[(1, "a", true, open()), (2, "kept", true, open()), (3, "kept-off", false, open())]);
    assert_eq!(flags.by_key("a").map(|entry| entry.id), Some(1));
    assert!(flags.by_key("b").is_none());
    assert_eq!(flags.continuity_keys().collect::<Vec<_>>(), ["kept"]);
    assert_eq!(flags.entries().len(), 3);
}

/// Every chain of 2,000 flags, in either direction, is one pass without recursion.
#[test]
fn long_chains_are_evaluated() {
    for reversed in [false, true] {
        let mut flags: Vec<_> =
            (1..2000).map(|id| (id, format!("f{id}"), on_if(&[(id + 1, json!(true))]))).collect();
        flags.push((2000, "f2000".to_owned(), open()));
        if reversed {
            flags.reverse();
        }
        let flags: Vec<_> =
            flags.iter().map(|(id, key, f)| (*id, key.as_str(), true, f.clone())).collect();
        let set = set(&flags);
        let answers = evaluate(&set, &Selection::default());
        assert_eq!(answers.flags.len(), 2000);
        assert!(answers.flags.iter().all(|answer| answer.result.is_ok_and(|v| v.enabled)));
    }
}
