//! Serves one connection: runs the protocol in hyper, detects stalls, drains at shutdown. Requests are in
//! `http/exchange.rs`.
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
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::activity::{Activity, Verdict};
use crate::budget::{Busy, Reservation};
use crate::exchange;
use crate::front::Front;
use crate::handler::Handler;
use weir_base::clock::Clock;
use weir_base::telemetry::metrics::Metrics;

/// Bytes of an incomplete head that do not count against the budget: hyper's first buffer, which
/// every connection has.
const ARRIVING_FREE_BYTES: u64 = 8 * 1024;

/// Keep-alive time-out when less than a quarter of the connection permits is free, so that idle
/// clients do not lock out active ones.
const IDLE_WHEN_SCARCE: Duration = Duration::from_secs(1);

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
    open: Open,
) {
    let clock = front.clock.clone();
    let activity = Arc::new(Activity::new(clock.monotonic()));
    let arriving = front.budget.head();
    let watched = Arc::clone(&activity);
    let stream = Watched { stream, clock: clock.clone(), activity: watched, arriving, _open: open };
    let service = service_fn(|request| {
        exchange::answer(Arc::clone(&front), Arc::clone(&activity), peer, request)
    });
    let mut connection =
        pin!(front.protocol.serve_connection_with_upgrades(TokioIo::new(stream), service));
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

/// A socket that records in [`Activity`] when bytes move.
struct Watched {
    stream: TcpStream,
    clock: Clock,
    activity: Arc<Activity>,
    /// Memory reserved for a long, incomplete head.
    arriving: Reservation,
    /// Here, since an upgraded connection outlives its requests.
    _open: Open,
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
