//! Tests with flipped bits, in written files and in the format itself.

use std::sync::Arc;

use arrow::array::{
    AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{BLOCK_BYTES, BlockSums, CheckedStore, Damaged};
use crate::delta::{DataFile, TableSpec};
use crate::parquet::pages::PagedFile;
use crate::parquet::{Effort, FileWriter, Layout, read_columns_if};

/// Number of flipped bits per file; `WEIR_FLIPS` overrides it.
const FLIPS: usize = 300;

const ROWS: i64 = 6_000;

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("project", DataType::Int64, false),
        Field::new("name", DataType::Utf8View, false),
        Field::new("time", time, false),
        Field::new("id", DataType::Utf8View, false),
        Field::new("amount", DataType::Float64, true),
        Field::new("is_paid", DataType::Boolean, true),
        Field::new("properties", DataType::Utf8View, false),
    ]))
}

fn layout() -> Layout {
    Layout {
        sort: vec![0, 1, 2],
        bloom: vec![1, 3],
        statistics: vec![0, 1, 2],
        unique: vec![3],
        wide: vec![6],
    }
}

fn rows() -> RecordBatch {
    let mut random = StdRng::seed_from_u64(1);
    let numbers: Vec<i64> = (0..ROWS).collect();
    let text = |text: fn(i64, &mut StdRng) -> String, random: &mut StdRng| {
        let texts: Vec<String> = numbers.iter().map(|number| text(*number, random)).collect();
        Arc::new(StringViewArray::from_iter_values(texts))
    };
    let amounts = numbers.iter().map(|number| {
        (number % 3 == 0).then_some(0.25 * f64::from(u32::try_from(*number).unwrap()))
    });
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(numbers.iter().map(|number| number / 4000))),
            text(|number, _| format!("event {}", number / 200), &mut random),
            Arc::new(
                TimestampMicrosecondArray::from_iter_values(
                    numbers.iter().map(|number| 1_700_000_000_000_000 + number * 1_000_001),
                )
                .with_timezone("UTC"),
            ),
            text(|_, random| format!("{:032x}", random.random::<u128>()), &mut random),
            Arc::new(Float64Array::from_iter(amounts)),
            Arc::new(BooleanArray::from_iter(
                numbers.iter().map(|number| (number % 5 != 0).then_some(number % 7 == 0)),
            )),
            text(
                |number, random| format!("{{\"n\":{number},\"r\":{}}}", random.random::<u32>()),
                &mut random,
            ),
        ],
    )
    .unwrap()
}

fn path() -> Path {
    Path::from("file.parquet")
}

async fn written(effort: Effort) -> (DataFile, Bytes) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let spec = TableSpec { name: "test", schema: schema(), partition_column: None };
    let mut writer =
        FileWriter::new(&store, &spec, &layout(), effort, None, "file.parquet").unwrap();
    writer.write(&rows()).await.unwrap();
    let file = writer.finish().await.unwrap();
    (file, store.get(&path()).await.unwrap().bytes().await.unwrap())
}

async fn checked(bytes: Bytes) -> CheckedStore {
    let store = InMemory::new();
    store.put(&path(), bytes.into()).await.unwrap();
    CheckedStore::new(Arc::new(store), "tables/test")
}

fn flipped(bytes: &Bytes, bit: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes.into()
}

/// All rows, read as by a merge, and the times of some rows, read as by a look-up with bloom filters.
async fn read(store: CheckedStore, file: &DataFile) -> Result<(RecordBatch, Vec<i64>), String> {
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    let names: &[&str] = &["event 7", "event 29", "none"];
    let sought = read_columns_if(Arc::clone(&store), file, &["name", "time"], "name", names).await;
    let sought = sought.map_err(|error| error.to_string())?;
    let sought: Vec<RecordBatch> = sought.try_collect().await.map_err(|error| error.to_string())?;
    let times = sought.iter().flat_map(|batch| {
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
        times.values().to_vec()
    });
    let times = times.collect();
    let (file, schema) = (Arc::new(file.clone()), schema());
    let opened = PagedFile::open(store, file, &schema, &layout());
    let rows = opened.and_then(|opened| opened.rows(1000)).map_err(|error| error.to_string())?;
    let rows: Vec<RecordBatch> =
        rows.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    Ok((concat_batches(&schema, &rows).unwrap(), times))
}

/// Goal: no flipped bit of a file changes the rows. Method: flip random bits of a flushed and of a merged
/// file; the rows must be those that were written, or an error must contain the path of the file.
#[tokio::test]
async fn no_flipped_bit_gives_other_rows() {
    let flips = std::env::var_os("WEIR_FLIPS").and_then(|flips| flips.to_str()?.parse().ok());
    let mut random = StdRng::seed_from_u64(7);
    for effort in [Effort::Flush, Effort::Merge] {
        let (file, bytes) = written(effort).await;
        let intact = read(checked(bytes.clone()).await, &file).await.unwrap();
        assert_eq!(intact.0, rows());
        let mut found = 0;
        for _ in 0..flips.unwrap_or(FLIPS) {
            let bit = random.random_range(0..bytes.len() * 8);
            match read(checked(flipped(&bytes, bit)).await, &file).await {
                Ok(read) => assert_eq!(read, intact, "{effort:?}, bit {bit}: other rows"),
                Err(error) => {
                    found += 1;
                    let named = error.contains("tables/test/file.parquet is damaged");
                    assert!(named, "{effort:?}, bit {bit}: {error}");
                }
            }
        }
        let flips = flips.unwrap_or(FLIPS);
        println!("{effort:?}: {} bytes, {found} of {flips} flips found", bytes.len());
        assert!(found * 10 > flips * 8, "{effort:?}: most of the file is read: {found}");
    }
}

/// A file of some bytes and a footer, with its section.
fn file(body: usize) -> (Vec<u8>, Bytes) {
    let mut random = StdRng::seed_from_u64(body.try_into().unwrap());
    let body: Vec<u8> = (0..body).map(|_| random.random()).collect();
    let mut footer = b"the footer".to_vec();
    footer.extend_from_slice(&10_u32.to_le_bytes());
    footer.extend_from_slice(b"PAR1");
    let mut sums = BlockSums::default();
    // Written in pieces of all sizes.
    let mut rest = body.as_slice();
    while !rest.is_empty() {
        let (now, behind) = rest.split_at(random.random_range(1..=rest.len().min(40_000)));
        sums.add(now);
        rest = behind;
    }
    let section = sums.section(&footer);
    (body.clone(), [body, section, footer].concat().into())
}

fn damage<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Damaged> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.find_map(|cause| cause.downcast_ref::<Damaged>())
}

#[tokio::test]
async fn any_range_is_what_was_written() {
    let block = BLOCK_BYTES;
    let sizes = [0, 1, block - 1, block, block + 1, 3 * block, 300_000, 20_000_000];
    for size in sizes {
        let (body, bytes) = file(size);
        let store = checked(bytes.clone()).await;
        assert!(store.verify(&path()).await.unwrap(), "{size}");
        let all = store.get(&path()).await.unwrap().bytes().await.unwrap();
        assert!(all == bytes, "{size}");
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..20 {
            let range = |random: &mut StdRng| {
                let start = random.random_range(0..bytes.len());
                let longest = if random.random() { 100 } else { bytes.len() };
                let end = random.random_range(start..=bytes.len().min(start + longest));
                start..end
            };
            let ranges: Vec<_> =
                (0..random.random_range(1..5)).map(|_| range(&mut random)).collect();
            let wanted: Vec<_> = ranges
                .iter()
                .map(|range| u64::try_from(range.start).unwrap()..u64::try_from(range.end).unwrap())
                .collect();
            let read = store.get_ranges(&path(), &wanted).await.unwrap();
            for (range, read) in ranges.iter().zip(read) {
                assert!(read == bytes[range.clone()], "{size}: {range:?} of {ranges:?}");
            }
        }
        let suffix = GetOptions { range: Some(GetRange::Suffix(8)), ..GetOptions::default() };
        let end = store.get_opts(&path(), suffix).await.unwrap().bytes().await.unwrap();
        assert_eq!(end, bytes.slice(bytes.len() - 8..));
        assert!(body.len() < bytes.len());
    }
}

/// Goal: every flipped bit is found. The exception is the marker that distinguishes files with and without
/// checksums: without it the file reads unverified.
#[tokio::test]
async fn every_flipped_bit_is_found() {
    let (body, bytes) = file(200);
    let footer_at = bytes.len() - 18;
    let footer = u64::try_from(footer_at).unwrap()..u64::try_from(bytes.len()).unwrap();
    for bit in 0..bytes.len() * 8 {
        let store = checked(flipped(&bytes, bit)).await;
        let is_mark = (footer_at - 8..footer_at).contains(&(bit / 8));
        for (range, written) in [(0..200, &body[..]), (footer.clone(), &bytes[footer_at..])] {
            match store.get_range(&path(), range.clone()).await {
                // Section and footer are read first, for any range.
                Ok(read) => {
                    let is_elsewhere = bit / 8 < body.len() && range.start > 0;
                    assert!(is_mark || is_elsewhere, "byte {}: nobody knows", bit / 8);
                    assert_eq!(read, written);
                }
                Err(error) => {
                    let damaged = damage(&error).unwrap_or_else(|| panic!("{error:?}"));
                    assert_eq!(damaged.path, "tables/test/file.parquet");
                }
            }
        }
    }
}

#[tokio::test]
async fn cut_missing_and_foreign_files_are_distinguished() {
    let (_, bytes) = file(50_000);
    for len in [0, 1, 100, bytes.len() / 2, bytes.len() - 1] {
        let store = checked(bytes.slice(..len)).await;
        let error = store.get_range(&path(), 0..1).await.unwrap_err();
        assert!(damage(&error).is_some(), "{len}: {error:?}");
    }
    let store = CheckedStore::new(Arc::new(InMemory::new()), "tables/test");
    let error = store.get_range(&path(), 0..1).await.unwrap_err();
    assert!(damage(&error).is_some_and(|damaged| damaged.problem == "it is missing"), "{error:?}");
    // A file of another engine: no checksums, and the bytes are returned unverified.
    let foreign: Bytes = [&b"values"[..], b"footer", &[6, 0, 0, 0], b"PAR1"].concat().into();
    let store = checked(foreign.clone()).await;
    assert!(!store.verify(&path()).await.unwrap());
    assert_eq!(store.get_range(&path(), 0..6).await.unwrap(), foreign.slice(..6));
    // No data file.
    let other = Path::from("_delta_log/00000000000000000001.checkpoint.parquet");
    store.put(&other, Bytes::from_static(b"no checksums").into()).await.unwrap();
    assert_eq!(store.get_range(&other, 0..2).await.unwrap(), "no");
}
