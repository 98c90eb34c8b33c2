//! The read path's kernel: DataFusion over one snapshot.
//!
//! [`kernel::engine::Engine::view`] returns a consistent snapshot for one reader: the tables of one project with every
//! event that was acknowledged before the call. A [`kernel::view::View`] plans; the engine runs plans on the query
//! threads, with limits of memory, time and concurrency (`kernel::admission`, `guard`, `kernel::run`). Out of scope
//! here: JSON shapes, HTTP, product rules.

pub mod dialect;
pub mod events;
pub mod filter;
pub mod fragments;
pub mod functions;
pub mod guard;
pub mod kernel;
pub mod output;
pub mod persons;
