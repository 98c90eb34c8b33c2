//! Tests of the paged reader: rows against the written ones, and memory against the estimate.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use object_store::ObjectStore;
use parquet::errors::ParquetError;

use super::PagedFile;
use crate::compaction::{Memory, Reading};
use crate::delta::{DataFile, TableSpec};
use crate::faulty_store::FaultyStore;
use crate::parquet::{Effort, FileWriter, Layout};

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// Schema with integers, texts of few distinct values, and texts that hardly repeat.
fn events() -> SchemaRef {
    schema(&[
        ("number", DataType::Int64),
        ("name", DataType::Utf8View),
        ("body", DataType::Utf8View),
    ])
}

/// Bytes that do not compress well.
fn noise(mut seed: u64, len: usize) -> String {
    let digit = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((seed >> 33) % 64).unwrap())
    };
    (0..len).map(digit).collect()
}

/// The body of row `number`, of `len` bytes.
fn body(number: i64, len: usize) -> Option<String> {
    (number % 7 != 0).then(|| noise(number.cast_unsigned(), len))
}

fn layout() -> Layout {
    Layout { sort: vec![0], bloom: Vec::new(), statistics: vec![0], unique: vec![0], wide: vec![2] }
}

/// Writes rows with bodies of these lengths, in batches as a merge does.
async fn written(
    store: &Arc<dyn ObjectStore>,
    lens: &[usize],
    group_bytes: Option<u64>,
) -> Arc<DataFile> {
    let spec = TableSpec { name: "test", schema: events(), partition_column: None };
    let layout = layout();
    let writer = FileWriter::new(store, &spec, &layout, Effort::Merge, None, "file.parquet");
    let mut writer = writer.expect("a writer");
    if let Some(bytes) = group_bytes {
        writer = writer.with_group_bytes(bytes);
    }
    let mut number = 0_i64;
    for lens in lens.chunks(256) {
        let numbers: Vec<i64> = (number..).take(lens.len()).collect();
        number += i64::try_from(lens.len()).unwrap();
        let names = numbers.iter().map(|number| Some(format!("the name number {}", number % 5)));
        let bodies = numbers.iter().zip(lens).map(|(number, len)| body(*number, *len));
        let batch = RecordBatch::try_new(
            events(),
            vec![
                Arc::new(Int64Array::from(numbers.clone())),
                Arc::new(StringViewArray::from_iter(names)),
                Arc::new(StringViewArray::from_iter(bodies)),
            ],
        );
        writer.write(&batch.expect("a batch")).await.expect("writes");
    }
    Arc::new(writer.finish().await.expect("a file"))
}

fn store() -> (Arc<FaultyStore>, Arc<dyn ObjectStore>) {
    let measured = Arc::new(FaultyStore::default());
    let store = Arc::clone(&measured) as Arc<dyn ObjectStore>;
    (measured, store)
}

fn groups(file: &PagedFile) -> usize {
    file.metadata.metadata().num_row_groups()
}

#[tokio::test]
async fn row_groups_end_by_their_memory_and_no_row_is_lost() {
    let lens = vec![400; 10_000];
    for (group_bytes, expected) in [(None, 1..=1), (Some(1 << 20), 3..=5), (Some(1), 40..=40)] {
        let (_, store) = store();
        let file = written(&store, &lens, group_bytes).await;
        let paged = PagedFile::open(store, Arc::clone(&file), &events(), &layout()).expect("opens");
        assert!(expected.contains(&groups(&paged)), "{group_bytes:?}: {}", groups(&paged));
        let mut next = 0;
        for batch in paged.rows(300).expect("a reader") {
            let batch = batch.expect("a batch");
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            let (names, bodies) =
                (batch.column(1).as_string_view(), batch.column(2).as_string_view());
            for row in 0..batch.num_rows() {
                assert_eq!(numbers.value(row), next);
                assert_eq!(names.value(row), format!("the name number {}", next % 5));
                let found = bodies.is_valid(row).then(|| bodies.value(row).to_owned());
                assert_eq!(found, body(next, 400), "{next}");
                next += 1;
            }
        }
        assert_eq!(next, 10_000);
    }
}

/// Goal: reading never loads a whole row group. Method: record the size of the largest read.
#[tokio::test]
async fn a_large_row_group_is_read_by_the_page() {
    let (measured, store) = store();
    let file = written(&store, &vec![1000; 8000], None).await;
    let paged = PagedFile::open(store, Arc::clone(&file), &events(), &layout()).expect("opens");
    assert_eq!(groups(&paged), 1);
    assert!(file.size_bytes > 4 << 20, "{file:?}");
    for batch in paged.rows(100).expect("a reader") {
        batch.expect("a batch");
    }
    let most = measured.most_read();
    assert!((1..512 << 10).contains(&most), "{most} bytes at once");
}

#[tokio::test]
async fn what_reading_takes_follows_from_pages_and_the_widest_rows() {
    let cost = async |lens: &[usize]| {
        let (_, store) = store();
        let file = written(&store, lens, None).await;
        PagedFile::open(store, file, &events(), &layout()).expect("opens").cost()
    };
    let narrow = cost(&vec![100; 20_000]).await;
    assert!((100..400).contains(&narrow.row_bytes), "{narrow:?}");
    // Twice as many rows take more disk space, but not more memory.
    let longer = cost(&vec![100; 40_000]).await;
    assert!(longer.pages_bytes < narrow.pages_bytes * 5 / 4, "{longer:?} {narrow:?}");
    assert!(longer.pages_bytes < 3 << 20, "{longer:?}");
    // A few wide rows among many: their pages determine the memory.
    let mut lens = vec![100; 20_000];
    lens[5000..5010].fill(200_000);
    let wide = cost(&lens).await;
    assert!((4_000..400_000).contains(&wide.row_bytes), "{wide:?}");
    assert!(wide.pages_bytes >= narrow.pages_bytes, "{wide:?}");
    let all_wide = cost(&[600_000; 16]).await;
    assert!((400_000..2_000_000).contains(&all_wide.row_bytes), "{all_wide:?}");
    assert!(all_wide.pages_bytes >= 1_200_000, "{all_wide:?}");
}

/// Memory of all buffers of the batches, each buffer counted once.
fn kept_bytes<'a>(batches: impl IntoIterator<Item = &'a RecordBatch>) -> u64 {
    let mut buffers = BTreeMap::new();
    for column in batches.into_iter().flat_map(RecordBatch::columns) {
        let data = column.to_data();
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in data.buffers().iter().chain(nulls) {
            buffers.insert(buffer.data_ptr(), buffer.capacity());
        }
    }
    buffers.values().map(|bytes| u64::try_from(*bytes).unwrap()).sum()
}

/// Goal: a merge takes no more memory than its estimate. Method: keep as many batches as a merge does, and
/// count their buffers.
#[tokio::test]
async fn batches_keep_no_more_memory_than_was_counted() {
    let mut few_wide = vec![100; 20_000];
    few_wide[5000..5010].fill(200_000);
    for (name, lens) in [
        ("narrow", vec![30; 40_000]),
        ("usual", vec![1000; 8000]),
        ("a few wide", few_wide),
        ("all wide", vec![600_000; 16]),
    ] {
        let (_, store) = store();
        let file = written(&store, &lens, None).await;
        let file = PagedFile::open(store, file, &events(), &layout()).expect("opens");
        let mut reading = Reading::new(Memory::of(1 << 40));
        assert!(reading.takes(file.cost()));
        let (mut last, mut most) = (VecDeque::new(), 0);
        for batch in file.rows(reading.batch_rows()).expect("a reader") {
            last.push_back(batch.expect("a batch"));
            if last.len() > 3 {
                last.pop_front();
            }
            most = most.max(kept_bytes(&last));
        }
        let counted = reading.memory_bytes();
        assert!(most <= counted, "{name}: {most} are kept and {counted} were counted");
        assert!(counted <= most * 10, "{name}: {counted} were counted and only {most} are kept");
    }
}

/// Old files lack columns that the table gained, and other engines write other types.
#[tokio::test]
async fn columns_become_those_of_the_table() {
    let (_, store) = store();
    let file = written(&store, &[20; 10], None).await;
    let table = schema(&[
        ("new", DataType::Float64),
        ("body", DataType::Utf8View),
        ("number", DataType::Int32),
    ]);
    let paged =
        PagedFile::open(Arc::clone(&store), Arc::clone(&file), &table, &layout()).expect("opens");
    let batches: Result<Vec<_>, _> = paged.rows(100).expect("a reader").collect();
    let [batch] = batches.expect("reads").try_into().expect("one batch");
    assert_eq!(batch.schema(), table);
    assert_eq!(batch.column(0).null_count(), 10);
    assert_eq!(batch.column(1).as_string_view().value(1), body(1, 20).unwrap());
    let numbers = Int32Array::from((0..10).collect::<Vec<i32>>());
    assert_eq!(batch.column(2).as_ref(), &numbers as &dyn Array);
    // A value that cannot be converted is an error, not NULL.
    let table = schema(&[("body", DataType::Int64)]);
    let paged = PagedFile::open(store, file, &table, &layout()).expect("opens");
    assert!(paged.rows(100).expect("a reader").any(|batch| batch.is_err()));
}

#[tokio::test]
async fn what_is_no_file_is_an_error() {
    let (_, store) = store();
    let file = written(&store, &[20; 10], None).await;
    let shorter = DataFile { size_bytes: file.size_bytes - 1, ..DataFile::clone(&file) };
    let missing = DataFile { path: "other.parquet".to_owned(), ..DataFile::clone(&file) };
    for file in [shorter, missing] {
        let opened = PagedFile::open(Arc::clone(&store), Arc::new(file), &events(), &layout());
        assert!(matches!(opened, Err(ParquetError::General(_) | ParquetError::External(_))));
    }
}
