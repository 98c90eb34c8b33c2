//! What the log keeps of a request: the body as it was received and what a replay needs beside it.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | layout of this head: 1 |
//! | 1 | version of the normalisation rules that made the first columns: 1 |
//! | 8 | project, i64 |
//! | 8 | received at, microseconds since 1970, i64 |
//! | 8 | seed, u64 |
//! | 1 | bit 0: a `sent_at` follows; bit 1: the path was `/engage`; bit 2: the body is LZ4; bit 3: a dead zone follows |
//! | 8 | `sent_at` of the query in milliseconds, i64, if bit 0 |
//! | 4 | error of the sender's clock that was ignored, milliseconds, u32, if bit 3 |
//! | 1 | length of the client's address as text, and the text |
//! | 4 | length of the encoding hints, and the hints (`wire::encoding`) |
//! | rest | the body; if bit 2, its length (u32) and one LZ4 block |
//!
//! All numbers are little endian. A gzip body stays gzip, 5 to 15 times smaller than its columns; a
//! plain one is packed with LZ4, which is faster than the disk.

use std::net::IpAddr;

use bytes::Bytes;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::ingest::prepare::Received;
use crate::wire::encoding::hints::Hints;

const LAYOUT: u8 = 1;
const RULES: u8 = 1;
const HAS_SENT_AT: u8 = 1;
const ENGAGE: u8 = 2;
const LZ4: u8 = 4;
const HAS_SKEW_IGNORED: u8 = 8;

/// Bodies below this are not packed.
const PACK_MIN_BYTES: usize = 256;

/// Largest body that a record may claim to unpack to; above any configured limit of bodies.
const BODY_MAX_BYTES: usize = 1 << 30;

/// A request as the log keeps it.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// Whose events they are.
    pub project: ProjectId,
    /// What is known besides the body.
    pub received: Received,
    /// How the body is encoded.
    pub hints: Hints,
    /// The body as it was received.
    pub body: Bytes,
}

/// A record that no version of this program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log record is not a request that this version understands")]
pub struct UnknownRecord;

impl Envelope {
    /// The head and the body of the record.
    pub fn encode(&self) -> (Vec<u8>, Bytes) {
        let packed = self.packed();
        let received = &self.received;
        let mut head = Vec::with_capacity(128);
        head.extend([LAYOUT, RULES]);
        head.extend(self.project.0.to_le_bytes());
        head.extend(received.at.0.to_le_bytes());
        head.extend(received.seed.to_le_bytes());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        head.push(
            flag(received.sent_at_query_millis.is_some(), HAS_SENT_AT)
                | flag(received.engage, ENGAGE)
                | flag(packed.is_some(), LZ4)
                | flag(received.skew_ignored_millis > 0, HAS_SKEW_IGNORED),
        );
        head.extend(received.sent_at_query_millis.map(i64::to_le_bytes).iter().flatten());
        // The setting may be another when the record is replayed.
        if received.skew_ignored_millis > 0 {
            head.extend(received.skew_ignored_millis.to_le_bytes());
        }
        let ip = received.client_ip.map(|ip| ip.to_string()).unwrap_or_default();
        head.push(u8::try_from(ip.len()).unwrap_or(0));
        head.extend(ip.as_bytes());
        let hints = self.hints.to_bytes();
        head.extend(u32::try_from(hints.len()).unwrap_or(0).to_le_bytes());
        head.extend(hints);
        (head, packed.unwrap_or_else(|| self.body.clone()))
    }

    /// The body as an LZ4 block, if it is plain and gets smaller.
    fn packed(&self) -> Option<Bytes> {
        let is_text = matches!(self.body.first(), Some(b'{' | b'['));
        if !is_text || self.body.len() < PACK_MIN_BYTES {
            return None;
        }
        let packed = lz4_flex::block::compress_prepend_size(&self.body);
        (packed.len() < self.body.len()).then(|| packed.into())
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// The record is of another layout, or cut short; its checksum was right, so another program
    /// wrote it.
    pub fn decode(record: Vec<u8>) -> Result<Self, UnknownRecord> {
        let record = Bytes::from(record);
        let mut rest: &[u8] = &record;
        let [LAYOUT, RULES] = take::<2>(&mut rest)? else { return Err(UnknownRecord) };
        let project = ProjectId(i64::from_le_bytes(take(&mut rest)?));
        let at = UnixMicros(i64::from_le_bytes(take(&mut rest)?));
        let seed = u64::from_le_bytes(take(&mut rest)?);
        let [flags] = take::<1>(&mut rest)?;
        let sent_at_query_millis = match flags & HAS_SENT_AT {
            0 => None,
            _ => Some(i64::from_le_bytes(take(&mut rest)?)),
        };
        let skew_ignored_millis = match flags & HAS_SKEW_IGNORED {
            0 => 0,
            _ => u32::from_le_bytes(take(&mut rest)?),
        };
        let [ip_len] = take::<1>(&mut rest)?;
        let ip = std::str::from_utf8(take_slice(&mut rest, usize::from(ip_len))?);
        let client_ip: Option<IpAddr> = ip.ok().and_then(|ip| ip.parse().ok());
        let hints_len = u32::from_le_bytes(take(&mut rest)?);
        let hints_len = usize::try_from(hints_len).map_err(|_| UnknownRecord)?;
        let hints = Hints::from_bytes(take_slice(&mut rest, hints_len)?).ok_or(UnknownRecord)?;
        let engage = flags & ENGAGE != 0;
        let body = match flags & LZ4 {
            0 => record.slice_ref(rest),
            _ => unpack(rest)?,
        };
        let received =
            Received { at, client_ip, sent_at_query_millis, engage, seed, skew_ignored_millis };
        Ok(Self { project, received, hints, body })
    }
}

fn unpack(packed: &[u8]) -> Result<Bytes, UnknownRecord> {
    let (len, block) = lz4_flex::block::uncompressed_size(packed).map_err(|_| UnknownRecord)?;
    if len > BODY_MAX_BYTES {
        return Err(UnknownRecord);
    }
    lz4_flex::block::decompress(block, len).map(Bytes::from).map_err(|_| UnknownRecord)
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
    use bytes::Bytes;

    use super::Envelope;
    use crate::clock::UnixMicros;
    use crate::event::id::ProjectId;
    use crate::ingest::prepare::Received;
    use crate::wire::encoding::hints::Hints;

    fn envelope(body: &'static [u8], ip: Option<&str>, sent_at: Option<i64>) -> Envelope {
        Envelope {
            project: ProjectId(7),
            received: Received {
                at: UnixMicros(1_700_000_000_123_456),
                client_ip: ip.map(|ip| ip.parse().unwrap()),
                sent_at_query_millis: sent_at,
                engage: sent_at.is_some(),
                seed: u64::MAX - 3,
                skew_ignored_millis: if ip.is_some() { 60_000 } else { 0 },
            },
            hints: Hints { data: ip.map(|_| Bytes::from_static(b"x=y")), ..Hints::default() },
            body: Bytes::from_static(body),
        }
    }

    #[test]
    fn records_read_back_and_every_cut_is_refused_or_shortens_the_body() {
        static LONG: [u8; 1000] = [b'{'; 1000];
        for (body, ip, sent_at) in [
            (&b""[..], None, None),
            (b"{\"a\":1}", Some("127.0.0.1"), Some(-5)),
            (&LONG, Some("2001:db8::1"), None),
            (b"\x1f\x8b\x08 not text", None, Some(1_700_000_000_000)),
        ] {
            let envelope = envelope(body, ip, sent_at);
            let (head, packed) = envelope.encode();
            assert!(packed.len() <= body.len());
            let record = [&head[..], &packed[..]].concat();
            let read = Envelope::decode(record.clone()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{envelope:?}"));
            for cut in 0..head.len() {
                assert!(Envelope::decode(record[..cut].to_vec()).is_err(), "cut at {cut}");
            }
        }
    }
}
