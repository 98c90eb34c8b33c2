//! Capture v1 as SDKs speak it: what the headers of a request say, how an answer names the fate of
//! each event, and how a refusal names its reason. The body is read where v0's are, from the tape.
//!
//! Unlike v0 the token is in a header, the encoding is announced and believed, and every event has
//! an answer of its own. Source: `rust/capture/src/v1` of PostHog.

use chrono::DateTime;
use uuid::Uuid;

/// Largest body as sent (PostHog's limit).
pub const BODY_MAX_BYTES: u64 = 10 << 20;

/// Largest body once decompressed (PostHog's limit).
pub const BODY_PLAIN_MAX_BYTES: u64 = 50 << 20;

/// The header that an answer repeats.
pub const REQUEST_ID: &str = "posthog-request-id";

const SDK_INFO: &str = "posthog-sdk-info";
const ATTEMPT: &str = "posthog-attempt";
const REQUEST_TIMESTAMP: &str = "posthog-request-timestamp";

/// Headers that must be there, besides `authorization`, in the words of the refusal.
const REQUIRED: [&str; 6] = [
    "PostHog-Sdk-Info",
    "PostHog-Attempt",
    "PostHog-Request-Id",
    "PostHog-Request-Timestamp",
    "content-type",
    "user-agent",
];

/// Codings that `Content-Encoding` may name.
const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// Longest `PostHog-Sdk-Info` that is written into events: it goes into each of a batch.
const SDK_INFO_MAX_BYTES: usize = 200;

/// What the headers of a request say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The project's token.
    pub token: String,
    /// The SDK, if it says so in a form that can be understood.
    pub sdk: Option<Sdk>,
    /// When the client says it sent the request, microseconds since 1970.
    pub sent_at_micros: i64,
}

/// Which SDK sent a request: `PostHog-Sdk-Info`, split at its last slash.
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
    /// Reads the headers; `header` gives the value of one, by its name in lower case.
    ///
    /// # Errors
    ///
    /// The first of: no authorization; headers that miss, all of them; a value that is not what
    /// it should be, in the order of the checks below.
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
            return Err(Refusal::InvalidToken);
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

/// The token in an `Authorization` header with the Bearer scheme, in any case of letters (RFC 6750).
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

/// Whether `token` can be a project's; a personal key cannot. Which project's is for the caller.
fn is_token(token: &str) -> bool {
    !token.is_empty() && !token.starts_with("phx_")
}

/// Why a request is refused as a whole; nothing of it is stored. The text is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No `Authorization`.
    #[error("request is missing the Authorization header")]
    MissingAuthorization,
    /// Other headers miss: these.
    #[error("request is missing required headers: {0}")]
    MissingHeaders(String),
    /// A header says something else than it should.
    #[error("invalid header value: {0}")]
    InvalidHeader(String),
    /// The token cannot be, or is not, one of a project.
    #[error("The provided API token is not valid.")]
    InvalidToken,
    /// The body is announced as something else than JSON.
    #[error("unsupported content type: {0}")]
    UnsupportedContentType(String),
    /// The body is announced as compressed in a way that is not understood.
    #[error("unsupported content encoding: {0}")]
    UnsupportedEncoding(String),
    /// There is no body.
    #[error("request body is empty")]
    EmptyBody,
    /// The body is not compressed as announced.
    #[error("failed to decode request: {0}")]
    Undecodable(String),
    /// The body is no JSON, or JSON of another shape.
    #[error("failed to parse request: {0}")]
    Unparsable(String),
    /// There is no event.
    #[error("request batch is empty")]
    EmptyBatch,
    /// What stands around the events is wrong.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// An event has no uuid.
    #[error("event submitted without a uuid")]
    MissingEventUuid,
    /// An event has a uuid that is none.
    #[error("event submitted with an invalid uuid")]
    InvalidEventUuid,
    /// Two events have the same uuid.
    #[error("duplicate event uuid: {0}")]
    DuplicateEventUuid(Uuid),
    /// Too many bytes.
    #[error("payload too large: {0}")]
    TooLarge(String),
    /// The client stopped sending.
    #[error("the client stopped sending data")]
    BodyReadTimeout,
    /// A bug, or a store that fails.
    #[error("Internal Server Error")]
    Internal,
    /// Overload, or a full disk.
    #[error("Service Unavailable")]
    Unavailable,
}

impl Refusal {
    /// The name of the reason, which SDKs compare.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::MissingAuthorization | Self::InvalidToken => "invalid_api_token",
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
            Self::Unavailable => "service_unavailable",
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::BodyReadTimeout | Self::Internal | Self::Unavailable)
    }
}

/// What became of one event. There is no `retry`: a request is durable as a whole, or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is stored, perhaps with a remark.
    Ok(Option<&'static str>),
    /// It is not, and never will be.
    Drop(&'static str),
}

/// The body of an answer: the verdicts by uuid, in the order given.
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
