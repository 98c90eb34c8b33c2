//! The OpenAPI description of the public endpoints, for SDKs, browsers, proxies and probes: [`describe`]. Tests compare
//! them with the table in `public`.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::openapi::components::{Content, HTML, In, JSON, Reply, component, located, of};
use crate::openapi::document::{Schemas, written};
use crate::openapi::{AnyObject, Parameter};
use weir_api::capture::{
    Capture, CaptureForm, CaptureV1, CapturedV1, ExportTraces, TracesExported,
};
use weir_api::enrolment::EarlyAccessFeatures;
use weir_api::sdk::{
    Error, FlagsQuestion, NoExperiments, NoSurveys, NoTours, OfrepFailure, OfrepFlag, OfrepFlags,
    OfrepQuestion, RemoteConfig, Server,
};

/// A path, or several that are described once.
struct Item {
    paths: &'static [&'static str],
    /// The name of the component of several paths.
    name: Option<&'static str>,
    methods: &'static [Described],
}

/// A method of a path.
struct Described {
    /// GET or POST.
    method: &'static str,
    /// The operation id; `None` in a description that several paths share.
    id: Option<&'static str>,
    tag: &'static str,
    summary: &'static str,
    notes: &'static str,
    parameters: &'static [(In, Parameter)],
    body: Option<Sent>,
    /// The keys that are taken, any of which is enough, with the scope of a personal key.
    security: &'static [(&'static str, &'static [&'static str])],
    replies: &'static [(&'static str, Answer)],
}

/// The body of a request.
#[derive(Clone, Copy)]
struct Sent {
    says: &'static str,
    is_required: bool,
    content: &'static [(&'static str, Content)],
}

/// A response: of the components, or its own.
#[derive(Clone, Copy)]
enum Answer {
    Shared(&'static str),
    Own(Reply),
}

use Answer::{Own, Shared};

const fn get(id: &'static str, tag: &'static str, summary: &'static str) -> Described {
    Described {
        method: "get",
        id: Some(id),
        tag,
        summary,
        notes: "",
        parameters: &[],
        body: None,
        security: &[],
        replies: &[],
    }
}

const fn post(id: &'static str, tag: &'static str, summary: &'static str) -> Described {
    Described { method: "post", ..get(id, tag, summary) }
}

impl Described {
    const fn without_id(mut self) -> Self {
        self.id = None;
        self
    }

    const fn notes(mut self, notes: &'static str) -> Self {
        self.notes = notes;
        self
    }

    const fn takes(mut self, parameters: &'static [(In, Parameter)]) -> Self {
        self.parameters = parameters;
        self
    }

    const fn body(mut self, content: &'static [(&'static str, Content)]) -> Self {
        self.body = Some(Sent { says: "", is_required: true, content });
        self
    }

    const fn optional_body(mut self, content: &'static [(&'static str, Content)]) -> Self {
        self.body = Some(Sent { says: "", is_required: false, content });
        self
    }

    const fn by(mut self, security: &'static [(&'static str, &'static [&'static str])]) -> Self {
        self.security = security;
        self
    }

    const fn answers(mut self, replies: &'static [(&'static str, Answer)]) -> Self {
        self.replies = replies;
        self
    }

    fn described(&self, schemas: &mut Schemas) -> Value {
        let security = self.security.iter().map(|(scheme, scopes)| json!({(*scheme): scopes}));
        let replies = self.replies.iter().map(|(status, answer)| {
            let described = match answer {
                Shared(name) => component("responses", name),
                Own(reply) => reply.described(schemas),
            };
            ((*status).to_owned(), described)
        });
        let replies: Map<String, Value> = replies.collect();
        let mut described = Map::from_iter([
            ("summary".to_owned(), json!(self.summary)),
            ("tags".to_owned(), json!([self.tag])),
            ("security".to_owned(), security.collect()),
            ("responses".to_owned(), Value::Object(replies)),
        ]);
        let mut add = |name: &str, value: Value| described.insert(name.to_owned(), value);
        if let Some(id) = self.id {
            add("operationId", json!(id));
        }
        if !self.notes.is_empty() {
            add("description", json!(self.notes));
        }
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(|(place, own)| located(own, *place));
            add("parameters", parameters.collect());
        }
        if let Some(body) = self.body {
            add("requestBody", body.described(schemas));
        }
        Value::Object(described)
    }
}

impl Sent {
    fn described(self, schemas: &mut Schemas) -> Value {
        let content = self.content.iter().map(|(media_type, content)| {
            let schema = content.described(|schema| schemas.sent(schema));
            ((*media_type).to_owned(), json!({"schema": schema}))
        });
        let content: Map<String, Value> = content.collect();
        let mut body = Map::from_iter([("content".to_owned(), Value::Object(content))]);
        if !self.says.is_empty() {
            body.insert("description".to_owned(), json!(self.says));
        }
        if self.is_required {
            body.insert("required".to_owned(), json!(true));
        }
        Value::Object(body)
    }
}

/// Adds the public paths to those of the description. Returns the descriptions that several paths share.
pub(super) fn describe(
    paths: &mut Map<String, Value>,
    schemas: &mut Schemas,
) -> Map<String, Value> {
    let mut shared = Map::new();
    for item in ITEMS {
        let mut described = Map::new();
        let parameters = path_parameters(item.paths.first().copied().unwrap_or_default());
        if !parameters.is_empty() {
            described.insert("parameters".to_owned(), Value::Array(parameters));
        }
        let methods = item.methods.iter();
        described.extend(methods.map(|own| (own.method.to_owned(), own.described(schemas))));
        let described = match item.name {
            None => Value::Object(described),
            Some(name) => {
                shared.insert(name.to_owned(), Value::Object(described));
                component("pathItems", name)
            }
        };
        let item_paths = item.paths.iter().map(|path| (written(path), described.clone()));
        paths.extend(item_paths);
    }
    shared
}

/// The parameters of a path, all of which are shared.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix(':'));
    let names = names.map(|name| if name == "token" { "path_token" } else { name });
    names.map(|name| component("parameters", name)).collect()
}

const fn one(paths: &'static [&'static str], methods: &'static [Described]) -> Item {
    Item { paths, name: None, methods }
}

const fn several(
    name: &'static str,
    paths: &'static [&'static str],
    methods: &'static [Described],
) -> Item {
    Item { paths, name: Some(name), methods }
}

const fn of_query(parameter: Parameter) -> (In, Parameter) {
    (In::Query, parameter)
}

const TOKEN: (In, Parameter) = of_query(Parameter::shared("token"));
const VERSION: (In, Parameter) = of_query(Parameter::shared("v"));
const OWN_TOKEN: (In, Parameter) =
    of_query(Parameter::text("token").about("The project API key").required());
const IF_NONE_MATCH: (In, Parameter) = (In::Header, Parameter::shared("if_none_match"));
const COMPRESSION: (In, Parameter) =
    of_query(Parameter::one_of("compression", &["gzip", "gzip-js", "lz64", "base64"]));
const BEACON: (In, Parameter) = of_query(Parameter::one_of("beacon", &["1"]));
const SENT_AT: (In, Parameter) =
    of_query(Parameter::integer("_").about("When the request was sent, milliseconds since 1970"));
const DATA: (In, Parameter) =
    of_query(Parameter::text("data").about("What POST has as its body").required());

const CAPTURE: &[(In, Parameter)] = &[COMPRESSION, BEACON, SENT_AT];
const CAPTURE_BY_QUERY: &[(In, Parameter)] = &[COMPRESSION, BEACON, SENT_AT, DATA];
const CAPTURE_BODY: &[(&str, Content)] = &[
    (JSON, of::<Capture>()),
    // The same JSON, whatever it is compressed or wrapped with.
    ("text/plain", Content::Text),
    ("application/x-www-form-urlencoded", of::<CaptureForm>()),
];

const UNAVAILABLE: (&str, Answer) = ("5XX", Shared("Unavailable"));
const NOT_MODIFIED: (&str, Answer) = ("304", Shared("NotModified"));
const NO_TOKEN: (&str, Answer) = ("401", Shared("UnauthorizedToken"));
const NOT_FOUND: (&str, Answer) = ("404", Shared("NotFound"));
const BAD: (&str, Answer) = ("400", Shared("BadRequest"));
const SLOW: (&str, Answer) = ("408", Shared("Slow"));
const TOO_LARGE: (&str, Answer) = ("413", Shared("TooLarge"));

const CAPTURED: &[(&str, Answer)] = &[
    ("200", Shared("Captured")),
    ("204", Own(Reply::new("Received; for a beacon"))),
    BAD,
    NO_TOKEN,
    SLOW,
    TOO_LARGE,
    UNAVAILABLE,
];

const V1_HEADERS: &[(In, Parameter)] = &[
    (In::Header, Parameter::text("PostHog-Sdk-Info").required()),
    (In::Header, Parameter::from("PostHog-Attempt", 1).required()),
    (In::Header, Parameter::uuid("PostHog-Request-Id").required()),
    (In::Header, Parameter::time("PostHog-Request-Timestamp").required()),
    (In::Header, Parameter::text("User-Agent").required()),
];

const FATES: Reply = Reply::new("The fate of each event")
    .headed(&["PostHog-Request-Id"])
    .with(&[(JSON, of::<CapturedV1>())]);

const V1_REPLIES: &[(&str, Answer)] = &[
    ("200", Own(FATES)),
    ("400", Shared("RefusedV1")),
    ("401", Shared("RefusedV1")),
    ("408", Shared("RefusedV1")),
    ("413", Shared("RefusedV1")),
    ("415", Shared("RefusedV1")),
    ("5XX", Shared("RefusedV1")),
];

const PROTOBUF: &str = "application/x-protobuf";
const BY_TOKEN: &[(&str, &[&str])] = &[("projectToken", &[]), ("projectTokenInQuery", &[])];
const BY_HEADER: &[(&str, &[&str])] = &[("projectTokenInHeader", &[]), ("projectToken", &[])];
const BY_SECRET: &[(&str, &[&str])] =
    &[("personalKey", &["feature_flag:read"]), ("projectSecretKey", &[])];

const OTLP: &[(&str, Content)] = &[(JSON, of::<AnyObject>()), (PROTOBUF, Content::Binary)];
const DISCARDED: &[(&str, Answer)] = &[
    ("200", Own(Reply::new("Received").with(&[(JSON, of::<AnyObject>())]))),
    NO_TOKEN,
    UNAVAILABLE,
];

const FLAGS: &[(In, Parameter)] = &[
    VERSION,
    of_query(Parameter::boolean("config").about("Whether the settings are wanted too")),
    of_query(Parameter::boolean("only_evaluate_survey_feature_flags")),
    of_query(Parameter::boolean("only_use_override_person_properties")),
    of_query(Parameter::boolean("detailed_analysis")),
];
const FLAGS_REPLIES: &[(&str, Answer)] =
    &[("200", Shared("FlagsAnswer")), BAD, NO_TOKEN, SLOW, TOO_LARGE, UNAVAILABLE];
const SETTINGS_REPLIES: &[(&str, Answer)] = &[("200", Shared("FlagsAnswer")), UNAVAILABLE];

const LOCAL: &[(In, Parameter)] = &[
    TOKEN,
    of_query(Parameter::text("send_cohorts").about("Whether rules of cohorts are wanted too")),
    IF_NONE_MATCH,
];
const LOCAL_REPLIES: &[(&str, Answer)] = &[
    ("200", Shared("Definitions")),
    NOT_MODIFIED,
    ("401", Shared("Unauthorized")),
    ("403", Shared("Forbidden")),
    NOT_FOUND,
    UNAVAILABLE,
];
const LOCAL_SUMMARY: &str = "Flags for servers that evaluate them themselves";

const FAILURE: &[(&str, Content)] = &[(JSON, of::<OfrepFailure>())];

const SCRIPT_REPLIES: &[(&str, Answer)] =
    &[("200", Shared("Script")), NOT_MODIFIED, NOT_FOUND, UNAVAILABLE];
const FILE: Reply = Reply::new("The script, or its map")
    .headed(&["ETag", "Cache-Control"])
    .with(&[("text/javascript", Content::Text), (JSON, Content::Any)]);
const FILE_REPLIES: &[(&str, Answer)] = &[("200", Own(FILE)), NOT_MODIFIED, NOT_FOUND, UNAVAILABLE];

/// The replies of a list for SDKs.
macro_rules! list {
    ($of:ty) => {
        &[("200", Own(Reply::new("The list").with(&[(JSON, of::<$of>())]))), NO_TOKEN, UNAVAILABLE]
    };
}

const MCP: &str = "Tools for assistants: a message of the Model Context Protocol, as one request of streamable HTTP";
const MCP_NOTES: &str = "Revisions 2025-03-26 to 2026-07-28. The tools, resources and prompts describe themselves \
    (tools/list); the page assistants of the guide says how clients are set up.";
const MCP_BODY: &[(&str, Content)] = &[(JSON, Content::Any)];
const MCP_KEY: &[(&str, &[&str])] = &[("personalKey", &[])];
const MCP_REPLIES: &[(&str, Answer)] = &[
    ("200", Own(Reply::new("The answer").with(MCP_BODY))),
    ("202", Own(Reply::new("Nothing to answer"))),
    ("400", Own(Reply::new("No message of the protocol").with(&[(JSON, of::<AnyObject>())]))),
    ("401", Shared("Unauthorized")),
    ("403", Shared("Forbidden")),
    (
        "404",
        Own(Reply::new("No such project, or no such method").with(&[(JSON, of::<AnyObject>())])),
    ),
    SLOW,
    TOO_LARGE,
    ("415", Shared("UnsupportedMediaType")),
    ("429", Shared("Throttled")),
    UNAVAILABLE,
];
const TEXT: Reply = Reply::new("The text")
    .headed(&["ETag", "Cache-Control"])
    .with(&[("text/plain", Content::Text)]);
const TEXT_REPLIES: &[(&str, Answer)] = &[("200", Own(TEXT)), NOT_MODIFIED, UNAVAILABLE];

const ERROR_OR_PAGE: &[(&str, Content)] = &[(JSON, of::<Error>()), (HTML, Content::Text)];
const LEADS_NOWHERE: (&str, Answer) =
    ("404", Own(Reply::new("The link leads nowhere").with(ERROR_OR_PAGE)));
const CANNOT: (&str, Answer) =
    ("5XX", Own(Reply::new("The server cannot answer at the moment").with(ERROR_OR_PAGE)));

/// The public endpoints.
#[rustfmt::skip]
const ITEMS: &[Item] = &[
    several("Capture", &["/i/v0/e", "/batch", "/e", "/capture", "/track", "/engage", "/i/v0/ai/batch"], &[
        post("", "capture", "Take events").without_id().takes(CAPTURE).body(CAPTURE_BODY).answers(CAPTURED),
        get("", "capture", "Take events from the query, of image pixels and the oldest SDKs").without_id().takes(CAPTURE_BY_QUERY).answers(CAPTURED),
    ]),
    several("CaptureV1", &["/i/v1/analytics/events", "/i/v1/ai/events"], &[
        post("", "capture", "Take events, and tell what became of each").without_id().takes(V1_HEADERS).body(&[(JSON, of::<CaptureV1>())]).by(&[("projectToken", &[])]).answers(V1_REPLIES),
    ]),
    one(&["/i/v0/ai/otel"], &[
        post("i_v0_ai_otel_create", "capture", "Take traces of OpenTelemetry: spans about AI become events, others are left out")
            .notes("The body is an ExportTraceServiceRequest, which may be compressed with gzip; the answer has the form of the request.")
            .body(&[(PROTOBUF, Content::Binary), (JSON, of::<ExportTraces>())]).by(BY_TOKEN)
            .answers(&[("200", Own(Reply::new("An ExportTraceServiceResponse").with(&[(PROTOBUF, Content::Binary), (JSON, of::<TracesExported>())]))), BAD, NO_TOKEN, SLOW, TOO_LARGE, UNAVAILABLE]),
    ]),
    one(&["/s"], &[
        post("s_create", "capture", "Take session recordings, and throw them away").takes(CAPTURE).body(CAPTURE_BODY).answers(CAPTURED),
        get("s_retrieve", "capture", "Take session recordings, and throw them away").takes(CAPTURE_BY_QUERY).answers(CAPTURED),
    ]),
    one(&["/i/v1/logs"], &[post("i_v1_logs_create", "capture", "Take logs of OpenTelemetry, and throw them away").optional_body(OTLP).by(BY_TOKEN).answers(DISCARDED)]),
    one(&["/i/v1/metrics"], &[post("i_v1_metrics_create", "capture", "Take metrics of OpenTelemetry, and throw them away").optional_body(OTLP).by(BY_TOKEN).answers(DISCARDED)]),
    one(&["/i/v1/traces"], &[post("i_v1_traces_create", "capture", "Take traces of OpenTelemetry, and throw them away").optional_body(OTLP).by(BY_TOKEN).answers(DISCARDED)]),

    one(&["/flags"], &[
        post("flags_create", "flags", "The flags of a person").takes(FLAGS).body(&[(JSON, of::<FlagsQuestion>())]).answers(FLAGS_REPLIES),
        get("flags_retrieve", "flags", "The settings, and no flags").takes(&[VERSION, TOKEN]).answers(SETTINGS_REPLIES),
    ]),
    one(&["/decide"], &[
        post("decide_create", "flags", "The flags of a person").takes(FLAGS).body(&[(JSON, of::<FlagsQuestion>())]).answers(FLAGS_REPLIES),
        get("decide_retrieve", "flags", "The settings, and no flags").takes(&[VERSION, TOKEN]).answers(SETTINGS_REPLIES),
    ]),
    one(&["/flags/events"], &[
        get("flags_events_retrieve", "flags", "A stream that tells when flags change").takes(&[TOKEN, (In::Header, Parameter::text("X-API-Key"))])
            .answers(&[("200", Own(Reply::new("The stream").with(&[("text/event-stream", Content::Text)]))), NO_TOKEN,
                       ("429", Own(Reply::error("The address has more streams than it may").headed(&["Retry-After"]))), UNAVAILABLE]),
    ]),
    one(&["/flags/definitions"], &[get("flags_definitions_retrieve", "flags", LOCAL_SUMMARY).takes(LOCAL).by(BY_SECRET).answers(LOCAL_REPLIES)]),
    one(&["/api/feature_flag/local_evaluation"], &[get("feature_flag_local_evaluation_retrieve", "flags", LOCAL_SUMMARY).takes(LOCAL).by(BY_SECRET).answers(LOCAL_REPLIES)]),
    one(&["/api/projects/:project/feature_flags/local_evaluation"], &[get("feature_flags_local_evaluation_retrieve", "flags", LOCAL_SUMMARY).takes(LOCAL).by(BY_SECRET).answers(LOCAL_REPLIES)]),
    one(&["/api/projects/:project/feature_flags/:flag/remote_config"], &[
        get("feature_flags_remote_config_retrieve", "flags", "The payload of a flag for remote configuration").takes(&[TOKEN]).by(BY_SECRET)
            .answers(&[("200", Own(Reply::new("The payload as stored").with(&[(JSON, Content::Any)]))), ("401", Shared("Unauthorized")), ("403", Shared("Forbidden")),
                       ("404", Own(Reply::new("There is no such project, or, without a body, no such flag for remote configuration"))), UNAVAILABLE]),
    ]),
    one(&["/ofrep/v1/evaluate/flags"], &[
        post("ofrep_v1_evaluate_flags_create", "flags", "All flags, as OpenFeature asks").takes(&[IF_NONE_MATCH]).body(&[(JSON, of::<OfrepQuestion>())]).by(BY_HEADER)
            .answers(&[("200", Own(Reply::new("The flags").headed(&["ETag"]).with(&[(JSON, of::<OfrepFlags>())]))), NOT_MODIFIED,
                       ("400", Own(Reply::new("The context cannot be used").with(FAILURE))), NO_TOKEN, SLOW, TOO_LARGE, UNAVAILABLE]),
    ]),
    one(&["/ofrep/v1/evaluate/flags/:key"], &[
        post("ofrep_v1_evaluate_flags_of_key_create", "flags", "One flag, as OpenFeature asks").body(&[(JSON, of::<OfrepQuestion>())]).by(BY_HEADER)
            .answers(&[("200", Own(Reply::new("The flag").with(&[(JSON, of::<OfrepFlag>())]))), ("400", Own(Reply::new("The context cannot be used").with(FAILURE))), NO_TOKEN,
                       ("404", Own(Reply::new("There is no such flag").with(FAILURE))), SLOW, TOO_LARGE, UNAVAILABLE]),
    ]),

    one(&["/array/:token/config"], &[
        get("array_config_retrieve", "sdk", "Settings of browser and mobile SDKs").takes(&[IF_NONE_MATCH])
            .answers(&[("200", Own(Reply::new("The settings").headed(&["ETag", "Cache-Control"]).with(&[(JSON, of::<RemoteConfig>())]))), NOT_MODIFIED, NOT_FOUND, UNAVAILABLE]),
    ]),
    one(&["/array/:token/config.js"], &[get("array_config_js_retrieve", "sdk", "The settings as a script").takes(&[IF_NONE_MATCH]).answers(SCRIPT_REPLIES)]),
    one(&["/array/:token/array.js"], &[get("array_array_js_retrieve", "sdk", "The settings and posthog-js").takes(&[IF_NONE_MATCH]).answers(SCRIPT_REPLIES)]),
    one(&["/static/:file"], &[get("static_retrieve", "sdk", "A script of posthog-js, from static-dir").takes(&[IF_NONE_MATCH]).answers(FILE_REPLIES)]),
    one(&["/static/:release/:file"], &[get("static_of_release_retrieve", "sdk", "The same of one release, or as above").takes(&[IF_NONE_MATCH]).answers(FILE_REPLIES)]),
    one(&["/api/surveys"], &[get("surveys_retrieve", "sdk", "None: an empty list").takes(&[OWN_TOKEN]).answers(list!(NoSurveys))]),
    one(&["/api/web_experiments"], &[get("web_experiments_retrieve", "sdk", "None: an empty list").takes(&[OWN_TOKEN]).answers(list!(NoExperiments))]),
    one(&["/api/product_tours"], &[get("product_tours_retrieve", "sdk", "None: an empty list").takes(&[OWN_TOKEN]).answers(list!(NoTours))]),
    one(&["/api/early_access_features"], &[
        get("early_access_features_retrieve", "sdk", "Features that people may enrol in").takes(&[OWN_TOKEN, of_query(Parameter::texts("stage").about("Without it beta"))]).answers(list!(EarlyAccessFeatures)),
    ]),

    several("Shared", &["/shared/:share", "/shared_dashboard/:share", "/embedded/:share"], &[
        get("shared_retrieve", "dashboards", "The dashboard or insight that a link leads to, with results of at most half a minute ago; a page without .json")
            .answers(&[("200", Own(Reply::new("It, without anything else of its project").with(&[(JSON, of::<SharedAnswer>()), (HTML, Content::Text)]))),
                       ("401", Own(Reply::error("The link asks for a password; its page is a form for it"))), LEADS_NOWHERE, CANNOT]),
        post("shared_unlock", "dashboards", "Give the password of a link that asks for one; on other links as GET")
            .optional_body(&[(JSON, of::<SharedPassword>()), ("application/x-www-form-urlencoded", of::<SharedPassword>())])
            .answers(&[("200", Own(Reply::new("A pass, for 24 hours, in a cookie and to send after Bearer; of the page within another one, the page").with(&[(JSON, of::<Pass>()), (HTML, Content::Text)]))),
                       ("303", Own(Reply::new("The same for a form; leads to the page"))), BAD, ("401", Own(Reply::new("It is no password of the link").with(ERROR_OR_PAGE))), LEADS_NOWHERE,
                       SLOW, TOO_LARGE, ("429", Own(Reply::new("Too many guesses of this address, or at this link").headed(&["Retry-After"]).with(ERROR_OR_PAGE))), CANNOT]),
    ]),

    one(&["/mcp"], &[
        post("mcp_create", "server", MCP).notes(MCP_NOTES).body(MCP_BODY).by(MCP_KEY).answers(MCP_REPLIES)
            .takes(&[of_query(Parameter::text("project").about("The number of the project; the current one of the key's user without it"))]),
    ]),
    one(&["/mcp/:project"], &[post("mcp_project_create", "server", MCP).notes(MCP_NOTES).body(MCP_BODY).by(MCP_KEY).answers(MCP_REPLIES)]),
    one(&["/llms.txt"], &[get("llms_retrieve", "server", "What the server is, for models").takes(&[IF_NONE_MATCH]).answers(TEXT_REPLIES)]),
    one(&["/llms-full.txt"], &[get("llms_full_retrieve", "server", "The guide as one text, for models").takes(&[IF_NONE_MATCH]).answers(TEXT_REPLIES)]),
    one(&["/api/schema"], &[
        get("schema_retrieve", "server", "This description").takes(&[IF_NONE_MATCH])
            .answers(&[("200", Own(Reply::new("The description").headed(&["ETag", "Cache-Control"]).with(&[(JSON, of::<AnyObject>())]))), NOT_MODIFIED, UNAVAILABLE]),
    ]),
    one(&["/"], &[
        get("root_retrieve", "server", "What this server is and where to go")
            .notes("By `Accept`: browsers are led to the page (303), an object for `application/json`, and for all others the word by which proxies know a capture server.")
            .answers(&[("200", Own(Reply::new("The server").with(&[("text/plain", Content::Text), (JSON, of::<Server<'static>>())]))),
                       ("303", Own(Reply::new("To the page, for `Accept: text/html`").headed(&["location"]))), UNAVAILABLE]),
    ]),
    one(&["/_liveness"], &[get("_liveness_retrieve", "server", "Whether the process answers").answers(&[("200", Shared("Text")), UNAVAILABLE])]),
    one(&["/_readiness"], &[get("_readiness_retrieve", "server", "Whether events are taken; 503 while they are not").answers(&[("200", Shared("Text")), UNAVAILABLE])]),
    one(&["/metrics"], &[
        get("metrics_retrieve", "server", "Metrics for Prometheus").answers(&[("200", Own(Reply::new("The metrics").with(&[("application/openmetrics-text", Content::Text)]))), UNAVAILABLE]),
    ]),
];

/// What a link leads to.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "describes, has no values")]
struct SharedAnswer {
    /// How the link was followed.
    #[schemars(rename = "type", extend("enum" = ["scene", "embed"]))]
    kind: String,
    /// The token of the link.
    #[schemars(rename = "accessToken")]
    access_token: String,
    /// As of one dashboard, with fewer fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnyObject")]
    dashboard: Option<AnyObject>,
    /// As of one insight, with fewer fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnyObject")]
    insight: Option<AnyObject>,
}

/// The password of a link.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "describes, has no values")]
struct SharedPassword {
    password: Option<String>,
}

/// The pass to a link with a password.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "describes, has no values")]
struct Pass {
    #[schemars(rename = "shareToken")]
    share_token: String,
}
