//! Two nodes that flush, merge, vacuum and restart on one table while its object store fails at random: also
//! puts that take effect long after their sender has given up or was killed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Faults of a run.
const FAULTS: u64 = 1_000;

/// Steps of one history.
const STEPS: u32 = 80;

/// A node with its log: the rows that it has acknowledged.
struct Node {
    app: &'static str,
    first_id: i64,
    logged: u64,
    store: Store,
}

impl Node {
    /// Opens the table as a server does, again and again: its log is not lost by a start that fails.
    async fn open(objects: &Arc<FaultyStore>, app: &str, clock: &Clock) -> Store {
        for _ in 0..1_000 {
            let objects = Arc::clone(objects) as Arc<dyn ObjectStore>;
            let Ok(store) = try_open(objects, app, clock.clone()).await else { continue };
            if store.table().claim(app).await.is_ok() {
                return store;
            }
        }
        panic!("{app} cannot be opened");
    }

    fn log(&mut self) {
        self.logged += 1;
        self.insert(self.logged);
    }

    fn insert(&self, sequence: u64) {
        insert_as(&self.store, sequence, self.first_id + sequence.cast_signed());
    }

    /// Kills the node, and replays its log after the position in the table.
    async fn restart(&mut self, objects: &Arc<FaultyStore>, clock: &Clock) {
        self.store = Self::open(objects, self.app, clock).await;
        let flushed = self.store.flushed_through().0;
        for sequence in flushed + 1..=self.logged {
            self.insert(sequence);
        }
    }

    /// Whether everything is in files.
    async fn flush(&self) -> bool {
        self.store.freeze();
        while let Ok(Some(_)) = flush(&self.store).await {}
        self.store.snapshot().batches.is_empty()
    }

    async fn merge(&self) {
        if self.store.table().refresh().await.is_ok()
            && let Some(edit) = try_merge(&self.store).await
        {
            // It may be in doubt, or have lost against the other node.
            let _ = self.store.replace(edit).await;
        }
    }
}

/// A merge of all files, unless the store fails.
async fn try_merge(store: &Store) -> Option<Edit> {
    let table = store.table();
    let remove = table.current().files.clone();
    let name = naming::merged(remove.iter().map(AsRef::as_ref), Sequence(0));
    let (layout, month) = (store.layout(), Some("2026-11".to_owned()));
    let writer = FileWriter::new(&table.store(), table.spec(), layout, Effort::Merge, month, &name);
    let mut writer = writer.ok()?;
    for file in &remove {
        let path = Path::parse(&file.path).ok()?;
        let bytes = table.store().get(&path).await.ok()?.bytes().await.ok()?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file");
        for batch in reader.build().expect("a reader") {
            writer.write(&batch.expect("rows")).await.ok()?;
        }
    }
    let add = vec![writer.finish().await.ok()?];
    (remove.len() > 1).then_some(Edit { add, remove, transaction: None, kind: EditKind::Compact })
}

/// Runs one history. Returns the number of its faults.
async fn history(seed: u64) -> u64 {
    let mut random = StdRng::seed_from_u64(seed);
    let objects = Arc::new(FaultyStore::default());
    let clock = Clock::test(NOW);
    let mut nodes = Vec::new();
    for (app, first_id) in [("node/1", 0), ("node/2", 1_000_000)] {
        let store = Node::open(&objects, app, &clock).await;
        nodes.push(Node { app, first_id, logged: 0, store });
    }
    objects.fail_at_random(seed, 6);
    for _ in 0..STEPS {
        clock.advance(Duration::from_secs(random.random_range(0..5)));
        let number = random.random_range(0..nodes.len());
        let node = &mut nodes[number];
        match random.random_range(0..10) {
            0..4 => node.log(),
            4..7 => {
                node.flush().await;
            }
            7 => node.merge().await,
            // What is in doubt is settled first, as readers of the version before need its files.
            8 if node.flush().await => {
                let _ = node.store.table().vacuum_removed(Duration::from_secs(60)).await;
            }
            _ => node.restart(&objects, &clock).await,
        }
    }
    let faults = objects.recover().await;
    let mut expected = Vec::new();
    for node in &mut nodes {
        // What arrived last may be of a process that was killed before.
        if !node.flush().await {
            node.restart(&objects, &clock).await;
            assert!(node.flush().await, "seed {seed}: {} does not recover", node.app);
        }
        let logged = node.logged.cast_signed();
        expected.extend((1..=logged).map(|sequence| node.first_id + sequence));
    }
    expected.sort_unstable();
    for node in &nodes {
        let store = Node::open(&objects, node.app, &clock).await;
        assert_eq!(ids(&store).await, expected, "seed {seed}: {}", node.app);
        assert_eq!(store.flushed_through(), Sequence(node.logged), "seed {seed}: {}", node.app);
    }
    faults
}

#[tokio::test]
async fn no_fault_loses_or_doubles_a_row() {
    let (mut faults, mut seed) = (0, 0);
    while faults < FAULTS {
        seed += 1;
        faults += history(seed).await;
    }
}
