//! Where an event comes from: the address of its sender, and the place that a database of the
//! operator knows of it.
//!
//! Source: PostHog's ingestion sets `$ip` where an event has none, its GeoIP transformation adds
//! what it knows to the event, to `$set` and to `$set_once`, and at last the address goes if the
//! project wants that. Here an event that names a place itself keeps it: two places would be mixed
//! otherwise. What is the same for all events of an address is made once per body.

use std::net::IpAddr;
use std::rc::Rc;

use arrow::buffer::Buffer;
use hashbrown::HashMap;
use serde_json::Value as Json;

use crate::event::columns::View;
use crate::event::schema::PropertyType;
use crate::event::schema::column;
use crate::geoip::NAMES;
use crate::geoip::Place;
use crate::identity::decide::is_noise;
use crate::identity::lifted::Lift;
use crate::identity::lifted::Lifted;
use crate::ingest::capture::Fields;
use crate::ingest::normalize::Accepted;
use crate::ingest::normalize::Batch;
use crate::ingest::normalize::FLAG_CALLED;
use crate::ingest::normalize::Hasher;
use crate::ingest::normalize::lifts::LIFTS;
use crate::ingest::normalize::names::DistinctId;
use crate::ingest::prepare::PrepareError;
use crate::ingest::tape::Cursor;

/// The address of the server's own events; short enough to stand in a view.
const INTERNAL: &str = "127.0.0.1";

/// Addresses of one body that are looked up; further ones have no place. Nearly every body has one,
/// and the log keeps all of them.
const PLACES_MAX: usize = 1024;

// The numbers of all lifted properties are below 64.
const _: () = assert!(LIFTS.len() + NAMES.len() <= 64, "too many lifted properties");

/// The addresses of one body.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The client's, as text and as a value of a column.
    client: Option<(Rc<str>, View)>,
    places: HashMap<IpAddr, Option<Rc<Located>>, Hasher>,
    /// The place that was said of a person last.
    last_said: Option<Rc<Located>>,
    /// Who was said to be at `last_said` has this number. It grows when that may not hold any more.
    epoch: u32,
}

impl Addresses {
    /// The places that were found.
    pub(super) fn places(self) -> Vec<(IpAddr, Place)> {
        let found = self.places.into_iter();
        found.filter_map(|(address, place)| Some((address, place?.place.clone()))).collect()
    }
}

/// What becomes of the address of one event.
#[derive(Clone, Debug, Default)]
pub(super) struct Address {
    /// `$ip` is added with this value, which needs no escapes.
    pub(super) added: Option<Rc<str>>,
    /// `$ip` is taken out.
    pub(super) goes: bool,
    /// The place, if it is known and wanted.
    pub(super) place: Option<Rc<Located>>,
}

/// What every event of one place gets.
#[derive(Debug)]
pub(super) struct Located {
    place: Place,
    /// Members for the properties, with commas between.
    pub(super) event: Vec<u8>,
    /// What it says of a person: null for what is not known, so that nothing of an earlier place is
    /// left.
    pub(super) lifted: Option<Lifted>,
    /// Columns of the properties that have one.
    columns: Vec<(usize, View)>,
}

impl Accepted<'_, '_> {
    /// The place, if the event says it of its person too.
    pub(super) fn place_of_person(&self) -> Option<&Rc<Located>> {
        let tells = !self.says_nothing() && self.name != "$snapshot";
        self.address.place.as_ref().filter(|_| tells)
    }
}

impl<'a> Batch<'a, '_> {
    /// Notes the address that the request came from.
    pub(super) fn client_address(&mut self) {
        let Some(client) = self.received.client_ip else { return };
        let text: Rc<str> = client.to_string().into();
        let view = self.columns.view(&text);
        self.addresses.client = view.map(|view| (text, view));
    }

    /// Sets the columns of the event's address and of its place. What becomes of both in its
    /// properties.
    pub(super) fn address(
        &mut self,
        cursor: Cursor<'a>,
        fields: &Fields<'a>,
    ) -> Result<Address, PrepareError> {
        let inner = &fields.inner;
        let client = &self.addresses.client;
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
        {
            if names_place(fields, cursor.body()) {
                // The person may be told to be elsewhere.
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
        // What is neither a text nor false stays, though it is no address.
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
            lifted: self.lifted(&place),
            columns,
            place,
        })
    }

    /// The same for the identity store.
    fn lifted(&self, place: &Place) -> Option<Lifted> {
        let mut text = Vec::new();
        let mut lifts = Vec::with_capacity(NAMES.len());
        for (index, (names, (_, value))) in NAMES.iter().zip(place.all()).enumerate() {
            let start = u32::try_from(text.len()).ok()?;
            serde_json::to_writer(&mut text, value).ok()?;
            lifts.push(Lift {
                names,
                // Behind those of the properties, so that each has a number of its own.
                number: u8::try_from(LIFTS.len() + index).ok()?,
                sets: true,
                sets_once: !value.is_null(),
                is_noise: is_noise(names.0),
                value: start..u32::try_from(text.len()).ok()?,
            });
        }
        Some(Lifted::new(Buffer::from_vec(text), lifts.into(), self.keys.hasher()))
    }

    /// The place that the event has to tell of its person: none if an earlier event of the body has
    /// told it, and nothing was said since that could have changed it.
    pub(super) fn news(&mut self, event: &Accepted<'a, '_>) -> Option<Rc<Located>> {
        let place = event.place_of_person()?;
        // These change no person, or none that is new, so that it may have to be told again.
        if matches!(event.name, "$exception" | "$$heatmap" | FLAG_CALLED) {
            return Some(Rc::clone(place));
        }
        let addresses = &mut self.addresses;
        if addresses.last_said.as_ref().is_none_or(|last| !Rc::ptr_eq(last, place)) {
            addresses.last_said = Some(Rc::clone(place));
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

    /// Persons become one: what was said of the one may not hold for both.
    pub(super) fn forget_news(&mut self) {
        self.addresses.epoch += 1;
    }
}

/// Whether the sender tells a place, of the event or of the person. A text that looks like it counts
/// too, rather than that all objects are read again.
fn names_place(fields: &Fields<'_>, body: &[u8]) -> bool {
    let inner = &fields.inner;
    let said = [&fields.set, &fields.set_once, &inner.set, &inner.set_once];
    let names = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.contains("\"$geoip_") || text.contains("\"$initial_geoip_")
    };
    let mut said = said.into_iter().flatten().filter_map(|raw| body.get(raw.range.clone()));
    inner.has_place || said.any(names)
}

/// Members of a JSON object, without its braces. The keys need no escapes.
fn members<'v>(properties: impl Iterator<Item = (&'static str, &'v Json)>) -> Vec<u8> {
    let all: Vec<String> = properties.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    all.join(",").into_bytes()
}
