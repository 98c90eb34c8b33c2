//! Storage: the log, the memtable, the tables. Knows rows and schemas, not events.

pub mod checksums;
pub mod compaction;
pub mod delta;
pub mod disk;
pub mod durable;
pub mod memtable;
pub mod naming;
pub mod parquet;
pub mod progress;
pub mod rows;
pub mod sort;
#[cfg(test)]
mod spied;
pub mod store;
pub mod wal;
