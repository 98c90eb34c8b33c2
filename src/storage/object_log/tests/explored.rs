//! Exploration of all orders in which the requests of several writers may reach the store, with the real code: each state
//! that can be reached is checked once.
//!
//! A writer is a process that opens the log, appends, flushes what it has into the tables, truncates, and may be killed and
//! start again at any time: a state in which it never goes on is among those that are checked. Before each of its requests
//! all others may do anything for any time. Answers to puts may be lost, and puts may arrive long after their sender has
//! given up.
//!
//! `WEIR_EXPLORE=long` explores three writers, for some minutes.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::task::noop_waker;
use futures::{FutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::object_log::format::{HEADER_BYTES, Header, Purpose, first_of, split_frame};
use crate::object_log::tests::gated::{Gated, Late, Pass};
use crate::object_log::tests::settings;
use crate::object_log::writer::ObjectLog;
use crate::wal::Sequence;

/// A part of the protocol that is left out, to see that the exploration finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Claims are truncated as all objects are.
    ClaimsKept,
    /// Whoever claims does not list again.
    SecondList,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// How often each writer opens the log.
    openings: &'static [usize],
    /// Objects that each puts after an opening.
    puts: usize,
    /// Answers that are lost, and puts that are late.
    faults: u32,
    /// Whether anything may happen before a read, too.
    waits_for_reads: bool,
    without: Without,
}

/// Records by sequence.
type Records = BTreeMap<u64, Bytes>;

/// What all writers share besides the log: the tables, which shut a former writer out by themselves.
#[derive(Debug, Default)]
struct Tables {
    owner: Option<usize>,
    flushed: Records,
    /// What was acknowledged to clients; not a part of the state of the server.
    acknowledged: Records,
    violation: Option<String>,
}

impl Tables {
    fn through(&self) -> u64 {
        self.flushed.last_key_value().map_or(0, |(sequence, _)| *sequence)
    }
}

/// One writer, until it has opened the log for the last time.
async fn write(plan: Plan, me: usize, store: Gated, tables: Arc<Mutex<Tables>>) {
    let objects: Arc<dyn ObjectStore> = Arc::new(store.clone());
    for opening in 0..plan.openings[me] {
        store.enter(false).await;
        let through = {
            let mut tables = tables.lock();
            tables.owner = Some(me * 100 + opening);
            tables.through()
        };
        store.learn(through);
        let writer = u128::try_from(me * 100 + opening + 1).unwrap();
        let opened = ObjectLog::claim(settings(&objects, writer, through), Handle::current()).await;
        let Ok(mut log) = opened else { continue };
        if plan.waits_for_reads {
            store.enter(false).await;
        }
        let mut known = match replayed(&store, through, log.last_appended().0) {
            Ok(known) => known,
            Err(violation) => {
                let mut tables = tables.lock();
                // A later opening by another writer may have flushed and truncated what is looked for: this one is
                // fenced, and finds out.
                if tables.owner == Some(me * 100 + opening) {
                    tables.violation = Some(violation);
                }
                continue;
            }
        };
        store.learn(known.len());
        for put in 0..plan.puts {
            let payload = Bytes::from(format!("{me}/{opening}/{put}"));
            let Ok(sequence) = log.append(&[&payload]) else { break };
            if log.put().await.is_err() {
                break;
            }
            {
                let mut tables = tables.lock();
                let former = tables.acknowledged.insert(sequence.0, payload.clone());
                if former.is_some() {
                    tables.violation = Some(format!("{sequence} was acknowledged twice"));
                }
            }
            known.insert(sequence.0, payload);
            store.enter(false).await;
            let is_owner = {
                let mut tables = tables.lock();
                let is_owner = tables.owner == Some(me * 100 + opening);
                if is_owner {
                    tables.flushed.extend(known.clone());
                }
                is_owner
            };
            store.learn(is_owner);
            if !is_owner {
                break;
            }
            let through = known.last_key_value().map_or(0, |(sequence, _)| *sequence);
            if plan.without == Without::ClaimsKept {
                remove_all_before(&store, through).await;
            } else if log.files().truncate_through(Sequence(through)).await.is_err() {
                break;
            }
        }
    }
}

/// A truncation that does not know of claims.
async fn remove_all_before(store: &Gated, through: u64) {
    store.enter(false).await;
    let objects = contents(&store.objects);
    let newest = objects.keys().next_back().copied();
    for (first, (header, _)) in &objects {
        if header.last().0 <= through && Some(*first) != newest {
            let path = crate::object_log::format::path_of(Sequence(*first));
            store.objects.delete(&path).now_or_never().unwrap().unwrap();
        }
    }
}

/// Objects by their first record.
fn contents(objects: &InMemory) -> BTreeMap<u64, (Header, Vec<Bytes>)> {
    let listed: Vec<_> = objects.list(None).try_collect().now_or_never().unwrap().unwrap();
    let object = |path: &Path| {
        let got = objects.get(path).now_or_never().unwrap().unwrap();
        let bytes = got.bytes().now_or_never().unwrap().unwrap();
        let first = first_of(path).unwrap();
        let header = Header::decode(&bytes, first).unwrap();
        let (mut frames, mut records) = (bytes.slice(HEADER_BYTES..), Vec::new());
        for sequence in first.0..=header.last().0 {
            let (payload, rest) =
                split_frame(&frames, Sequence(sequence), header.salt()).expect("a frame");
            records.push(payload);
            frames = rest;
        }
        (first.0, (header, records))
    };
    listed.iter().map(|meta| object(&meta.location)).collect()
}

/// The records after `after`, up to `last`.
fn replayed(store: &Gated, after: u64, last: u64) -> Result<Records, String> {
    let mut records = Records::new();
    for (first, (_, payloads)) in contents(&store.objects) {
        records.extend((first..).zip(payloads));
    }
    let wanted = after + 1..=last;
    if let Some(missing) = wanted.clone().find(|sequence| !records.contains_key(sequence)) {
        return Err(format!("{missing} of {wanted:?} is not in the log"));
    }
    records.retain(|sequence, _| wanted.contains(sequence));
    Ok(records)
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// All writers, the store, and what is on its way to it.
struct World {
    plan: Plan,
    objects: Arc<InMemory>,
    tables: Arc<Mutex<Tables>>,
    writers: Vec<(Gated, Option<Running>)>,
    late: Vec<Late>,
    faults: u32,
}

/// One thing that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The request of a writer gets through.
    Pass(usize, Pass),
    /// A late put arrives.
    Arrive(usize),
}

impl World {
    fn new(plan: Plan) -> Self {
        let (objects, tables) = (Arc::new(InMemory::new()), Arc::<Mutex<Tables>>::default());
        let writer = |me| {
            let mut store = Gated::new(Arc::clone(&objects));
            store.waits_for_reads = plan.waits_for_reads;
            store.lists_once = plan.without == Without::SecondList;
            let running = write(plan, me, store.clone(), Arc::clone(&tables));
            (store, Some(Box::pin(running) as Running))
        };
        let writers = (0..plan.openings.len()).map(writer).collect();
        let mut world = Self {
            plan,
            objects: Arc::clone(&objects),
            tables,
            writers,
            late: Vec::new(),
            faults: 0,
        };
        (0..plan.openings.len()).for_each(|me| world.poll(me));
        world
    }

    /// Runs a writer until its next request.
    fn poll(&mut self, me: usize) {
        let (store, running) = &mut self.writers[me];
        let Some(future) = running else { return };
        let waker = noop_waker();
        if future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
            *running = None;
        }
        self.late.extend(store.late());
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (me, (store, running)) in self.writers.iter().enumerate() {
            let Some(is_put) = store.waiting().filter(|_| running.is_some()) else { continue };
            events.push(Event::Pass(me, Pass::Done));
            if is_put && self.faults < self.plan.faults {
                events.extend([Pass::AnswerLost, Pass::Late].map(|pass| Event::Pass(me, pass)));
            }
        }
        events.extend((0..self.late.len()).map(Event::Arrive));
        events
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Pass(me, pass) => {
                self.faults += u32::from(pass != Pass::Done);
                self.writers[me].0.pass(pass);
                self.poll(me);
            }
            Event::Arrive(number) => {
                let Late { path, payload } = self.late.remove(number);
                let put = self.objects.put_opts(&path, payload, PutMode::Create.into());
                // There may be something by now.
                let _ = put.now_or_never().unwrap();
            }
        }
    }

    /// Digest of the state: writers with the same history go on in the same way.
    fn digest(&self) -> (u64, u64) {
        let (mut one, mut other) = (DefaultHasher::new(), DefaultHasher::new());
        1.hash(&mut other);
        let mut add = |what: &dyn Fn(&mut DefaultHasher)| [&mut one, &mut other].map(what);
        for (store, running) in &self.writers {
            add(&|hasher| (store.history(), store.waiting(), running.is_some()).hash(hasher));
        }
        // Of an object its size tells the records, beside its writer and its first one.
        let listed: Vec<_> = self.objects.list(None).try_collect().now_or_never().unwrap().unwrap();
        for meta in listed {
            let range = GetOptions { range: Some((0..48).into()), ..GetOptions::default() };
            let got = self.objects.get_opts(&meta.location, range).now_or_never().unwrap().unwrap();
            let header = got.bytes().now_or_never().unwrap().unwrap();
            add(&|hasher| (meta.location.as_ref(), meta.size, &header).hash(hasher));
        }
        for late in &self.late {
            let header = late.payload.iter().next().map(|part| part.slice(..48));
            add(&|hasher| (late.path.as_ref(), &header).hash(hasher));
        }
        let tables = self.tables.lock();
        add(&|hasher| {
            (tables.owner, &tables.flushed, &tables.acknowledged, self.faults).hash(hasher);
        });
        (one.finish(), other.finish())
    }

    /// What is wrong with the state: were all processes killed now, the next one would miss something.
    fn violation(&self) -> Option<String> {
        let tables = self.tables.lock();
        if let Some(violation) = &tables.violation {
            return Some(violation.clone());
        }
        let mut there = Records::new();
        for (first, (header, payloads)) in contents(&self.objects) {
            assert!(header.purpose == Purpose::Records || payloads.len() == 1);
            there.extend((first..).zip(payloads));
        }
        let through = tables.through();
        for (sequence, payload) in &tables.acknowledged {
            let place = if *sequence <= through { &tables.flushed } else { &there };
            if place.get(sequence) != Some(payload) {
                return Some(format!("{sequence} was acknowledged, and is lost"));
            }
        }
        None
    }
}

/// Explores all states. Returns how many there are, or the first violation and the events that led to it.
fn explore(plan: Plan) -> Result<usize, (String, Vec<Event>)> {
    let (mut seen, mut open) = (HashSet::new(), vec![Vec::new()]);
    while let Some(path) = open.pop() {
        let mut world = World::new(plan);
        for event in &path {
            world.take(*event);
        }
        let mut path: Vec<Event> = path;
        // Goes on with one event of each new state; the others are explored later.
        loop {
            if let Some(violation) = world.violation() {
                return Err((violation, path));
            }
            if !seen.insert(world.digest()) {
                break;
            }
            let mut events = world.events().into_iter();
            let Some(next) = events.next() else { break };
            for event in events {
                let mut other = path.clone();
                other.push(event);
                open.push(other);
            }
            path.push(next);
            world.take(next);
        }
    }
    Ok(seen.len())
}

#[expect(clippy::disallowed_methods, reason = "a test that is told how long it may take")]
fn is_long() -> bool {
    std::env::var("WEIR_EXPLORE").is_ok_and(|value| value == "long")
}

#[tokio::test]
async fn no_order_of_requests_loses_an_acknowledged_record() {
    let plan = Plan {
        openings: &[2, 1],
        puts: 1,
        faults: 0,
        waits_for_reads: false,
        without: Without::Nothing,
    };
    let faulty = Plan { openings: &[1, 1], faults: 1, ..plan };
    let mut plans = vec![(plan, 500), (faulty, 500)];
    if is_long() {
        plans.push((Plan { waits_for_reads: true, ..plan }, 10_000));
        plans.push((Plan { faults: 2, puts: 2, ..faulty }, 5_000));
        plans.push((Plan { openings: &[2, 2], puts: 2, ..plan }, 10_000));
        plans.push((Plan { openings: &[1, 1, 1], ..plan }, 5_000));
    }
    for (plan, states_min) in plans {
        match explore(plan) {
            Ok(states) => {
                println!("{plan:?}: {states} states");
                assert!(states > states_min, "{plan:?}: only {states} states");
            }
            Err((violation, path)) => panic!("{plan:?}: {violation} after {path:#?}"),
        }
    }
}

/// Goal: the exploration sees what it is for. Method: with each rule of the protocol left out it finds a loss.
#[tokio::test]
async fn each_rule_is_needed() {
    let plan = Plan {
        openings: &[2, 2],
        puts: 2,
        faults: 0,
        waits_for_reads: false,
        without: Without::Nothing,
    };
    for without in [Without::ClaimsKept, Without::SecondList] {
        let found = explore(Plan { without, ..plan });
        let (violation, path) = found.expect_err("a loss");
        println!("without {without:?}: {violation} after {} requests", path.len());
    }
}
