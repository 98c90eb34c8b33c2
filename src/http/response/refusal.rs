//! Error envelope of capture v1: `{"error":"empty_batch","error_description":"request batch is
//! empty", "error_uri":""}`. Maps each tag to its status, and to a `Retry-After` where there is
//! one.

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use serde::Serialize;

use crate::response::{RETRY_AFTER_SECONDS, Response};
use weir_wire::capture_v1::Refusal;

#[derive(Serialize)]
struct Envelope<'a> {
    error: &'a str,
    error_description: &'a str,
    /// Address of a page about the error. There is none; SDKs only require a text.
    error_uri: &'a str,
}

fn status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::MissingAuthorization | Refusal::InvalidToken(_) => StatusCode::UNAUTHORIZED,
        Refusal::MissingHeaders(_)
        | Refusal::InvalidHeader(_)
        | Refusal::EmptyBody
        | Refusal::Undecodable(_)
        | Refusal::Unparsable(_)
        | Refusal::EmptyBatch
        | Refusal::InvalidBatch(_)
        | Refusal::MissingEventUuid
        | Refusal::InvalidEventUuid
        | Refusal::DuplicateEventUuid(_) => StatusCode::BAD_REQUEST,
        Refusal::UnsupportedContentType(_) | Refusal::UnsupportedEncoding(_) => {
            StatusCode::UNSUPPORTED_MEDIA_TYPE
        }
        Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::BodyReadTimeout => StatusCode::REQUEST_TIMEOUT,
        Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let envelope = Envelope {
            error: refusal.tag(),
            error_description: &refusal.to_string(),
            error_uri: "",
        };
        let mut response = Self::json(status(&refusal), &envelope);
        response.code = refusal.tag();
        match refusal.is_retryable() {
            true => response.with_header(RETRY_AFTER, RETRY_AFTER_SECONDS),
            false => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::response::{Body, Response};
    use weir_event::key_kind::KeyKind;
    use weir_wire::capture_v1::Refusal;

    #[test]
    fn refusals_have_a_status_and_say_when_to_come_again() {
        let text = String::new;
        for (refusal, status, tag, retry_after) in [
            (Refusal::MissingAuthorization, 401, "invalid_api_token", None),
            (Refusal::InvalidToken(KeyKind::Other), 401, "invalid_api_token", None),
            (Refusal::MissingHeaders(text()), 400, "missing_required_headers", None),
            (Refusal::InvalidHeader(text()), 400, "invalid_header_value", None),
            (Refusal::UnsupportedContentType(text()), 415, "unsupported_content_type", None),
            (Refusal::UnsupportedEncoding(text()), 415, "unsupported_encoding", None),
            (Refusal::EmptyBody, 400, "empty_body", None),
            (Refusal::Undecodable(text()), 400, "request_decoding_error", None),
            (Refusal::Unparsable(text()), 400, "request_parsing_error", None),
            (Refusal::EmptyBatch, 400, "empty_batch", None),
            (Refusal::InvalidBatch(text()), 400, "invalid_batch", None),
            (Refusal::MissingEventUuid, 400, "missing_event_uuid", None),
            (Refusal::InvalidEventUuid, 400, "invalid_event_uuid", None),
            (Refusal::DuplicateEventUuid(uuid::Uuid::nil()), 400, "duplicate_event_uuid", None),
            (Refusal::TooLarge(text()), 413, "payload_too_large", None),
            (Refusal::BodyReadTimeout, 408, "body_read_timeout", Some("1")),
            (Refusal::Internal, 500, "internal_error", Some("1")),
            (Refusal::Unavailable("the disk is full"), 503, "service_unavailable", Some("1")),
        ] {
            let description = refusal.to_string();
            let response = Response::from(refusal);
            let Body::Full(body) = &response.body else { panic!("{tag} is not streamed") };
            let expected = serde_json::json!({
                "error": tag, "error_description": description, "error_uri": "",
            });
            assert_eq!(serde_json::from_slice::<serde_json::Value>(body).unwrap(), expected);
            assert_eq!(response.status.as_u16(), status, "{tag}");
            let header = response.headers.get("retry-after").map(|value| value.to_str().unwrap());
            assert_eq!(header, retry_after, "{tag}");
        }
    }
}
