//! Where addresses are, by a database of the operator in MaxMind's format: [`GeoIp`], [`Place`].
//!
//! The server has no database of its own: their licences leave the choice to who runs it. The file
//! is read into memory, and again when it has changed ([`GeoIp::refresh`]). What events, persons
//! and flags get of a place is decided where those are made.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use maxminddb::MaxMindDbError;
use maxminddb::Reader;
use maxminddb::geoip2::City;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use crate::error::Kind;

/// Names of the properties of a place: as properties of an event or a person, and as those that
/// keep the first value of a person. The names are PostHog's; so is the choice.
pub const NAMES: &[(&str, &str); 14] = &[
    ("$geoip_city_name", "$initial_geoip_city_name"),
    ("$geoip_country_name", "$initial_geoip_country_name"),
    ("$geoip_country_code", "$initial_geoip_country_code"),
    ("$geoip_continent_name", "$initial_geoip_continent_name"),
    ("$geoip_continent_code", "$initial_geoip_continent_code"),
    ("$geoip_postal_code", "$initial_geoip_postal_code"),
    ("$geoip_latitude", "$initial_geoip_latitude"),
    ("$geoip_longitude", "$initial_geoip_longitude"),
    ("$geoip_accuracy_radius", "$initial_geoip_accuracy_radius"),
    ("$geoip_time_zone", "$initial_geoip_time_zone"),
    ("$geoip_subdivision_1_code", "$initial_geoip_subdivision_1_code"),
    ("$geoip_subdivision_1_name", "$initial_geoip_subdivision_1_name"),
    ("$geoip_subdivision_2_code", "$initial_geoip_subdivision_2_code"),
    ("$geoip_subdivision_2_name", "$initial_geoip_subdivision_2_name"),
];

/// What is known of the place of an address. Names are English.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place {
    /// In the order of [`NAMES`]; null for what is not known.
    values: [Value; NAMES.len()],
}

impl Place {
    /// The properties in the order of [`NAMES`], null for what is not known.
    pub fn all(&self) -> impl Iterator<Item = ((&'static str, &'static str), &Value)> {
        NAMES.iter().copied().zip(&self.values)
    }

    /// The properties that are known.
    pub fn known(&self) -> impl Iterator<Item = ((&'static str, &'static str), &Value)> {
        self.all().filter(|(_, value)| !value.is_null())
    }

    /// `None` if nothing is known.
    fn of(record: &City<'_>) -> Option<Self> {
        let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
        let number = |number: Option<f64>| number.map_or(Value::Null, Value::from);
        let City { city, country, continent, postal, location, subdivisions, .. } = record;
        let mut parts = subdivisions.iter();
        let (first, second) = (parts.next(), parts.next());
        let values = [
            text(city.names.english),
            text(country.names.english),
            text(country.iso_code),
            text(continent.names.english),
            text(continent.code),
            text(postal.code),
            number(location.latitude),
            number(location.longitude),
            location.accuracy_radius.map_or(Value::Null, Value::from),
            text(location.time_zone),
            text(first.and_then(|part| part.iso_code)),
            text(first.and_then(|part| part.names.english)),
            text(second.and_then(|part| part.iso_code)),
            text(second.and_then(|part| part.names.english)),
        ];
        values.iter().any(|value| !value.is_null()).then_some(Self { values })
    }
}

/// Who knows where addresses are.
#[derive(Clone, Debug, Default)]
pub enum Places {
    /// Nobody.
    #[default]
    Unknown,
    /// The operator's database.
    Database(GeoIp),
    /// What a database said once; it may be another one by now.
    Found(Arc<BTreeMap<IpAddr, Place>>),
}

impl Places {
    /// Whether there is anybody to ask.
    pub fn are_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Where `address` is.
    pub fn place(&self, address: IpAddr) -> Option<Place> {
        match self {
            Self::Unknown => None,
            Self::Database(places) => places.place(address),
            Self::Found(places) => places.get(&address).cloned(),
        }
    }
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoIpError {
    /// The file.
    #[error("cannot read the GeoIP database {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its contents.
    #[error("the GeoIP database {} is damaged, or not in MaxMind's format", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: MaxMindDbError,
    },
    /// It tells other things of addresses.
    #[error("the GeoIP database {} has neither cities nor countries: it is a {kind}", path.display())]
    WrongKind {
        /// Which.
        path: PathBuf,
        /// What it calls itself.
        kind: String,
    },
}

impl GeoIpError {
    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        Kind::Unavailable
    }
}

/// A database of places. A cheap handle; clones share one.
#[derive(Clone, Debug)]
pub struct GeoIp {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Replaced as a whole.
    current: ArcSwap<Reader<Vec<u8>>>,
    /// The file that `current` was read from.
    seen: Mutex<Stamp>,
    /// Whether the operator was told of a record that cannot be read.
    is_damage_told: AtomicBool,
}

/// What tells one version of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    bytes: u64,
}

impl GeoIp {
    /// Reads the database at `path`. Blocks.
    ///
    /// # Errors
    ///
    /// What the operator has to mend.
    pub fn open(path: &Path) -> Result<Self, GeoIpError> {
        let (reader, stamp) = read(path)?;
        Ok(Self {
            shared: Arc::new(Shared {
                path: path.to_path_buf(),
                current: ArcSwap::from_pointee(reader),
                seen: Mutex::new(stamp),
                is_damage_told: AtomicBool::new(false),
            }),
        })
    }

    /// Where `address` is. Takes a few microseconds; neither waits nor reads the file.
    pub fn place(&self, address: IpAddr) -> Option<Place> {
        let reader = self.shared.current.load();
        let found = reader.lookup(address).and_then(|found| found.decode::<City<'_>>());
        match found {
            Ok(record) => Place::of(&record?),
            // An IPv6 address, in a database of IPv4.
            Err(MaxMindDbError::InvalidInput { .. }) => None,
            Err(error) => {
                if !self.shared.is_damage_told.swap(true, Ordering::Relaxed) {
                    let path = self.shared.path.display();
                    tracing::error!(%error, %path, "a record of the GeoIP database is damaged");
                }
                None
            }
        }
    }

    /// Reads the file again if it is another than before; whether it was. Blocks.
    ///
    /// # Errors
    ///
    /// The new file cannot be used; the old one stays in use, and the next call tries again.
    pub fn refresh(&self) -> Result<bool, GeoIpError> {
        let Shared { path, current, seen, is_damage_told } = &*self.shared;
        if stamp(path)? == *seen.lock() {
            return Ok(false);
        }
        let (reader, stamp) = read(path)?;
        current.store(Arc::new(reader));
        *seen.lock() = stamp;
        is_damage_told.store(false, Ordering::Relaxed);
        Ok(true)
    }
}

fn stamp(path: &Path) -> Result<Stamp, GeoIpError> {
    let metadata = fs::metadata(path);
    let stamp = metadata
        .and_then(|metadata| Ok(Stamp { modified: metadata.modified()?, bytes: metadata.len() }));
    stamp.map_err(|source| GeoIpError::Read { path: path.to_path_buf(), source })
}

fn read(path: &Path) -> Result<(Reader<Vec<u8>>, Stamp), GeoIpError> {
    // The stamp of before: a file that changes meanwhile is read again.
    let stamp = stamp(path)?;
    let path = path.to_path_buf();
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(source) => return Err(GeoIpError::Read { path, source }),
    };
    let reader = match Reader::from_source(bytes) {
        Ok(reader) => reader,
        Err(source) => return Err(GeoIpError::Damaged { path, source }),
    };
    let kind = &reader.metadata().database_type;
    if !["City", "Country", "Enterprise"].iter().any(|known| kind.contains(known)) {
        return Err(GeoIpError::WrongKind { path, kind: kind.clone() });
    }
    Ok((reader, stamp))
}

#[cfg(test)]
pub(crate) mod tests;
