//! Properties that say something of the person too: browser, device, page, campaign. Each becomes a
//! `$set` of its name and a `$set_once` of `$initial_` and its name, as if the sender had said so.
//!
//! Source: `eventToPersonProperties` and `personInitialAndUTMProperties` of PostHog's ingestion.
//! They come with every page view, so they are noted while the properties are walked anyway, by a
//! number in the table of keys, and their values stay where they were written.

use std::ops::Range;

use arrow::buffer::Buffer;

use crate::identity::decide::is_noise;
use crate::identity::lifted::Lift;
use crate::identity::lifted::Lifted;
use crate::identity::lifted::Names;
use crate::ingest::capture::Fields;
use crate::ingest::capture::Raw;
use crate::ingest::normalize::keys::KeyTable;
use crate::ingest::prepare::PrepareError;
use crate::ingest::tape::Cursor;
use crate::ingest::tape::Value;

/// Names of the property and of what is known of it first, `$initial_` and the name without its `$`.
/// A bit of a `u64` for each.
pub const LIFTS: &[Names; 44] = &[
    ("$os", "$initial_os"),
    ("$os_name", "$initial_os_name"),
    ("$os_version", "$initial_os_version"),
    ("$app_build", "$initial_app_build"),
    ("$app_name", "$initial_app_name"),
    ("$app_namespace", "$initial_app_namespace"),
    ("$app_version", "$initial_app_version"),
    ("$browser", "$initial_browser"),
    ("$browser_version", "$initial_browser_version"),
    ("$device_type", "$initial_device_type"),
    ("$current_url", "$initial_current_url"),
    ("$pathname", "$initial_pathname"),
    ("$referring_domain", "$initial_referring_domain"),
    ("$referrer", "$initial_referrer"),
    ("$screen_height", "$initial_screen_height"),
    ("$screen_width", "$initial_screen_width"),
    ("$viewport_height", "$initial_viewport_height"),
    ("$viewport_width", "$initial_viewport_width"),
    ("$raw_user_agent", "$initial_raw_user_agent"),
    ("utm_source", "$initial_utm_source"),
    ("utm_medium", "$initial_utm_medium"),
    ("utm_campaign", "$initial_utm_campaign"),
    ("utm_content", "$initial_utm_content"),
    ("utm_name", "$initial_utm_name"),
    ("utm_term", "$initial_utm_term"),
    ("gclid", "$initial_gclid"),
    ("gad_source", "$initial_gad_source"),
    ("gclsrc", "$initial_gclsrc"),
    ("dclid", "$initial_dclid"),
    ("gbraid", "$initial_gbraid"),
    ("wbraid", "$initial_wbraid"),
    ("fbclid", "$initial_fbclid"),
    ("msclkid", "$initial_msclkid"),
    ("twclid", "$initial_twclid"),
    ("li_fat_id", "$initial_li_fat_id"),
    ("mc_cid", "$initial_mc_cid"),
    ("igshid", "$initial_igshid"),
    ("ttclid", "$initial_ttclid"),
    ("rdt_cid", "$initial_rdt_cid"),
    ("irclid", "$initial_irclid"),
    ("_kx", "$initial__kx"),
    ("epik", "$initial_epik"),
    ("qclid", "$initial_qclid"),
    ("sccid", "$initial_sccid"),
];

/// Positions in [`LIFTS`] that have rules of their own.
const OS: usize = 0;
const OS_NAME: usize = 1;
const OS_VERSION: usize = 2;

/// Of events of which kind a property is left alone that not all lift: the system of a server is not the
/// person's, and `$os_name` of others is another name of `$os`. True: lifted from those of servers alone.
pub(super) fn is_of_server(key: &str) -> Option<bool> {
    match key {
        "$os" | "$os_version" => Some(false),
        "$os_name" => Some(true),
        _ => None,
    }
}

/// The liftable properties of one event. Kept from event to event for its memory.
#[derive(Debug, Default)]
pub(super) struct Lifts<'a> {
    /// Bits of those in `found`.
    seen: u64,
    found: Vec<Found<'a>>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Found<'a> {
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

    /// Takes note of a property. Of two with the same name the last counts.
    pub(super) fn note(&mut self, index: usize, value: Range<usize>, cursor: Cursor<'a>) {
        let lift = Found { index, value, cursor, sets: true, sets_once: true };
        let bit = 1 << index;
        if self.seen & bit != 0
            && let Some(known) = self.found.iter_mut().find(|known| known.index == index)
        {
            *known = lift;
            return;
        }
        self.seen |= bit;
        self.found.push(lift);
    }

    fn has(&self, index: usize) -> bool {
        self.seen & (1 << index) != 0
    }

    /// The system's name for an event that has it under `$os_name` alone. That of a server is not
    /// the person's, nor that of what the event is about.
    pub(super) fn missing_os(&self, is_server: bool) -> Option<(Cursor<'a>, Range<usize>)> {
        if is_server || self.has(OS) || !self.has(OS_NAME) {
            return None;
        }
        let os_name = self.found.iter().find(|lift| lift.index == OS_NAME)?;
        Some((os_name.cursor, os_name.value.clone()))
    }

    /// Settles which of them say something that the sender has not said already.
    pub(super) fn settle(&mut self, keys: &KeyTable, fields: &Fields<'a>) {
        if self.found.is_empty() {
            return;
        }
        self.settle_os(fields.inner.is_server);
        let (mut set, mut set_once) = (0_u64, 0_u64);
        for raw in [&fields.set, &fields.inner.set].into_iter().flatten() {
            set |= bits(raw, |key| keys.get(key).lift);
        }
        for raw in [&fields.set_once, &fields.inner.set_once].into_iter().flatten() {
            set_once |= bits(raw, |key| keys.initial(key));
        }
        for lift in &mut self.found {
            lift.sets &= set & (1 << lift.index) == 0;
            lift.sets_once &=
                set_once & (1 << lift.index) == 0 && lift.cursor.value() != Value::Null;
        }
    }

    /// `$os_name` is another name of `$os`. A server's system is not the person's.
    fn settle_os(&mut self, is_server: bool) {
        if is_server {
            self.found.retain(|lift| !matches!(lift.index, OS | OS_VERSION));
            return;
        }
        if !self.has(OS_NAME) {
            return;
        }
        let os = self.found.iter().find(|lift| lift.index == OS);
        let (has_os, has_null) =
            (os.is_some(), os.is_some_and(|os| os.cursor.value() == Value::Null));
        for lift in self.found.iter_mut().filter(|lift| lift.index == OS_NAME) {
            (lift.index, lift.sets, lift.sets_once) = (OS, !has_os, !has_os || has_null);
        }
    }

    /// Whether any says something.
    pub(super) fn any(&self) -> bool {
        self.found.iter().any(|lift| lift.sets || lift.sets_once)
    }

    /// What the identity store is told.
    pub(super) fn lifted(&self, body: &Buffer, keys: &KeyTable) -> Option<Lifted> {
        let said = self.found.iter().filter(|lift| lift.sets || lift.sets_once);
        let lifts = said.filter_map(|lift| {
            Some(Lift {
                names: LIFTS.get(lift.index)?,
                number: u8::try_from(lift.index).ok()?,
                sets: lift.sets,
                sets_once: lift.sets_once,
                is_noise: keys.noise & (1 << lift.index) != 0,
                value: u32::try_from(lift.value.start).ok()?..u32::try_from(lift.value.end).ok()?,
            })
        });
        // As large as it can be, so that it need not grow.
        let mut room = Vec::with_capacity(self.found.len());
        room.extend(lifts);
        let lifts = room.into_boxed_slice();
        (!lifts.is_empty()).then(|| Lifted::new(body.clone(), lifts, keys.hasher()))
    }
}

/// Bits of those whose new values alone are not worth a write.
pub(super) fn noise() -> u64 {
    let noise = LIFTS.iter().enumerate().filter(|(_, (key, _))| is_noise(key));
    noise.fold(0, |bits, (index, _)| bits | 1 << index)
}

/// Bits of the keys of an object that `index` knows.
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
    use super::LIFTS;
    use super::OS;
    use super::OS_NAME;
    use super::OS_VERSION;

    #[test]
    fn initial_names_follow_from_the_names() {
        for (key, initial) in LIFTS {
            assert_eq!(*initial, format!("$initial_{}", key.replacen('$', "", 1)));
        }
        assert!(LIFTS.len() <= 64, "one bit each");
        let names = [OS, OS_NAME, OS_VERSION].map(|index| LIFTS[index].0);
        assert_eq!(names, ["$os", "$os_name", "$os_version"]);
    }
}
