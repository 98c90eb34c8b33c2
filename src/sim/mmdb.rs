//! GeoIP databases by the published format (MaxMind DB File Format Specification 2.0): [`database`] and an
//! [`example`].

#![expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test whose database cannot be written should fail"
)]

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A database of IPv4 networks of 8 bits, from their first byte to their record.
pub fn database(kind: &str, networks: &[(u8, Value)]) -> Vec<u8> {
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
pub fn example() -> Vec<u8> {
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
pub fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("places.mmdb");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}
