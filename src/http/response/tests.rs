//! Tests of problems in their serialized form.

use std::io;

use hyper::Method;

use super::{Attr, Body, Problem, Response};
use crate::budget::Busy;
use crate::request::BodyError;
use weir_base::error::Kind;
use weir_event::key_kind::KeyKind;

fn sent(problem: Problem) -> (u16, String, Response) {
    let mut response = Response::from(problem);
    let Body::Full(body) = std::mem::replace(&mut response.body, Body::Full("".into())) else {
        panic!("a problem is never streamed")
    };
    (response.status.as_u16(), String::from_utf8(body.to_vec()).unwrap(), response)
}

/// Bodies as in the API specification (Errors) and as PostHog's exception handler writes them.
#[test]
fn problems_have_their_status_and_envelope() {
    let put = Method::PUT;
    for (problem, status, body) in [
        (
            Problem::invalid_payload("malformed request data"),
            400,
            r#"{"type":"validation_error","code":"invalid_payload","detail":"malformed request data","attr":null}"#,
        ),
        (
            Problem::invalid_project(),
            400,
            r#"{"type":"validation_error","code":"invalid_project","detail":"Invalid project id.","attr":"project_id"}"#,
        ),
        (
            Problem::invalid_personal_api_key(KeyKind::Other),
            401,
            r#"{"type":"authentication_error","code":"invalid_personal_api_key","detail":"Invalid Personal API key."}"#,
        ),
        (
            Problem::not_authenticated(),
            401,
            r#"{"type":"authentication_error","code":"not_authenticated","detail":"Authentication credentials were not provided.","attr":null}"#,
        ),
        (
            Problem::permission_denied("API key missing required scope 'person:write'"),
            403,
            r#"{"type":"authentication_error","code":"permission_denied","detail":"API key missing required scope 'person:write'","attr":null}"#,
        ),
        (
            Problem::not_found("Not found."),
            404,
            r#"{"type":"invalid_request","code":"not_found","detail":"Not found.","attr":null}"#,
        ),
        (
            Problem::method_not_allowed(&put, "GET, POST"),
            405,
            r#"{"type":"invalid_request","code":"method_not_allowed","detail":"Method \"PUT\" not allowed.","attr":null}"#,
        ),
        (
            Problem::parse_error(&"Expecting value: line 1 column 1 (char 0)"),
            400,
            r#"{"type":"invalid_request","code":"parse_error","detail":"JSON parse error - Expecting value: line 1 column 1 (char 0)","attr":null}"#,
        ),
        (
            Problem::not_acceptable(),
            406,
            r#"{"type":"invalid_request","code":"not_acceptable","detail":"Could not satisfy the request Accept header.","attr":null}"#,
        ),
        (
            Problem::unsupported_media_type("text/plain"),
            415,
            r#"{"type":"invalid_request","code":"unsupported_media_type","detail":"Unsupported media type \"text/plain\" in request.","attr":null}"#,
        ),
        (
            Problem::new(Kind::Invalid, "required", "This field is required.")
                .with_attr(Attr::Name("filters__groups".into())),
            400,
            r#"{"type":"validation_error","code":"required","detail":"This field is required.","attr":"filters__groups"}"#,
        ),
    ] {
        let (found_status, found_body, _) = sent(problem);
        assert_eq!((found_status, found_body.as_str()), (status, body));
    }
}

#[test]
fn headers_say_what_to_do_next() {
    for (problem, name, value) in [
        (Problem::not_authenticated(), "www-authenticate", "Bearer"),
        (Problem::authentication_failed("no"), "www-authenticate", "Bearer"),
        (Problem::invalid_personal_api_key(KeyKind::Other), "www-authenticate", "Bearer"),
        (Problem::method_not_allowed(&Method::PUT, "GET"), "allow", "GET"),
        (Problem::from(BodyError::Busy(Busy)), "retry-after", "1"),
        (Problem::new(Kind::Unavailable, "poisoned", "no"), "retry-after", "1"),
    ] {
        let (_, _, response) = sent(problem);
        assert_eq!(response.headers.get(name).unwrap(), value);
        assert_eq!(response.headers.get("content-type").unwrap(), "application/json");
    }
}

#[test]
fn failures_inside_are_logged_and_not_told() {
    let error = io::Error::other("disk 7 is on fire");
    for (kind, status, is_shown) in [
        (Kind::Internal, 500, false),
        (Kind::Unavailable, 503, false),
        (Kind::Overloaded, 503, false),
        (Kind::Timeout, 504, false),
        (Kind::Conflict, 409, true),
        (Kind::Invalid, 400, true),
        (Kind::TooLarge, 413, true),
    ] {
        let (found, body, response) = sent(Problem::of(kind, &error));
        assert_eq!(found, status, "{kind:?}");
        assert_eq!(body.contains("on fire"), is_shown, "{kind:?}");
        assert_eq!(response.cause.is_some(), !is_shown, "{kind:?}");
    }
}

#[test]
fn bodies_that_do_not_come_are_the_clients_fault() {
    let (status, body, _) = sent(Problem::from(BodyError::Slow));
    assert_eq!((status, body.contains("client stopped sending data")), (408, true));
    let (status, body, _) = sent(Problem::from(BodyError::TooLarge { limit_bytes: 7 }));
    assert_eq!((status, body.contains("exceeds 7 bytes")), (413, true));
}
