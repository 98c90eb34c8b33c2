//! Tests on databases that are built here, byte by byte, by the published format (MaxMind DB File
//! Format Specification 2.0); `tests/server/geoip.rs` uses MaxMind's own databases.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;

use super::GeoIp;
use super::GeoIpError;
use super::NAMES;

/// A database of IPv4 networks of 8 bits, from their first byte to their record.
pub(crate) fn database(kind: &str, networks: &[(u8, Value)]) -> Vec<u8> {
    // One level of the tree for each bit; a node is two records of 24 bits.
    let mut nodes: Vec<[Option<usize>; 2]> = vec![[None; 2]];
    let mut leaves: Vec<(usize, usize, usize)> = Vec::new();
    let mut data = Vec::new();
    for (byte, record) in networks {
        let mut node = 0;
        for shift in (1..8).rev() {
            let side = usize::from(byte >> shift & 1);
            node = match nodes[node][side] {
                Some(next) => next,
                None => {
                    nodes.push([None; 2]);
                    let next = nodes.len() - 1;
                    nodes[node][side] = Some(next);
                    next
                }
            };
        }
        leaves.push((node, usize::from(byte & 1), data.len()));
        encode(record, &mut data);
    }
    let count = nodes.len();
    let mut bytes = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        for (side, next) in node.iter().enumerate() {
            let leaf = leaves.iter().find(|(node, at, _)| (*node, *at) == (index, side));
            // The number of nodes means "no record"; data begins 16 bytes after it.
            let record = leaf.map_or(next.unwrap_or(count), |(_, _, at)| count + 16 + at);
            bytes.extend_from_slice(&u32::try_from(record).unwrap().to_be_bytes()[1..]);
        }
    }
    bytes.extend_from_slice(&[0; 16]);
    bytes.extend_from_slice(&data);
    bytes.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = json!({
        "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": 1,
        "database_type": kind, "description": {}, "ip_version": 4, "languages": ["en"],
        "node_count": count, "record_size": 24,
    });
    encode(&metadata, &mut bytes);
    bytes
}

/// One value: a control byte of type and size, and the value. Whole numbers are uint32, but
/// `build_epoch` and the small ones have types of their own.
fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => {
            control(2, text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Number(number) if number.is_u64() => {
            let bytes = u32::try_from(number.as_u64().unwrap()).unwrap().to_be_bytes();
            control(6, 4, out);
            out.extend_from_slice(&bytes);
        }
        Value::Number(number) => {
            control(3, 8, out);
            out.extend_from_slice(&number.as_f64().unwrap().to_be_bytes());
        }
        Value::Object(members) => {
            control(7, members.len(), out);
            for (name, value) in members {
                encode(&json!(name), out);
                let whole = value.as_u64().filter(|_| name != "node_count");
                match (name.as_str(), whole) {
                    ("build_epoch", Some(number)) => {
                        control(9, 8, out);
                        out.extend_from_slice(&number.to_be_bytes());
                    }
                    (_, Some(number)) => {
                        control(5, 2, out);
                        out.extend_from_slice(&u16::try_from(number).unwrap().to_be_bytes());
                    }
                    _ => encode(value, out),
                }
            }
        }
        Value::Array(items) => {
            control(11, items.len(), out);
            items.iter().for_each(|item| encode(item, out));
        }
        Value::Null | Value::Bool(_) => panic!("not in these databases"),
    }
}

fn control(kind: u8, size: usize, out: &mut Vec<u8>) {
    assert!(size < 29, "longer sizes have more bytes");
    let size = u8::try_from(size).unwrap();
    if kind < 8 {
        out.push(kind << 5 | size);
    } else {
        out.extend_from_slice(&[size, kind - 7]);
    }
}

/// A record with everything, and one with a country only.
pub(crate) fn example() -> Vec<u8> {
    let oxford = json!({
        "city": {"names": {"en": "Oxford", "de": "Oxenfurt"}},
        "continent": {"code": "EU", "names": {"en": "Europe"}},
        "country": {"iso_code": "GB", "names": {"en": "United Kingdom"}},
        "location": {
            "accuracy_radius": 100, "latitude": 51.75, "longitude": -1.25, "time_zone": "Europe/London",
        },
        "postal": {"code": "OX1"},
        "subdivisions": [
            {"iso_code": "ENG", "names": {"en": "England"}},
            {"iso_code": "OXF", "names": {"en": "Oxfordshire"}},
            {"iso_code": "X", "names": {"en": "Nobody asks"}},
        ],
    });
    let japan = json!({"country": {"iso_code": "JP", "names": {"en": "Japan"}}});
    let nothing = json!({"registered_country": {"iso_code": "FR"}});
    database("Test-City", &[(81, oxford), (133, japan), (90, nothing)])
}

/// The database in a file of a directory of its own.
pub(crate) fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("places.mmdb");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

fn found(places: &GeoIp, address: &str) -> Option<Value> {
    let place = places.place(address.parse().unwrap())?;
    let known = place.known().map(|((name, initial), value)| {
        assert_eq!(initial, name.replacen('$', "$initial_", 1));
        (name.trim_start_matches("$geoip_").to_owned(), value.clone())
    });
    Some(Value::Object(known.collect()))
}

#[test]
fn addresses_have_places() {
    let (_directory, path) = file(&example());
    let places = GeoIp::open(&path).unwrap();
    let oxford = json!({
        "city_name": "Oxford",
        "country_name": "United Kingdom",
        "country_code": "GB",
        "continent_name": "Europe",
        "continent_code": "EU",
        "postal_code": "OX1",
        "latitude": 51.75,
        "longitude": -1.25,
        "accuracy_radius": 100,
        "time_zone": "Europe/London",
        "subdivision_1_code": "ENG",
        "subdivision_1_name": "England",
        "subdivision_2_code": "OXF",
        "subdivision_2_name": "Oxfordshire",
    });
    let japan = json!({"country_name": "Japan", "country_code": "JP"});
    for (address, expected) in [
        ("81.2.69.142", Some(oxford.clone())),
        ("81.255.255.255", Some(oxford)),
        ("133.0.0.1", Some(japan)),
        ("90.0.0.1", None),
        ("80.0.0.1", None),
        ("0.0.0.0", None),
        ("127.0.0.1", None),
        ("2001:db8::1", None),
    ] {
        assert_eq!(found(&places, address), expected, "{address}");
    }
    let place = places.place(IpAddr::V4(Ipv4Addr::new(133, 0, 0, 1))).unwrap();
    assert_eq!(place.all().count(), NAMES.len());
    assert_eq!(place.all().filter(|(_, value)| value.is_null()).count(), NAMES.len() - 2);
}

#[test]
fn what_is_no_database_is_refused_with_its_name() {
    let whole = example();
    let (cut, _) = whole.split_at(whole.len() / 2);
    let other = database("Test-ASN", &[(1, json!({"autonomous_system_number": 7}))]);
    for (bytes, expected) in [
        (&b""[..], "damaged"),
        (b"no database", "damaged"),
        (cut, "damaged"),
        (&whole[..whole.len() - 20], "damaged"),
        (&other, "neither cities nor countries: it is a Test-ASN"),
    ] {
        let (_directory, path) = file(bytes);
        let error = GeoIp::open(&path).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("places.mmdb"), "{error}");
    }
    let (directory, _) = file(b"");
    for missing in [directory.path().join("nothing.mmdb"), directory.path().to_path_buf()] {
        assert!(matches!(GeoIp::open(&missing), Err(GeoIpError::Read { .. })));
    }
}

#[test]
fn damage_inside_is_no_place_and_no_panic() {
    let whole = example();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let (_directory, path) = file(&bytes);
        let Ok(places) = GeoIp::open(&path) else { continue };
        for address in ["81.2.69.142", "133.0.0.1", "90.0.0.1", "1.1.1.1"] {
            let _ = places.place(address.parse().unwrap());
        }
    }
}

#[test]
fn a_changed_file_is_read_again_and_a_damaged_one_is_not() {
    let (_directory, path) = file(&example());
    let places = GeoIp::open(&path).unwrap();
    assert!(!places.refresh().unwrap());
    let moved = json!({"city": {"names": {"en": "Cambridge"}}});
    std::fs::write(&path, database("Test-City", &[(81, moved)])).unwrap();
    assert!(places.refresh().unwrap());
    assert_eq!(found(&places, "81.2.69.142"), Some(json!({"city_name": "Cambridge"})));
    assert!(!places.refresh().unwrap());
    std::fs::write(&path, b"half a dow").unwrap();
    assert!(matches!(places.refresh(), Err(GeoIpError::Damaged { .. })));
    assert!(found(&places, "81.2.69.142").is_some(), "the old one is in use");
    std::fs::write(&path, example()).unwrap();
    assert!(places.refresh().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(places.refresh(), Err(GeoIpError::Read { .. })));
    assert!(found(&places, "81.2.69.142").is_some());
}
