//! Rate limits of personal keys: [`Throttle`], and of attempts at secrets: [`Attempts`]. The former are off unless the
//! operator sets a limit.
//!
//! The generic cell rate algorithm: an unused key may send as many requests as the limit at once, and
//! gets new ones at a constant rate. PostHog counts the requests of the last minute, which is equivalent
//! for clients below the limit. Requests about persons and events may have additional limits. Requests
//! of SDKs are not limited.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

use crate::response::Problem;
use weir_base::clock::Clock;
use weir_base::config::http::HttpConfig;
use weir_metadata::accounts::KeyId;

/// Interval at which keys with their full limit available are removed.
const FORGET_PAUSE: Duration = Duration::from_secs(60);

/// One limit. It stores a time for each recently used key.
type Limit = RateLimiter<KeyId, DashMapStateStore<KeyId>, Time, NoOpMiddleware<Duration>>;

/// The rate limits of all keys.
#[derive(Debug)]
pub struct Throttle {
    clock: Clock,
    /// For all requests.
    limits: Vec<Limit>,
    /// Additional limits for requests about persons and events.
    analytics: Vec<Limit>,
    /// Time at which unused keys were last removed.
    forgotten_at: Mutex<Duration>,
}

/// Most addresses or targets whose attempts are stored; a new one replaces the oldest.
const ATTEMPTS_KEPT_MAX: usize = 10_000;

/// Rate limit per minute on attempts at a secret, for each client address or each target. The same algorithm, with a
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
    /// 429 after too many attempts.
    pub fn check(&self, who: &K) -> Result<(), Problem> {
        let now = self.clock.monotonic();
        let mut full_at = self.full_at.lock();
        let begin = full_at.get(who).map_or(now, |at| at.max(now));
        let early = begin.saturating_sub(now).saturating_sub(self.ahead);
        if early > Duration::ZERO {
            return Err(Problem::throttled(early));
        }
        full_at.put(who, begin.saturating_add(self.pause));
        Ok(())
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

#[derive(Clone, Debug)]
struct Time(Clock);

impl governor::clock::Clock for Time {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

impl Throttle {
    /// The rate limits of the settings.
    pub fn new(config: &HttpConfig, clock: &Clock) -> Self {
        let limit = |max: Option<NonZeroU32>, quota: fn(NonZeroU32) -> Quota| {
            max.map(|max| RateLimiter::dashmap_with_clock(quota(max), Time(clock.clone())))
        };
        let limits = |per_minute, per_hour| -> Vec<Limit> {
            let limits = [limit(per_minute, Quota::per_minute), limit(per_hour, Quota::per_hour)];
            limits.into_iter().flatten().collect()
        };
        Self {
            clock: clock.clone(),
            limits: limits(config.key_requests_per_minute_max, config.key_requests_per_hour_max),
            analytics: limits(
                config.key_analytics_requests_per_minute_max,
                config.key_analytics_requests_per_hour_max,
            ),
            forgotten_at: Mutex::new(clock.monotonic()),
        }
    }

    /// Counts a request of a key; `is_analytics` if it is about persons or events.
    ///
    /// # Errors
    ///
    /// 429 if the key has exceeded a limit.
    pub fn check(&self, key: KeyId, is_analytics: bool) -> Result<(), Problem> {
        self.forget();
        let analytics = self.analytics.iter().filter(|_| is_analytics);
        for limit in analytics.chain(&self.limits) {
            if let Err(too_early) = limit.check_key(&key) {
                let wait = too_early.wait_time_from(self.clock.monotonic());
                return Err(Problem::throttled(wait));
            }
        }
        Ok(())
    }

    /// Removes the keys that are unused for the period of their limit, so that the table does not grow
    /// while the server runs for years.
    fn forget(&self) {
        let now = self.clock.monotonic();
        let Some(mut forgotten_at) = self.forgotten_at.try_lock() else { return };
        if now.saturating_sub(*forgotten_at) < FORGET_PAUSE {
            return;
        }
        *forgotten_at = now;
        for limit in self.analytics.iter().chain(&self.limits) {
            limit.retain_recent();
            limit.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use clap::{Args, FromArgMatches};
    use serde_json::json;

    use super::{ATTEMPTS_KEPT_MAX, Attempts, Lately, Throttle};
    use crate::response::{Body, Problem, Response};
    use weir_base::clock::{Clock, UnixMicros};
    use weir_base::config::http::HttpConfig;
    use weir_metadata::accounts::KeyId;

    fn throttle(arguments: &[&str], clock: &Clock) -> Throttle {
        let command = HttpConfig::augment_args(clap::Command::new("weir"));
        let arguments = [&["weir"], arguments].concat();
        let config = HttpConfig::from_arg_matches(&command.get_matches_from(arguments)).unwrap();
        Throttle::new(&config, clock)
    }

    /// Status, seconds of `Retry-After`, and body.
    fn parts(problem: Problem) -> (u16, String, serde_json::Value) {
        let response = Response::from(problem);
        let seconds = response.headers["retry-after"].to_str().unwrap().to_owned();
        let Body::Full(body) = &response.body else { panic!("it is not streamed") };
        (response.status.as_u16(), seconds, serde_json::from_slice(body).unwrap())
    }

    #[test]
    fn each_key_has_its_own_limits() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let limits = ["--key-requests-per-minute-max=3", "--key-requests-per-hour-max=5"];
        let throttle = throttle(&limits, &clock);
        let ask = |key: i64| throttle.check(KeyId(key), true).map_err(parts);
        for _ in 0..3 {
            assert!(ask(1).is_ok() && ask(2).is_ok());
        }
        let refused = |seconds: u32| {
            let detail = format!("Request was throttled. Expected available in {seconds} seconds.");
            let body = json!({"type": "throttled_error", "code": "throttled", "detail": detail, "attr": null});
            Err((429, seconds.to_string(), body))
        };
        assert_eq!((ask(1), ask(2)), (refused(20), refused(20)));
        clock.advance(Duration::from_millis(5_500));
        assert_eq!(ask(1), refused(15), "seconds are rounded up");
        clock.advance(Duration::from_secs(60));
        assert!(ask(1).is_ok() && ask(1).is_ok(), "the minute is over");
        // Five in an hour are one in twelve minutes, of which one minute has passed.
        assert_eq!(ask(1), refused(12 * 60 - 65));
        assert!(ask(3).is_ok());
    }

    #[test]
    fn questions_about_persons_have_limits_of_their_own_besides() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let limits =
            ["--key-requests-per-minute-max=4", "--key-analytics-requests-per-minute-max=2"];
        let throttle = throttle(&limits, &clock);
        let ask = |is_analytics| throttle.check(KeyId(1), is_analytics).map_err(parts);
        assert!(ask(true).is_ok() && ask(true).is_ok());
        let seconds = |result: Result<(), (u16, String, serde_json::Value)>| result.unwrap_err().1;
        // One in thirty seconds. A request refused by this limit does not count for the general limit.
        assert_eq!((seconds(ask(true)), seconds(ask(true))), ("30".to_owned(), "30".to_owned()));
        assert!(ask(false).is_ok() && ask(false).is_ok());
        assert_eq!(seconds(ask(false)), "15");
    }

    #[test]
    fn keys_that_ask_no_more_are_forgotten() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let throttle = throttle(&["--key-requests-per-minute-max=2"], &clock);
        assert!((0..1000).all(|key| throttle.check(KeyId(key), false).is_ok()));
        assert_eq!(throttle.limits[0].len(), 1000);
        clock.advance(Duration::from_secs(45));
        assert!(throttle.check(KeyId(1), false).is_ok() && throttle.check(KeyId(1), false).is_ok());
        clock.advance(Duration::from_secs(20));
        assert!(throttle.check(KeyId(2), false).is_ok());
        assert_eq!(throttle.limits[0].len(), 2, "the one that asked lately, and the one that asks");
        assert!(throttle.check(KeyId(1), false).is_err(), "what it asked is not forgotten");
    }

    /// Three at once, and one in twenty seconds after that.
    #[test]
    fn attempts_are_few_of_each_and_known_of_many() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let attempts = Attempts::new(&clock, NonZeroU32::new(3).unwrap());
        let count = |who: u32| (0..5).filter(|_| attempts.check(&who).is_ok()).count();
        assert_eq!((count(1), count(2), count(1)), (3, 3, 0));
        let early = attempts.check(&1).map_err(parts).unwrap_err();
        assert_eq!((early.0, &*early.1), (429, "20"));
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

    #[test]
    fn without_a_setting_nobody_is_limited() {
        let throttle = throttle(&[], &Clock::test(UnixMicros(0)));
        assert!((0..10_000).all(|_| throttle.check(KeyId(1), true).is_ok()));
    }
}
