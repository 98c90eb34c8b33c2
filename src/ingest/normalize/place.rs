//! GeoIP properties of an event: the sender's address, and the place of that address in the operator's
//! database.
//!
//! Source: PostHog's ingestion sets `$ip` if an event has none. Its GeoIP transformation adds the place
//! to the event, to `$set` and to `$set_once`. The address is removed last, if the project wants that.
//! Here an event that contains a place keeps it, so that two places are not mixed. The parts that
//! are equal for all events of an address are built once per body.

use std::net::IpAddr;
use std::rc::Rc;

use arrow::buffer::Buffer;
use serde_json::Value as Json;

use crate::capture::Fields;
use crate::history::Effects;
use crate::normalize::addresses::{Address, Located};
use crate::normalize::batch::{Accepted, Batch, FLAG_CALLED};
use crate::normalize::names::DistinctId;
use crate::prepare::error::PrepareError;
use crate::tape::Cursor;
use weir_event::auto_set::AUTO_SET;
use weir_event::geoip::{NAMES, Place};
use weir_event::schema::{PropertyType, column};
use weir_identity::auto_set::{AutoSet, AutoSetProperty};
use weir_identity::decide::is_noise;

/// The address of the server's own events; short enough to be stored inline in a view.
const INTERNAL: &str = "127.0.0.1";

/// Limit of addresses of one body that are looked up; further ones get no place. Nearly every body has
/// one address, and the log record stores all of them.
const PLACES_MAX: usize = 1024;

// The numbers of all auto-set properties are below 64.
const _: () = assert!(AUTO_SET.len() + NAMES.len() <= 64, "too many auto_set properties");

impl Accepted<'_, '_> {
    /// The place, if the event sets it on its person too.
    pub(super) fn place_of_person(&self) -> Option<&Rc<Located>> {
        let applies = !self.says_nothing() && self.name != "$snapshot";
        self.address.place.as_ref().filter(|_| applies)
    }
}

impl<'a> Batch<'a, '_> {
    /// Stores the address that the request came from.
    pub(super) fn client_address(&mut self) {
        let Some(client) = self.received.client_ip else { return };
        let text: Rc<str> = client.to_string().into();
        let view = self.columns.view(&text);
        self.addresses.client = view.map(|view| (text, view));
    }

    /// Sets the columns of the event's address and of its place. Returns what happens to both in its
    /// properties.
    pub(super) fn address(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
    ) -> Result<Address, PrepareError> {
        let inner = &fields.inner;
        // What is imported was not sent by the client of now, and has the place that it was stored with.
        let is_live = self.history.effects() == Effects::All;
        let client = self.addresses.client.as_ref().filter(|_| is_live);
        let (added, view, address) = match (inner.ip, inner.is_internal, client) {
            (Some(ip), ..) => (None, self.view(ip)?, ip.parse().ok()),
            (None, true, _) => (Some(Rc::from(INTERNAL)), self.view(INTERNAL)?, None),
            (None, false, Some((text, view))) => {
                (Some(Rc::clone(text)), *view, self.received.client_ip)
            }
            (None, false, None) => return Ok(Address::default()),
        };
        let mut place = None;
        if let Some(address) = address.filter(|_| self.project.places.are_known())
            && !inner.geoip_disable
            && is_live
        {
            if names_place(fields, cursor.body()) {
                // The event may set another place on the person.
                self.addresses.epoch += 1;
            } else {
                place = self.place(address)?;
            }
        }
        for (position, view) in place.iter().flat_map(|place: &Rc<Located>| &place.columns) {
            self.columns.set_text(*position, *view);
        }
        if self.project.anonymize_ips {
            return Ok(Address { added: None, goes: true, place });
        }
        self.columns.set_text(column::IP, view);
        // A value of `$ip` that is neither a string nor falsy stays, though it is not an address.
        let added = added.filter(|_| !inner.has_odd_ip);
        Ok(Address { goes: added.is_some(), added, place })
    }

    fn place(&mut self, address: IpAddr) -> Result<Option<Rc<Located>>, PrepareError> {
        if let Some(known) = self.addresses.places.get(&address) {
            return Ok(known.clone());
        }
        if self.addresses.places.len() >= PLACES_MAX {
            return Ok(None);
        }
        let place = self.project.places.place(address);
        let located = place.map(|place| self.located(place)).transpose()?.map(Rc::new);
        self.addresses.places.insert(address, located.clone());
        Ok(located)
    }

    fn located(&mut self, place: Place) -> Result<Located, PrepareError> {
        let mut columns = Vec::new();
        for ((key, _), value) in place.known() {
            let column = self.keys.get(key).column;
            if let (Some((position, PropertyType::Text)), Json::String(text)) = (column, value) {
                columns.push((position, self.view(text)?));
            }
        }
        Ok(Located {
            event: members(place.known().map(|((key, _), value)| (key, value))),
            auto_set: self.auto_set(&place),
            columns,
            place,
        })
    }

    /// The same place as auto-set properties, for the identity store.
    fn auto_set(&self, place: &Place) -> Option<AutoSet> {
        let mut text = Vec::new();
        let mut auto_sets = Vec::with_capacity(NAMES.len());
        for (index, (names, (_, value))) in NAMES.iter().zip(place.all()).enumerate() {
            let start = u32::try_from(text.len()).ok()?;
            serde_json::to_writer(&mut text, value).ok()?;
            auto_sets.push(AutoSetProperty {
                names,
                // After the numbers of `AUTO_SET`, so that each number is unique.
                number: u8::try_from(AUTO_SET.len() + index).ok()?,
                sets: true,
                sets_once: !value.is_null(),
                fills: self.history.fills(),
                is_noise: is_noise(names.0),
                value: start..u32::try_from(text.len()).ok()?,
            });
        }
        Some(AutoSet::new(Buffer::from_vec(text), auto_sets.into(), self.keys.hasher()))
    }

    /// The place that the event sets on its person: `None` if an earlier event of the body has set it, and
    /// nothing since could have changed it.
    pub(super) fn news(&mut self, event: &Accepted<'a, '_>) -> Option<Rc<Located>> {
        let place = event.place_of_person()?;
        // The first two change no existing person, a flag call creates none: the place may be needed again.
        if matches!(event.name, "$exception" | "$$heatmap" | FLAG_CALLED) {
            return Some(Rc::clone(place));
        }
        let addresses = &mut self.addresses;
        if addresses.last_recorded.as_ref().is_none_or(|last| !Rc::ptr_eq(last, place)) {
            addresses.last_recorded = Some(Rc::clone(place));
            addresses.epoch += 1;
        }
        if let DistinctId::Borrowed(text) = event.distinct_id
            && let Some(person) = self.persons.get_mut(text)
            && std::mem::replace(&mut person.place_epoch, addresses.epoch) == addresses.epoch
        {
            return None;
        }
        Some(Rc::clone(place))
    }

    /// After a merge: the place that was set on one of the persons may not be that of the merged one.
    pub(super) fn forget_news(&mut self) {
        self.addresses.epoch += 1;
    }
}

/// Whether the sender gives a place, of the event or of the person. Text that only looks like such a key
/// counts too, which saves parsing all objects again.
fn names_place(fields: &Fields<'_>, body: &[u8]) -> bool {
    let inner = &fields.inner;
    let given = [&fields.set, &fields.set_once, &inner.set, &inner.set_once];
    let names = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.contains("\"$geoip_") || text.contains("\"$initial_geoip_")
    };
    let mut given = given.into_iter().flatten().filter_map(|raw| body.get(raw.range.clone()));
    inner.has_place || given.any(names)
}

/// Members of a JSON object, without its braces. The keys need no escapes.
fn members<'v>(properties: impl Iterator<Item = (&'static str, &'v Json)>) -> Vec<u8> {
    let all: Vec<String> = properties.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    all.join(",").into_bytes()
}
