//! Storage engine: write-ahead log, memtables, Parquet files, Delta tables. It knows rows and schemas, not
//! events.
//!
//! Begin with [`store`], which holds one table: rows go into a memtable ([`memtable`]), memtables become files ([`parquet`])
//! and one commit in the table's log ([`delta`]). [`wal`] is the log of records that are not in files yet, [`object_log`] the
//! same in a bucket, [`tables`] says where everything is. All access to the file system goes through the crate `weir-disk`.

pub mod cached;
pub mod checksums;
pub mod compaction;
pub mod copy;
pub mod delta;
pub mod derived;
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
