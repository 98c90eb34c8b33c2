//! What the evaluation of a flag costs.
//!
//! `cargo bench --bench flags`. An element is one flag of a set of 350, evaluated for one person; the
//! answers of all of them are made. One thread.

#![expect(clippy::expect_used, reason = "a bench that cannot go on has nothing to report")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::Criterion;
use criterion::Throughput;
use serde_json::Value;
use serde_json::json;
use weir::clock::UnixMicros;
use weir::flags::cohorts::CohortSet;
use weir::flags::cohorts::Memberships;
use weir::flags::definition::Stored;
use weir::flags::set::Entry;
use weir::flags::set::FlagSet;
use weir::flags::set::Selection;
use weir::flags::subject::Subject;

/// Flags of a set, as in the published figures of other servers.
const FLAGS: i64 = 350;
/// 2026-11-21T08:00:00Z.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);

fn set(filters: &Value) -> FlagSet {
    let entry = |id: i64| Arc::new(Entry::read(&Stored::new(id, &format!("flag-{id}"), filters)));
    FlagSet::new((1..=FLAGS).map(entry))
}

fn main() {
    let property = |key: &str, operator: &str, value: Value| json!({"key": key, "type": "person", "operator": operator, "value": value});
    let targeted = json!([{"properties": [
        property("email", "icontains", json!("@example.com")),
        property("plan", "exact", json!(["pro", "enterprise"])),
        property("seats", "gt", json!("5")),
    ], "rollout_percentage": 50}]);
    let variants = json!({"variants": [
        {"key": "control", "rollout_percentage": 50},
        {"key": "test", "rollout_percentage": 50},
    ]});
    let person = json!({"email": "ada@example.com", "plan": "pro", "seats": 7, "country": "de"});
    let person = person.as_object().expect("an object");
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("evaluate");
    group.throughput(Throughput::Elements(FLAGS.unsigned_abs()));
    for (name, filters) in [
        ("static", json!({"groups": [{"properties": [], "rollout_percentage": 100}]})),
        ("rollout", json!({"groups": [{"properties": [], "rollout_percentage": 50}]})),
        ("targeted", json!({"groups": targeted})),
        ("variants", json!({"groups": targeted, "multivariate": variants})),
    ] {
        let flags = set(&filters);
        let mut subject = Subject::new("ada", NOW);
        subject.stored = Some(person);
        let (none, uuids) = (CohortSet::default(), || None);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let cohorts = Memberships::new(&none, &uuids);
                black_box(flags.evaluate(&subject, &Selection::default(), &cohorts).flags.len())
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
