//! Admission control, which limits concurrent queries: [`Admission`]. There are `queries-max` slots. SQL may take all
//! but one, which is reserved for lists; one personal key may take less than half of them for SQL and as many for
//! lists, and so may all shared links of a project together. A query that finds no slot queues; if the queue is full,
//! it is refused at once. Of the slots of SQL, half may be taken by long answers, which last as long as their readers
//! take to read them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::kernel::error::QueryError;
use weir_event::id::ProjectId;
use weir_metadata::accounts::KeyId;

/// Maximum length of the global queue, per slot; a key's own queue holds half as many.
const WAITING_PER_SLOT: usize = 16;

/// Keys that are stored before those without a query are removed.
const KEYS_MIN: usize = 64;

/// On whose behalf a query runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The operator of the server, who may read its directory; also the background jobs.
    Operator,
    /// The owner of this personal key.
    Key(KeyId),
    /// All visitors with a shared link to something of this project.
    Links(ProjectId),
}

/// Kind of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// SQL of a user, which may take as long as a query may.
    Sql,
    /// A list or a look-up, of which the plan is built by this server from a request.
    List,
    /// The answer of SQL that is too long to be in memory as a whole, besides its slot for SQL.
    Long,
}

/// The query slots of a process, whatever engines it has.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    sql: Arc<Semaphore>,
    long: Arc<Semaphore>,
    keys: Mutex<HashMap<(Caller, Work), Weak<Slots>>>,
    per_key: usize,
    long_per_key: usize,
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
}

/// The slots and the queue of one limited caller for one kind of work.
#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// The right to run one query; releases its slots when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _slots: [Option<OwnedSemaphorePermit>; 3],
    _key: Option<Arc<Slots>>,
}

/// A place in a queue; given back when dropped.
struct QueueSlot(Arc<AtomicUsize>);

impl QueueSlot {
    fn take(line: &Arc<AtomicUsize>, length_max: usize) -> Result<Self, QueryError> {
        let place = Self(Arc::clone(line));
        if line.fetch_add(1, Ordering::Relaxed) >= length_max {
            return Err(QueryError::Overloaded("too many queries are waiting"));
        }
        Ok(place)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(queries_max: usize) -> Self {
        let queries_max = queries_max.max(1);
        let less_one = queries_max.saturating_sub(1);
        let long = (less_one / 2).max(1);
        Self {
            all: Arc::new(Semaphore::new(queries_max)),
            sql: Arc::new(Semaphore::new(less_one.max(1))),
            long: Arc::new(Semaphore::new(long)),
            keys: Mutex::default(),
            per_key: (less_one / 2).max(1),
            long_per_key: long.saturating_sub(1).max(1),
            waiting: Arc::default(),
            waiting_max: queries_max.saturating_mul(WAITING_PER_SLOT),
        }
    }

    /// Acquires a slot for `work` of `caller`; waits for at most `limit`.
    ///
    /// # Errors
    ///
    /// The queue is full, or no slot became free in time.
    pub(crate) async fn permit(
        &self,
        caller: Caller,
        work: Work,
        limit: Duration,
    ) -> Result<Permit, QueryError> {
        let key = match caller {
            Caller::Operator => None,
            Caller::Key(_) | Caller::Links(_) => Some(self.slots(caller, work)),
        };
        let of_key = key.as_ref().map(|slots| (&slots.free, &slots.waiting));
        // Acquired from the narrowest limit to the widest, so that a waiting query holds no slot of a wider one. A
        // query that waits for a slot of its key is in that key's queue alone, so that one key does not fill the global
        // queue.
        let waiting = async {
            let (own, _place) = match of_key {
                Some((free, line)) => {
                    let place = QueueSlot::take(line, (self.waiting_max / 2).max(1))?;
                    (Some(wait_for(free).await?), Some(place))
                }
                None => (None, None),
            };
            let sql = self.acquire((work == Work::Sql).then_some(&self.sql)).await?;
            let all = self.acquire(Some(&self.all)).await?;
            Ok::<_, QueryError>([own, sql, all])
        };
        match timeout(limit, waiting).await {
            Ok(slots) => Ok(Permit { _slots: slots?, _key: key }),
            Err(_) => Err(QueryError::Overloaded("too many queries are running")),
        }
    }

    /// The right of `caller` to an answer that lasts as long as its reader takes. It does not wait: a slot may be taken
    /// for hours.
    ///
    /// # Errors
    ///
    /// There are as many long answers as there may be, of all callers or of this one.
    pub(crate) fn long(&self, caller: Caller) -> Result<Permit, QueryError> {
        let taken = |slots: &Arc<Semaphore>| {
            let refused = |_| QueryError::Overloaded("too many long answers are being read");
            Arc::clone(slots).try_acquire_owned().map(Some).map_err(refused)
        };
        let key = match caller {
            Caller::Operator => None,
            Caller::Key(_) | Caller::Links(_) => Some(self.slots(caller, Work::Long)),
        };
        let own = match &key {
            Some(slots) => taken(&slots.free)?,
            None => None,
        };
        Ok(Permit { _slots: [own, taken(&self.long)?, None], _key: key })
    }

    async fn acquire(
        &self,
        slots: Option<&Arc<Semaphore>>,
    ) -> Result<Option<OwnedSemaphorePermit>, QueryError> {
        let Some(slots) = slots else { return Ok(None) };
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            return Ok(Some(slot));
        }
        let _place = QueueSlot::take(&self.waiting, self.waiting_max)?;
        wait_for(slots).await.map(Some)
    }

    fn slots(&self, key: Caller, work: Work) -> Arc<Slots> {
        let mut keys = self.keys.lock();
        if let Some(slots) = keys.get(&(key, work)).and_then(Weak::upgrade) {
            return slots;
        }
        if keys.len() >= KEYS_MIN {
            keys.retain(|_, slots| slots.strong_count() > 0);
        }
        let own = if work == Work::Long { self.long_per_key } else { self.per_key };
        let free = Arc::new(Semaphore::new(own));
        let slots = Arc::new(Slots { free, waiting: Arc::default() });
        keys.insert((key, work), Arc::downgrade(&slots));
        slots
    }
}

async fn wait_for(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, QueryError> {
    let slot = Arc::clone(slots).acquire_owned().await;
    slot.map_err(|_| QueryError::Unavailable("the server ends"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Admission, Caller, KEYS_MIN, Permit, WAITING_PER_SLOT, Work};
    use crate::kernel::error::QueryError;
    use weir_metadata::accounts::KeyId;

    /// Does not wait: a slot is free, or it is not.
    async fn now(slots: &Admission, caller: Caller, work: Work) -> Option<Permit> {
        slots.permit(caller, work, Duration::ZERO).await.ok()
    }

    async fn as_many(slots: &Admission, caller: Caller, work: Work) -> Vec<Permit> {
        let mut taken = Vec::new();
        while let Some(permit) = now(slots, caller, work).await {
            taken.push(permit);
        }
        taken
    }

    /// Goal: neither one key nor SQL takes all slots. Method: each caller takes as many as it can get.
    #[tokio::test]
    async fn slots_are_shared() {
        for (queries_max, of_key, of_sql) in [(8, 3, 7), (3, 1, 2), (2, 1, 1)] {
            let slots = Admission::new(queries_max);
            let [one, other] = [1, 2].map(|id| Caller::Key(KeyId(id)));
            let sql = as_many(&slots, one, Work::Sql).await;
            assert_eq!(sql.len(), of_key, "{queries_max}");
            let mut more = as_many(&slots, other, Work::Sql).await;
            more.extend(as_many(&slots, Caller::Operator, Work::Sql).await);
            assert_eq!(sql.len() + more.len(), of_sql, "{queries_max}");
            let lists = as_many(&slots, one, Work::List).await;
            assert_eq!(lists.len(), 1, "one slot is left for lists");
            drop(sql);
            assert!(now(&slots, one, Work::Sql).await.is_some());
        }
        let slots = Admission::new(1);
        let lists = as_many(&slots, Caller::Operator, Work::List).await;
        assert_eq!(lists.len(), 1);
        drop(lists);
        assert_eq!(as_many(&slots, Caller::Operator, Work::Sql).await.len(), 1);
    }

    /// Goal: long answers leave slots of SQL to others, and one key leaves some to other keys.
    #[test]
    fn long_answers_are_few() {
        for (queries_max, of_key, of_all) in [(8, 2, 3), (3, 1, 1), (1, 1, 1), (20, 8, 9)] {
            let slots = Admission::new(queries_max);
            let take = |caller| {
                let mut taken = Vec::new();
                while let Ok(permit) = slots.long(caller) {
                    taken.push(permit);
                }
                taken
            };
            let mut own = take(Caller::Key(KeyId(1)));
            assert_eq!(own.len(), of_key, "{queries_max}");
            own.extend(take(Caller::Operator));
            assert_eq!(own.len(), of_all, "{queries_max}");
            drop(own);
            assert_eq!(take(Caller::Operator).len(), of_all, "they are given back");
        }
    }

    /// Goal: queues are bounded. Method: no slot is ever released; those in the queue give up.
    #[tokio::test]
    async fn lines_are_bounded() {
        let slots = Admission::new(2);
        let key = Caller::Key(KeyId(1));
        let _running = as_many(&slots, key, Work::Sql).await;
        let wait = |caller| slots.permit(caller, Work::Sql, Duration::from_secs(3600));
        let mut line: Vec<_> = (0..WAITING_PER_SLOT).map(|_| Box::pin(wait(key))).collect();
        for waiting in &mut line {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
        }
        let refused = wait(key).await;
        assert!(matches!(refused, Err(QueryError::Overloaded(_))), "{refused:?}");
        // Other keys have queues of their own, however many keys have full ones.
        let mut others: Vec<_> =
            (2..6).flat_map(|id| (0..WAITING_PER_SLOT).map(move |_| id)).collect();
        others.push(6);
        let mut others: Vec<_> =
            others.into_iter().map(|id| Box::pin(wait(Caller::Key(KeyId(id))))).collect();
        for waiting in &mut others {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
        }
        line.pop();
        let mut last = Box::pin(wait(key));
        assert!(futures::poll!(last.as_mut()).is_pending(), "the line is shorter");
    }

    #[tokio::test]
    async fn keys_without_queries_are_forgotten() {
        let slots = Admission::new(8);
        for id in 0..1000 {
            assert!(now(&slots, Caller::Key(KeyId(id)), Work::List).await.is_some());
        }
        assert!(slots.keys.lock().len() <= KEYS_MIN);
    }
}
