//! `/api/schema`: the OpenAPI description of all endpoints, `schemas/openapi.json`, under PostHog's
//! path. Public, as in PostHog: it contains no stored data.

use hyper::StatusCode;

use crate::conditional;
use crate::conditional::Tag;
use crate::request::Request;
use crate::response::Response;

/// The description; `http/tests/described.rs` compares it with the tables of endpoints.
pub const OPENAPI: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/openapi.json"));

/// The description changes only with the version of the program.
const CACHE: &str = "public, max-age=300";

/// Answers `/api/schema`.
pub fn description(request: &Request) -> Response {
    let tag = Tag::of(OPENAPI.as_bytes());
    let response = || Response::json_bytes(StatusCode::OK, OPENAPI.as_bytes());
    conditional::respond(&request.headers, &tag, CACHE, response)
}
