//! Log record of a capture request: the body as it was received and what a replay needs beside it.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | layout of this head: 1 for capture v0, 3 for capture v1 (2 and 4 are operations, see `operation`) |
//! | 1 | version of the normalisation rules that made the first columns: 1 or 2 ([`Rules`]) |
//! | 8 | project, i64 |
//! | 8 | received at, microseconds since 1970, i64 |
//! | 8 | seed, u64 |
//! | 1 | bits: 0: a `sent_at` follows; 1: the path was `/engage`; 2: the body is LZ4; 3: an ignored clock skew follows; 4: an SDK follows; 5: addresses were left out; 6: places follow; 7: the event size limit follows |
//! | 8 | if bit 0, `sent_at`, i64: of the query in milliseconds (v0), of the header in microseconds (v1) |
//! | 4 | if bit 3, largest clock skew of the sender that was ignored, milliseconds, u32 |
//! | 4 | if bit 7, size limit of an event, bytes, u32; no limit otherwise |
//! | 1 + 1 | if bit 4, for each of the SDK's name and version: its length, and the text |
//! | 1 | length of the client's address as text, and the text |
//! | 4 | length of the encoding hints, and the hints (`wire::encoding`) |
//! | 4 | length of the places of addresses, and the places as a JSON array of pairs, if bit 6 |
//! | rest | the body; if bit 2, its length (u32) and one LZ4 block |
//!
//! All numbers are little endian. A gzip body stays gzip, 5 to 15 times smaller than its columns. A
//! plain body is compressed with LZ4, which is faster than the disk.

use std::net::IpAddr;

use bytes::Bytes;

use crate::request::{Protocol, Received, Rules};
use weir_base::clock::UnixMicros;
use weir_event::geoip::Place;
use weir_event::id::ProjectId;
use weir_wire::capture_v1::Sdk;
use weir_wire::encoding::hints::Hints;

const LAYOUT_V0: u8 = 1;
const LAYOUT_V1: u8 = 3;
const HAS_SENT_AT: u8 = 1;
const ENGAGE: u8 = 2;
const LZ4: u8 = 4;
const HAS_SKEW_IGNORED: u8 = 8;
const SDK: u8 = 16;
const ANONYMIZE_IPS: u8 = 32;
const HAS_PLACES: u8 = 64;
const HAS_EVENT_MAX: u8 = 128;

/// Bodies below this size are not compressed.
const PACK_MIN_BYTES: usize = 256;

/// Limit of the decompressed size that a record may state; above any configured limit of bodies.
const BODY_MAX_BYTES: usize = 1 << 30;

/// A capture request as the log stores it.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The project of the events.
    pub project: ProjectId,
    /// What was known of the request besides the body.
    pub received: Received,
    /// Whether the addresses of clients were left out of the events.
    pub anonymize_ips: bool,
    /// Places of addresses by the database of that time: a replay must find the same places.
    pub places: Vec<(IpAddr, Place)>,
    /// How the body is encoded.
    pub hints: Hints,
    /// The body as it was received.
    pub body: Bytes,
}

/// The record was not written by this version of the program, nor by an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log record was made by a newer Weir: this version does not understand it")]
pub struct UnknownRecord;

impl LogRecord {
    /// The head and the body of the record.
    pub fn encode(&self) -> (Vec<u8>, Bytes) {
        let packed = self.packed();
        let received = &self.received;
        let mut head = Vec::with_capacity(128);
        let (layout, sent_at, engage, sdk) = match &received.protocol {
            Protocol::V0 { sent_at_query_millis, engage } => {
                (LAYOUT_V0, *sent_at_query_millis, *engage, None)
            }
            Protocol::V1 { sent_at, sdk } => (LAYOUT_V1, Some(sent_at.0), false, sdk.as_ref()),
        };
        head.extend([layout, number(received.rules)]);
        head.extend(self.project.0.to_le_bytes());
        head.extend(received.at.0.to_le_bytes());
        head.extend(received.seed.to_le_bytes());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        head.push(
            flag(sent_at.is_some(), HAS_SENT_AT)
                | flag(engage, ENGAGE)
                | flag(packed.is_some(), LZ4)
                | flag(received.skew_ignored_millis > 0, HAS_SKEW_IGNORED)
                | flag(sdk.is_some(), SDK)
                | flag(self.anonymize_ips, ANONYMIZE_IPS)
                | flag(!self.places.is_empty(), HAS_PLACES)
                | flag(received.event_max_bytes < u32::MAX, HAS_EVENT_MAX),
        );
        head.extend(sent_at.map(i64::to_le_bytes).iter().flatten());
        // The settings may have changed when the record is replayed.
        if received.skew_ignored_millis > 0 {
            head.extend(received.skew_ignored_millis.to_le_bytes());
        }
        if received.event_max_bytes < u32::MAX {
            head.extend(received.event_max_bytes.to_le_bytes());
        }
        if let Some(sdk) = sdk {
            put_short(&mut head, &sdk.name);
            put_short(&mut head, &sdk.version);
        }
        put_short(&mut head, &received.client_ip.map(|ip| ip.to_string()).unwrap_or_default());
        let hints = self.hints.to_bytes();
        head.extend(u32::try_from(hints.len()).unwrap_or(0).to_le_bytes());
        head.extend(hints);
        if !self.places.is_empty() {
            // Strings, numbers and nulls: always serializable.
            let places = serde_json::to_vec(&self.places).unwrap_or_default();
            head.extend(u32::try_from(places.len()).unwrap_or(0).to_le_bytes());
            head.extend(places);
        }
        (head, packed.unwrap_or_else(|| self.body.clone()))
    }

    /// The body as an LZ4 block, if it is plain JSON and becomes smaller.
    fn packed(&self) -> Option<Bytes> {
        let is_text = matches!(self.body.first(), Some(b'{' | b'['));
        if !is_text || self.body.len() < PACK_MIN_BYTES {
            return None;
        }
        let packed = lz4_flex::block::compress_prepend_size(&self.body);
        (packed.len() < self.body.len()).then(|| packed.into())
    }

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// The record has another layout or is truncated. Its checksum was right, so another program wrote
    /// it.
    pub fn decode(record: Vec<u8>) -> Result<Self, UnknownRecord> {
        let record = Bytes::from(record);
        let mut rest: &[u8] = &record;
        let [layout @ (LAYOUT_V0 | LAYOUT_V1), rules] = take::<2>(&mut rest)? else {
            return Err(UnknownRecord);
        };
        let rules = rules_of(rules)?;
        let project = ProjectId(i64::from_le_bytes(take(&mut rest)?));
        let at = UnixMicros(i64::from_le_bytes(take(&mut rest)?));
        let seed = u64::from_le_bytes(take(&mut rest)?);
        let [flags] = take::<1>(&mut rest)?;
        let sent_at = match flags & HAS_SENT_AT {
            0 => None,
            _ => Some(i64::from_le_bytes(take(&mut rest)?)),
        };
        let skew_ignored_millis = match flags & HAS_SKEW_IGNORED {
            0 => 0,
            _ => u32::from_le_bytes(take(&mut rest)?),
        };
        let event_max_bytes = match flags & HAS_EVENT_MAX {
            0 => u32::MAX,
            _ => u32::from_le_bytes(take(&mut rest)?),
        };
        let sdk = match flags & SDK {
            0 => None,
            _ => {
                let name = take_short(&mut rest)?.to_owned();
                Some(Sdk { name, version: take_short(&mut rest)?.to_owned() })
            }
        };
        let client_ip: Option<IpAddr> = take_short(&mut rest)?.parse().ok();
        let hints_len = u32::from_le_bytes(take(&mut rest)?);
        let hints_len = usize::try_from(hints_len).map_err(|_| UnknownRecord)?;
        let hints = Hints::from_bytes(take_slice(&mut rest, hints_len)?).ok_or(UnknownRecord)?;
        let protocol = match (layout, sent_at) {
            (LAYOUT_V0, sent_at_query_millis) => {
                Protocol::V0 { sent_at_query_millis, engage: flags & ENGAGE != 0 }
            }
            (_, Some(micros)) => Protocol::V1 { sent_at: UnixMicros(micros), sdk },
            (_, None) => return Err(UnknownRecord),
        };
        let anonymize_ips = flags & ANONYMIZE_IPS != 0;
        let places = match flags & HAS_PLACES {
            0 => Vec::new(),
            _ => {
                let len = u32::from_le_bytes(take(&mut rest)?);
                let len = usize::try_from(len).map_err(|_| UnknownRecord)?;
                serde_json::from_slice(take_slice(&mut rest, len)?).map_err(|_| UnknownRecord)?
            }
        };
        let body = match flags & LZ4 {
            0 => record.slice_ref(rest),
            _ => unpack(rest)?,
        };
        let received =
            Received { at, client_ip, protocol, seed, skew_ignored_millis, event_max_bytes, rules };
        Ok(Self { project, received, anonymize_ips, places, hints, body })
    }
}

fn number(rules: Rules) -> u8 {
    match rules {
        Rules::First => 1,
        Rules::ExactImports => 2,
    }
}

fn rules_of(number: u8) -> Result<Rules, UnknownRecord> {
    match number {
        1 => Ok(Rules::First),
        2 => Ok(Rules::ExactImports),
        _ => Err(UnknownRecord),
    }
}

fn unpack(packed: &[u8]) -> Result<Bytes, UnknownRecord> {
    let (len, block) = lz4_flex::block::uncompressed_size(packed).map_err(|_| UnknownRecord)?;
    if len > BODY_MAX_BYTES {
        return Err(UnknownRecord);
    }
    lz4_flex::block::decompress(block, len).map(Bytes::from).map_err(|_| UnknownRecord)
}

/// Appends a text with a length byte before it. A text longer than 255 bytes becomes empty.
fn put_short(head: &mut Vec<u8>, text: &str) {
    let length = u8::try_from(text.len());
    head.push(length.unwrap_or(0));
    head.extend(text.as_bytes().iter().take(length.map_or(0, usize::from)));
}

fn take_short<'a>(rest: &mut &'a [u8]) -> Result<&'a str, UnknownRecord> {
    let [length] = take::<1>(rest)?;
    std::str::from_utf8(take_slice(rest, usize::from(length))?).map_err(|_| UnknownRecord)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], UnknownRecord> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(UnknownRecord)?;
    *rest = tail;
    Ok(*head)
}

fn take_slice<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], UnknownRecord> {
    let (head, tail) = rest.split_at_checked(len).ok_or(UnknownRecord)?;
    *rest = tail;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bytes::Bytes;

    use super::LogRecord;
    use crate::request::{Protocol, Received, Rules};
    use weir_base::clock::UnixMicros;
    use weir_event::geoip::Place;
    use weir_event::id::ProjectId;
    use weir_wire::capture_v1::Sdk;
    use weir_wire::encoding::hints::Hints;

    fn v0(sent_at: Option<i64>) -> Protocol {
        Protocol::V0 { sent_at_query_millis: sent_at, engage: sent_at.is_some() }
    }

    fn v1(sdk: Option<(&str, &str)>) -> Protocol {
        let sdk = sdk.map(|(name, version)| Sdk { name: name.into(), version: version.into() });
        Protocol::V1 { sent_at: UnixMicros(-1_700_000_000_123_456), sdk }
    }

    fn log_record(body: &'static [u8], ip: Option<&str>, protocol: Protocol) -> LogRecord {
        let anonymize_ips = protocol == v0(Some(1_700_000_000_000));
        LogRecord {
            project: ProjectId(7),
            received: Received {
                at: UnixMicros(1_700_000_000_123_456),
                client_ip: ip.map(|ip| ip.parse().unwrap()),
                protocol,
                seed: u64::MAX - 3,
                skew_ignored_millis: if ip.is_some() { 60_000 } else { 0 },
                event_max_bytes: if ip.is_some() { 5_000 } else { u32::MAX },
                rules: if ip.is_some() { Rules::First } else { Rules::ExactImports },
            },
            anonymize_ips,
            places: places(ip),
            hints: Hints { data: ip.map(|_| Bytes::from_static(b"x=y")), ..Hints::default() },
            body: Bytes::from_static(body),
        }
    }

    /// `ip` with a place in Oxford; empty without an address.
    fn places(ip: Option<&str>) -> Vec<(IpAddr, Place)> {
        let mut values = vec![serde_json::Value::Null; 14];
        (values[0], values[6]) = ("Oxford \u{e9}".into(), 51.75.into());
        let place: Place = serde_json::from_value(values.into()).unwrap();
        ip.map(|ip| (ip.parse().unwrap(), place)).into_iter().collect()
    }

    #[test]
    fn records_read_back_and_every_cut_is_refused_or_shortens_the_body() {
        static LONG: [u8; 1000] = [b'{'; 1000];
        for (body, ip, protocol) in [
            (&b""[..], None, v0(None)),
            (b"{\"a\":1}", Some("127.0.0.1"), v0(Some(-5))),
            (&LONG, Some("2001:db8::1"), v0(None)),
            (b"\x1f\x8b\x08 not text", None, v0(Some(1_700_000_000_000))),
            (b"{\"a\":1}", None, v1(None)),
            (&LONG, Some("127.0.0.1"), v1(Some(("posthog-python", "7.91.1")))),
        ] {
            let log_record = log_record(body, ip, protocol);
            let (head, packed) = log_record.encode();
            assert!(packed.len() <= body.len());
            let record = [&head[..], &packed[..]].concat();
            let read = LogRecord::decode(record.clone()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{log_record:?}"));
            for cut in 0..head.len() {
                assert!(LogRecord::decode(record[..cut].to_vec()).is_err(), "cut at {cut}");
            }
        }
    }

    /// Goal: logs of previous versions stay readable. Method: bytes written by hand from the table.
    #[test]
    fn the_layout_is_as_documented() {
        let number = |number: i64| number.to_le_bytes();
        let common = [number(7), number(1_700_000_000_123_456), number(-4)].concat();
        let hints = [&[4, 0, 0, 0][..], &[1, 0, 0, 0]].concat();
        let ip = "127.0.0.1";
        let places = serde_json::to_vec(&places(Some(ip))).unwrap();
        let v0_record = [
            &[1, 1][..],
            &common,
            &[1 | 2 | 8 | 64 | 128],
            &number(-5),
            &60_000_u32.to_le_bytes(),
            &5_000_u32.to_le_bytes(),
            b"\x09127.0.0.1",
            &hints,
            &u32::try_from(places.len()).unwrap().to_le_bytes(),
            &places,
            b"{}",
        ];
        let v1_record = [
            &[3, 2][..],
            &common,
            &[17],
            &number(-1_700_000_000_123_456),
            b"\x01a\x01b\0",
            &hints,
            b"{}",
        ];
        for (record, ip, protocol) in [
            (v0_record.concat(), Some(ip), v0(Some(-5))),
            (v1_record.concat(), None, v1(Some(("a", "b")))),
        ] {
            let expected = LogRecord { hints: Hints::default(), ..log_record(b"{}", ip, protocol) };
            let (head, body) = expected.encode();
            assert_eq!([&head[..], &body].concat(), record);
            assert_eq!(
                format!("{:?}", LogRecord::decode(record).unwrap()),
                format!("{expected:?}")
            );
        }
        assert!(LogRecord::decode([&[4, 1][..], &common].concat()).is_err(), "a layout to come");
        for rules in [0, 3, 255] {
            let record = [&[1, rules][..], &common, &[0], b"\0", &hints, b"{}"].concat();
            assert!(LogRecord::decode(record).is_err(), "rules to come");
        }
    }
}
