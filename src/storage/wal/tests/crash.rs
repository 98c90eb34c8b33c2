//! Crash tests of the log: power cuts at every operation of a history, and at every operation of the
//! recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::proptest;

use super::{DIR, SEGMENT_BYTES, open, payload, read};
use crate::wal::reader::Item;
use crate::wal::writer::Wal;
use crate::wal::{Damage, Elsewhere, Sequence, WalError, WalSettings};
use weir_sim::disk::{SimDisk, Survival};

/// One operation of the owner of a log.
#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    Sync,
    /// Moves all durable records into the tables, and truncates the log.
    Flush,
    /// Creates the spare of the next segment.
    Spare,
    /// Restarts the process, not the machine.
    Restart,
}

/// Small and large records, one larger than a segment and one that is not buffered; batches of one and of
/// many; rotation within a batch; flushes with and without a segment to remove; restarts with unsynced
/// records, and two in a row.
const HISTORY: &[Step] = {
    use Step::{Append, Flush, Restart, Spare, Sync};
    &[
        Append(10),
        Sync,
        Spare,
        Append(0),
        Append(200),
        Append(30),
        Sync,
        Append(300),
        Append(900),
        Append(5),
        Sync,
        Spare,
        Append(40),
        Restart,
        Restart,
        Append(700),
        Append(1),
        Append(2),
        Sync,
        Flush,
        Append(20_000),
        Append(350),
        Sync,
        Append(350),
        Spare,
        Sync,
        Flush,
        Restart,
        Append(8),
        Sync,
        Append(9),
    ]
};

/// Segments of a few small records, for many rotations; and of many sectors, so that a cut takes
/// some records of a batch and leaves others.
const SEGMENTS_BYTES: [u64; 2] = [SEGMENT_BYTES, SEGMENT_BYTES + 4000];

/// The records that may, and that must, be found.
#[derive(Clone, Debug)]
struct Model {
    segment_max_bytes: u64,
    appended: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    durable: BTreeMap<u64, Vec<u8>>,
    unsynced: BTreeMap<u64, Vec<u8>>,
    /// The last record in the tables.
    flushed: u64,
    /// Counter that makes every payload unique.
    count: usize,
    /// Number of places that were reported as unconfirmed.
    holes: usize,
}

impl Model {
    fn new(segment_max_bytes: u64) -> Self {
        Self {
            segment_max_bytes,
            appended: BTreeMap::new(),
            durable: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            flushed: 0,
            count: 0,
            holes: 0,
        }
    }

    fn append(&mut self, wal: &mut Wal, size: usize) -> Result<(), WalError> {
        self.count += 1;
        let bytes = payload(&format!("{}.", self.count), size);
        let sequence = wal.last_appended().next().0;
        self.appended.entry(sequence).or_default().insert(bytes.clone());
        let (one, two) = bytes.split_at(size / 4);
        assert_eq!(wal.append(&[one, two])?, Sequence(sequence));
        self.unsynced.insert(sequence, bytes);
        Ok(())
    }

    fn sync(&mut self, wal: &mut Wal) -> Result<(), WalError> {
        wal.sync()?;
        self.durable.append(&mut self.unsynced);
        assert_eq!(wal.last_durable(), wal.last_appended());
        Ok(())
    }

    fn flush(&mut self, wal: &Wal) -> Result<(), WalError> {
        self.flushed = wal.last_durable().0;
        wal.files().truncate_through(wal.last_durable())?;
        Ok(())
    }

    /// Opens the log, and compares its records with the expected ones.
    fn open(&mut self, disk: &SimDisk) -> Result<Wal, WalError> {
        let dir = Path::new(DIR).to_path_buf();
        let settings = WalSettings { dir, segment_max_bytes: self.segment_max_bytes };
        let disk = Arc::new(disk.clone());
        let (wal, recovered) =
            Wal::open(disk, settings, Elsewhere::up_to(Sequence(self.flushed)), 7)?;
        self.unsynced.clear();
        let mut position = self.flushed;
        for item in read(&wal.files(), self.flushed, recovered.last) {
            match item {
                Item::Record { sequence, payload } => {
                    assert_eq!(sequence.0, position + 1, "in order, without gap");
                    position = sequence.0;
                    assert!(self.appended[&position].contains(&payload), "whole or absent");
                    let durable = self.durable.entry(position).or_insert_with(|| payload.clone());
                    assert_eq!(*durable, payload, "record {position}");
                }
                Item::Corrupt(corruption) => {
                    let Damage::Unconfirmed { first, last } = corruption.damage else {
                        panic!("a power cut must not look like damage: {corruption:?}");
                    };
                    assert_eq!(first.0, position + 1);
                    position = last.0;
                    self.holes += 1;
                    let durable = self.durable.range(first.0..=last.0).next();
                    assert_eq!(durable, None, "a durable record is missing");
                }
            }
        }
        assert_eq!(position, recovered.last.0);
        let last_durable = self.durable.keys().next_back().copied().unwrap_or(0);
        assert!(last_durable <= position, "durable {last_durable}, found {position}");
        for corruption in recovered.corruptions {
            assert!(matches!(corruption.damage, Damage::Unconfirmed { .. }), "{corruption:?}");
        }
        Ok(wal)
    }

    fn run(&mut self, disk: &SimDisk, history: &[Step]) -> Result<(), WalError> {
        let mut wal = self.open(disk)?;
        for step in history {
            match step {
                Step::Append(size) => self.append(&mut wal, *size)?,
                Step::Sync => self.sync(&mut wal)?,
                Step::Flush => self.flush(&wal)?,
                Step::Spare => wal.files().keep_spare(self.segment_max_bytes, &mut || true)?,
                Step::Restart => {
                    drop(wal);
                    wal = self.open(disk)?;
                }
            }
        }
        Ok(())
    }

    /// The first operations after a start: two records in two batches.
    fn go_on(&mut self, disk: &SimDisk) -> Result<(), WalError> {
        self.run(
            disk,
            &[Step::Append(60), Step::Sync, Step::Append(3), Step::Append(4), Step::Sync],
        )
    }
}

/// Runs `history` with a power cut after `operations`; returns the disk and the records that must be found.
fn cut(mut model: Model, history: &[Step], operations: u64) -> (SimDisk, Model) {
    let disk = SimDisk::new();
    disk.cut_after(operations);
    // The last append may not need the segment during whose creation the power was cut.
    let ended = model.run(&disk, history);
    assert!(ended.is_err() || disk.is_off(), "the power is cut in operation {operations}");
    (disk, model)
}

fn operations_of(mut model: Model, history: &[Step]) -> u64 {
    let disk = SimDisk::new();
    model.run(&disk, history).expect("a run without a cut");
    disk.operations()
}

/// [`HISTORY`], cut after each of its operations, for all sizes of segments.
fn all_cuts() -> impl Iterator<Item = (u64, SimDisk, Model)> {
    SEGMENTS_BYTES.into_iter().map(Model::new).flat_map(|model| {
        (0..operations_of(model.clone(), HISTORY)).map(move |operations| {
            let (disk, model) = cut(model.clone(), HISTORY, operations);
            (operations, disk, model)
        })
    })
}

fn survivals() -> impl Iterator<Item = Survival> {
    [Survival::Lose, Survival::Keep].into_iter().chain((0..8).map(Survival::Mixed))
}

/// Goal: no cut loses a durable record, invents one, or stops the log. Method: all cuts and many outcomes;
/// then a second start, when the rest of the torn write is in an older segment.
#[test]
fn every_cut_keeps_what_is_durable() {
    let mut holes = 0;
    for (_, disk, model) in all_cuts() {
        for survival in survivals() {
            let (disk, mut model) = (disk.power_on(survival), model.clone());
            model.go_on(&disk).expect("the log goes on");
            holes += model.holes;
            let disk = disk.power_on(Survival::Lose);
            model.go_on(&disk).expect("the log goes on again");
            model.open(&disk.power_on(Survival::Keep)).expect("open");
        }
    }
    assert!(holes > 0, "some cut takes a record and leaves the one behind it");
}

/// Goal: recovery can itself be cut anywhere. Method: all cuts of the recovery after all cuts of the history.
#[test]
fn every_cut_of_the_recovery_keeps_what_is_durable() {
    for (operations, disk, model) in all_cuts() {
        for survival in [Survival::Lose, Survival::Keep, Survival::Mixed(operations)] {
            for second in 0.. {
                let (disk, mut model) = (disk.power_on(survival), model.clone());
                disk.cut_after(second);
                if model.go_on(&disk).is_ok() {
                    break;
                }
                for survival in [Survival::Lose, Survival::Keep, Survival::Mixed(second)] {
                    let (disk, mut model) = (disk.power_on(survival), model.clone());
                    model.go_on(&disk).expect("the log goes on");
                    model.open(&disk.power_on(Survival::Lose)).expect("open");
                }
            }
        }
    }
}

/// Goal: a restart of the process alone finds all written records, which are durable from then on.
#[test]
fn what_a_restart_finds_is_durable() {
    let disk = SimDisk::new();
    let (mut wal, _) = open(&disk, 0);
    wal.append(&[b"never synced"]).expect("append");
    wal.append(&[&payload("direct", 20_000)]).expect("append");
    drop(wal);
    let (_, recovered) = open(&disk, 0);
    assert_eq!(recovered.last, Sequence(2), "a large record is written, and those before it");
    let (_, recovered) = open(&disk.power_on(Survival::Lose), 0);
    assert_eq!(recovered.last, Sequence(2));
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_usize..500).prop_map(Step::Append),
        1 => (16_000_usize..17_000).prop_map(Step::Append),
        4 => Just(Step::Sync),
        1 => Just(Step::Flush),
        1 => Just(Step::Spare),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    /// Goal: the log is a vector with a durable prefix, for any history and any cut.
    #[test]
    fn any_history_and_any_cut(
        history in vec(step(), 1..40),
        at in any::<proptest::sample::Index>(),
        seed in any::<u64>(),
        slack in 0_u64..5000,
    ) {
        let model = Model::new(SEGMENT_BYTES + slack);
        let operations = operations_of(model.clone(), &history);
        let at = u64::try_from(at.index(usize::try_from(operations).expect("few"))).expect("few");
        let (disk, mut model) = cut(model, &history, at);
        let disk = disk.power_on(Survival::Mixed(seed));
        model.go_on(&disk).expect("the log goes on");
        let disk = disk.power_on(Survival::Lose);
        model.run(&disk, &history).expect("the same history again");
        model.open(&disk.power_on(Survival::Mixed(seed))).expect("open");
    }
}
