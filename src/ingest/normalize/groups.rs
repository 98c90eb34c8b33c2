//! Groups: those an event belongs to, and what `$groupidentify` says of one.

use uuid::Uuid;

use crate::event::schema::GROUP_TYPES_MAX;
use crate::event::schema::column;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::ingest::capture::Fields;
use crate::ingest::capture::take;
use crate::ingest::normalize::Batch;
use crate::ingest::normalize::names::DistinctId;
use crate::ingest::normalize::properties::object;
use crate::ingest::prepare::PrepareError;
use crate::ingest::tape::Cursor;
use crate::ingest::tape::Value;

impl<'a> Batch<'a, '_> {
    /// `$groups`: an object of group type to key; the type's index chooses the column.
    pub(super) fn groups(
        &mut self,
        fields: &Fields<'a>,
        personless: bool,
    ) -> Result<(), PrepareError> {
        let Some(mut groups) = fields.inner.groups.filter(|_| !personless) else { return Ok(()) };
        groups.object(|group_type, value| {
            let current = *value;
            let raw = take(value);
            let known = self.project.group_types.iter().position(|name| name == group_type.text);
            match (known, DistinctId::group_key(&raw, current)) {
                (Some(index), Some(key)) if index < GROUP_TYPES_MAX => {
                    let view = self.text(current, key.as_str())?;
                    self.columns.set_text(column::GROUP_0 + index, view);
                }
                (None, Some(_)) => self.unknown_group_type(group_type.text),
                _ => {}
            }
            Ok(())
        })
    }

    pub(super) fn group_types_op(&self) -> Op {
        Op {
            distinct_id: String::new(),
            event_id: Uuid::nil(),
            timestamp: self.received.at,
            kind: OpKind::GroupTypes(self.project.group_types.clone()),
        }
    }

    fn unknown_group_type(&mut self, name: &str) {
        let known = self.project.group_types.len() + self.unknown_group_types.len();
        if known < GROUP_TYPES_MAX && !self.unknown_group_types.iter().any(|known| known == name) {
            self.unknown_group_types.push(name.to_owned());
        }
    }

    pub(super) fn group_update(
        &mut self,
        fields: &Fields<'a>,
        cursor: Cursor<'a>,
    ) -> Option<OpKind> {
        let inner = &fields.inner;
        let Value::String(group_type) = inner.group_type.as_ref()?.value else { return None };
        if group_type.is_empty() {
            return None;
        }
        let key = DistinctId::group_key(inner.group_key.as_ref()?, cursor)?;
        let set = inner.group_set.as_ref().and_then(|raw| object(raw, cursor.body()));
        if !self.project.group_types.iter().any(|name| name == group_type) {
            self.unknown_group_type(group_type);
        }
        self.has_groups = true;
        Some(OpKind::GroupUpdate {
            group_type: group_type.to_owned(),
            key: key.as_str().to_owned(),
            set: set.unwrap_or_default(),
        })
    }
}
