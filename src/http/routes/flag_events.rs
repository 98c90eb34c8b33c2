//! Server-sent events about changes of a project's flags. An event contains only a tag; clients fetch the flags again
//! with that tag.
//!
//! A stream lasts for one hour and occupies a connection, and the token is public. Therefore streams may use only a
//! part of the connections, and those of one client address a part of that ([`Subscribers`]).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use crate::request::Request;
use crate::response::{Problem, Response, StreamError};
use crate::revocation;
use weir_app::App;
use weir_base::attempts::network;
use weir_base::clock::Clock;
use weir_base::error::Kind;
use weir_base::tasks::Shutdown;
use weir_event::id::ProjectId;
use weir_event::key_kind::KeyKind;
use weir_metadata::Metadata;
use weir_metadata::snapshot::Revision;
use weir_metadata::standing::Standing;

/// Interval of comments that keep an idle connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Longest life of a stream; clients reconnect. Bounds the cost of a client that has disappeared.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// Streams may use this fraction of `connections-max`, and one address this fraction of that.
const PART_OF_CONNECTIONS: u32 = 4;
const PART_OF_ADDRESS: u32 = 8;

/// `Retry-After` of a refused client in seconds. A stream ends after an hour at the latest, and
/// clients poll flags meanwhile.
const RETRY_AFTER_SECONDS: u64 = 60;

/// The open streams, by client address.
#[derive(Clone, Debug)]
pub struct Subscribers {
    open: Arc<Mutex<Open>>,
    all_max: u32,
    address_max: u32,
}

#[derive(Debug, Default)]
struct Open {
    all: u32,
    by_address: HashMap<IpAddr, u32>,
}

/// One open stream; decrements the count when dropped.
#[derive(Debug)]
pub(super) struct StreamSlot {
    open: Arc<Mutex<Open>>,
    address: IpAddr,
}

impl Subscribers {
    /// No streams yet; the limits follow from `connections_max`.
    pub fn new(connections_max: u32) -> Self {
        let all_max = (connections_max / PART_OF_CONNECTIONS).max(1);
        let address_max = (all_max / PART_OF_ADDRESS).max(1);
        Self { open: Arc::default(), all_max, address_max }
    }

    /// Counts a stream of a client, or refuses it.
    pub(super) fn place(&self, client: IpAddr) -> Result<StreamSlot, Problem> {
        let address = network(client);
        let mut open = self.open.lock();
        if open.all >= self.all_max {
            let detail = "Too many clients hold a stream open.";
            let problem = Problem::new(Kind::Overloaded, "too_many_streams", detail);
            return Err(problem.retry_after(RETRY_AFTER_SECONDS));
        }
        let own = open.by_address.entry(address).or_default();
        if *own >= self.address_max {
            let detail = "Too many clients of this address hold a stream open.";
            return Err(Problem::too_many_requests("too_many_streams", detail)
                .retry_after(RETRY_AFTER_SECONDS));
        }
        *own += 1;
        open.all += 1;
        Ok(StreamSlot { open: Arc::clone(&self.open), address })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.all = open.all.saturating_sub(1);
        if let Entry::Occupied(mut own) = open.by_address.entry(self.address) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

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
    _place: StreamSlot,
}

/// `GET /flags/events?token=`: the project is selected by its public token, which may also be in `X-API-Key`. The
/// stream ends soon after the token was replaced.
pub fn events(
    app: &App,
    subscribers: &Subscribers,
    ending: &Shutdown,
    request: &Request,
) -> Result<Response, Problem> {
    let snapshot = app.node.metadata.snapshot();
    let query = request.query("token");
    let token = query.as_deref().or(request.header("x-api-key")).unwrap_or_default();
    let project = snapshot
        .project_by_token(token)
        .ok_or_else(|| Problem::invalid_api_key(KeyKind::of(token)))?
        .id;
    let subscriber = Subscriber {
        metadata: app.node.metadata.clone(),
        project,
        published: app.node.metadata.published(),
        seen: snapshot.revision(project).cloned(),
        clock: app.node.clock.clone(),
        ends: app.node.clock.monotonic().saturating_add(LIFE_MAX),
        shutdown: ending.clone(),
        is_greeted: false,
        _place: subscribers.place(request.client_ip)?,
    };
    let pieces = stream::unfold(subscriber, |mut subscriber| async {
        let piece = subscriber.next().await?;
        Some((Ok::<_, StreamError>(Bytes::from(piece)), subscriber))
    });
    let media_type = HeaderValue::from_static(revocation::EVENT_STREAM);
    let response = Response::stream(StatusCode::OK, media_type, pieces);
    let response =
        revocation::streamed(&Standing::of_token(&app.node.metadata, project, token), response);
    Ok(response.with_header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
}

impl Subscriber {
    /// The next event or comment of the stream; `None` at its end.
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

    /// The event, if the project's flags have changed.
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::Subscribers;
    use crate::response::Response;

    #[test]
    fn streams_have_a_part_of_the_connections_and_an_address_a_part_of_that() {
        let subscribers = Subscribers::new(64);
        let mut places = Vec::new();
        let mut ask = |address: &str| match subscribers.place(address.parse::<IpAddr>().unwrap()) {
            Ok(place) => {
                places.push(place);
                200
            }
            Err(problem) => {
                let response = Response::from(problem);
                assert_eq!(response.headers["retry-after"], "60");
                response.status.as_u16()
            }
        };
        for (address, status) in [
            ("192.0.2.1", 200),
            ("192.0.2.1", 200),
            ("192.0.2.1", 429),
            ("192.0.2.2", 200),
            ("2001:db8::1", 200),
            ("2001:db8::2", 200),
            ("2001:db8::3", 429),
            ("2001:db8:0:1::1", 200),
        ] {
            assert_eq!(ask(address), status, "{address}");
        }
        let others = (0..16).map(|number| ask(&format!("198.51.100.{number}")));
        assert_eq!(others.filter(|status| *status == 200).count(), 10, "16 in all");
        assert_eq!(ask("203.0.113.1"), 503);
        places.clear();
        let open = subscribers.open.lock();
        assert_eq!(
            (open.all, open.by_address.len()),
            (0, 0),
            "nothing is left of those that ended"
        );
    }
}
