//! A flag for work on a thread whose result nobody waits for any more: [`StopOnDrop`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is set when this is dropped.
#[derive(Default)]
pub(crate) struct StopOnDrop(pub(crate) Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
