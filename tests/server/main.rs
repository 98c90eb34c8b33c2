//! The one integration test: a real server process, asked over HTTP and the command line.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod capture;
mod crash;
mod feature_flags;
mod flags;
mod harness;
mod lifecycle;
mod sdk;
