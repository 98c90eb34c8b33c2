//! The one integration test: a real server process, asked over HTTP and the command line.

mod capture;
mod crash;
mod feature_flags;
mod harness;
mod lifecycle;
mod sdk;
