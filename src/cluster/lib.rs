//! Queries over several nodes; begin with [`node::Node`]. A server with workers (`coordinator`) plans a large query, and
//! DataFusion Distributed cuts the plan into stages, each of which several nodes execute as tasks; rows pass between them.
//! A node executes tasks behind a port (`service`), and holds no state for it but caches.
//!
//! A task reads files of events by their names, so that all tasks of a query see one version of the table; the newest
//! events, which are in the memory of the server, are read by the server's own task. What a plan consists of is written and
//! read by `codec`, over the contents of our operators and functions ([`weir_query::fragments`]).
//!
//! Nobody executes anything, or learns anything, without the secret that all nodes share (`secret`). A failure costs
//! time, never an answer: the query runs again, in the end on the server alone.

mod channels;
mod codec;
mod coordinator;
pub mod error;
pub mod members;
pub mod node;
mod secret;
mod service;
mod sound;
mod split;
mod tasks;
