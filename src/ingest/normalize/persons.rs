//! Effects of an event on its person: which op it becomes.

use crate::capture::{Fields, Raw};
use crate::history::{Effects, PersonProperties};
use crate::normalize::batch::{Accepted, Batch, FLAG_CALLED, Person};
use crate::normalize::names::DistinctId;
use crate::normalize::properties::{names, object};
use crate::prepare::error::PrepareError;
use crate::tape::{Cursor, Value};
use crate::warnings::Kind;
use weir_event::columns::View;
use weir_event::id::PersonId;
use weir_identity::change::{Force, Occasion, Op, OpKind, Update};

impl<'a> Batch<'a, '_> {
    pub(super) fn person(&mut self, distinct_id: &DistinctId<'a>) -> Result<View, PrepareError> {
        if let DistinctId::Borrowed(text) = distinct_id
            && let Some(person) = self.persons.get(text)
        {
            return Ok(person.id);
        }
        let id = PersonId::of(self.project.id, distinct_id.as_str());
        let view = self.view(id.0.hyphenated().encode_lower(&mut [0; 36]))?;
        if let DistinctId::Borrowed(text) = distinct_id {
            let person = Person { id: view, touched: false, personless: false, place_epoch: 0 };
            self.persons.insert(text, person);
        }
        Ok(view)
    }

    /// Adds the ops of the event on persons and groups.
    pub(super) fn person_ops(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) {
        let is_group = event.name == "$groupidentify"
            && !event.personless
            && self.history.effects() != Effects::Rows;
        let group = if is_group { self.group_update(cursor, fields, event) } else { None };
        if is_group && self.history.effects() == Effects::Persons {
            // The sender of the group's properties is no person of its own.
            return self.ops.extend(group.map(|kind| op(event, kind)));
        }
        let kind = self.op_kind(cursor, fields, event);
        if matches!(kind, OpKind::Merge { .. }) {
            self.forget_news();
        }
        if !self.is_redundant(event, &kind) {
            self.ops.push(op(event, kind));
        }
        self.ops.extend(group.map(|kind| op(event, kind)));
    }

    /// Whether an earlier op for the same distinct id in this batch has all effects of `kind`.
    fn is_redundant(&mut self, event: &Accepted<'a, '_>, kind: &OpKind) -> bool {
        let DistinctId::Borrowed(text) = event.distinct_id else { return false };
        let Some(seen) = self.persons.get_mut(text) else { return false };
        match kind {
            OpKind::Personless => std::mem::replace(&mut seen.personless, true),
            // Either the id has a person, or it is recorded as one without a person.
            OpKind::UpdateExisting(update) if update.is_empty() => {
                seen.touched || std::mem::replace(&mut seen.personless, true)
            }
            OpKind::UpdateExisting(_) => {
                seen.personless = true;
                false
            }
            OpKind::Touch => std::mem::replace(&mut seen.touched, true),
            _ => {
                seen.touched = true;
                false
            }
        }
    }

    /// The op of the event on its person. It creates a missing person, unless the event is personless or
    /// only reports a flag call.
    fn op_kind(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) -> OpKind {
        if event.personless || self.history.effects() == Effects::Rows {
            return OpKind::Personless;
        }
        let update = if event.says_nothing() { None } else { self.update(fields, cursor, event) };
        if let Some(other) = self.other_id(cursor, fields, event) {
            return OpKind::Merge {
                other: other.as_str().to_owned(),
                force: match event.name == "$merge_dangerously" || self.is_imported_person(fields) {
                    true => Force::Yes,
                    false => Force::No,
                },
                update: update.unwrap_or_default(),
            };
        }
        if is_flag_check(fields, event) {
            return OpKind::UpdateExisting(update.unwrap_or_default());
        }
        update.map_or(OpKind::Touch, OpKind::Update)
    }

    /// The second id of a merge event.
    fn other_id(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) -> Option<DistinctId<'a>> {
        let raw = match event.name {
            "$identify" => fields.inner.anon_distinct_id.as_ref(),
            "$create_alias" | "$merge_dangerously" => fields.inner.alias.as_ref(),
            _ if self.is_imported_person(fields) => fields.inner.alias.as_ref(),
            _ => None,
        }?;
        // A number is an id that lost its quotes; a value of another type was never an id.
        if !matches!(raw.value, Value::String(_) | Value::Integer(_) | Value::Number(_)) {
            if raw.value != Value::Null {
                self.warn(Kind::InvalidMergeId, event);
            }
            return None;
        }
        DistinctId::read(raw, cursor).map(|other| other.name)
    }

    /// `$set`, `$set_once` and `$unset` of an event, where its top level overrides its properties, and its
    /// auto-set properties.
    fn update(
        &mut self,
        fields: &Fields<'a>,
        cursor: Cursor<'a>,
        event: &Accepted<'a, '_>,
    ) -> Option<Update> {
        let (inner, body) = (&fields.inner, cursor.body());
        let given = [&inner.set, &inner.set_once].into_iter().flatten();
        let is_invalid = fields.is_set_invalid
            || given.into_iter().any(|raw| !raw.is_object() && raw.value != Value::Null)
            || inner
                .unset
                .as_ref()
                .is_some_and(|raw| !raw.is_container() && raw.value != Value::Null);
        if is_invalid {
            self.warn(Kind::InvalidSet, event);
        }
        let given_parts =
            [&fields.set, &fields.set_once, &fields.unset, &inner.set, &inner.set_once];
        let person = self.history.import().and(fields.person.as_ref());
        if self.history.import() == Some(PersonProperties::Ignore) {
            return None;
        }
        let is_silent = given_parts.iter().all(|part| part.is_none())
            && inner.unset.is_none()
            && person.is_none();
        let located = self.news(event);
        if is_silent && !self.auto_sets.any() && located.is_none() {
            return None;
        }
        let place = located.and_then(|place| place.auto_set.clone());
        let merged = |top: &Option<Raw<'_>>, below: &Option<Raw<'_>>| {
            let mut map = below.as_ref().and_then(|raw| object(raw, body)).unwrap_or_default();
            map.extend(top.as_ref().and_then(|raw| object(raw, body)).unwrap_or_default());
            map
        };
        let mut unset = names(inner.unset.as_ref(), body);
        unset.extend(names(fields.unset.as_ref(), body));
        let mut set = person.and_then(|raw| object(raw, body)).unwrap_or_default();
        set.extend(merged(&fields.set, &inner.set));
        let mut set_once = merged(&fields.set_once, &inner.set_once);
        if self.history.fills() {
            set_once.extend(std::mem::take(&mut set));
            unset.clear();
        }
        Some(Update {
            set,
            set_once,
            unset,
            auto_set: [self.auto_sets.auto_set(self.body, self.keys, self.history), place],
            occasion: match self.is_imported_person(fields) {
                true => Occasion::PersonEvent,
                false => Occasion::of(event.name),
            },
        })
    }
}

/// Whether the event only reports a flag call, which creates no person: servers evaluate flags for ids
/// that never have an event. Not if the event asks for a person profile or belongs to a group.
fn is_flag_check(fields: &Fields<'_>, event: &Accepted<'_, '_>) -> bool {
    event.name == FLAG_CALLED
        && fields.inner.process_person_profile != Some(Value::Boolean(true))
        && fields.inner.groups.is_none()
}

fn op(event: &Accepted<'_, '_>, kind: OpKind) -> Op {
    Op {
        distinct_id: event.distinct_id.as_str().to_owned(),
        event_id: event.event_id,
        timestamp: event.timestamp,
        kind,
    }
}
