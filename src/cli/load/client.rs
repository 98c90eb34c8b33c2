//! HTTP client of the load generator: connections that send bodies and measure latencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, Uri, header};
use indicatif::ProgressBar;

use crate::cli::client::{Connections, address, bounded, retry_after};
use crate::cli::load::bodies::{Bodies, Body, Compression};
use crate::cli::load::report::Tally;
use weir_base::clock::Clock;

/// A pool of connections that are kept open.
pub(super) type Http = Connections<Full<Bytes>>;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer that is read, in bytes; those of capture are short.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// Times that a body is sent again after 503.
const RETRIES_MAX: u32 = 5;
/// Longest pause before a retry, whatever the value of `Retry-After`.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Pause before a retry if the response has no `Retry-After`.
const PAUSE_DEFAULT: Duration = Duration::from_secs(1);
/// Consecutive failures after which a connection gives up: the server has ended.
const FAILURES_MAX: u32 = 20;

/// URL and content encoding of the requests.
#[derive(Clone, Debug)]
pub(super) struct Target {
    uri: Uri,
    content_encoding: Option<&'static str>,
}

impl Target {
    pub(super) fn new(url: &str, path: &str, compression: Compression) -> anyhow::Result<Self> {
        let uri = address(url, path)?;
        Ok(Self { uri, content_encoding: compression.content_encoding() })
    }
}

/// When a request is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// When the previous request of the connection is answered.
    Closed,
    /// At multiples of `interval` after the start.
    Open { interval: Duration },
}

impl Pace {
    /// The pace at which batches of `batch` events make `rate` events a second.
    pub(super) fn open(rate: u64, batch: u32) -> Self {
        let nanos = u64::from(batch).saturating_mul(1_000_000_000) / rate.max(1);
        Self::Open { interval: Duration::from_nanos(nanos) }
    }
}

/// State that all connections of a run share.
#[derive(Debug)]
pub(super) struct Drive {
    pub(super) clock: Clock,
    pub(super) http: Http,
    pub(super) target: Target,
    pub(super) bodies: Bodies,
    pub(super) pace: Pace,
    /// Start of the run, on the monotonic clock.
    pub(super) started: Duration,
    /// When no further request begins, on the same clock.
    pub(super) ends: Option<Duration>,
    /// Requests begun.
    pub(super) requests: AtomicU64,
    pub(super) progress: ProgressBar,
}

/// The loop of one connection: sends bodies one after the other until there are no more, the time is up, or
/// the server has ended.
pub(super) async fn work(drive: Arc<Drive>) -> anyhow::Result<Tally> {
    let mut tally = Tally::new()?;
    let mut failures = 0;
    while failures < FAILURES_MAX {
        let Some(body) = drive.bodies.next().await? else { break };
        let due = drive.due();
        let now = drive.clock.monotonic();
        if drive.ends.is_some_and(|ends| ends <= due.max(now)) {
            break;
        }
        tokio::time::sleep(due.saturating_sub(now)).await;
        let begun = match drive.pace {
            Pace::Closed => drive.clock.monotonic(),
            Pace::Open { .. } => due,
        };
        let accepted = drive.deliver(&body, &mut tally).await;
        tally.sent(&body, drive.clock.monotonic().saturating_sub(begun), accepted);
        drive.progress.inc(body.events);
        failures = if accepted { 0 } else { failures + 1 };
    }
    Ok(tally)
}

impl Drive {
    /// When the next request is due, on the monotonic clock; a past time means at once.
    fn due(&self) -> Duration {
        let serial = self.requests.fetch_add(1, Ordering::Relaxed);
        match self.pace {
            Pace::Closed => self.started,
            Pace::Open { interval } => {
                let nanos = interval.as_nanos().saturating_mul(u128::from(serial));
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                self.started.saturating_add(Duration::from_nanos(nanos))
            }
        }
    }

    /// Sends `body`, with up to [`RETRIES_MAX`] retries after 503. True if it was accepted.
    async fn deliver(&self, body: &Body, tally: &mut Tally) -> bool {
        for attempt in 0..=RETRIES_MAX {
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.post(body.bytes.clone())).await;
            let answer = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    tally.failed(&format!("{error:#}"));
                    return false;
                }
                Err(_elapsed) => {
                    tally.failed("no answer in time");
                    return false;
                }
            };
            if answer.status == StatusCode::SERVICE_UNAVAILABLE && attempt < RETRIES_MAX {
                tally.retried();
                tokio::time::sleep(answer.pause).await;
                continue;
            }
            tally.answered(answer.status, &answer.text);
            return answer.status == StatusCode::OK;
        }
        false
    }

    async fn post(&self, bytes: Bytes) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.target.uri.clone())
            .header(header::USER_AGENT, concat!("weir-load/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(encoding) = self.target.content_encoding {
            request = request.header(header::CONTENT_ENCODING, encoding);
        }
        let response = self.http.request(request.body(Full::new(bytes))?).await?;
        let status = response.status();
        let pause = retry_after(response.headers()).unwrap_or(PAUSE_DEFAULT).min(PAUSE_MAX);
        let text = bounded(response, ANSWER_MAX_BYTES).await.map_err(anyhow::Error::from_boxed)?;
        Ok(Answer { status, pause, text })
    }
}

struct Answer {
    status: StatusCode,
    pause: Duration,
    text: Bytes,
}
