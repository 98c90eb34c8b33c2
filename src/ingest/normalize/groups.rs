//! Groups: the groups of an event, and the group update of `$groupidentify`.

use uuid::Uuid;

use crate::capture::{Fields, take};
use crate::normalize::batch::{Accepted, Batch, GroupKeys};
use crate::normalize::names::{DistinctId, GroupKey};
use crate::normalize::properties::object;
use crate::prepare::error::PrepareError;
use crate::tape::{Cursor, Value};
use crate::warnings::Kind;
use weir_event::schema::{GROUP_TYPES_MAX, column};
use weir_identity::change::{Op, OpKind};
use weir_identity::decide::group::is_group_name;

impl<'a> Batch<'a, '_> {
    /// `$groups`: an object of group type to key; the type's index chooses the column.
    pub(super) fn groups(
        &mut self,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) -> Result<GroupKeys, PrepareError> {
        let mut keys = GroupKeys::default();
        let groups = fields.inner.groups.filter(|_| !event.personless);
        let Some(mut groups) = groups else { return Ok(keys) };
        groups.object(|group_type, value| {
            let current = *value;
            let raw = take(value);
            let known = self.project.group_types.iter().position(|name| name == group_type.text);
            match (known, DistinctId::group_key(&raw, current)) {
                (Some(index), GroupKey::Some(key)) => {
                    self.put(column::GROUP_0 + index, key.as_str())?;
                    if let Some(place) = keys.get_mut(index) {
                        *place = Some(raw.range);
                    }
                }
                (None, GroupKey::Some(_)) => self.unknown_group_type(group_type.text, event),
                (_, GroupKey::TooLong) => self.warn(Kind::GroupKeyTooLong, event),
                (_, GroupKey::None) => {}
            }
            Ok::<(), PrepareError>(())
        })?;
        Ok(keys)
    }

    pub(super) fn group_types_op(&self) -> Op {
        Op {
            distinct_id: String::new(),
            event_id: Uuid::nil(),
            timestamp: self.received.at,
            kind: OpKind::GroupTypes(self.project.group_types.clone()),
        }
    }

    fn unknown_group_type(&mut self, name: &str, event: &Accepted<'a, '_>) {
        // Every place has to skip the same names, or the indexes of all later group types would differ.
        if !is_group_name(name) {
            return self.warn(Kind::InvalidGroupType, event);
        }
        if self.unknown_group_types.iter().any(|known| known == name) {
            return;
        }
        let known = self.project.group_types.len() + self.unknown_group_types.len();
        if known < GROUP_TYPES_MAX {
            self.unknown_group_types.push(name.to_owned());
        } else {
            self.warn(Kind::TooManyGroupTypes, event);
        }
    }

    /// The group update of a `$groupidentify`; `None` if it has no group.
    pub(super) fn group_update(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
        event: &Accepted<'a, '_>,
    ) -> Option<OpKind> {
        let inner = &fields.inner;
        let Value::String(group_type) = inner.group_type.as_ref()?.value else { return None };
        if !is_group_name(group_type) {
            self.warn(Kind::InvalidGroupType, event);
            return None;
        }
        let key = match DistinctId::group_key(inner.group_key.as_ref()?, cursor) {
            GroupKey::Some(key) => key,
            GroupKey::None => return None,
            GroupKey::TooLong => {
                self.warn(Kind::GroupKeyTooLong, event);
                return None;
            }
        };
        let set = inner.group_set.as_ref().and_then(|raw| object(raw, cursor.body()));
        if set.is_none() && inner.group_set.is_some() {
            self.warn(Kind::InvalidGroupSet, event);
        }
        if !self.project.group_types.iter().any(|name| name == group_type) {
            self.unknown_group_type(group_type, event);
        }
        self.has_groups = true;
        Some(OpKind::GroupUpdate {
            group_type: group_type.to_owned(),
            key: key.as_str().to_owned(),
            set: set.unwrap_or_default(),
        })
    }
}
