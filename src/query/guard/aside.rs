//! Long calls on query threads without blocking them: [`aside`].

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Runs `work`, which may take seconds and cannot be interrupted. Meanwhile another thread takes over the tasks of this
/// one (`block_in_place`), so that long calls leave the full number of threads to all other queries, and their time
/// limits are enforced.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // There are no other threads.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::aside;

    /// Longer than any of this takes.
    const LONG: Duration = Duration::from_secs(60);

    /// Goal: a long call blocks no other task. Method: as many tasks as there are threads wait for another one, in a
    /// call that does not yield. On failure the other task never runs.
    #[test]
    fn others_go_on() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (go_on, told): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
        let waits = |told: mpsc::Receiver<()>| async move { aside(|| told.recv_timeout(LONG)) };
        let waiting: Vec<_> = told.into_iter().map(|told| runtime.spawn(waits(told))).collect();
        let telling = runtime.spawn(async move {
            for told in go_on {
                told.send(()).unwrap();
            }
        });
        runtime.block_on(async {
            telling.await.unwrap();
            for waiting in waiting {
                assert_eq!(waiting.await.unwrap(), Ok(()));
            }
        });
    }

    #[test]
    fn there_need_not_be_others() {
        assert_eq!(aside(|| 7), 7);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { aside(|| 7) }), 7);
    }
}
