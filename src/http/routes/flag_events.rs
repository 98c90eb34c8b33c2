//! A stream of server-sent events that tells when the flags of a project changed. It says only that:
//! who wants to know more asks again, with the tag that the event has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use hyper::header::HeaderValue;
use serde_json::json;
use tokio::sync::watch;

use crate::app::App;
use crate::clock::Clock;
use crate::event::id::ProjectId;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::response::StreamError;
use crate::metadata::Metadata;
use crate::metadata::snapshot::Revision;
use crate::tasks::Shutdown;

/// Time after which a comment keeps the connection from looking dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Longest life of a stream; clients connect again. Bounds what a client that went away costs.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// One subscriber.
struct Subscriber {
    metadata: Metadata,
    project: ProjectId,
    published: watch::Receiver<u64>,
    seen: Option<Arc<Revision>>,
    clock: Clock,
    ends: Duration,
    shutdown: Shutdown,
    is_greeted: bool,
}

/// `GET /flags/events?token=`: the project by its public token, as in `X-API-Key` too.
pub fn events(app: &App, ending: &Shutdown, request: &Request) -> Result<Response, Problem> {
    let snapshot = app.metadata.snapshot();
    let query = request.query("token");
    let token = query.as_deref().or(request.header("x-api-key")).unwrap_or_default();
    let project = snapshot.project_by_token(token).ok_or_else(Problem::invalid_api_key)?.id;
    let subscriber = Subscriber {
        metadata: app.metadata.clone(),
        project,
        published: app.metadata.published(),
        seen: snapshot.revision(project).cloned(),
        clock: app.clock.clone(),
        ends: app.clock.monotonic().saturating_add(LIFE_MAX),
        shutdown: ending.clone(),
        is_greeted: false,
    };
    let pieces = stream::unfold(subscriber, |mut subscriber| async {
        let piece = subscriber.next().await?;
        Some((Ok::<_, StreamError>(Bytes::from(piece)), subscriber))
    });
    let media_type = HeaderValue::from_static("text/event-stream");
    let response = Response::stream(StatusCode::OK, media_type, pieces);
    Ok(response.with_header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
}

impl Subscriber {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<String> {
        if !self.is_greeted {
            self.is_greeted = true;
            return Some(": connected\n\n".to_owned());
        }
        loop {
            if self.clock.monotonic() >= self.ends {
                return None;
            }
            let changed = tokio::select! {
                () = self.shutdown.cancelled() => return None,
                changed = tokio::time::timeout(HEARTBEAT, self.published.changed()) => changed,
            };
            match changed {
                Err(_) => return Some(": still here\n\n".to_owned()),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {}
            }
            if let Some(event) = self.event() {
                return Some(event);
            }
        }
    }

    /// The event, if the project's flags are among what changed.
    fn event(&mut self) -> Option<String> {
        let snapshot = self.metadata.snapshot();
        let revision = snapshot.revision(self.project)?;
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, revision)) {
            return None;
        }
        self.seen = Some(Arc::clone(revision));
        let now = self.clock.now();
        let data = json!({
            "type": "refetchEvaluation",
            "etag": format!("\"{}\"", now.0),
            "lastModified": now.to_rfc3339(),
        });
        Some(format!("event: message\ndata: {data}\n\n"))
    }
}
