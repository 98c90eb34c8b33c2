//! OpenTelemetry traces of calls to models: spans about AI become events ([`otlp`]) and take the same path as events of
//! SDKs. Other spans are ignored without an error.
//!
//! [`otlp`]: weir_wire::otlp

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::auth;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::capture::problem;
use weir_app::App;
use weir_event::key_kind::KeyKind;
use weir_ingest::error::IngestError;
use weir_ingest::prepare::error::PrepareError;
use weir_ingest::request::{CaptureRequest, Protocol};
use weir_wire::encoding::hints::{Coding, Content, Hints};
use weir_wire::otlp;
use weir_wire::otlp::Form;

/// `POST /i/v0/ai/otel`: an `ExportTraceServiceRequest` as protobuf or JSON. The token is in `?token=` or
/// in `Authorization`, and is checked before the body is read. The response has the format of the request.
pub async fn export(app: &App, request: Request) -> Result<Response, Problem> {
    let named = |name| request.query(name).filter(|token| !token.trim().is_empty());
    let in_query = named("token").or_else(|| named("api_key"));
    let token = in_query.as_deref().or_else(|| auth::project_token(&request));
    let token = token.unwrap_or_default().trim().to_owned();
    if app.node.metadata.snapshot().project_by_token(&token).is_none() {
        return Err(Problem::invalid_api_key(KeyKind::of(&token)));
    }
    let form = request.header("content-type").and_then(Form::of_content_type);
    let form = form.ok_or_else(|| {
        Problem::invalid_payload("Content-Type must be application/x-protobuf or application/json.")
    })?;
    let encoding = request.headers.get("content-encoding");
    let hints = Hints {
        content_encoding: encoding.and_then(|value| Coding::from_header(value.as_bytes())),
        content: Content::Otlp(form),
        ..Hints::default()
    };
    let client_ip = Some(request.client_ip);
    let limit_bytes = app.node.config.http.body_max_bytes.as_u64().min(otlp::BODY_PLAIN_MAX_BYTES);
    let body = request.body.read(limit_bytes).await?;
    let capture = CaptureRequest {
        body,
        hints,
        client_ip,
        protocol: Protocol::default(),
        token: Some(token),
    };
    let pipeline = app.shard.pipeline.clone();
    let accepting =
        app.node.tasks.0.detach("capture", async move { pipeline.accept(capture).await });
    let accepted = accepting.await.map_err(|error| Problem::of(error.kind(), &error))?;
    let rejected = match accepted {
        Ok(receipt) => receipt.drops.total(),
        // None of the spans is about AI.
        Err(IngestError::Prepare(PrepareError::NoEvents)) => 0,
        Err(error) => return Err(problem(error)),
    };
    let content_type = HeaderValue::from_static(form.content_type());
    Ok(Response::bytes(StatusCode::OK, content_type, form.answer(rejected)))
}
