//! One connection: speaks the protocol through hyper, detects stalls, drains at shutdown. Requests
//! are in `http/exchange.rs`.
//!
//! # Why not hyper's time-outs
//!
//! hyper's header time-out also runs while a connection waits for its next request, so one setting
//! would be too short for keep-alive and too long for a slow head. It does not cover the bytes that
//! distinguish HTTP/1 from HTTP/2, nor a client that stops reading its response. Therefore the socket
//! records when bytes moved ([`Activity`]), and a slow timer of the connection's task evaluates that
//! ([`Activity::verdict`]). This costs two atomic stores and no timer per request.

use std::io;
use std::io::IoSlice;
use std::net::IpAddr;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::clock::Clock;
use crate::http::Front;
use crate::http::Handler;
use crate::http::Limits;
use crate::http::budget::Busy;
use crate::http::budget::Reservation;
use crate::http::exchange;
use crate::http::exchange::Counters;
use crate::http::unsent::Unsent;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;

/// Read and write buffer of an HTTP/1 connection; also the longest head. Holds the longest URI that
/// hyper accepts (65,534 bytes, events sent by GET) and 16 KiB of other headers.
const BUFFER_MAX_BYTES: usize = 80 * 1024;

/// Bytes of an incomplete head that do not count against the budget: hyper's first buffer, which
/// every connection has.
const ARRIVING_FREE_BYTES: u64 = 8 * 1024;

/// Concurrent requests on one HTTP/2 connection. RFC 9113 recommends at least 100 for parallelism.
/// But a connection keeps 1.2 KiB, in no budget, for each request of the highest number it ever had
/// at once.
const STREAMS_MAX: u32 = 64;

/// Streams of an HTTP/2 connection that the client may reset before the server has accepted them;
/// more end the connection. This bounds the cost of a rapid-reset attack. hyper also ends a
/// connection after 1,024 streams that the server reset because of an error of the client.
const EARLY_RESETS_MAX: usize = 20;

/// Flow-control window of an HTTP/2 stream and of the whole connection: bytes that a client may send
/// ahead. At 50 ms to the client this allows 20 MB/s.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Largest head of an HTTP/2 request, counting 32 bytes per field besides its text (RFC 9113, 6.5.2).
/// Longer ones are answered 431; one of more than four times that ends the connection. Each
/// connection may have an incomplete head of this size, in no budget.
const HEADER_LIST_MAX_BYTES: u32 = 16 * 1024;

/// Bytes of responses that an HTTP/2 stream buffers for a client that does not read.
const SEND_BUFFER_MAX_BYTES: usize = 64 * 1024;

/// Keep-alive time-out when less than a quarter of the connection permits is free, so that idle
/// clients do not lock out active ones.
const IDLE_WHEN_SCARCE: Duration = Duration::from_secs(1);

/// Settings of hyper for all connections.
pub(super) type Protocol = auto::Builder<StreamTasks>;

/// Configures hyper: HTTP/1.1 with keep-alive, or HTTP/2 if the client starts with its preface.
pub(super) fn protocol(limits: &Limits, tasks: &Tasks) -> Protocol {
    let mut protocol = auto::Builder::new(StreamTasks { tasks: tasks.clone() });
    protocol
        .http1()
        .timer(TokioTimer::new())
        // See the head of this file.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_MAX_BYTES);
    protocol
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keep_alive_idle / 2)
        .keep_alive_timeout(limits.body_timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_MAX_BYTES)
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .max_send_buf_size(SEND_BUFFER_MAX_BYTES);
    protocol
}

/// Spawns the requests of HTTP/2 connections as separate tasks.
#[derive(Clone, Debug)]
pub(super) struct StreamTasks {
    tasks: Tasks,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StreamTasks {
    fn execute(&self, stream: F) {
        self.tasks.spawn("http-stream", stream);
    }
}

/// Counts an open connection; releases its permit when dropped.
pub(super) struct Open {
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    pub(super) fn new(permit: OwnedSemaphorePermit, metrics: &Arc<Metrics>) -> Self {
        metrics.http_connections.inc();
        Self { metrics: Arc::clone(metrics), _permit: permit }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.http_connections.dec();
    }
}

/// Serves one connection to its end.
pub(super) async fn serve<H: Handler>(
    front: Arc<Front<H>>,
    stream: TcpStream,
    peer: IpAddr,
    _open: Open,
) {
    let clock = front.clock.clone();
    let activity = Arc::new(Activity::new(clock.monotonic()));
    let arriving = front.budget.head();
    let watched = Arc::clone(&activity);
    let stream = Watched { stream, clock: clock.clone(), activity: watched, arriving };
    let service = service_fn(|request| {
        exchange::answer(Arc::clone(&front), Arc::clone(&activity), peer, request)
    });
    let mut connection = pin!(front.protocol.serve_connection(TokioIo::new(stream), service));
    let mut shutdown = pin!(front.shutdown.cancelled());
    let tick = (front.limits.header_timeout / 4)
        .clamp(Duration::from_millis(10), Duration::from_millis(2500));
    let mut drained_by = None;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = &*error, %peer, "connection broke");
                }
                return;
            }
            () = shutdown.as_mut(), if drained_by.is_none() => {
                drained_by = Some(clock.monotonic() + front.limits.drain_timeout);
                connection.as_mut().graceful_shutdown();
                continue;
            }
            () = tokio::time::sleep(tick) => {}
        }
        let now = clock.monotonic();
        match activity.verdict(now, idle_limit(&front), &front.limits) {
            _ if drained_by.is_some_and(|deadline| now >= deadline) => {
                tracing::warn!(%peer, "cut a request that outlasted the drain time-out");
                return;
            }
            Verdict::Keep => {}
            Verdict::Finish => connection.as_mut().graceful_shutdown(),
            Verdict::Cut(reason) => {
                tracing::debug!(%peer, reason, "closed a stalled connection");
                return;
            }
        }
    }
}

fn idle_limit<H>(front: &Front<H>) -> Duration {
    let limits = &front.limits;
    let free = u64::try_from(front.connections.available_permits()).unwrap_or(u64::MAX);
    if free.saturating_mul(4) < u64::from(limits.connections_max) {
        limits.keep_alive_idle.min(IDLE_WHEN_SCARCE)
    } else {
        limits.keep_alive_idle
    }
}

/// State of a connection at a tick of the timer.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
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
    /// When the head that is arriving began; at first, when the connection began.
    head_began: AtomicU64,
    /// Bytes received of that head.
    head_bytes: AtomicU64,
    /// When the client stopped reading.
    write_blocked: AtomicU64,
    /// HTTP/2: frames arrive between requests too, so a byte does not mean that a head began.
    multiplexed: AtomicBool,
    /// Memory of the requests under way.
    pub(super) requests_bytes: Arc<AtomicU64>,
    /// Pieces of responses that HTTP/2 has not sent yet.
    pub(super) unsent: Arc<Unsent>,
    pub(super) counters: Counters,
}

impl Activity {
    fn new(now: Duration) -> Self {
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

    /// A request is answered or abandoned.
    pub(super) fn request_ends(&self, now: Duration) {
        self.active.store(stamp(now), Ordering::Relaxed);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    fn bytes_came(&self, bytes: usize, clock: &Clock) {
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

    /// Bytes of an incomplete head.
    fn arriving_bytes(&self) -> u64 {
        match self.head_began.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.head_bytes.load(Ordering::Relaxed),
        }
    }

    fn write_moved(&self) {
        if self.write_blocked.load(Ordering::Relaxed) != 0 {
            self.write_blocked.store(0, Ordering::Relaxed);
        }
    }

    fn write_blocks(&self, clock: &Clock) {
        if self.write_blocked.load(Ordering::Relaxed) == 0 {
            self.write_blocked.store(stamp(clock.monotonic()), Ordering::Relaxed);
        }
    }

    fn verdict(&self, now: Duration, idle_limit: Duration, limits: &Limits) -> Verdict {
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

pub(super) fn stamp(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).saturating_add(1)
}

/// A socket that records in [`Activity`] when bytes move.
struct Watched {
    stream: TcpStream,
    clock: Clock,
    activity: Arc<Activity>,
    /// Memory reserved for a long, incomplete head.
    arriving: Reservation,
}

impl Watched {
    /// Reserves memory for the incomplete head. A complete head has a reservation of its own.
    fn count_head(&mut self) -> io::Result<()> {
        let bytes = self.activity.arriving_bytes();
        let counted = if bytes > ARRIVING_FREE_BYTES { bytes } else { 0 };
        if counted == self.arriving.bytes() || self.arriving.resize(counted) {
            return Ok(());
        }
        // A request without a complete head cannot be answered.
        Err(io::Error::other(Busy))
    }

    fn note_write<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(_) => self.activity.write_moved(),
            Poll::Pending => self.activity.write_blocks(&self.clock),
        }
        written
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Before the next read: the last read may have completed the head.
        self.count_head()?;
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let came = buffer.filled().len() - before;
        if came > 0 {
            self.activity.bytes_came(came, &self.clock);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Activity;
    use super::Verdict;
    use crate::clock::Clock;
    use crate::clock::UnixMicros;
    use crate::config::networks::Networks;
    use crate::http::Limits;

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
