//! Capture v1 wire format: the headers of a request, the result of each event in a response, and the
//! error tags. The body is parsed where v0's are, from the tape.
//!
//! Unlike v0 the token is in a header, the announced encoding is authoritative, and every event has a
//! result of its own. Source: `rust/capture/src/v1` of PostHog.

use chrono::DateTime;
use uuid::Uuid;

use weir_event::key_kind::KeyKind;

/// Largest body as sent (PostHog's limit).
pub const BODY_MAX_BYTES: u64 = 10 << 20;

/// Largest body once decompressed (PostHog's limit).
pub const BODY_PLAIN_MAX_BYTES: u64 = 50 << 20;

/// The request id header, which a response repeats.
pub const REQUEST_ID: &str = "posthog-request-id";

const SDK_INFO: &str = "posthog-sdk-info";
const ATTEMPT: &str = "posthog-attempt";
const REQUEST_TIMESTAMP: &str = "posthog-request-timestamp";

/// Required headers besides `authorization`, as the error message lists them.
const REQUIRED: [&str; 6] = [
    "PostHog-Sdk-Info",
    "PostHog-Attempt",
    "PostHog-Request-Id",
    "PostHog-Request-Timestamp",
    "content-type",
    "user-agent",
];

/// Codings that `Content-Encoding` may contain.
const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// Longest `PostHog-Sdk-Info` that is stored: it goes into each event of a batch.
const SDK_INFO_MAX_BYTES: usize = 200;

/// The parsed headers of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The project's token.
    pub token: String,
    /// The SDK, if its header can be parsed.
    pub sdk: Option<Sdk>,
    /// When the client sent the request, by its clock; microseconds since 1970.
    pub sent_at_micros: i64,
}

/// The SDK that sent a request: `PostHog-Sdk-Info`, split at its last slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sdk {
    /// Becomes `$lib`.
    pub name: String,
    /// Becomes `$lib_version`.
    pub version: String,
}

impl Sdk {
    fn parse(info: &str) -> Option<Self> {
        if info.len() > SDK_INFO_MAX_BYTES {
            return None;
        }
        let (name, version) = info.rsplit_once('/')?;
        let (name, version) = (name.trim(), version.trim());
        let is_whole = !name.is_empty() && !version.is_empty();
        is_whole.then(|| Self { name: name.to_owned(), version: version.to_owned() })
    }
}

impl Head {
    /// Reads the headers; `header` returns the value of one, by its name in lower case.
    ///
    /// # Errors
    ///
    /// The first of: no authorization; missing headers, all of them; an invalid value, in the order of
    /// the checks below.
    pub fn read<'h>(header: impl Fn(&str) -> Option<&'h [u8]>) -> Result<Self, Refusal> {
        let authorization = header("authorization").ok_or(Refusal::MissingAuthorization)?;
        let is_missing = |name: &&str| header(&name.to_ascii_lowercase()).is_none();
        let missing: Vec<&str> = REQUIRED.into_iter().filter(is_missing).collect();
        if !missing.is_empty() {
            return Err(Refusal::MissingHeaders(missing.join(", ")));
        }
        let value = |name: &str| text(header(name).unwrap_or_default(), name);

        let token = bearer(text(authorization, "authorization")?)
            .ok_or_else(|| invalid("Authorization must use Bearer scheme"))?;
        if !is_token(token) {
            return Err(Refusal::InvalidToken(KeyKind::of(token)));
        }
        let content_type = value("content-type")?;
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::UnsupportedContentType(content_type.to_owned()));
        }
        if let Some(coding) = header("content-encoding") {
            let coding = text(coding, "content-encoding")?;
            if !CODINGS.iter().any(|known| known.eq_ignore_ascii_case(coding)) {
                return Err(Refusal::UnsupportedEncoding(coding.to_owned()));
            }
        }
        if Uuid::try_parse(value(REQUEST_ID)?).is_err() {
            return Err(invalid("PostHog-Request-Id is not a valid UUID"));
        }
        if !value(ATTEMPT)?.parse::<u32>().is_ok_and(|attempt| attempt >= 1) {
            return Err(invalid("PostHog-Attempt must be a positive integer"));
        }
        let sent_at = DateTime::parse_from_rfc3339(value(REQUEST_TIMESTAMP)?)
            .map_err(|_| invalid("PostHog-Request-Timestamp is not valid RFC 3339"))?;
        value("user-agent")?;
        Ok(Self {
            token: token.to_owned(),
            sdk: Sdk::parse(value(SDK_INFO)?),
            sent_at_micros: sent_at.timestamp_micros(),
        })
    }
}

/// The token in an `Authorization` header with the Bearer scheme, in any letter case (RFC 6750).
pub fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn text<'h>(value: &'h [u8], name: &str) -> Result<&'h str, Refusal> {
    let is_visible = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| is_visible).ok_or_else(|| {
        Refusal::InvalidHeader(format!("{name} contains non-visible ASCII characters"))
    })
}

fn invalid(what: &str) -> Refusal {
    Refusal::InvalidHeader(what.to_owned())
}

/// Whether `token` can be a project's token; a personal key cannot. The caller looks up the project.
fn is_token(token: &str) -> bool {
    !matches!(KeyKind::of(token), KeyKind::Missing | KeyKind::Personal)
}

/// Why a request is rejected as a whole; nothing of it is stored. The text is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No `Authorization`.
    #[error("request is missing the Authorization header")]
    MissingAuthorization,
    /// These other headers are missing.
    #[error("request is missing required headers: {0}")]
    MissingHeaders(String),
    /// A header has an invalid value.
    #[error("invalid header value: {0}")]
    InvalidHeader(String),
    /// The token is malformed, or no project has it.
    #[error("The provided API token is not valid. {}", .0.is_no_project_token())]
    InvalidToken(KeyKind),
    /// The content type is not JSON.
    #[error("unsupported content type: {0}")]
    UnsupportedContentType(String),
    /// The content encoding is not supported.
    #[error("unsupported content encoding: {0}")]
    UnsupportedEncoding(String),
    /// The body is empty.
    #[error("request body is empty")]
    EmptyBody,
    /// The body is not compressed as announced.
    #[error("failed to decode request: {0}")]
    Undecodable(String),
    /// The body is not valid JSON, or has the wrong shape.
    #[error("failed to parse request: {0}")]
    Unparsable(String),
    /// The batch is empty.
    #[error("request batch is empty")]
    EmptyBatch,
    /// The envelope of the events is invalid.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// An event has no uuid.
    #[error("event submitted without a uuid")]
    MissingEventUuid,
    /// The uuid of an event is not valid.
    #[error("event submitted with an invalid uuid")]
    InvalidEventUuid,
    /// Two events have the same uuid.
    #[error("duplicate event uuid: {0}")]
    DuplicateEventUuid(Uuid),
    /// The body is too large.
    #[error("payload too large: {0}")]
    TooLarge(String),
    /// The client stopped sending before the body was complete.
    #[error("the client stopped sending data")]
    BodyReadTimeout,
    /// A bug, or a store that fails.
    #[error("Internal Server Error")]
    Internal,
    /// Overload, or a full disk.
    #[error("Service Unavailable: {0}")]
    Unavailable(&'static str),
}

impl Refusal {
    /// The tag of the error, which SDKs compare.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::MissingAuthorization | Self::InvalidToken(_) => "invalid_api_token",
            Self::MissingHeaders(_) => "missing_required_headers",
            Self::InvalidHeader(_) => "invalid_header_value",
            Self::UnsupportedContentType(_) => "unsupported_content_type",
            Self::UnsupportedEncoding(_) => "unsupported_encoding",
            Self::EmptyBody => "empty_body",
            Self::Undecodable(_) => "request_decoding_error",
            Self::Unparsable(_) => "request_parsing_error",
            Self::EmptyBatch => "empty_batch",
            Self::InvalidBatch(_) => "invalid_batch",
            Self::MissingEventUuid => "missing_event_uuid",
            Self::InvalidEventUuid => "invalid_event_uuid",
            Self::DuplicateEventUuid(_) => "duplicate_event_uuid",
            Self::TooLarge(_) => "payload_too_large",
            Self::BodyReadTimeout => "body_read_timeout",
            Self::Internal => "internal_error",
            Self::Unavailable(_) => "service_unavailable",
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::BodyReadTimeout | Self::Internal | Self::Unavailable(_))
    }
}

/// The result of one event. There is no `retry`: a request is durable as a whole, or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event is stored, with an optional remark.
    Ok(Option<&'static str>),
    /// The event is dropped for good.
    Drop(&'static str),
}

/// The body of a response: the results by uuid, in the given order.
pub fn results(verdicts: impl Iterator<Item = (Uuid, Verdict)>) -> String {
    let mut body = r#"{"results":{"#.to_owned();
    for (index, (uuid, verdict)) in verdicts.enumerate() {
        if index > 0 {
            body.push(',');
        }
        let (result, details) = match verdict {
            Verdict::Ok(remark) => ("ok", remark),
            Verdict::Drop(reason) => ("drop", Some(reason)),
        };
        let mut id = Uuid::encode_buffer();
        // Neither ids nor tags have characters that JSON escapes.
        for part in ["\"", uuid.hyphenated().encode_lower(&mut id), r#"":{"result":""#, result] {
            body.push_str(part);
        }
        if let Some(details) = details {
            body.push_str(r#"","details":""#);
            body.push_str(details);
        }
        body.push_str("\"}");
    }
    body.push_str("}}");
    body
}

#[cfg(test)]
mod tests;
