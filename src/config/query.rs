//! Limits of questions.

use std::time::Duration;

use bytesize::ByteSize;

/// Memory, time and number of queries.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryConfig {
    /// Threads that run queries [default: one per core]
    #[arg(long, env = "WEIR_QUERY_THREADS")]
    pub query_threads: Option<usize>,
    /// Memory of all queries together for sorts, joins and aggregates; beyond it they spill
    #[arg(long, env = "WEIR_QUERY_MEMORY_MAX_BYTES", default_value = "256MiB")]
    pub query_memory_max_bytes: ByteSize,
    /// Memory of properties of persons that are kept in columns for lists with filters; what does not fit is read from disk for each question
    #[arg(long, env = "WEIR_PERSON_COLUMNS_MEMORY_MAX_BYTES", default_value = "512MiB")]
    pub person_columns_memory_max_bytes: ByteSize,
    /// Disk space of files that such columns are read from, but for the one that is being made; without room for more, persons are read one by one
    #[arg(long, env = "WEIR_PERSON_COLUMNS_DISK_MAX_BYTES", default_value = "16GiB")]
    pub person_columns_disk_max_bytes: ByteSize,
    /// Persons from which a project has such files
    #[arg(long, env = "WEIR_PERSON_COLUMNS_PERSONS_MIN", default_value_t = 65_536)]
    pub person_columns_persons_min: u64,
    /// Queries that run at once; further ones wait
    #[arg(long, env = "WEIR_QUERIES_MAX", default_value_t = 8)]
    pub queries_max: usize,
    /// Longest time of a query
    #[arg(long, env = "WEIR_QUERY_TIMEOUT", default_value = "60s", value_parser = humantime::parse_duration)]
    pub query_timeout: Duration,
    /// Most rows of an answer to SQL; a question with more is refused
    #[arg(long, env = "WEIR_QUERY_ROWS_MAX", default_value_t = 50_000)]
    pub query_rows_max: usize,
    /// Time between counts of the members of cohorts
    #[arg(long, env = "WEIR_COHORT_COUNT_INTERVAL", default_value = "15m", value_parser = humantime::parse_duration)]
    pub cohort_count_interval: Duration,
}
