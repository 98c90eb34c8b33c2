//! Damaged tables: the undamaged rest is served, and the loss is reported.

use super::*;
use weir_sim::disk::Survival;

const APP: &str = "node/1";

/// Kind of damage to a file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Missing,
    Empty,
    Zeroes,
    /// The last line is cut off.
    CutBetweenLines,
    CutInALine,
    NoJson,
    /// A bit of the last digit is flipped, or of the middle byte if there is no digit.
    OtherDigit,
}

const HARMS: [Harm; 7] = [
    Harm::Missing,
    Harm::Empty,
    Harm::Zeroes,
    Harm::CutBetweenLines,
    Harm::CutInALine,
    Harm::NoJson,
    Harm::OtherDigit,
];

fn commit_path(version: u64) -> Path {
    Path::from(format!("_delta_log/{version:020}.json"))
}

fn checkpoint_path(version: u64) -> Path {
    Path::from(format!("_delta_log/{version:020}.checkpoint.parquet"))
}

async fn harm(store: &Arc<dyn ObjectStore>, path: &Path, harm: Harm) {
    if harm == Harm::Missing {
        return store.delete(path).await.expect("a deletion");
    }
    let bytes = store.get(path).await.expect("the file").bytes().await.expect("its bytes");
    let lines_end = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let harmed = match harm {
        Harm::Missing | Harm::Empty => Vec::new(),
        Harm::Zeroes => vec![0; bytes.len()],
        Harm::CutBetweenLines => bytes[..lines_end + 1].to_vec(),
        Harm::CutInALine => bytes[..bytes.len() - 5].to_vec(),
        Harm::OtherDigit => {
            let mut bytes = bytes.to_vec();
            let digit = bytes.iter().rposition(u8::is_ascii_digit).filter(|_| bytes[0] == b'{');
            let at = digit.unwrap_or(bytes.len() / 2);
            bytes[at] ^= 1;
            bytes
        }
        Harm::NoJson => b"<html>not found</html>".to_vec(),
    };
    store.put(path, harmed.into()).await.expect("a put");
}

/// Five flushes of one row each (commits 1, 2, 3, 5, 6), and between the third and the fourth a merge of
/// the first two (commit 4).
async fn lived_in() -> (SimDisk, Clock) {
    let disk = SimDisk::new();
    let store = store_on(&disk);
    let clock = Clock::test(NOW);
    let table = open(&store, &clock).await.expect("a new table");
    for id in 1..=5 {
        if id == 4 {
            let files = table.current().files.clone();
            let inputs = files.into_iter().filter(|file| !file.path.ends_with("/3.parquet"));
            let merged = written(&store, "merged", &[1, 2]).await;
            table.commit(compact(inputs.collect(), vec![merged])).await.expect("a merge");
        }
        let file = written(&store, &format!("{id}"), &[id]).await;
        table.commit(append(vec![file], Some((APP, id)))).await.expect("a flush");
    }
    (disk, clock)
}

/// Goal: a destroyed commit costs only the rows that no other commit contains. Method: every commit, every
/// kind of damage; then further commits to the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_commit_costs_what_only_it_had() {
    let (before, clock) = lived_in().await;
    for (version, harm_done) in (0..=6).flat_map(|version| HARMS.map(|harm| (version, harm))) {
        // A missing last commit leaves no gap; `app` compares the position with the log.
        if (version, harm_done) == (6, Harm::Missing) {
            continue;
        }
        let context = format!("{harm_done:?} of {version}");
        let disk = before.power_on(Survival::Keep);
        let store = store_on(&disk);
        harm(&store, &commit_path(version), harm_done).await;
        let reader =
            DeltaTable::open_existing(Arc::clone(&store), location(), spec(), clock.clone());
        let reader = reader.await.expect(&context).expect("the table");
        let table = open(&store, &clock).await.expect(&context);
        for handle in [&reader, &table] {
            let [damage] = handle.damage() else { panic!("{context}: {:?}", handle.damage()) };
            assert_eq!((damage.first, damage.last), (version, version), "{context}");
        }
        let (ids, position) = match version {
            // The merge contains the rows of the first two as well.
            0..=2 => (vec![1, 2, 3, 4, 5], 5),
            3 => (vec![1, 2, 4, 5], 5),
            // The inputs of the merge are live again.
            4 => (vec![1, 2, 3, 4, 5], 5),
            5 => (vec![1, 2, 3, 5], 5),
            _ => (vec![1, 2, 3, 4], 4),
        };
        assert_eq!(read_ids(&store, &reader.current()).await, ids, "{context}");
        assert_eq!(read_ids(&store, &table.current()).await, ids, "{context}");
        assert_eq!(table.current().transaction(APP), Some(position), "{context}");

        // It is reported once; the data files of the commit stay, also much later.
        clock.advance(Duration::from_secs(3600));
        let removed = table.vacuum(Duration::ZERO).await.expect(&context);
        let inputs = ["month=2026-01/1.parquet", "month=2026-01/2.parquet"].map(str::to_owned);
        let expected = if version == 4 { BTreeSet::new() } else { inputs.into() };
        assert_eq!(BTreeSet::from_iter(removed), expected, "{context}");
        let again = open(&store, &clock).await.expect(&context);
        assert_eq!(again.damage(), [], "{context}: a checkpoint is behind it");
        assert_eq!(again.vacuum(Duration::ZERO).await.expect(&context), [""; 0], "{context}");

        // Later vacuums remove only orphans that are newer than the damage.
        let file = written(&store, "after", &[7]).await;
        again.commit(append(vec![file], Some((APP, 7)))).await.expect(&context);
        let ids: Vec<i64> = ids.into_iter().chain([7]).collect();
        assert_eq!(read_ids(&store, &again.current()).await, ids, "{context}");
        assert_same_after_reopening(&store, &again).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_one_damage_however_wide() {
    let (disk, clock) = lived_in().await;
    let store = store_on(&disk);
    for version in [3, 4, 5] {
        harm(&store, &commit_path(version), Harm::Missing).await;
    }
    // A version that no writer uses: the versions before it are not read one by one.
    let last = u64::try_from(i64::MAX).expect("positive") - 1;
    let copy = store.get(&commit_path(1)).await.expect("a commit").bytes().await.expect("bytes");
    store.put(&commit_path(last), copy.into()).await.expect("a put");
    let table = open(&store, &clock).await.expect("the table");
    let gaps: Vec<_> = table.damage().iter().map(|damage| (damage.first, damage.last)).collect();
    assert_eq!(gaps, [(3, 5), (7, last - 1)]);
}

/// A checkpoint is redundant: older checkpoints and the commits contain the same state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_checkpoint_costs_nothing() {
    let before = SimDisk::new();
    let store = store_on(&before);
    let clock = Clock::test(NOW);
    let table = open(&store, &clock).await.expect("a new table");
    for id in 1..=2 * CHECKPOINT_INTERVAL.cast_signed() {
        let file = written(&store, &format!("{id}"), &[id]).await;
        table.commit(append(vec![file], Some((APP, id)))).await.expect("a commit");
    }
    let expected = table.current();
    for (versions, harm_done) in
        [&[200][..], &[100, 200]].into_iter().flat_map(|v| HARMS.map(|harm| (v, harm)))
    {
        let context = format!("{harm_done:?} of {versions:?}");
        let store = store_on(&before.power_on(Survival::Keep));
        for version in versions {
            harm(&store, &checkpoint_path(*version), harm_done).await;
        }
        let table = open(&store, &clock).await.expect(&context);
        let damaged = if harm_done == Harm::Missing { 0 } else { versions.len() };
        assert_eq!(table.damage().len(), damaged, "{context}: {:?}", table.damage());
        assert_eq!(table.current().files, expected.files, "{context}");
        assert_same_after_reopening(&store, &table).await;
        // Also with only the files that were written now.
        if damaged > 0 {
            for version in 0..=200 {
                store.delete(&commit_path(version)).await.expect("a deletion");
            }
            assert_same_after_reopening(&store, &table).await;
        }
    }
}

/// Goal: a missing live file costs its rows, but no query fails, and an operator can restore it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_data_file_costs_its_rows() {
    let (disk, clock) = lived_in().await;
    let store = store_on(&disk);
    let path = Path::from("month=2026-01/3.parquet");
    let lost = store.get(&path).await.expect("a file").bytes().await.expect("its bytes");
    store.delete(&path).await.expect("a deletion");
    let table = open(&store, &clock).await.expect("the table");
    let [damage] = table.damage() else { panic!("{:?}", table.damage()) };
    assert!(damage.reason.contains("1 live files with 1 rows are missing"), "{}", damage.reason);
    assert_eq!(read_ids(&store, &table.current()).await, [1, 2, 4, 5]);
    // It is reported at each opening, and nothing is written for it, as no commit is lost.
    let version = table.current().version;
    let again = open(&store, &clock).await.expect("the table");
    assert_eq!((again.damage(), again.current().version), (table.damage(), version));
    assert_eq!(version, 6, "that of the last commit");
    let file = written(&store, "after", &[7]).await;
    table.commit(append(vec![file], None)).await.expect("a commit");
    assert_eq!(read_ids(&store, &table.current()).await, [1, 2, 4, 5, 7]);
    let mut writer = table.shared.writer.lock().await;
    table.shared.checkpoint(&mut writer).await.expect("a checkpoint");
    drop(writer);

    store.put(&path, lost.into()).await.expect("a put");
    let restored = open(&store, &clock).await.expect("the table");
    assert_eq!(restored.damage(), []);
    assert_eq!(read_ids(&store, &restored.current()).await, [1, 2, 3, 4, 5, 7]);

    // An overwrite of the whole table removes the missing file too.
    store.delete(&path).await.expect("a deletion");
    let table = open(&store, &clock).await.expect("the table");
    let all = written(&store, "all", &[9]).await;
    let (remove, kind) = (table.current().files.clone(), EditKind::Overwrite);
    let edit = Edit { add: vec![all], remove, transaction: None, kind };
    table.commit(edit).await.expect("an overwrite");
    let reopened = open(&store, &clock).await.expect("the table");
    assert_eq!(reopened.damage(), []);
    assert_eq!(read_ids(&store, &reopened.current()).await, [9]);
}
