//! (method, path) -> [`Route`] -> answer. The public endpoints, which are hot, are a `match` here; the
//! management endpoints are a table ([`crate::http::table`]), and here is what all of them need: who
//! asks, whether they may, how the answer is to be written. A trailing slash makes no difference,
//! because SDKs send both forms and a redirect would break a preflight. The only place that sees
//! the whole [`App`]; a route function gets it and takes what it needs.

use std::sync::Arc;

use hyper::Method;

use crate::app::App;
use crate::http::Handler;
use crate::http::Matched;
use crate::http::auth;
use crate::http::call::Call;
use crate::http::call::Rendering;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::capture;
use crate::http::routes::capture::Kind;
use crate::http::routes::capture_v1;
use crate::http::routes::discarded;
use crate::http::routes::discarded::Discarded;
use crate::http::routes::flag_events;
use crate::http::routes::flags;
use crate::http::routes::health;
use crate::http::routes::lists;
use crate::http::routes::lists::List;
use crate::http::routes::local_evaluation;
use crate::http::routes::ofrep;
use crate::http::routes::query;
use crate::http::routes::remote_config;
use crate::http::routes::remote_config::File;
use crate::http::routes::static_files;
use crate::http::table;
use crate::http::table::Endpoint;
use crate::http::table::Found;
use crate::http::table::Managed;
use crate::http::table::Run;
use crate::http::throttle::Throttle;
use crate::metadata::accounts::PersonalKey;
use crate::tasks::Shutdown;

/// The endpoints of one server.
#[derive(Debug)]
pub struct Router {
    app: App,
    definitions: local_evaluation::Cache,
    throttle: Throttle,
    /// Begins when the server stops, so that answers without an end come to one.
    ending: Shutdown,
    /// What proves that an asker may read the data directory; stands in its lock file.
    secret: Arc<str>,
}

/// What a request is for.
#[derive(Debug)]
pub enum Route {
    /// `/`.
    Root,
    /// `/_liveness`.
    Liveness,
    /// `/_readiness`.
    Readiness,
    /// `/metrics`.
    Metrics,
    /// Events from SDKs.
    Capture(Kind),
    /// Events from SDKs, by the newer protocol.
    CaptureV1,
    /// What SDKs send besides events, and Weir does not keep.
    Discarded(Discarded),
    /// `/flags`, `/decide`.
    Flags,
    /// The same by GET: nobody is asked about.
    FlagsWithoutSubject,
    /// `/array/<token>/...`: what SDKs load at their start.
    Start {
        /// The token, as in the path.
        token: String,
        /// What of it.
        file: File,
    },
    /// `/static/...`: scripts of the browser SDK. The rest of the path.
    Static(String),
    /// `/api/surveys` and the like, for SDKs.
    List(List),
    /// Flags for servers that evaluate them themselves. A number, `@current`, or empty, where the
    /// query names the project.
    Definitions(String),
    /// The payload of one flag, for such servers.
    FlagPayload {
        /// A number or `@current`.
        project: String,
        /// The id or key of the flag.
        flag: String,
    },
    /// All flags, as OpenFeature asks.
    OfrepAll,
    /// The flag of this key, as OpenFeature asks.
    OfrepOne(String),
    /// A stream that tells when flags change.
    FlagEvents,
    /// `/_internal/query`: SQL from a command of the same user.
    InternalQuery,
    /// `/api/...`.
    Managed(Managed),
    /// The path exists, with these methods.
    WrongMethod(String),
    /// Nothing has this path.
    Unknown,
}

const POST: &str = "POST, OPTIONS";
const GET: &str = "GET, HEAD, OPTIONS";
const GET_POST: &str = "GET, POST, HEAD, OPTIONS";

/// Finds the endpoint.
fn find(method: &Method, path: &str) -> Route {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is = |wanted: Method| *method == wanted;
    // The oldest SDKs and image pixels send events in `?data=`.
    let can_capture = is(Method::POST) || is(Method::GET);
    match path {
        "/capture" | "/e" | "/track" if can_capture => Route::Capture(Kind::Legacy),
        "/batch" | "/i/v0/e" | "/i/v0/ai/batch" if can_capture => Route::Capture(Kind::Modern),
        "/engage" if can_capture => Route::Capture(Kind::Engage),
        "/i/v1/analytics/events" | "/i/v1/ai/events" if is(Method::POST) => Route::CaptureV1,
        "/s" if can_capture => Route::Discarded(Discarded::Recordings),
        "/i/v1/logs" if is(Method::POST) => Route::Discarded(Discarded::Logs),
        "/i/v1/metrics" if is(Method::POST) => Route::Discarded(Discarded::Metrics),
        "/i/v1/traces" if is(Method::POST) => Route::Discarded(Discarded::Traces),
        "/flags" | "/decide" if is(Method::POST) => Route::Flags,
        "/flags" | "/decide" if is(Method::GET) => Route::FlagsWithoutSubject,
        "/flags" | "/decide" => Route::WrongMethod(GET_POST.to_owned()),
        "/_internal/query" if is(Method::POST) => Route::InternalQuery,
        "/capture" | "/e" | "/track" | "/batch" | "/i/v0/e" | "/i/v0/ai/batch" | "/engage"
        | "/s" => Route::WrongMethod(GET_POST.to_owned()),
        "/i/v1/analytics/events" | "/i/v1/ai/events" => Route::WrongMethod(POST.to_owned()),
        "/i/v1/logs" | "/i/v1/metrics" | "/i/v1/traces" | "/_internal/query" => {
            Route::WrongMethod(POST.to_owned())
        }
        "" | "/_liveness" | "/_readiness" | "/metrics" if !is(Method::GET) => {
            Route::WrongMethod(GET.to_owned())
        }
        "" => Route::Root,
        "/_liveness" => Route::Liveness,
        "/_readiness" => Route::Readiness,
        "/metrics" => Route::Metrics,
        _ => match find_start(path) {
            None => find_managed(method, path),
            Some(route) if is(Method::GET) => route,
            Some(_) => Route::WrongMethod(GET.to_owned()),
        },
    }
}

/// Flags for programs that evaluate them, and all that operators use.
fn find_managed(method: &Method, path: &str) -> Route {
    if let Some((wanted, allow, route)) = find_flags(path) {
        let is_wanted = *method == wanted;
        return if is_wanted { route } else { Route::WrongMethod(allow.to_owned()) };
    }
    match table::find(method.as_str(), path) {
        Found::Endpoint(managed) => Route::Managed(managed),
        Found::WrongMethod(allow) => Route::WrongMethod(allow),
        Found::Nothing => Route::Unknown,
    }
}

/// What programs get of flags beside `/flags`, most of them with a key of their own kind: its method,
/// its `Allow`, and the endpoint.
fn find_flags(path: &str) -> Option<(Method, &'static str, Route)> {
    let definitions = |project: &str| Route::Definitions(project.to_owned());
    let parts: Vec<&str> = path.split('/').collect();
    Some(match parts.as_slice() {
        ["", "flags", "definitions"] | ["", "api", "feature_flag", "local_evaluation"] => {
            (Method::GET, GET, definitions(""))
        }
        ["", "api", "projects" | "environments", project, "feature_flags", "local_evaluation"] => {
            (Method::GET, GET, definitions(project))
        }
        [
            "",
            "api",
            "projects" | "environments",
            project,
            "feature_flags",
            flag,
            "remote_config",
        ] if !flag.is_empty() => {
            let (project, flag) = ((*project).to_owned(), (*flag).to_owned());
            (Method::GET, GET, Route::FlagPayload { project, flag })
        }
        ["", "ofrep", "v1", "evaluate", "flags"] => (Method::POST, POST, Route::OfrepAll),
        ["", "ofrep", "v1", "evaluate", "flags", key] if !key.is_empty() => {
            (Method::POST, POST, Route::OfrepOne((*key).to_owned()))
        }
        ["", "flags", "events"] => (Method::GET, GET, Route::FlagEvents),
        _ => return None,
    })
}

/// What browser and mobile SDKs get besides flags.
fn find_start(path: &str) -> Option<Route> {
    if let Some(rest) = path.strip_prefix("/static/") {
        return Some(Route::Static(rest.to_owned()));
    }
    if let Some(rest) = path.strip_prefix("/array/") {
        let (token, file) = rest.split_once('/')?;
        let file = match file {
            "config" => File::Config,
            "config.js" => File::ConfigScript,
            "array.js" => File::Sdk,
            _ => return None,
        };
        return Some(Route::Start { token: token.to_owned(), file });
    }
    Some(Route::List(match path {
        "/api/surveys" => List::Surveys,
        "/api/early_access_features" => List::EarlyAccessFeatures,
        "/api/web_experiments" => List::WebExperiments,
        "/api/product_tours" => List::ProductTours,
        _ => return None,
    }))
}

impl Route {
    /// Whether SDKs or probes ask for it all the time.
    fn is_routine(&self) -> bool {
        match self {
            Self::Liveness
            | Self::Readiness
            | Self::Metrics
            | Self::Capture(_)
            | Self::CaptureV1
            | Self::Discarded(_)
            | Self::Flags
            | Self::FlagsWithoutSubject
            | Self::Start { .. }
            | Self::Static(_)
            | Self::List(_)
            | Self::Definitions(_)
            | Self::FlagPayload { .. }
            | Self::OfrepAll
            | Self::OfrepOne(_) => true,
            Self::Root
            | Self::FlagEvents
            | Self::InternalQuery
            | Self::Managed(_)
            | Self::WrongMethod(_)
            | Self::Unknown => false,
        }
    }

    /// Name in metrics and logs.
    fn label(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
            Self::Metrics => "metrics",
            Self::Capture(_) => "capture",
            Self::CaptureV1 => "capture_v1",
            Self::Discarded(what) => what.name(),
            Self::Flags | Self::FlagsWithoutSubject => "flags",
            Self::Start { .. } => "start",
            Self::Static(_) => "static",
            Self::List(_) => "list",
            Self::InternalQuery => "internal_query",
            Self::Managed(managed) => managed.endpoint.path,
            Self::WrongMethod(_) => "wrong_method",
            Self::Unknown => "none",
            Self::Definitions(_) => "definitions",
            Self::FlagPayload { .. } => "flag_remote_config",
            Self::OfrepAll => "ofrep_all",
            Self::OfrepOne(_) => "ofrep_one",
            Self::FlagEvents => "flag_events",
        }
    }
}

impl Router {
    /// The endpoints over `app`.
    pub fn new(app: App, secret: Arc<str>, ending: Shutdown) -> Self {
        let throttle = Throttle::new(&app.config.http, &app.clock);
        Self { app, definitions: local_evaluation::Cache::default(), throttle, ending, secret }
    }

    async fn answer(&self, route: Route, request: Request) -> Result<Response, Problem> {
        let app = &self.app;
        match route {
            Route::Root => Ok(health::root()),
            Route::Liveness => Ok(health::liveness()),
            Route::Readiness => Ok(health::readiness(app.pipeline.check())),
            Route::Metrics => Ok(health::metrics(&app.metrics)),
            Route::Capture(kind) => capture::capture(app, kind, request).await,
            Route::CaptureV1 => Ok(capture_v1::capture_v1(app, request).await),
            Route::Discarded(what) => discarded::discard(app, what, request).await,
            Route::Flags => flags::flags(app, request).await,
            Route::FlagsWithoutSubject => flags::without_subject(app, &request),
            Route::Start { token, file } => remote_config::file(app, &token, file, &request).await,
            Route::Static(path) => static_files::file(app, &path, &request).await,
            Route::List(list) => lists::list(app, list, &request),
            Route::Definitions(project) => {
                local_evaluation::definitions(app, &self.definitions, &project, &request)
            }
            Route::FlagPayload { project, flag } => {
                local_evaluation::remote_config(app, &project, &flag, &request)
            }
            Route::OfrepAll => ofrep::all(app, request).await,
            Route::OfrepOne(key) => ofrep::one(app, &key, request).await,
            Route::FlagEvents => flag_events::events(app, &self.ending, &request),
            Route::InternalQuery => query::internal(app, &self.secret, request).await,
            Route::Managed(managed) => self.manage(managed, request).await,
            Route::WrongMethod(allow) => Err(Problem::method_not_allowed(&request.method, &allow)),
            Route::Unknown => Err(Problem::not_found("Not found.")),
        }
    }

    /// What all management endpoints have in common: first who asks, and whether not too often, then
    /// of which project, then whether the key may, then the form of the answer.
    async fn manage(&self, managed: Managed, request: Request) -> Result<Response, Problem> {
        let Managed { endpoint, project, parameters, suffix } = managed;
        let app = &self.app;
        let snapshot = app.metadata.snapshot();
        let asker = auth::asker(&snapshot, &request)?;
        self.note_use(&asker.key);
        self.throttle.check(asker.key.id)?;
        match endpoint.run {
            Run::Project(run) => {
                let asker = auth::principal(&snapshot, &request, asker, &project)?;
                auth::require(&asker.key, endpoint.scope)?;
                let rendering = rendering(endpoint, suffix, &request)?;
                run(app, Call { asker, parameters, rendering, request }).await
            }
            Run::Account(run) => {
                auth::require(&asker.key, endpoint.scope)?;
                let rendering = rendering(endpoint, suffix, &request)?;
                run(app, Call { asker, parameters, rendering, request }).await
            }
        }
    }
}

impl Router {
    /// Has it written down that a key was used. Nobody waits for that.
    fn note_use(&self, key: &Arc<PersonalKey>) {
        if key.is_use_noted(self.app.clock.now()) {
            return;
        }
        let (metadata, key) = (self.app.metadata.clone(), Arc::clone(key));
        self.app.tasks.0.spawn("note-key-use", async move {
            if let Err(error) = metadata.record_key_use(&key).await {
                tracing::warn!(%error, "cannot note that a key was used");
            }
        });
    }
}

fn rendering(
    endpoint: &Endpoint,
    suffix: Option<Rendering>,
    request: &Request,
) -> Result<Rendering, Problem> {
    let format = request.query("format");
    let accept = request.header("accept");
    Rendering::choose(endpoint.renderings, suffix, format.as_deref(), accept)
}

impl Handler for Router {
    type Route = Route;

    fn route(&self, method: &Method, path: &str) -> Matched<Route> {
        let route = find(method, path);
        let (label, is_routine) = (route.label(), route.is_routine());
        Matched { route, label, is_routine }
    }

    async fn handle(&self, route: Route, request: Request) -> Response {
        self.answer(route, request).await.unwrap_or_else(Response::from)
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::Discarded;
    use super::File;
    use super::GET;
    use super::GET_POST;
    use super::Kind;
    use super::List;
    use super::POST;
    use super::Route;
    use super::find;

    #[test]
    fn paths_find_their_endpoints_with_and_without_a_slash() {
        let start = |file| Route::Start { token: "phc_t".to_owned(), file };
        let wrong = |allow: &str| Route::WrongMethod(allow.to_owned());
        let definitions = |project: &str| Route::Definitions(project.to_owned());
        let payload = |project: &str, flag: &str| Route::FlagPayload {
            project: project.to_owned(),
            flag: flag.to_owned(),
        };
        for (method, path, expected) in [
            (Method::POST, "/capture", Route::Capture(Kind::Legacy)),
            (Method::POST, "/e", Route::Capture(Kind::Legacy)),
            (Method::POST, "/track", Route::Capture(Kind::Legacy)),
            (Method::POST, "/engage", Route::Capture(Kind::Engage)),
            (Method::POST, "/batch", Route::Capture(Kind::Modern)),
            (Method::POST, "/i/v0/e", Route::Capture(Kind::Modern)),
            (Method::POST, "/flags", Route::Flags),
            (Method::POST, "/decide", Route::Flags),
            (Method::POST, "/i/v0/ai/batch", Route::Capture(Kind::Modern)),
            (Method::GET, "/batch", Route::Capture(Kind::Modern)),
            (Method::PUT, "/batch", wrong(GET_POST)),
            (Method::POST, "/i/v1/analytics/events", Route::CaptureV1),
            (Method::POST, "/i/v1/ai/events", Route::CaptureV1),
            (Method::GET, "/i/v1/analytics/events", wrong(POST)),
            (Method::POST, "/s", Route::Discarded(Discarded::Recordings)),
            (Method::GET, "/s", Route::Discarded(Discarded::Recordings)),
            (Method::POST, "/i/v1/logs", Route::Discarded(Discarded::Logs)),
            (Method::POST, "/i/v1/metrics", Route::Discarded(Discarded::Metrics)),
            (Method::POST, "/i/v1/traces", Route::Discarded(Discarded::Traces)),
            (Method::GET, "/i/v1/traces", wrong(POST)),
            (Method::GET, "/flags", Route::FlagsWithoutSubject),
            (Method::GET, "/decide", Route::FlagsWithoutSubject),
            (Method::DELETE, "/flags", wrong(GET_POST)),
            (Method::GET, "/flags/definitions", definitions("")),
            (Method::POST, "/flags/definitions", wrong(GET)),
            (Method::GET, "/api/feature_flag/local_evaluation", definitions("")),
            (Method::GET, "/api/projects/1/feature_flags/local_evaluation", definitions("1")),
            (Method::POST, "/api/projects/1/feature_flags/local_evaluation", wrong(GET)),
            (
                Method::GET,
                "/api/environments/@current/feature_flags/my-flag/remote_config",
                payload("@current", "my-flag"),
            ),
            (Method::POST, "/ofrep/v1/evaluate/flags", Route::OfrepAll),
            (Method::POST, "/ofrep/v1/evaluate/flags/beta", Route::OfrepOne("beta".to_owned())),
            (Method::GET, "/ofrep/v1/evaluate/flags/beta", wrong(POST)),
            (Method::GET, "/flags/events", Route::FlagEvents),
            (Method::POST, "/flags/events", wrong(GET)),
            (Method::GET, "/cohorts", Route::Unknown),
            (Method::GET, "/array/phc_t/config", start(File::Config)),
            (Method::GET, "/array/phc_t/config.js", start(File::ConfigScript)),
            (Method::GET, "/array/phc_t/array.js", start(File::Sdk)),
            (Method::POST, "/array/phc_t/config", wrong(GET)),
            (Method::GET, "/array/phc_t", Route::Unknown),
            (Method::GET, "/array/phc_t/recorder.js", Route::Unknown),
            (Method::GET, "/static/array.js", Route::Static("array.js".into())),
            (Method::GET, "/static/1.2/a.js", Route::Static("1.2/a.js".into())),
            (Method::POST, "/static/array.js", wrong(GET)),
            (Method::GET, "/api/surveys", Route::List(List::Surveys)),
            (Method::GET, "/api/web_experiments", Route::List(List::WebExperiments)),
            (Method::GET, "/api/product_tours", Route::List(List::ProductTours)),
            (Method::GET, "/api/early_access_features", Route::List(List::EarlyAccessFeatures)),
            (Method::POST, "/api/surveys", wrong(GET)),
            (Method::GET, "/_readiness", Route::Readiness),
            (Method::POST, "/_readiness", wrong(GET)),
            (Method::GET, "/", Route::Root),
            (Method::GET, "/nothing", Route::Unknown),
            (Method::POST, "/api/projects/1/persons", wrong(GET)),
        ] {
            let expected = format!("{expected:?}");
            for path in [path.to_owned(), format!("{}/", path.trim_end_matches('/'))] {
                assert_eq!(format!("{:?}", find(&method, &path)), expected, "{method} {path}");
            }
        }
    }

    #[test]
    fn management_endpoints_come_from_the_table() {
        let route = find(&Method::GET, "/api/projects/1/persons/");
        assert_eq!(route.label(), "P/persons/");
    }
}
