//! Benchmark of flag evaluation.
//!
//! `cargo bench --bench flags`. An element is one flag of a set of 350, evaluated for one person; the
//! response contains all of them. One thread.

#![expect(clippy::expect_used, reason = "a bench that cannot go on has nothing to report")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use serde_json::{Value, json};
use uuid::Uuid;
use weir_base::clock::UnixMicros;
use weir_event::predicate::Matching;
use weir_event::predicate::moment::Now;
use weir_flags::cohorts::{Cohort, CohortSet, Memberships};
use weir_flags::definition::Stored;
use weir_flags::set::{Entry, FlagSet, Selection};
use weir_flags::subject::Subject;

/// Flags of a set, as in the published figures of other servers.
const FLAGS: i64 = 350;
/// 2026-11-21T08:00:00Z.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);

/// Members of a listed cohort.
const MEMBERS: u128 = 100_000;

/// Flags whose filters are `filters` of their ids.
fn set(filters: impl Fn(i64) -> Value) -> FlagSet {
    let entry = |id: i64| {
        Arc::new(Entry::read(&Stored::new(id, &format!("flag-{id}"), &filters(id)), usize::MAX))
    };
    FlagSet::new((1..=FLAGS).map(entry))
}

/// A cohort for every flag, since each cohort is evaluated once: odd ids have a rule, even ids a list.
fn cohorts(rule: &Value) -> CohortSet {
    let nobody: Arc<[Uuid]> = Arc::default();
    let listed: Arc<[Uuid]> = (0..MEMBERS).map(|number| Uuid::from_u128(number << 64)).collect();
    CohortSet::new((1..=2 * FLAGS).map(|id| match id % 2 {
        0 => Cohort::listed(id, Arc::clone(&listed)),
        _ => Cohort::by_rule(id, rule, Matching::Legacy, &nobody),
    }))
}

fn main() {
    let property = |key: &str, operator: &str, value: Value| json!({"key": key, "type": "person", "operator": operator, "value": value});
    let filters = json!([
        property("email", "icontains", json!("@example.com")),
        property("plan", "exact", json!(["pro", "enterprise"])),
        property("seats", "gt", json!("5")),
    ]);
    let targeted = json!([{"properties": filters, "rollout_percentage": 50}]);
    let variants = json!({"variants": [
        {"key": "control", "rollout_percentage": 50},
        {"key": "test", "rollout_percentage": 50},
    ]});
    let person = json!({"email": "ada@example.com", "plan": "pro", "seats": 7, "country": "de"});
    let person = person.as_object().expect("an object");
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("evaluate");
    group.throughput(Throughput::Elements(FLAGS.unsigned_abs()));
    let of = |filter: Value| json!({"groups": [{"properties": [filter]}]});
    let pattern = of(property("email", "regex", json!("^[a-z.]+@(example|other)\\.(com|org)$")));
    let harder = of(property("email", "regex", json!("^(?!root)(\\w+)@example\\.(com|org)$")));
    let rule = json!({"type": "AND", "values": filters});
    let known = cohorts(&rule);
    let in_cohort =
        |id: i64| of(json!({"key": "id", "type": "cohort", "value": id, "operator": "in"}));
    let same = |filters: Value| set(|_| filters.clone());
    for (name, flags) in [
        ("static", same(json!({"groups": [{"properties": [], "rollout_percentage": 100}]}))),
        ("rollout", same(json!({"groups": [{"properties": [], "rollout_percentage": 50}]}))),
        ("targeted", same(json!({"groups": targeted}))),
        ("variants", same(json!({"groups": targeted, "multivariate": variants}))),
        ("filter", same(of(property("plan", "exact", json!("pro"))))),
        ("pattern", same(pattern)),
        ("pattern that looks ahead", same(harder)),
        ("cohort by rule", set(|id| in_cohort(2 * id - 1))),
        ("cohort by list", set(|id| in_cohort(2 * id))),
    ] {
        let mut subject = Subject::new("ada", Now::utc(NOW));
        subject.stored = Some(person);
        let uuids = || Some(vec![Uuid::from_u128((MEMBERS / 3) << 64)]);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let cohorts = Memberships::new(&known, &uuids);
                black_box(flags.evaluate(&subject, &Selection::default(), &cohorts).flags.len())
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
