//! Table of the public endpoints: [`PUBLIC`]. For SDKs, browsers, proxies and probes. Only the definitions of flags and
//! the payload of a flag, which are for servers, and the protocol of assistants take a personal key. [`find`] looks up a request.
//!
//! A `:name` matches any one segment of the path. A trailing slash is optional, because SDKs send both
//! forms and a redirect would break a preflight. The most frequent paths are listed first.

use crate::lookup::Lookup;
use crate::request::decode;
use crate::routes::capture::Kind;
use crate::routes::discarded::Discarded;
use crate::routes::lists::List;
use crate::routes::remote_config::File;

/// Every public endpoint.
#[rustfmt::skip]
pub const PUBLIC: &[Line] = &[
    // The oldest SDKs and image pixels send events in `?data=`.
    on("GET POST", "/i/v0/e",                 |_| Public::Capture(Kind::Modern)),
    on("GET POST", "/batch",                  |_| Public::Capture(Kind::Modern)),
    on("GET POST", "/e",                      |_| Public::Capture(Kind::Legacy)),
    on("GET POST", "/capture",                |_| Public::Capture(Kind::Legacy)),
    on("GET POST", "/track",                  |_| Public::Capture(Kind::Legacy)),
    on("GET POST", "/engage",                 |_| Public::Capture(Kind::Engage)),
    on("GET POST", "/i/v0/ai/batch",          |_| Public::Capture(Kind::Modern)),
    on("POST",     "/i/v0/ai/otel",           |_| Public::Otel),
    on("POST",     "/i/v1/analytics/events",  |_| Public::CaptureV1),
    on("POST",     "/i/v1/ai/events",         |_| Public::CaptureV1),
    on("GET",      "/flags",                  |_| Public::FlagsWithoutSubject),
    on("POST",     "/flags",                  |_| Public::Flags),
    on("GET",      "/decide",                 |_| Public::FlagsWithoutSubject),
    on("POST",     "/decide",                 |_| Public::Flags),
    on("GET POST", "/s",                      |_| Public::Discarded(Discarded::Recordings)),
    on("POST",     "/i/v1/logs",              |_| Public::Discarded(Discarded::Logs)),
    on("POST",     "/i/v1/metrics",           |_| Public::Discarded(Discarded::Metrics)),
    on("POST",     "/i/v1/traces",            |_| Public::Discarded(Discarded::Traces)),

    on("GET",      "/flags/events",           |_| Public::FlagEvents),
    on("GET",      "/flags/definitions",      |_| Public::Definitions(String::new())),
    on("GET",      "/api/feature_flag/local_evaluation", |_| Public::Definitions(String::new())),
    on("GET",      "/api/projects/:project/feature_flags/local_evaluation", definitions),
    on("GET",      "/api/environments/:project/feature_flags/local_evaluation", definitions),
    on("GET",      "/api/projects/:project/feature_flags/:flag/remote_config", payload),
    on("GET",      "/api/environments/:project/feature_flags/:flag/remote_config", payload),
    on("POST",     "/ofrep/v1/evaluate/flags", |_| Public::OfrepAll),
    on("POST",     "/ofrep/v1/evaluate/flags/:key", |values| Public::OfrepOne(text(values, 0))),

    on("GET",      "/array/:token/config",    |values| start(values, File::Config)),
    on("GET",      "/array/:token/config.js", |values| start(values, File::ConfigScript)),
    on("GET",      "/array/:token/array.js",  |values| start(values, File::Sdk)),
    // Not decoded: no file name of the SDK needs percent-encoding.
    on("GET",      "/static/:file",           |values| Public::Static(values.join("/"))),
    on("GET",      "/static/:release/:file",  |values| Public::Static(values.join("/"))),
    on("GET",      "/api/surveys",            |_| Public::List(List::Surveys)),
    on("GET",      "/api/web_experiments",    |_| Public::List(List::WebExperiments)),
    on("GET",      "/api/product_tours",      |_| Public::List(List::ProductTours)),
    on("GET",      "/api/early_access_features", |_| Public::List(List::EarlyAccessFeatures)),

    on("GET POST", "/shared/:share",          |values| Public::Shared(text(values, 0))),
    on("GET POST", "/shared_dashboard/:share", |values| Public::Shared(text(values, 0))),
    on("GET POST", "/embedded/:share",        |values| Public::Shared(text(values, 0))),

    on("POST",     "/mcp",                    |_| Public::Mcp(String::new())),
    on("POST",     "/mcp/:project",           |values| Public::Mcp(text(values, 0))),
    on("GET",      "/llms.txt",               |_| Public::Llms),
    on("GET",      "/llms-full.txt",          |_| Public::LlmsFull),

    on("GET",      "/api/schema",             |_| Public::Description),
    on("GET",      "/",                       |_| Public::Root),
    on("GET",      "/_liveness",              |_| Public::Liveness),
    on("GET",      "/_readiness",             |_| Public::Readiness),
    on("GET",      "/metrics",                |_| Public::Metrics),
];

/// The endpoint of a public path.
#[derive(Debug)]
pub enum Public {
    /// `/`.
    Root,
    /// `/_liveness`.
    Liveness,
    /// `/_readiness`.
    Readiness,
    /// `/metrics`.
    Metrics,
    /// The OpenAPI description of all endpoints.
    Description,
    /// Events from SDKs.
    Capture(Kind),
    /// Events from SDKs, by capture v1.
    CaptureV1,
    /// OpenTelemetry traces; spans about AI become events.
    Otel,
    /// Data of SDKs that Weir does not store.
    Discarded(Discarded),
    /// `/flags`, `/decide`.
    Flags,
    /// `/flags`, `/decide` by GET, without a subject.
    FlagsWithoutSubject,
    /// `/array/<token>/...`: files that SDKs load at start.
    Start {
        /// The token, as in the path.
        token: String,
        /// The requested file.
        file: File,
    },
    /// `/static/...`: scripts of the browser SDK. The rest of the path.
    Static(String),
    /// `/api/surveys` and the like, for SDKs.
    List(List),
    /// Flag definitions for local evaluation. The project is a number, `@current`, or empty; if empty,
    /// the query names it.
    Definitions(String),
    /// The payload of one flag, for servers.
    FlagPayload {
        /// A number or `@current`.
        project: String,
        /// The id or key of the flag.
        flag: String,
    },
    /// All flags, by OFREP.
    OfrepAll,
    /// The flag of this key, by OFREP.
    OfrepOne(String),
    /// Server-sent events about changes of flags.
    FlagEvents,
    /// A shared document, by the token of its link, with `.json` or without; or the password of the link.
    Shared(String),
    /// The protocol of assistants; the project of the path, if it has one. Takes a personal key.
    Mcp(String),
    /// What the server is, for models.
    Llms,
    /// The guide, for models.
    LlmsFull,
}

/// One row of the table.
#[derive(Debug)]
pub struct Line {
    /// Methods, separated by spaces.
    methods: &'static str,
    /// The path, without a trailing slash.
    pub path: &'static str,
    /// Whether the path has `:names`.
    has_names: bool,
    /// Makes the endpoint from the values of the `:names`.
    route: fn(&[&str]) -> Public,
}

const fn on(methods: &'static str, path: &'static str, route: fn(&[&str]) -> Public) -> Line {
    Line { methods, path, has_names: has_names(path), route }
}

/// Whether a path has `:names`; only they start with a colon.
const fn has_names(path: &str) -> bool {
    let mut rest = path.as_bytes();
    while let [first, others @ ..] = rest {
        if *first == b':' {
            return true;
        }
        rest = others;
    }
    false
}

/// Finds the endpoint of a path, which contains neither a query nor a host.
pub fn find(method: &str, path: &str) -> Lookup<Public> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let found = PUBLIC.iter().find_map(|line| {
        // The path is compared first, because it differs more often than the method.
        let values = line.values(path)?;
        line.methods().any(|own| own == method).then(|| (line.route)(&values))
    });
    if let Some(found) = found {
        return Lookup::Found(found);
    }
    let lines = PUBLIC.iter().filter(|line| line.values(path).is_some());
    let methods: Vec<&str> = lines.flat_map(Line::methods).collect();
    if methods.is_empty() { Lookup::Nothing } else { Lookup::wrong_method(methods) }
}

impl Line {
    /// The methods of the endpoint.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.methods.split(' ')
    }

    /// The values of the `:names` of its path, not decoded, if `path` matches.
    fn values<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let own = self.path;
        if !self.has_names {
            // The root is the only path that consists of its trailing slash.
            return (own == path || (own == "/" && path.is_empty())).then(Vec::new);
        }
        let (mut own, mut parts, mut values) = (own.split('/'), path.split('/'), Vec::new());
        loop {
            match (own.next(), parts.next()) {
                (None, None) => return Some(values),
                (Some(name), Some(value)) if name.starts_with(':') && !value.is_empty() => {
                    values.push(value);
                }
                (Some(word), Some(part)) if word == part => {}
                _ => return None,
            }
        }
    }
}

/// The value at index `place`, percent-decoded.
fn text(values: &[&str], place: usize) -> String {
    values.get(place).map(|value| decode(value).into_owned()).unwrap_or_default()
}

fn start(values: &[&str], file: File) -> Public {
    Public::Start { token: text(values, 0), file }
}

fn definitions(values: &[&str]) -> Public {
    Public::Definitions(text(values, 0))
}

fn payload(values: &[&str]) -> Public {
    Public::FlagPayload { project: text(values, 0), flag: text(values, 1) }
}

impl Public {
    /// Whether SDKs or probes poll it.
    pub fn is_routine(&self) -> bool {
        !matches!(
            self,
            Self::Root
                | Self::Description
                | Self::FlagEvents
                | Self::Shared(_)
                | Self::Mcp(_)
                | Self::Llms
                | Self::LlmsFull
        )
    }

    /// Whether it is a health probe of an orchestrator or a monitor, which has to be answered under overload too.
    pub fn is_probe(&self) -> bool {
        matches!(self, Self::Liveness | Self::Readiness | Self::Metrics)
    }

    /// Name in metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
            Self::Metrics => "metrics",
            Self::Description => "description",
            Self::Capture(_) => "capture",
            Self::CaptureV1 => "capture_v1",
            Self::Otel => "otel",
            Self::Discarded(what) => what.name(),
            Self::Flags | Self::FlagsWithoutSubject => "flags",
            Self::Start { .. } => "start",
            Self::Static(_) => "static",
            Self::List(_) => "list",
            Self::Definitions(_) => "definitions",
            Self::FlagPayload { .. } => "flag_remote_config",
            Self::OfrepAll => "ofrep_all",
            Self::OfrepOne(_) => "ofrep_one",
            Self::FlagEvents => "flag_events",
            Self::Shared(_) => "shared",
            Self::Mcp(_) => "mcp",
            Self::Llms => "llms",
            Self::LlmsFull => "llms_full",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Discarded, File, Kind, List, Public, find};
    use crate::lookup::Lookup;

    const POST: &str = "POST, OPTIONS";
    const GET: &str = "GET, HEAD, OPTIONS";
    const GET_POST: &str = "GET, POST, HEAD, OPTIONS";

    /// Checks the results for paths, with and without a trailing slash.
    fn check<const N: usize>(cases: [(&str, &str, Lookup<Public>); N]) {
        for (method, path, expected) in cases {
            let expected = format!("{expected:?}");
            for path in [path.to_owned(), format!("{}/", path.trim_end_matches('/'))] {
                assert_eq!(format!("{:?}", find(method, &path)), expected, "{method} {path}");
            }
        }
    }

    fn wrong(allow: &str) -> Lookup<Public> {
        Lookup::WrongMethod(allow.to_owned())
    }

    #[test]
    fn events_and_questions_of_sdks_find_their_endpoints() {
        check([
            ("POST", "/capture", Lookup::Found(Public::Capture(Kind::Legacy))),
            ("POST", "/e", Lookup::Found(Public::Capture(Kind::Legacy))),
            ("POST", "/track", Lookup::Found(Public::Capture(Kind::Legacy))),
            ("POST", "/engage", Lookup::Found(Public::Capture(Kind::Engage))),
            ("POST", "/batch", Lookup::Found(Public::Capture(Kind::Modern))),
            ("POST", "/i/v0/e", Lookup::Found(Public::Capture(Kind::Modern))),
            ("POST", "/flags", Lookup::Found(Public::Flags)),
            ("POST", "/decide", Lookup::Found(Public::Flags)),
            ("POST", "/i/v0/ai/batch", Lookup::Found(Public::Capture(Kind::Modern))),
            ("POST", "/i/v0/ai/otel", Lookup::Found(Public::Otel)),
            ("GET", "/i/v0/ai/otel", wrong(POST)),
            ("GET", "/batch", Lookup::Found(Public::Capture(Kind::Modern))),
            ("PUT", "/batch", wrong(GET_POST)),
            ("POST", "/i/v1/analytics/events", Lookup::Found(Public::CaptureV1)),
            ("POST", "/i/v1/ai/events", Lookup::Found(Public::CaptureV1)),
            ("GET", "/i/v1/analytics/events", wrong(POST)),
            ("POST", "/s", Lookup::Found(Public::Discarded(Discarded::Recordings))),
            ("GET", "/s", Lookup::Found(Public::Discarded(Discarded::Recordings))),
            ("POST", "/i/v1/logs", Lookup::Found(Public::Discarded(Discarded::Logs))),
            ("POST", "/i/v1/metrics", Lookup::Found(Public::Discarded(Discarded::Metrics))),
            ("POST", "/i/v1/traces", Lookup::Found(Public::Discarded(Discarded::Traces))),
            ("GET", "/i/v1/traces", wrong(POST)),
            ("GET", "/flags", Lookup::Found(Public::FlagsWithoutSubject)),
            ("GET", "/decide", Lookup::Found(Public::FlagsWithoutSubject)),
            ("DELETE", "/flags", wrong(GET_POST)),
        ]);
    }

    #[test]
    fn what_else_is_public_finds_its_endpoint() {
        let start = |file| Lookup::Found(Public::Start { token: "phc_t".to_owned(), file });
        let definitions = |project: &str| Lookup::Found(Public::Definitions(project.to_owned()));
        let payload = |project: &str, flag: &str| {
            let (project, flag) = (project.to_owned(), flag.to_owned());
            Lookup::Found(Public::FlagPayload { project, flag })
        };
        check([
            ("GET", "/flags/definitions", definitions("")),
            ("POST", "/flags/definitions", wrong(GET)),
            ("GET", "/api/feature_flag/local_evaluation", definitions("")),
            ("GET", "/api/projects/1/feature_flags/local_evaluation", definitions("1")),
            ("POST", "/api/projects/1/feature_flags/local_evaluation", wrong(GET)),
            (
                "GET",
                "/api/environments/@current/feature_flags/my-flag/remote_config",
                payload("@current", "my-flag"),
            ),
            ("POST", "/ofrep/v1/evaluate/flags", Lookup::Found(Public::OfrepAll)),
            (
                "POST",
                "/ofrep/v1/evaluate/flags/beta",
                Lookup::Found(Public::OfrepOne("beta".to_owned())),
            ),
            ("GET", "/ofrep/v1/evaluate/flags/beta", wrong(POST)),
            ("GET", "/flags/events", Lookup::Found(Public::FlagEvents)),
            ("POST", "/flags/events", wrong(GET)),
            ("GET", "/cohorts", Lookup::Nothing),
            ("GET", "/array/phc_t/config", start(File::Config)),
            ("GET", "/array/phc_t/config.js", start(File::ConfigScript)),
            ("GET", "/array/phc_t/array.js", start(File::Sdk)),
            ("POST", "/array/phc_t/config", wrong(GET)),
            ("GET", "/array/phc_t", Lookup::Nothing),
            ("GET", "/array/phc_t/recorder.js", Lookup::Nothing),
            ("GET", "/static/array.js", Lookup::Found(Public::Static("array.js".into()))),
            ("GET", "/static/1.2/a.js", Lookup::Found(Public::Static("1.2/a.js".into()))),
            ("POST", "/static/array.js", wrong(GET)),
            ("GET", "/api/surveys", Lookup::Found(Public::List(List::Surveys))),
            ("GET", "/api/web_experiments", Lookup::Found(Public::List(List::WebExperiments))),
            ("GET", "/api/product_tours", Lookup::Found(Public::List(List::ProductTours))),
            (
                "GET",
                "/api/early_access_features",
                Lookup::Found(Public::List(List::EarlyAccessFeatures)),
            ),
            ("POST", "/api/surveys", wrong(GET)),
            ("GET", "/_readiness", Lookup::Found(Public::Readiness)),
            ("POST", "/_readiness", wrong(GET)),
            ("GET", "/", Lookup::Found(Public::Root)),
            ("GET", "/nothing", Lookup::Nothing),
            ("POST", "/api/projects/1/persons", Lookup::Nothing),
            ("GET", "/array//config", Lookup::Nothing),
            ("GET", "/static/a/b/c.js", Lookup::Nothing),
            (
                "GET",
                "/api/projects/:project/feature_flags/local_evaluation",
                definitions(":project"),
            ),
            ("POST", "/mcp", Lookup::Found(Public::Mcp(String::new()))),
            ("POST", "/mcp/7", Lookup::Found(Public::Mcp("7".to_owned()))),
            ("GET", "/mcp", wrong(POST)),
            ("DELETE", "/mcp", wrong(POST)),
            ("GET", "/llms.txt", Lookup::Found(Public::Llms)),
            ("GET", "/llms-full.txt", Lookup::Found(Public::LlmsFull)),
            ("GET", "/api/schema", Lookup::Found(Public::Description)),
            ("GET", "/shared/a.json", Lookup::Found(Public::Shared("a.json".to_owned()))),
            ("GET", "/embedded/a.json", Lookup::Found(Public::Shared("a.json".to_owned()))),
            ("POST", "/shared/a.json", Lookup::Found(Public::Shared("a.json".to_owned()))),
            ("PUT", "/shared/a.json", wrong(GET_POST)),
            ("GET", "/shared", Lookup::Nothing),
        ]);
    }

    #[test]
    fn values_are_decoded_where_they_name_something() {
        for (method, path, expected) in [
            ("POST", "/ofrep/v1/evaluate/flags/a%20b", Public::OfrepOne("a b".to_owned())),
            (
                "GET",
                "/api/projects/%40current/feature_flags/local_evaluation",
                Public::Definitions("@current".to_owned()),
            ),
            ("GET", "/static/..%2fa.js", Public::Static("..%2fa.js".to_owned())),
        ] {
            let expected = format!("{:?}", Lookup::Found(expected));
            assert_eq!(format!("{:?}", find(method, path)), expected, "{path}");
        }
    }
}
