//! What an event says about its person.

use crate::event::columns::View;
use crate::event::id::PersonId;
use crate::identity::change::Force;
use crate::identity::change::Occasion;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Update;
use crate::ingest::capture::Fields;
use crate::ingest::capture::Raw;
use crate::ingest::normalize::Accepted;
use crate::ingest::normalize::Batch;
use crate::ingest::normalize::names::DistinctId;
use crate::ingest::normalize::properties::names;
use crate::ingest::normalize::properties::object;
use crate::ingest::prepare::PrepareError;
use crate::ingest::tape::Cursor;

/// What this batch already knows of a distinct id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Person {
    id: View,
    touched: bool,
    personless: bool,
}

impl<'a> Batch<'a, '_> {
    pub(super) fn person(&mut self, distinct_id: &DistinctId<'a>) -> Result<View, PrepareError> {
        if let DistinctId::Borrowed(text) = distinct_id
            && let Some(person) = self.persons.get(text)
        {
            return Ok(person.id);
        }
        let id = PersonId::of(self.project.id, distinct_id.as_str());
        let view = self.side(id.0.hyphenated().encode_lower(&mut [0; 36]))?;
        if let DistinctId::Borrowed(text) = distinct_id {
            self.persons.insert(text, Person { id: view, touched: false, personless: false });
        }
        Ok(view)
    }

    /// What the event says about persons and groups.
    pub(super) fn person_ops(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) {
        let is_group = event.name == "$groupidentify" && !event.personless;
        let group = if is_group { self.group_update(fields, cursor) } else { None };
        let kind = op_kind(cursor, fields, event);
        if !self.is_said(event, &kind) {
            self.ops.push(op(event, kind));
        }
        self.ops.extend(group.map(|kind| op(event, kind)));
    }

    /// Whether an earlier event of the same person in this batch has said as much as `kind` does.
    fn is_said(&mut self, event: &Accepted<'a, '_>, kind: &OpKind) -> bool {
        let DistinctId::Borrowed(text) = event.distinct_id else { return false };
        let Some(seen) = self.persons.get_mut(text) else { return false };
        let said = match kind {
            OpKind::Personless => &mut seen.personless,
            _ => &mut seen.touched,
        };
        std::mem::replace(said, true) && matches!(kind, OpKind::Touch | OpKind::Personless)
    }
}

fn op(event: &Accepted<'_, '_>, kind: OpKind) -> Op {
    Op {
        distinct_id: event.distinct_id.as_str().to_owned(),
        event_id: event.event_id,
        timestamp: event.timestamp,
        kind,
    }
}

/// What the event does to its person. Every event with a person makes sure that there is one.
fn op_kind<'a>(cursor: Cursor<'a>, fields: &Fields<'a>, event: &Accepted<'a, '_>) -> OpKind {
    if event.personless {
        return OpKind::Personless;
    }
    let inner = &fields.inner;
    let other = match event.name {
        "$identify" => inner.anon_distinct_id.as_ref(),
        "$create_alias" | "$merge_dangerously" => inner.alias.as_ref(),
        _ => None,
    };
    let update = update(fields, cursor.body(), event.name);
    match other.and_then(|raw| DistinctId::read(raw, cursor)) {
        Some(other) => OpKind::Merge {
            other: other.as_str().to_owned(),
            force: if event.name == "$merge_dangerously" { Force::Yes } else { Force::No },
            update: update.unwrap_or_default(),
        },
        None => match update {
            // These say nothing of their person, whatever they carry.
            Some(_) if matches!(event.name, "$exception" | "$$heatmap" | "$groupidentify") => {
                OpKind::Touch
            }
            Some(update) => OpKind::Update(update),
            None => OpKind::Touch,
        },
    }
}

/// `$set`, `$set_once` and `$unset` of an event, top level over properties.
fn update(fields: &Fields<'_>, body: &[u8], name: &str) -> Option<Update> {
    let inner = &fields.inner;
    let said = [&fields.set, &fields.set_once, &fields.unset, &inner.set, &inner.set_once];
    if said.iter().all(|part| part.is_none()) && inner.unset.is_none() {
        return None;
    }
    let merged = |top: &Option<Raw<'_>>, below: &Option<Raw<'_>>| {
        let mut map = below.as_ref().and_then(|raw| object(raw, body)).unwrap_or_default();
        map.extend(top.as_ref().and_then(|raw| object(raw, body)).unwrap_or_default());
        map
    };
    let mut unset = names(inner.unset.as_ref(), body);
    unset.extend(names(fields.unset.as_ref(), body));
    Some(Update {
        set: merged(&fields.set, &inner.set),
        set_once: merged(&fields.set_once, &inner.set_once),
        unset,
        occasion: match name {
            "$set" | "$identify" | "$create_alias" | "$merge_dangerously" => Occasion::PersonEvent,
            _ => Occasion::OtherEvent,
        },
    })
}
