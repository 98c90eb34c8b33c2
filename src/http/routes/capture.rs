//! Capture v0: headers and body of a request become a [`CaptureRequest`], which is accepted
//! detached from the connection. The receipt becomes `{"status": 1}`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::request::Request;
use crate::response::{Problem, Response};
use weir_app::App;
use weir_event::key_kind::KeyKind;
use weir_ingest::drops::{Drop, Drops};
use weir_ingest::error::IngestError;
use weir_ingest::prepare::error::PrepareError;
use weir_ingest::request::{CaptureRequest, Protocol};
use weir_wire::encoding::error::DecodeError;
use weir_wire::encoding::hints::{Hints, PathKind};

/// Family of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/capture`, `/e`, `/track`: bodies may be wrapped in base64 once more.
    Legacy,
    /// `/batch`, `/i/v0/e`, `/i/v0/ai/batch`.
    Modern,
    /// `/engage`: as legacy, and an event without a name becomes an `$identify`.
    Engage,
}

impl Kind {
    /// How bodies are encoded.
    pub(crate) fn path(self) -> PathKind {
        match self {
            Self::Legacy | Self::Engage => PathKind::Legacy,
            Self::Modern => PathKind::Modern,
        }
    }
}

/// The body of a success. SDKs only need valid JSON.
const ACCEPTED: &[u8] = br#"{"status":1}"#;

/// Accepts the events of `request`.
pub async fn capture(app: &App, kind: Kind, request: Request) -> Result<Response, Problem> {
    let header = |name| request.headers.get(name).map(|value| value.as_bytes());
    let hints = Hints::new(
        request.query_string(),
        header("content-type"),
        header("content-encoding"),
        kind.path(),
    );
    let millis = |name| request.query(name)?.parse().ok().filter(is_after_2020);
    let sent_at_query_millis = millis("_").or_else(|| millis("sent_at"));
    let is_beacon = is_beacon(&request);
    let client_ip = Some(request.client_ip);
    let body = request.body.read(app.node.config.http.body_max_bytes.as_u64()).await?;
    let capture = CaptureRequest {
        body,
        hints,
        client_ip,
        protocol: Protocol::V0 { sent_at_query_millis, engage: kind == Kind::Engage },
        token: None,
    };
    let pipeline = app.shard.pipeline.clone();
    let accepting =
        app.node.tasks.0.detach("capture", async move { pipeline.accept(capture).await });
    let accepted = accepting.await.map_err(|error| Problem::of(error.kind(), &error))?;
    let receipt = accepted.map_err(problem)?;
    // Only for beacons: posthog-js treats any success other than 200 as a failure.
    if is_beacon {
        return Ok(Response::empty(StatusCode::NO_CONTENT));
    }
    Ok(match receipt.drops.total() {
        0 => Response::json_bytes(StatusCode::OK, ACCEPTED),
        _ => Response::json(StatusCode::OK, &warned(&receipt.drops)),
    })
}

/// The body of a success in which events were dropped. SDKs only look at the status.
fn warned(drops: &Drops) -> Value {
    let warning = |(reason, events): (Drop, u64)| {
        let detail = format!("Dropped: {}.", reason.text());
        json!({"reason": reason.name(), "events": events, "detail": detail})
    };
    json!({"status": 1, "warnings": drops.iter().map(warning).collect::<Vec<_>>()})
}

/// Some SDKs send counters or seconds in `_`; PostHog treats it as a time only from 2021 on.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "for Option::filter")]
fn is_after_2020(millis: &i64) -> bool {
    const START_OF_2021: i64 = 1_609_459_200_000;
    *millis >= START_OF_2021
}

/// Whether the sender is a page that is being closed and does not read the response.
pub(super) fn is_beacon(request: &Request) -> bool {
    request.query("beacon").as_deref() == Some("1")
}

/// The problem for a refused body of events, in the words of the API specification.
pub(super) fn problem(error: IngestError) -> Problem {
    match &error {
        IngestError::Prepare(PrepareError::NoToken) => Problem::invalid_api_key(KeyKind::Missing),
        IngestError::Prepare(PrepareError::UnknownToken(sent)) => Problem::invalid_api_key(*sent),
        IngestError::Prepare(PrepareError::InconsistentTokens) => Problem::invalid_project(),
        IngestError::Prepare(PrepareError::TooLarge | PrepareError::TooManyIds { .. })
        | IngestError::Decode(DecodeError::TooLarge { .. }) => Problem::of(error.kind(), &error),
        IngestError::Prepare(_) | IngestError::Decode(_) => {
            Problem::invalid_payload(format!("Malformed request data: {error}"))
        }
        // The detail contains the cause, because an operator may look at this answer first.
        IngestError::Overloaded(cause) | IngestError::Unavailable(cause) => {
            let detail = format!("The server takes no events at the moment: {cause}.");
            Problem::of(error.kind(), &error).with_detail(detail)
        }
        _ => Problem::of(error.kind(), &error),
    }
}
