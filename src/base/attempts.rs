//! Rate limits of attempts at secrets, by client address or by target ([`Attempts`]), and keys that did something within a
//! period ([`Lately`]), each of a bounded number of keys.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// There were too many requests or attempts; the next one may be made after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts; the next one is possible in {} s", .0.as_millis().div_ceil(1000).max(1))]
pub struct Throttled(pub Duration);

/// Bits of the network of an IPv6 address that one client has.
const IPV6_NETWORK_BITS: u32 = 64;

/// The address, or its IPv6 network, by which clients are counted.
pub fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - IPV6_NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// Most addresses or targets whose attempts are stored; a new one replaces the oldest.
const ATTEMPTS_KEPT_MAX: usize = 10_000;

/// Rate limit per minute on attempts at a secret, for each client address or each target. The generic cell rate algorithm, with a
/// bounded number of keys, since one client may have many addresses.
#[derive(Debug)]
pub struct Attempts<K> {
    clock: Clock,
    /// Minimum time between two attempts in the long run.
    pause: Duration,
    /// How much earlier than that an attempt may come, which permits bursts.
    ahead: Duration,
    /// The time at which the full limit is available again, by key.
    full_at: Mutex<Recent<K>>,
}

impl<K: Hash + Eq + Clone> Attempts<K> {
    /// Without any attempts; `per_minute` is the limit of each key.
    pub fn new(clock: &Clock, per_minute: NonZeroU32) -> Self {
        let pause = MINUTE / per_minute.get();
        let ahead = MINUTE.saturating_sub(pause);
        Self { clock: clock.clone(), pause, ahead, full_at: Mutex::default() }
    }

    /// Counts an attempt of `who`.
    ///
    /// # Errors
    ///
    /// There were too many; the attempt does not count.
    pub fn check(&self, who: &K) -> Result<(), Throttled> {
        let mut full_at = self.full_at.lock();
        let begin = self.begin(&full_at, who)?;
        full_at.put(who, begin.saturating_add(self.pause));
        Ok(())
    }

    /// Whether `who` may make an attempt, which this does not count.
    ///
    /// # Errors
    ///
    /// There were too many.
    pub fn peek(&self, who: &K) -> Result<(), Throttled> {
        self.begin(&self.full_at.lock(), who).map(drop)
    }

    /// The time from which on an attempt made now counts.
    fn begin(&self, full_at: &Recent<K>, who: &K) -> Result<Duration, Throttled> {
        let now = self.clock.monotonic();
        let begin = full_at.get(who).map_or(now, |at| at.max(now));
        let early = begin.saturating_sub(now).saturating_sub(self.ahead);
        if early > Duration::ZERO { Err(Throttled(early)) } else { Ok(begin) }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Keys that did something within a period. At most [`ATTEMPTS_KEPT_MAX`] are stored.
#[derive(Debug)]
pub struct Lately<K> {
    clock: Clock,
    life: Duration,
    until: Mutex<Recent<K>>,
}

impl<K: Hash + Eq + Clone> Lately<K> {
    /// Without any keys; each is stored for `life`.
    pub fn new(clock: &Clock, life: Duration) -> Self {
        Self { clock: clock.clone(), life, until: Mutex::default() }
    }

    /// Records that `who` did it now.
    pub fn note(&self, who: &K) {
        let until = self.clock.monotonic().saturating_add(self.life);
        self.until.lock().put(who, until);
    }

    /// Removes the record of `who`.
    pub fn forget(&self, who: &K) {
        // Not inserted if it is absent, so that it replaces no other key.
        if let Some(until) = self.until.lock().times.get_mut(who) {
            *until = Duration::ZERO;
        }
    }

    /// Whether `who` did it lately.
    pub fn has(&self, who: &K) -> bool {
        self.until.lock().get(who).is_some_and(|until| until > self.clock.monotonic())
    }
}

/// Times of the most recently added keys.
#[derive(Debug)]
struct Recent<K> {
    times: HashMap<K, Duration>,
    /// The keys, in the order in which they were added.
    order: VecDeque<K>,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { times: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone> Recent<K> {
    fn get(&self, key: &K) -> Option<Duration> {
        self.times.get(key).copied()
    }

    fn put(&mut self, key: &K, time: Duration) {
        if self.times.insert(key.clone(), time).is_some() {
            return;
        }
        self.order.push_back(key.clone());
        if self.order.len() > ATTEMPTS_KEPT_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.times.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::{ATTEMPTS_KEPT_MAX, Attempts, Lately, Throttled};
    use crate::clock::{Clock, UnixMicros};

    /// Three at once, and one in twenty seconds after that.
    #[test]
    fn attempts_are_few_of_each_and_known_of_many() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let attempts = Attempts::new(&clock, NonZeroU32::new(3).unwrap());
        let count = |who: u32| (0..5).filter(|_| attempts.check(&who).is_ok()).count();
        assert_eq!((count(1), count(2), count(1)), (3, 3, 0));
        let early = Err(Throttled(Duration::from_secs(20)));
        assert_eq!(
            (attempts.check(&1), attempts.peek(&1), attempts.peek(&3)),
            (early, early, Ok(()))
        );
        clock.advance(Duration::from_secs(19));
        assert_eq!(count(1), 0, "a refused attempt costs nothing");
        clock.advance(Duration::from_secs(1));
        assert_eq!((count(1), count(2)), (1, 1));
        clock.advance(Duration::from_secs(3600));
        assert_eq!(count(1), 3, "no more than three at once, however long it was");
        // A client with very many addresses takes no more memory; the oldest addresses are forgotten, and have their
        // full limit again.
        let most = u32::try_from(ATTEMPTS_KEPT_MAX).unwrap();
        assert!((10..10 + most).all(|who| attempts.check(&who).is_ok()));
        let known = attempts.full_at.lock();
        assert_eq!((known.times.len(), known.order.len()), (ATTEMPTS_KEPT_MAX, ATTEMPTS_KEPT_MAX));
        assert_eq!((known.get(&1), known.get(&10).is_some()), (None, true));
    }

    #[test]
    fn what_was_done_lately_is_known_for_a_time() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let lately = Lately::new(&clock, Duration::from_secs(60));
        lately.note(&"a");
        lately.note(&"b");
        lately.forget(&"b");
        assert_eq!(["a", "b", "c"].map(|who| lately.has(&who)), [true, false, false]);
        clock.advance(Duration::from_secs(59));
        assert!(lately.has(&"a"));
        clock.advance(Duration::from_secs(1));
        assert!(!lately.has(&"a"));
        lately.note(&"b");
        assert!(lately.has(&"b"));
    }
}
