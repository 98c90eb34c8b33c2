//! Stall detection of one connection: [`Activity`] records when bytes moved, and evaluates whether the connection
//! stalls. `http/connection.rs` gives the reasons.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::counters::Counters;
use crate::limits::Limits;
use crate::unsent::Unsent;
use weir_base::clock::Clock;

/// Verdict on a connection at a tick of the timer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// Nothing is under way: shut down gracefully.
    Finish,
    /// A graceful shutdown would not get through to the client.
    Cut(&'static str),
}

/// Times at which bytes moved on a connection. Times are [`Clock::monotonic`] in microseconds plus
/// one, so that 0 means "not set".
#[derive(Debug)]
pub(super) struct Activity {
    /// Requests whose response is not completely written yet.
    under_way: AtomicU32,
    /// Time at which a request last ended.
    active: AtomicU64,
    /// Time at which the incomplete head began; at first, when the connection began.
    head_began: AtomicU64,
    /// Bytes received of the incomplete head.
    head_bytes: AtomicU64,
    /// When the client stopped reading.
    write_blocked: AtomicU64,
    /// HTTP/2, where frames arrive between requests too, or another protocol after an upgrade: a byte does not mean that a head
    /// began.
    multiplexed: AtomicBool,
    /// Memory of the requests under way.
    pub(super) requests_bytes: Arc<AtomicU64>,
    /// Pieces of responses that HTTP/2 has not sent yet.
    pub(super) unsent: Arc<Unsent>,
    pub(super) counters: Counters,
}

impl Activity {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            under_way: AtomicU32::new(0),
            active: AtomicU64::new(stamp(now)),
            head_began: AtomicU64::new(stamp(now)),
            head_bytes: AtomicU64::new(0),
            write_blocked: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
            requests_bytes: Arc::default(),
            unsent: Arc::default(),
            counters: Counters::default(),
        }
    }

    /// A request's head is complete.
    pub(super) fn request_begins(&self, version: hyper::Version) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.head_began.store(0, Ordering::Relaxed);
        if version == hyper::Version::HTTP_2 {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
    }

    /// The connection speaks another protocol after this response.
    pub(super) fn is_upgraded(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    /// A request is answered or abandoned.
    pub(super) fn request_ends(&self, now: Duration) {
        self.active.store(stamp(now), Ordering::Relaxed);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn bytes_came(&self, bytes: usize, clock: &Clock) {
        let is_arriving = self.head_began.load(Ordering::Relaxed) != 0;
        let between_requests = self.under_way.load(Ordering::Relaxed) == 0
            && !is_arriving
            && !self.multiplexed.load(Ordering::Relaxed);
        if between_requests {
            self.head_began.store(stamp(clock.monotonic()), Ordering::Relaxed);
            self.head_bytes.store(0, Ordering::Relaxed);
        }
        if between_requests || is_arriving {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            self.head_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes received of an incomplete head.
    pub(super) fn arriving_bytes(&self) -> u64 {
        match self.head_began.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.head_bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn write_moved(&self) {
        if self.write_blocked.load(Ordering::Relaxed) != 0 {
            self.write_blocked.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn write_blocks(&self, clock: &Clock) {
        if self.write_blocked.load(Ordering::Relaxed) == 0 {
            self.write_blocked.store(stamp(clock.monotonic()), Ordering::Relaxed);
        }
    }

    pub(super) fn verdict(&self, now: Duration, idle_limit: Duration, limits: &Limits) -> Verdict {
        let is_over = |since: u64, limit: Duration| {
            since != 0 && stamp(now).saturating_sub(since) > stamp(limit)
        };
        let over = |since: &AtomicU64, limit| is_over(since.load(Ordering::Relaxed), limit);
        let unsent = self.unsent.oldest().unwrap_or(0);
        if over(&self.write_blocked, limits.body_timeout) || is_over(unsent, limits.body_timeout) {
            Verdict::Cut("the client does not take the answer")
        } else if self.under_way.load(Ordering::Relaxed) > 0 {
            Verdict::Keep
        } else if over(&self.head_began, limits.header_timeout) {
            Verdict::Cut("the head of a request did not arrive in time")
        } else if over(&self.active, idle_limit + limits.header_timeout) {
            Verdict::Cut("the client does not take the goodbye")
        } else if over(&self.active, idle_limit) {
            Verdict::Finish
        } else {
            Verdict::Keep
        }
    }
}

/// A time in the encoding of [`Activity`].
pub(super) fn stamp(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Activity, Verdict};
    use crate::limits::Limits;
    use weir_base::clock::{Clock, UnixMicros};
    use weir_base::config::networks::Networks;

    const IDLE: Duration = Duration::from_secs(75);
    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits {
            connections_max: 1,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(20),
            keep_alive_idle: IDLE,
            requests_max_bytes: 0,
            trusted_proxies: Networks::default(),
            node_secret: None,
        }
    }

    /// The verdicts after `steps`, one per second: (seconds the connection was kept, verdict that
    /// ended it).
    fn fate(steps: impl FnOnce(&Activity, &Clock)) -> (u32, Verdict) {
        let clock = Clock::test(UnixMicros(0));
        let activity = Activity::new(clock.monotonic());
        steps(&activity, &clock);
        for second in 0..1000 {
            match activity.verdict(clock.monotonic(), IDLE, &limits()) {
                Verdict::Keep => clock.advance(SECOND),
                verdict => return (second, verdict),
            }
        }
        (1000, Verdict::Keep)
    }

    fn one_request(activity: &Activity, clock: &Clock, version: hyper::Version) {
        activity.bytes_came(1, clock);
        activity.request_begins(version);
        activity.request_ends(clock.monotonic());
    }

    #[test]
    fn stalls_end_a_connection_and_work_does_not() {
        let late_head = Verdict::Cut("the head of a request did not arrive in time");
        assert_eq!(fate(|_, _| {}), (11, late_head), "silent from the start");
        let (seconds, verdict) = fate(|activity, clock| activity.bytes_came(1, clock));
        assert_eq!((seconds, matches!(verdict, Verdict::Cut(_))), (11, true), "half a head");
        let http1 = hyper::Version::HTTP_11;
        let answered = |activity: &Activity, clock: &Clock| one_request(activity, clock, http1);
        assert_eq!(fate(answered), (76, Verdict::Finish), "idle after a request");
        let (seconds, verdict) = fate(|activity, clock| {
            one_request(activity, clock, http1);
            activity.bytes_came(1, clock);
        });
        assert_eq!((seconds, matches!(verdict, Verdict::Cut(_))), (11, true), "half a second head");
        let frames = |activity: &Activity, clock: &Clock| {
            one_request(activity, clock, hyper::Version::HTTP_2);
            activity.bytes_came(1, clock);
        };
        assert_eq!(fate(frames), (76, Verdict::Finish), "frames of HTTP/2 are no head");
        let working = |activity: &Activity, _: &Clock| activity.request_begins(http1);
        assert_eq!(fate(working), (1000, Verdict::Keep), "a long query");
        let (seconds, verdict) = fate(|activity, clock| {
            activity.request_begins(http1);
            activity.write_blocks(clock);
        });
        assert_eq!((seconds, matches!(verdict, Verdict::Cut(_))), (31, true), "takes no bytes");
        let recovered = |activity: &Activity, clock: &Clock| {
            activity.request_begins(http1);
            activity.write_blocks(clock);
            activity.write_moved();
        };
        assert_eq!(fate(recovered), (1000, Verdict::Keep), "takes bytes again");
    }

    #[test]
    fn a_goodbye_that_is_not_taken_is_cut() {
        let clock = Clock::test(UnixMicros(0));
        let activity = Activity::new(clock.monotonic());
        one_request(&activity, &clock, hyper::Version::HTTP_2);
        clock.advance(IDLE + SECOND);
        assert_eq!(activity.verdict(clock.monotonic(), IDLE, &limits()), Verdict::Finish);
        clock.advance(10 * SECOND);
        let verdict = activity.verdict(clock.monotonic(), IDLE, &limits());
        assert!(matches!(verdict, Verdict::Cut(_)));
    }
}
