//! Images of a store that is being written to, flushed and compacted: each opens with the state as of its record.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::sequences::sequence;
use super::{AMPLE, op, open, record};
use crate::change::{Occasion, OpKind, Record, Update};
use crate::store::Identities;
use crate::tables::Tables;
use weir_event::id::ProjectId;

/// Images of a normal run; `WEIR_TEST_IMAGES` is another number.
const IMAGES: u64 = 40;

/// The write buffers of a keyspace are 1 to 12 times this: flushes and compactions never end.
const UNIT_BYTES: u64 = 4096;

/// Projects and persons stay few, so that what is written is written over.
const PROJECTS: i64 = 100;

/// Length of a property that fills the journals, of which the database begins one every 64 MB, and its persons.
const FILLER_BYTES: usize = 300_000;
const FILLERS: u32 = 20;

/// Records that the thread that applies them may be ahead of the one that makes images.
const AHEAD_MAX: usize = 100;

/// Records between two images.
const BETWEEN: u64 = 20;

/// One in this many images waits until the database begins a journal and is about to remove another, and one goes on with
/// the next records after it was opened.
const JOURNAL_EVERY: u64 = 20;
const RESUMED_EVERY: u64 = 8;

/// The random records of a test: those of [`sequence`], and large ones.
struct Source {
    random: StdRng,
    text: String,
    last: u64,
}

impl Source {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let letters = (0..4 * FILLER_BYTES).map(|_| char::from(random.random_range(b'0'..=b'z')));
        let text = letters.collect();
        Self { random, text, last: 0 }
    }

    fn next(&mut self) -> Vec<Record> {
        let project = ProjectId(self.random.random_range(1..=PROJECTS));
        let mut records = sequence(&mut self.random, project, self.last);
        self.last += u64::try_from(records.len()).unwrap() + 1;
        let from = self.random.random_range(0..self.text.len() - FILLER_BYTES);
        let filler = json!({"filler": self.text[from..from + FILLER_BYTES]});
        let set = filler.as_object().unwrap().clone();
        let update = Update { set, occasion: Occasion::PersonEvent, ..Update::default() };
        let id = format!("filler {}", self.random.random_range(0..FILLERS));
        records.push(record(self.last, vec![op(&id, OpKind::Update(update))]));
        records
    }
}

/// Records that were given to the store, and not yet to the one that images are compared with.
#[derive(Default)]
struct Log {
    records: Mutex<VecDeque<Record>>,
    is_over: AtomicBool,
}

impl Log {
    fn take_through(&self, sequence: u64) -> Vec<Record> {
        let mut records = self.records.lock();
        let taken = records.partition_point(|record| record.sequence <= sequence);
        records.drain(..taken).collect()
    }
}

/// Ends the thread that applies records, also when the test fails.
struct Over<'l>(&'l Log);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?.into_string().expect("text");
    Some(text.parse().expect("a number"))
}

fn dump(identities: &Identities) -> Vec<[Vec<u8>; 2]> {
    identities.tables().unwrap().dump().unwrap()
}

/// The number of the newest journal.
fn newest_journal<'p>(paths: impl Iterator<Item = &'p str>) -> Option<u64> {
    paths.filter_map(|path| path.strip_suffix(".jnl")?.parse().ok()).max()
}

fn newest_journal_in(directory: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    newest_journal(names.iter().map(String::as_str))
}

/// Goal: an image opens with the rows as of its record, all of them and no others, whatever is flushed and compacted
/// while it is made, and goes on from there. Method: one thread applies records, another flushes and rewrites all files,
/// without end; compare all rows with a store that has applied the same records and of which no image is made.
#[test]
fn an_image_is_the_state_as_of_its_record() {
    let seed = number("WEIR_IMAGES_SEED").unwrap_or_else(rand::random);
    let images = number("WEIR_TEST_IMAGES").unwrap_or(IMAGES);
    println!("WEIR_IMAGES_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let (state, scratch) = (directory.path().join("state"), directory.path().join("image"));
    // The database keeps the sizes with which it was created.
    drop(Tables::open_sized(&state, AMPLE.blocks_bytes, UNIT_BYTES).unwrap());
    let (identities, twin) = (open(&state), open(&directory.path().join("twin")));
    let (log, mut versions, mut journals) = (Log::default(), 0, 0);
    let is_over = || log.is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let _over = Over(&log);
        scope.spawn(|| {
            let mut source = Source::new(seed);
            while !is_over() {
                if log.records.lock().len() > AHEAD_MAX {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let records = source.next();
                log.records.lock().extend(records.iter().cloned());
                identities.apply(&records).expect("applies");
            }
        });
        scope.spawn(|| {
            while !is_over() {
                identities.tables().unwrap().rewrite().expect("rewrites");
            }
        });
        let mut last = 0;
        for image_number in 0..images {
            let before = newest_journal_in(&state);
            let waits_for_journal = image_number % JOURNAL_EVERY == JOURNAL_EVERY - 1;
            let waits = || {
                identities.applied_sequence() < last + BETWEEN
                    || (waits_for_journal && newest_journal_in(&state) == before)
            };
            while waits() {
                twin.apply(&log.take_through(identities.applied_sequence())).expect("applies");
                std::thread::sleep(Duration::from_millis(1));
            }
            let image = identities.image(&scratch).expect("an image");
            last = image.applied;
            twin.apply(&log.take_through(last)).expect("applies");
            let paths = || image.files.iter().map(|file| file.path.as_str());
            journals = journals.max(newest_journal(paths()).unwrap());
            let numbers = paths().filter_map(|path| path.rsplit_once("/v")?.1.parse().ok());
            versions = numbers.fold(versions, u64::max);
            let restored = open(&scratch);
            assert_eq!(restored.applied_sequence(), last, "image {image_number}");
            assert!(dump(&restored) == dump(&twin), "image {image_number} at {last}");
            if image_number % RESUMED_EVERY == 0 {
                let later = log.take_through(last + BETWEEN);
                twin.apply(&later).expect("applies");
                restored.apply(&later).expect("applies");
                assert!(dump(&restored) == dump(&twin), "after image {image_number}");
            }
            drop(restored);
            std::fs::remove_dir_all(&scratch).unwrap();
        }
    });
    println!("{images} images, {versions} versions of a keyspace, {journals} journals");
    assert!(versions > images, "{versions} versions");
    assert!(journals >= images / JOURNAL_EVERY, "{journals} journals");
}

/// Goal: an image lists exactly its files, and what the database allocates in advance is not in it.
#[test]
fn an_image_lists_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let (state, scratch) = (directory.path().join("state"), directory.path().join("image"));
    let identities = open(&state);
    for round in 0..3 {
        if round > 0 {
            identities.apply(&[record(round, vec![op("a", OpKind::Touch)])]).unwrap();
            identities.flush().unwrap();
        }
        let image = identities.image(&scratch).unwrap();
        assert_eq!(image.applied, round);
        let mut listed: Vec<_> =
            image.files.iter().map(|file| (file.path.clone().into(), file.bytes)).collect();
        listed.sort();
        let paths = super::histories::files(&scratch);
        let size = |path: &std::path::PathBuf| std::fs::metadata(scratch.join(path)).unwrap().len();
        let mut found: Vec<_> = paths.iter().map(|path| (path.clone(), size(path))).collect();
        found.sort();
        assert_eq!(listed, found);
        assert!(listed.iter().map(|(_, bytes)| bytes).sum::<u64>() < 1 << 20, "{listed:?}");
        // What is in use is neither changed nor locked by opening the image.
        assert_eq!(dump(&open(&scratch)), dump(&identities));
        std::fs::remove_dir_all(&scratch).unwrap();
    }
    std::fs::create_dir(&scratch).unwrap();
    std::fs::write(scratch.join("keyspaces"), "a file where the directory goes").unwrap();
    let refused = identities.image(&scratch).unwrap_err();
    assert!(refused.to_string().contains("cannot make an image"), "{refused}");
    identities.apply(&[record(3, vec![op("a", OpKind::Touch)])]).unwrap();
}
