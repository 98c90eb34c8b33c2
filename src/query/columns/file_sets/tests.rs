//! Files of columns over simulated time: what leaves them when, and which there are.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arrow::array::StringArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::clock::UnixMicros;
use crate::event::id::PersonId;
use crate::event::id::ProjectId;
use crate::identity::change::Extent;
use crate::identity::change::OpKind;
use crate::identity::change::Update;
use crate::query::columns::file_sets::FileLimits;
use crate::query::columns::file_sets::FileSets;
use crate::query::columns::file_sets::Step;
use crate::query::columns::tests::PROJECT;
use crate::query::columns::tests::World;

const OTHER: ProjectId = ProjectId(2);
const MINUTE: Duration = Duration::from_mins(1);
const LIMITS: FileLimits = FileLimits {
    bytes_max: u64::MAX,
    persons_min: 10,
    chunk_persons: 50,
    stale_max: Duration::from_hours(1),
};

/// Files of some persons, and a clock.
struct Files {
    world: World,
    directory: tempfile::TempDir,
    file_sets: FileSets,
    now: UnixMicros,
}

impl Files {
    /// Of so many persons, each with a value of its own. All that are worth it have been made.
    fn new(persons: u32, limits: FileLimits) -> Self {
        let (mut world, directory) = (World::new(), tempfile::tempdir().unwrap());
        world.tell(PROJECT, 0..persons, value);
        let file_sets = open(&directory, limits, &world);
        let now = UnixMicros(1_700_000_000_000_000);
        let files = Self { world, directory, file_sets, now };
        files.settle();
        files
    }

    /// Ends, in order or not, and begins again.
    fn reopen(&mut self, is_clean: bool, limits: FileLimits) {
        if is_clean {
            self.file_sets.close(&BTreeMap::new(), self.now).unwrap();
        }
        self.file_sets = open(&self.directory, limits, &self.world);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
    }

    fn step_of(&self, projects: &[ProjectId]) -> Option<Step> {
        let stop = AtomicBool::new(false);
        self.file_sets.step(&self.world.identities, projects, self.now, &stop).ok()
    }

    /// Steps until there is nothing to do.
    fn settle_of(&self, projects: &[ProjectId]) -> Vec<Step> {
        let steps = std::iter::repeat_with(|| self.step_of(projects).unwrap());
        let steps: Vec<Step> = steps.take_while(|step| *step != Step::None).take(1000).collect();
        assert!(steps.len() < 1000, "there is an end");
        steps
    }

    fn settle(&self) -> Vec<Step> {
        self.settle_of(&[PROJECT])
    }

    fn paths(&self) -> BTreeSet<PathBuf> {
        fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn bytes(&self) -> u64 {
        self.paths().iter().map(|path| path.metadata().unwrap().len()).sum()
    }

    /// All values in all files.
    fn values(&self) -> BTreeSet<String> {
        self.paths().iter().flat_map(|path| texts(path)).collect()
    }

    fn has(&self, plan: &str) -> bool {
        self.values().contains(&format!("\"{plan}\""))
    }

    fn change(&mut self, number: u32, kind: OpKind) {
        self.world.apply(PROJECT, std::iter::once((number, kind)));
    }

    fn delete(&mut self, numbers: std::ops::Range<u32>) {
        let kind = |number| {
            let person = PersonId::of(PROJECT, &format!("id{number}")).0;
            OpKind::Delete { person, extent: Extent::Person }
        };
        self.world.apply(PROJECT, numbers.map(|number| (number, kind(number))));
    }
}

fn open(directory: &tempfile::TempDir, limits: FileLimits, world: &World) -> FileSets {
    FileSets::open(directory.path().to_owned(), limits, &world.identities).unwrap().0
}

fn value(number: u32) -> String {
    format!("plan of {number}")
}

fn texts(path: &Path) -> Vec<String> {
    let file = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let mut found = Vec::new();
    for batch in file.build().unwrap() {
        for column in batch.unwrap().columns() {
            let texts = cast(column, &DataType::Utf8).unwrap();
            let texts = texts.as_any().downcast_ref::<StringArray>().unwrap();
            found.extend(texts.iter().flatten().map(str::to_owned));
        }
    }
    found
}

/// Goal: what was deleted, changed or unset leaves its file before the time for it is over, at the cost of
/// no other file, and all else stays.
#[test]
fn what_is_no_more_leaves_the_files_in_time() {
    for change in ["delete", "set", "unset"] {
        let mut files = Files::new(100, LIMITS);
        let before = files.paths();
        assert_eq!(before.len(), 2, "{before:?}");
        match change {
            "delete" => files.delete(7..8),
            "set" => files.world.tell(PROJECT, 7..8, |_| "new".to_owned()),
            _ => {
                let unset = Update { unset: vec!["plan".to_owned()], ..Update::default() };
                files.change(7, OpKind::Update(unset));
            }
        }
        for _ in 0..30 {
            assert_eq!(files.settle(), [], "{change}: it is not worth it yet");
            assert!(files.has("plan of 7") && files.paths() == before, "{change}");
            files.wait(MINUTE);
        }
        assert_eq!(files.settle(), [Step::Renewed], "{change}");
        assert!(!files.has("plan of 7"), "{change}");
        assert_eq!(files.has("new"), change == "set");
        for number in (0..100).filter(|number| *number != 7) {
            assert!(files.has(&value(number)), "{change}: {number}");
        }
        let after = files.paths();
        assert_eq!((after.len(), after.intersection(&before).count()), (2, 1), "{change}");
        files.wait(MINUTE * 600);
        assert_eq!(files.settle(), [], "{change}: nothing else is made anew");
    }
}

/// Goal: the time goes on over restarts, whether the change was seen before the end or not, and also if
/// the clock is set back.
#[test]
fn the_time_does_not_begin_anew() {
    for is_seen in [true, false] {
        let mut files = Files::new(100, LIMITS);
        files.delete(7..8);
        if is_seen {
            files.settle();
        }
        for _ in 0..6 {
            files.reopen(true, LIMITS);
            assert_eq!((files.settle(), files.paths().len()), (Vec::new(), 2));
            assert!(files.has("plan of 7"));
            files.wait(MINUTE * 5);
        }
        files.reopen(true, LIMITS);
        assert_eq!(files.settle(), [Step::Renewed]);
        assert!(!files.has("plan of 7") && files.has("plan of 8"));
        assert_eq!(files.paths().len(), 2);
    }
    // After a long time without the server there is no rest to be taken.
    let mut files = Files::new(100, LIMITS);
    files.delete(7..8);
    files.reopen(true, LIMITS);
    files.wait(MINUTE * 500);
    files.reopen(true, LIMITS);
    assert_eq!(files.settle(), [Step::Late]);
    files.delete(8..9);
    files.settle();
    files.now = UnixMicros(files.now.0 - 1);
    files.settle();
    assert!(!files.has("plan of 8") && files.has("plan of 9"));
}

/// Goal: however often persons change a little, no file has a value for longer than it may, and each file
/// is written at most twice in that time.
#[test]
fn a_trickle_of_changes_costs_little() {
    let limits = FileLimits { chunk_persons: 500, ..LIMITS };
    let mut files = Files::new(1000, limits);
    let mut random = StdRng::seed_from_u64(1);
    let mut said: BTreeMap<u32, String> = BTreeMap::new();
    let mut gone: BTreeMap<String, UnixMicros> = BTreeMap::new();
    let hours: u32 = 6;
    let mut made = 0;
    for minute in 0..hours * 60 {
        if minute % 3 == 0 {
            let number = random.random_range(0..1000);
            let new = format!("said at {minute}");
            let old = said.insert(number, new.clone()).unwrap_or_else(|| value(number));
            gone.insert(format!("\"{old}\""), files.now);
            files.world.tell(PROJECT, number..number + 1, |_| new.clone());
        }
        // One step a look is all that there is time for.
        let step = files.step_of(&[PROJECT]).unwrap();
        made += u32::from(step != Step::None);
        for value in files.values() {
            let age = gone.get(&value).map(|since| files.now.since(*since));
            assert!(age.is_none_or(|age| age <= limits.stale_max), "{value} after {age:?}");
        }
        files.wait(MINUTE);
    }
    assert!((hours..=hours * 4).contains(&made), "{made} of two files in {hours} hours");
}

/// Goal: persons who have no file get one even if there is always a file to be made anew.
#[test]
fn files_grow_while_others_are_renewed() {
    let mut files = Files::new(500, LIMITS);
    assert_eq!(files.paths().len(), 10);
    for number in 0..10 {
        files.delete(number * 50..number * 50 + 1);
    }
    files.world.tell(PROJECT, 500..700, value);
    files.file_sets.look(&files.world.identities, &[PROJECT], files.now).unwrap();
    files.wait(MINUTE * 31);
    let steps: Vec<Step> = (0..8).map(|_| files.step_of(&[PROJECT]).unwrap()).collect();
    assert_eq!(steps, [Step::Renewed, Step::Grown].repeat(4));
    let renewed = files.settle().iter().filter(|step| **step == Step::Renewed).count();
    assert_eq!(renewed, 6);
    assert!((0..10).all(|number| !files.has(&value(number * 50))) && files.has("plan of 699"));
}

/// Goal: a project with too few persons, or that is gone, has no file.
#[test]
fn small_projects_have_no_files() {
    let mut files = Files::new(9, LIMITS);
    assert_eq!((files.settle(), files.paths().len()), (Vec::new(), 0));
    files.world.tell(PROJECT, 9..10, value);
    assert_eq!((files.settle(), files.paths().len()), (vec![Step::Grown], 1));
    files.delete(0..1);
    assert_eq!((files.settle(), files.paths().len()), (Vec::new(), 0), "too few again");
    files.world.tell(OTHER, 0..70, |_| "other".to_owned());
    files.world.tell(PROJECT, 10..80, value);
    files.settle_of(&[PROJECT, OTHER]);
    assert!(files.has("plan of 50") && files.has("other"));
    files.settle_of(&[OTHER]);
    assert!(!files.has("plan of 50") && files.has("other"), "a project that is gone");
    files.reopen(true, LIMITS);
    files.settle_of(&[]);
    assert!(files.paths().is_empty());
}

/// Goal: only what is known to be right is there after a start.
#[test]
fn what_nobody_knows_is_gone_after_a_start() {
    let mut files = Files::new(100, LIMITS);
    let before = files.paths();
    fs::write(files.directory.path().join("odd.parquet"), "x").unwrap();
    files.reopen(true, LIMITS);
    assert_eq!(files.paths(), before, "after a clean end");
    files.reopen(false, LIMITS);
    assert_eq!(files.paths(), BTreeSet::new(), "after a crash");
    files.settle();
    assert_eq!(files.paths().len(), 2);
    files.file_sets.close(&BTreeMap::new(), files.now).unwrap();
    fs::write(files.directory.path().join("record.json"), "{").unwrap();
    files.file_sets = open(&files.directory, LIMITS, &files.world);
    assert_eq!(files.paths(), BTreeSet::new(), "without a record");
    files.settle();
    files.file_sets.close(&BTreeMap::new(), files.now).unwrap();
    files.delete(7..8);
    files.file_sets = open(&files.directory, LIMITS, &files.world);
    assert_eq!(files.paths(), BTreeSet::new(), "after a change that nobody watched");
    files.settle();
    files.reopen(true, FileLimits { bytes_max: 0, ..LIMITS });
    assert_eq!((files.settle(), files.paths()), (Vec::new(), BTreeSet::new()), "if none may be");
}

/// Goal: files take no more than they may, and what there is no room for is not tried again and again.
#[test]
fn files_stay_within_their_bytes() {
    let ample = Files::new(1000, LIMITS);
    assert_eq!((ample.paths().len(), ample.file_sets.bytes()), (20, ample.bytes()));
    let bytes_max = ample.bytes() / 2;
    let limits = FileLimits { bytes_max, ..LIMITS };
    let mut files = Files::new(1000, limits);
    assert!((5..=10).contains(&files.paths().len()), "{:?}", files.paths());
    assert!(files.bytes() <= bytes_max);
    let before = files.paths();
    for _ in 0..3 {
        files.wait(MINUTE * 50);
        assert_eq!((files.settle(), files.paths()), (Vec::new(), before.clone()));
    }
    // Files that get larger when they are made anew, then less room, then more.
    files.world.tell(PROJECT, 0..150, |number| value(number).repeat(40));
    files.settle();
    assert!(files.bytes() <= bytes_max && !files.has("plan of 7"));
    for (share, least) in [(4, 1), (1, 5)] {
        let limits = FileLimits { bytes_max: bytes_max / share, ..LIMITS };
        files.reopen(true, limits);
        files.settle();
        assert!(files.bytes() <= limits.bytes_max);
        assert!(files.paths().len() >= least, "{:?}", files.paths());
    }
    // The largest project makes room.
    let limits = FileLimits { bytes_max: u64::MAX, ..LIMITS };
    files.reopen(true, limits);
    files.world.tell(OTHER, 0..50, |_| "other".to_owned());
    files.settle_of(&[PROJECT, OTHER]);
    let all = files.bytes();
    files.reopen(true, FileLimits { bytes_max: all / 3, ..LIMITS });
    files.settle_of(&[PROJECT, OTHER]);
    assert!(files.bytes() <= all / 3 && files.has("other"));
}

/// Goal: the files of a project that grows slowly are few, and nobody is written often.
#[test]
fn the_last_file_grows_until_it_is_full() {
    let limits = FileLimits { chunk_persons: 400, ..LIMITS };
    let mut files = Files::new(10, limits);
    let mut grown = 0;
    for tens in 1..100 {
        files.world.tell(PROJECT, tens * 10..tens * 10 + 10, value);
        let steps = files.settle();
        assert!(steps.iter().all(|step| *step == Step::Grown), "{steps:?}");
        grown += steps.len();
        let last = (tens * 10 + 10) / 2 - 1;
        assert!(files.has(&value(last)), "half of them are in files: {last}");
    }
    assert_eq!(files.paths().len(), 3, "of a thousand persons");
    assert!(grown < 25, "{grown}");
}

/// Goal: a file that cannot be made anew is not tried all the time, and goes when its time is over.
#[test]
fn what_cannot_be_made_anew_goes() {
    let mut files = Files::new(100, LIMITS);
    files.delete(7..8);
    files.settle();
    // Numbers are from 1.
    let row = files.world.identities.replace_row(PROJECT, 20, b"").unwrap();
    files.wait(MINUTE * 30);
    assert_eq!(files.step_of(&[PROJECT]), None, "it fails");
    assert_eq!(files.step_of(&[PROJECT]), Some(Step::None), "it is left alone for some time");
    files.wait(MINUTE);
    assert_eq!(files.step_of(&[PROJECT]), None, "it fails again");
    assert!(files.has("plan of 7"));
    files.wait(MINUTE * 30);
    assert_eq!(files.step_of(&[PROJECT]), None);
    assert!(!files.has("plan of 7"));
    files.world.identities.replace_row(PROJECT, 20, &row).unwrap();
    files.wait(MINUTE);
    assert_eq!(files.settle(), [Step::Grown; 2]);
    assert!(!files.has("plan of 7") && files.has("plan of 8") && files.has("plan of 99"));
}
