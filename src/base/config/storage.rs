//! Settings of the write-ahead log, the memtables and the Delta tables.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::{bytes, number, time};
use crate::config::bucket::BucketConfig;

/// Directory, sizes and intervals.
#[derive(Clone, Debug, clap::Args)]
pub struct StorageConfig {
    /// Directory of the log, the tables (unless `storage-url` names a bucket), the persons and the metadata;
    /// created if missing
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "./weir-data")]
    pub data_dir: PathBuf,
    /// A bucket for the tables.
    #[command(flatten)]
    pub bucket: BucketConfig,
    /// Size at which a segment of the write-ahead log is closed and the next one begins; while syncs are
    /// small, one spare segment is kept in addition [range: 32KiB to 16GiB]
    #[arg(long, env = "WEIR_WAL_SEGMENT_MAX_BYTES", default_value = "64MiB", value_parser = bytes("32KiB", "16GiB"))]
    pub wal_segment_max_bytes: ByteSize,
    /// Size of the write-ahead log at which capture answers 503 until a flush has shortened it; at least
    /// twice `wal-segment-max-bytes` [range: 128KiB to 1PiB]
    #[arg(long, env = "WEIR_WAL_MAX_BYTES", default_value = "4GiB", value_parser = bytes("128KiB", "1PiB"))]
    pub wal_max_bytes: ByteSize,
    /// Memory of the active memtable at which it is frozen and flushed to Parquet. Too small writes many
    /// small files, too large takes memory and makes the replay after a crash longer [range: 64KiB to
    /// 64GiB]
    #[arg(long, env = "WEIR_MEMTABLE_MAX_BYTES", default_value = "64MiB", value_parser = bytes("64KiB", "64GiB"))]
    pub memtable_max_bytes: ByteSize,
    /// Age of the oldest event of the active memtable at which it is flushed to Parquet. Too small writes
    /// many small files, too large delays events for other engines [range: 10ms to 1d]
    #[arg(long, env = "WEIR_MEMTABLE_MAX_AGE", default_value = "60s", value_parser = time("10ms", "1d"))]
    pub memtable_max_age: Duration,
    /// Frozen memtables of `memtable-max-bytes` each that may wait for their flush; when that many wait and
    /// the active memtable is full, capture answers 503 [range: 1 to 64]
    #[arg(long, env = "WEIR_FROZEN_MEMTABLES_MAX", default_value_t = 1, value_parser = number(1_usize, 64))]
    pub frozen_memtables_max: usize,
    /// Free disk space below which capture answers 503 [range: 0B to 8EiB]
    #[arg(long, env = "WEIR_DISK_FREE_MIN_BYTES", default_value = "256MiB", value_parser = bytes("0B", "8EiB"))]
    pub disk_free_min_bytes: ByteSize,
    /// Time between checks for small files to merge [range: 10ms to 1d]
    #[arg(long, env = "WEIR_COMPACTION_INTERVAL", default_value = "30s", value_parser = time("10ms", "1d"))]
    pub compaction_interval: Duration,
    /// Minimum number of files in one merge, all of one partition and of similar size. Fewer are merged if
    /// together they have twice `compaction-target-bytes`. Too small rewrites events more often, too large
    /// leaves many files for queries to open [range: 2 to 10000]
    #[arg(long, env = "WEIR_COMPACTION_FILES_MIN", default_value_t = 16, value_parser = number(2_usize, 10_000))]
    pub compaction_files_min: usize,
    /// Size from which a file is not merged any further. Too small leaves many files for queries to open,
    /// too large rewrites events more often [range: 64KiB to 16GiB]
    #[arg(long, env = "WEIR_COMPACTION_TARGET_BYTES", default_value = "64MiB", value_parser = bytes("64KiB", "16GiB"))]
    pub compaction_target_bytes: ByteSize,
    /// Memory of one merge: pages that are read and the row group that is written. It bounds how many files
    /// are merged at once; two files are merged in any case [range: 1MiB to 1TiB]
    #[arg(long, env = "WEIR_COMPACTION_MEMORY_MAX_BYTES", default_value = "192MiB", value_parser = bytes("1MiB", "1TiB"))]
    pub compaction_memory_max_bytes: ByteSize,
    /// Longest time until files that contain deleted events, events older than their project keeps them, or
    /// deleted person properties are rewritten; responses omit them at once. Too small rewrites files more
    /// often, too large keeps deleted data on disk longer [range: 10ms to 30d]
    #[arg(long, env = "WEIR_DELETION_INTERVAL", default_value = "1h", value_parser = time("10ms", "30d"))]
    pub deletion_interval: Duration,
    /// Age at which files that a merge replaced are removed, once no query of this server reads them any more. Too
    /// small takes files from other engines that still read them, too large takes disk space [range: 100ms to 1d]
    #[arg(long, env = "WEIR_VACUUM_GRACE", default_value = "10m", value_parser = time("100ms", "1d"))]
    pub vacuum_grace: Duration,
    /// Age at which a file of persons, or of their distinct ids, is rewritten, if one in 64 has changed, or any of at
    /// most 16384, or if it lacks the column of a promoted property; other files are rewritten after half of
    /// `deletion-interval`, and those of distinct ids after six times this, if that is less [range: 10ms to 30d]
    #[arg(long, env = "WEIR_PERSONS_TABLE_INTERVAL", default_value = "5m", value_parser = time("10ms", "30d"))]
    pub persons_table_interval: Duration,
}
