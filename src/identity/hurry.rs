//! [`Hurry`]: how long the writer lets records come together.

use std::time::Duration;

use parking_lot::Condvar;
use parking_lot::Mutex;

/// Tells a writer who waits for more to do that somebody waits for what it has.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    asked: Mutex<bool>,
    told: Condvar,
}

impl Hurry {
    pub(super) fn ask(&self) {
        *self.asked.lock() = true;
        self.told.notify_one();
    }

    /// Who asked before the last wait ended may ask in vain for this one: it then ends at once.
    pub(super) fn wait(&self, duration: Duration) {
        let mut asked = self.asked.lock();
        self.told.wait_while_for(&mut asked, |asked| !*asked, duration);
        *asked = false;
    }
}
