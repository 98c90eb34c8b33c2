//! Names of events, persons (distinct ids) and groups as text that can be stored: other types are
//! converted, long names are cut, NUL is replaced.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::capture::Raw;
use crate::tape::{Cursor, Value};
use weir_event::json;

/// Limit of an event name and of a distinct id, in characters; longer ones are cut (PostHog's limit).
const NAME_MAX_CHARS: usize = 200;

/// Limit of a group key, in characters; a longer one is no group (PostHog's limit).
const GROUP_KEY_MAX_CHARS: usize = 400;

/// A name, and whether it had to be cut to [`NAME_MAX_CHARS`].
#[derive(Debug)]
pub(super) struct Cut<T> {
    pub(super) name: T,
    pub(super) is_cut: bool,
}

/// The name of an event.
pub(super) fn event_name(given: &str) -> Cut<Cow<'_, str>> {
    match given.contains('\0') {
        false => {
            let name = cut(given);
            Cut { name: Cow::Borrowed(name), is_cut: name.len() < given.len() }
        }
        true => {
            let clean = given.replace('\0', "\u{fffd}");
            let name = cut(&clean);
            Cut { name: Cow::Owned(name.to_owned()), is_cut: name.len() < clean.len() }
        }
    }
}

/// A distinct id as text: strings as they are, other JSON values as compact JSON, cut to
/// [`NAME_MAX_CHARS`], NUL replaced.
#[derive(Debug)]
pub(super) enum DistinctId<'a> {
    Borrowed(&'a str),
    Owned(String),
}

impl<'a> DistinctId<'a> {
    /// `None` if it is null or blank.
    pub(super) fn read(raw: &Raw<'a>, cursor: Cursor<'a>) -> Option<Cut<Self>> {
        let whole = Self::uncut(raw, cursor)?;
        let len = whole.as_str().len();
        let name = match whole {
            Self::Borrowed(text) => Self::Borrowed(cut(text)),
            Self::Owned(text) => Self::Owned(cut(&text).to_owned()),
        };
        let is_cut = name.as_str().len() < len;
        Some(Cut { name, is_cut })
    }

    /// The key of a group: as a distinct id, but never cut, because two groups might become one.
    pub(super) fn group_key(raw: &Raw<'a>, cursor: Cursor<'a>) -> GroupKey<'a> {
        match Self::uncut(raw, cursor) {
            None => GroupKey::None,
            Some(key) if key.as_str().chars().nth(GROUP_KEY_MAX_CHARS).is_some() => {
                GroupKey::TooLong
            }
            Some(key) => GroupKey::Some(key),
        }
    }

    fn uncut(raw: &Raw<'a>, cursor: Cursor<'a>) -> Option<Self> {
        let id = match raw.value {
            Value::Null => return None,
            Value::String(text) => Self::Borrowed(text),
            _ => {
                let value: Json = json::read(cursor.body().get(raw.range.clone())?).ok()?;
                Self::Owned(value.to_string())
            }
        };
        if id.as_str().trim().is_empty() {
            return None;
        }
        if id.as_str().contains('\0') {
            return Some(Self::Owned(id.as_str().replace('\0', "\u{fffd}")));
        }
        Some(id)
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

/// The result of reading a group key.
#[derive(Debug)]
pub(super) enum GroupKey<'a> {
    /// It is null or blank.
    None,
    /// It is longer than [`GROUP_KEY_MAX_CHARS`].
    TooLong,
    /// It identifies a group.
    Some(DistinctId<'a>),
}

pub(super) fn cut(text: &str) -> &str {
    if text.len() <= NAME_MAX_CHARS {
        return text;
    }
    match text.char_indices().nth(NAME_MAX_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}
