//! The whole OpenAPI description: [`text`] makes `schemas/openapi.json` from the tables of endpoints, the words and
//! shapes in them, `components`, and the descriptions of public endpoints in `sdk`.

use std::collections::BTreeMap;
use std::fmt::Write;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::openapi::components::{component, parameter};
use crate::openapi::{
    Body, Kind, Paging, Parameter, SchemaOf, Shape, Success, Words, components, sdk,
};
use crate::rendering::{MEDIA_TYPES, Renderings};
use crate::table::{Endpoint, TABLE};

/// What holds for all endpoints.
const ABOUT: &str = "An event-analytics server that speaks the API of PostHog: events in, persons, flags and SQL out.\n\nEvery \
    path may be written with or without a slash at its end. `/api/environments/` is another name of `/api/projects/`; \
    `/api/person/`, `/api/event/`, `/api/event_definition/`, `/api/property_definition/`, `/api/feature_flag/` and \
    `/api/cohort/` mean the project that the asker uses. HEAD is answered where GET is, OPTIONS everywhere, for browsers. \
    Another method gets 405 with `Allow`, an unknown path 404.\n\nManagement endpoints answer JSON; a `format` or an \
    `Accept` that they cannot meet gets 404 or 406. Bodies are JSON objects; fields that are not named here are refused, \
    and numbers and texts are taken for each other where that loses nothing. Every error of theirs is an \
    `Error`.\n\nEvents are taken compressed too: gzip, deflate, br, zstd, lz4, lz64, by `Content-Encoding` or as the \
    bytes tell.";

/// Responses of every management endpoint.
const RESPONSES: [(&str, &str); 6] = [
    ("401", "Unauthorized"),
    ("403", "Forbidden"),
    ("404", "NotFound"),
    ("406", "NotAcceptable"),
    ("429", "Throttled"),
    ("5XX", "Unavailable"),
];

/// Responses of those that take a body.
const RESPONSES_TO_BODIES: [(&str, &str); 4] =
    [("400", "BadRequest"), ("408", "Slow"), ("413", "TooLarge"), ("415", "UnsupportedMediaType")];

/// Parameters in paths that differ from the component of the same name: (prefix of the path, name, component).
const PATH_PARAMETERS: [(&str, &str, &str); 10] = [
    ("/api/personal_api_keys/", "id", "key_id"),
    ("/api/users/", "uuid", "member"),
    ("O/members/", "uuid", "member"),
    ("O/roles/", "id", "uuid_id"),
    ("P/early_access_feature/", "id", "uuid_id"),
    ("P/event_definitions/", "id", "uuid_id"),
    ("P/persons/", "id", "person"),
    ("P/promoted_properties/", "key", "property_key"),
    ("P/property_definitions/", "id", "uuid_id"),
    ("P/query/", "id", "query_id"),
];

/// First words of paths that exist both for projects and for organizations; operation ids of the latter begin with
/// `organization_`.
const OF_BOTH: [&str; 2] = ["feature_flags", "projects"];

/// Levels of objects that are written with one field per line, so that an operation or a schema is one line.
const LEVELS: usize = 3;

/// The text of `schemas/openapi.json`.
pub fn text() -> String {
    let mut text = String::new();
    write_value(&mut text, &document(), 0);
    text.push('\n');
    text
}

/// Writes `value`, which is nested `depth` levels deep.
fn write_value(text: &mut String, value: &Value, depth: usize) {
    let fields = value.as_object().filter(|fields| depth < LEVELS && !fields.is_empty());
    let Some(fields) = fields else {
        // Writing to a `String` does not fail.
        let _ = write!(text, "{value}");
        return;
    };
    text.push('{');
    for (place, (name, value)) in fields.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\n{:indent$}{}: ", "", json!(name), indent = 2 * depth + 2);
        write_value(text, value, depth + 1);
    }
    let _ = write!(text, "\n{:indent$}}}", "", indent = 2 * depth);
}

/// The description.
pub(super) fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    let path_items = sdk::describe(&mut paths, &mut schemas);
    for endpoint in TABLE {
        let (words, shape) = endpoint.described();
        let item = paths.entry(written(endpoint.path)).or_insert_with(|| json!({}));
        let Value::Object(item) = item else { continue };
        let parameters = path_parameters(endpoint.path);
        if !parameters.is_empty() {
            item.insert("parameters".to_owned(), json!(parameters));
        }
        for method in endpoint.methods() {
            let described = schemas.described(endpoint, &words, &shape, method);
            item.insert(method.to_lowercase(), described);
        }
    }
    let responses = components::responses(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": "1", "description": ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": components::security_schemes(),
            "parameters": components::parameters(),
            "headers": components::headers(),
            "responses": responses,
            "pathItems": path_items,
            "schemas": schemas.into_named(),
        },
    })
}

/// A path of a table in the notation of OpenAPI.
pub(crate) fn written(path: &str) -> String {
    let path = match (path.strip_prefix("P/"), path.strip_prefix("O/")) {
        (Some(rest), _) => format!("/api/projects/:project/{rest}"),
        (_, Some(rest)) => format!("/api/organizations/:organization/{rest}"),
        _ => path.to_owned(),
    };
    let part = |part: &str| match part.strip_prefix(':') {
        Some(name) => format!("{{{name}}}"),
        None => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The parameters of a path of the table, in their order.
fn path_parameters(path: &str) -> Vec<Value> {
    let owner = match path.get(..2) {
        Some("P/") => Some("project"),
        Some("O/") => Some("organization"),
        _ => None,
    };
    let own = path.split('/').filter_map(|part| part.strip_prefix(':')).map(|name| {
        let other =
            PATH_PARAMETERS.iter().find(|(begin, own, _)| path.starts_with(begin) && *own == name);
        other.map_or(name, |(_, _, component)| component)
    });
    owner.into_iter().chain(own).map(|name| component("parameters", name)).collect()
}

/// The id and the tag of an operation.
fn names(endpoint: &Endpoint, words: &Words, shape: &Shape, method: &str) -> (String, String) {
    let path = endpoint.path;
    let (root, rest) = match (path.strip_prefix("P/"), path.strip_prefix("O/")) {
        (Some(rest), _) => ("projects", rest),
        (_, Some(rest)) => ("organizations", rest),
        _ => ("", path.trim_start_matches("/api/")),
    };
    let parts: Vec<&str> =
        rest.split('/').filter(|word| !word.is_empty() && !word.starts_with(':')).collect();
    let first = parts.first().copied().unwrap_or(root);
    let mut name = if parts.is_empty() { root.to_owned() } else { parts.join("_") };
    if root == "organizations" && OF_BOTH.contains(&first) {
        name = format!("organization_{name}");
    }
    if rest.ends_with("/:id/activity/") {
        name.push_str("_of_one");
    }
    let action = match method {
        "GET" if matches!(shape.paging, Paging::Offset | Paging::Whole) => "list",
        "GET" => "retrieve",
        "POST" => "create",
        "PUT" => "replace",
        "PATCH" => "update",
        _ => "delete",
    };
    let name = words.name.map_or(name, str::to_owned);
    (format!("{name}_{action}"), words.tag.unwrap_or(first).to_owned())
}

/// Generates schemas, and collects those that have names.
pub(super) struct Schemas {
    /// For input: a field that has a default may be absent.
    bodies: SchemaGenerator,
    /// For output: a field is always present, unless it is skipped.
    answers: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings
        };
        Self {
            bodies: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }

    /// The schema of a type that is sent.
    pub(super) fn sent(&mut self, schema: SchemaOf) -> Value {
        plain_of(schema(&mut self.bodies))
    }

    /// The schema of a type that is answered.
    pub(super) fn answered(&mut self, schema: SchemaOf) -> Value {
        plain_of(schema(&mut self.answers))
    }

    fn into_named(mut self) -> Map<String, Value> {
        let mut named = self.answers.take_definitions(true);
        named.extend(self.bodies.take_definitions(true));
        named.values_mut().for_each(plain);
        named
    }

    /// One method of an endpoint.
    fn described(
        &mut self,
        endpoint: &Endpoint,
        words: &Words,
        shape: &Shape,
        method: &str,
    ) -> Value {
        let (id, tag) = names(endpoint, words, shape, method);
        let body = shape.body.filter(|_| method != "GET");
        let body = body.map(|body| self.body(&body));
        let mut described = json!({
            "operationId": id,
            "summary": words.summary,
            "tags": [tag],
            "security": [{"personalKey": [endpoint.scope]}],
            "responses": self.responses(endpoint, words, shape, body.is_some()),
        });
        let Value::Object(fields) = &mut described else { return described };
        if !words.notes.is_empty() {
            fields.insert("description".to_owned(), json!(words.notes));
        }
        if words.is_deprecated {
            fields.insert("deprecated".to_owned(), json!(true));
        }
        let parameters = query_parameters(endpoint, shape, body.is_some());
        if !parameters.is_empty() {
            fields.insert("parameters".to_owned(), json!(parameters));
        }
        fields.extend(body.map(|body| ("requestBody".to_owned(), body)));
        described
    }

    fn body(&mut self, body: &Body) -> Value {
        let mut schema = self.sent(body.schema);
        if !body.required.is_empty() {
            schema = json!({"allOf": [schema, {"required": body.required}]});
        }
        let content = json!({"application/json": {"schema": schema}});
        match body.is_required || !body.required.is_empty() {
            true => json!({"content": content, "required": true}),
            false => json!({"content": content}),
        }
    }

    fn responses(
        &mut self,
        endpoint: &Endpoint,
        words: &Words,
        shape: &Shape,
        has_body: bool,
    ) -> Value {
        let of_bodies = RESPONSES_TO_BODIES.iter().filter(|_| has_body);
        // An endpoint that takes the format from the body ignores `Accept`.
        let is_sent = |(status, _): &&(&str, &str)| {
            *status != "406" || endpoint.renderings != Renderings::Own
        };
        let refusals = RESPONSES.iter().filter(is_sent).chain(of_bodies).chain(words.refusals);
        let mut responses: BTreeMap<&str, Value> =
            refusals.map(|(status, name)| (*status, component("responses", name))).collect();
        if let Some(success) = &shape.success {
            let mut response = self.response(success);
            if let (false, Value::Object(response)) = (shape.files.is_empty(), &mut response) {
                response.entry("content").or_insert_with(|| json!({}));
            }
            if let Some(Value::Object(content)) = response.get_mut("content") {
                let has_files = endpoint.renderings == Renderings::JsonOrFile;
                let of_rows = MEDIA_TYPES.iter().filter(|(name, _)| *name != "text/plain");
                let of_rows = of_rows.filter(|_| has_files);
                for (media_type, is_text) in shape.files.iter().chain(of_rows) {
                    let schema = match is_text {
                        true => json!({"type": "string"}),
                        false => json!({"type": "string", "format": "binary"}),
                    };
                    content.insert((*media_type).to_owned(), json!({"schema": schema}));
                }
            }
            if let (Some(says), Value::Object(response)) = (words.says, &mut response) {
                response.insert("description".to_owned(), json!(says));
            }
            responses.insert(success.status.as_str(), response);
        }
        for other in &shape.others {
            responses.insert(other.status.as_str(), self.response(other));
        }
        json!(responses)
    }

    /// A response, with JSON content if it has a schema.
    fn response(&mut self, Success { says, schema, .. }: &Success) -> Value {
        match schema {
            None => json!({"description": says}),
            Some(schema) => {
                let schema = self.answered(*schema);
                json!({"description": says, "content": {"application/json": {"schema": schema}}})
            }
        }
    }
}

/// The query parameters of one method. An endpoint that also has GET takes its filters with POST from the body; only
/// shared parameters are left in the query.
fn query_parameters(endpoint: &Endpoint, shape: &Shape, has_body: bool) -> Vec<Value> {
    let paging: &[&str] = match shape.paging {
        Paging::None | Paging::Whole => &[],
        Paging::Offset => &["limit", "offset"],
        Paging::Number => &["limit", "offset", "page"],
    };
    let is_filter_in_body = has_body && endpoint.methods().any(|method| method == "GET");
    let is_here = |own: &&Parameter| !is_filter_in_body || matches!(own.kind, Kind::Shared);
    let own = shape.query.iter().filter(is_here).map(parameter);
    let format = (endpoint.renderings == Renderings::JsonOrFile).then_some("format");
    let shared = paging.iter().copied().chain(format);
    own.chain(shared.map(|name| component("parameters", name))).collect()
}

fn add_format(name: &str, schema: &mut Value) {
    let is_text = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|name| name == "string"),
        other => other.is_some_and(|name| name == "string"),
    };
    let format = match name {
        "timestamp" => "date-time",
        "uuid" => "uuid",
        name if name.ends_with("_at") => "date-time",
        name if name.ends_with("_uuid") => "uuid",
        _ => return,
    };
    if let Value::Object(fields) = schema
        && is_text
    {
        fields.entry("format").or_insert_with(|| json!(format));
    }
}

fn plain_of(schema: Schema) -> Value {
    let mut schema = schema.to_value();
    plain(&mut schema);
    schema
}

/// Removes the integer widths from a schema, which mean nothing to clients, and adds the formats that follow from the
/// names of text fields: `..._at` is a time, `uuid` and `..._uuid` a UUID.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.iter_mut().for_each(|(name, schema)| add_format(name, schema));
            }
            let is_number = |format: &Value| {
                let format = format.as_str().unwrap_or_default();
                format.starts_with("int") || format.starts_with("uint") || format == "double"
            };
            if fields.get("format").is_some_and(is_number) {
                fields.remove("format");
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}
