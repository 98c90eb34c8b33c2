//! The sessions that are open, for requests to cancel: [`Sessions`].

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::watch;

use crate::wire::frontend::CancelKey;

/// The open sessions, by what identifies them towards a request to cancel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<HashMap<i32, Open>>>);

#[derive(Debug)]
struct Open {
    secret: i32,
    cancels: watch::Sender<u64>,
}

/// An open session; it is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    sessions: Sessions,
    /// What a request to cancel has to know.
    pub(crate) key: CancelKey,
    cancels: watch::Receiver<u64>,
}

impl Sessions {
    /// Opens a session.
    pub(crate) fn open(&self, random: &mut impl Rng) -> Session {
        let mut open = self.0.lock();
        // Fewer are open than there are numbers.
        let process = loop {
            let process = random.random_range(1..i32::MAX);
            if !open.contains_key(&process) {
                break process;
            }
        };
        let (secret, (sender, cancels)) = (random.random(), watch::channel(0));
        open.insert(process, Open { secret, cancels: sender });
        let key = CancelKey { process, secret };
        Session { sessions: self.clone(), key, cancels }
    }

    /// Cancels the statement that a session runs. Returns whether there is such a session.
    pub(crate) fn cancel(&self, key: CancelKey) -> bool {
        let open = self.0.lock();
        let found = open.get(&key.process).filter(|own| own.secret == key.secret);
        found.is_some_and(|own| {
            own.cancels.send_modify(|count| *count = count.wrapping_add(1));
            true
        })
    }
}

impl Session {
    /// Forgets requests to cancel that came before: they were for earlier statements.
    pub(crate) fn begin(&mut self) {
        self.cancels.borrow_and_update();
    }

    /// Returns once there is a request to cancel. Cancel safe.
    pub(crate) async fn cancelled(&mut self) {
        if self.cancels.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.0.lock().remove(&self.key.process);
    }
}

#[cfg(test)]
mod tests {
    use super::Sessions;
    use crate::wire::frontend::CancelKey;

    #[tokio::test]
    async fn statements_are_cancelled_by_those_who_know_the_secret() {
        let sessions = Sessions::default();
        let (mut one, mut other) =
            (sessions.open(&mut rand::rng()), sessions.open(&mut rand::rng()));
        let wrong = CancelKey { secret: one.key.secret.wrapping_add(1), ..one.key };
        let foreign = CancelKey { secret: other.key.secret, ..one.key };
        assert_ne!((one.key.process, one.key.secret), (other.key.process, other.key.secret));
        assert!(!sessions.cancel(wrong) && !sessions.cancel(foreign));
        assert!(sessions.cancel(one.key));
        one.cancelled().await;
        assert!(futures::poll!(Box::pin(other.cancelled())).is_pending());
        // One that comes between two statements is for none.
        assert!(sessions.cancel(one.key));
        one.begin();
        assert!(futures::poll!(Box::pin(one.cancelled())).is_pending());
        let key = one.key;
        drop(one);
        assert!(!sessions.cancel(key));
        assert_eq!(sessions.0.lock().len(), 1);
    }
}
