//! Benchmark of each stage of the write path, per event.
//!
//! `cargo bench --bench ingest`. Every group reports elements per second. An element is one event
//! of the synthetic mix of SDK traffic in `weir::synth` (about 1,100 bytes of JSON), so 1 Melem/s
//! is 1 us per event. All stages run on one thread.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a bench that cannot go on has nothing to report"
)]

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use flate2::Compression;
use flate2::write::GzEncoder;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use parquet::errors::ParquetError;
use serde_json::Value as Json;
use weir::synth::{Settings, Stream};
use weir_app::tables::{events_layout, events_spec};
use weir_base::clock::UnixMicros;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;
use weir_event::schema::{PROMOTED, SORT_COLUMNS, events_schema};
use weir_ingest::definitions::collect::{Collector, Track};
use weir_ingest::log_record::LogRecord;
use weir_ingest::prepare::Preparer;
use weir_ingest::prepared::Prepared;
use weir_ingest::project_facts::ProjectFacts;
use weir_ingest::request::{Protocol, Received, Rules};
use weir_ingest::tape::{Scratch, Value};
use weir_storage::delta::TableSpec;
use weir_storage::exact::ExactColumns;
use weir_storage::memtable::Memtable;
use weir_storage::parquet::{Effort, FileWriter};
use weir_storage::rows::Rows;
use weir_storage::sort;
use weir_storage::wal::Sequence;
use weir_wire::encoding::Decoder;
use weir_wire::encoding::hints::{Hints, PathKind};

const TOKEN: &str = "phc_bench";
/// Events in a body, as in the batches of busy servers.
const BATCH_EVENTS: usize = 500;
/// Bodies in the memtable that is written to a file: 50,000 rows.
const MEMTABLE_BATCHES: u64 = 100;
/// Rows that the flush gathers at once.
const GATHER_ROWS: usize = 2048;
/// Largest event and body of the default configuration.
const EVENT_MAX_BYTES: u32 = 1 << 20;
const BODY_MAX_BYTES: u64 = 100 << 20;
/// 2026-11-21T08:00:00Z.
const NOW: UnixMicros = UnixMicros(1_795_248_000_000_000);

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
        .configure_from_args();
    let body = stream().batch(BATCH_EVENTS).body;
    bodies(&mut criterion, &body);
    columns(&mut criterion, &body);
    definitions(&mut criterion, &body);
    log(&mut criterion, &body);
    files(&mut criterion);
    criterion.final_summary();
}

fn stream() -> Stream {
    Stream::new(1, Settings::new(TOKEN, NOW))
}

fn elements(count: usize) -> Throughput {
    Throughput::Elements(u64::try_from(count).expect("small"))
}

fn received() -> Received {
    Received {
        at: NOW,
        client_ip: Some([203, 0, 113, 7].into()),
        protocol: Protocol::default(),
        seed: 1,
        skew_ignored_millis: 0,
        event_max_bytes: EVENT_MAX_BYTES,
        rules: Rules::default(),
    }
}

fn project(token: &str) -> Option<ProjectFacts> {
    let group_types = vec!["company".to_owned()];
    (token == TOKEN).then_some(ProjectFacts {
        id: ProjectId(1),
        group_types,
        anonymize_ips: false,
        places: Places::Unknown,
    })
}

fn prepare(preparer: &Preparer, body: Vec<u8>) -> Prepared {
    preparer.prepare(body, &received(), &project).expect("synth writes valid bodies")
}

/// From the received bytes to the bytes of JSON, and from those to a tape.
fn bodies(criterion: &mut Criterion, body: &[u8]) {
    let mut group = criterion.benchmark_group("body");
    group.throughput(elements(BATCH_EVENTS));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("memory takes it");
    let packed = Bytes::from(encoder.finish().expect("memory takes it"));
    let hints = Hints::new("", None, Some(b"gzip"), PathKind::Modern);
    let mut decoder = Decoder::new();
    group.bench_function("gzip decode", |bencher| {
        bencher.iter(|| {
            let decoded = decoder.decode(packed.clone(), &hints, BODY_MAX_BYTES);
            let decoded = decoded.expect("it is gzip").into_vec();
            assert_eq!(decoded.len(), body.len());
            decoded
        });
    });
    let mut scratch = Scratch::default();
    group.bench_function("parse", |bencher| {
        bencher.iter(|| scratch.parse(black_box(body), |root| root.offset()));
    });
    group.finish();
}

/// A parsed property.
type Property<'a> = (&'a str, Track, Value<'a>);

/// From parsed properties to updates of definitions.
fn definitions(criterion: &mut Criterion, body: &[u8]) {
    let batch: Json = serde_json::from_slice(body).expect("JSON");
    let events = batch["batch"].as_array().expect("a batch");
    let track = |key: &str| match PROMOTED.iter().position(|(known, _)| *known == key) {
        Some(slot) => Track::Slot(u8::try_from(slot).expect("few")),
        None => Track::Name,
    };
    let events: Vec<(Cow<'_, str>, Vec<Property<'_>>)> = events
        .iter()
        .map(|event| {
            let properties = event["properties"].as_object().expect("an object");
            let read =
                properties.iter().map(|(key, value)| (key.as_str(), track(key), read(value)));
            (Cow::Borrowed(event["event"].as_str().expect("a name")), read.collect())
        })
        .collect();
    let hasher = foldhash::fast::RandomState::default();
    let mut group = criterion.benchmark_group("definitions");
    group.throughput(elements(BATCH_EVENTS));
    group.bench_function("collect", |bencher| {
        bencher.iter(|| {
            let mut collector = Collector::new(NOW);
            for (name, properties) in black_box(&events) {
                for (key, track, value) in properties {
                    let hash = if *track == Track::Name { hasher.hash_one(key) } else { 0 };
                    collector.property(key, hash, *track, *value);
                }
                collector.commit(name.clone());
            }
            collector.finish()
        });
    });
    group.finish();
}

fn read(value: &Json) -> Value<'_> {
    match value {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Boolean(*truth),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Integer(number),
            None => Value::Number(number.as_f64().expect("a number")),
        },
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::Container { is_object: false, len: items.len() },
        Json::Object(members) => Value::Container { is_object: true, len: members.len() },
    }
}

/// From the bytes of JSON to columns, including the parse.
fn columns(criterion: &mut Criterion, body: &[u8]) {
    let preparer = Preparer::default();
    assert_eq!(prepare(&preparer, body.to_vec()).rows, BATCH_EVENTS);
    let mut group = criterion.benchmark_group("prepare");
    group.throughput(elements(BATCH_EVENTS));
    group.bench_function("body to columns", |bencher| {
        let copy = || body.to_vec();
        bencher.iter_batched(copy, |body| prepare(&preparer, body), BatchSize::LargeInput);
    });
    // The slow path: one event that the parser rejects.
    let mut damaged = body.to_vec();
    let batch = b"\"batch\":[";
    let at = damaged.windows(batch.len()).position(|window| window == batch);
    let at = at.expect("synth sends a batch") + batch.len();
    damaged.splice(at..at, *b"{\"event\":01},");
    assert_eq!(prepare(&preparer, damaged.clone()).rows, BATCH_EVENTS);
    group.bench_function("body with an unreadable event to columns", |bencher| {
        let copy = || damaged.clone();
        bencher.iter_batched(copy, |body| prepare(&preparer, body), BatchSize::LargeInput);
    });
    group.finish();
}

/// From a plain body to its log record; nearly all of the cost is LZ4.
fn log(criterion: &mut Criterion, body: &[u8]) {
    let envelope = LogRecord {
        project: ProjectId(1),
        received: received(),
        anonymize_ips: false,
        places: Vec::new(),
        hints: Hints::default(),
        body: Bytes::copy_from_slice(body),
    };
    let (head, packed) = envelope.encode();
    let record = [&head[..], &packed[..]].concat();
    let mut group = criterion.benchmark_group("log");
    group.throughput(elements(BATCH_EVENTS));
    group.bench_function("encode a record", |bencher| bencher.iter(|| envelope.encode()));
    group.bench_function("decode a record", |bencher| {
        let copy = || record.clone();
        bencher.iter_batched(copy, LogRecord::decode, BatchSize::LargeInput);
    });
    group.finish();
}

async fn write_rows(file: &mut FileWriter, rows: &[RecordBatch]) -> Result<(), ParquetError> {
    for batch in rows {
        file.write(batch).await?;
    }
    Ok(())
}

/// From a memtable to a Parquet file in memory, step by step.
fn files(criterion: &mut Criterion) {
    let preparer = Preparer::default();
    let mut stream = stream();
    let mut memtable = Memtable::default();
    for sequence in 1..=MEMTABLE_BATCHES {
        let prepared = prepare(&preparer, stream.batch(BATCH_EVENTS).body);
        let Prepared { rows: len, columns, memory_bytes, .. } = prepared;
        let rows = Rows { len, columns, memory_bytes, runs: Vec::new(), exact: ExactColumns::ALL };
        memtable.insert(rows, Sequence(sequence), Duration::ZERO).expect("columns fit");
    }
    let batches = memtable.batches();
    let schema = events_schema();
    let places = sort::sorted(batches, &SORT_COLUMNS).expect("columns fit");
    let gather = sort::Gather::new(batches, &schema);
    let positions = || 0..schema.fields().len();
    let column = |position: usize| {
        let parts = places.chunks(GATHER_ROWS);
        let gather = &gather;
        parts.map(move |places| gather.column(position, places))
    };
    let rows = |places: &[sort::RowPosition]| {
        let columns = positions().map(|position| gather.column(position, places));
        let columns = columns.collect::<Result<Vec<_>, _>>().expect("columns fit");
        RecordBatch::try_new(Arc::clone(&schema), columns).expect("columns fit")
    };
    let sorted: Vec<RecordBatch> = places.chunks(GATHER_ROWS).map(rows).collect();

    let mut group = criterion.benchmark_group("flush");
    group.sample_size(10).throughput(elements(memtable.rows()));
    group.bench_function("sort", |bencher| bencher.iter(|| sort::sorted(batches, &SORT_COLUMNS)));
    group.bench_function("gather", |bencher| {
        bencher.iter(|| positions().flat_map(column).filter(Result::is_ok).count());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let layout = events_layout();
    let spec = TableSpec { partition_column: None, ..events_spec() };
    let efforts = [("gather and encode", Effort::Flush), ("encode as a merge does", Effort::Merge)];
    for (name, effort) in efforts {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
                let write = async {
                    let name = "bench.parquet";
                    let mut file = FileWriter::new(&store, &spec, &layout, effort, None, name)?;
                    match effort {
                        Effort::Flush => file.write_group(places.len(), column).await?,
                        Effort::Merge => write_rows(&mut file, &sorted).await?,
                    }
                    file.finish().await
                };
                runtime.block_on(write).expect("memory takes it")
            });
        });
    }
    group.finish();
}
