//! Random questions between random changes: columns, files of them, rows and a naive look at every person
//! agree.

mod world;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::kernel::parts::in_parts;
use crate::persons::columns::{Asker, Columns};
use crate::persons::people::files::{find_in_piece, listed, pieces_of};
use crate::persons::people::full_scan::{Inquiry, find_in_columns, joined};
use crate::persons::people::search::Search;
use crate::persons::people::tests::world::{AMPLE, INTERVAL, NOW, PROJECTS, World, naive};
use crate::persons::people::{Found, Part, PersonsQuestion};
use crate::persons::person_table::{PersonTable, PersonTableSettings};
use weir_disk::OsDisk;
use weir_event::predicate::moment::Now;
use weir_identity::change::{Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::person::Person;
use weir_identity::store::Identities;
use weir_storage::tables::Tables;

fn provide(runtime: &Runtime, columns: &Arc<Columns>, world: &World, question: &PersonsQuestion) {
    let keys = question.keys().into_iter().map(Into::into).collect();
    read(runtime, columns, &world.identities, keys);
}

fn read(runtime: &Runtime, columns: &Arc<Columns>, identities: &Identities, keys: Vec<Box<str>>) {
    let waits = Arc::new(());
    let asker = Asker { waits: Arc::downgrade(&waits), patience: Duration::MAX };
    let (identities, handle) = (identities.clone(), runtime.handle().clone());
    let reading = Arc::clone(columns).provide(identities, handle, PROJECTS[0], keys, asker);
    runtime.block_on(reading).unwrap();
}

fn in_columns(columns: &Columns, question: &PersonsQuestion, part: Part) -> Option<Found> {
    let stop = AtomicBool::new(false);
    // Some parts are beyond it, some not.
    let inquiry = Inquiry { project: PROJECTS[0], question, now: Now::utc(NOW), part };
    find_in_columns(columns, inquiry, 5, &stop).unwrap()
}

fn in_files(
    columns: &Columns,
    identities: &Identities,
    question: &PersonsQuestion,
    part: Part,
) -> Option<Found> {
    let stop = AtomicBool::new(false);
    let pieces = pieces_of(columns, identities, PROJECTS[0], question).unwrap()?;
    let find = |piece| find_in_piece(&pieces, piece, question, Now::utc(NOW), &stop).unwrap();
    let found: Vec<_> = pieces.all.iter().map(find).collect();
    // Some are more, some not.
    Some(listed(Arc::new(pieces), &found, Now::utc(NOW), part, 5, &stop).unwrap())
}

/// The persons table of a world, with so many persons in a file.
fn table(
    runtime: &Runtime,
    world: &World,
    directory: &Path,
    persons_max: usize,
) -> Arc<PersonTable> {
    let table = PersonTable::new(PersonTableSettings {
        tables: Tables::in_directory(Arc::new(OsDisk), directory.to_path_buf()),
        identities: world.identities.clone(),
        projects: Arc::new(|| PROJECTS.to_vec()),
        app_id: "node".to_owned(),
        runtime: runtime.handle().clone(),
        clock: world.clock.clone(),
        interval: INTERVAL,
        stale_max: Duration::from_hours(1),
    });
    let table = table.unwrap().with_persons_max(persons_max);
    table.create().unwrap();
    Arc::new(table)
}

fn check(found: &Found, question: &PersonsQuestion, part: Part, context: &str) {
    let all = naive(&found.view, PROJECTS[0], question);
    let expected: Vec<i64> = all.iter().copied().skip(part.offset).take(part.limit).collect();
    assert_eq!((found.count, &found.numbers), (all.len(), &expected), "{context} {question:?}");
}

/// All ways to look at rows find what a naive look finds.
fn check_rows(
    runtime: &Runtime,
    identities: &Identities,
    question: PersonsQuestion,
    part: Part,
    context: &str,
) {
    let (view, question) = (Arc::new(identities.view()), Arc::new(question));
    let all = naive(&view, PROJECTS[0], &question);
    let wanted: Vec<i64> = all.iter().copied().skip(part.offset).take(part.limit).collect();
    let expected = (all.len(), wanted);
    let stop = AtomicBool::new(false);
    let search = Search::new(&view, PROJECTS[0], &question, Now::utc(NOW), &stop).unwrap();
    assert_eq!(search.walk(part).unwrap(), expected, "{context}: along the list");
    let wanted_max = part.offset.saturating_add(part.limit);
    let numbers = 1..view.next_number().unwrap();
    let whole = search.scan(numbers.clone(), wanted_max).unwrap();
    assert_eq!(joined(vec![whole], part), expected, "{context}: in one piece");
    let (own_view, own_question) = (Arc::clone(&view), Arc::clone(&question));
    let work = move |numbers| {
        let stop = AtomicBool::new(false);
        let search = Search::new(&own_view, PROJECTS[0], &own_question, Now::utc(NOW), &stop)?;
        search.scan(numbers, wanted_max)
    };
    let parts = runtime.block_on(in_parts(runtime.handle(), numbers, work)).unwrap().unwrap();
    assert!(parts.iter().all(|(_, first)| first.len() <= wanted_max), "{context}");
    assert_eq!(joined(parts, part), expected, "{context}: in parts");
}

/// Goal: an answer is that of the persons as they are, whatever changed since the columns were read,
/// and whether or not they fit.
#[test]
fn columns_rows_and_a_naive_look_agree() {
    let runtime = Runtime::new().unwrap();
    let (mut from_columns, mut from_files, mut reopened) = (0, 0, 0);
    for seed in 0..24 {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(seed, directory.path());
        let bytes_max = [AMPLE, 150_000, 30_000, 0][usize::try_from(seed % 4).unwrap()];
        let persons_max = [3, 40, 5000][usize::try_from(seed % 3).unwrap()];
        let open = |world: &World| {
            let table = table(&runtime, world, directory.path(), persons_max);
            (Arc::new(Columns::of(bytes_max, Some(Arc::clone(&table)))), table)
        };
        let (mut columns, mut files) = open(&world);
        let mut closed_at = u64::MAX;
        if seed % 3 == 0 {
            // So many that not all of them are read for what columns leave open.
            world.ids = 1500;
            world.change(1000);
        }
        for step in 0..60_u32 {
            if world.random.random_bool(0.7) {
                let ops = world.random.random_range(0..8);
                world.change(ops);
            }
            if world.random.random_bool(0.1) {
                world.ids += 3;
            }
            for _ in 0..world.random.random_range(0..4) {
                files.step(&|| false).unwrap();
            }
            world.clock.advance(INTERVAL / 2);
            if world.random.random_bool(0.2) {
                // A clean end, after which something changes in vain, or none.
                let is_clean = world.random.random_bool(0.8);
                if is_clean {
                    files.close().unwrap();
                    closed_at = world.sequence;
                }
                let count = files.files();
                drop((columns, files));
                let is_same = world.random.random_bool(0.8);
                if !is_same {
                    world.change(3);
                }
                (columns, files) = open(&world);
                // Also after a crash, if nothing has changed since an end in order.
                let expected = if closed_at == world.sequence { count } else { 0 };
                assert_eq!(files.known_files(), expected, "seed {seed} step {step}");
                reopened += expected;
            }
            let persons = world.identities.view().person_count(PROJECTS[0]).unwrap();
            let part = world.part(usize::try_from(persons).unwrap());
            let mut question = world.question();
            provide(&runtime, &columns, &world, &question);
            let context = format!("seed {seed} step {step}");
            let found = in_columns(&columns, &question, part);
            assert!(u64::try_from(columns.memory()).unwrap() <= bytes_max, "{context}");
            if let Some(found) = found {
                check(&found, &question, part, &context);
                from_columns += 1;
            } else if bytes_max == AMPLE && world.ids < 200 {
                assert!(question.keys().is_empty(), "{context}");
            }
            if let Some(found) = in_files(&columns, &world.identities, &question, part) {
                check(&found, &question, part, &format!("{context} in files"));
                from_files += 1;
            }
            if step % 4 == 0 {
                // Columns do not know who changed of late: they leave it open, or to the rows.
                question.changed_since =
                    Some(world.sequence.saturating_sub(u64::from(step / 4 % 5)));
                if let Some(found) = in_columns(&columns, &question, part) {
                    check(&found, &question, part, &context);
                }
                assert!(in_files(&columns, &world.identities, &question, part).is_none());
            }
            check_rows(&runtime, &world.identities, question, part, &context);
        }
    }
    assert!(from_columns > 400, "{from_columns}");
    assert!(from_files > 100, "{from_files}");
    assert!(reopened > 40, "{reopened}");
}

/// Goal: who is named is found by look-ups, each once, as by a look at everybody.
#[test]
fn look_ups_and_a_naive_look_agree() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(31, directory.path());
    let mut found_some = 0;
    for step in 0..1500 {
        if world.random.random_bool(0.2) {
            world.change(4);
        }
        let persons = world.identities.view().person_count(PROJECTS[0]).unwrap();
        let part = world.part(usize::try_from(persons).unwrap());
        let question = world.naming();
        assert!(!question.is_about_everybody(), "{question:?}");
        let view = world.identities.view();
        let stop = AtomicBool::new(false);
        let search = Search::new(&view, PROJECTS[0], &question, Now::utc(NOW), &stop).unwrap();
        let (count, numbers) = search.find(part).unwrap();
        let all = naive(&view, PROJECTS[0], &question);
        let expected: Vec<i64> = all.iter().copied().skip(part.offset).take(part.limit).collect();
        assert_eq!((count, numbers), (all.len(), expected), "step {step}");
        found_some += usize::from(count > 0);
    }
    assert!(found_some > 300, "{found_some}");
}

/// Goal: an answer is that of one moment while persons are changing.
#[test]
fn answers_are_of_one_moment_beside_a_writer() {
    let runtime = Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(99, directory.path());
    let mut asker = World {
        random: StdRng::seed_from_u64(7),
        ids: 12,
        sequence: 0,
        identities: world.identities.clone(),
        clock: world.clock.clone(),
    };
    let files = table(&runtime, &world, directory.path(), 2);
    let columns = Arc::new(Columns::of(AMPLE, Some(Arc::clone(&files))));
    world.change(8);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for _ in 0..600 {
                world.change(4);
            }
        });
        let mut rounds = 0;
        while !writer.is_finished() || rounds < 20 {
            let (question, part) = (asker.question(), asker.part(12));
            asker.clock.advance(Duration::from_mins(1));
            files.step(&|| false).unwrap();
            if asker.random.random_bool(0.3) {
                columns.drop_all();
            }
            provide(&runtime, &columns, &asker, &question);
            if let Some(found) = in_columns(&columns, &question, part) {
                check(&found, &question, part, &format!("round {rounds}"));
                rounds += 1;
            }
        }
    });
}

/// Goal: values are counted of the newest persons, whoever changed or went.
#[test]
fn values_are_those_of_the_newest_persons() {
    let runtime = Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(5, directory.path());
    let columns = Arc::new(Columns::new(AMPLE));
    world.ids = 40;
    read(&runtime, &columns, &world.identities, vec!["plan".into()]);
    for _ in 0..50 {
        world.change(6);
        for persons_max in [3, 1000] {
            let counted = columns
                .values(PROJECTS[0], "plan", persons_max, &AtomicBool::new(false))
                .unwrap()
                .unwrap();
            let mut persons = Vec::new();
            let visit = |person: Person| {
                persons.push(person);
                ControlFlow::Continue(())
            };
            world.identities.view().scan_persons(PROJECTS[0], visit).unwrap();
            let newest = persons.iter().rev().take(persons_max);
            let values: Vec<_> =
                newest.filter_map(|person| person.properties.get("plan")).collect();
            assert_eq!(counted.iter().map(|(_, count)| count).sum::<usize>(), values.len());
            for (value, count) in &counted {
                let expected = values.iter().filter(|own| **own == value).count();
                assert_eq!(*count, expected, "{value}");
            }
        }
    }
    assert!(columns.values(PROJECTS[0], "other", 5, &AtomicBool::new(false)).unwrap().is_none());
    assert!(columns.values(PROJECTS[1], "plan", 5, &AtomicBool::new(false)).unwrap().is_none());
}

/// Persons of whom each has other values of some properties.
fn persons(identities: &Identities, persons: u32, keys: &[String]) {
    let op = |number: u32| {
        let value =
            |key: &String| (key.clone(), json!(format!("{key} {number} {}", "x".repeat(40))));
        let update = Update { set: keys.iter().map(value).collect(), ..Update::default() };
        Op {
            distinct_id: format!("id{number}"),
            event_id: Uuid::from_u128(number.into()),
            timestamp: NOW,
            kind: OpKind::Update(update),
        }
    };
    let ops = (0..persons).map(op).collect();
    identities.apply(&[Record { sequence: 1, project: PROJECTS[0], ops }]).unwrap();
}

/// Goal: if only one of two columns fits, most questions find what they need or do without, instead of
/// each of them reading what the one before it pushed out.
#[test]
fn columns_do_not_push_each_other_out_again_and_again() {
    // One thread: how much is read at once decides what fits.
    let runtime = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build();
    let runtime = runtime.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
    persons(&identities, 3000, &["a".to_owned(), "b".to_owned()]);
    let ask = |columns: &Arc<Columns>, keys: &[&str]| {
        let keys: Vec<Box<str>> = keys.iter().map(|key| (*key).into()).collect();
        let is_read = !columns.missing(PROJECTS[0], &keys).is_empty();
        read(&runtime, columns, &identities, keys.clone());
        for key in &keys {
            columns.values(PROJECTS[0], key, 10, &AtomicBool::new(false)).unwrap();
        }
        is_read
    };
    let ample = Arc::new(Columns::new(AMPLE));
    ask(&ample, &["a"]);
    let held = u64::try_from(ample.memory()).unwrap();
    // Pieces that are read take more than what they become.
    let fits = |bytes_max: &u64| {
        let columns = Arc::new(Columns::new(*bytes_max));
        ask(&columns, &["a"]);
        columns.values(PROJECTS[0], "a", 10, &AtomicBool::new(false)).unwrap().is_some()
    };
    let bytes_max = (8..40).map(|eighths| held * eighths / 8).find(fits).unwrap();
    let bytes_max = bytes_max + held / 8;
    for question in [&["a", "b"][..], &["a"]] {
        let columns = Arc::new(Columns::new(bytes_max));
        let questions = (0..50).flat_map(|_| [question, &["b"]]);
        let reads = questions.filter(|keys| ask(&columns, keys)).count();
        assert!((1..12).contains(&reads), "{question:?}: {reads}");
        // What is asked for alone comes back.
        let reads = (0..200).filter(|_| ask(&columns, &["a"])).count();
        assert!(reads <= 1, "{reads}");
        let values = columns.values(PROJECTS[0], "a", 10, &AtomicBool::new(false)).unwrap();
        assert!(values.is_some(), "{question:?}: {held} of {bytes_max}");
    }
}

/// Goal: what cannot fit pushes nothing else out.
#[test]
fn columns_that_are_too_large_leave_others_where_they_are() {
    let runtime = Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
    persons(&identities, 9000, &["a", "b", "c", "d"].map(str::to_owned));
    let ample = Arc::new(Columns::new(AMPLE));
    read(&runtime, &ample, &identities, vec!["a".into()]);
    let held = u64::try_from(ample.memory()).unwrap();
    let columns = Arc::new(Columns::new(2 * held));
    let is_there = |key: &str| {
        columns.values(PROJECTS[0], key, 10, &AtomicBool::new(false)).unwrap().is_some()
    };
    read(&runtime, &columns, &identities, vec!["a".into()]);
    assert!(is_there("a"));
    read(&runtime, &columns, &identities, ["b", "c", "d"].map(Into::into).to_vec());
    assert!(is_there("a") && !is_there("b"));
    read(&runtime, &columns, &identities, vec!["c".into()]);
    assert!(is_there("c"), "alone it fits");
}

/// Goal: properties beyond those that a file has are found all the same.
#[test]
fn many_properties_are_all_found() {
    let runtime = Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::open(&directory.path().join("store"), Limits::SMALL).unwrap();
    let keys: Vec<String> = (0..600).map(|number| format!("key {number}")).collect();
    persons(&identities, 30, &keys);
    let world =
        World { identities: identities.clone(), ..World::new(1, &directory.path().join("other")) };
    let files = table(&runtime, &world, directory.path(), 10);
    let columns = Arc::new(Columns::of(AMPLE, Some(Arc::clone(&files))));
    files.write(&|| false).unwrap();
    assert_eq!(files.known_files(), 3);
    for key in [&keys[0], &keys[300], &keys[599], &"none".to_owned()] {
        read(&runtime, &columns, &identities, vec![key.as_str().into()]);
        let values =
            columns.values(PROJECTS[0], key, 100, &AtomicBool::new(false)).unwrap().unwrap();
        assert_eq!(values.len(), if key == "none" { 0 } else { 30 }, "{key}");
    }
}
