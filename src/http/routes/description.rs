//! `/api/schema`: the description of all endpoints, `schemas/openapi.json`, under PostHog's path. It is
//! for everyone, as there: it tells nothing of what is stored.

use hyper::StatusCode;

use crate::http::conditional;
use crate::http::conditional::Tag;
use crate::http::request::Request;
use crate::http::response::Response;

/// The description; what it says is compared with the tables of endpoints by `http/tests/described.rs`.
pub const OPENAPI: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/openapi.json"));

/// It changes with the program only.
const CACHE: &str = "public, max-age=300";

/// Answers `/api/schema`.
pub fn description(request: &Request) -> Response {
    let tag = Tag::of(OPENAPI.as_bytes());
    let response = || Response::json_bytes(StatusCode::OK, OPENAPI.as_bytes());
    conditional::respond(&request.headers, &tag, CACHE, response)
}
