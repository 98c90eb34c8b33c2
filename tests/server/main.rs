//! The one integration test: a real server process, asked over HTTP and the command line.

mod capture;
mod crash;
mod harness;
mod lifecycle;
mod sdk;
