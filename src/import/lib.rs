//! Import: what other systems export, read as a stream and mapped to events in the shape of capture.
//!
//! [`files`] finds the files, [`read`](mod@read) takes them apart into rows (compression, archives, JSON, CSV, Parquet)
//! in bounded memory, and a [`mapping::Source`] maps a row to events: one file in `source/` for each system.
//! What may not live here: the network, the clock, what is remembered of an import between two runs. Those are of the
//! command (`cli/import.rs`).
//!
//! The id of an event is a function of its row ([`ids`]), so that an import can be repeated and exports may overlap.

pub mod event;
pub mod files;
pub mod ids;
mod json_text;
pub mod mapping;
pub mod moment;
pub mod object;
pub mod posthog_files;
pub mod read;
pub mod refusal;
pub mod source;
