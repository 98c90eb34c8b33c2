//! Files over simulated time: what leaves them when, what is written anew, and what a start knows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::persons::person_rows::Selecting;
use crate::persons::person_table::tests::{
    Bench, HOUR, INTERVAL, PROJECTS, Row, expected, merge, op, rows, set, version,
};
use crate::persons::person_table::{PersonTable, Step};
use weir_base::clock::UnixMicros;
use weir_event::id::PersonId;
use weir_identity::change::{Extent, Op, OpKind, Update};

const MINUTE: Duration = Duration::from_mins(1);

/// Files of some persons, of whom each has a value of its own.
struct Files {
    bench: Bench,
    table: PersonTable,
    persons_max: usize,
    sequence: u64,
}

impl Files {
    /// Of so many persons of the first project; all of them are in files.
    fn new(persons: u32, persons_max: usize) -> Self {
        let bench = Bench::new();
        let table = bench.table().with_rows_max(persons_max);
        let mut files = Self { bench, table, persons_max, sequence: 0 };
        files.tell(0..persons, value);
        files.table.write(&|| false).expect("writes");
        files
    }

    /// Ends, in order or not, and begins again.
    fn reopen(&mut self, is_clean: bool) {
        if is_clean {
            self.table.close().expect("writes");
        }
        self.table = self.bench.table().with_rows_max(self.persons_max);
        self.table.create().expect("opens");
    }

    fn apply(&mut self, nth: usize, ops: Vec<Op>) {
        self.sequence += 1;
        self.bench.apply(self.sequence, nth, ops);
    }

    fn tell(&mut self, persons: Range<u32>, plan: impl Fn(u32) -> String) {
        let told = |number| set(&format!("id{number}"), json!({"plan": plan(number)}));
        self.apply(0, persons.map(told).collect());
    }

    fn delete(&mut self, number: u32) {
        let person = PersonId::of(PROJECTS[0], &format!("id{number}")).0;
        let kind = OpKind::Delete { person, extent: Extent::Person };
        self.apply(0, vec![op("", kind)]);
    }

    fn wait(&self, time: Duration) {
        self.bench.clock.advance(time);
    }

    /// Steps until there is nothing to do.
    fn settle(&self) -> Vec<Step> {
        let steps = std::iter::repeat_with(|| self.table.step(&|| false).expect("writes"));
        let steps: Vec<Step> = steps.take_while(|step| *step != Step::None).take(1000).collect();
        assert!(steps.len() < 1000, "there is an end");
        steps
    }

    fn paths(&self) -> BTreeSet<String> {
        version(&self.table).1
    }

    /// All values in live files.
    fn values(&self) -> BTreeSet<String> {
        let value = |row: Row| row.4["plan"].as_str().map(str::to_owned);
        rows(&self.table).into_iter().filter_map(value).collect()
    }

    fn has(&self, plan: &str) -> bool {
        self.values().contains(plan)
    }

    fn check(&self, context: &str) {
        assert_eq!(rows(&self.table), expected(&self.bench.identities), "{context}");
    }
}

fn value(number: u32) -> String {
    format!("plan of {number}")
}

fn is_renewed(steps: &[Step], files: usize) -> bool {
    let written = |step: &Step| match step {
        Step::Renewed(written) | Step::Late(written) => written.files,
        Step::None | Step::Verified => 0,
    };
    steps.iter().map(written).sum::<usize>() == files
}

/// Goal: what was deleted, changed or unset leaves its file before the time for it is over, at the cost of no other
/// file, and all else stays.
#[test]
fn what_is_no_more_leaves_the_files_in_time() {
    for change in ["delete", "set", "unset"] {
        // So many that one of them is not worth it.
        let mut files = Files::new(40_000, 20_000);
        let before = files.paths();
        assert_eq!(before.len(), 2, "{before:?}");
        match change {
            "delete" => files.delete(7),
            "set" => files.tell(7..8, |_| "new".to_owned()),
            _ => {
                let unset = Update { unset: vec!["plan".to_owned()], ..Update::default() };
                files.apply(0, vec![op("id7", OpKind::Update(unset))]);
            }
        }
        for _ in 0..6 {
            assert_eq!(files.settle(), [], "{change}: it is not worth it yet");
            assert_eq!(files.paths(), before, "{change}");
            files.wait(INTERVAL);
        }
        let steps = files.settle();
        assert!(is_renewed(&steps, 1) && matches!(steps[..], [Step::Renewed(_)]), "{steps:?}");
        files.check(change);
        let after = files.paths();
        assert_eq!((after.len(), after.intersection(&before).count()), (2, 1), "{change}");
        files.wait(MINUTE * 600);
        assert_eq!(files.settle(), [], "{change}: nothing else is written");
    }
}

/// Goal: where much has changed, or there is little, files are renewed after the interval; and persons who are new are
/// soon there.
#[test]
fn what_is_worth_it_is_there_soon() {
    let mut files = Files::new(40_000, 20_000);
    files.tell(0..400, |number| format!("new {number}"));
    files.tell(40_000..40_400, value);
    assert_eq!(files.settle(), []);
    files.wait(INTERVAL);
    assert!(
        is_renewed(&files.settle(), 3),
        "one with changes, one that was full, one with new persons"
    );
    files.check("after the interval");
    let mut files = Files::new(1000, 20_000);
    files.delete(7);
    assert_eq!(files.settle(), []);
    files.wait(INTERVAL - MINUTE);
    assert_eq!(files.settle(), []);
    files.wait(MINUTE);
    assert!(is_renewed(&files.settle(), 1));
    files.check("a small file");
}

/// Goal: after an end in order nothing is read or written; after a crash nothing is trusted before it was compared, and
/// what changed before it leaves at once.
#[test]
fn a_start_knows_what_is_in_files() {
    let mut files = Files::new(100, 20);
    files.delete(7);
    files.reopen(true);
    files.check("the end writes all");
    assert_eq!((files.table.known_files(), files.settle()), (5, Vec::new()));
    let before = files.paths();
    files.reopen(true);
    assert_eq!((files.paths(), files.settle()), (before.clone(), Vec::new()));
    // Nobody is told of what is changed last.
    files.delete(28);
    files.tell(50..51, |_| "new".to_owned());
    files.tell(100..103, value);
    files.reopen(false);
    assert_eq!(files.table.known_files(), 0, "after a crash");
    let steps = files.settle();
    let compared = steps.iter().take_while(|step| **step == Step::Verified).count();
    assert_eq!(compared, 5, "{steps:?}");
    files.check("after a crash");
    let kept = files.paths().intersection(&before).count();
    assert_eq!(kept, 2, "with changes in three of them: {steps:?}");
    // The note of the last end in order says nothing of later changes.
    files.reopen(false);
    assert_eq!(files.table.known_files(), 0);
    files.settle();
    files.delete(30);
    files.reopen(true);
    files.delete(31);
    files.reopen(false);
    assert_eq!(files.table.known_files(), 0);
    files.settle();
    files.check("after changes that nobody watched");
}

/// Goal: however often persons change a little, no file has a value for longer than it may, and each file is written
/// at most twice in that time.
#[test]
fn a_trickle_of_changes_costs_little() {
    let mut files = Files::new(36_000, 18_000);
    let mut random = StdRng::seed_from_u64(1);
    let mut said: BTreeMap<u32, String> = BTreeMap::new();
    let mut gone: BTreeMap<String, UnixMicros> = BTreeMap::new();
    let hours: u32 = 3;
    let mut made = 0;
    for minute in 0..hours * 60 {
        if minute % 3 == 0 {
            let number = random.random_range(0..36_000);
            let new = format!("said at {minute}");
            let old = said.insert(number, new.clone()).unwrap_or_else(|| value(number));
            gone.insert(old, files.bench.clock.now());
            files.tell(number..number + 1, |_| new.clone());
        }
        // One step a look is all that there is time for.
        let step = files.table.step(&|| false).expect("writes");
        made += u32::from(step != Step::None);
        if minute % 10 == 9 {
            for value in files.values() {
                let age = gone.get(&value).map(|since| files.bench.clock.now().since(*since));
                assert!(age.is_none_or(|age| age <= HOUR), "{value} after {age:?}");
            }
        }
        files.wait(MINUTE);
    }
    assert!((hours..=hours * 4).contains(&made), "{made} of two files in {hours} hours");
}

/// Goal: the files of persons who come slowly are few, and those that are full are not written again.
#[test]
fn the_last_file_grows_until_it_is_full() {
    let mut files = Files::new(10, 400);
    let mut written = 0;
    for tens in 1..100 {
        files.tell(tens * 10..tens * 10 + 10, value);
        if tens % 5 == 0 {
            // Of another project, whose persons stand behind.
            files.apply(1, vec![set(&format!("other {tens}"), json!({}))]);
        }
        files.wait(INTERVAL);
        files.settle();
        files.wait(INTERVAL);
        written += files.settle().len();
    }
    files.check("all are there");
    assert!((3..=4).contains(&files.paths().len()), "of a thousand persons: {:?}", files.paths());
    // One of the files is written for each ten persons, and now and then another for the other project.
    assert!(written <= 99 + 20, "{written}");
}

/// Goal: a file that cannot be written anew is not tried all the time, and leaves the table when its time is over.
#[test]
fn what_cannot_be_written_anew_goes() {
    let mut files = Files::new(100, 50);
    files.delete(7);
    files.settle();
    let (project, number) = (PROJECTS[0], 20);
    let row = files.bench.identities.replace_row(project, number, b"").expect("writes");
    files.wait(MINUTE * 30);
    files.table.step(&|| false).expect_err("it fails");
    assert_eq!(files.table.step(&|| false).expect("nothing"), Step::None, "it is left alone");
    files.wait(MINUTE);
    files.table.step(&|| false).expect_err("it fails again");
    assert!(files.has("plan of 7"));
    files.wait(MINUTE * 30);
    files.table.step(&|| false).expect_err("and again");
    assert!(!files.has("plan of 7") && files.has("plan of 99"));
    files.bench.identities.replace_row(project, number, &row).expect("writes");
    files.wait(INTERVAL);
    files.settle();
    files.wait(INTERVAL);
    files.settle();
    files.check("once it can be read");
}

/// Goal: a file that is damaged is found, and written anew.
#[test]
fn a_damaged_file_is_written_anew() {
    let mut files = Files::new(100, 50);
    files.table.close().expect("notes");
    let path = files.paths().into_iter().next().expect("a file");
    let path = files.bench.directory.path().join("persons").join(path);
    let mut bytes = std::fs::read(&path).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("writes");
    files.reopen(false);
    // The note of the end says that it is as of now.
    assert_eq!(files.table.known_files(), 2);
    let view = files.bench.identities.view();
    let parts = files.table.pieces.parts(PROJECTS[0], &view).expect("reads");
    let store = parts.store.expect("files");
    let read = |part: &crate::persons::person_table::Part| {
        let file = part.file.as_ref()?;
        files.table.columns(0, &store, file, PROJECTS[0], &[Selecting::Own("id")])
    };
    let read: Vec<bool> = parts.parts.iter().map(|part| read(part).is_some()).collect();
    assert_eq!(read.iter().filter(|is_read| **is_read).count(), 1, "{read:?}");
    assert_eq!(files.table.known_files(), 1);
    files.settle();
    files.wait(INTERVAL);
    assert!(is_renewed(&files.settle(), 1));
    files.check("again");
    assert_eq!(files.table.known_files(), 2);
}

/// Goal: whatever changes, ends and crashes in whatever order, the table becomes the store, and a reader sees
/// everybody at any time.
#[test]
fn the_table_becomes_the_store_whatever_happens() {
    for seed in 0..12 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut files = Files::new(10, [3, 20, 500][usize::try_from(seed % 3).expect("small")]);
        for round in 0..40 {
            let context = format!("seed {seed} round {round}");
            let id = |random: &mut StdRng| format!("id{}", random.random_range(0..80));
            let nth = usize::from(random.random_bool(0.3));
            match random.random_range(0..10) {
                0..4 => {
                    let ops = (0..random.random_range(1..8))
                        .map(|n| set(&id(&mut random), json!({"n": n})));
                    let ops = ops.collect();
                    files.apply(nth, ops);
                }
                4 => {
                    let (one, other) = (id(&mut random), id(&mut random));
                    files.apply(nth, vec![merge(&one, &other)]);
                }
                5 => files.delete(random.random_range(0..80)),
                6 => files.wait(INTERVAL),
                7 => files.reopen(random.random_bool(0.5)),
                _ => drop(files.table.step(&|| false).expect("writes")),
            }
            if random.random_bool(0.1) {
                files.table.write(&|| false).expect("writes");
                files.check(&context);
            }
            seen(&files, &context);
        }
    }
}

/// Checks that the files of each project, with who has changed, are the persons of the store.
fn seen(files: &Files, context: &str) {
    let view = files.bench.identities.view();
    for project in PROJECTS {
        let parts = files.table.pieces.parts(project, &view).expect("reads");
        let (mut numbers, mut at) = (BTreeSet::new(), 0);
        for part in &parts.parts {
            assert_eq!(part.numbers.start, at, "{context}");
            at = part.numbers.end;
            let places = (project, part.numbers.start)..(project, part.numbers.end);
            if let (Some(file), Some(store)) = (&part.file, &parts.store) {
                let wanted = [Selecting::Own("id")];
                let found = files.table.columns(0, store, file, project, &wanted).expect("reads");
                numbers.extend(found[0].as_primitive::<Int64Type>().values());
                for (_, changed) in parts.changed.within(&places) {
                    numbers.remove(&changed);
                    let row = view.ask_row(project, changed, |row| row.number).expect("reads");
                    numbers.extend(row);
                }
            } else {
                let visit = |row: &weir_identity::row::Row<'_>| {
                    numbers.insert(row.number);
                    Ok(std::ops::ControlFlow::Continue(()))
                };
                view.scan_rows(project, part.numbers.clone(), visit).expect("reads");
            }
        }
        assert_eq!(at, i64::MAX, "{context}");
        let all = expected(&files.bench.identities).into_iter();
        let all: BTreeSet<i64> = all.filter(|row| row.0 == project.0).map(|row| row.1).collect();
        assert_eq!(numbers, all, "{context}");
    }
}
