//! Byte format of the log: segment header and frame header. No files here.
//!
//! All numbers are little endian; checksums are CRC-32C (Castagnoli, as in iSCSI, RFC 3720).
//!
//! A segment starts with two copies of its header, each in a page of its own, so that no single damaged
//! sector makes the frames unreadable. These 36 bytes are the same in every version:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `weir.wal` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | zero |
//! | 16 | 8 | salt, different for each segment |
//! | 24 | 8 | first: sequence of the first frame |
//! | 32 | 4 | CRC-32C of bytes 0 to 31 |
//! | 4096 | 36 | second copy |
//! | 8192 | | frames without gaps; then zeros to the end of the file |
//!
//! A frame:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `n`: payload length |
//! | 4 | 4 | CRC-32C of the salt and the payload |
//! | 8 | 8 | sequence: that of the frame before it plus 1 |
//! | 16 | 8 | durable: the last sequence that had been synced when the frame was written |
//! | 24 | 4 | CRC-32C of the salt and bytes 0 to 23 |
//! | 28 | `n` | payload |
//!
//! The salt keeps frames of a previous file in the same disk blocks from being taken for frames of this
//! segment (as in `RocksDB`'s recyclable log and `SQLite`'s WAL). The header has a separate checksum, so
//! that a damaged payload does not hide the frames after it.

use crate::wal::Sequence;

/// Size of one copy of the segment header.
const SEGMENT_HEADER_BYTES: usize = 36;

/// Distance between the copies of the segment header: a page, the largest sector in use.
const COPY_DISTANCE_BYTES: usize = 4096;

/// Offset of the first frame.
pub(super) const FRAMES_START: u64 = 8192;

/// Both copies of the segment header with the zeros around them.
pub(super) const PREFIX_BYTES: usize = 2 * COPY_DISTANCE_BYTES;

/// Size of the frame header.
pub(crate) const FRAME_HEADER_BYTES: usize = 28;

/// Longest payload. Far above the default limit of a body (100 MiB decoded), and far below the maximum of the
/// length field, so that a wrong length is rejected before it is written to disk.
pub(crate) const PAYLOAD_MAX_BYTES: u32 = 1 << 30;

/// Newest format version that this program reads, and the one that it writes.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"weir.wal";

/// Decoded segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) salt: u64,
    pub(super) first: Sequence,
}

/// State of the two copies of a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    /// Both are valid and agree.
    Valid(SegmentHeader),
    /// One is valid.
    Damaged(SegmentHeader),
    /// None is valid: an interrupted creation, or damage.
    Invalid,
    /// A valid header of an unknown version.
    Version(u32),
}

impl SegmentHeader {
    /// The first [`PREFIX_BYTES`] of a segment.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(PREFIX_BYTES);
        copy.extend(MAGIC);
        copy.extend(VERSION.to_le_bytes());
        copy.extend([0; 4]);
        copy.extend(self.salt.to_le_bytes());
        copy.extend(self.first.0.to_le_bytes());
        copy.extend(crc32c::crc32c(&copy).to_le_bytes());
        copy.resize(COPY_DISTANCE_BYTES, 0);
        copy.extend_from_within(..);
        copy
    }

    /// Reads one copy, and its version.
    fn decode(copy: &[u8]) -> Option<(u32, Self)> {
        let copy: &[u8; SEGMENT_HEADER_BYTES] = copy.first_chunk()?;
        let (covered, checksum) = copy.split_last_chunk::<4>()?;
        let (magic, rest) = covered.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (_zero, rest) = rest.split_first_chunk::<4>()?;
        let (salt, rest) = rest.split_first_chunk()?;
        let first = rest.first_chunk()?;
        if *magic != MAGIC || crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let first = Sequence(u64::from_le_bytes(*first));
        let header = Self { salt: u64::from_le_bytes(*salt), first };
        Some((u32::from_le_bytes(*version), header))
    }
}

impl Prefix {
    /// Reads the start of the segment that should begin with `first`; `bytes` may be short.
    pub(super) fn decode(bytes: &[u8], first: Sequence) -> Self {
        let copies = [bytes, bytes.get(COPY_DISTANCE_BYTES..).unwrap_or_default()];
        let valid = copies.map(|copy| {
            // A header with another first sequence belongs to another file.
            SegmentHeader::decode(copy).filter(|(_, header)| header.first == first)
        });
        match valid {
            [Some((version, _)), _] | [None, Some((version, _))] if version != VERSION => {
                Self::Version(version)
            }
            [Some((_, header)), Some((_, copy))] if header == copy => Self::Valid(header),
            [Some((_, header)), _] | [None, Some((_, header))] => Self::Damaged(header),
            [None, None] => Self::Invalid,
        }
    }
}

/// Decoded frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Length of the payload.
    pub(crate) length: u32,
    /// Checksum of the payload.
    pub(crate) payload_checksum: u32,
    pub(crate) sequence: Sequence,
    /// The last sequence that had been synced when this frame was written.
    pub(crate) durable: Sequence,
}

impl FrameHeader {
    pub(crate) fn encode(self, salt: Salt) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload_checksum.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.0.to_le_bytes());
        let checksum = salt.checksum(&bytes[0..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if `bytes` do not start with a frame header of this segment. Zeros are no header.
    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Option<Self> {
        let bytes: &[u8; FRAME_HEADER_BYTES] = bytes.first_chunk()?;
        let (covered, checksum) = bytes.split_last_chunk::<4>()?;
        let (length, rest) = covered.split_first_chunk()?;
        let (payload_checksum, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let durable = rest.first_chunk()?;
        let header = Self {
            length: u32::from_le_bytes(*length),
            payload_checksum: u32::from_le_bytes(*payload_checksum),
            sequence: Sequence(u64::from_le_bytes(*sequence)),
            durable: Sequence(u64::from_le_bytes(*durable)),
        };
        // `durable < sequence` holds for every frame, and rejects zeros even for the one salt in 2^32 for
        // which their checksum is zero.
        let is_valid = header.durable < header.sequence
            && header.length <= PAYLOAD_MAX_BYTES
            && salt.checksum(covered) == u32::from_le_bytes(*checksum);
        is_valid.then_some(header)
    }

    /// The sequence field of a possible frame header: a cheap test before [`Self::decode`].
    pub(super) fn sequence_at(bytes: &[u8]) -> Option<Sequence> {
        Some(Sequence(u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?)))
    }

    /// Size of header and payload.
    pub(super) fn frame_bytes(self) -> u64 {
        frame_bytes(self.length)
    }
}

/// Size of a frame whose payload has `length` bytes.
pub(crate) fn frame_bytes(length: u32) -> u64 {
    u64::from(length) + FRAME_HEADER_BYTES as u64
}

/// The checksum of a segment's salt, the initial value of every checksum of its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salt(u32);

impl Salt {
    pub(crate) fn new(salt: u64) -> Self {
        Self(crc32c::crc32c(&salt.to_le_bytes()))
    }

    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.0, bytes)
    }

    /// The checksum of the concatenation of `parts`.
    pub(crate) fn checksum_parts(self, parts: &[&[u8]]) -> u32 {
        parts.iter().fold(self.0, |checksum, part| crc32c::crc32c_append(checksum, part))
    }
}
