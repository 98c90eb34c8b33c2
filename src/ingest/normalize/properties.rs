//! The stored `properties`: the JSON object as it was sent, or a rewritten copy.
//!
//! Most events are rewritten, because the sender's address is added. The text between two removed
//! members is copied in one piece; added values are copied from their range in the body. PostHog adds
//! auto-set properties to `$set` and `$set_once`. Here they are not added: every value is in the
//! properties already, and three copies of each would be half of what is stored.

use std::ops::Range;

use serde_json::{Map, Value as Json};

use crate::capture::{Fields, Meaning, Raw};
use crate::history::History;
use crate::normalize::addresses::Address;
use crate::normalize::batch::{Accepted, Batch, GroupKeys, Member};
use crate::prepare::error::PrepareError;
use crate::tape::{Cursor, Value};
use weir_event::json;
use weir_event::schema::column;

impl<'a> Batch<'a, '_> {
    /// Sets the properties column: to the object as it was sent, unless members are to be removed or
    /// added.
    pub(super) fn properties(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
        groups: GroupKeys,
    ) -> Result<(), PrepareError> {
        let rewrite = Rewrite::new(cursor.body(), fields, event, groups, self.history);
        let view = match &fields.properties {
            Some(range) if self.injected.is_empty() && !rewrite.is_needed(&self.members) => {
                let sent = cursor.body().get(range.clone()).unwrap_or_default();
                self.columns.write(|out| out.extend_from_slice(sent))
            }
            _ => {
                let (members, injected) = (&self.members, &self.injected);
                self.columns.write(|out| {
                    rewrite.write(out, members);
                    inject(out, injected);
                })
            }
        };
        self.columns.set_text(column::PROPERTIES, view.ok_or(PrepareError::TooLarge)?);
        Ok(())
    }
}

/// How the stored properties differ from those that were sent.
struct Rewrite<'w, 'a> {
    body: &'a [u8],
    /// The object that was sent.
    sent: Option<Range<usize>>,
    personless: bool,
    /// Whether the members that would change a person are removed.
    says_nothing: bool,
    /// Whether the elements are in a column.
    has_chain: bool,
    /// Range of the value of `$os`, if it is added.
    os: Option<Range<usize>>,
    groups: GroupKeys,
    /// Whether the event has numbers of groups from another server, and the groups themselves.
    renumbers_groups: bool,
    address: Address,
    /// `$set`, `$set_once` and `$unset`, if they are rewritten.
    parts: [Option<Part<'w, 'a>>; 3],
}

impl<'w, 'a> Rewrite<'w, 'a> {
    fn new(
        body: &'a [u8],
        fields: &'w Fields<'a>,
        event: &Accepted<'a, '_>,
        groups: GroupKeys,
        history: History,
    ) -> Self {
        let inner = &fields.inner;
        let says_nothing = event.says_nothing();
        let part = |key, top: &'w Option<Raw<'a>>, below: &'w Option<Raw<'a>>| {
            let top = top.as_ref().filter(|_| !says_nothing)?;
            let below = below.as_ref().filter(|raw| raw.is_container());
            Some(Part { key, top, below, is_names: key == "$unset" })
        };
        Self {
            body,
            sent: fields.properties.clone(),
            personless: event.personless,
            says_nothing,
            has_chain: inner.elements_chain || inner.elements.is_some(),
            os: event.os.clone(),
            groups,
            renumbers_groups: history.import().is_some() && inner.groups.is_some(),
            address: event.address.clone(),
            parts: [
                part("$set", &fields.set, &inner.set),
                part("$set_once", &fields.set_once, &inner.set_once),
                part("$unset", &fields.unset, &inner.unset),
            ],
        }
    }

    fn is_needed(&self, members: &[Member]) -> bool {
        self.os.is_some()
            || self.address.added.is_some()
            || self.address.place.is_some()
            || self.groups.iter().any(Option::is_some)
            || self.parts.iter().any(Option::is_some)
            || members.iter().any(|member| self.goes(member))
    }

    /// Whether a member is removed, here or because it is written elsewhere.
    fn goes(&self, member: &Member) -> bool {
        let [set, set_once, unset] = &self.parts;
        match member.meaning {
            Meaning::ElementsChain | Meaning::Elements => self.has_chain,
            Meaning::Set => self.says_nothing || set.is_some(),
            Meaning::SetOnce => self.says_nothing || set_once.is_some(),
            Meaning::Unset => self.says_nothing || unset.is_some(),
            // `true` is the default.
            Meaning::ProcessPersonProfile => !self.personless,
            Meaning::GroupIndex(index) => {
                self.personless
                    || self.renumbers_groups
                    || self.groups.get(index).is_some_and(Option::is_some)
            }
            Meaning::Ip => self.address.goes,
            Meaning::NeverStored => true,
            _ => false,
        }
    }

    fn write(&self, out: &mut Vec<u8>, members: &[Member]) {
        out.push(b'{');
        let empty = out.len();
        let sent = self.sent.clone().unwrap_or_default();
        let mut from = sent.start + 1;
        for member in members.iter().filter(|member| self.goes(member)) {
            self.copy(out, empty, from..member.start);
            from = member.end;
        }
        self.copy(out, empty, from..sent.end.saturating_sub(1));
        if let Some(os) = &self.os {
            self.copy_value(out, empty, "$os", os);
        }
        let groups = ["$group_0", "$group_1", "$group_2", "$group_3", "$group_4"];
        for (key, place) in groups.into_iter().zip(&self.groups) {
            if let Some(place) = place {
                self.copy_value(out, empty, key, place);
            }
        }
        if let Some(ip) = &self.address.added {
            separate(out, empty);
            write_key(out, "$ip");
            out.push(b'"');
            out.extend_from_slice(ip.as_bytes());
            out.push(b'"');
        }
        if let Some(place) = &self.address.place {
            separate(out, empty);
            out.extend_from_slice(&place.event);
        }
        for part in self.parts.iter().flatten() {
            self.write_part(out, empty, part);
        }
        out.push(b'}');
    }

    /// Copies whole members, without the separators around them.
    fn copy(&self, out: &mut Vec<u8>, empty: usize, piece: Range<usize>) {
        let is_between = |byte: &u8| *byte == b',' || byte.is_ascii_whitespace();
        let text = self.body.get(piece).unwrap_or_default();
        let start = text.iter().position(|byte| !is_between(byte));
        let end = text.iter().rposition(|byte| !is_between(byte));
        if let (Some(start), Some(end)) = (start, end) {
            separate(out, empty);
            out.extend_from_slice(text.get(start..=end).unwrap_or_default());
        }
    }

    fn copy_value(&self, out: &mut Vec<u8>, empty: usize, key: &str, place: &Range<usize>) {
        separate(out, empty);
        write_key(out, key);
        out.extend_from_slice(self.body.get(place.clone()).unwrap_or(b"null"));
    }

    fn write_part(&self, out: &mut Vec<u8>, empty: usize, part: &Part<'_, '_>) {
        separate(out, empty);
        write_key(out, part.key);
        match part.merged(self.body) {
            Some(both) => out.extend_from_slice(both.to_string().as_bytes()),
            None => {
                let top = self.body.get(part.top.range.clone());
                out.extend_from_slice(top.unwrap_or(b"null"));
            }
        }
    }
}

/// A member at the top level of an event that may also be in its properties.
struct Part<'w, 'a> {
    key: &'static str,
    top: &'w Raw<'a>,
    below: Option<&'w Raw<'a>>,
    /// Whether it is `$unset`: a list of names, or an object whose keys count.
    is_names: bool,
}

impl Part<'_, '_> {
    /// The top level of an event merged over its properties: objects member by member, names as one list
    /// unless both are objects. `None` if only the top level counts.
    fn merged(&self, body: &[u8]) -> Option<Json> {
        let below = self.below?;
        if self.top.is_object() && below.is_object() {
            let mut map = object(below, body)?;
            map.extend(object(self.top, body)?);
            return Some(Json::Object(map));
        }
        let names = || [names(Some(below), body), names(Some(self.top), body)].concat();
        self.is_names.then(|| names().into())
    }
}

/// Writes a comma, unless nothing was written since `empty`.
fn separate(out: &mut Vec<u8>, empty: usize) {
    if out.len() > empty {
        out.push(b',');
    }
}

/// Writes a key that needs no escapes.
fn write_key(out: &mut Vec<u8>, key: &str) {
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Parses an object of the body.
pub(super) fn object(raw: &Raw<'_>, body: &[u8]) -> Option<Map<String, Json>> {
    raw.is_object().then_some(())?;
    json::read(body.get(raw.range.clone())?).ok()
}

/// Parses any value of the body.
pub(super) fn value(cursor: Cursor<'_>, range: &Range<usize>) -> Option<Json> {
    Some(match cursor.value() {
        Value::Null => Json::Null,
        Value::Boolean(truth) => truth.into(),
        Value::Integer(number) => number.into(),
        Value::Number(number) => number.into(),
        Value::String(text) => text.into(),
        Value::Container { .. } => json::read(cursor.body().get(range.clone())?).ok()?,
    })
}

/// The names in `$unset`: the strings of an array, or the keys of an object.
pub(super) fn names(raw: Option<&Raw<'_>>, body: &[u8]) -> Vec<String> {
    let value = raw.and_then(|raw| json::read(body.get(raw.range.clone())?).ok());
    match value {
        Some(Json::Array(items)) => {
            items.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(Json::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

/// Adds `members` to the object at the end of `out`.
fn inject(out: &mut Vec<u8>, members: &[u8]) {
    if members.is_empty() {
        return;
    }
    out.pop();
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.extend_from_slice(members);
    out.push(b'}');
}
