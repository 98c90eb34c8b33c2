//! Responses to queries: [`Answer`]; [`NodeAnswer`], which combines a cached result with the fields that depend on the
//! request; [`Later`], for a result that is not ready yet.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::json;

use crate::openapi::{Shape, Success};
use crate::operation::output::{Output, Reply};
use crate::rendering::{MEDIA_TYPES, media_type};
use crate::response::{Problem, Response, StreamError};
use weir_api::query;
use weir_api::query::{Envelope, QueryLater, QueryStatus, Rows};
use weir_base::error::Kind;
use weir_event::json;
use weir_insights::cache::Key;
use weir_insights::jobs::{KEPT, Outcome, Status};
use weir_insights::{ProjectSettings, cache};
use weir_query::kernel::files::File;
use weir_query::output::format::Format;

/// Longest results that are sent in one piece.
const PIECE_BYTES: usize = 1 << 20;

/// Result of a query.
#[derive(Debug)]
pub enum Answer {
    /// The result of a node.
    Node(NodeAnswer),
    /// Only a cached result was requested, and there is none under this key.
    NotKept(Key),
    /// The result is computed later.
    Later(Later),
    /// The result of SQL as a file.
    File(Format, File),
}

/// The response with the result of SQL as a file. A long one is sent while it is computed; if the query fails in the
/// middle of it, the connection is broken off.
pub(in crate::routes) fn file(format: Format, file: File) -> Response {
    let pieces = match file {
        File::Whole(bytes) => return Response::bytes(StatusCode::OK, media_type(format), bytes),
        File::Long(pieces) => pieces,
    };
    let ready_bytes = pieces.ready_bytes();
    let parts = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.next().await?;
        Some((piece.map_err(StreamError::from), pieces))
    });
    Response::stream(StatusCode::OK, media_type(format), parts).holding(ready_bytes)
}

impl Output for Answer {
    fn describe(shape: &mut Shape) {
        shape.success = Some(Success::of::<query::Answer>(StatusCode::OK, "The rows"));
        shape.files = MEDIA_TYPES;
        let says = "It is answered later: ask for query/ID/";
        shape.others.push(Success::of::<QueryLater>(StatusCode::ACCEPTED, says));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        match self {
            Self::Node(told) => told.response(),
            Self::NotKept(key) => {
                let body = json!({"cache_key": key.to_string(), "query_status": null});
                Ok(Response::json(StatusCode::OK, &body))
            }
            Self::Later(later) => later.respond(reply).await,
            Self::File(format, of) => Ok(file(format, of)),
        }
    }
}

/// The rows of a result that consists of rows.
///
/// # Errors
///
/// It is not JSON: a bug.
pub(in crate::routes) fn rows(answer: &cache::Answer) -> Result<Rows, Problem> {
    let failed = |error| Problem::of(Kind::Internal, &error);
    let mut told = answer.told().map_err(failed)?;
    let results = json::restore(&answer.results).map_err(failed)?;
    let mut part = |name: &str| told.remove(name).unwrap_or_default();
    Ok(Rows::of(part("columns"), part("types"), results))
}

/// The result of one request for a node.
#[derive(Debug)]
pub struct NodeAnswer {
    /// The cache key.
    pub(super) key: Key,
    /// The cached part.
    pub(in crate::routes) answer: Arc<cache::Answer>,
    /// The settings of the project.
    pub(super) owner: ProjectSettings,
    /// Whether it came from the cache.
    pub(super) is_cached: bool,
}

impl NodeAnswer {
    /// The text before and after the results.
    fn around(&self) -> Result<(&'static str, String), Problem> {
        let envelope = Envelope {
            timezone: &self.owner.timezone,
            is_cached: self.is_cached,
            last_refresh: self.answer.at.to_rfc3339(),
            next_allowed_client_refresh: self.answer.at.to_rfc3339(),
            cache_key: self.key.to_string(),
            error: (),
            query_status: (),
        };
        let envelope = serde_json::to_string(&envelope);
        let envelope = envelope.map_err(|error| Problem::of(Kind::Internal, &error))?;
        let envelope = envelope.strip_prefix('{').unwrap_or_default();
        Ok(("{\"results\":", format!(",{},{envelope}", self.answer.fields)))
    }

    /// Appends its text to another one.
    pub(super) fn add_to(&self, text: &mut Vec<u8>) -> Result<(), Problem> {
        let (before, behind) = self.around()?;
        text.extend_from_slice(before.as_bytes());
        text.extend_from_slice(&self.answer.results);
        text.extend_from_slice(behind.as_bytes());
        Ok(())
    }

    /// The response. A long one is sent in pieces, which avoids a copy.
    fn response(&self) -> Result<Response, Problem> {
        let results = self.answer.results.clone();
        if results.len() <= PIECE_BYTES {
            let mut text = Vec::with_capacity(results.len());
            self.add_to(&mut text)?;
            return Ok(Response::json_bytes(StatusCode::OK, text));
        }
        let (before, behind) = self.around()?;
        let pieces = [Bytes::from(before), results, Bytes::from(behind)];
        let size = pieces.iter().map(Bytes::len).fold(0, usize::saturating_add);
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let pieces = futures::stream::iter(pieces.map(Ok));
        let content_type = HeaderValue::from_static("application/json");
        Ok(Response::sized_stream(StatusCode::OK, content_type, size, pieces))
    }
}

/// A query whose result is computed while the client does not wait.
#[derive(Debug)]
pub struct Later {
    /// The id under which the client fetches the result.
    pub(super) id: String,
    /// The status of the query.
    pub(super) status: Status,
    /// The settings of the project.
    pub(super) owner: ProjectSettings,
}

impl Later {
    /// `{"query_status": {..., "results": ...}}`.
    fn text(&self) -> Result<Vec<u8>, Problem> {
        let body = serde_json::to_string(&status_body(&self.id, &self.status, &self.owner));
        let body = body.map_err(|error| Problem::of(Kind::Internal, &error))?;
        let body = body.strip_suffix('}').unwrap_or_default();
        let mut text = format!("{{\"query_status\":{body},\"results\":").into_bytes();
        match &self.status.ended {
            Some((_, Outcome::Answer(key, answer))) => {
                let (answer, owner) = (Arc::clone(answer), self.owner.clone());
                NodeAnswer { key: *key, answer, owner, is_cached: false }.add_to(&mut text)?;
            }
            _ => text.extend_from_slice(b"null"),
        }
        text.extend_from_slice(b"}}");
        Ok(text)
    }
}

impl Output for Later {
    fn describe(shape: &mut Shape) {
        let of = Success::of::<QueryLater>;
        shape.success = Some(of(StatusCode::OK, "It is answered"));
        shape.others = vec![
            of(StatusCode::ACCEPTED, "It is being computed"),
            of(StatusCode::BAD_REQUEST, "It has no answer: error_message says why"),
        ];
    }

    async fn respond(self, _: &Reply<'_>) -> Result<Response, Problem> {
        let code = match self.status.ended.as_ref().map(|(_, outcome)| outcome) {
            None => StatusCode::ACCEPTED,
            Some(Outcome::Answer(..)) => StatusCode::OK,
            Some(Outcome::Failed { is_fault: true, .. }) => StatusCode::INTERNAL_SERVER_ERROR,
            Some(Outcome::Failed { .. }) => StatusCode::BAD_REQUEST,
        };
        Ok(Response::json_bytes(code, self.text()?))
    }
}

/// The status of a query, without its result.
pub(super) fn status_body<'s>(
    id: &'s str,
    status: &'s Status,
    owner: &'s ProjectSettings,
) -> QueryStatus<'s> {
    let ended = status.ended.as_ref();
    let error = match ended.map(|(_, outcome)| outcome) {
        None | Some(Outcome::Answer(..)) => None,
        Some(Outcome::Failed { detail, is_fault }) => Some((detail.as_str(), *is_fault)),
    };
    QueryStatus {
        id,
        team_id: owner.project.0,
        query_async: !status.is_waited,
        complete: ended.is_some(),
        error: error.is_some(),
        // Internal errors reveal nothing about the server.
        error_message: error.filter(|(_, is_fault)| !is_fault).map(|(detail, _)| detail),
        start_time: status.started_at.to_rfc3339(),
        pickup_time: status.started_at.to_rfc3339(),
        end_time: ended.map(|(at, _)| at.to_rfc3339()),
        expiration_time: ended.map(|(at, _)| at.saturating_add(KEPT).to_rfc3339()),
        query_progress: (),
        labels: (),
        task_id: (),
        insight_id: (),
        dashboard_id: (),
    }
}
