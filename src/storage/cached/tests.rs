//! Tests of the cache: the same bytes as the bucket has, whatever is cached, damaged, evicted or restarted.

use object_store::ObjectStoreExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::blocks::Limits;
use super::*;
use crate::faulty_store::{Broken, FaultyStore};
use weir_base::telemetry::metrics::Metrics;
use weir_disk::{Disk, OsDisk};
use weir_sim::disk::SimDisk;

const BLOCK: usize = 1 << 20;
const NO_LIMITS: Limits = Limits { max_bytes: 1 << 40, free_min_bytes: 0 };

struct Bench {
    directory: tempfile::TempDir,
    bucket: Arc<FaultyStore>,
    metrics: Arc<Metrics>,
    random: StdRng,
}

impl Bench {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            bucket: Arc::default(),
            metrics: Arc::new(Metrics::new()),
            random: StdRng::seed_from_u64(1),
        }
    }

    fn cache(&self, limits: Limits) -> BlockCache {
        self.cache_on(Arc::new(OsDisk), limits)
    }

    fn cache_on(&self, disk: Arc<dyn Disk>, limits: Limits) -> BlockCache {
        BlockCache::open(self.directory.path(), disk, limits, Arc::clone(&self.metrics))
            .expect("opens")
    }

    fn store(&self, cache: BlockCache) -> CachedStore {
        CachedStore::new(Arc::clone(&self.bucket) as Arc<dyn ObjectStore>, cache, "s3://a/events")
    }

    fn bytes(&mut self, length: usize) -> Bytes {
        let mut bytes = vec![0; length];
        self.random.fill(&mut bytes[..]);
        bytes.into()
    }

    /// Puts an object into the bucket, past the cache.
    async fn put(&mut self, name: &str, length: usize) -> (Path, Bytes) {
        let (path, bytes) = (Path::from(name), self.bytes(length));
        self.bucket.put(&path, bytes.clone().into()).await.expect("a put");
        (path, bytes)
    }

    fn missed(&self) -> u64 {
        self.metrics.bucket_cache_miss_bytes.get()
    }

    /// All blocks on disk.
    fn blocks(&self) -> Vec<std::path::PathBuf> {
        let list = |path: &std::path::Path| {
            std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("a name").path())
        };
        list(self.directory.path())
            .flat_map(|subdirectory| list(&subdirectory).collect::<Vec<_>>())
            .collect()
    }
}

fn part(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    bytes.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap())
}

#[tokio::test]
async fn ranges_are_those_of_the_bucket() {
    let mut bench = Bench::new();
    let lengths = [1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, 20 * BLOCK];
    for (number, length) in lengths.into_iter().enumerate() {
        let (path, bytes) = bench.put(&format!("month=1/{number}.parquet"), length).await;
        let size = u64::try_from(length).unwrap();
        let mut ranges = vec![0..1, size - 1..size, 0..size];
        for _ in 0..20 {
            let start = bench.random.random_range(0..size);
            ranges.push(start..bench.random.random_range(start + 1..=size));
        }
        let store = bench.store(bench.cache(NO_LIMITS));
        for range in &ranges {
            let got = store.get_range(&path, range.clone()).await.expect("a range");
            assert_eq!(got, part(&bytes, range), "{length}: {range:?}");
        }
        let missed = bench.missed();
        // The whole file is in blocks now, also after a restart.
        for store in [store, bench.store(bench.cache(NO_LIMITS))] {
            let got = store.get_ranges(&path, &ranges).await.expect("ranges");
            let expected: Vec<Bytes> = ranges.iter().map(|range| part(&bytes, range)).collect();
            assert_eq!(got, expected, "{length}");
            let suffix = GetOptions { range: Some(GetRange::Suffix(10)), ..GetOptions::default() };
            let got = store.get_opts(&path, suffix).await.expect("the end");
            assert_eq!(got.meta.size, size);
            assert_eq!(got.bytes().await.expect("bytes"), bytes.slice(length.saturating_sub(10)..));
            assert_eq!(bench.missed(), missed, "{length}: out of the cache");
            let beyond = 0..size + 1;
            let beyond = store.get_ranges(&path, std::slice::from_ref(&beyond)).await;
            beyond.expect_err("it is not that long");
        }
        assert_eq!(store_whole(&bench, &path).await, bytes);
    }
    assert_eq!(bench.metrics.bucket_cache_damaged.get(), 0);
}

async fn store_whole(bench: &Bench, path: &Path) -> Bytes {
    let store = bench.store(bench.cache(NO_LIMITS));
    store.get(path).await.expect("the object").bytes().await.expect("bytes")
}

#[tokio::test]
async fn what_is_written_is_cached_and_checked_in_the_bucket() {
    let mut bench = Bench::new();
    let store = bench.store(bench.cache(NO_LIMITS));
    let small = bench.bytes(BLOCK + 5);
    let path = Path::from("month=1/small.parquet");
    store.put(&path, small.clone().into()).await.expect("a put");
    let large = bench.bytes(5 * BLOCK + 5);
    let upload = Path::from("month=1/large.parquet");
    let mut writer = store.put_multipart(&upload).await.expect("an upload");
    for (start, end) in [(0, 10), (10, 3 * BLOCK + 1), (3 * BLOCK + 1, large.len())] {
        writer.put_part(large.slice(start..end).into()).await.expect("a part");
    }
    writer.complete().await.expect("the end");
    let commit = Path::from("_delta_log/0.json");
    store.put(&commit, "x".into()).await.expect("a put");

    *bench.bucket.broken.lock() = Some(Broken::Away);
    for store in [store, bench.store(bench.cache(NO_LIMITS))] {
        for (path, bytes) in [(&path, &small), (&upload, &large)] {
            let size = u64::try_from(bytes.len()).unwrap();
            assert_eq!(store.get_range(path, 0..size).await.expect("cached"), bytes);
            // A commit must not take a file for uploaded that is only here.
            store.head(path).await.expect_err("the bucket is asked");
        }
        store.get_range(&commit, 0..1).await.expect_err("logs are not cached");
    }
    assert_eq!(bench.missed(), 0);
    *bench.bucket.broken.lock() = None;
    let store = bench.store(bench.cache(NO_LIMITS));
    store.delete(&path).await.expect("a deletion");
    store.get_range(&path, 0..1).await.expect_err("it is gone");
}

#[tokio::test]
async fn damaged_blocks_are_dropped_and_read_again() {
    let mut bench = Bench::new();
    let (path, bytes) = bench.put("month=1/a.parquet", 2 * BLOCK + 40_000).await;
    let size = u64::try_from(bytes.len()).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("magic", |block| block[0] ^= 1),
        ("number", |block| block[24] ^= 1),
        ("checksum", |block| block[41] ^= 1),
        ("bytes", |block| *block.last_mut().unwrap() ^= 0x80),
        ("cut", |block| block.truncate(block.len() - 1)),
        ("empty", Vec::clear),
    ];
    for (number, (name, damage)) in (1..).zip(damages) {
        let whole = 0..size;
        let store = bench.store(bench.cache(NO_LIMITS));
        store.get_range(&path, whole.clone()).await.expect("a range");
        let blocks = bench.blocks();
        assert_eq!(blocks.len(), 3, "{name}");
        for block in blocks {
            let mut contents = std::fs::read(&block).expect("a block");
            damage(&mut contents);
            std::fs::write(block, contents).expect("a block");
        }
        assert_eq!(store.get_range(&path, whole).await.expect("a range"), bytes, "{name}");
        assert_eq!(bench.metrics.bucket_cache_damaged.get(), 3 * number, "{name}");
    }
    // What is no block goes at a start, and a block under the name of another is none.
    let subdirectory = bench.directory.path().join("ab");
    std::fs::create_dir_all(&subdirectory).expect("a directory");
    std::fs::write(subdirectory.join("notes"), "x").expect("a file");
    bench.cache(NO_LIMITS);
    assert!(!subdirectory.join("notes").exists());
}

#[tokio::test]
async fn the_least_recently_used_goes_first() {
    let mut bench = Bench::new();
    let block_bytes = BLOCK_BYTES + 300;
    let limits = Limits { max_bytes: 3 * block_bytes, free_min_bytes: 0 };
    let cache = bench.cache(limits);
    let store = bench.store(cache.clone());
    let mut files = Vec::new();
    for number in 0..4 {
        files.push(bench.put(&format!("month=1/{number}.parquet"), BLOCK).await);
    }
    let read = async |number: usize| {
        let before = bench.missed();
        let got = store.get_range(&files[number].0, 0..BLOCK_BYTES).await.expect("a range");
        assert_eq!(got, files[number].1);
        assert!(cache.bytes() <= limits.max_bytes);
        bench.missed() > before
    };
    for (number, is_missed) in [
        (0, true),
        (1, true),
        (2, true),
        (0, false),
        (3, true),
        (1, true),
        (0, false),
        (3, false),
        (2, true),
    ] {
        assert_eq!(read(number).await, is_missed, "{number}");
    }
    // A cache that is opened with less room keeps what was written last.
    let smaller = bench.cache(Limits { max_bytes: block_bytes, free_min_bytes: 0 });
    assert_eq!(bench.blocks().len(), 1);
    assert!(smaller.bytes() <= block_bytes);
}

#[tokio::test]
async fn the_cache_gives_way_when_the_disk_fills_up() {
    let mut bench = Bench::new();
    let disk = SimDisk::new();
    let limits = Limits { max_bytes: 1 << 40, free_min_bytes: 1 << 30 };
    let cache = bench.cache_on(Arc::new(disk.clone()), limits);
    let store = bench.store(cache.clone());
    let (path, bytes) = bench.put("month=1/a.parquet", 3 * BLOCK).await;
    let size = u64::try_from(bytes.len()).unwrap();
    assert_eq!(store.get_range(&path, 0..size).await.expect("a range"), bytes);
    assert!(cache.bytes() > size);
    disk.set_capacity_bytes(1 << 20);
    assert!(!cache.make_room(0));
    assert_eq!((cache.bytes(), bench.blocks().len()), (0, 0));
    assert_eq!(store.get_range(&path, 0..size).await.expect("a range"), bytes);
    assert_eq!(cache.bytes(), 0, "and takes nothing");
}
