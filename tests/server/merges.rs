//! Memory of merges of files, measured with events like those of SDKs.

use std::sync::Arc;

use clap::Parser;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use weir::synth;
use weir_app::tables::{events_layout, events_spec};
use weir_base::clock::UnixMicros;
use weir_base::config::storage::StorageConfig;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;
use weir_ingest::prepare::Preparer;
use weir_ingest::project_facts::ProjectFacts;
use weir_ingest::request::{Protocol, Received, Rules};
use weir_storage::compaction::{Memory, Reading};
use weir_storage::exact::ExactColumns;
use weir_storage::parquet::pages::PagedFile;
use weir_storage::parquet::{Effort, FileWriter};
use weir_storage::rows::Rows;

/// 2025-11-21T08:00:00Z.
const NOW: UnixMicros = UnixMicros(1_763_712_000_000_000);

/// Enough rows to fill pages of every kind.
const BATCHES: usize = 20;
const BATCH_EVENTS: usize = 500;

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    storage: StorageConfig,
}

/// Goal: events are merged once, and not two files at a time with each row rewritten again and again.
/// Method: compare the memory that a flushed file needs in a merge with the default of
/// `compaction-memory-max-bytes`.
#[tokio::test]
async fn the_memory_of_a_merge_is_enough_for_many_flushes() {
    let (spec, layout) = (events_spec(), events_layout());
    let schema = Arc::clone(&spec.schema);
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let name = "flush.parquet";
    let mut writer = FileWriter::new(&store, &spec, &layout, Effort::Flush, None, name).unwrap();
    let mut stream = synth::Stream::new(1, synth::Settings::new("phc_a", NOW));
    let project = |_: &str| {
        Some(ProjectFacts {
            id: ProjectId(1),
            group_types: Vec::new(),
            anonymize_ips: false,
            places: Places::Unknown,
        })
    };
    let received = Received {
        at: NOW,
        client_ip: None,
        protocol: Protocol::default(),
        seed: 1,
        skew_ignored_millis: 0,
        event_max_bytes: 1 << 20,
        rules: Rules::default(),
    };
    let preparer = Preparer::default();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    for _ in 0..BATCHES {
        let body = stream.batch(BATCH_EVENTS).body;
        let prepared = preparer.prepare(body, &received, &project).unwrap();
        let (len, columns) = (prepared.rows, prepared.columns);
        let rows =
            Rows { len, columns, memory_bytes: 0, runs: Vec::new(), exact: ExactColumns::ALL };
        writer.write(&rows.to_batch(&schema, &all).unwrap()).await.unwrap();
    }
    let file = Arc::new(writer.finish().await.unwrap());
    let cost = PagedFile::open(store, file, &schema, &layout).unwrap().cost();
    let memory_bytes = Defaults::parse_from(["weir"]).storage.compaction_memory_max_bytes;
    let mut reading = Reading::new(Memory::of(memory_bytes.as_u64()));
    let files = (0..100).take_while(|_| reading.takes(cost)).count();
    assert!(files >= 14, "{files} files: {cost:?}");
}
