//! Capture v1: the response has a result for every event. The token and the SDK's name are in
//! headers, and are checked before the body is read.

use std::error::Error;

use hyper::StatusCode;
use hyper::header::HeaderName;

use crate::request::{BodyError, Request};
use crate::response::Response;
use weir_app::App;
use weir_base::clock::UnixMicros;
use weir_base::error::Kind;
use weir_event::key_kind::KeyKind;
use weir_ingest::drops::Drop;
use weir_ingest::error::IngestError;
use weir_ingest::prepare::error::{BatchError, PrepareError};
use weir_ingest::prepared::EventOutcome;
use weir_ingest::request::{CaptureRequest, Protocol};
use weir_wire::capture_v1;
use weir_wire::capture_v1::{Head, Refusal, Verdict};
use weir_wire::encoding::error::DecodeError;
use weir_wire::encoding::hints::{Hints, PathKind};

const REQUEST_ID: HeaderName = HeaderName::from_static(capture_v1::REQUEST_ID);

/// The refusal of a request: the error of v1, and the cause for the log.
struct Refused {
    refusal: Refusal,
    /// The cause of an internal failure, for the log.
    error: Option<Box<dyn Error + Send + Sync>>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, error: None }
    }
}

/// Accepts the events of `request`. Every response repeats the id of the request.
pub async fn capture_v1(app: &App, request: Request) -> Response {
    let request_id = request.headers.get(REQUEST_ID).cloned();
    let response = accept(app, request).await.unwrap_or_else(|Refused { refusal, error }| {
        let response = Response::from(refusal);
        match error {
            Some(error) => response.because(&*error),
            None => response,
        }
    });
    match request_id {
        Some(id) => response.with_header(REQUEST_ID, id),
        None => response,
    }
}

async fn accept(app: &App, request: Request) -> Result<Response, Refused> {
    let header = |name: &str| request.headers.get(name).map(|value| value.as_bytes());
    let head = Head::read(header)?;
    if app.node.metadata.snapshot().project_by_token(&head.token).is_none() {
        return Err(Refusal::InvalidToken(KeyKind::of(&head.token)).into());
    }
    // Unlike in v0, the query has no hints.
    let hints = Hints::new("", None, header("content-encoding"), PathKind::Modern);
    let client_ip = Some(request.client_ip);
    let limit_bytes = app.node.config.http.body_max_bytes.as_u64().min(capture_v1::BODY_MAX_BYTES);
    let body = request.body.read(limit_bytes).await.map_err(unread)?;
    let sent_at = UnixMicros(head.sent_at_micros);
    let protocol = Protocol::V1 { sent_at, sdk: head.sdk };
    let capture = CaptureRequest { body, hints, client_ip, protocol, token: Some(head.token) };
    let pipeline = app.shard.pipeline.clone();
    let accepting =
        app.node.tasks.0.detach("capture", async move { pipeline.accept(capture).await });
    let receipt = accepting.await.map_err(IngestError::from).flatten().map_err(refused)?;
    let verdicts = receipt.outcomes.iter().map(|(uuid, outcome)| (*uuid, verdict(*outcome)));
    Ok(Response::json_bytes(StatusCode::OK, capture_v1::results(verdicts)))
}

fn unread(error: BodyError) -> Refused {
    let refusal = match &error {
        BodyError::TooLarge { .. } => Refusal::TooLarge(error.to_string()),
        BodyError::Slow => Refusal::BodyReadTimeout,
        BodyError::Broken(_) => Refusal::Undecodable(error.to_string()),
        BodyError::Busy(_) => Refusal::Unavailable("too many bytes are in flight"),
    };
    refusal.into()
}

fn refused(error: IngestError) -> Refused {
    let refusal = match &error {
        IngestError::Decode(error) => undecoded(error),
        IngestError::Prepare(error) => unprepared(error),
        IngestError::Overloaded(cause) | IngestError::Unavailable(cause) => {
            Refusal::Unavailable(cause)
        }
        IngestError::Metadata(_) | IngestError::Task(_) => match error.kind() {
            Kind::Overloaded | Kind::Unavailable | Kind::Timeout => {
                Refusal::Unavailable("a part of the server does not answer")
            }
            _ => Refusal::Internal,
        },
    };
    let is_inside = matches!(refusal, Refusal::Unavailable(_) | Refusal::Internal);
    Refused { refusal, error: is_inside.then(|| error.into()) }
}

fn undecoded(error: &DecodeError) -> Refusal {
    match error {
        DecodeError::Empty => Refusal::EmptyBody,
        DecodeError::TooLarge { .. } => Refusal::TooLarge(error.to_string()),
        DecodeError::Malformed(what) => Refusal::Undecodable((*what).to_owned()),
        DecodeError::Unsupported => Refusal::Undecodable(error.to_string()),
    }
}

fn unprepared(error: &PrepareError) -> Refusal {
    match error {
        PrepareError::NoEvents => Refusal::EmptyBatch,
        PrepareError::UnknownToken(sent) => Refusal::InvalidToken(*sent),
        PrepareError::NoToken | PrepareError::InconsistentTokens => {
            Refusal::InvalidToken(KeyKind::Other)
        }
        PrepareError::TooLarge | PrepareError::TooManyIds { .. } => {
            Refusal::TooLarge(error.to_string())
        }
        PrepareError::Crowded => Refusal::Unavailable("too many bytes are in flight"),
        PrepareError::Malformed(_)
        | PrepareError::NoObject
        | PrepareError::BatchNotArray
        | PrepareError::Import => Refusal::Unparsable(error.to_string()),
        PrepareError::Batch(error) => match error {
            BatchError::Shape(what) => Refusal::Unparsable((*what).to_owned()),
            BatchError::CreatedAt => Refusal::InvalidBatch(error.to_string()),
            BatchError::MissingUuid => Refusal::MissingEventUuid,
            BatchError::InvalidUuid => Refusal::InvalidEventUuid,
            BatchError::DuplicateUuid(uuid) => Refusal::DuplicateEventUuid(*uuid),
        },
    }
}

fn verdict(outcome: EventOutcome) -> Verdict {
    match outcome {
        EventOutcome::Taken => Verdict::Ok(None),
        EventOutcome::TakenPersonless => Verdict::Ok(Some("person_processing_disabled")),
        EventOutcome::Dropped(reason) => Verdict::Drop(match reason {
            Drop::MissingEvent => "missing_event_name",
            Drop::TooLarge => "event_too_big",
            Drop::NeverStored => "dropped_performance_event",
            // PostHog reports this only as a warning, after an `ok`.
            Drop::PersonlessMerge => "invalid_event_when_process_person_profile_is_false",
            // The others have v1's names, or cannot occur in a body of v1.
            other => other.name(),
        }),
    }
}
