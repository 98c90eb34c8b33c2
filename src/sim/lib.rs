//! What tests use in place of the world: a [`disk`] that loses what was not synced, and [`mmdb`], GeoIP databases
//! written byte by byte. Only `[dev-dependencies]` name this crate; nothing of it is in the program.

pub mod disk;
pub mod mmdb;
