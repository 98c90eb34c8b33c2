//! Auto-set properties: event properties that become person properties too: browser, device, page,
//! campaign. Each becomes a `$set` of its name, and a `$set_once` of `$initial_` and its name, as if
//! the sender had set them.
//!
//! Source: `eventToPersonProperties` and `personInitialAndUTMProperties` of PostHog's ingestion.
//! Every page view has them. So they are recorded in the walk over the properties, by a number in the
//! key table, and their values stay ranges of the body.

use std::ops::Range;

use arrow::buffer::Buffer;

use crate::capture::{Fields, Raw};
use crate::history::History;
use crate::normalize::keys::KeyTable;
use crate::prepare::error::PrepareError;
use crate::tape::{Cursor, Value};
use weir_event::auto_set::AUTO_SET;
use weir_identity::auto_set::{AutoSet, AutoSetProperty};

/// Positions in [`AUTO_SET`] that have rules of their own.
const OS: usize = 0;
const OS_NAME: usize = 1;
const OS_VERSION: usize = 2;

/// The auto-set properties of one event. Reused from event to event, to keep its memory.
#[derive(Debug, Default)]
pub(super) struct Lifts<'a> {
    /// A bit for each property in `found`.
    seen: u64,
    found: Vec<Lifted<'a>>,
}

/// An auto-set property of the event.
#[derive(Clone, Debug)]
struct Lifted<'a> {
    index: usize,
    value: Range<usize>,
    cursor: Cursor<'a>,
    /// Whether it becomes a `$set`.
    sets: bool,
    /// Whether it becomes a `$set_once`.
    sets_once: bool,
}

impl<'a> Lifts<'a> {
    pub(super) fn clear(&mut self) {
        self.seen = 0;
        self.found.clear();
    }

    /// Records a property. If a name occurs twice, the last value counts.
    pub(super) fn note(&mut self, index: usize, value: Range<usize>, cursor: Cursor<'a>) {
        let property = Lifted { index, value, cursor, sets: true, sets_once: true };
        let bit = 1 << index;
        if self.seen & bit != 0
            && let Some(known) = self.found.iter_mut().find(|known| known.index == index)
        {
            *known = property;
            return;
        }
        self.seen |= bit;
        self.found.push(property);
    }

    fn has(&self, index: usize) -> bool {
        self.seen & (1 << index) != 0
    }

    /// The value of `$os_name` for an event without `$os`. Not for servers: a server's operating system is
    /// neither the person's nor that of the event's subject.
    pub(super) fn missing_os(&self, is_server: bool) -> Option<(Cursor<'a>, Range<usize>)> {
        if is_server || self.has(OS) || !self.has(OS_NAME) {
            return None;
        }
        let os_name = self.found.iter().find(|property| property.index == OS_NAME)?;
        Some((os_name.cursor, os_name.value.clone()))
    }

    /// Determines which properties have an effect: those that the sender has not set explicitly.
    /// Properties of the person that are told beside the event are explicit, too.
    pub(super) fn settle(
        &mut self,
        keys: &KeyTable,
        fields: &Fields<'a>,
        person: Option<&Raw<'a>>,
    ) {
        if self.found.is_empty() {
            return;
        }
        self.settle_os(fields.inner.is_server);
        let (mut set, mut set_once) = (0_u64, 0_u64);
        let given = [&fields.set, &fields.inner.set].into_iter().flatten();
        for raw in given.chain(person) {
            set |= bits(raw, |key| keys.get(key).lift);
        }
        let given = [&fields.set_once, &fields.inner.set_once].into_iter().flatten();
        for raw in given.chain(person) {
            set_once |= bits(raw, |key| keys.initial(key));
        }
        for property in &mut self.found {
            property.sets &= set & (1 << property.index) == 0;
            property.sets_once &=
                set_once & (1 << property.index) == 0 && property.cursor.value() != Value::Null;
        }
    }

    /// `$os_name` is another name of `$os`. A server's operating system is not the person's.
    fn settle_os(&mut self, is_server: bool) {
        if is_server {
            self.found.retain(|property| !matches!(property.index, OS | OS_VERSION));
            return;
        }
        if !self.has(OS_NAME) {
            return;
        }
        let os = self.found.iter().find(|property| property.index == OS);
        let (has_os, has_null) =
            (os.is_some(), os.is_some_and(|os| os.cursor.value() == Value::Null));
        for property in self.found.iter_mut().filter(|property| property.index == OS_NAME) {
            (property.index, property.sets, property.sets_once) =
                (OS, !has_os, !has_os || has_null);
        }
    }

    /// Whether any property has an effect.
    pub(super) fn any(&self) -> bool {
        self.found.iter().any(|property| property.sets || property.sets_once)
    }

    /// The properties with an effect, for the identity store.
    pub(super) fn auto_set(
        &self,
        body: &Buffer,
        keys: &KeyTable,
        history: History,
    ) -> Option<AutoSet> {
        let effective = self.found.iter().filter(|property| property.sets || property.sets_once);
        let auto_sets = effective.filter_map(|property| {
            Some(AutoSetProperty {
                names: AUTO_SET.get(property.index)?,
                number: u8::try_from(property.index).ok()?,
                sets: property.sets,
                sets_once: property.sets_once,
                fills: history.fills(),
                is_noise: keys.noise & (1 << property.index) != 0,
                value: u32::try_from(property.value.start).ok()?
                    ..u32::try_from(property.value.end).ok()?,
            })
        });
        // With the full capacity, so that it need not grow.
        let mut properties = Vec::with_capacity(self.found.len());
        properties.extend(auto_sets);
        let auto_sets = properties.into_boxed_slice();
        (!auto_sets.is_empty()).then(|| AutoSet::new(body.clone(), auto_sets, keys.hasher()))
    }
}

/// Bits of those keys of an object for which `index` returns a number.
fn bits(raw: &Raw<'_>, index: impl Fn(&str) -> Option<usize>) -> u64 {
    let mut bits = 0;
    let mut cursor = raw.cursor;
    let _: Result<(), PrepareError> = cursor.object(|key, value| {
        if let Some(index) = index(key.text) {
            bits |= 1 << index;
        }
        value.skip();
        Ok(())
    });
    bits
}

#[cfg(test)]
mod tests {
    use super::{OS, OS_NAME, OS_VERSION};
    use weir_event::auto_set::AUTO_SET;

    #[test]
    fn positions_are_those_of_the_list() {
        let names = [OS, OS_NAME, OS_VERSION].map(|index| AUTO_SET[index].0);
        assert_eq!(names, ["$os", "$os_name", "$os_version"]);
    }
}
