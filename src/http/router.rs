//! Every endpoint on one screen: (method, path) -> [`Route`]. A trailing slash makes no difference,
//! because SDKs send both forms and a redirect would break a preflight. The only place that sees
//! the whole [`App`]; a route function gets it and takes what it needs.

use std::sync::Arc;

use hyper::Method;

use crate::app::App;
use crate::http::Handler;
use crate::http::Matched;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::capture;
use crate::http::routes::capture::Kind;
use crate::http::routes::capture_v1;
use crate::http::routes::discarded;
use crate::http::routes::discarded::Discarded;
use crate::http::routes::event_definitions;
use crate::http::routes::feature_flags;
use crate::http::routes::flags;
use crate::http::routes::health;
use crate::http::routes::ingestion_warnings;
use crate::http::routes::lists;
use crate::http::routes::lists::List;
use crate::http::routes::persons;
use crate::http::routes::persons::split;
use crate::http::routes::projects;
use crate::http::routes::property_definitions;
use crate::http::routes::query;
use crate::http::routes::remote_config;
use crate::http::routes::remote_config::File;
use crate::http::routes::static_files;

/// The endpoints of one server.
#[derive(Debug)]
pub struct Router {
    app: App,
    /// What proves that an asker may read the data directory; stands in its lock file.
    secret: Arc<str>,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// `/_internal/query`: SQL from a command of the same user.
    InternalQuery,
    /// `/api/projects/:project/...`.
    Project {
        /// A number or `@current`.
        project: String,
        /// What of the project.
        resource: Resource,
    },
    /// The path exists, with these methods.
    WrongMethod(&'static str),
    /// Nothing has this path.
    Unknown,
}

/// What of a project is asked for. Ids are as in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Nothing more: the project itself.
    Itself,
    /// `persons/`.
    Persons,
    /// `persons/:id/`.
    Person(String),
    /// `persons/:id/split/`.
    SplitPerson(String),
    /// `event_definitions/`.
    EventDefinitions,
    /// `event_definitions/:id/`.
    EventDefinition(String),
    /// `property_definitions/`.
    PropertyDefinitions,
    /// `property_definitions/:id/`.
    PropertyDefinition(String),
    /// `ingestion_warnings/`.
    IngestionWarnings,
    /// `feature_flags/`.
    FeatureFlags,
    /// `feature_flags/:id/`.
    FeatureFlag(String),
    /// `query/`: SQL.
    Query,
}

const POST: &str = "POST, OPTIONS";
const GET: &str = "GET, HEAD, OPTIONS";
const GET_POST: &str = "GET, POST, HEAD, OPTIONS";
const GET_PATCH: &str = "GET, PATCH, HEAD, OPTIONS";
const GET_PUT_PATCH: &str = "GET, PUT, PATCH, HEAD, OPTIONS";

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
        "/flags" | "/decide" => Route::WrongMethod(GET_POST),
        "/_internal/query" if is(Method::POST) => Route::InternalQuery,
        "/capture" | "/e" | "/track" | "/batch" | "/i/v0/e" | "/i/v0/ai/batch" | "/engage"
        | "/s" => Route::WrongMethod(GET_POST),
        "/i/v1/analytics/events" | "/i/v1/ai/events" => Route::WrongMethod(POST),
        "/i/v1/logs" | "/i/v1/metrics" | "/i/v1/traces" | "/_internal/query" => {
            Route::WrongMethod(POST)
        }
        "" | "/_liveness" | "/_readiness" | "/metrics" if !is(Method::GET) => {
            Route::WrongMethod(GET)
        }
        "" => Route::Root,
        "/_liveness" => Route::Liveness,
        "/_readiness" => Route::Readiness,
        "/metrics" => Route::Metrics,
        _ => match find_start(path) {
            None => find_project(method, path),
            Some(route) if is(Method::GET) => route,
            Some(_) => Route::WrongMethod(GET),
        },
    }
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

fn find_project(method: &Method, path: &str) -> Route {
    let Some(rest) = path.strip_prefix("/api/projects/") else { return Route::Unknown };
    let mut parts = rest.split('/');
    let (Some(project), name, id, action, None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Route::Unknown;
    };
    let (name, id) = (name.unwrap_or_default(), id.map(str::to_owned));
    let is = |wanted: Method| *method == wanted;
    if let Some(action) = action {
        return match (name, id, action) {
            ("persons", Some(id), "split") if is(Method::POST) => {
                Route::Project { project: project.to_owned(), resource: Resource::SplitPerson(id) }
            }
            ("persons", Some(_), "split") => Route::WrongMethod(POST),
            _ => Route::Unknown,
        };
    }
    let (resource, methods) = match (name, id) {
        ("", None) if !project.is_empty() => (Resource::Itself, GET_PATCH),
        ("persons", None) => (Resource::Persons, GET),
        ("persons", Some(id)) => (Resource::Person(id), GET),
        ("event_definitions", None) => (Resource::EventDefinitions, GET),
        ("event_definitions", Some(id)) => (Resource::EventDefinition(id), GET),
        ("property_definitions", None) => (Resource::PropertyDefinitions, GET),
        ("property_definitions", Some(id)) => (Resource::PropertyDefinition(id), GET),
        ("ingestion_warnings", None) => (Resource::IngestionWarnings, GET),
        ("feature_flags", None) => (Resource::FeatureFlags, GET_POST),
        ("feature_flags", Some(id)) => (Resource::FeatureFlag(id), GET_PUT_PATCH),
        ("query", None) => (Resource::Query, POST),
        _ => return Route::Unknown,
    };
    let allowed = match methods {
        GET_POST => is(Method::GET) || is(Method::POST),
        GET_PATCH => is(Method::GET) || is(Method::PATCH),
        // DELETE has an answer of its own, which refuses it.
        GET_PUT_PATCH => [Method::GET, Method::PUT, Method::PATCH, Method::DELETE].contains(method),
        POST => is(Method::POST),
        _ => is(Method::GET),
    };
    if !allowed {
        return Route::WrongMethod(methods);
    }
    Route::Project { project: project.to_owned(), resource }
}

impl Route {
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
            Self::WrongMethod(_) => "wrong_method",
            Self::Unknown => "none",
            Self::Project { resource, .. } => match resource {
                Resource::Itself => "project",
                Resource::Persons => "persons",
                Resource::Person(_) => "person",
                Resource::SplitPerson(_) => "split_person",
                Resource::EventDefinitions => "event_definitions",
                Resource::EventDefinition(_) => "event_definition",
                Resource::PropertyDefinitions => "property_definitions",
                Resource::PropertyDefinition(_) => "property_definition",
                Resource::IngestionWarnings => "ingestion_warnings",
                Resource::FeatureFlags => "feature_flags",
                Resource::FeatureFlag(_) => "feature_flag",
                Resource::Query => "query",
            },
        }
    }
}

impl Router {
    /// The endpoints over `app`.
    pub fn new(app: App, secret: Arc<str>) -> Self {
        Self { app, secret }
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
            Route::InternalQuery => query::internal(app, &self.secret, request).await,
            Route::WrongMethod(allow) => Err(Problem::method_not_allowed(&request.method, allow)),
            Route::Unknown => Err(Problem::not_found("Not found.")),
            Route::Project { project, resource } => self.project(&project, resource, request).await,
        }
    }

    async fn project(
        &self,
        project: &str,
        resource: Resource,
        request: Request,
    ) -> Result<Response, Problem> {
        let app = &self.app;
        match resource {
            Resource::Itself => match request.method {
                Method::PATCH => projects::update(app, project, request).await,
                _ => projects::retrieve(app, project, &request),
            },
            Resource::Persons => persons::list(app, project, request).await,
            Resource::Person(id) => persons::retrieve(app, project, &id, request).await,
            Resource::SplitPerson(id) => split::split(app, project, &id, request).await,
            Resource::EventDefinitions => event_definitions::list(app, project, request).await,
            Resource::EventDefinition(id) => {
                event_definitions::retrieve(app, project, &id, request).await
            }
            Resource::PropertyDefinitions => {
                property_definitions::list(app, project, request).await
            }
            Resource::PropertyDefinition(id) => {
                property_definitions::retrieve(app, project, &id, request).await
            }
            Resource::IngestionWarnings => ingestion_warnings::list(app, project, request).await,
            Resource::FeatureFlags => match request.method {
                Method::POST => feature_flags::create(app, project, request).await,
                _ => feature_flags::list(app, project, &request),
            },
            Resource::FeatureFlag(id) => match request.method {
                Method::PUT | Method::PATCH => {
                    feature_flags::update(app, project, &id, request).await
                }
                Method::DELETE => feature_flags::delete(app, project, &request, GET_PUT_PATCH),
                _ => feature_flags::retrieve(app, project, &id, request).await,
            },
            Resource::Query => query::query(app, project, request).await,
        }
    }
}

impl Handler for Router {
    type Route = Route;

    fn route(&self, method: &Method, path: &str) -> Matched<Route> {
        let route = find(method, path);
        let label = route.label();
        Matched { route, label }
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
    use super::GET_PATCH;
    use super::GET_POST;
    use super::GET_PUT_PATCH;
    use super::Kind;
    use super::List;
    use super::POST;
    use super::Resource;
    use super::Route;
    use super::find;

    #[test]
    fn paths_find_their_endpoints_with_and_without_a_slash() {
        let project = |resource| Route::Project { project: "1".to_owned(), resource };
        let start = |file| Route::Start { token: "phc_t".to_owned(), file };
        let flag = || project(Resource::FeatureFlag("3".to_owned()));
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
            (Method::PUT, "/batch", Route::WrongMethod(GET_POST)),
            (Method::POST, "/i/v1/analytics/events", Route::CaptureV1),
            (Method::POST, "/i/v1/ai/events", Route::CaptureV1),
            (Method::GET, "/i/v1/analytics/events", Route::WrongMethod(POST)),
            (Method::POST, "/s", Route::Discarded(Discarded::Recordings)),
            (Method::GET, "/s", Route::Discarded(Discarded::Recordings)),
            (Method::POST, "/i/v1/logs", Route::Discarded(Discarded::Logs)),
            (Method::POST, "/i/v1/metrics", Route::Discarded(Discarded::Metrics)),
            (Method::POST, "/i/v1/traces", Route::Discarded(Discarded::Traces)),
            (Method::GET, "/i/v1/traces", Route::WrongMethod(POST)),
            (Method::GET, "/flags", Route::FlagsWithoutSubject),
            (Method::GET, "/decide", Route::FlagsWithoutSubject),
            (Method::DELETE, "/flags", Route::WrongMethod(GET_POST)),
            (Method::GET, "/array/phc_t/config", start(File::Config)),
            (Method::GET, "/array/phc_t/config.js", start(File::ConfigScript)),
            (Method::GET, "/array/phc_t/array.js", start(File::Sdk)),
            (Method::POST, "/array/phc_t/config", Route::WrongMethod(GET)),
            (Method::GET, "/array/phc_t", Route::Unknown),
            (Method::GET, "/array/phc_t/recorder.js", Route::Unknown),
            (Method::GET, "/static/array.js", Route::Static("array.js".into())),
            (Method::GET, "/static/1.2/a.js", Route::Static("1.2/a.js".into())),
            (Method::POST, "/static/array.js", Route::WrongMethod(GET)),
            (Method::GET, "/api/surveys", Route::List(List::Surveys)),
            (Method::GET, "/api/web_experiments", Route::List(List::WebExperiments)),
            (Method::GET, "/api/product_tours", Route::List(List::ProductTours)),
            (Method::GET, "/api/early_access_features", Route::List(List::EarlyAccessFeatures)),
            (Method::POST, "/api/surveys", Route::WrongMethod(GET)),
            (Method::GET, "/_readiness", Route::Readiness),
            (Method::POST, "/_readiness", Route::WrongMethod(GET)),
            (Method::GET, "/", Route::Root),
            (Method::GET, "/nothing", Route::Unknown),
            (Method::GET, "/api/projects", Route::Unknown),
            (Method::GET, "/api/projects/1", project(Resource::Itself)),
            (Method::PATCH, "/api/projects/1", project(Resource::Itself)),
            (Method::PUT, "/api/projects/1", Route::WrongMethod(GET_PATCH)),
            (Method::GET, "/api/projects/1/persons", project(Resource::Persons)),
            (Method::GET, "/api/projects/1/persons/7", project(Resource::Person("7".into()))),
            (
                Method::POST,
                "/api/projects/1/persons/7/split",
                project(Resource::SplitPerson("7".into())),
            ),
            (Method::GET, "/api/projects/1/persons/7/split", Route::WrongMethod(POST)),
            (Method::POST, "/api/projects/1/persons/7/join", Route::Unknown),
            (Method::POST, "/api/projects/1/feature_flags", project(Resource::FeatureFlags)),
            (Method::PUT, "/api/projects/1/feature_flags/3", flag()),
            (Method::DELETE, "/api/projects/1/feature_flags/3", flag()),
            (Method::POST, "/api/projects/1/feature_flags/3", Route::WrongMethod(GET_PUT_PATCH)),
            (Method::GET, "/api/projects/1/persons/7/8/9", Route::Unknown),
        ] {
            for path in [path.to_owned(), format!("{}/", path.trim_end_matches('/'))] {
                assert_eq!(find(&method, &path), expected, "{method} {path}");
            }
        }
    }
}
