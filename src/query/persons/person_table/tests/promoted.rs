//! Columns of promoted properties in files: new files have them, those from before are written anew, each once, and nothing
//! else is written because of them.

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;

use super::*;
use crate::events::promoted;
use weir_event::promotion::{PromotedTable, Promotion};
use weir_event::schema::PropertyType;
use weir_event::schema::PropertyType::{Boolean, Double, Text};
use weir_storage::derived::Derived;

fn columns(of: &[(&str, PropertyType)]) -> Derived {
    let promotion =
        |(key, kind): &(&str, PropertyType)| Promotion { key: (*key).into(), kind: *kind };
    let all: Vec<Promotion> = of.iter().map(promotion).collect();
    promoted::derived(PromotedTable::Persons, &all).expect("columns")
}

/// Persons with values of every type.
fn tell(bench: &Bench, sequence: u64) {
    let values = [
        json!({"age": 7, "plan": "pro", "paid": true}),
        json!({"age": " 1E2", "plan": 3, "paid": "FALSE"}),
        json!({"age": "x", "plan": [1, {"a": null}], "paid": 1}),
        json!({"age": null, "plan": "ü\"", "paid": null}),
        json!({}),
    ];
    let told = |(at, value): (usize, &Value)| set(&format!("p{at}"), value.clone());
    bench.apply(sequence, 0, values.iter().enumerate().map(told).collect());
    bench.apply(sequence + 1, 1, vec![set("other", json!({"plan": "of another"}))]);
}

/// Columns of all live files as texts, person by person; the outer `None` for files without one of them.
fn stored(table: &PersonTable, names: &[&str]) -> Option<Vec<Vec<Option<String>>>> {
    let mut rows = Vec::new();
    for batch in batches(table) {
        let columns: Option<Vec<_>> = names.iter().map(|name| batch.column_by_name(name)).collect();
        let columns = columns?;
        for row in 0..batch.num_rows() {
            let text = |column: &&arrow::array::ArrayRef| {
                let is_there = column.is_valid(row);
                is_there.then(|| match column.data_type() {
                    DataType::Float64 => {
                        column.as_primitive::<Float64Type>().value(row).to_string()
                    }
                    DataType::Boolean => column.as_boolean().value(row).to_string(),
                    _ => column.as_string::<i32>().value(row).to_owned(),
                })
            };
            rows.push(columns.iter().map(text).collect());
        }
    }
    Some(rows)
}

fn settle(table: &PersonTable) -> usize {
    let steps = std::iter::repeat_with(|| table.step(&|| false).expect("writes"));
    let steps = steps.take_while(|step| *step != Step::None).take(100);
    steps.filter(|step| *step != Step::Verified).count()
}

/// Goal: files get the columns within the interval, with values of every type, and are then left alone, also after a start;
/// an end of a promotion writes nothing.
#[test]
fn files_get_columns_once() {
    let bench = Bench::new();
    let table = bench.table().with_rows_max(2);
    tell(&bench, 1);
    table.write(&|| false).expect("writes").expect("files");
    let (_, before) = version(&table);
    assert_eq!(before.len(), 3);
    let all = [("age", Double), ("paid", Boolean), ("plan", Text)];
    let names = ["p_age", "p_paid", "p_plan"];
    table.derive(Derived::default()).expect("nothing");
    table.derive(columns(&all)).expect("columns");
    let schema = table.columns_of_table().expect("opens");
    assert!(names.iter().all(|name| schema.column_with_name(name).is_some()), "{schema}");
    assert_eq!((settle(&table), stored(&table, &names)), (0, None), "not at once");
    bench.clock.advance(INTERVAL);
    assert_eq!(settle(&table), 3);
    let text = |text: &str| Some(text.to_owned());
    let expected = vec![
        vec![text("7"), text("true"), text("pro")],
        vec![text("100"), text("false"), text("3")],
        vec![None, None, text("[1,{\"a\":null}]")],
        vec![None, None, text("ü\"")],
        vec![None, None, None],
        vec![None, None, text("of another")],
    ];
    assert_eq!(stored(&table, &names).as_ref(), Some(&expected));
    assert_eq!(rows(&table), super::expected(&bench.identities));
    let (_, filled) = version(&table);
    assert!(filled.is_disjoint(&before));

    // A start in order, and one after a crash.
    for is_clean in [true, false] {
        if is_clean {
            table.close().expect("nothing to write");
        }
        let again = bench.table().with_rows_max(2);
        again.create().expect("opens");
        again.derive(columns(&all)).expect("columns");
        bench.clock.advance(HOUR * 2);
        assert_eq!(settle(&again), 0, "{is_clean}");
        // Fewer columns are no reason, and those that were there once are none.
        again.derive(columns(&all[..1])).expect("columns");
        bench.clock.advance(HOUR * 2);
        assert_eq!(settle(&again), 0, "{is_clean}");
        assert_eq!(version(&again).1, filled, "{is_clean}");
    }

    // What is written for another reason has the columns of now.
    table.derive(columns(&all[..1])).expect("columns");
    bench.apply(9, 0, vec![set("p0", json!({"age": 8}))]);
    table.write(&|| false).expect("writes").expect("a file");
    assert_eq!(stored(&table, &["p_plan"]), None);
    assert_eq!(stored(&table, &["p_age"]).expect("all have it")[0], [text("8")]);
}

/// Goal: whoever asks for files as of now gets the columns with them; the end of a process does not wait for that.
#[test]
fn files_on_demand_have_columns() {
    let bench = Bench::new();
    let table = bench.table().with_rows_max(2);
    tell(&bench, 1);
    table.write(&|| false).expect("writes").expect("files");
    table.derive(columns(&[("plan", Text)])).expect("columns");
    assert_eq!(table.close().expect("nothing"), None);
    assert_eq!(stored(&table, &["p_plan"]), None);
    let written = table.write_until(2, &|| false).expect("writes").expect("files");
    assert_eq!((written.rows, written.files), (6, 3));
    assert!(stored(&table, &["p_plan"]).is_some());
    assert_eq!(table.write_until(2, &|| false).expect("looks"), None);
    // Columns computed by other formulas are none.
    let newer = Derived { formulas: u32::MAX, ..columns(&[("plan", Text)]) };
    table.derive(newer).expect("columns");
    assert!(table.write_until(2, &|| false).expect("writes").is_some());
    assert_eq!(table.write_until(2, &|| false).expect("looks"), None);
}

/// Goal: files that only lack columns are never taken out of the table, however long they cannot be written.
#[test]
fn files_without_columns_stay_if_they_cannot_be_written() {
    let bench = Bench::new();
    let disk = SimDisk::new();
    let table = bench.table_on(Arc::new(disk.clone()), "/data/persons".into(), &bench.identities);
    tell(&bench, 1);
    table.write(&|| false).expect("writes").expect("files");
    let before = version(&table).1;
    table.derive(columns(&[("plan", Text)])).expect("columns");
    disk.set_capacity_bytes(1);
    for _ in 0..5 {
        bench.clock.advance(HOUR);
        table.step(&|| false).expect_err("a full disk");
    }
    disk.set_capacity_bytes(1 << 40);
    assert_eq!(version(&table).1, before);
    bench.clock.advance(HOUR);
    assert_eq!(settle(&table), 1);
    assert!(stored(&table, &["p_plan"]).is_some());
}

/// Goal: processes that end before the interval do fill files in the end, and neither fewer columns nor the same ones put that
/// off. Nor does an interval that is longer than files may be out of date.
#[test]
fn files_are_filled_in_time() {
    let bench = Bench::new();
    let table = bench.table().with_rows_max(2);
    tell(&bench, 1);
    table.derive(Derived::default()).expect("nothing");
    table.write(&|| false).expect("writes").expect("files");
    let all = [("age", Double), ("plan", Text)];
    table.derive(columns(&all)).expect("columns");
    assert_eq!(settle(&table), 0);
    drop(table);

    let table = bench.table().with_rows_max(2);
    table.derive(columns(&all)).expect("columns");
    assert_eq!(settle(&table), 3, "for how long they have lacked them is not known");

    table.derive(columns(&[("paid", Boolean), ("plan", Text)])).expect("columns");
    bench.clock.advance(INTERVAL / 2);
    assert_eq!(settle(&table), 0);
    table.derive(columns(&[("paid", Boolean), ("plan", Text)])).expect("the same");
    table.derive(columns(&[("paid", Boolean)])).expect("fewer");
    bench.clock.advance(INTERVAL / 2);
    assert_eq!(settle(&table), 3);
    assert!(stored(&table, &["p_paid"]).is_some() && stored(&table, &["p_plan"]).is_none());

    let mut table = table;
    table.renewal.interval = HOUR * 10;
    table.derive(columns(&all)).expect("columns");
    bench.clock.advance(HOUR / 2);
    assert_eq!(settle(&table), 3);
}

/// Goal: that a store has lost persons is no failure, if files only lack columns.
#[test]
fn files_of_lost_persons_stay_without_columns() {
    let bench = Bench::new();
    tell(&bench, 1);
    let table = bench.table().with_rows_max(2);
    table.write(&|| false).expect("writes").expect("files");
    bench.identities.mark_incomplete().expect("writes");
    let before = version(&table).1;
    table.derive(columns(&[("plan", Text)])).expect("columns");
    bench.clock.advance(HOUR * 2);
    assert_eq!((settle(&table), table.write_until(2, &|| false).expect("looks")), (0, None));
    assert_eq!(version(&table).1, before);
    bench.apply(9, 0, vec![set("p0", json!({"age": 8}))]);
    let refused = table.write_until(9, &|| false).expect_err("would lose persons");
    assert!(matches!(refused, PersonsError::Incomplete { table: "persons" }), "{refused}");
}

/// Goal: a table that refuses columns is as before, and open.
#[test]
fn refused_columns_change_nothing() {
    let bench = Bench::new();
    tell(&bench, 1);
    let table = bench.table();
    table.derive(columns(&[("plan", Text)])).expect("columns");
    table.derive(columns(&[("plan", Double)])).expect_err("another type");
    assert!(table.table.lock().is_some());
    table.write(&|| false).expect("writes").expect("a file");
    assert_eq!(stored(&table, &["p_plan"]).expect("the column")[0], [Some("pro".to_owned())]);
}
