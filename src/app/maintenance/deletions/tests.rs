//! Randomized histories of one node, compared with a model: events, merges and deletions of persons,
//! flushes, file merges, erasures, power cuts. Table, memtables, identity store and queries are real; the
//! log is a list, as it has tests of its own.

mod model;
mod node;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use crate::maintenance::deletions::tests::model::{Entry, Model};
use crate::maintenance::deletions::tests::node::{Bench, NOW, Node, TABLE, received_at};
use weir_base::tasks::Shutdown;
use weir_disk::Disk;
use weir_event::id::{PersonId, ProjectId};
use weir_identity::change::{Extent, Force, Op, OpKind, Record, Update};
use weir_identity::deletions::Deletion;
use weir_identity::view::Flow;
use weir_sim::disk::{SimDisk, Survival};
use weir_storage::compaction::Limits;

const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Steps of one history.
const STEPS: u32 = 40;

/// Number of histories of a usual run.
const LIVES: u64 = 12;

fn entry(random: &mut StdRng, model: &Model, sequence: u64) -> Entry {
    let left = PROJECTS.into_iter().filter(|project| !model.gone.contains(project));
    let project = *left.collect::<Vec<_>>().choose(random).expect("some");
    let id = |random: &mut StdRng| *IDS.choose(random).expect("some");
    let op = |distinct_id: &str, kind| Op {
        distinct_id: distinct_id.to_owned(),
        event_id: Uuid::from_u128(7),
        timestamp: received_at(sequence),
        kind,
    };
    let (mut events, mut ops) = (Vec::new(), Vec::new());
    match random.random_range(0..10_u8) {
        _ if project == PROJECTS[1] && random.random_bool(0.05) => {
            ops.push(op("", OpKind::DeleteProject));
        }
        0..2 => {
            let (one, other) = (id(random), id(random).to_owned());
            if one != other {
                let update = Update::default();
                ops.push(op(one, OpKind::Merge { other, force: Force::Yes, update }));
            }
        }
        2..4 => {
            let extents = [Extent::Person, Extent::Events, Extent::Both];
            let extent = *extents.choose(random).expect("some");
            let person = PersonId::of(project, id(random)).0;
            ops.push(op("", OpKind::Delete { person, extent }));
        }
        _ => {
            for _ in 0..random.random_range(1..4_u8) {
                let id = id(random);
                events.push((Uuid::from_u128(random.random()), id));
                ops.push(op(id, OpKind::Touch));
            }
        }
    }
    Entry { record: Record { sequence, project, ops }, events }
}

/// Goal: after any operations and power cuts, an answer contains exactly the events that were not deleted
/// after they were received. At the end the deleted events are in no remaining file, and every request is
/// done.
#[test]
fn deleted_events_are_gone_and_no_others() {
    let seed = std::env::var_os("WEIR_DELETIONS_SEED")
        .map_or_else(rand::random, |seed| seed.to_str().expect("text").parse().expect("a number"));
    println!("WEIR_DELETIONS_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut erased, mut cuts, mut hidden) = (0, 0, 0);
    for life in 0..LIVES {
        let mut bench = Bench::new();
        let mut disk = SimDisk::new();
        let mut identity = bench.image(None);
        let mut node = bench.start(&disk, &identity, &[]);
        // The minimum of the identity store that survives a power cut.
        let mut synced = bench.image(Some(&identity));
        let (mut log, mut model) = (Vec::new(), Model::default());
        for step in 0..STEPS {
            let context = format!("life {life}, step {step}");
            let sequence = u64::from(step) + 1;
            let entry = entry(&mut random, &model, sequence);
            model.feed(&entry);
            node.insert(&entry);
            node.waiting.push(entry.record.clone());
            log.push(entry);
            if random.random_bool(0.7) {
                node.derive();
            }
            if random.random_bool(0.15) {
                disk.cut_after(disk.operations() + random.random_range(0..30));
            }
            let is_on = match random.random_range(0..9_u8) {
                0..2 => bench.runtime.block_on(node.flush()),
                2 => bench.runtime.block_on(node.merge(&mut random)),
                3 => {
                    let erasing = bench.erase(&node);
                    erased += erasing.as_ref().map_or(0, |erased| erased.rows);
                    erasing.is_some()
                }
                4 => {
                    let persisted = node.files.identities.persist().expect("persists");
                    synced = bench.image(Some(&identity));
                    let through = persisted.min(node.files.store.flushed_through().0);
                    log.retain(|entry| entry.record.sequence > through);
                    true
                }
                5 => {
                    // Without a grace the files of a state that is held are gone.
                    node.held.clear();
                    bench.clock.advance(Duration::from_secs(1));
                    let vacuum = node.files.store.table().vacuum(Duration::ZERO);
                    bench.runtime.block_on(vacuum).is_ok()
                }
                6 => bench.runtime.block_on(node.rewrite(&mut random)),
                _ => true,
            };
            if !is_on || random.random_bool(0.05) {
                cuts += 1;
                let survival = [Survival::Lose, Survival::Keep, Survival::Mixed(sequence)];
                let survival = *survival.choose(&mut random).expect("some");
                let left = if survival == Survival::Lose { &synced } else { &identity };
                let left = left.clone();
                identity = bench.image(Some(&left));
                drop(node);
                disk = disk.power_on(survival);
                node = bench.start(&disk, &identity, &log);
                synced = bench.image(Some(&left));
            }
            if random.random_bool(0.3) {
                bench.check(&mut node, &model, &context);
                let stored = bench.stored(&node);
                hidden += stored.iter().filter(|uuid| model.deleted.contains(uuid)).count();
            }
        }
        finish(&bench, &disk, &mut node, &model, &format!("life {life}"));
    }
    assert!(
        erased > 0 && cuts > 10 && hidden > 10,
        "{erased} erased, {cuts} cuts, {hidden} hidden"
    );
}

/// The end of a history: runs everything that is still pending.
fn finish(bench: &Bench, disk: &SimDisk, node: &mut Node, model: &Model, context: &str) {
    // From here on without power cuts.
    disk.cut_after(u64::MAX);
    node.derive();
    assert!(bench.runtime.block_on(node.flush()), "{context}");
    let erased = bench.erase(node);
    let erased = erased.expect(context);
    assert!(erased.is_all, "{context}");
    assert!(node.files.identities.deletions().is_empty(), "{context}: nothing is left to do");
    bench.check(node, model, context);
    let mut stored = bench.stored(node);
    stored.sort_unstable();
    let mut expected: Vec<Uuid> =
        PROJECTS.iter().flat_map(|project| model.events_of(*project)).collect();
    expected.sort_unstable();
    assert_eq!(stored, expected, "{context}: in files");
    for project in PROJECTS {
        let is_gone = model.gone.contains(&project);
        assert_eq!(node.files.identities.has_deleted(project), is_gone, "{context}");
        let visit = |deletion: Deletion| {
            assert!(!is_gone, "{context}");
            assert!(deletion.done_at.is_some(), "{context}");
            Flow::Continue(())
        };
        node.files.identities.view().scan_deletions(project, visit).expect("scans");
    }
    node.held.clear();
    bench.clock.advance(Duration::from_secs(1));
    let table = node.files.store.table();
    bench.runtime.block_on(table.vacuum(Duration::ZERO)).expect("a vacuum");
    let listed = table.store().list(None).try_collect::<Vec<_>>();
    let listed = bench.runtime.block_on(listed).expect("a list");
    let data = listed.iter().filter(|object| object.location.as_ref().starts_with("month="));
    assert_eq!(data.count(), table.current().files.len(), "{context}: no old file stays");
}

/// Writes one event per distinct id and month to a file, and adds them to the model.
fn send(
    bench: &Bench,
    node: &mut Node,
    model: &mut Model,
    sequence: u64,
    project: ProjectId,
    ids: &[&'static str],
) {
    let event = |id: &&'static str| (Uuid::from_u128(rand::random()), *id);
    let touch = |id: &&'static str| Op {
        distinct_id: (*id).to_owned(),
        event_id: Uuid::nil(),
        timestamp: NOW,
        kind: OpKind::Touch,
    };
    let ops = ids.iter().map(touch).collect();
    let record = Record { sequence, project, ops };
    let entry = Entry { record, events: ids.iter().map(event).collect() };
    model.feed(&entry);
    node.insert(&entry);
    node.waiting.push(entry.record);
    node.derive();
    assert!(bench.runtime.block_on(node.flush()));
}

/// Goal: names and statistics of files exclude those that cannot contain deleted rows from a pass.
#[test]
fn only_files_with_deleted_rows_are_rewritten() {
    let mut bench = Bench::new();
    let identity = bench.image(None);
    let mut node = bench.start(&SimDisk::new(), &identity, &[]);
    let mut model = Model::default();
    send(&bench, &mut node, &mut model, 1, PROJECTS[0], &["a"]);
    send(&bench, &mut node, &mut model, 2, PROJECTS[0], &["b"]);
    send(&bench, &mut node, &mut model, 3, PROJECTS[1], &["a"]);
    let merged = node.files.store.table().current().files.clone();
    bench.runtime.block_on(node.files.merge(&merged[1..2], &Shutdown::new())).expect("merges");
    let before: BTreeSet<String> = paths(&node);
    let person = PersonId::of(PROJECTS[0], "a").0;
    let kind = OpKind::Delete { person, extent: Extent::Both };
    let op = Op { distinct_id: String::new(), event_id: Uuid::nil(), timestamp: NOW, kind };
    let record = Record { sequence: 4, project: PROJECTS[0], ops: vec![op] };
    let entry = Entry { record, events: Vec::new() };
    model.feed(&entry);
    node.insert(&entry);
    node.waiting.push(entry.record);
    node.derive();
    // The log is not in files up to the request: the request cannot be done yet.
    let erasing = bench.erase(&node);
    let first = erasing.expect("a pass");
    assert_eq!((first.requests, first.files, first.rows, first.is_all), (0, 1, 1, false));
    bench.check(&mut node, &model, "before the flush");
    send(&bench, &mut node, &mut model, 5, PROJECTS[0], &["a"]);
    let erasing = bench.erase(&node);
    let second = erasing.expect("a pass");
    assert_eq!((second.requests, second.files, second.rows, second.is_all), (1, 0, 0, true));
    bench.check(&mut node, &model, "after the flush");
    let after = paths(&node);
    assert_eq!(before.difference(&after).count(), 1, "only the file of the deleted event is gone");
    assert_eq!(after.difference(&before).count(), 1, "only the event of later is new");
    assert_eq!(bench.stored(&node).len(), 3);
}

/// Goal: after a crash the identity store may lack a request before the sequence of a file. A merge of this
/// file with an older one must wait until the replay has restored the request, as it would keep deleted
/// rows.
#[test]
fn a_merge_waits_for_the_requests_of_the_log() {
    let mut bench = Bench::new();
    let (identity, disk) = (bench.image(None), SimDisk::new());
    let mut node = bench.start(&disk, &identity, &[]);
    let (mut model, mut log, mut synced) = (Model::default(), Vec::new(), None);
    let person = PersonId::of(PROJECTS[0], "a").0;
    let delete = OpKind::Delete { person, extent: Extent::Both };
    for (sequence, id, kind) in [(1, "a", OpKind::Touch), (2, "", delete), (3, "b", OpKind::Touch)]
    {
        let events = IDS.into_iter().filter(|own| *own == id);
        let events = events.map(|id| (Uuid::from_u128(rand::random()), id)).collect();
        let (distinct_id, timestamp) = (id.to_owned(), received_at(sequence));
        let op = Op { distinct_id, event_id: Uuid::nil(), timestamp, kind };
        let record = Record { sequence, project: PROJECTS[0], ops: vec![op] };
        let entry = Entry { record, events };
        model.feed(&entry);
        node.insert(&entry);
        node.waiting.push(entry.record.clone());
        log.push(entry);
        node.derive();
        assert!(bench.runtime.block_on(node.flush()));
        node.files.identities.persist().expect("persists");
        synced.get_or_insert_with(|| bench.image(Some(&identity)));
    }
    drop(node);
    let mut node = bench.start(&disk, &synced.expect("a copy"), &log);
    let files = node.files.store.table().current().files.clone();
    assert_eq!(files.len(), 2);
    let merge = |node: &Node| {
        let shutdown = Shutdown::new();
        let merged = bench.runtime.block_on(node.files.merge(&files, &shutdown));
        merged.expect("merges").map(|merged| (merged.rows, merged.deleted))
    };
    assert_eq!(merge(&node), None);
    node.derive();
    assert_eq!(merge(&node), Some((1, 1)), "rows, and deleted ones");
    bench.check(&mut node, &model, "after the merge");
}

/// Goal: what is too old leaves the files, whatever it is in, and nothing else does: a file with nothing else unread.
#[test]
fn old_events_leave_the_files() {
    let mut bench = Bench::new();
    let identity = bench.image(None);
    let mut node = bench.start(&SimDisk::new(), &identity, &[]);
    let mut model = Model::default();
    // Two files each, of events of now and of 40 days ago.
    for (sequence, project) in [(1, PROJECTS[0]), (2, PROJECTS[0]), (3, PROJECTS[1])] {
        send(&bench, &mut node, &mut model, sequence, project, &["a", "b", "c", "d"]);
    }
    // One of both projects.
    let files = node.files.store.table().current().files.clone();
    let month = files.iter().map(|file| file.partition.clone()).min().expect("a month");
    let mut old: Vec<_> = files.iter().filter(|file| file.partition == month).cloned().collect();
    old.sort_by_key(|file| format!("{:?}", file.stats.columns["project_id"].min));
    let pair = old.split_off(1);
    bench.runtime.block_on(node.files.merge(&pair, &Shutdown::new())).expect("merges");
    let before = paths(&node);
    assert_eq!(before.len(), 5);
    let day = 86_400_000_000;
    let at = |days: i64| weir_base::clock::UnixMicros(NOW.0 - days * day);
    let erase = |node: &mut Node, project: ProjectId, from| {
        node.files.kept_from = std::sync::Arc::new([(project, from)].into_iter().collect());
        let erased = bench.erase(node).expect("a pass");
        (erased.files, erased.rows)
    };
    // Exactly at the time is kept.
    assert_eq!(erase(&mut node, PROJECTS[0], at(40)), (0, 0));
    assert_eq!(erase(&mut node, PROJECTS[0], at(10)), (2, 4));
    let after = paths(&node);
    assert_eq!(before.difference(&after).count(), 2);
    assert_eq!(after.difference(&before).count(), 1, "one is dropped, one written anew");
    assert_eq!(bench.stored(&node).len(), 2 * 2 + 4);
    assert_eq!(erase(&mut node, PROJECTS[0], at(10)), (0, 0), "it is done");
    // What comes late does not get into files, and no merge keeps what is too old.
    send(&bench, &mut node, &mut model, 4, PROJECTS[0], &["a", "b"]);
    assert_eq!(bench.stored(&node).len(), 2 * 2 + 4 + 1);
    node.files.kept_from = std::sync::Arc::new([(PROJECTS[1], at(10))].into_iter().collect());
    let files = node.files.store.table().current().files.clone();
    let merged = bench.runtime.block_on(node.files.merge(&files[..1], &Shutdown::new()));
    let merged = merged.expect("merges").expect("a merge");
    assert_eq!(merged.deleted + merged.rows, files[0].rows);
    erase(&mut node, PROJECTS[1], at(10));
    assert_eq!(bench.stored(&node).len(), 2 * 2 + 1 + 2);
    assert_eq!(erase(&mut node, PROJECTS[0], at(-1)).1, 5, "all of it");
    assert_eq!(bench.stored(&node).len(), 2);
}

/// Goal: a damaged file prevents the deletion and the merge of its own rows only, for as long as it is
/// damaged.
#[test]
fn a_file_that_cannot_be_read_stops_no_other() {
    // Damage of the footer, and of the first pages.
    for (name, is_end) in [("end", true), ("pages", false)] {
        let mut bench = Bench::new();
        let (identity, disk) = (bench.image(None), SimDisk::new());
        let mut node = bench.start(&disk, &identity, &[]);
        let mut model = Model::default();
        for sequence in 1..=4 {
            send(&bench, &mut node, &mut model, sequence, PROJECTS[0], &["a", "a", "b", "b"]);
        }
        let op = Op {
            distinct_id: String::new(),
            event_id: Uuid::nil(),
            timestamp: NOW,
            kind: OpKind::Delete {
                person: PersonId::of(PROJECTS[0], "a").0,
                extent: Extent::Events,
            },
        };
        let record = Record { sequence: 5, project: PROJECTS[0], ops: vec![op] };
        let entry = Entry { record, events: Vec::new() };
        model.feed(&entry);
        node.insert(&entry);
        node.waiting.push(entry.record);
        node.derive();
        assert!(bench.runtime.block_on(node.flush()));
        // Two months of four files each.
        let files = node.files.store.table().current().files.clone();
        assert_eq!(files.len(), 8, "{name}");
        let damaged = files.first().expect("some").path.clone();
        let file = disk.open(&Path::new(TABLE).join(&damaged)).expect("opens");
        let mut whole = vec![0; usize::try_from(file.len_bytes().expect("a length")).unwrap()];
        file.read_at(&mut whole, 0).expect("reads");
        let zeros = vec![0; if is_end { 8 } else { whole.len() / 4 }];
        let at = if is_end { whole.len() - zeros.len() } else { 0 };
        file.write_all_at(&zeros, at.try_into().unwrap()).expect("writes");

        let shutdown = Shutdown::new();
        let erase = |node: &Node| bench.runtime.block_on(node.files.erase(NOW, &shutdown));
        let error = erase(&node).expect_err(name);
        assert_eq!(error.unreadable(), Some(damaged.as_str()), "{name}");
        let left = paths(&node);
        let old = files.iter().filter(|file| left.contains(&file.path));
        assert_eq!(old.map(|file| &file.path).collect::<Vec<_>>(), [&damaged], "{name}");
        assert!(!node.files.identities.deletions().is_empty(), "{name}: it is not done");

        // Three files of its month are left, and four of the other.
        let limits = Limits { target_bytes: 256 << 20, files_min: 3 };
        let (mut unreadable, mut merged) = (BTreeSet::new(), Vec::new());
        let mut errors = 0;
        loop {
            let merging = node.files.merge_due(limits, &mut unreadable, &shutdown);
            match bench.runtime.block_on(merging) {
                Ok(Some(done)) => merged.push(done.files),
                Ok(None) => break,
                Err(error) => {
                    errors += 1;
                    assert_eq!(error.unreadable(), Some(damaged.as_str()), "{name}");
                }
            }
        }
        merged.sort_unstable();
        assert_eq!((merged.as_slice(), errors), ([3, 4].as_slice(), 1), "{name}");
        assert_eq!(paths(&node).len(), 3, "{name}");

        file.write_all_at(&whole, 0).expect("writes");
        let erased = erase(&node).expect("a pass").expect("whole");
        assert_eq!((erased.requests, erased.files, erased.is_all), (1, 1, true), "{name}");
        bench.check(&mut node, &model, name);
        assert_eq!(bench.stored(&node).len(), 8, "{name}");
    }
}

fn paths(node: &Node) -> BTreeSet<String> {
    node.files.store.table().current().files.iter().map(|file| file.path.clone()).collect()
}
