//! The stored `properties`: the object as it was written, or what must be written instead.

use serde_json::Map;

use crate::event::columns::Columns;
use crate::event::schema::column;
use crate::ingest::capture::Fields;
use crate::ingest::capture::Meaning;
use crate::ingest::capture::Raw;
use crate::ingest::normalize::Batch;
use crate::ingest::prepare::PrepareError;
use crate::ingest::tape::Cursor;

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
    ) -> Result<(), PrepareError> {
        let inner = &fields.inner;
        let lifted = [
            ("$set", &fields.set, &inner.set),
            ("$set_once", &fields.set_once, &inner.set_once),
            ("$unset", &fields.unset, &inner.unset),
        ];
        let lifts = lifted.iter().any(|(_, top, _)| top.is_some());
        let view = match &fields.properties {
            Some(range) if !lifts && !inner.elements_chain && self.injected.is_empty() => {
                let text = cursor.body().get(range.clone()).unwrap_or_default();
                let offset = u32::try_from(range.start).map_err(|_| PrepareError::TooLarge)?;
                Columns::body_view(text, offset)
            }
            _ => {
                let (members, injected) = (&self.members, &self.injected);
                let view = self.columns.write_side(|out| {
                    rewrite(out, cursor.body(), (members, inner.elements_chain), &lifted);
                    inject(out, injected);
                });
                view.ok_or(PrepareError::TooLarge)?
            }
        };
        self.columns.set_text(column::PROPERTIES, view);
        Ok(())
    }
}

pub(super) fn object(raw: &Raw<'_>, body: &[u8]) -> Option<Map<String, serde_json::Value>> {
    raw.is_object().then_some(())?;
    serde_json::from_slice(body.get(raw.range.clone())?).ok()
}

/// Names in `$unset`: an array of them, or an object whose keys they are.
pub(super) fn names(raw: Option<&Raw<'_>>, body: &[u8]) -> Vec<String> {
    let value = raw.and_then(|raw| serde_json::from_slice(body.get(raw.range.clone())?).ok());
    match value {
        Some(serde_json::Value::Array(items)) => {
            items.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(serde_json::Value::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

/// A part of an event that may stand at its top and in its properties.
type Lifted<'l, 'a> = (&'static str, &'l Option<Raw<'a>>, &'l Option<Raw<'a>>);

/// Writes the properties anew: without the elements chain, which has a column (and without the
/// elements it was made of), and with what stood at the top of the event merged in.
fn rewrite(
    out: &mut Vec<u8>,
    body: &[u8],
    (members, has_chain): (&[Member], bool),
    lifted: &[Lifted<'_, '_>],
) {
    let is_lifted = |name: &str| lifted.iter().any(|(key, top, _)| *key == name && top.is_some());
    let moved = |meaning: Option<Meaning>| match meaning {
        Some(Meaning::ElementsChain | Meaning::Elements) => has_chain,
        Some(Meaning::Set) => is_lifted("$set"),
        Some(Meaning::SetOnce) => is_lifted("$set_once"),
        Some(Meaning::Unset) => is_lifted("$unset"),
        _ => false,
    };
    out.push(b'{');
    let mut first = true;
    let mut separate = |out: &mut Vec<u8>| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
    };
    for member in members.iter().filter(|member| !moved(member.meaning)) {
        separate(out);
        out.extend_from_slice(body.get(member.start..member.end).unwrap_or_default());
    }
    for (key, top, below) in lifted {
        let Some(top) = top else { continue };
        separate(out);
        out.extend_from_slice(format!("\"{key}\":").as_bytes());
        match below.as_ref().and_then(|below| merged(key, (top, below), body)) {
            Some(both) => out.extend_from_slice(both.to_string().as_bytes()),
            None => out.extend_from_slice(body.get(top.range.clone()).unwrap_or_default()),
        }
    }
    out.push(b'}');
}

/// Puts `members` behind those of the object that `out` ends with.
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

/// What stands at the top of an event over what stands in its properties: objects member by
/// member, names to remove as one list. `None` if the lower one has nothing to add.
fn merged(key: &str, (top, below): (&Raw<'_>, &Raw<'_>), body: &[u8]) -> Option<serde_json::Value> {
    if top.is_object() && below.is_object() {
        let mut map = object(below, body)?;
        map.extend(object(top, body)?);
        return Some(serde_json::Value::Object(map));
    }
    if key != "$unset" || !below.is_container() {
        return None;
    }
    Some([names(Some(below), body), names(Some(top), body)].concat().into())
}
