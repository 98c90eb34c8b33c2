//! Limits of queries: memory, disk, concurrency, time, rows.

use std::time::Duration;

use bytesize::ByteSize;

use crate::config::bounds::{bytes, number, time};

/// Memory, disk space, time and number of queries.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryConfig {
    /// Threads that run queries [range: 1 to 1024] [default: one per core]
    #[arg(long, env = "WEIR_QUERY_THREADS", value_parser = number(1_usize, 1024))]
    pub query_threads: Option<usize>,
    /// Memory of all queries together for sorts, joins and groups; queries that need more spill to disk.
    /// Values that functions produce may take half as much in addition, and results and windows as much
    /// again; queries that need more of either are refused [range: 1MiB to 1PiB]
    #[arg(long, env = "WEIR_QUERY_MEMORY_MAX_BYTES", default_value = "256MiB", value_parser = bytes("1MiB", "1PiB"))]
    pub query_memory_max_bytes: ByteSize,
    /// Disk space of all queries together for data that does not fit into `query-memory-max-bytes`; queries
    /// that need more are refused [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_QUERY_SPILL_MAX_BYTES", default_value = "16GiB", value_parser = bytes("0B", "1PiB"))]
    pub query_spill_max_bytes: ByteSize,
    /// Memory for cached columns of the persons table, by which persons are filtered; what does not fit is read from
    /// its files for each query [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_PERSON_COLUMNS_MEMORY_MAX_BYTES", default_value = "512MiB", value_parser = bytes("0B", "1PiB"))]
    pub person_columns_memory_max_bytes: ByteSize,
    /// Memory for cached results of insights, SQL nodes and lists, which are returned again while nothing that they
    /// depend on has changed; with 0B nothing is cached [range: 0B to 1PiB]
    #[arg(long, env = "WEIR_INSIGHT_CACHE_MAX_BYTES", default_value = "32MiB", value_parser = bytes("0B", "1PiB"))]
    pub insight_cache_max_bytes: ByteSize,
    /// Queries that run at once; further queries wait. SQL queries leave one slot to lists of persons, and
    /// one personal API key may use less than half of the slots for SQL and as many for lists [range: 1 to
    /// 10000]
    #[arg(long, env = "WEIR_QUERIES_MAX", default_value_t = 8, value_parser = number(1_usize, 10_000))]
    pub queries_max: usize,
    /// Longest time of a query; longer queries are stopped [range: 100ms to 1d]
    #[arg(long, env = "WEIR_QUERY_TIMEOUT", default_value = "60s", value_parser = time("100ms", "1d"))]
    pub query_timeout: Duration,
    /// Longest time of a query whose result is sent while it is computed, with the time that the client takes to read
    /// it; `query-timeout` limits the time to each part of its rows. Too small breaks off long files, too large lets
    /// slow clients hold slots for queries [range: 100ms to 1d]
    #[arg(long, env = "WEIR_QUERY_STREAM_TIMEOUT", default_value = "1h", value_parser = time("100ms", "1d"))]
    pub query_stream_timeout: Duration,
    /// Most rows of an SQL result as JSON or as a table; a query with more rows is refused. Files (`csv`, `jsonl`,
    /// `parquet`, `arrow`) have any number of rows [range: 1 to 1000000000]
    #[arg(long, env = "WEIR_QUERY_ROWS_MAX", default_value_t = 50_000, value_parser = number(1_usize, 1_000_000_000))]
    pub query_rows_max: usize,
    /// Time between counts of the members of cohorts that have a rule, and between evaluations of cohorts by
    /// events. Too small runs queries all the time, too large shows outdated sizes [range: 10ms to 30d]
    #[arg(long, env = "WEIR_COHORT_COUNT_INTERVAL", default_value = "15m", value_parser = time("10ms", "30d"))]
    pub cohort_count_interval: Duration,
}
