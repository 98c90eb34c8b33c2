//! Values of other crates written as their texts, where these have no form of their own: `#[serde(with = "as_text")]`.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes the text of a value.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Reads the value that has a text.
///
/// # Errors
///
/// No value has this text.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
