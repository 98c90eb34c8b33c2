//! Copies a project of PostHog or Weir into a project of Weir, over the APIs of both.
//!
//! [`run::run`] is the whole copy: one step after the other, each in a file of `steps`. A step lists the objects of the
//! source ([`pages`]), rewrites what they refer to by the map of ids ([`references`], [`state`]), finds or makes them in the
//! target ([`objects`]), and notes in the [`report`] what could not come, with the reason. Objects that refer to each
//! other are made in an [`order`].
//!
//! Persons and groups are sent as events that are not stored, and events as rows that change no person (`import` of
//! capture), so that a person is in the end what it was in the source, whatever the order of its events.
//!
//! A copy may be repeated: what is in the target already is found by the stored map of ids, or by its key, name or
//! content, and is left as it is.
//!
//! The HTTP client is passed in ([`server::Http`]) and has the key; nothing here knows it. What may not live here:
//! sockets, files, arguments.

pub mod batches;
pub mod fault;
pub mod likeness;
pub mod objects;
pub mod order;
pub mod pages;
pub mod references;
pub mod report;
pub mod run;
pub mod server;
pub mod state;
mod steps;
pub mod transfer;
