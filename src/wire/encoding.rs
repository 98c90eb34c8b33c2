//! Decodes a request body, as it was received, to the JSON text inside it.
//!
//! SDKs wrap JSON in gzip, lz-string, base64 and urlencoded forms. They announce that in three places,
//! sometimes wrongly. This file has the order in which the wrappings are removed; `encoding/` has one
//! file per wrapping. No JSON is parsed here.
//!
//! # Order
//!
//! 1. `?data=` if it is not empty, else the body.
//! 2. Base64, if the text looks like it and is not a form.
//! 3. A form: its `data` field, and its `compression` field as a hint.
//! 4. Compression. Magic numbers (gzip, zstd, lz4) take precedence over hints. Among the hints
//!    `?compression=` takes precedence over the form's, and that over `Content-Encoding`.
//! 5. Base64 once more, on old paths and for `data` fields.
//!
//! OpenTelemetry traces ([`Content::Otlp`]) are decompressed, and `wire/otlp.rs` converts them to JSON.
//!
//! Source: `PostHog`'s capture service, `payload/common.rs` and `payload/decompression.rs`. Weir accepts
//! everything that it accepts. It also accepts some bodies that it rejects, where the intent is plain: a
//! `compression=gzip` hint on JSON text, base64 that the hint announces on a new path, JSON sent
//! with the content type of a form (curl's default).
//!
//! # Why a replay can rely on it
//!
//! [`Decoder::decode`] is a pure function of body, [`Hints`] and limit: the state that a decoder keeps
//! changes its speed, never its result.

use bytes::Bytes;

pub mod error;
pub mod hints;

mod inflate;
mod lz64;
mod text;

#[cfg(test)]
mod tests;

use crate::encoding::error::DecodeError;
use crate::encoding::hints::{Coding, Content, Hints, PathKind};
use crate::encoding::inflate::Inflater;
use crate::encoding::text::PADDING_BYTES;
use crate::otlp;

/// Limit of compressed layers around one body. SDKs send one; a proxy that compresses again makes it two.
const LAYERS_MAX: usize = 4;

/// The text inside a body, not yet parsed and not known to be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The body was plain: the bytes as they came in, not copied.
    AsReceived(Bytes),
    /// A wrapping was removed. The capacity exceeds the length by at least [`PADDING_BYTES`].
    Unpacked(Vec<u8>),
}

impl Decoded {
    /// The text, as a buffer to parse in place, with at least [`PADDING_BYTES`] of spare capacity.
    /// Copies a plain body.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Unpacked(text) => text,
            Self::AsReceived(body) => {
                let mut text = Vec::with_capacity(body.len().saturating_add(PADDING_BYTES));
                text.extend_from_slice(&body);
                text
            }
        }
    }
}

impl AsRef<[u8]> for Decoded {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::AsReceived(body) => body,
            Self::Unpacked(text) => text,
        }
    }
}

/// Removes the wrappings of a body; reuses state that is expensive to create.
#[derive(Debug, Default)]
pub struct Decoder {
    inflater: Inflater,
}

impl Decoder {
    /// A decoder without state; that of gzip takes about 12 kB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the text inside `body`, at most `limit_bytes` of it.
    ///
    /// Memory: while inflating, one output buffer of at most `limit_bytes` plus a fixed overhead of
    /// the codec (16 MiB for brotli and lz4 in the worst case, 8 MiB for zstd, 64 kB for the rest).
    /// The limit holds for all compressed layers together. lz-string may take one and a half times
    /// the limit plus a dictionary of about twice the body.
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooLarge`] above the limit; for every other error the client has to send a different
    /// body.
    pub fn decode(
        &mut self,
        body: Bytes,
        hints: &Hints,
        limit_bytes: u64,
    ) -> Result<Decoded, DecodeError> {
        if let Content::Otlp(form) = hints.content {
            return self.decode_traces(form, body, hints, limit_bytes);
        }
        let from_query = hints.data.as_ref().filter(|data| !data.is_empty());
        let from_data_field = from_query.is_some();
        let payload = from_query.cloned().unwrap_or(body);
        if payload.is_empty() {
            return Err(DecodeError::Empty);
        }
        let payload = Decoded::AsReceived(payload);
        let payload = unwrap_outer_base64(payload, hints);
        let unwrapped = unwrap_form(payload, hints)?;
        let hint = hints.compression.or(unwrapped.compression).or(hints.content_encoding);
        let text = self.decompress(unwrapped.payload, hint, limit_bytes)?;
        let old = hints.path == PathKind::Legacy || from_data_field || unwrapped.from_data_field;
        let text = if old { self.unwrap_inner_base64(text, limit_bytes)? } else { text };
        let length_bytes = u64::try_from(text.as_ref().len()).unwrap_or(u64::MAX);
        match length_bytes {
            0 => Err(DecodeError::Empty),
            _ if length_bytes > limit_bytes => Err(DecodeError::TooLarge { limit_bytes }),
            _ => Ok(text),
        }
    }

    /// Converts OpenTelemetry traces to a batch of events; compression is the only wrapping they can have.
    fn decode_traces(
        &mut self,
        form: otlp::Form,
        body: Bytes,
        hints: &Hints,
        limit_bytes: u64,
    ) -> Result<Decoded, DecodeError> {
        // An empty message is valid protobuf: an export without spans.
        if body.is_empty() && form == otlp::Form::Json {
            return Err(DecodeError::Empty);
        }
        let plain_max_bytes = limit_bytes.min(otlp::BODY_PLAIN_MAX_BYTES);
        let body = Decoded::AsReceived(body);
        let plain = self.decompress(body, hints.content_encoding, plain_max_bytes)?;
        let mut batch = otlp::to_batch(form, plain.as_ref(), limit_bytes)?;
        batch.reserve(PADDING_BYTES);
        Ok(Decoded::Unpacked(batch))
    }

    /// Removes compressed layers until none is left. The hint applies once; magic numbers always.
    fn decompress(
        &mut self,
        mut payload: Decoded,
        mut hint: Option<Coding>,
        limit_bytes: u64,
    ) -> Result<Decoded, DecodeError> {
        let mut budget_bytes = limit_bytes;
        let too_large = |error| match error {
            DecodeError::TooLarge { .. } => DecodeError::TooLarge { limit_bytes },
            other => other,
        };
        for _ in 0..=LAYERS_MAX {
            let layer = payload.as_ref();
            let unpacked = if let Some(coding) = inflate::coding_of_magic(layer) {
                // As in PostHog: gzip bytes override any hint but base64.
                hint = hint.filter(|hint| *hint == Coding::Base64);
                self.inflater.undo(coding, layer, budget_bytes).map_err(too_large)?
            } else if let Some(coding) = hint.take() {
                match self.inflater.undo(coding, layer, budget_bytes).map_err(too_large) {
                    Ok(unpacked) => unpacked,
                    Err(error @ DecodeError::TooLarge { .. }) => return Err(error),
                    Err(_) if looks_like_json(layer) => return Ok(payload),
                    Err(error) => {
                        let unpacked = text::decode_likely_base64(layer).ok_or(error)?;
                        hint = (coding != Coding::Base64).then_some(coding);
                        unpacked
                    }
                }
            } else {
                return Ok(payload);
            };
            // Inner layers count as well: otherwise four layers could take four times the limit.
            let unpacked_bytes = u64::try_from(unpacked.len()).unwrap_or(u64::MAX);
            if inflate::coding_of_magic(&unpacked).is_some() {
                budget_bytes = budget_bytes.saturating_sub(unpacked_bytes);
            }
            payload = Decoded::Unpacked(unpacked);
        }
        Err(DecodeError::Malformed("too many layers of compression"))
    }

    /// Step 5. Base64 inside the payload, as the oldest SDKs send it.
    fn unwrap_inner_base64(
        &mut self,
        payload: Decoded,
        limit_bytes: u64,
    ) -> Result<Decoded, DecodeError> {
        let Some(text) = text::decode_likely_base64(payload.as_ref()) else {
            return Ok(payload);
        };
        if inflate::coding_of_magic(&text).is_some() {
            return self.decompress(Decoded::Unpacked(text), None, limit_bytes);
        }
        // As in PostHog: if the result is binary, the text was not base64.
        Ok(if std::str::from_utf8(&text).is_ok() { Decoded::Unpacked(text) } else { payload })
    }
}

/// Decodes one body with a decoder of its own; see [`Decoder::decode`].
///
/// # Errors
///
/// As [`Decoder::decode`].
pub fn decode(body: Bytes, hints: &Hints, limit_bytes: u64) -> Result<Decoded, DecodeError> {
    Decoder::new().decode(body, hints, limit_bytes)
}

/// Step 2. Returns the payload unchanged if it is not base64.
fn unwrap_outer_base64(payload: Decoded, hints: &Hints) -> Decoded {
    // lz-string's own text looks like base64 but is not. Deflate and brotli have no magic number, so
    // a short body could look like anything. These three are first decoded as announced.
    let opaque = |coding| matches!(coding, Coding::Lz64 | Coding::Deflate | Coding::Brotli);
    if hints.compression.or(hints.content_encoding).is_some_and(opaque) {
        return payload;
    }
    text::decode_likely_base64(payload.as_ref()).map_or(payload, Decoded::Unpacked)
}

/// The result of [`unwrap_form`].
struct Unwrapped {
    payload: Decoded,
    compression: Option<Coding>,
    from_data_field: bool,
}

/// Step 3. Takes the payload out of an urlencoded form, if the body is one.
fn unwrap_form(payload: Decoded, hints: &Hints) -> Result<Unwrapped, DecodeError> {
    let body = payload.as_ref();
    let self_evident = looks_like_json(body) || inflate::is_compressed(body);
    let is_form = !self_evident && (hints.content == Content::Form || text::begins_form(body));
    if !is_form {
        return Ok(Unwrapped { payload, compression: None, from_data_field: false });
    }
    let form = text::parse_form(body)?;
    Ok(Unwrapped {
        payload: Decoded::Unpacked(form.data),
        compression: form.compression,
        from_data_field: true,
    })
}

/// Whether the first character begins a JSON object or array; no other payload begins with it.
fn looks_like_json(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text).trim_ascii_start();
    matches!(text.first(), Some(b'{' | b'['))
}
