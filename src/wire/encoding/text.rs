//! Text wrappings: base64 and urlencoded forms. Decoding them never grows the text, so none has a limit.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};

use crate::encoding::error::DecodeError;
use crate::encoding::hints::Coding;

/// Spare capacity after the text of every [`Decoded::Unpacked`](super::Decoded::Unpacked), in bytes: simd-json's `INPUT_PADDING`,
/// so that it need not copy the text.
pub(super) const PADDING_BYTES: usize = 64;

/// Bytes that are examined to guess the kind of a text. Source: `MAX_CHARS_TO_CHECK` in `PostHog`'s capture.
const SNIFF_BYTES: usize = 128;

/// For announced base64, in either alphabet: padding is optional.
const LENIENT: base64::engine::GeneralPurposeConfig = base64::engine::GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);

/// Decodes `text` if it looks like standard base64 and is valid; PostHog's "optimistic" decoding.
pub(super) fn decode_likely_base64(text: &[u8]) -> Option<Vec<u8>> {
    // A trailing line break comes from shell pipelines.
    let text = text.trim_ascii_end();
    let likely = is_likely_base64(text, |byte| matches!(byte, b'+' | b'/' | b'='));
    if likely { decode_with(&STANDARD, text) } else { None }
}

/// Decodes base64 that a hint announced.
///
/// # Errors
///
/// [`DecodeError::Malformed`] if it is not base64.
pub(super) fn decode_announced_base64(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let url_safe = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
    let alphabet = if url_safe { &base64::alphabet::URL_SAFE } else { &base64::alphabet::STANDARD };
    decode_with(&GeneralPurpose::new(alphabet, LENIENT), text.trim_ascii())
        .ok_or(DecodeError::Malformed("attempting to decode base64"))
}

fn decode_with(engine: &GeneralPurpose, text: &[u8]) -> Option<Vec<u8>> {
    let capacity = base64::decoded_len_estimate(text.len()).saturating_add(PADDING_BYTES);
    let mut bytes = Vec::with_capacity(capacity);
    engine.decode_vec(text, &mut bytes).ok()?;
    bytes.reserve(PADDING_BYTES);
    Some(bytes)
}

fn is_likely_base64(text: &[u8], is_sign: impl Fn(u8) -> bool) -> bool {
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.iter().take(SNIFF_BYTES).all(|byte| byte.is_ascii_alphanumeric() || is_sign(*byte))
}

/// Restores the plus signs that form or query parsing turned into spaces, if the rest looks like base64.
pub(super) fn restore_plus(mut text: Vec<u8>) -> Vec<u8> {
    if is_likely_base64(&text, |byte| matches!(byte, b'+' | b'/' | b'=' | b' ')) {
        text.iter_mut().filter(|byte| **byte == b' ').for_each(|byte| *byte = b'+');
    }
    text
}

/// The relevant fields of a form.
pub(super) struct Form {
    /// `data`, decoded, with [`PADDING_BYTES`] of spare capacity.
    pub(super) data: Vec<u8>,
    /// `compression`, if it is a known name.
    pub(super) compression: Option<Coding>,
}

/// Whether `body` is a form regardless of its content type: no other payload begins like this.
pub(super) fn begins_form(body: &[u8]) -> bool {
    body.starts_with(b"data=")
}

/// Reads an urlencoded form. Unknown fields (`ver`, `ip`, `_`) are ignored.
///
/// # Errors
///
/// [`DecodeError::Malformed`] if `body` is not a form or has no `data`.
pub(super) fn parse_form(body: &[u8]) -> Result<Form, DecodeError> {
    const FIELDS: [&[u8]; 5] = [b"data=", b"ver=", b"_=", b"ip=", b"compression="];
    let sniffed = body.get(..SNIFF_BYTES).unwrap_or(body);
    let mut fields = sniffed.split(|byte| *byte == b'&');
    if !fields.any(|field| FIELDS.iter().any(|known| field.starts_with(known))) {
        return Err(DecodeError::Malformed("expected form data in POST request payload"));
    }
    let mut data = None;
    let mut compression = None;
    for (name, value) in form_urlencoded::parse(body) {
        match name.as_ref() {
            "data" if data.is_none() => data = Some(value),
            "compression" => compression = compression.or(Coding::from_name(value.as_bytes())),
            _ => {}
        }
    }
    let data = data.map(Cow::into_owned).unwrap_or_default().into_bytes();
    if data.is_empty() {
        return Err(DecodeError::Malformed("invalid urlencoded form data"));
    }
    let mut data = restore_plus(data);
    data.reserve(PADDING_BYTES);
    Ok(Form { data, compression })
}
