//! [`Hurry`]: lets the writer wait for a larger batch, until a reader waits for a record.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes the writer from its wait for more records.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    requested: Mutex<bool>,
    wakeup: Condvar,
}

impl Hurry {
    pub(super) fn ask(&self) {
        *self.requested.lock() = true;
        self.wakeup.notify_one();
    }

    /// A request made during the previous wait may end this wait at once.
    pub(super) fn wait(&self, duration: Duration) {
        let mut requested = self.requested.lock();
        self.wakeup.wait_while_for(&mut requested, |requested| !*requested, duration);
        *requested = false;
    }
}
