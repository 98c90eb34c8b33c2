//! Router: finds the endpoint of a request and runs it. The public endpoints are listed in [`public`],
//! the management endpoints in [`table`]. This file does what all management endpoints need:
//! authentication, rate limit, permissions, format of the response. Only the router has the whole
//! [`App`]; a route function gets it and takes what it needs.

use std::num::NonZeroU32;
use std::sync::Arc;

use hyper::Method;
use hyper::header::ACCEPT_ENCODING;

use crate::gzip::compressed;
use crate::handler::{Handler, Matched};
use crate::lookup::{Lookup, allow};
use crate::openapi::bodies::Bodies;
use crate::operation::Root;
use crate::operation::serve::{Arrived, Serving};
use crate::public::Public;
use crate::rendering::Rendering;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::documents::shared;
use crate::routes::internal::Internal;
use crate::routes::llms::Guide;
use crate::routes::pages::visit::Desk;
use crate::routes::{
    capture, capture_v1, description, discarded, flag_events, flags, health, internal, landing,
    lists, local_evaluation, mcp, ofrep, otel, pages, remote_config, static_files,
};
use crate::table::Managed;
use crate::{auth, public, revocation, table};
use weir_app::App;
use weir_base::attempts::Attempts;
use weir_base::tasks::Shutdown;
use weir_metadata::standing::Standing;

/// Sign-ins of one client address in a minute, failed or not.
const SIGN_INS_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(10) {
    Some(ten) => ten,
    None => NonZeroU32::MIN,
};

/// The endpoints of one server.
#[derive(Debug)]
pub struct Router {
    app: App,
    definitions: local_evaluation::Cache,
    links: shared::Links,
    /// The fields of bodies, by endpoint.
    bodies: Bodies,
    subscribers: flag_events::Subscribers,
    /// State of the pages.
    desk: Arc<Desk>,
    /// Cancelled when the server stops; ends the streams that would go on otherwise.
    ending: Shutdown,
    /// Secret in the lock file. It proves that a command may read the data directory.
    secret: Arc<str>,
    /// The guide, for models.
    guide: Guide,
}

/// The endpoint of a request.
#[derive(Debug)]
pub enum Route {
    /// One of [`public::PUBLIC`].
    Public(Public),
    /// Internal endpoint, for commands of the same user.
    Internal(Internal),
    /// One of [`table::TABLE`].
    Managed(Managed),
    /// A page, or an asset of pages.
    Page(pages::Route),
    /// The path exists, with the methods of this `Allow` header.
    WrongMethod(String),
    /// No endpoint has this path.
    Unknown,
}

/// Finds the endpoint.
fn find(method: &Method, path: &str) -> Route {
    match public::find(method.as_str(), path) {
        Lookup::Found(public) => return Route::Public(public),
        Lookup::WrongMethod(allow) => return Route::WrongMethod(allow),
        Lookup::Nothing => {}
    }
    if let Some(internal) = Internal::find(path) {
        return match *method {
            Method::POST => Route::Internal(internal),
            _ => Route::WrongMethod(allow(vec!["POST"])),
        };
    }
    if let Some(page) = pages::find(method, path) {
        return Route::Page(page);
    }
    match table::find(method.as_str(), path) {
        Lookup::Found(managed) => Route::Managed(managed),
        Lookup::WrongMethod(allow) => Route::WrongMethod(allow),
        Lookup::Nothing => Route::Unknown,
    }
}

impl Route {
    /// Name in metrics and logs.
    fn label(&self) -> &'static str {
        match self {
            Self::Public(public) => public.label(),
            Self::Internal(internal) => internal.label(),
            Self::Managed(managed) => managed.endpoint.path,
            Self::Page(page) => page.label(),
            Self::WrongMethod(_) => "wrong_method",
            Self::Unknown => "none",
        }
    }
}

/// Finds the endpoint, for whoever answers it.
pub(super) fn matched(method: &Method, path: &str) -> Matched<Route> {
    let route = find(method, path);
    let label = route.label();
    let is_routine = match &route {
        Route::Public(public) => public.is_routine(),
        // Browsers load assets with each page, and the page has a log line.
        Route::Page(page) => matches!(page, pages::Route::Asset),
        // Servers that follow this one ask several times a second, nodes whenever a client connects or cancels a statement.
        Route::Internal(Internal::Position | Internal::Session | Internal::CancelSession) => true,
        _ => false,
    };
    let is_probe = matches!(&route, Route::Public(public) if public.is_probe());
    Matched { route, label, is_routine, is_probe }
}

/// A response that is ready, or a future of one. Each endpoint has a boxed future of its own: one
/// future for all endpoints would have the size of the largest, and every request would move it several
/// times before the first poll.
enum Answering<'a> {
    Now(Result<Response, Problem>),
    Later(Serving<'a>),
}

fn now<'a>(answer: Result<Response, Problem>) -> Answering<'a> {
    Answering::Now(answer)
}

fn later<'a>(answer: impl Future<Output = Result<Response, Problem>> + Send + 'a) -> Answering<'a> {
    Answering::Later(Box::pin(answer))
}

impl Router {
    /// The endpoints over `app`.
    pub fn new(app: App, secret: Arc<str>, ending: Shutdown) -> Self {
        let subscribers = flag_events::Subscribers::new(app.node.config.http.connections_max);
        let desk = Desk {
            sign_ins: Attempts::new(&app.node.clock, SIGN_INS_PER_MINUTE),
            streams: subscribers.clone(),
            ending: ending.clone(),
        };
        let definitions = local_evaluation::Cache::default();
        let requests_max_bytes = app.node.config.ingest.inflight_max_bytes.as_u64();
        let links = shared::Links::new(&app.node.clock, requests_max_bytes);
        let desk = Arc::new(desk);
        // A test checks that the description can be read; without it bodies may have any fields.
        let bodies = Bodies::described();
        let guide = Guide::default();
        Self { app, definitions, links, bodies, subscribers, desk, ending, secret, guide }
    }

    /// The engines.
    pub(super) fn app(&self) -> &App {
        &self.app
    }

    /// Flushes `apps`, which are the shards of this process, for a command.
    pub(super) async fn flush_all(&self, apps: &[App], request: &Request) -> Response {
        let flushed = internal::flush_all(apps, &self.secret, request).await;
        flushed.unwrap_or_else(Response::from)
    }

    /// The same with the pages of the guide.
    #[must_use]
    pub fn with_guide(self, guide: Guide) -> Self {
        Self { guide, ..self }
    }

    /// Returns the response at once if the endpoint waits for nothing; else returns its future.
    fn answer(&self, route: Route, request: Request) -> Answering<'_> {
        match route {
            Route::Public(public) => self.answer_public(public, request),
            Route::Internal(what) => {
                later(internal::internal(&self.app, &self.secret, what, request))
            }
            Route::Managed(managed) => later(self.manage(managed, request)),
            Route::Page(page) => {
                later(async move { Ok(pages::answer(&self.app, &self.desk, page, request).await) })
            }
            Route::WrongMethod(allow) => {
                now(Err(Problem::method_not_allowed(&request.method, &allow)))
            }
            Route::Unknown => now(Err(Problem::not_found("Not found."))),
        }
    }

    fn answer_public(&self, route: Public, request: Request) -> Answering<'_> {
        let app = &self.app;
        match route {
            Public::Root if landing::is_for_a_browser(&request) => {
                later(async move { Ok(pages::entrance(app, &request).await) })
            }
            Public::Root => now(Ok(landing::landing(app, &request))),
            Public::Liveness => now(Ok(health::liveness())),
            Public::Readiness => now(Ok(health::readiness(app.shard.pipeline.readiness()))),
            Public::Metrics => now(Ok(health::metrics(&app.node.metrics))),
            Public::Description => now(Ok(description::description(&request))),
            Public::Capture(kind) => later(capture::capture(app, kind, request)),
            Public::CaptureV1 => {
                later(async move { Ok(capture_v1::capture_v1(app, request).await) })
            }
            Public::Otel => later(otel::export(app, request)),
            Public::Discarded(what) => later(discarded::discard(app, what, request)),
            Public::Flags => later(flags::flags(app, request)),
            Public::FlagsWithoutSubject => now(flags::without_subject(app, &request)),
            Public::Start { token, file } => {
                later(async move { remote_config::file(app, &token, file, &request).await })
            }
            Public::Static(path) => {
                later(async move { static_files::file(app, &path, &request).await })
            }
            Public::List(list) => now(lists::list(app, list, &request)),
            Public::Definitions(project) => later(async move {
                local_evaluation::definitions(app, &self.definitions, &project, &request).await
            }),
            Public::FlagPayload { project, flag } => {
                now(local_evaluation::remote_config(app, &project, &flag, &request))
            }
            Public::OfrepAll => later(ofrep::all(app, request)),
            Public::OfrepOne(key) => later(async move { ofrep::one(app, &key, request).await }),
            Public::Shared(file) => later(async move {
                match file.ends_with(".json") {
                    true => shared::json(app, &self.links, &file, request).await,
                    false => Ok(pages::shared::page(app, &self.links, &file, request).await),
                }
            }),
            Public::Mcp(project) => later(self.converse(project, request)),
            Public::Llms => now(Ok(self.guide.short(app, &request))),
            Public::LlmsFull => now(Ok(self.guide.whole(&request))),
            Public::FlagEvents => {
                now(flag_events::events(app, &self.subscribers, &self.ending, &request))
            }
        }
    }

    /// Answers an assistant.
    async fn converse(&self, project: String, request: Request) -> Result<Response, Problem> {
        let asker = mcp::asker(&self.app, &request)?;
        self.app.node.note_use(&asker.key);
        let own = (&self.app.node.throttle, &*self.secret);
        mcp::answer(&self.app, own, (asker, &project), request).await
    }

    /// Steps common to all management endpoints: authenticates the key, checks its rate limit, finds
    /// the project, checks the permissions of the key, chooses the format of the response.
    async fn manage(&self, managed: Managed, mut request: Request) -> Result<Response, Problem> {
        let endpoint = managed.endpoint;
        request.body_fields = self.bodies.of(endpoint.path, request.method.as_str());
        let in_body = auth::key_in_body(&mut request).await;
        let snapshot = self.app.node.metadata.snapshot();
        let asker = auth::asker(&snapshot, &request, in_body.as_deref())?;
        self.app.node.note_use(&asker.key);
        let is_analytics = endpoint.is_analytics(|name| request.query(name));
        self.app.node.throttle.check(asker.key.id, is_analytics)?;
        let project = match Root::Project.is_that_of(endpoint.path) {
            true => auth::named(&snapshot, &asker.user, &managed.owner),
            false => None,
        };
        let standing = Standing::of(&self.app.node.metadata, &asker.key, None).within(project);
        let app = &self.app.on_behalf_of(asker.key.id, standing.clone());
        let encoding = request.headers.get(ACCEPT_ENCODING).cloned();
        let Managed { owner, parameters, suffix, .. } = managed;
        let path = endpoint.names().zip(parameters).collect();
        let rendering = Rendering::of(endpoint.renderings, suffix, &request);
        let answering = (endpoint.serve)(app, Arrived { owner, path, rendering, asker, request });
        // Operations that change nothing may be cancelled before their end.
        let response = match endpoint.scope.ends_with(":read") {
            true => revocation::answered(&standing, answering).await,
            false => answering.await,
        }?;
        let response = revocation::streamed(&standing, response);
        let encoding = encoding.as_ref().and_then(|value| value.to_str().ok());
        Ok(if endpoint.is_compressed() { compressed(encoding, response) } else { response })
    }
}

impl Handler for Router {
    type Route = Route;

    fn route(&self, method: &Method, path: &str) -> Matched<Route> {
        matched(method, path)
    }

    async fn handle(&self, route: Route, request: Request) -> Response {
        let answer = match self.answer(route, request) {
            Answering::Now(answer) => answer,
            Answering::Later(answer) => answer.await,
        };
        answer.unwrap_or_else(Response::from)
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::{Route, find};

    #[test]
    fn paths_are_public_or_internal_or_managed() {
        for (method, path, label) in [
            (Method::POST, "/e/", "capture"),
            (Method::PUT, "/e/", "wrong_method"),
            (Method::POST, "/_internal/query", "internal_query"),
            (Method::POST, "/_internal/flush/", "internal_flush"),
            (Method::POST, "/_internal/flush-persons", "internal_flush_persons"),
            (Method::POST, "/_internal/overview", "internal_overview"),
            (Method::POST, "/_internal/", "none"),
            (Method::GET, "/_internal/query/", "wrong_method"),
            (Method::GET, "/api/projects/1/persons/", "P/persons/"),
            (Method::DELETE, "/api/projects/1/persons", "wrong_method"),
            (Method::GET, "/api/projects/1/feature_flags/local_evaluation/", "definitions"),
            (Method::GET, "/cohorts", "none"),
        ] {
            assert_eq!(find(&method, path).label(), label, "{method} {path}");
        }
        let wrong = find(&Method::GET, "/_internal/query");
        assert!(
            matches!(&wrong, Route::WrongMethod(allow) if allow == "POST, OPTIONS"),
            "{wrong:?}"
        );
    }
}
