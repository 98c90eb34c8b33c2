//! Byte-bounded queue capacity in front of the projector: what an event contains about its person is
//! text of the request body, which stays in memory until the projector has read it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// A budget of bytes for records that wait for the projector.
#[derive(Debug)]
pub(super) struct Backlog {
    shared: Arc<Shared>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Shared {
    used_bytes: Mutex<usize>,
    freed: Condvar,
}

/// Capacity that one record holds; released on drop.
#[derive(Debug)]
pub(super) struct Room {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Backlog {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { shared: Arc::default(), max_bytes }
    }

    /// Blocks until `bytes` are free. A record larger than the whole budget waits until it is alone.
    pub(super) fn room(&self, bytes: usize) -> Room {
        let mut used = self.shared.used_bytes.lock();
        while *used > 0 && used.saturating_add(bytes) > self.max_bytes {
            self.shared.freed.wait(&mut used);
        }
        *used = used.saturating_add(bytes);
        Room { shared: Arc::clone(&self.shared), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut used = self.shared.used_bytes.lock();
        *used = used.saturating_sub(self.bytes);
        self.shared.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::Backlog;

    #[test]
    fn what_does_not_fit_waits_until_it_does() {
        let backlog = Backlog::new(100);
        let first = backlog.room(60);
        let second = backlog.room(40);
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                // More than the whole budget: it has to be alone.
                let large = backlog.room(1000);
                sender.send(*backlog.shared.used_bytes.lock()).unwrap();
                drop(large);
            });
            drop(first);
            drop(second);
            assert_eq!(receiver.recv().unwrap(), 1000);
        });
        assert_eq!(*backlog.shared.used_bytes.lock(), 0);
        drop(backlog.room(100));
    }
}
