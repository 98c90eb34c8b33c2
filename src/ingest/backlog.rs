//! Room for what waits to be derived, counted in bytes: what an event says of its person is text of
//! the request, which stays in memory until it was read.

use std::sync::Arc;

use parking_lot::Condvar;
use parking_lot::Mutex;

/// Bytes that may wait.
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

/// A part of it, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Backlog {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { shared: Arc::default(), max_bytes }
    }

    /// Waits until there is room for `bytes`. What needs more than all of it waits until it is alone.
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
        let (told, hear) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                // More than all of it: it has to be alone.
                let large = backlog.room(1000);
                told.send(*backlog.shared.used_bytes.lock()).unwrap();
                drop(large);
            });
            drop(first);
            drop(second);
            assert_eq!(hear.recv().unwrap(), 1000);
        });
        assert_eq!(*backlog.shared.used_bytes.lock(), 0);
        drop(backlog.room(100));
    }
}
