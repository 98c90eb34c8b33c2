//! Random questions between random changes: the persons table, with and without files, and a naive look at every person
//! agree.

mod world;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::guard::Pools;
use crate::kernel::session::session;
use crate::persons::people::list::{Listing, Present};
use crate::persons::people::search::Search;
use crate::persons::people::tests::world::{AMPLE, INTERVAL, NOW, PROJECTS, World, again, naive};
use crate::persons::people::{FoundPersons, Part, PersonsQuestion};
use crate::persons::person_scan::PersonsProvider;
use crate::persons::person_table::{PersonTable, PersonTableSettings, TableOf};
use weir_disk::OsDisk;
use weir_event::predicate::moment::Now;
use weir_identity::change::{Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::person::Person;
use weir_identity::store::Identities;
use weir_storage::tables::Tables;

/// What plans lists.
struct Asker {
    runtime: Runtime,
    state: SessionState,
}

impl Asker {
    fn new() -> Self {
        let environment = Arc::new(RuntimeEnv::default());
        let state = session(environment, &Pools::beside(1 << 30), 3).unwrap();
        Self { runtime: Runtime::new().unwrap(), state }
    }

    /// The answer of the persons table as of now.
    fn find(
        &self,
        identities: &Identities,
        table: Option<&Arc<PersonTable>>,
        question: &PersonsQuestion,
        part: Part,
    ) -> FoundPersons {
        let view = Arc::new(identities.view());
        let persons = PersonsProvider::new(Arc::clone(&view), PROJECTS[0], table.cloned());
        let memory = Arc::new(UnboundedMemoryPool::default());
        let present = Present { persons, now: Now::utc(NOW), memory };
        let plan = present.plan(again(question)).unwrap();
        let rows = DataFrame::new(self.state.clone(), plan).collect();
        // Some parts are beyond it, some not.
        let mut listing = Listing::of(part, 5, view.next_number().unwrap());
        self.runtime.block_on(rows).unwrap().iter().for_each(|rows| listing.add(rows));
        let stop = AtomicBool::new(false);
        listing.found((view, PROJECTS[0]), present.newest(), part, &stop).unwrap()
    }
}

/// The persons table of a world, with so many persons in a file.
fn table(
    runtime: &Runtime,
    world: &World,
    directory: &Path,
    persons_max: usize,
    columns_bytes_max: u64,
) -> Arc<PersonTable> {
    let table = PersonTable::new(PersonTableSettings {
        kind: TableOf::Persons,
        tables: Tables::in_directory(Arc::new(OsDisk), directory.to_path_buf()),
        identities: world.identities.clone(),
        projects: Arc::new(|| PROJECTS.to_vec()),
        app_id: "node".to_owned(),
        runtime: runtime.handle().clone(),
        clock: world.clock.clone(),
        interval: INTERVAL,
        stale_max: Duration::from_hours(1),
        columns_bytes_max,
    });
    let table = table.unwrap().with_rows_max(persons_max);
    table.create().unwrap();
    Arc::new(table)
}

fn check(found: &FoundPersons, question: &PersonsQuestion, part: Part, context: &str) {
    let all = naive(&found.view, PROJECTS[0], question);
    let expected: Vec<i64> = all.iter().copied().skip(part.offset).take(part.limit).collect();
    assert_eq!((found.count, &found.numbers), (all.len(), &expected), "{context} {question:?}");
}

/// Goal: an answer is that of the persons as they are, whatever changed since files were written, and whether or not their
/// columns fit into memory.
#[test]
fn the_table_and_a_naive_look_agree() {
    let asker = Asker::new();
    let runtime = &asker.runtime;
    let (mut kept, mut reopened) = (0, 0);
    for seed in 0..24 {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(seed, directory.path());
        let bytes_max = [AMPLE, 150_000, 30_000, 0][usize::try_from(seed % 4).unwrap()];
        let persons_max = [3, 40, 5000][usize::try_from(seed % 3).unwrap()];
        let open = |world: &World| table(runtime, world, directory.path(), persons_max, bytes_max);
        let mut files = open(&world);
        let mut closed_at = u64::MAX;
        if seed % 3 == 0 {
            // So many that not all of them are read for what columns do not tell.
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
                drop(files);
                let is_same = world.random.random_bool(0.8);
                if !is_same {
                    world.change(3);
                }
                files = open(&world);
                // Also after a crash, if nothing has changed since an end in order.
                let expected = if closed_at == world.sequence { count } else { 0 };
                assert_eq!(files.known_files(), expected, "seed {seed} step {step}");
                reopened += expected;
            }
            let persons = world.identities.view().person_count(PROJECTS[0]).unwrap();
            let part = world.part(usize::try_from(persons).unwrap());
            let mut question = world.question();
            if step % 4 == 0 {
                question.changed_since =
                    Some(world.sequence.saturating_sub(u64::from(step / 4 % 5)));
            }
            let context = format!("seed {seed} step {step}");
            let found = asker.find(&world.identities, Some(&files), &question, part);
            check(&found, &question, part, &context);
            assert!(u64::try_from(files.columns_memory()).unwrap() <= bytes_max, "{context}");
            kept += usize::from(files.columns_memory() > 0);
            if step % 3 == 0 {
                let found = asker.find(&world.identities, None, &question, part);
                check(&found, &question, part, &format!("{context} without files"));
            }
        }
    }
    assert!(kept > 200, "{kept}");
    assert!(reopened > 20, "{reopened}");
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
    let asker = Asker::new();
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(99, directory.path());
    let mut other = World {
        random: StdRng::seed_from_u64(7),
        ids: 12,
        sequence: 0,
        identities: world.identities.clone(),
        clock: world.clock.clone(),
    };
    let files = table(&asker.runtime, &world, directory.path(), 2, AMPLE);
    world.change(8);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for _ in 0..600 {
                world.change(4);
            }
        });
        let mut rounds = 0;
        while !writer.is_finished() || rounds < 20 {
            let (question, part) = (other.question(), other.part(12));
            other.clock.advance(Duration::from_mins(1));
            files.step(&|| false).unwrap();
            let found = asker.find(&other.identities, Some(&files), &question, part);
            check(&found, &question, part, &format!("round {rounds}"));
            rounds += 1;
        }
    });
}

/// The values of a property by the columns of files; `None` if there are not enough.
fn values(
    identities: &Identities,
    files: &Arc<PersonTable>,
    key: &str,
    persons_max: usize,
) -> Option<Vec<(Value, usize)>> {
    let view = Arc::new(identities.view());
    let persons = PersonsProvider::new(view, PROJECTS[0], Some(Arc::clone(files)));
    let counted = persons.newest_values(key, persons_max, &AtomicBool::new(false)).unwrap()?;
    let parsed = |(json, count): (String, usize)| (serde_json::from_str(&json).unwrap(), count);
    Some(counted.into_iter().map(parsed).collect())
}

/// Goal: values are counted of the newest persons, whoever changed or went.
#[test]
fn values_are_those_of_the_newest_persons() {
    let runtime = Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(5, directory.path());
    let files = table(&runtime, &world, directory.path(), 7, AMPLE);
    world.ids = 40;
    let mut counted_some = 0;
    for _ in 0..50 {
        world.change(6);
        if world.random.random_bool(0.5) {
            files.write(&|| false).unwrap();
        }
        for persons_max in [3, 1000] {
            let counted = values(&world.identities, &files, "plan", persons_max);
            let Some(counted) = counted else { continue };
            counted_some += 1;
            assert!(counted.is_sorted_by(|(_, a), (_, b)| a >= b));
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
    assert!(counted_some > 50, "{counted_some}");
    assert_eq!(values(&world.identities, &files, "other", 5), Some(Vec::new()));
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
    let files = table(&runtime, &world, directory.path(), 10, AMPLE);
    files.write(&|| false).unwrap();
    assert_eq!(files.known_files(), 3);
    for key in [&keys[0], &keys[300], &keys[599], &"none".to_owned()] {
        let values = values(&identities, &files, key, 100).unwrap();
        assert_eq!(values.len(), if key == "none" { 0 } else { 30 }, "{key}");
    }
}
