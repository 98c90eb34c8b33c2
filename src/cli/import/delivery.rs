//! Sends batches until the server has taken every event, or says why it does not take one: retries what is temporary,
//! halves what is refused, and notes single events that are refused in the rejects.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use hyper::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::cli::import::job::{Job, Rejects};
use crate::cli::import::lanes::{Batch, Envelope, Outstanding};
use crate::cli::import::wire::{Answer, Target};
use weir_base::clock::Clock;

/// How long a server may be away or busy, before the import stops.
const PATIENCE: Duration = Duration::from_secs(600);
/// First pause before a retry; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a retry, whatever the value of `Retry-After`.
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Events that a server may refuse before it has taken one.
const REFUSED_MAX_EVENTS: u64 = 1_000;

/// What has been sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) requests: u64,
    pub(super) retries: u64,
    pub(super) body_bytes: u64,
}

/// What all lanes share.
#[derive(Debug)]
pub(super) struct Delivery {
    target: Target,
    envelope: Envelope,
    clock: Clock,
    rejects: Rejects,
    outstanding: Outstanding,
    tally: Mutex<Tally>,
}

/// What the server says of a request.
#[derive(Debug)]
enum Verdict {
    Taken,
    /// Not as a whole, for this reason: of one event it is final.
    Refused(String),
}

impl Delivery {
    pub(super) fn new(
        target: Target,
        envelope: Envelope,
        clock: Clock,
        job: &Job,
        outstanding: Outstanding,
    ) -> Self {
        let rejects = job.rejects();
        Self { target, envelope, clock, rejects, outstanding, tally: Mutex::default() }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    pub(super) fn rejects_path(&self) -> PathBuf {
        Path::to_path_buf(self.rejects.path())
    }

    /// The loop of one lane: sends its batches one after the other.
    ///
    /// # Errors
    ///
    /// The server takes nothing any more.
    pub(super) async fn run(
        self: Arc<Self>,
        lane: usize,
        mut batches: mpsc::Receiver<Batch>,
    ) -> anyhow::Result<()> {
        while let Some(batch) = batches.recv().await {
            self.deliver(&batch).await?;
            self.outstanding.end(lane);
        }
        Ok(())
    }

    /// Sends a batch, in smaller and smaller parts where it is refused. The parts stay in order.
    async fn deliver(&self, batch: &Batch) -> anyhow::Result<()> {
        let whole = 0..batch.len();
        let mut parts = vec![whole];
        while let Some(part) = parts.pop() {
            let reason = match self.send(batch.text(part.clone())).await? {
                Verdict::Taken => {
                    self.tally.lock().accepted += u64::try_from(part.len()).unwrap_or(0);
                    continue;
                }
                Verdict::Refused(reason) => reason,
            };
            if part.len() > 1 {
                let middle = part.start + part.len() / 2;
                parts.push(middle..part.end);
                parts.push(part.start..middle);
            } else {
                self.refuse(batch, part, &reason)?;
            }
        }
        Ok(())
    }

    /// Notes that the server does not take an event.
    fn refuse(&self, batch: &Batch, part: Range<usize>, reason: &str) -> anyhow::Result<()> {
        if let Some(row) = batch.row(part.start) {
            let event = std::str::from_utf8(batch.text(part)).unwrap_or_default();
            self.rejects.event(row, reason, event)?;
        }
        let mut tally = self.tally.lock();
        tally.refused += 1;
        if tally.accepted == 0 && tally.refused >= REFUSED_MAX_EVENTS {
            bail!("the server refused the first {REFUSED_MAX_EVENTS} events: {reason}");
        }
        Ok(())
    }

    /// Sends events until there is a verdict.
    async fn send(&self, events: &[u8]) -> anyhow::Result<Verdict> {
        let body = self.target.pack(self.envelope.around(events))?;
        let (started, mut pause) = (self.clock.monotonic(), PAUSE_MIN);
        loop {
            {
                let mut tally = self.tally.lock();
                tally.requests += 1;
                tally.body_bytes += u64::try_from(body.len()).unwrap_or(0);
            }
            let (error, wait) = match self.target.post(body.clone()).await {
                Ok(answer) => match verdict(&answer)? {
                    Some(verdict) => return Ok(verdict),
                    None => (anyhow!("the server answers {}", answer.status), answer.retry_after),
                },
                Err(error) => (error, None),
            };
            if self.clock.monotonic().saturating_sub(started) > PATIENCE {
                return Err(error);
            }
            self.tally.lock().retries += 1;
            tokio::time::sleep(wait.unwrap_or(pause).clamp(PAUSE_MIN, PAUSE_MAX)).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }
}

/// What an answer says; `None` if the same request may succeed later.
///
/// # Errors
///
/// No request will succeed.
fn verdict(answer: &Answer) -> anyhow::Result<Option<Verdict>> {
    let told: Value = serde_json::from_slice(&answer.text).unwrap_or_default();
    let detail = told.get("detail").and_then(Value::as_str);
    let refused = |reason: Option<&str>| {
        let reason = reason.map_or_else(|| answer.status.to_string(), str::to_owned);
        Ok(Some(Verdict::Refused(reason)))
    };
    match answer.status {
        StatusCode::OK | StatusCode::NO_CONTENT => {
            match told.pointer("/warnings/0/detail").and_then(Value::as_str) {
                Some(reason) => refused(Some(reason)),
                None => Ok(Some(Verdict::Taken)),
            }
        }
        // Its JSON was checked before it was sent, but for its depth.
        StatusCode::BAD_REQUEST
            if detail.is_some_and(|detail| detail.contains("not valid JSON")) =>
        {
            refused(Some("the server cannot read it: it is nested too deeply, or is no JSON"))
        }
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => refused(detail),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Ok(None),
        status if status.is_server_error() => Ok(None),
        status => match detail {
            Some(detail) => bail!("{detail}"),
            None => bail!("the server answers {status}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::{Verdict, verdict};
    use crate::cli::import::wire::Answer;

    #[test]
    fn answers_are_final_temporary_or_the_end() {
        for (status, text, expected) in [
            (200, r#"{"status":1}"#, Some("taken")),
            (200, r#"{"status":1,"warnings":[{"detail":"Dropped: x."}]}"#, Some("Dropped: x.")),
            (400, r#"{"detail":"bad"}"#, Some("bad")),
            (
                400,
                r#"{"detail":"Malformed request data: the body is not valid JSON"}"#,
                Some("the server cannot read it: it is nested too deeply, or is no JSON"),
            ),
            (413, "", Some("413 Payload Too Large")),
            (503, r#"{"detail":"busy"}"#, None),
            (429, "", None),
            (500, "", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let answer = Answer { status, retry_after: None, text: text.into() };
            let found = verdict(&answer).unwrap().map(|verdict| match verdict {
                Verdict::Taken => "taken".to_owned(),
                Verdict::Refused(reason) => reason,
            });
            assert_eq!(found.as_deref(), expected, "{status}");
        }
        for status in [401, 403, 404, 301] {
            let status = StatusCode::from_u16(status).unwrap();
            let answer = Answer { status, retry_after: None, text: "{}".into() };
            assert!(verdict(&answer).is_err(), "{status}");
        }
    }
}
