//! Counters, latency histogram and report of a load run. Each connection counts; the report merges the
//! counts.

use std::collections::BTreeMap;
use std::io;
use std::io::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use hyper::StatusCode;
use serde::Serialize;

use crate::cli::load::bodies::Body;
use crate::cli::load::process::Used;

/// Counts of one connection, or of all.
#[derive(Debug)]
pub(super) struct Tally {
    /// Microseconds from the start of a request (open loop: from its due time) to the end of its last
    /// answer, retries included. Only accepted requests count: errors are often fast.
    latency: Histogram<u64>,
    requests: u64,
    events_sent: u64,
    events_accepted: u64,
    plain_bytes: u64,
    wire_bytes: u64,
    answers: BTreeMap<u16, u64>,
    failures: u64,
    retries: u64,
    first_error: Option<String>,
}

/// Longest latency that the histogram distinguishes, in microseconds: ten minutes.
const LATENCY_MAX_MICROS: u64 = 600_000_000;
/// Length to which the text of an error is cut, in characters.
const ERROR_CHARS_MAX: usize = 300;

impl Tally {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            latency: Histogram::new_with_bounds(1, LATENCY_MAX_MICROS, 3)?,
            requests: 0,
            events_sent: 0,
            events_accepted: 0,
            plain_bytes: 0,
            wire_bytes: 0,
            answers: BTreeMap::new(),
            failures: 0,
            retries: 0,
            first_error: None,
        })
    }

    /// Counts a request that has its last answer, or failed without one.
    pub(super) fn sent(&mut self, body: &Body, latency: Duration, accepted: bool) {
        self.requests += 1;
        self.events_sent += body.events;
        if accepted {
            self.events_accepted += body.events;
            self.plain_bytes += body.plain_bytes;
            self.wire_bytes += u64::try_from(body.bytes.len()).unwrap_or(u64::MAX);
            let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            self.latency.saturating_record(micros.max(1));
        }
    }

    /// Counts the last answer to a request.
    pub(super) fn answered(&mut self, status: StatusCode, text: &[u8]) {
        *self.answers.entry(status.as_u16()).or_default() += 1;
        if status != StatusCode::OK {
            self.keep_error(&format!("{status}: {}", String::from_utf8_lossy(text)));
        }
    }

    /// Counts a request without an answer.
    pub(super) fn failed(&mut self, error: &str) {
        self.failures += 1;
        self.keep_error(error);
    }

    /// Counts a 503 after which the request was sent again.
    pub(super) fn retried(&mut self) {
        self.retries += 1;
    }

    fn keep_error(&mut self, error: &str) {
        if self.first_error.is_none() {
            self.first_error = Some(error.trim().chars().take(ERROR_CHARS_MAX).collect());
        }
    }

    pub(super) fn merge(&mut self, other: Self) -> anyhow::Result<()> {
        self.latency.add(&other.latency)?;
        self.requests += other.requests;
        self.events_sent += other.events_sent;
        self.events_accepted += other.events_accepted;
        self.plain_bytes += other.plain_bytes;
        self.wire_bytes += other.wire_bytes;
        for (status, count) in other.answers {
            *self.answers.entry(status).or_default() += count;
        }
        self.failures += other.failures;
        self.retries += other.retries;
        self.first_error = self.first_error.take().or(other.first_error);
        Ok(())
    }
}

/// The result of a run. The field names are those of `weir load --json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    events_sent: u64,
    events_accepted: u64,
    requests: u64,
    seconds: f64,
    /// Counts accepted events only, as do the megabytes (1,000,000 bytes each).
    events_per_second: f64,
    plain_mb_per_second: f64,
    wire_mb_per_second: f64,
    latency_ms: Latency,
    /// Final answers by status.
    answers: BTreeMap<u16, u64>,
    /// Requests without an answer.
    failures: u64,
    /// Answers 503 after which a request was sent again.
    retries: u64,
    first_error: Option<String>,
    server: Option<Server>,
}

/// Milliseconds from the start of a request (open loop: from its due time) to its answer.
#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p99_9: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Server {
    #[serde(flatten)]
    used: Used,
    cpu_micros_per_event: f64,
}

/// Counts fit a double exactly up to 2^53; beyond, the last digits of a report do not matter.
fn float(count: u64) -> f64 {
    count as f64
}

/// `count` per `unit`, 0 if there is nothing to divide by.
fn per(count: f64, unit: f64) -> f64 {
    if unit > 0.0 { count / unit } else { 0.0 }
}

impl Report {
    pub(super) fn new(tally: &Tally, elapsed: Duration, used: Option<Used>) -> Self {
        let seconds = elapsed.as_secs_f64();
        let quantile = |share: f64| float(tally.latency.value_at_quantile(share)) / 1_000.0;
        Self {
            events_sent: tally.events_sent,
            events_accepted: tally.events_accepted,
            requests: tally.requests,
            seconds,
            events_per_second: per(float(tally.events_accepted), seconds),
            plain_mb_per_second: per(float(tally.plain_bytes) / 1e6, seconds),
            wire_mb_per_second: per(float(tally.wire_bytes) / 1e6, seconds),
            latency_ms: Latency {
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                p99_9: quantile(0.999),
                max: float(tally.latency.max()) / 1_000.0,
            },
            answers: tally.answers.clone(),
            failures: tally.failures,
            retries: tally.retries,
            first_error: tally.first_error.clone(),
            server: used.map(|used| Server {
                used,
                cpu_micros_per_event: per(used.cpu_seconds * 1e6, float(tally.events_accepted)),
            }),
        }
    }

    /// Whether every request was accepted in the end.
    pub(super) fn is_clean(&self) -> bool {
        self.events_accepted == self.events_sent
    }

    /// Writes the report as one line of JSON.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// Writes the report for people.
    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let Latency { p50, p90, p99, p99_9, max } = self.latency_ms;
        writeln!(
            out,
            "events      {} accepted of {} sent, {} requests, {:.2} s",
            self.events_accepted, self.events_sent, self.requests, self.seconds
        )?;
        writeln!(
            out,
            "throughput  {:.0} events/s, {:.1} MB/s of JSON, {:.1} MB/s as sent",
            self.events_per_second, self.plain_mb_per_second, self.wire_mb_per_second
        )?;
        writeln!(
            out,
            "latency ms  p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p99_9:.1}, max {max:.1}"
        )?;
        write!(out, "answers    ")?;
        for (status, count) in &self.answers {
            write!(out, " {status}: {count},")?;
        }
        writeln!(out, " none: {}, retried after 503: {}", self.failures, self.retries)?;
        if let Some(error) = &self.first_error {
            writeln!(out, "first error {error}")?;
        }
        if let Some(Server { used, cpu_micros_per_event }) = &self.server {
            let peak = bytesize::ByteSize::b(used.peak_rss_bytes);
            writeln!(
                out,
                "server      {cpu_micros_per_event:.2} CPU-µs an event ({:.2} s), peak memory {peak}",
                used.cpu_seconds
            )?;
        }
        Ok(())
    }
}
