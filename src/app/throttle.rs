//! Rate limits of personal keys: [`Throttle`]. They are off unless the operator sets a limit.
//!
//! The generic cell rate algorithm: an unused key may send as many requests as the limit at once, and
//! gets new ones at a constant rate. PostHog counts the requests of the last minute, which is equivalent
//! for clients below the limit. Requests about persons and events may have additional limits. Requests
//! of SDKs are not limited. Statements over the PostgreSQL port are requests about events.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

use weir_base::attempts::Throttled;
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
    /// The key has exceeded a limit.
    pub fn check(&self, key: KeyId, is_analytics: bool) -> Result<(), Throttled> {
        self.forget();
        let analytics = self.analytics.iter().filter(|_| is_analytics);
        for limit in analytics.chain(&self.limits) {
            if let Err(too_early) = limit.check_key(&key) {
                let wait = too_early.wait_time_from(self.clock.monotonic());
                return Err(Throttled(wait));
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
    use std::time::Duration;

    use clap::{Args, FromArgMatches};

    use super::Throttle;
    use weir_base::attempts::Throttled;
    use weir_base::clock::{Clock, UnixMicros};
    use weir_base::config::http::HttpConfig;
    use weir_metadata::accounts::KeyId;

    fn throttle(arguments: &[&str], clock: &Clock) -> Throttle {
        let command = HttpConfig::augment_args(clap::Command::new("weir"));
        let arguments = [&["weir"], arguments].concat();
        let config = HttpConfig::from_arg_matches(&command.get_matches_from(arguments)).unwrap();
        Throttle::new(&config, clock)
    }

    #[test]
    fn each_key_has_its_own_limits() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let limits = ["--key-requests-per-minute-max=3", "--key-requests-per-hour-max=5"];
        let throttle = throttle(&limits, &clock);
        let ask = |key: i64| throttle.check(KeyId(key), true);
        for _ in 0..3 {
            assert!(ask(1).is_ok() && ask(2).is_ok());
        }
        let refused = |seconds| Err(Throttled(Duration::from_millis(seconds)));
        assert_eq!((ask(1), ask(2)), (refused(20_000), refused(20_000)));
        clock.advance(Duration::from_millis(5_500));
        assert_eq!(ask(1), refused(14_500));
        clock.advance(Duration::from_secs(60));
        assert!(ask(1).is_ok() && ask(1).is_ok(), "the minute is over");
        // Five in an hour are one in twelve minutes, of which one minute has passed.
        assert_eq!(ask(1), refused((12 * 60 - 66) * 1000 + 500));
        assert!(ask(3).is_ok());
    }

    #[test]
    fn questions_about_persons_have_limits_of_their_own_besides() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let limits =
            ["--key-requests-per-minute-max=4", "--key-analytics-requests-per-minute-max=2"];
        let throttle = throttle(&limits, &clock);
        let ask = |is_analytics| throttle.check(KeyId(1), is_analytics);
        assert!(ask(true).is_ok() && ask(true).is_ok());
        let refused = |seconds| Err(Throttled(Duration::from_secs(seconds)));
        // One in thirty seconds. A request refused by this limit does not count for the general limit.
        assert_eq!((ask(true), ask(true)), (refused(30), refused(30)));
        assert!(ask(false).is_ok() && ask(false).is_ok());
        assert_eq!(ask(false), refused(15));
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

    #[test]
    fn without_a_setting_nobody_is_limited() {
        let throttle = throttle(&[], &Clock::test(UnixMicros(0)));
        assert!((0..10_000).all(|_| throttle.check(KeyId(1), true).is_ok()));
    }
}
