//! Endpoints for data that Weir discards: session recordings, logs, metrics, traces. They exist so that SDKs do not
//! retry or fill a log with errors. A wrong key is refused all the same, so that users do not wait for data that never
//! arrives.

use hyper::StatusCode;

use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::capture::{is_beacon, problem};
use weir_app::App;
use weir_base::telemetry::metrics::KindLabels;
use weir_event::key_kind::KeyKind;
use weir_wire::capture_v1::bearer;
use weir_wire::encoding::hints::{Hints, PathKind};

/// Kind of discarded data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// `/s`: session recordings.
    Recordings,
    /// `/i/v1/logs`: OpenTelemetry.
    Logs,
    /// `/i/v1/metrics`: OpenTelemetry.
    Metrics,
    /// `/i/v1/traces`: OpenTelemetry.
    Traces,
}

impl Discarded {
    /// Name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recordings => "recordings",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }
}

/// Largest body of recordings as sent (PostHog's limit).
const RECORDINGS_MAX_BYTES: u64 = 25 << 20;

/// Over quota: posthog-js sends no recordings for a minute, then tries again.
const OVER_QUOTA: &[u8] = br#"{"status":1,"quota_limited":["recordings"]}"#;

/// Checks the project token and discards the data.
pub async fn discard(app: &App, what: Discarded, request: Request) -> Result<Response, Problem> {
    let answer = match what {
        Discarded::Recordings => recordings(app, request).await?,
        Discarded::Logs | Discarded::Metrics | Discarded::Traces => telemetry(app, &request)?,
    };
    app.node.metrics.requests_discarded.get_or_create(&KindLabels { kind: what.name() }).inc();
    Ok(answer)
}

/// The project token is in the body, among the recordings.
async fn recordings(app: &App, request: Request) -> Result<Response, Problem> {
    let header = |name| request.headers.get(name).map(|value| value.as_bytes());
    let hints = Hints::new(
        request.query_string(),
        header("content-type"),
        header("content-encoding"),
        PathKind::Modern,
    );
    let is_beacon = is_beacon(&request);
    let body = request.body.read(RECORDINGS_MAX_BYTES).await?;
    app.node.locator.project_of(body, hints).await.map_err(problem)?;
    if is_beacon {
        return Ok(Response::empty(StatusCode::NO_CONTENT));
    }
    Ok(Response::json_bytes(StatusCode::OK, OVER_QUOTA))
}

/// The project token is in `?token=` or, as OpenTelemetry exporters send it, in `Authorization`. The
/// body is not read here; the exchange discards it.
fn telemetry(app: &App, request: &Request) -> Result<Response, Problem> {
    let metadata = app.node.metadata.snapshot();
    let in_query = request.query("token");
    let token = in_query.as_deref().or_else(|| bearer(request.header("authorization")?));
    let token = token.unwrap_or_default().trim();
    let project = metadata.project_by_token(token);
    project.ok_or_else(|| Problem::invalid_api_key(KeyKind::of(token)))?;
    Ok(Response::json_bytes(StatusCode::OK, &b"{}"[..]))
}
