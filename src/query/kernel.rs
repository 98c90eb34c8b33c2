//! Admission, planning and execution of queries: begin with [`engine`] and [`view`].

pub mod admission;
pub(super) mod apart;
pub(super) mod cacheable;
pub(super) mod damage;
pub mod distribution;
pub mod engine;
pub mod error;
pub(super) mod explain;
pub mod files;
pub(super) mod footers;
pub mod interner;
pub(super) mod lineage;
pub(super) mod planners;
pub mod prepared;
pub(super) mod ranges;
pub(super) mod rewritten;
pub mod run;
pub(super) mod session;
pub mod slice;
pub mod sources;
pub(super) mod sparing;
pub(super) mod spill;
pub(super) mod type_text;
pub mod usage;
pub mod view;
