//! Bytes of an object of the log, and its name. No store here.
//!
//! All numbers are little endian; checksums are CRC-32C (Castagnoli, as in iSCSI, RFC 3720).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `weir.log` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | 0 for records, 1 for a claim |
//! | 16 | 16 | uuid of the writer |
//! | 32 | 8 | first: sequence of the first record |
//! | 40 | 4 | number of records, at least 1 |
//! | 44 | 4 | CRC-32C of bytes 0 to 43 |
//! | 48 | | frames without gaps, as in a segment of `wal`, to the end |
//!
//! The salt of the frames comes from the writer and the first sequence. An object is there as a whole or not at all, so
//! there are no torn writes; anything that does not fit is damage.

use bytes::{Bytes, BytesMut};
use object_store::path::Path;
use uuid::Uuid;

use crate::object_log::settings::DIRECTORY;
use crate::wal::Sequence;
use crate::wal::frame::{FRAME_HEADER_BYTES, FrameHeader, Salt};

/// Size of the header.
pub(super) const HEADER_BYTES: usize = 48;

const MAGIC: [u8; 8] = *b"weir.log";

/// Newest format version that this program reads, and the one that it writes.
pub(super) const VERSION: u32 = 1;

/// Digits of a sequence in a name: those of the largest one, so that names sort as numbers.
const NAME_DIGITS: usize = 20;

/// What an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Records of requests.
    Records,
    /// Its writer takes the log over from here on.
    Claim,
}

/// Decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) purpose: Purpose,
    pub(super) writer: Uuid,
    pub(super) first: Sequence,
    pub(super) records: u32,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// They are damaged, or of something else.
    Damaged,
    /// They are of another version.
    Version(u32),
}

impl Header {
    /// The last record.
    pub(super) fn last(&self) -> Sequence {
        Sequence(self.first.0.saturating_add(u64::from(self.records)).saturating_sub(1))
    }

    /// The salt of its frames.
    pub(super) fn salt(&self) -> Salt {
        let (high, low) = self.writer.as_u64_pair();
        Salt::new(high ^ low ^ self.first.0)
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let purpose: u32 = if self.purpose == Purpose::Claim { 1 } else { 0 };
        bytes[12..16].copy_from_slice(&purpose.to_le_bytes());
        bytes[16..32].copy_from_slice(self.writer.as_bytes());
        bytes[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.records.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[0..44]);
        bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header of the object that is named `first`; `bytes` may go on behind it.
    pub(super) fn decode(bytes: &[u8], first: Sequence) -> Result<Self, Unreadable> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Unreadable::Damaged)?;
        let (covered, checksum) = header.split_last_chunk::<4>().ok_or(Unreadable::Damaged)?;
        if crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
            return Err(Unreadable::Damaged);
        }
        let read = || {
            let (magic, rest) = covered.split_first_chunk::<8>()?;
            let (version, rest) = rest.split_first_chunk()?;
            let (purpose, rest) = rest.split_first_chunk()?;
            let (writer, rest) = rest.split_first_chunk()?;
            let (first, rest) = rest.split_first_chunk()?;
            let numbers = [*version, *purpose, *rest.first_chunk()?].map(u32::from_le_bytes);
            Some((*magic, numbers, Uuid::from_bytes(*writer), Sequence(u64::from_le_bytes(*first))))
        };
        let (magic, [version, purpose, records], writer, named) =
            read().ok_or(Unreadable::Damaged)?;
        if magic != MAGIC {
            return Err(Unreadable::Damaged);
        }
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        let purpose = match purpose {
            0 => Purpose::Records,
            1 => Purpose::Claim,
            _ => return Err(Unreadable::Damaged),
        };
        match named == first && first > Sequence(0) && records > 0 {
            true => Ok(Self { purpose, writer, first, records }),
            false => Err(Unreadable::Damaged),
        }
    }
}

/// The object whose first record is `first`.
pub(super) fn path_of(first: Sequence) -> Path {
    Path::from_iter([DIRECTORY, &format!("{:0width$}", first.0, width = NAME_DIGITS)])
}

/// The first record of an object; `None` if the name is not one of an object of the log.
pub(super) fn first_of(path: &Path) -> Option<Sequence> {
    let name = path.filename()?;
    let is_number = name.len() == NAME_DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
    let first = is_number.then(|| name.parse().ok()).flatten().map(Sequence)?;
    (first > Sequence(0)).then_some(first)
}

/// The next frame of an object: its payload, and what follows it. `None` if it is not the record `sequence`, whole.
pub(super) fn split_frame(
    frames: &Bytes,
    sequence: Sequence,
    salt: Salt,
) -> Option<(Bytes, Bytes)> {
    let header = FrameHeader::decode(frames, salt).filter(|header| header.sequence == sequence)?;
    let length = usize::try_from(header.length).ok()?;
    let end = FRAME_HEADER_BYTES.checked_add(length).filter(|end| *end <= frames.len())?;
    let payload = frames.slice(FRAME_HEADER_BYTES..end);
    (salt.checksum(&payload) == header.payload_checksum).then(|| (payload, frames.slice(end..)))
}

/// Appends the frame of a record; `durable` is the last one that is.
pub(super) fn push_frame(
    object: &mut BytesMut,
    sequence: Sequence,
    durable: Sequence,
    salt: Salt,
    parts: &[&[u8]],
) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    let payload_checksum = salt.checksum_parts(parts);
    let header = FrameHeader { length, payload_checksum, sequence, durable };
    object.extend_from_slice(&header.encode(salt));
    parts.iter().for_each(|part| object.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;
    use uuid::Uuid;

    use super::{Header, Purpose, Unreadable, first_of, path_of};
    use crate::wal::Sequence;

    fn header(purpose: Purpose) -> Header {
        Header { purpose, writer: Uuid::from_u128(7), first: Sequence(41), records: 3 }
    }

    #[test]
    fn headers_survive() {
        for purpose in [Purpose::Records, Purpose::Claim] {
            let header = header(purpose);
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes, Sequence(41)), Ok(header));
            assert_eq!(header.last(), Sequence(43));
            assert_eq!(Header::decode(&bytes, Sequence(42)), Err(Unreadable::Damaged), "its name");
            assert_eq!(Header::decode(&bytes[..47], Sequence(41)), Err(Unreadable::Damaged));
            for at in 0..bytes.len() {
                let mut damaged = bytes;
                damaged[at] ^= 1;
                assert_eq!(Header::decode(&damaged, Sequence(41)), Err(Unreadable::Damaged));
            }
        }
    }

    #[test]
    fn another_version_is_told() {
        let mut bytes = header(Purpose::Records).encode();
        bytes[8] = 2;
        let checksum = crc32c::crc32c(&bytes[0..44]);
        bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes, Sequence(41)), Err(Unreadable::Version(2)));
    }

    #[test]
    fn names_sort_as_numbers() {
        let numbers = [1, 9, 10, 99, 1_000_000, u64::MAX].map(Sequence);
        let paths = numbers.map(path_of);
        assert!(paths.is_sorted());
        assert_eq!(paths.map(|path| first_of(&path)), numbers.map(Some));
        for other in ["log/1", "log/00000000000000000000", "log/0000000000000000001x", "log"] {
            assert_eq!(first_of(&Path::from(other)), None, "{other}");
        }
        assert_eq!(first_of(&Path::from("log/99999999999999999999")), None, "larger than any");
    }
}
