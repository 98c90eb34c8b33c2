//! The live view: the events that were received last, and a stream of new ones, in the order of arrival; [`arrivals`]
//! explains why none is missed. A stream queries events only after an event of its project was published, lasts for an
//! hour at most, and counts among the streams that a client may hold open. The stream also reports refused requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use hyper::header::HeaderValue;
use hyper::{StatusCode, header};
use maud::html;
use serde_json::{Value, json};

use crate::beside::beside;
use crate::response::{Problem, Response, StreamError};
use crate::revocation::EVENT_STREAM;
use crate::routes::events as of_api;
use crate::routes::flag_events::StreamSlot;
use crate::routes::pages::events::{names, wanted};
use crate::routes::pages::health;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit};
use crate::routes::query::problems;
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

/// Events in the initial list, and most in one message; of further ones only the number is sent.
const EVENTS: usize = 50;

/// Interval at which a stream checks for new events.
const PAUSE: Duration = Duration::from_secs(1);

/// Checks without news after which a comment keeps the idle connection open.
const QUIET_MAX: u32 = 15;

/// Longest life of a stream; browsers reconnect.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// The header in which browsers send the id of the last message that they received.
const LAST_EVENT_ID: &str = "last-event-id";

/// The query with the filters of a form.
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
        // The position of the stream is taken before the list is read, so that no event is missed; an event in both is
        // shown once.
        let (seen, lately) = arrived(&asking, &question).await?;
        let rows = arrivals::newest(&app.engine, id, question, EVENTS).await;
        let events = drawn(app, id, rows.map_err(problems::problem)?).await?;
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

/// `GET activity/live/rows`: server-sent events. Messages `rows` contain rows of the table, the newest last, and the
/// number of events; messages `refused` contain counts of what was not stored.
pub async fn rows(visit: Visit) -> Result<Sent, Problem> {
    let place = visit.desk.streams.place(visit.request.client_ip)?;
    let clock = visit.asking.app.node.clock.clone();
    let now = clock.now();
    let position = visit.request.header(LAST_EVENT_ID).and_then(|last| Seen::at(last, now));
    let position = position.or_else(|| Seen::at(&visit.parameter("position"), now));
    let question = question(&wanted(&visit))?;
    let seen = match position {
        Some(seen) => seen,
        // A failure may be over at a later check, which then sends all events that arrived lately.
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

/// Events in the form for drawing, with the times at which they were received.
async fn drawn(app: &App, id: ProjectId, rows: Vec<EventRow>) -> Result<Vec<Drawn>, Problem> {
    let events = of_api::received(app, id, rows).await?;
    let one = |(event, at): (Event, String)| Drawn { received_at: Some(at), ..event.into() };
    beside(&app.node.cpu, move || Ok(events.into_iter().map(one).collect())).await
}

/// The position after the events that have arrived so far, and how many of them arrived in the last minute.
async fn arrived(asking: &Asking, question: &EventsQuestion) -> Result<(Seen, usize), Problem> {
    let (app, project) = (&asking.app, asking.asker.project.id);
    let seen = Seen::all(&app.engine, project, question.clone(), app.node.clock.now()).await;
    seen.map_err(problems::problem)
}

/// One open stream.
struct Watcher {
    asking: Arc<Asking>,
    question: EventsQuestion,
    /// The events that the client has received.
    seen: Seen,
    /// The position of the project at the last check.
    looked: Option<u64>,
    /// The counts of what was not stored that were sent last.
    told: Option<NotStored>,
    ends: Duration,
    shutdown: Shutdown,
    has_looked: bool,
    _place: StreamSlot,
}

impl Watcher {
    /// The next message; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        for _ in 0..QUIET_MAX {
            // Events between the page and the start of the stream are sent at once; after that every check waits for
            // the interval, however many events arrive.
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
        // A comment with the position of the client: it has no data, so browsers do not treat it as a message.
        Some(format!(": still here\nid: {}\n\n", self.seen.position()))
    }

    /// The message that is due now, if any.
    async fn message(&mut self) -> Option<String> {
        let latest = self.asking.app.engine.latest_of(self.asking.asker.project.id);
        if self.looked != Some(latest) {
            // A failure may be over at a later check, which misses nothing.
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

    /// A message with the new events, if there are any.
    async fn fresh(&mut self) -> Result<Option<String>, Problem> {
        let app = &self.asking.app;
        let (id, project) = (self.asking.asker.project.id, self.asking.project());
        let (now, mut seen) = (app.node.clock.now(), self.seen.clone());
        let arrived = arrivals::arrived(&app.engine, id, self.question.clone(), seen.floor());
        let fresh = seen.look(&arrived.await.map_err(problems::problem)?, now, EVENTS);
        let (number, skipped) = (fresh.number, fresh.skipped());
        if number == 0 {
            self.seen = seen;
            return Ok(None);
        }
        let events =
            arrivals::named(&app.engine, id, &fresh.keys).await.map_err(problems::problem)?;
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

    /// A message with the counts of what was not stored, if they have changed.
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
