//! Storage engine: write-ahead log, memtables, Parquet files, Delta tables. It knows rows and schemas, not
//! events.

pub mod cached;
pub mod checksums;
pub mod compaction;
pub mod copy;
pub mod delta;
pub mod disk;
pub mod durable;
pub mod exact;
#[cfg(test)]
mod faulty_store;
pub mod images;
pub mod log;
pub mod memtable;
pub mod naming;
pub mod object_log;
pub mod overlay;
pub mod parquet;
pub mod probe;
pub mod remote;
pub mod rows;
pub mod scratch;
pub mod sort;
pub mod store;
pub mod tables;
pub mod wal;
