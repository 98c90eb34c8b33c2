//! Settings of the log, the memtable and the tables.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::bytes;
use crate::config::bounds::number;
use crate::config::bounds::time;

/// Directories, sizes and ages of what is kept.
#[derive(Clone, Debug, clap::Args)]
pub struct StorageConfig {
    /// Directory of the log, the tables and the metadata; created if missing
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// Size at which a segment of the log is closed and a new one begun; while syncs are small, one
    /// more is kept in stock [range: 32KiB to 16GiB]
    #[arg(long, env = "WEIR_WAL_SEGMENT_MAX_BYTES", default_value = "64MiB", value_parser = bytes("32KiB", "16GiB"))]
    pub wal_segment_max_bytes: ByteSize,
    /// Size of the whole log beyond which capture answers 503 until a flush has caught up [range:
    /// 128KiB to 1PiB]
    #[arg(long, env = "WEIR_WAL_MAX_BYTES", default_value = "4GiB", value_parser = bytes("128KiB", "1PiB"))]
    pub wal_max_bytes: ByteSize,
    /// Memory of the active memtable at which it is frozen and flushed to Parquet [range: 64KiB to
    /// 64GiB]
    #[arg(long, env = "WEIR_MEMTABLE_MAX_BYTES", default_value = "64MiB", value_parser = bytes("64KiB", "64GiB"))]
    pub memtable_max_bytes: ByteSize,
    /// Age of the oldest event of the active memtable at which it is flushed [range: 10ms to 1d]
    #[arg(long, env = "WEIR_MEMTABLE_MAX_AGE", default_value = "60s", value_parser = time("10ms", "1d"))]
    pub memtable_max_age: Duration,
    /// Frozen memtables that may wait for their flush; with more, capture answers 503 [range: 1 to 64]
    #[arg(long, env = "WEIR_FROZEN_MEMTABLES_MAX", default_value_t = 1, value_parser = number(1_usize, 64))]
    pub frozen_memtables_max: usize,
    /// Free disk space below which capture answers 503 [range: 0B to 8EiB]
    #[arg(long, env = "WEIR_DISK_FREE_MIN_BYTES", default_value = "256MiB", value_parser = bytes("0B", "8EiB"))]
    pub disk_free_min_bytes: ByteSize,
    /// Time between looks for small files to merge [range: 10ms to 1d]
    #[arg(long, env = "WEIR_COMPACTION_INTERVAL", default_value = "30s", value_parser = time("10ms", "1d"))]
    pub compaction_interval: Duration,
    /// Files of one partition that are merged at once, at least, unless they come to a file that is not
    /// merged any further [range: 2 to 10000]
    #[arg(long, env = "WEIR_COMPACTION_FILES_MIN", default_value_t = 16, value_parser = number(2_usize, 10_000))]
    pub compaction_files_min: usize,
    /// Size from which a file is not merged any further [range: 64KiB to 16GiB]
    #[arg(long, env = "WEIR_COMPACTION_TARGET_BYTES", default_value = "64MiB", value_parser = bytes("64KiB", "16GiB"))]
    pub compaction_target_bytes: ByteSize,
    /// Memory of a merge of files: what it reads at once and what it packs; two files are merged in any
    /// case [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_COMPACTION_MEMORY_MAX_BYTES", default_value = "192MiB", value_parser = bytes("1MiB", "1TiB"))]
    pub compaction_memory_max_bytes: ByteSize,
    /// Longest time until files are written anew without events and properties of persons that were
    /// deleted; no answer has these from the start [range: 10ms to 30d]
    #[arg(long, env = "WEIR_DELETION_INTERVAL", default_value = "1h", value_parser = time("10ms", "30d"))]
    pub deletion_interval: Duration,
    /// Age at which files that a compaction replaced are removed [range: 100ms to 1d]
    #[arg(long, env = "WEIR_VACUUM_GRACE", default_value = "10m", value_parser = time("100ms", "1d"))]
    pub vacuum_grace: Duration,
    /// Time between copies of the persons into their Delta table, if any changed; at least nine times
    /// what the last one took [range: 10ms to 30d]
    #[arg(long, env = "WEIR_PERSONS_TABLE_INTERVAL", default_value = "5m", value_parser = time("10ms", "30d"))]
    pub persons_table_interval: Duration,
}
