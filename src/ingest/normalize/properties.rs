//! The stored `properties`: the object as it was written, or what must be written instead.
//!
//! Most events of browsers are written anew, because what their properties say of the person stands
//! in `$set` and `$set_once` of the stored event. What stays is copied in one piece from member to
//! member that goes; what comes is copied from where it stands in the body.

use std::ops::Range;

use serde_json::Map;
use serde_json::Value as Json;

use crate::event::columns::Columns;
use crate::event::schema::column;
use crate::ingest::capture::Fields;
use crate::ingest::capture::Meaning;
use crate::ingest::capture::Raw;
use crate::ingest::normalize::Accepted;
use crate::ingest::normalize::Batch;
use crate::ingest::normalize::groups::GroupKeys;
use crate::ingest::normalize::lifts::Lifts;
use crate::ingest::prepare::PrepareError;
use crate::ingest::tape::Cursor;
use crate::ingest::tape::Value;

/// One property in the body: from the key's quote to the value's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) meaning: Option<Meaning>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl<'a> Batch<'a, '_> {
    /// Sets the properties column: the object as it was written, unless something must come out
    /// of it or go into it.
    pub(super) fn properties(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        (event, groups): (&Accepted<'a, '_>, GroupKeys),
    ) -> Result<(), PrepareError> {
        let rewrite = Rewrite::new(cursor.body(), fields, &self.lifts, (event, groups));
        let view = match &fields.properties {
            Some(range) if !rewrite.is_needed(&self.members) => {
                let text = cursor.body().get(range.clone()).unwrap_or_default();
                let offset = u32::try_from(range.start).map_err(|_| PrepareError::TooLarge)?;
                Columns::body_view(text, offset)
            }
            _ => {
                let members = &self.members;
                let view = self.columns.write_side(|out| rewrite.write(out, members));
                view.ok_or(PrepareError::TooLarge)?
            }
        };
        self.columns.set_text(column::PROPERTIES, view);
        Ok(())
    }
}

/// How the stored properties differ from those that were sent.
struct Rewrite<'w, 'a> {
    body: &'a [u8],
    lifts: &'w Lifts<'a>,
    personless: bool,
    /// Whether what would change a person is taken out.
    says_nothing: bool,
    /// Whether the elements have a column.
    has_chain: bool,
    /// Where the value of `$os` stands, if it is added.
    os: Option<Range<usize>>,
    groups: GroupKeys,
    /// `$set`, `$set_once` and `$unset`, if they are written anew.
    parts: [Option<Part<'w, 'a>>; 3],
}

impl<'w, 'a> Rewrite<'w, 'a> {
    fn new(
        body: &'a [u8],
        fields: &'w Fields<'a>,
        lifts: &'w Lifts<'a>,
        (event, groups): (&Accepted<'a, '_>, GroupKeys),
    ) -> Self {
        let inner = &fields.inner;
        let says_nothing = event.says_nothing();
        let has_lifts = !says_nothing && lifts.any();
        let part = |key, top: &'w Option<Raw<'a>>, below: &'w Option<Raw<'a>>, lifts: Lifted| {
            let is_new = top.is_some() || (has_lifts && lifts != Lifted::Never);
            let below = below.as_ref().filter(|raw| raw.is_container());
            (is_new && !says_nothing).then_some(Part { key, top: top.as_ref(), below, lifts })
        };
        Self {
            body,
            lifts,
            personless: event.personless,
            says_nothing,
            has_chain: inner.elements_chain || inner.elements.is_some(),
            os: event.os.clone(),
            groups,
            parts: [
                part("$set", &fields.set, &inner.set, Lifted::Always),
                part("$set_once", &fields.set_once, &inner.set_once, Lifted::Once),
                part("$unset", &fields.unset, &inner.unset, Lifted::Never),
            ],
        }
    }

    fn is_needed(&self, members: &[Member]) -> bool {
        self.os.is_some()
            || self.groups.iter().any(Option::is_some)
            || self.parts.iter().any(Option::is_some)
            || members.iter().any(|member| self.goes(member))
    }

    /// Whether a member is left out, or stands elsewhere.
    fn goes(&self, member: &Member) -> bool {
        let [set, set_once, unset] = &self.parts;
        match member.meaning {
            None => false,
            Some(Meaning::ElementsChain | Meaning::Elements) => self.has_chain,
            Some(Meaning::Set) => self.says_nothing || set.is_some(),
            Some(Meaning::SetOnce) => self.says_nothing || set_once.is_some(),
            Some(Meaning::Unset) => self.says_nothing || unset.is_some(),
            // True is what everybody has.
            Some(Meaning::ProcessPersonProfile) => !self.personless,
            Some(Meaning::GroupIndex(index)) => {
                self.personless || self.groups.get(index).is_some_and(Option::is_some)
            }
            Some(Meaning::NeverStored) => true,
            Some(_) => false,
        }
    }

    fn write(&self, out: &mut Vec<u8>, members: &[Member]) {
        out.push(b'{');
        let empty = out.len();
        let mut piece: Option<Range<usize>> = None;
        for member in members {
            match (&mut piece, self.goes(member)) {
                (Some(piece), false) => piece.end = member.end,
                (piece @ None, false) => *piece = Some(member.start..member.end),
                (_, true) => self.copy(out, empty, piece.take()),
            }
        }
        self.copy(out, empty, piece);
        if let Some(os) = &self.os {
            self.copy_value(out, empty, ("$os", os));
        }
        let groups = ["$group_0", "$group_1", "$group_2", "$group_3", "$group_4"];
        for (key, place) in groups.into_iter().zip(&self.groups) {
            if let Some(place) = place {
                self.copy_value(out, empty, (key, place));
            }
        }
        for part in self.parts.iter().flatten() {
            self.write_part(out, empty, part);
        }
        out.push(b'}');
    }

    fn copy(&self, out: &mut Vec<u8>, empty: usize, piece: Option<Range<usize>>) {
        if let Some(text) = piece.and_then(|piece| self.body.get(piece)) {
            separate(out, empty);
            out.extend_from_slice(text);
        }
    }

    fn copy_value(&self, out: &mut Vec<u8>, empty: usize, (key, place): (&str, &Range<usize>)) {
        separate(out, empty);
        write_key(out, key);
        out.extend_from_slice(self.body.get(place.clone()).unwrap_or(b"null"));
    }

    fn write_part(&self, out: &mut Vec<u8>, empty: usize, part: &Part<'_, '_>) {
        let before = out.len();
        separate(out, empty);
        write_key(out, part.key);
        let given = part.given(self.body);
        if part.lifts == Lifted::Never {
            out.extend_from_slice(given.as_bytes(self.body));
            return;
        }
        out.push(b'{');
        let inner_empty = out.len();
        // The members of the given object, without its braces.
        let text = given.as_bytes(self.body);
        let inner = text.strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}"));
        out.extend_from_slice(inner.unwrap_or_default().trim_ascii());
        for (key, value) in self.lifts.members(part.lifts == Lifted::Once) {
            self.copy_value(out, inner_empty, (key, &value));
        }
        if out.len() == inner_empty && part.top.is_none() && part.below.is_none() {
            // Nothing is to be said; the event had none either.
            out.truncate(before);
            return;
        }
        out.push(b'}');
    }
}

/// A part of an event that may stand at its top and in its properties.
struct Part<'w, 'a> {
    key: &'static str,
    top: Option<&'w Raw<'a>>,
    below: Option<&'w Raw<'a>>,
    lifts: Lifted,
}

/// Whether liftable properties go into a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifted {
    Never,
    Always,
    /// Under their names with `$initial_`.
    Once,
}

/// What the sender gave of a part.
enum Given {
    Nothing,
    AsWritten(Range<usize>),
    Merged(String),
}

impl Given {
    fn as_bytes<'b>(&'b self, body: &'b [u8]) -> &'b [u8] {
        match self {
            Self::Nothing => b"",
            Self::AsWritten(range) => body.get(range.clone()).unwrap_or_default(),
            Self::Merged(text) => text.as_bytes(),
        }
    }
}

impl Part<'_, '_> {
    /// What stands at the top of an event over what stands in its properties.
    fn given(&self, body: &[u8]) -> Given {
        let is_names = self.lifts == Lifted::Never;
        // An array is no object to be changed, and an object of names is as good as a list of them.
        let below = self.below.filter(|below| is_names || below.is_object());
        match (self.top, below) {
            (None, None) => Given::Nothing,
            (Some(one), None) | (None, Some(one)) => Given::AsWritten(one.range.clone()),
            (Some(top), Some(below)) => match merged(is_names, (top, below), body) {
                Some(both) => Given::Merged(both.to_string()),
                None => Given::AsWritten(top.range.clone()),
            },
        }
    }
}

/// Objects member by member, names to remove as one list, unless both are objects.
fn merged(is_names: bool, (top, below): (&Raw<'_>, &Raw<'_>), body: &[u8]) -> Option<Json> {
    if top.is_object() && below.is_object() {
        let mut map = object(below, body)?;
        map.extend(object(top, body)?);
        return Some(Json::Object(map));
    }
    is_names.then(|| [names(Some(below), body), names(Some(top), body)].concat().into())
}

/// A comma, unless nothing was written since `empty`.
fn separate(out: &mut Vec<u8>, empty: usize) {
    if out.len() > empty {
        out.push(b',');
    }
}

/// A key of ours, which needs no escapes.
fn write_key(out: &mut Vec<u8>, key: &str) {
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

/// An object of the body.
pub(super) fn object(raw: &Raw<'_>, body: &[u8]) -> Option<Map<String, Json>> {
    raw.is_object().then_some(())?;
    serde_json::from_slice(body.get(raw.range.clone())?).ok()
}

/// Any value of the body.
pub(super) fn json(cursor: Cursor<'_>, range: &Range<usize>) -> Option<Json> {
    Some(match cursor.value() {
        Value::Null => Json::Null,
        Value::Boolean(truth) => truth.into(),
        Value::Integer(number) => number.into(),
        Value::Number(number) => number.into(),
        Value::String(text) => text.into(),
        Value::Container { .. } => {
            serde_json::from_slice(cursor.body().get(range.clone())?).ok()?
        }
    })
}

/// Names in `$unset`: an array of them, or an object whose keys they are.
pub(super) fn names(raw: Option<&Raw<'_>>, body: &[u8]) -> Vec<String> {
    let value = raw.and_then(|raw| serde_json::from_slice(body.get(raw.range.clone())?).ok());
    match value {
        Some(Json::Array(items)) => {
            items.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(Json::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}
