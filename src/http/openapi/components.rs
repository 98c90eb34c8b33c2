//! Components of the OpenAPI description that many endpoints refer to: parameters, headers, responses and how callers
//! identify themselves.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::openapi::document::Schemas;
use crate::openapi::{Either, Kind, Parameter, SchemaOf};
use weir_api::capture::{Captured, RefusalV1};
use weir_api::flags::Success;
use weir_api::sdk::{BareError, Definitions, Error, FlagsAnswer};

/// Where a parameter is.
#[derive(Clone, Copy, Debug)]
pub(super) enum In {
    Query,
    Path,
    Header,
}

/// The content of a response or a body, apart from its media type.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// JSON of a type.
    Of(SchemaOf),
    /// Any JSON.
    Any,
    Text,
    Binary,
}

/// A response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    says: &'static str,
    headers: &'static [&'static str],
    content: &'static [(&'static str, Content)],
}

pub(super) const JSON: &str = "application/json";
pub(super) const HTML: &str = "text/html";

/// JSON of a type.
pub(super) const fn of<T: JsonSchema>() -> Content {
    Content::Of(SchemaGenerator::subschema_for::<T>)
}

const ERROR: &[(&str, Content)] = &[(JSON, of::<Error>())];

impl Reply {
    /// A response without content.
    pub(super) const fn new(says: &'static str) -> Self {
        Self { says, headers: &[], content: &[] }
    }

    /// An error.
    pub(super) const fn error(says: &'static str) -> Self {
        Self::new(says).with(ERROR)
    }

    /// The same with this content.
    pub(super) const fn with(mut self, content: &'static [(&'static str, Content)]) -> Self {
        self.content = content;
        self
    }

    /// The same with these headers.
    pub(super) const fn headed(mut self, headers: &'static [&'static str]) -> Self {
        self.headers = headers;
        self
    }

    /// Its description.
    pub(super) fn described(&self, schemas: &mut Schemas) -> Value {
        let mut reply = Map::from_iter([("description".to_owned(), json!(self.says))]);
        if !self.headers.is_empty() {
            let headers = self.headers.iter().map(|name| ((*name).to_owned(), header(name)));
            reply.insert("headers".to_owned(), Value::Object(headers.collect()));
        }
        if !self.content.is_empty() {
            let described = |(media_type, content): &(&str, Content)| {
                let schema = content.described(|schema| schemas.answered(schema));
                ((*media_type).to_owned(), json!({"schema": schema}))
            };
            let content = self.content.iter().map(described).collect();
            reply.insert("content".to_owned(), Value::Object(content));
        }
        Value::Object(reply)
    }
}

impl Content {
    /// The schema; `schema_of` makes that of a type.
    pub(super) fn described(self, schema_of: impl FnOnce(SchemaOf) -> Value) -> Value {
        match self {
            Self::Of(schema) => schema_of(schema),
            Self::Any => json!({}),
            Self::Text => json!({"type": "string"}),
            Self::Binary => json!({"type": "string", "format": "binary"}),
        }
    }
}

/// A response header.
fn header(name: &str) -> Value {
    match name {
        "ETag" | "RequestId" => component("headers", name),
        "PostHog-Request-Id" => component("headers", "RequestId"),
        "Retry-After" => json!({"schema": {"type": "integer"}, "description": "Seconds"}),
        "WWW-Authenticate" => json!({
            "schema": {"type": "string"},
            "description": "Bearer, unless a key was sent that nobody holds",
        }),
        _ => json!({"schema": {"type": "string"}}),
    }
}

/// A reference to a component.
pub(super) fn component(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

/// How callers identify themselves.
pub(super) fn security_schemes() -> Value {
    json!({
        "personalKey": {
            "type": "http", "scheme": "bearer",
            "description": "A personal API key (phx_...) with the scope that is named; also as personal_api_key in JSON or query",
        },
        "projectSecretKey": {
            "type": "http", "scheme": "bearer", "description": "The secret key of a project (phs_...)",
        },
        "projectToken": {
            "type": "http", "scheme": "bearer", "description": "The project API key (phc_...)",
        },
        "projectTokenInHeader": {
            "type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The project API key",
        },
        "projectTokenInQuery": {
            "type": "apiKey", "in": "query", "name": "token", "description": "The project API key",
        },
    })
}

/// The headers.
pub(super) fn headers() -> Value {
    json!({
        "ETag": {"schema": {"type": "string"}},
        "RequestId": {"description": "As it was sent", "schema": {"type": "string"}},
    })
}

/// The shared parameters.
pub(super) fn parameters() -> Value {
    let described = |(name, place, parameter): &(&str, In, Parameter)| {
        ((*name).to_owned(), located(parameter, *place))
    };
    Value::Object(PARAMETERS.iter().map(described).collect())
}

/// The shared responses.
pub(super) fn responses(schemas: &mut Schemas) -> Value {
    let described = |(name, reply): &(&str, Reply)| ((*name).to_owned(), reply.described(schemas));
    Value::Object(RESPONSES.iter().map(described).collect())
}

/// A parameter of the query, or a reference to a shared one.
pub(super) fn parameter(parameter: &Parameter) -> Value {
    located(parameter, In::Query)
}

/// A parameter, or a reference to a shared one.
pub(super) fn located(parameter: &Parameter, place: In) -> Value {
    if matches!(parameter.kind, Kind::Shared) {
        return component("parameters", parameter.name);
    }
    let is_required = parameter.is_required || matches!(place, In::Path);
    let place = match place {
        In::Query => "query",
        In::Path => "path",
        In::Header => "header",
    };
    let mut described =
        json!({"name": parameter.name, "in": place, "schema": schema(&parameter.kind)});
    if let Value::Object(fields) = &mut described {
        if !parameter.about.is_empty() {
            fields.insert("description".to_owned(), json!(parameter.about));
        }
        if is_required {
            fields.insert("required".to_owned(), json!(true));
        }
    }
    described
}

/// The schema of a parameter.
fn schema(kind: &Kind) -> Value {
    match kind {
        Kind::Shared | Kind::Text => json!({"type": "string"}),
        Kind::Uuid => json!({"type": "string", "format": "uuid"}),
        Kind::Time => json!({"type": "string", "format": "date-time"}),
        Kind::Boolean => json!({"type": "boolean"}),
        Kind::Integer => json!({"type": "integer"}),
        Kind::From(min) => json!({"type": "integer", "minimum": min}),
        Kind::Between(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::OneOf(words) => json!({"type": "string", "enum": words}),
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Or(kind, word) => json!({"anyOf": [schema(kind), {"const": word}]}),
        Kind::IntegerOrUuid => json!({"anyOf": [schema(&Kind::Integer), schema(&Kind::Uuid)]}),
    }
}

/// How results are obtained.
const REFRESH: [&str; 8] = [
    "force_cache",
    "blocking",
    "force_blocking",
    "async",
    "lazy_async",
    "force_async",
    "true",
    "false",
];

/// Shared parameters by the names of their components.
#[rustfmt::skip]
const PARAMETERS: &[(&str, In, Parameter)] = &[
    ("refresh", In::Query, Parameter::one_of("refresh", &REFRESH).about("How results are obtained. force_cache, the default: kept ones that are still right, or none; true is force_blocking")),
    ("created_by", In::Query, Parameter::text("created_by").about("The id of a user, or a JSON list of them")),
    ("filters_override", In::Query, Parameter::text("filters_override").about("Filters of a dashboard, as the JSON text of an object; what it has replaces what the dashboard has")),
    ("variables_override", In::Query, Parameter::text("variables_override").about("Variables by their ids, as the JSON text of an object; they replace those of the dashboard")),
    ("limit", In::Query, Parameter::from("limit", 1).about("Items of the page")),
    ("offset", In::Query, Parameter::from("offset", 0).about("Items before the page")),
    ("page", In::Query, Parameter::from("page", 1)),
    ("format", In::Query, Parameter::one_of("format", &["json", "csv"]).about("Form of the answer; goes before Accept")),
    ("search", In::Query, Parameter::text("search")),
    ("distinct_id", In::Query, Parameter::text("distinct_id")),
    ("groups", In::Query, Parameter::text("groups").about("A JSON object: group type to group key")),
    ("token", In::Query, Parameter::text("token").about("The project API key")),
    ("v", In::Query, Parameter::integer("v").about("Version of the answer")),
    ("if_none_match", In::Header, Parameter::text("If-None-Match")),

    ("project", In::Path, Parameter::or("project", &Kind::Integer, "@current").about("The number of the project; @current is the one that the asker uses")),
    ("organization", In::Path, Parameter::or("organization", &Kind::Uuid, "@current").about("@current is the asker's")),
    ("id", In::Path, Parameter::integer("id")),
    ("uuid_id", In::Path, Parameter::uuid("id")),
    ("uuid", In::Path, Parameter::uuid("uuid")),
    ("member", In::Path, Parameter::or("uuid", &Kind::Uuid, "@me").about("@me is the asker")),
    ("key_id", In::Path, Parameter::or("id", &Kind::Integer, "@current").about("@current is the key of the request")),
    ("query_id", In::Path, Parameter::text("id")),
    ("person", In::Path, Parameter::integer_or_uuid("id").about("The number or the uuid of the person")),
    ("key", In::Path, Parameter::text("key").about("The key of the flag")),
    ("property_key", In::Path, Parameter::text("key").about("The key of the property")),
    ("flag", In::Path, Parameter::text("flag").about("The id or the key of the flag")),
    ("access", In::Path, Parameter::integer("access")),
    ("version", In::Path, Parameter::from("version", 1)),
    ("password", In::Path, Parameter::from("password", 1).about("Its id among the passwords of the link")),
    ("membership", In::Path, Parameter::uuid("membership")),
    ("path_token", In::Path, Parameter::text("token").about("The project API key")),
    ("share", In::Path, Parameter::text("share").about("The token of a link, and .json for JSON")),
    ("file", In::Path, Parameter::text("file").about("Such as array.js")),
    ("release", In::Path, Parameter::text("release").about("Of posthog-js")),
];

/// Shared responses by the names of their components.
#[rustfmt::skip]
const RESPONSES: &[(&str, Reply)] = &[
    ("BadRequest", Reply::error("The request cannot be read, or says what cannot be")),
    ("BadLifecycle", Reply::new("The request cannot be read, or says what cannot be, or not which persons are wanted").with(&[(JSON, of::<Either<Error, MissingParameter>>())])),
    ("Refused", Reply::new("The request cannot be read, or says what cannot be; some of that is told in one word").with(&[(JSON, of::<Either<Error, BareError>>())])),
    ("Unauthorized", Reply::error("No key, or one that nobody holds").headed(&["WWW-Authenticate"])),
    ("UnauthorizedToken", Reply::error("No project has this API key")),
    ("Forbidden", Reply::error("The key may not do this, or is not of this organization")),
    ("NotFound", Reply::error("There is no such object, or no such form of it")),
    ("NotAcceptable", Reply::error("No answer has a media type that Accept names")),
    ("Slow", Reply::error("The body did not arrive in time")),
    ("Conflict", Reply::error("Somebody else changed the same fields since the client looked")),
    ("Outdated", Reply::error("The flag has changed since that version")),
    ("TooLarge", Reply::error("The body is longer than the endpoint takes")),
    ("UnsupportedMediaType", Reply::error("The body is not JSON by its Content-Type")),
    ("Throttled", Reply::error("The key asked too often; only if the operator limits that").headed(&["Retry-After"])),
    ("Unavailable", Reply::error("The server is busy or cannot do this at the moment (503, with Retry-After), took too long (504), or failed (500)").headed(&["Retry-After"])),
    ("CreationRefused", Reply::error("Nobody is made this way").headed(&["Allow"])),
    ("DocumentDeleteRefused", Reply::error("It is deleted by a change of `deleted`").headed(&["Allow"])),
    ("DeleteRefused", Reply::new("It is deleted by a change of `deleted`").headed(&["Allow"])),
    ("NoFlag", Reply::new("There is no such flag")),
    ("NoStatus", Reply::new("There is no such flag, project or form").with(&[(JSON, of::<Either<Error, UnknownStatus>>())])),
    ("NotSwitched", Reply::new("The flag cannot become that; a deleted one has to be restored first").with(&[(JSON, of::<Either<Error, Success>>())])),
    ("Success", Reply::new("Whether it was done").with(&[(JSON, of::<Success>())])),
    ("NotModified", Reply::new("The client has this version").headed(&["ETag"])),
    ("Captured", Reply::new("Received; whatever of it can be stored is stored for good").with(&[(JSON, of::<Captured>())])),
    ("RefusedV1", Reply::new("Refused as a whole").headed(&["PostHog-Request-Id"]).with(&[(JSON, of::<RefusalV1>())])),
    ("FlagsAnswer", Reply::new("The flags").with(&[(JSON, of::<FlagsAnswer>())])),
    ("Definitions", Reply::new("The definitions").headed(&["ETag", "Cache-Control"]).with(&[(JSON, of::<Definitions>())])),
    ("Script", Reply::new("A script").headed(&["ETag", "Cache-Control"]).with(&[("text/javascript", Content::Text)])),
    ("Text", Reply::new("A word").with(&[("text/plain", Content::Text)])),
];

/// The error of a lifecycle of older clients that does not say which persons it wants.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "describes, has no values")]
struct MissingParameter {
    #[schemars(extend("const" = "Missing parameter"))]
    message: String,
    detail: String,
}

/// The status of a flag that does not exist.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "describes, has no values")]
struct UnknownStatus {
    #[schemars(extend("const" = "unknown"))]
    status: String,
    reason: String,
}
