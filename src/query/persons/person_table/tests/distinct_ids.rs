//! The table of distinct ids against the identity store.

use std::collections::BTreeSet;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::*;
use weir_event::id::PersonId;
use weir_identity::change::{Extent, Keep};

/// One row: project, distinct id, person, since, old person, number of the person.
type IdRow = (i64, String, String, Option<i64>, Option<String>, i64);

/// The rows that the table should have, from look-ups of single ids and persons. `since` is that of what is found in the
/// table, which other tests hold to a model (`identity/tests/sequences.rs`).
fn expected_ids(identities: &Identities) -> BTreeSet<IdRow> {
    let (view, mut rows) = (identities.view(), BTreeSet::new());
    for project in PROJECTS {
        let mut since = std::collections::BTreeMap::new();
        let visit = |_: &weir_identity::row::Row<'_>, ids: &[weir_identity::person::DistinctId]| {
            since.extend(ids.iter().map(|id| (id.text.to_string(), id.since)));
            Ok(Flow::Continue(()))
        };
        view.scan_rows_with_ids(project, 0..i64::MAX, visit).expect("scans");
        let mut ids = Vec::new();
        let visit = |_, id| {
            ids.push(id);
            Flow::Continue(())
        };
        view.scan_distinct_ids(project, visit).expect("scans");
        for id in ids {
            let person = view.person_of(project, &id).expect("reads").expect("a person");
            let own = PersonId::of(project, &id).0;
            let old = (own != person.uuid).then(|| own.to_string());
            let since = since[&id].map(|since| since.0);
            rows.insert((project.0, id, person.uuid.to_string(), since, old, person.number));
        }
    }
    rows
}

/// The rows of all live files, each of which has to be there once.
fn rows_of_ids(table: &PersonTable) -> BTreeSet<IdRow> {
    let mut rows = BTreeSet::new();
    for batch in batches(table) {
        for row in 0..batch.num_rows() {
            assert!(rows.insert(id_row(&batch, row)), "{batch:?}");
        }
    }
    rows
}

fn id_row(batch: &RecordBatch, row: usize) -> IdRow {
    let column = |name: &str| batch.column_by_name(name).expect("a column");
    let number = |name: &str| column(name).as_primitive::<Int64Type>().value(row);
    let text = |name: &str| {
        let texts = column(name).as_string::<i32>();
        texts.is_valid(row).then(|| texts.value(row).to_owned())
    };
    let since = column("since").as_primitive::<TimestampMicrosecondType>();
    (
        number("project_id"),
        text("distinct_id").expect("a text"),
        text("person_id").expect("a text"),
        since.is_valid(row).then(|| since.value(row)),
        text("old_person_id"),
        number("person_number"),
    )
}

fn check(bench: &Bench, table: &PersonTable, context: &str) {
    assert_eq!(rows_of_ids(table), expected_ids(&bench.identities), "{context}");
}

fn split(distinct_id: &str, keep: Keep) -> Op {
    let person = PersonId::of(PROJECTS[0], distinct_id).0;
    op("", OpKind::Split { person, keep })
}

fn delete(distinct_id: &str) -> Op {
    let person = PersonId::of(PROJECTS[0], distinct_id).0;
    op("", OpKind::Delete { person, extent: Extent::Both })
}

/// Goal: merges, splits and deletions are in the table, and what an event was captured with leads to its person.
#[test]
fn the_table_has_the_persons_of_today() {
    let bench = Bench::new();
    let table = bench.table_of(TableOf::DistinctIds);
    assert_eq!(table.create().expect("creates"), (0, 0));
    bench.apply(1, 0, people());
    bench.apply(2, 1, vec![touch("a"), set("e", json!({"x": 1}))]);
    let written = table.write(&|| false).expect("writes").expect("rows");
    assert_eq!((written.through, written.rows, written.files), (2, 6, 1));
    check(&bench, &table, "new persons");
    assert!(rows_of_ids(&table).iter().all(|row| row.3 == Some(NOW.0 - 1) && row.4.is_none()));
    let later = UnixMicros(NOW.0 + 5);
    let at = |op: Op| Op { timestamp: later, ..op };
    bench.apply(3, 0, vec![at(merge("b", "c")), at(merge("b", "visitor"))]);
    table.write(&|| false).expect("writes").expect("rows");
    check(&bench, &table, "merged");
    let uuid = |id: &str| PersonId::of(PROJECTS[0], id).0.to_string();
    let found = |id: &str| {
        let all = rows_of_ids(&table).into_iter();
        let own: Vec<_> = all.filter(|row| row.0 == 1 && row.1 == id).collect();
        own.first().map(|row| (row.2.clone(), row.3, row.4.clone()))
    };
    let merged = |id: &str| Some((uuid("b"), Some(later.0), Some(uuid(id))));
    assert_eq!(found("c"), merged("c"));
    assert_eq!(found("visitor"), merged("visitor"));
    assert_eq!(found("b"), Some((uuid("b"), Some(NOW.0 - 1), None)));
    bench.apply(4, 0, vec![split("b", Keep::AllBut(vec!["b".to_owned()]))]);
    table.write(&|| false).expect("writes").expect("rows");
    check(&bench, &table, "split");
    bench.apply(5, 0, vec![delete("a")]);
    table.write(&|| false).expect("writes").expect("rows");
    check(&bench, &table, "deleted");
    assert_eq!(found("a"), None);
}

/// Goal: changes of properties alone, the most frequent by far, write nothing, nor does a start.
#[test]
fn properties_cost_nothing() {
    let bench = Bench::new();
    bench.apply(1, 0, (0..100).map(|n| touch(&format!("id{n}"))).collect());
    let table = bench.table_of(TableOf::DistinctIds);
    table.close().expect("writes").expect("rows");
    let before = version(&table);
    for sequence in 2..10 {
        let ops = (0..100).map(|n| set(&format!("id{n}"), json!({"at": sequence}))).collect();
        bench.apply(sequence, 0, ops);
        bench.clock.advance(HOUR);
        assert_eq!(table.step(&|| false).expect("looks"), Step::None);
    }
    assert_eq!(table.write(&|| false).expect("looks"), None);
    assert_eq!(version(&table), before);
    table.close().expect("notes");
    let (table, before) = (bench.table_of(TableOf::DistinctIds), version(&table).1);
    bench.clock.advance(HOUR);
    assert_eq!(table.step(&|| false).expect("looks"), Step::None);
    assert_eq!(version(&table).1, before);
    bench.apply(10, 0, vec![merge("id1", "id2")]);
    assert_eq!(table.step(&|| false).expect("looks"), Step::None, "not at once");
    bench.clock.advance(HOUR);
    assert!(matches!(table.step(&|| false).expect("writes"), Step::Late(_)));
    check(&bench, &table, "a merge");
}

/// Goal: a merge is in the files within six intervals, however many persons they have.
#[test]
fn a_merge_is_soon_in_the_files() {
    let bench = Bench::new();
    bench.apply(1, 0, (0..40_000).map(|n| touch(&format!("id{n}"))).collect());
    let table = bench.table_of(TableOf::DistinctIds).with_rows_max(20_000);
    table.write(&|| false).expect("writes");
    let before = version(&table).1;
    assert_eq!(before.len(), 2);
    bench.apply(2, 0, vec![merge("id1", "visitor")]);
    assert_eq!(table.step(&|| false).expect("looks"), Step::None);
    bench.clock.advance(INTERVAL * 6 - Duration::from_secs(1));
    // A merge with a person who is in no file has touched one file only.
    assert_eq!(table.step(&|| false).expect("looks"), Step::None);
    bench.clock.advance(Duration::from_secs(1));
    assert!(matches!(table.step(&|| false).expect("writes"), Step::Renewed(_)));
    assert_eq!(version(&table).1.intersection(&before).count(), 1);
    check(&bench, &table, "merged");
}

/// Goal: what is asked to be of a sequence is written once, and of what changes later nothing has to be.
#[test]
fn files_are_written_up_to_a_sequence() {
    let bench = Bench::new();
    bench.apply(1, 0, (0..100).map(|n| touch(&format!("id{n}"))).collect());
    let table = bench.table_of(TableOf::DistinctIds).with_rows_max(50);
    assert_eq!(table.write_until(1, &|| false).expect("writes").map(|own| own.files), Some(2));
    bench.apply(2, 0, vec![merge("id1", "id2")]);
    assert_eq!(table.write_until(1, &|| false).expect("looks"), None);
    assert_eq!(table.write_until(2, &|| true).expect("gives up"), None);
    assert_eq!(table.write_until(2, &|| false).expect("writes").map(|own| own.files), Some(1));
    check(&bench, &table, "written");
    let table = bench.table_of(TableOf::DistinctIds);
    assert_eq!(table.write_until(2, &|| false).expect("compares"), None);
    check(&bench, &table, "after a crash");
}

/// Goal: no file has a distinct id of a deleted person for longer than it may.
#[test]
fn deleted_persons_leave_in_time() {
    let bench = Bench::new();
    bench.apply(1, 0, (0..40_000).map(|n| touch(&format!("id{n}"))).collect());
    let table = bench.table_of(TableOf::DistinctIds).with_rows_max(20_000);
    table.write(&|| false).expect("writes");
    bench.apply(2, 0, vec![delete("id7")]);
    let has = || rows_of_ids(&table).iter().any(|row| row.1 == "id7");
    let mut waited = Duration::ZERO;
    while has() {
        table.step(&|| false).expect("writes");
        bench.clock.advance(INTERVAL);
        waited += INTERVAL;
        assert!(waited <= HOUR, "it is still there");
    }
    check(&bench, &table, "deleted");
}

/// Goal: whatever changes, ends and crashes in whatever order, the table becomes the store, and each distinct id is in
/// one live file at any time.
#[test]
fn the_table_becomes_the_store_whatever_happens() {
    for seed in 0..12 {
        let (mut random, bench) = (StdRng::seed_from_u64(seed), Bench::new());
        let rows_max = [2, 20, 500][usize::try_from(seed % 3).expect("small")];
        let open = || bench.table_of(TableOf::DistinctIds).with_rows_max(rows_max);
        let mut table = open();
        for round in 1..60_u64 {
            let id = |random: &mut StdRng| format!("id{}", random.random_range(0..60));
            let (one, other) = (id(&mut random), id(&mut random));
            match random.random_range(0..12) {
                0..4 => bench.apply(round, 0, vec![touch(&one), set(&other, json!({"n": round}))]),
                4 => bench.apply(round, 1, vec![touch(&one), merge(&one, &other)]),
                5..7 => bench.apply(round, 0, vec![merge(&one, &other)]),
                7 => bench.apply(round, 0, vec![split(&one, Keep::Own)]),
                8 => bench.apply(round, 0, vec![delete(&one)]),
                9 => bench.clock.advance(INTERVAL),
                10 => {
                    if random.random_bool(0.5) {
                        table.close().expect("writes");
                    }
                    table = open();
                    table.create().expect("opens");
                }
                _ => drop(table.step(&|| false).expect("writes")),
            }
            rows_of_ids(&table);
            if random.random_bool(0.1) {
                table.write(&|| false).expect("writes");
                check(&bench, &table, &format!("seed {seed} round {round}"));
            }
        }
        for _ in 0..2 {
            while table.step(&|| false).expect("writes") != Step::None {}
            bench.clock.advance(HOUR);
        }
        check(&bench, &table, &format!("seed {seed}"));
    }
}

/// Goal: after a power cut at any time, the table is one of two copies.
#[test]
fn a_power_cut_leaves_one_copy_or_the_next() {
    let bench = Bench::new();
    let later = identities(bench.directory.path(), "later");
    for identities in [&bench.identities, &later] {
        apply(identities, 1, 0, people());
    }
    apply(&later, 2, 0, vec![merge("b", "c"), touch("f")]);
    let states = [BTreeSet::new(), expected_ids(&bench.identities), expected_ids(&later)];
    let open = |disk: &SimDisk, identities: &Identities| {
        let root = std::path::Path::new("/data");
        bench.kind_on(TableOf::DistinctIds, Arc::new(disk.clone()), root, identities)
    };
    let mut outcomes = BTreeSet::new();
    for cut in 0.. {
        let disk = SimDisk::new();
        disk.cut_after(cut);
        let both = [&bench.identities, &later];
        let done = both.iter().take_while(|of| open(&disk, of).write(&|| false).is_ok()).count();
        for survival in [Survival::Lose, Survival::Keep, Survival::Mixed(1)] {
            let context = format!("cut {cut}, {survival:?}, {done} done");
            let disk = disk.power_on(survival);
            let table = open(&disk, &later);
            let found = rows_of_ids(&table);
            let found = states.iter().position(|state| *state == found).expect(&context);
            assert!((done..=done + 1).contains(&found), "{context}: {found} found");
            outcomes.insert((done, found));
            table.write(&|| false).expect(&context);
            assert_eq!(rows_of_ids(&table), states[2], "{context}");
        }
        if done == 2 {
            break;
        }
    }
    assert!(outcomes.is_superset(&[(0, 0), (1, 1), (2, 2)].into()), "{outcomes:?}");
}

/// What both tables of a million persons cost: bytes, and time of this thread on a processor. Run by hand.
#[test]
#[ignore = "a measurement"]
fn costs() {
    const PERSONS: u32 = 1_000_000;
    let bench = Bench::new();
    let busy = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("a number"))
    };
    let uuid = |number: u32| PersonId::of(ProjectId(9), &number.to_string()).0;
    let mut sequence = 0;
    for first in (0..PERSONS).step_by(10_000) {
        let told = |number: u32| {
            let properties = json!({
                "email": format!("person{number}@example.com"), "plan": if number.is_multiple_of(2) { "free" } else { "pro" },
                "$initial_referrer": format!("https://example.com/{}", number % 1000), "logins": number % 50,
            });
            set(&uuid(number).to_string(), properties)
        };
        sequence += 1;
        bench.apply(sequence, 0, (first..first + 10_000).map(told).collect());
        // One in six logs in with a second id.
        let numbers = (first..first + 10_000).filter(|number| number.is_multiple_of(6));
        let merges =
            numbers.map(|number| merge(&format!("user-{number}"), &uuid(number).to_string()));
        sequence += 1;
        bench.apply(sequence, 0, merges.collect());
    }
    let tables = [TableOf::Persons, TableOf::DistinctIds].map(|of| bench.table_of(of));
    let write = |what: &str| {
        for table in &tables {
            let before = busy();
            let written = table.write(&|| false).expect("writes").unwrap_or_default();
            let took = busy().saturating_sub(before);
            let name = table.name();
            println!("{what}: {name} {took:?} {written:?}");
        }
    };
    write("all");
    let told = |number: u32| set(&uuid(number * 97).to_string(), json!({"logins": 99}));
    bench.apply(sequence + 1, 0, (0..10_000).map(told).collect());
    write("10000 other properties");
    let merges =
        (0..100).map(|number| merge(&uuid(number * 9700).to_string(), &format!("late {number}")));
    bench.apply(sequence + 2, 0, merges.collect());
    write("100 merges over all files");
    let told = (0..1000).map(|number| touch(&format!("new {number}")));
    bench.apply(sequence + 3, 0, told.collect());
    write("1000 new persons");
}
