//! Limits of questions.

use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::bytes;
use crate::config::bounds::number;
use crate::config::bounds::time;

/// Memory, time and number of queries.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryConfig {
    /// Threads that run queries [range: 1 to 1024] [default: one per core]
    #[arg(long, env = "WEIR_QUERY_THREADS", value_parser = number(1_usize, 1024))]
    pub query_threads: Option<usize>,
    /// Memory of all queries together for sorts, joins and groups; beyond it they spill. Values that
    /// functions make have half as much besides, and answers as much; beyond it queries are refused
    /// [range: 1MiB to 1PiB]
    #[arg(long, env = "WEIR_QUERY_MEMORY_MAX_BYTES", default_value = "256MiB", value_parser = bytes("1MiB", "1PiB"))]
    pub query_memory_max_bytes: ByteSize,
    /// Disk space of all queries together for what exceeds their memory; beyond it they are refused
    /// [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_QUERY_SPILL_MAX_BYTES", default_value = "16GiB", value_parser = bytes("0B", "1PiB"))]
    pub query_spill_max_bytes: ByteSize,
    /// Memory of properties of persons that are kept in columns for lists with filters; what does not
    /// fit is read from disk for each question [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_PERSON_COLUMNS_MEMORY_MAX_BYTES", default_value = "512MiB", value_parser = bytes("0B", "1PiB"))]
    pub person_columns_memory_max_bytes: ByteSize,
    /// Disk space of files that such columns are read from, but for the one that is being made; without
    /// room for more, persons are read one by one [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_PERSON_COLUMNS_DISK_MAX_BYTES", default_value = "16GiB", value_parser = bytes("0B", "1PiB"))]
    pub person_columns_disk_max_bytes: ByteSize,
    /// Persons from which a project has such files [range: 1 to 1000000000000]
    #[arg(long, env = "WEIR_PERSON_COLUMNS_PERSONS_MIN", default_value_t = 65_536, value_parser = number(1_u64, 1_000_000_000_000))]
    pub person_columns_persons_min: u64,
    /// Queries that run at once; further ones wait. SQL leaves one of them to lists, and one key may
    /// run less than half of them as SQL and as many lists [range: 1 to 10000]
    #[arg(long, env = "WEIR_QUERIES_MAX", default_value_t = 8, value_parser = number(1_usize, 10_000))]
    pub queries_max: usize,
    /// Longest time of a query [range: 100ms to 1d]
    #[arg(long, env = "WEIR_QUERY_TIMEOUT", default_value = "60s", value_parser = time("100ms", "1d"))]
    pub query_timeout: Duration,
    /// Most rows of an answer to SQL; a question with more is refused [range: 1 to 1000000000]
    #[arg(long, env = "WEIR_QUERY_ROWS_MAX", default_value_t = 50_000, value_parser = number(1_usize, 1_000_000_000))]
    pub query_rows_max: usize,
    /// Time between counts of the members of cohorts [range: 10ms to 30d]
    #[arg(long, env = "WEIR_COHORT_COUNT_INTERVAL", default_value = "15m", value_parser = time("10ms", "30d"))]
    pub cohort_count_interval: Duration,
}
