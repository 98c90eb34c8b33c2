//! How often one personal key may ask: [`Throttle`]. Off unless the operator sets a limit.
//!
//! A key that has not asked for a while may ask as often as the limit says at once, and then again
//! as time goes on (the generic cell rate algorithm); PostHog counts the requests of the last minute,
//! which comes to the same for who stays below. Questions about persons and events may have limits of
//! their own besides. What SDKs send is not limited.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use governor::RateLimiter;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::config::http::HttpConfig;
use crate::http::response::Problem;
use crate::metadata::accounts::KeyId;

/// Time between two looks for keys that may ask as often as the limit says again, and need not be
/// remembered.
const FORGET_PAUSE: Duration = Duration::from_secs(60);

/// One limit. It remembers a time for each key that asked lately.
type Limit = RateLimiter<KeyId, DashMapStateStore<KeyId>, Time, NoOpMiddleware<Duration>>;

/// The limits of all keys.
#[derive(Debug)]
pub struct Throttle {
    clock: Clock,
    /// Of all requests.
    limits: Vec<Limit>,
    /// Of those about persons and events, which count as requests too.
    analytics: Vec<Limit>,
    /// When keys were forgotten last.
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
    /// The limits that the operator set.
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

    /// Counts a request of a key, which `is_analytics` if it is about persons or events.
    ///
    /// # Errors
    ///
    /// 429: it asked too often.
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

    /// Forgets the keys that have not asked for as long as their limit looks back. Keys come and go, and
    /// the server may run for years.
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

    use clap::Args;
    use clap::FromArgMatches;
    use serde_json::json;

    use super::Throttle;
    use crate::clock::Clock;
    use crate::clock::UnixMicros;
    use crate::config::http::HttpConfig;
    use crate::http::response::Body;
    use crate::http::response::Problem;
    use crate::http::response::Response;
    use crate::metadata::accounts::KeyId;

    fn throttle(arguments: &[&str], clock: &Clock) -> Throttle {
        let command = HttpConfig::augment_args(clap::Command::new("weir"));
        let arguments = [&["weir"], arguments].concat();
        let config = HttpConfig::from_arg_matches(&command.get_matches_from(arguments)).unwrap();
        Throttle::new(&config, clock)
    }

    /// Status, seconds of `Retry-After`, and body.
    fn told(problem: Problem) -> (u16, String, serde_json::Value) {
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
        let ask = |key: i64| throttle.check(KeyId(key), true).map_err(told);
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
        // Five in an hour are one in twelve minutes, of which a minute is over.
        assert_eq!(ask(1), refused(12 * 60 - 65));
        assert!(ask(3).is_ok());
    }

    #[test]
    fn questions_about_persons_have_limits_of_their_own_besides() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let limits =
            ["--key-requests-per-minute-max=4", "--key-analytics-requests-per-minute-max=2"];
        let throttle = throttle(&limits, &clock);
        let ask = |is_analytics| throttle.check(KeyId(1), is_analytics).map_err(told);
        assert!(ask(true).is_ok() && ask(true).is_ok());
        let seconds = |result: Result<(), (u16, String, serde_json::Value)>| result.unwrap_err().1;
        // One in thirty seconds. What was refused for that does not count among all.
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

    #[test]
    fn without_a_setting_nobody_is_limited() {
        let throttle = throttle(&[], &Clock::test(UnixMicros(0)));
        assert!((0..10_000).all(|_| throttle.check(KeyId(1), true).is_ok()));
    }
}
