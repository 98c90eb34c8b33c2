//! Futures that a member hands out: [`boxed`], [`boxed_local`].
//!
//! The body of an async function is compiled by each member that polls it, with all that it polls itself: one `await` of a
//! query would compile DataFusion's planner of SQL once more, one of the metadata the drivers of both databases. What has
//! that much behind it is no async function, but one that gives a boxed future; its caller gets a pointer.

use std::future::Future;

use futures::future::{BoxFuture, LocalBoxFuture};

/// `future` behind a pointer, compiled in the member that calls this.
// Not inlined: a function of few instructions without a call is compiled by its callers after all.
#[inline(never)]
pub fn boxed<'f, T>(future: impl Future<Output = T> + Send + 'f) -> BoxFuture<'f, T> {
    Box::pin(future)
}

/// The same for a future that stays on one thread.
#[inline(never)]
pub fn boxed_local<'f, T>(future: impl Future<Output = T> + 'f) -> LocalBoxFuture<'f, T> {
    Box::pin(future)
}
