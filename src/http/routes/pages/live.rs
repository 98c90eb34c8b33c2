//! The live view: the events that were received last, and a stream of those that come, in the order of arrival; see
//! [`arrivals`] for how none is missed. A stream asks for events only after something of its project was published,
//! lasts for an hour at most, and counts among the streams that a client may hold open. Refused requests are told in
//! it, too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use hyper::header::HeaderValue;
use hyper::{StatusCode, header};
use maud::html;
use serde_json::{Value, json};

use crate::beside::beside;
use crate::lasting::EVENT_STREAM;
use crate::response::{Problem, Response, StreamError};
use crate::routes::flag_events::Place;
use crate::routes::pages::events::{names, wanted};
use crate::routes::pages::health;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit};
use crate::routes::{events as of_api, query};
use weir_api::events::Event;
use weir_app::App;
use weir_base::tasks::{Pause, Shutdown};
use weir_event::id::ProjectId;
use weir_insights::events::arrivals::Seen;
use weir_insights::events::{EventRow, EventsQuestion, arrivals};
use weir_web::assets;
use weir_web::pages::events::{Drawn, Wanted};
use weir_web::pages::health::NotStored;
use weir_web::pages::{events as shown, health as told};
use weir_web::parts::page;

/// Events that are there at first, and at most in one message; of more than that the number is told.
const EVENTS: usize = 50;

/// Time between looks at the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks without news after which a comment keeps the connection from looking dead.
const QUIET_MAX: u32 = 15;

/// Longest life of a stream; browsers reconnect.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// The header in which browsers say up to where they have seen a stream.
const LAST_EVENT_ID: &str = "last-event-id";

/// The question of a form.
fn question(wanted: &Wanted) -> Result<EventsQuestion, Problem> {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let properties = wanted.properties().map(|list| of_api::OfProperties::of(&list)).transpose()?;
    let properties = properties.unwrap_or_default().0;
    Ok(EventsQuestion {
        event: text(&wanted.event),
        distinct_id: text(&wanted.distinct_id),
        properties,
        ..EventsQuestion::default()
    })
}

/// `GET activity/live`.
pub async fn live(visit: Visit) -> Result<Sent, Problem> {
    let (project, asking, wanted) = (visit.project(), visit.asking.clone(), wanted(&visit));
    let names = names(&asking).await;
    let now = html! {
        (shown::form(project, "activity/live", &wanted, &names))
        div class="actions" {
            span class="badge good" id="live-state" role="status" { "Newest events" }
            button class="small" id="live-pause" type="button" hidden { "Pause" }
            span class="quiet" id="live-rate" {}
        }
        br;
    };
    Ok(Sent::Page(Page::new("Live", now).then(async move {
        let (app, id) = (&asking.app, asking.asker.project.id);
        let question = question(&wanted)?;
        // The stream begins before the list is read, so that nothing is between them; what is in both is shown once.
        let (seen, lately) = arrived(&asking, &question).await?;
        let rows = arrivals::newest(&app.engine, id, question, EVENTS).await;
        let events = drawn(app, id, rows.map_err(query::problem)?).await?;
        let stream = wanted.query(&[("position", &seen.position())]);
        let address = format!("{}?{stream}", page(project, "activity/live/rows"));
        let refused = asking.may("project:read").then(|| health::not_stored(app));
        Ok(html! {
            @if events.is_empty() { (shown::none(project, !wanted.query(&[]).is_empty())) }
            (shown::table(&[], Some(&address), &shown::rows(project, asking.zone, &events, &[])))
            script src=(assets::path("live.js")) data-lately=(lately) defer {}
            @if let Some(refused) = refused { section id="not-stored" { (told::not_stored(asking.zone, &refused)) } }
        })
    })))
}

/// `GET activity/live/rows`: server-sent events. Those called `rows` have rows of the table, the newest last, and how
/// many events they tell of; those called `refused` what was not stored.
pub async fn rows(visit: Visit) -> Result<Sent, Problem> {
    let place = visit.desk.streams.place(visit.request.client_ip)?;
    let clock = visit.asking.app.node.clock.clone();
    let now = clock.now();
    let position = visit.request.header(LAST_EVENT_ID).and_then(|last| Seen::at(last, now));
    let position = position.or_else(|| Seen::at(&visit.parameter("position"), now));
    let question = question(&wanted(&visit))?;
    let seen = match position {
        Some(seen) => seen,
        // A failure is over at a later look, which then tells of all that has arrived lately.
        None => arrived(&visit.asking, &question)
            .await
            .map_or_else(|_| Seen::nothing(now), |(seen, _)| seen),
    };
    let watcher = Watcher {
        question,
        seen,
        looked: None,
        told: None,
        ends: clock.monotonic().saturating_add(LIFE_MAX),
        shutdown: visit.desk.ending.clone(),
        has_looked: false,
        asking: visit.asking,
        _place: place,
    };
    let greeting =
        stream::once(async { Ok::<_, StreamError>(Bytes::from_static(b"retry: 2000\n\n")) });
    let pieces = greeting.chain(stream::unfold(watcher, |mut watcher| async {
        let piece = watcher.next().await?;
        Some((Ok(Bytes::from(piece)), watcher))
    }));
    let media_type = HeaderValue::from_static(EVENT_STREAM);
    let response = Response::stream(StatusCode::OK, media_type, pieces);
    Ok(Sent::Other(
        response.with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ))
}

/// Events as they are drawn, with when they were received.
async fn drawn(app: &App, id: ProjectId, rows: Vec<EventRow>) -> Result<Vec<Drawn>, Problem> {
    let events = of_api::received(app, id, rows).await?;
    let one = |(event, at): (Event, String)| Drawn { received_at: Some(at), ..event.into() };
    beside(&app.node.cpu, move || Ok(events.into_iter().map(one).collect())).await
}

/// What has arrived so far, as seen, and how much of it did in the last minute.
async fn arrived(asking: &Asking, question: &EventsQuestion) -> Result<(Seen, usize), Problem> {
    let (app, project) = (&asking.app, asking.asker.project.id);
    let seen = Seen::all(&app.engine, project, question.clone(), app.node.clock.now()).await;
    seen.map_err(query::problem)
}

/// One open stream.
struct Watcher {
    asking: Arc<Asking>,
    question: EventsQuestion,
    /// What the reader has seen.
    seen: Seen,
    /// How far the project was at the last look.
    looked: Option<u64>,
    /// What it has told of that was not stored.
    told: Option<NotStored>,
    ends: Duration,
    shutdown: Shutdown,
    has_looked: bool,
    _place: Place,
}

impl Watcher {
    /// The next message; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        for _ in 0..QUIET_MAX {
            // What came between the page and the stream is told at once; after that a look has to wait, however much
            // comes.
            if self.has_looked {
                let is_over = self.asking.app.node.clock.monotonic() >= self.ends;
                if is_over || self.shutdown.pause(PAUSE).await == Pause::Cancelled {
                    return None;
                }
            }
            self.has_looked = true;
            if let Some(message) = self.message().await {
                return Some(message);
            }
        }
        // The place of the reader has no data, and is no message therefore.
        Some(format!(": still here\nid: {}\n\n", self.seen.position()))
    }

    /// What there is to tell now.
    async fn message(&mut self) -> Option<String> {
        let latest = self.asking.app.engine.latest_of(self.asking.asker.project.id);
        if self.looked != Some(latest) {
            // A failure is over at a later look, which misses nothing.
            match self.fresh().await {
                Ok(fresh) => {
                    self.looked = Some(latest);
                    if let Some(message) = fresh {
                        return Some(message);
                    }
                }
                Err(problem) => {
                    tracing::debug!(
                        problem = problem.detail(),
                        "a live view cannot look for events"
                    );
                }
            }
        }
        self.refused()
    }

    /// A message with the events that are new, if there are any.
    async fn fresh(&mut self) -> Result<Option<String>, Problem> {
        let app = &self.asking.app;
        let (id, project) = (self.asking.asker.project.id, self.asking.project());
        let (now, mut seen) = (app.node.clock.now(), self.seen.clone());
        let arrived = arrivals::arrived(&app.engine, id, self.question.clone(), seen.floor());
        let fresh = seen.look(&arrived.await.map_err(query::problem)?, now, EVENTS);
        let (number, skipped) = (fresh.number, fresh.skipped());
        if number == 0 {
            self.seen = seen;
            return Ok(None);
        }
        let events = arrivals::named(&app.engine, id, &fresh.keys).await.map_err(query::problem)?;
        let events = drawn(app, id, events).await?;
        let (zone, position) = (self.asking.zone, seen.position());
        let write = move || {
            let mut rows = Vec::with_capacity(events.len() + 1);
            if skipped > 0 {
                rows.push(Value::from(shown::skipped(project, skipped).0));
            }
            rows.extend(events.iter().map(|event| shown::row(project, zone, event, &[]).0.into()));
            let data = json!({"rows": rows, "count": number});
            Ok(format!("id: {position}\nevent: rows\ndata: {data}\n\n"))
        };
        let message = beside(&app.node.cpu, write).await?;
        self.seen = seen;
        Ok(Some(message))
    }

    /// A message with what was not stored, if there is more of it.
    fn refused(&mut self) -> Option<String> {
        if !self.asking.may("project:read") {
            return None;
        }
        let refused = health::not_stored(&self.asking.app);
        if self.told.as_ref() == Some(&refused) {
            return None;
        }
        let data = Value::from(told::not_stored(self.asking.zone, &refused).0);
        self.told = Some(refused);
        Some(format!("event: refused\ndata: {data}\n\n"))
    }
}
