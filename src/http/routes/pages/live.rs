//! The live view: the newest events, and a stream of those that come. A stream asks for events only after the log
//! has grown, lasts for an hour at most, and counts among the streams that a client may hold open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use hyper::StatusCode;
use hyper::header;
use hyper::header::HeaderValue;
use maud::html;
use serde_json::Value;

use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::response::StreamError;
use crate::http::routes::flag_events::Place;
use crate::http::routes::pages::events::load;
use crate::http::routes::pages::events::names;
use crate::http::routes::pages::events::wanted;
use crate::http::routes::pages::health;
use crate::http::routes::pages::visit::Asking;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::tasks::Pause;
use crate::tasks::Shutdown;
use crate::web::assets;
use crate::web::pages::events as shown;
use crate::web::pages::events::Wanted;
use crate::web::pages::health::not_stored;
use crate::web::parts;
use crate::web::parts::page;

/// Events that are there at first, and at most in one message.
const EVENTS: usize = 50;

/// Time between looks at the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks without news after which a comment keeps the connection from looking dead.
const QUIET_MAX: u32 = 15;

/// Longest life of a stream; browsers reconnect.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// Events that are remembered, so that none is sent twice.
const KNOWN_MAX: usize = 500;

/// `GET activity/live`.
pub async fn live(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, wanted) = (visit.project(), visit.asking.clone(), wanted(&visit));
    let names = names(&asking).await;
    let now = html! {
        (shown::form(project, "activity/live", &wanted, &names))
        div class="actions" {
            span class="badge good" id="live-state" role="status" { "Newest events" }
            button class="small" id="live-pause" type="button" hidden { "Pause" }
        }
        br;
    };
    Ok(Sent::Page(Page::new("Live", now).then(async move {
        let found = load(&asking, &wanted, (EVENTS, 0)).await?;
        let events = shown::of(&found);
        let address = format!("{}?{}", page(project, "activity/live/rows"), wanted.query(&[]));
        Ok(html! {
            @if events.is_empty() { (shown::none(project, !wanted.query(&[]).is_empty())) }
            (shown::table(&[], Some(&address), &shown::rows(project, asking.zone, events, &[])))
            script src=(assets::path("live.js")) defer {}
            @if asking.may("project:read") { (not_stored(&health::not_stored(&asking.app))) }
        })
    })))
}

/// `GET activity/live/rows`: server-sent events with rows of the table.
pub async fn rows(visit: Visit) -> Result<Sent, Problem> {
    let place = visit.desk.streams.place(visit.request.client_ip)?;
    let clock = visit.asking.app.clock.clone();
    let watcher = Watcher {
        wanted: wanted(&visit),
        asking: visit.asking,
        known: VecDeque::new(),
        seen: None,
        ends: clock.monotonic().saturating_add(LIFE_MAX),
        shutdown: visit.desk.ending.clone(),
        _place: place,
    };
    let pieces = stream::unfold(watcher, |mut watcher| async {
        let piece = watcher.next().await?;
        Some((Ok::<_, StreamError>(Bytes::from(piece)), watcher))
    });
    let media_type = HeaderValue::from_static("text/event-stream");
    let response = Response::stream(StatusCode::OK, media_type, pieces);
    Ok(Sent::Other(
        response.with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ))
}

/// One open stream.
struct Watcher {
    asking: Arc<Asking>,
    wanted: Wanted,
    /// Ids of the newest events, which were sent or were there at first.
    known: VecDeque<String>,
    /// How far the log was at the last look; `None` before the first.
    seen: Option<u64>,
    ends: Duration,
    shutdown: Shutdown,
    _place: Place,
}

impl Watcher {
    /// The next message; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        let Some(_) = self.seen else {
            // The page has shown these.
            self.fresh().await;
            return Some("retry: 2000\n\n".to_owned());
        };
        for _ in 0..QUIET_MAX {
            let is_over = self.asking.app.clock.monotonic() >= self.ends;
            if is_over || self.shutdown.pause(PAUSE).await == Pause::Cancelled {
                return None;
            }
            if self.seen == Some(self.asking.app.pipeline.published().0) {
                continue;
            }
            let rows = self.fresh().await;
            if !rows.is_empty() {
                let data = Value::from(rows);
                return Some(format!("event: rows\ndata: {data}\n\n"));
            }
        }
        Some(": still here\n\n".to_owned())
    }

    /// The rows of events that are new, oldest first.
    async fn fresh(&mut self) -> Vec<String> {
        self.seen = Some(self.asking.app.pipeline.published().0);
        // A failure is over at a later look, or the page says so when it is loaded again.
        let found = load(&self.asking, &self.wanted, (EVENTS, 0)).await.unwrap_or_default();
        let mut rows = Vec::new();
        for event in shown::of(&found).iter().rev() {
            let id = parts::text(event, "id");
            if self.known.iter().any(|known| known == id) {
                continue;
            }
            self.known.push_back(id.to_owned());
            rows.push(shown::row(self.asking.project(), self.asking.zone, event, &[]).0);
        }
        while self.known.len() > KNOWN_MAX {
            self.known.pop_front();
        }
        rows
    }
}
