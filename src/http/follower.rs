//! Requests to a server that follows another one ([`Follower`]): reads are answered here, as of everything that any server
//! acknowledged before them, and writes by the server that writes. Until it follows, and where it cannot tell what is
//! newest, requests go there as well; where nobody can be reached, they are refused.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use hyper::Method;

use crate::forward::{Forwarding, standing_by};
use crate::handler::{Handler, Matched};
use crate::public::Public;
use crate::request::Request;
use crate::response::Response;
use crate::router::{Route, Router};
use crate::routes::{health, pages};
use crate::standby;
use crate::standby::Standby;
use weir_event::json;

/// Largest body of a query that is looked into before it is answered. A larger one is no query of a client that polls.
const QUERY_MAX_BYTES: u64 = 1 << 20;

/// Answers requests while another server writes.
#[derive(Debug)]
pub struct Follower {
    /// Answers before it follows, and probes.
    pub standby: Standby,
    /// Passes on what is not answered here; `None` if nothing is.
    pub forwarding: Option<Forwarding>,
    /// The endpoints, once it follows.
    pub reading: Arc<ArcSwapOption<Router>>,
}

/// The endpoint of a request.
#[derive(Debug)]
pub enum Endpoint {
    /// Of a server that stands by.
    Standby(standby::Endpoint),
    /// Of one that follows.
    Reading(Arc<Router>, Route),
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// This server, without a look at what is newest: the answer depends on nothing that is written.
    AnyState,
    /// This server, once it has everything that was acknowledged before.
    NewestState,
    /// The server that writes.
    Writer,
}

impl Handler for Follower {
    type Route = Endpoint;

    fn route(&self, method: &Method, path: &str) -> Matched<Endpoint> {
        let standing = self.standby.route(method, path);
        let reading = self.reading.load_full().filter(|_| !standing.is_probe);
        match (reading, standing.route) {
            (Some(router), standby::Endpoint::Other) => {
                let Matched { route, label, is_routine, is_probe } = router.route(method, path);
                let route = Endpoint::Reading(router, route);
                Matched { route, label, is_routine, is_probe }
            }
            (_, route) => {
                let Matched { label, is_routine, is_probe, .. } = standing;
                Matched { route: Endpoint::Standby(route), label, is_routine, is_probe }
            }
        }
    }

    async fn handle(&self, endpoint: Endpoint, mut request: Request) -> Response {
        match endpoint {
            Endpoint::Reading(router, route) => {
                let by = by(&route, &mut request).await;
                let is_here = match by {
                    By::AnyState => true,
                    By::NewestState => router.app().is_newest().await,
                    By::Writer => false,
                };
                match is_here {
                    true => router.handle(route, request).await,
                    false => self.elsewhere(request).await,
                }
            }
            Endpoint::Standby(standby::Endpoint::Readiness) if self.is_ready() => {
                health::liveness()
            }
            Endpoint::Standby(standby::Endpoint::Other) => self.elsewhere(request).await,
            Endpoint::Standby(endpoint) => self.standby.handle(endpoint, request).await,
        }
    }
}

impl Follower {
    /// Whether any request may be sent here.
    fn is_ready(&self) -> bool {
        self.reading.load().is_some() && self.forwarding.as_ref().is_some_and(Forwarding::reaches)
    }

    async fn elsewhere(&self, request: Request) -> Response {
        match &self.forwarding {
            Some(forwarding) => forwarding.forward(request).await,
            None => standing_by().into(),
        }
    }
}

/// Who answers a request: whoever has the state that it needs, or changes what it changes.
async fn by(route: &Route, request: &mut Request) -> By {
    match route {
        Route::Public(public) => of_public(public, &request.method),
        Route::Page(pages::Route::Asset) => By::AnyState,
        Route::Page(pages::Route::Page(page)) if is_written_later(page.line.scope) => By::Writer,
        Route::Page(_) if request.method == Method::GET => By::NewestState,
        Route::Page(_) => By::Writer,
        Route::Managed(managed) if !managed.endpoint.scope.ends_with(":read") => By::Writer,
        Route::Managed(managed) if is_written_later(managed.endpoint.scope) => By::Writer,
        Route::Managed(managed) if is_about_a_job(managed.endpoint.path, request).await => {
            By::Writer
        }
        Route::Managed(_) => By::NewestState,
        Route::Internal(_) | Route::WrongMethod(_) | Route::Unknown => By::AnyState,
    }
}

/// Whether a scope is that of definitions: the server that writes derives them from events, after it has acknowledged these,
/// and its readers wait for that.
fn is_written_later(scope: &str) -> bool {
    scope.starts_with("event_definition:") || scope.starts_with("property_definition:")
}

fn of_public(public: &Public, method: &Method) -> By {
    match public {
        Public::Capture(_)
        | Public::CaptureV1
        | Public::Otel
        | Public::Discarded(_)
        // A conversation is a state of one process.
        | Public::Mcp(_) => By::Writer,
        Public::Shared(_) if method != Method::GET => By::Writer,
        Public::Liveness
        | Public::Readiness
        | Public::Metrics
        | Public::Description
        | Public::Static(_)
        | Public::Llms
        | Public::LlmsFull => By::AnyState,
        Public::Root
        | Public::Flags
        | Public::FlagsWithoutSubject
        | Public::Start { .. }
        | Public::List(_)
        | Public::Definitions(_)
        | Public::FlagPayload { .. }
        | Public::OfrepAll
        | Public::OfrepOne(_)
        | Public::Shared(_)
        | Public::FlagEvents => By::NewestState,
    }
}

/// Whether a request starts a query that is answered later, or is about one: clients ask for it, or cancel it, by its id, and
/// it is a state of one process.
async fn is_about_a_job(path: &str, request: &mut Request) -> bool {
    if path.starts_with("P/query/:") {
        return true;
    }
    let names_async = |text: &str| text.contains("async");
    if request.query("refresh").is_some_and(|refresh| names_async(&refresh))
        || request.query("client_query_id").is_some()
    {
        return true;
    }
    if request.method != Method::POST {
        return false;
    }
    let Some(body) = request.body.peek(QUERY_MAX_BYTES).await else { return true };
    // What is no JSON is refused here as it is there.
    let Ok(members) = json::members(body) else { return false };
    let member = |name: &str| members.get(name).map(|value| value.get());
    member("async") == Some("true")
        || member("refresh").is_some_and(names_async)
        || member("client_query_id").is_some_and(|id| id != "null")
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::{By, of_public};
    use crate::lookup::Lookup;
    use crate::public;

    #[test]
    fn what_writes_goes_to_the_server_that_writes() {
        for (method, path, expected) in [
            (Method::POST, "/batch/", By::Writer),
            (Method::POST, "/i/v0/e/", By::Writer),
            (Method::POST, "/s/", By::Writer),
            (Method::POST, "/i/v1/analytics/events", By::Writer),
            (Method::POST, "/mcp", By::Writer),
            (Method::POST, "/flags/", By::NewestState),
            (Method::POST, "/decide", By::NewestState),
            (Method::GET, "/array/phc_x/config", By::NewestState),
            (Method::GET, "/shared/abc.json", By::NewestState),
            (Method::POST, "/shared/abc.json", By::Writer),
            (Method::GET, "/llms.txt", By::AnyState),
        ] {
            let Lookup::Found(found) = public::find(method.as_str(), path) else {
                panic!("{method} {path}");
            };
            assert_eq!(of_public(&found, &method), expected, "{method} {path}");
        }
    }
}
