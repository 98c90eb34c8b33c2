//! Answers to nodes as clients get them: [`Told`], whose text is put together from what is kept of an answer and what
//! depends on the request.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde::Serialize;

use crate::response::Response;
use weir_insights::ProjectSettings;
use weir_insights::cache::{Answer, Key};

/// Answers up to this length are sent in one piece.
const PIECE_BYTES: usize = 1 << 20;

/// An answer to one request.
pub(super) struct Told<'a> {
    key: Key,
    answer: &'a Answer,
    owner: &'a ProjectSettings,
    is_cached: bool,
}

/// What the answer to a node has besides what is kept of it.
#[derive(Debug, Serialize)]
struct Envelope<'a> {
    timezone: &'a str,
    is_cached: bool,
    last_refresh: String,
    next_allowed_client_refresh: String,
    cache_key: String,
    error: Option<()>,
    query_status: Option<()>,
}

impl<'a> Told<'a> {
    pub(super) fn new(
        key: Key,
        answer: &'a Answer,
        owner: &'a ProjectSettings,
        is_cached: bool,
    ) -> Self {
        Self { key, answer, owner, is_cached }
    }

    /// What stands before and behind the results.
    fn around(&self) -> Result<(&'static str, String), serde_json::Error> {
        let envelope = Envelope {
            timezone: &self.owner.timezone,
            is_cached: self.is_cached,
            last_refresh: self.answer.at.to_rfc3339(),
            next_allowed_client_refresh: self.answer.at.to_rfc3339(),
            cache_key: self.key.to_string(),
            error: None,
            query_status: None,
        };
        let envelope = serde_json::to_string(&envelope)?;
        let envelope = envelope.strip_prefix('{').unwrap_or_default();
        Ok(("{\"results\":", format!(",{},{envelope}", self.answer.fields)))
    }

    /// Adds its text to another one.
    pub(super) fn add_to(&self, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let (before, behind) = self.around()?;
        text.extend_from_slice(before.as_bytes());
        text.extend_from_slice(&self.answer.results);
        text.extend_from_slice(behind.as_bytes());
        Ok(())
    }

    /// The response. Pieces avoid a copy of a long one.
    pub(super) fn response(&self) -> Result<Response, serde_json::Error> {
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
