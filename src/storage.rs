//! Storage engine: write-ahead log, memtables, Parquet files, Delta tables. It knows rows and schemas, not
//! events.

pub mod checksums;
pub mod compaction;
pub mod delta;
pub mod disk;
pub mod durable;
pub mod exact;
#[cfg(test)]
mod faulty_store;
pub mod memtable;
pub mod naming;
pub mod parquet;
pub mod progress;
pub mod rows;
pub mod sort;
pub mod store;
pub mod table_directory;
pub mod wal;
