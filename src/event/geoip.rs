//! GeoIP look-up: the place of an address, from the operator's database in MaxMind's format: [`GeoIp`], [`Place`].
//!
//! The server includes no database: because of their licences the operator has to choose one. The file
//! is read into memory, and read again after a change ([`GeoIp::refresh`]). The properties that events,
//! persons and flags get from a place are set where these are built.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use std::{fs, io};

use arc_swap::ArcSwap;
use maxminddb::geoip2::City;
use maxminddb::{MaxMindDbError, Reader};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use weir_base::error::Kind;

/// Names of the properties of a place: as properties of an event or a person, and with `$initial_`, for
/// the first value of a person. Names and selection are PostHog's.
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

/// The place of an address. Its names are English.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place {
    /// In the order of [`NAMES`]; null for unknown values.
    values: [Value; NAMES.len()],
}

impl Place {
    /// All properties in the order of [`NAMES`], null for unknown values.
    pub fn all(&self) -> impl Iterator<Item = ((&'static str, &'static str), &Value)> {
        NAMES.iter().copied().zip(&self.values)
    }

    /// The known properties.
    pub fn known(&self) -> impl Iterator<Item = ((&'static str, &'static str), &Value)> {
        self.all().filter(|(_, value)| !value.is_null())
    }

    /// `None` if no value is known.
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

/// A source of places.
#[derive(Clone, Debug, Default)]
pub enum Places {
    /// None: every place is unknown.
    #[default]
    Unknown,
    /// The operator's database.
    Database(GeoIp),
    /// Places that were looked up before; the database may have changed since.
    Found(Arc<BTreeMap<IpAddr, Place>>),
}

impl Places {
    /// Whether there is a source.
    pub fn are_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// The place of `address`.
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
    /// The file cannot be read.
    #[error("cannot read the GeoIP database {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file is not a valid database.
    #[error("the GeoIP database {} is damaged, or not in MaxMind's format", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The error of the parser.
        #[source]
        source: MaxMindDbError,
    },
    /// The database has other data about addresses.
    #[error("the GeoIP database {} has neither cities nor countries: it is a {kind}", path.display())]
    WrongKind {
        /// The path of the file.
        path: PathBuf,
        /// The type in its metadata.
        kind: String,
    },
}

impl GeoIpError {
    /// The class of the error, for the response.
    pub fn kind(&self) -> Kind {
        Kind::Unavailable
    }
}

/// A database of places. A cheap handle; clones share the database.
#[derive(Clone, Debug)]
pub struct GeoIp {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Replaced as a whole on refresh.
    current: ArcSwap<Reader<Vec<u8>>>,
    /// Version of the file that `current` was read from.
    seen: Mutex<Stamp>,
    /// Whether a damaged record of this file version was logged.
    is_damage_logged: AtomicBool,
}

/// Identifies a version of the file.
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
    /// The file cannot be used; the operator has to fix or replace it.
    pub fn open(path: &Path) -> Result<Self, GeoIpError> {
        let (reader, stamp) = read(path)?;
        Ok(Self {
            shared: Arc::new(Shared {
                path: path.to_path_buf(),
                current: ArcSwap::from_pointee(reader),
                seen: Mutex::new(stamp),
                is_damage_logged: AtomicBool::new(false),
            }),
        })
    }

    /// The place of `address`. Takes a few microseconds; does not block and does no I/O.
    pub fn place(&self, address: IpAddr) -> Option<Place> {
        let reader = self.shared.current.load();
        let found = reader.lookup(address).and_then(|found| found.decode::<City<'_>>());
        match found {
            Ok(record) => Place::of(&record?),
            // An IPv6 address, in a database of IPv4 only.
            Err(MaxMindDbError::InvalidInput { .. }) => None,
            Err(error) => {
                if !self.shared.is_damage_logged.swap(true, Ordering::Relaxed) {
                    let path = self.shared.path.display();
                    tracing::error!(
                        %error,
                        %path,
                        "a record of the GeoIP database is damaged: its addresses have no place; \
                         replace the file"
                    );
                }
                None
            }
        }
    }

    /// Reads the file again if it has changed, and returns whether it has. Blocks.
    ///
    /// # Errors
    ///
    /// The new file cannot be used; the old one stays in use, and the next call tries again.
    pub fn refresh(&self) -> Result<bool, GeoIpError> {
        let Shared { path, current, seen, is_damage_logged } = &*self.shared;
        if stamp(path)? == *seen.lock() {
            return Ok(false);
        }
        let (reader, stamp) = read(path)?;
        current.store(Arc::new(reader));
        *seen.lock() = stamp;
        is_damage_logged.store(false, Ordering::Relaxed);
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
    // Taken before the read: if the file changes meanwhile, it is read again.
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
mod tests;
