//! Encodings of bytes as texts, and their decoding: `hex`, base 64, and digests.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, StringViewBuilder,
};
use arrow::datatypes::DataType;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::error::{DataFusionError, Result};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::functions::own::{Own, Takes, argument, internal, of_text, text, texts};

const BYTES: &[Takes] = &[Takes::Bytes];
const TEXT: &[Takes] = &[Takes::Text];

/// All functions of this file.
pub(super) const ALL: &[Own] = &[
    Own::new("hex", BYTES, text, |sent| shown(sent, &|bytes| hex::encode_upper(bytes))),
    Own::new("unhex", TEXT, text, |sent| back(sent, &of_hex, "hexadecimal digits")),
    Own::new("base64Encode", BYTES, text, |sent| shown(sent, &|bytes| STANDARD.encode(bytes))),
    Own::new("base64Decode", TEXT, text, |sent| back(sent, &of_base64, "in base 64")),
    Own::new("tryBase64Decode", TEXT, text, |sent| {
        Ok(of_text(texts(sent, 0)?, |text| Some(of_base64(text).unwrap_or_default())))
    }),
    Own::new("SHA224", BYTES, digests, digest::<Sha224>),
    Own::new("SHA256", BYTES, digests, digest::<Sha256>),
    Own::new("SHA384", BYTES, digests, digest::<Sha384>),
    Own::new("SHA512", BYTES, digests, digest::<Sha512>),
];

fn digests(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::BinaryView)
}

fn bytes(sent: &[ArrayRef]) -> Result<&BinaryViewArray> {
    argument(sent, 0)?.as_binary_view_opt().ok_or_else(|| internal("bytes"))
}

/// Encodes each value as text.
fn shown(sent: &[ArrayRef], of: &dyn Fn(&[u8]) -> String) -> Result<ArrayRef> {
    let all = bytes(sent)?;
    let mut given = StringViewBuilder::with_capacity(all.len());
    for own in all {
        given.append_option(own.map(of));
    }
    Ok(Arc::new(given.finish()))
}

fn of_hex(text: &str) -> Option<String> {
    // With an odd number of digits, the first digit is the low one of its byte.
    let padded = if text.len() % 2 == 1 { format!("0{text}") } else { text.to_owned() };
    String::from_utf8(hex::decode(padded).ok()?).ok()
}

fn of_base64(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

/// Decodes each text.
fn back(sent: &[ArrayRef], of: &dyn Fn(&str) -> Option<String>, wanted: &str) -> Result<ArrayRef> {
    let all = texts(sent, 0)?;
    let mut given = StringViewBuilder::with_capacity(all.len());
    for own in all {
        let text = own.map(|own| {
            let why = || DataFusionError::Execution(format!("what is to be {wanted} is no text"));
            of(own).ok_or_else(why)
        });
        given.append_option(text.transpose()?);
    }
    Ok(Arc::new(given.finish()))
}

fn digest<D: Digest>(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let all = bytes(sent)?;
    let mut given = BinaryViewBuilder::with_capacity(all.len());
    for own in all {
        given.append_option(own.map(D::digest));
    }
    Ok(Arc::new(given.finish()))
}
