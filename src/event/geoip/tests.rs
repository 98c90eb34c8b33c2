//! Tests on databases that are built here, byte by byte, by the published format (MaxMind DB File
//! Format Specification 2.0); `tests/server/geoip.rs` uses MaxMind's own databases.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::{GeoIp, GeoIpError, NAMES};
use weir_sim::mmdb::{database, example, file};

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
