//! What becomes of columns when nobody waits for them, when there is no room, and when the store fails.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::persons::columns::{Asker, Columns};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_identity::change::{Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::store::Identities;

pub(super) const PROJECT: ProjectId = ProjectId(1);
const AMPLE: u64 = 1 << 30;

pub(super) struct World {
    runtime: Runtime,
    pub(super) identities: Identities,
    sequence: u64,
    _directory: tempfile::TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            ids_bytes: 1 << 16,
            rows_bytes: 1 << 16,
            blocks_bytes: 1 << 20,
            overrides_bytes: 1 << 16,
            part_bytes: 1 << 20,
        };
        let identities = Identities::open(directory.path(), limits).unwrap();
        Self { runtime: Runtime::new().unwrap(), identities, sequence: 0, _directory: directory }
    }

    /// Tells so many persons this value of the property `plan`, the first of them `first`.
    fn set(&mut self, first: u32, persons: u32, plan: &str) {
        self.tell(PROJECT, first..first + persons, |_| plan.to_owned());
    }

    /// Tells these persons of a project a value each.
    pub(super) fn tell(
        &mut self,
        project: ProjectId,
        persons: Range<u32>,
        plan: impl Fn(u32) -> String,
    ) {
        let kind = |number: u32| {
            let set = [("plan".to_owned(), json!(plan(number)))].into_iter().collect();
            OpKind::Update(Update { set, ..Update::default() })
        };
        self.apply(project, persons.map(|number| (number, kind(number))));
    }

    /// Applies changes of these persons as one batch.
    pub(super) fn apply(
        &mut self,
        project: ProjectId,
        changes: impl Iterator<Item = (u32, OpKind)>,
    ) {
        let op = |(number, kind): (u32, OpKind)| Op {
            distinct_id: format!("id{number}"),
            event_id: Uuid::from_u128(number.into()),
            timestamp: UnixMicros(1_700_000_000_000_000),
            kind,
        };
        self.sequence += 1;
        let record = Record { sequence: self.sequence, project, ops: changes.map(op).collect() };
        self.identities.apply(&[record]).unwrap();
    }

    fn provide(&self, columns: &Arc<Columns>, keys: &[&str]) {
        let waits = Arc::new(());
        self.provide_for(columns, keys, Arc::downgrade(&waits), Duration::MAX);
    }

    fn provide_for(
        &self,
        columns: &Arc<Columns>,
        keys: &[&str],
        waits: Weak<()>,
        patience: Duration,
    ) {
        let keys = keys.iter().map(|key| (*key).into()).collect();
        let (identities, runtime) = (self.identities.clone(), self.runtime.handle().clone());
        let asker = Asker { waits, patience };
        let reading = Arc::clone(columns).provide(identities, runtime, PROJECT, keys, asker);
        self.runtime.block_on(reading).unwrap();
    }
}

fn is_there(columns: &Columns, key: &str) -> bool {
    columns.missing(PROJECT, &[key.into()]).is_empty()
}

fn plans(columns: &Columns) -> Option<Vec<(String, usize)>> {
    let values = columns.values(PROJECT, "plan", 100, &AtomicBool::new(false)).unwrap()?;
    Some(values.into_iter().map(|(value, count)| (value.to_string(), count)).collect())
}

/// Goal: who asks while nothing has changed is answered beside others, and who waits for a table leaves
/// once nobody wants the answer.
#[test]
fn questions_wait_for_changes_alone_and_for_somebody() {
    let mut world = World::new();
    let columns = Arc::new(Columns::new(AMPLE));
    world.set(0, 3, "pro");
    world.provide(&columns, &["plan"]);
    let (other, stop) = (&columns, &AtomicBool::new(false));
    let answer = columns.ask(PROJECT, &AtomicBool::new(false), |_, _, _| {
        let plans = std::thread::scope(|scope| scope.spawn(|| plans(other)).join().unwrap());
        assert_eq!(plans, Some(vec![("\"pro\"".to_owned(), 3)]));
        // From now on the table has to be changed first, which cannot be while it is read here.
        world.set(3, 1, "pro");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.ask(PROJECT, stop, |_, _, _| Ok(())));
            stop.store(true, Ordering::Relaxed);
            assert!(waiter.join().unwrap().unwrap().is_none());
        });
        Ok(())
    });
    assert!(answer.unwrap().is_some());
    assert_eq!(plans(&columns), Some(vec![("\"pro\"".to_owned(), 4)]));
}

/// Goal: if there is room for one column and its persons, a second one takes the place of the first.
#[test]
fn a_column_fits_again_after_all_others_went() {
    let mut world = World::new();
    // One thread: how much is read at once decides what fits.
    let runtime = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build();
    world.runtime = runtime.unwrap();
    // So many that each of the pieces that are read is about as large as what it holds.
    world.set(0, 16_000, "pro");
    let ample = Arc::new(Columns::new(AMPLE));
    world.provide(&ample, &["a"]);
    let bytes_max = u64::try_from(ample.memory()).unwrap() * 3 / 2;
    let columns = Arc::new(Columns::new(bytes_max));
    for key in ["a", "b", "c", "a"] {
        world.provide(&columns, &[key]);
        assert!(is_there(&columns, key), "{key}");
        let values = columns.values(PROJECT, key, 100, &AtomicBool::new(false)).unwrap();
        assert_eq!(values, Some(Vec::new()), "{key}");
        assert!(u64::try_from(columns.memory()).unwrap() <= bytes_max, "{key}");
    }
    columns.drop_all();
    assert_eq!(columns.memory(), 0);
    assert!(columns.tables.lock().is_empty());
}

/// Goal: columns are read for those who wait, and who is out of patience goes without them.
#[test]
fn nothing_is_read_for_nobody() {
    let mut world = World::new();
    let columns = Arc::new(Columns::new(AMPLE));
    world.set(0, 3, "pro");
    let waits = Arc::new(());
    let turn = world.runtime.block_on(columns.turn.lock());
    world.provide_for(&columns, &["plan"], Arc::downgrade(&waits), Duration::ZERO);
    assert!(!is_there(&columns, "plan"));
    drop(turn);
    world.provide_for(&columns, &["plan"], Weak::new(), Duration::MAX);
    assert!(!is_there(&columns, "plan"));
    world.provide_for(&columns, &["plan"], Arc::downgrade(&waits), Duration::ZERO);
    assert!(is_there(&columns, "plan"));
}

/// Goal: after the store failed in the middle, those who waited are not answered from what is left.
#[test]
fn a_torn_table_answers_nobody() {
    let mut world = World::new();
    let columns = Arc::new(Columns::new(AMPLE));
    world.set(0, 3, "pro");
    world.provide(&columns, &["plan"]);
    assert_eq!(plans(&columns), Some(vec![("\"pro\"".to_owned(), 3)]));
    world.set(0, 1, "free");
    world.set(3, 2, "free");
    let number = world.identities.view().next_number().unwrap() - 1;
    let row = world.identities.replace_row(PROJECT, number, b"").unwrap();
    let held = columns.tables.lock().get(&PROJECT).cloned().unwrap();
    let failed = columns.values(PROJECT, "plan", 100, &AtomicBool::new(false));
    assert!(failed.is_err());
    assert!(!is_there(&columns, "plan"));
    world.identities.replace_row(PROJECT, number, &row).unwrap();
    // As one has it who came before it was forgotten.
    columns.tables.lock().insert(PROJECT, held);
    assert_eq!(plans(&columns), None);
    world.provide(&columns, &["plan"]);
    let expected = [("\"free\"".to_owned(), 3), ("\"pro\"".to_owned(), 2)];
    assert_eq!(plans(&columns), Some(expected.to_vec()));
}

/// Goal: a project without persons does not keep a column for each name that is made up.
#[test]
fn made_up_names_take_bounded_memory() {
    let world = World::new();
    let columns = Arc::new(Columns::new(AMPLE));
    let names: Vec<String> =
        (0..100).map(|number| format!("{number} {}", "x".repeat(1000))).collect();
    for name in &names {
        world.provide(&columns, &[name]);
        assert!(is_there(&columns, name));
        columns.values(PROJECT, name, 100, &AtomicBool::new(false)).unwrap().unwrap();
    }
    let kept = names.iter().filter(|name| is_there(&columns, name)).count();
    assert_eq!(kept, 64);
    assert!(names.iter().rev().take(kept).all(|name| is_there(&columns, name)));
    assert!((kept * 2000..kept * 4000).contains(&columns.memory()), "{}", columns.memory());
}

/// Goal: nobody is brought up to date for nobody, whoever was left out is so later, and until then nobody
/// is answered.
#[test]
fn a_table_goes_on_where_it_was_left() {
    let mut world = World::new();
    let columns = Arc::new(Columns::new(AMPLE));
    let mut expected = vec!["pro"; 40];
    world.set(0, 40, "pro");
    world.provide(&columns, &["plan"]);
    let table = columns.tables.lock().get(&PROJECT).cloned().unwrap();
    let mut random = StdRng::seed_from_u64(3);
    let (mut whole, mut left_out) = (0, 0);
    for _ in 0..300 {
        let plan = if random.random() { "pro" } else { "free" };
        let (first, count) = (random.random_range(0..=expected.len()), random.random_range(1..20));
        expected.resize(expected.len().max(first + count), plan);
        expected[first..first + count].fill(plan);
        world.set(first.try_into().unwrap(), count.try_into().unwrap(), plan);
        let (mut looks, looks_max) = (0, random.random_range(0..30));
        let refreshed = table.write().refresh(|| {
            looks += 1;
            looks > looks_max
        });
        let table = table.read();
        assert_eq!(table.current().unwrap().is_some(), refreshed.as_ref().unwrap().is_some());
        if refreshed.unwrap().is_none() {
            // It looks before each person.
            assert_eq!(looks, looks_max + 1);
            left_out += 1;
            continue;
        }
        whole += 1;
        let free = expected.iter().filter(|plan| **plan == "free").count();
        let counts = table.rows.column("plan", 0).unwrap().counts(table.rows.present().iter());
        let counts = counts.unwrap();
        assert_eq!(table.rows.len(), expected.len());
        for (plan, persons) in [("free", free), ("pro", expected.len() - free)] {
            let found = counts.iter().find(|(value, _)| *value == json!(plan));
            assert_eq!(found.map_or(0, |(_, persons)| *persons), persons, "{plan}");
        }
    }
    assert!(whole > 50 && left_out > 50, "{whole} {left_out}");
    assert!(columns.ask(PROJECT, &AtomicBool::new(true), |_, _, _| Ok(())).unwrap().is_none());
    let free = expected.iter().filter(|plan| **plan == "free").count();
    let plans: usize = plans(&columns).unwrap().iter().map(|(_, persons)| persons).sum();
    assert!(plans == 100.min(expected.len()) && free > 0, "of the newest 100: {plans}");
}
