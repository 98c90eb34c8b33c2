//! The addresses of one body, and the places that were found for them.

use std::net::IpAddr;
use std::rc::Rc;

use hashbrown::HashMap;

use crate::normalize::keys::Hasher;
use weir_event::columns::View;
use weir_event::geoip::Place;
use weir_identity::auto_set::AutoSet;

/// The addresses of one body.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The client's address, as text and as a value of a column.
    pub(super) client: Option<(Rc<str>, View)>,
    pub(super) places: HashMap<IpAddr, Option<Rc<Located>>, Hasher>,
    /// The place that was last recorded for a person.
    pub(super) last_recorded: Option<Rc<Located>>,
    /// `Person::place_epoch` of persons at `last_recorded`. Incremented when a person may have left.
    pub(super) epoch: u32,
}

impl Addresses {
    /// The places that were found, for the log record.
    pub(super) fn places(self) -> Vec<(IpAddr, Place)> {
        let found = self.places.into_iter();
        found.filter_map(|(address, place)| Some((address, place?.place.clone()))).collect()
    }
}

/// What happens to the address of one event.
#[derive(Clone, Debug, Default)]
pub(super) struct Address {
    /// The value of `$ip` to add; it needs no escapes.
    pub(super) added: Option<Rc<str>>,
    /// Whether `$ip` is removed.
    pub(super) goes: bool,
    /// The place, if it is known and not disabled.
    pub(super) place: Option<Rc<Located>>,
}

/// What every event at one place gets.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) place: Place,
    /// Members for the properties, separated by commas.
    pub(super) event: Vec<u8>,
    /// Auto-set properties of the person: null for unknown parts, so that no part of a previous place
    /// remains.
    pub(super) auto_set: Option<AutoSet>,
    /// Values of the properties that have columns.
    pub(super) columns: Vec<(usize, View)>,
}
