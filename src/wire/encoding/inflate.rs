//! Decompression with an output limit. Every output goes through [`Output`], which cannot exceed it.

use std::io::Read;

use flate2::{Decompress, FlushDecompress, Status};

use crate::encoding::error::DecodeError;
use crate::encoding::hints::Coding;
use crate::encoding::text::PADDING_BYTES;
use crate::encoding::{lz64, text};

/// Smallest initial output buffer.
const OUTPUT_MIN_BYTES: usize = 16 * 1024;

/// Deflate's best ratio: 258 bytes for two bits. Source: zlib's technical notes, "Maximum compression
/// factor". A trailer that states more is wrong, whatever the limit.
const DEFLATE_RATIO_MAX: usize = 1032;

/// Limit of members in one gzip body. Each needs a new state of about 40 kB; bgzip writes one per 64 kB.
const GZIP_MEMBERS_MAX: usize = 4096;

/// A header of ten bytes, at least one of deflate, a trailer of eight (RFC 1952).
const GZIP_MEMBER_MIN_BYTES: usize = 18;

/// Largest zstd window, as a power of two: 8 MiB, what RFC 9659 allows in HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Size of the buffer between a brotli stream and its decoder.
const BROTLI_BUFFER_BYTES: usize = 4096;

/// The coding by its magic number. No JSON, base64 or form begins with any of these.
pub(super) fn coding_of_magic(bytes: &[u8]) -> Option<Coding> {
    match bytes {
        [0x1F, 0x8B, 0x08, ..] => Some(Coding::Gzip),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Some(Coding::Zstd),
        [0x04, 0x22, 0x4D, 0x18, ..] => Some(Coding::Lz4),
        _ => None,
    }
}

/// Whether the first bytes are the magic number of a coding.
pub(super) fn is_compressed(bytes: &[u8]) -> bool {
    coding_of_magic(bytes).is_some()
}

/// Removes one layer of any coding; reuses state that is expensive to create.
#[derive(Default)]
pub(super) struct Inflater {
    /// Created for the first body that needs it: most bodies of small requests are plain.
    gzip: Option<libdeflater::Decompressor>,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    /// Decodes one layer of `coding`, to at most `limit_bytes`.
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooLarge`] with this call's limit, [`DecodeError::Malformed`] if `packed` is not
    /// valid in `coding`, [`DecodeError::Unsupported`] for [`Coding::Unknown`].
    pub(super) fn undo(
        &mut self,
        coding: Coding,
        packed: &[u8],
        limit_bytes: u64,
    ) -> Result<Vec<u8>, DecodeError> {
        match coding {
            Coding::Gzip => self.gunzip(packed, limit_bytes),
            Coding::Deflate => inflate_deflate(packed, limit_bytes),
            Coding::Zstd => inflate_zstd(packed, limit_bytes),
            Coding::Brotli => inflate_brotli(packed, limit_bytes),
            Coding::Lz4 => inflate_lz4(packed, limit_bytes),
            Coding::Lz64 => lz64::decompress(packed, limit_bytes),
            Coding::Base64 => text::decode_announced_base64(packed),
            Coding::Unknown => Err(DecodeError::Unsupported),
        }
    }

    /// Decodes gzip in one call if the trailer has the size of the output, else as a stream.
    fn gunzip(&mut self, packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
        let Some(size_bytes) = plausible_size(packed, limit_bytes) else {
            return gunzip_stream(packed, limit_bytes);
        };
        let mut output = vec![0; size_bytes.saturating_add(PADDING_BYTES)];
        let gzip = self.gzip.get_or_insert_default();
        match gzip.gzip_decompress(packed, &mut output) {
            Ok(written) if written == size_bytes => {
                output.truncate(written);
                Ok(output)
            }
            Err(libdeflater::DecompressionError::BadData) => Err(INVALID_GZIP),
            // Garbage after the member, so the last four bytes are not a size.
            Ok(_) | Err(libdeflater::DecompressionError::InsufficientSpace) => {
                gunzip_stream(packed, limit_bytes)
            }
        }
    }
}

const INVALID_GZIP: DecodeError = DecodeError::Malformed("invalid GZIP data");

/// The size in the trailer of a gzip body, if it can be the size of the whole output: within the limit,
/// within deflate's ratio, and without a sign of a second member.
fn plausible_size(packed: &[u8], limit_bytes: u64) -> Option<usize> {
    let size = usize::try_from(u32::from_le_bytes(*packed.last_chunk()?)).ok()?;
    let within_limit = u64::try_from(size).ok()? <= limit_bytes;
    let within_ratio = size <= packed.len().saturating_mul(DEFLATE_RATIO_MAX);
    (size > 0 && within_limit && within_ratio && !may_have_second_member(packed)).then_some(size)
}

/// Whether the start of another gzip member occurs in `packed`. Libdeflate silently stops after the
/// first member, and two members of the same size have a trailer that fits: only this distinguishes
/// them from one. A false alarm (1 of 170 bodies of 100 kB) costs the slower path, not the result.
fn may_have_second_member(packed: &[u8]) -> bool {
    let after = |offset| packed.get(GZIP_MEMBER_MIN_BYTES + offset..).unwrap_or_default();
    let windows = after(0).iter().zip(after(1)).zip(after(2));
    // No early exit and no branches, so that the compiler can vectorise it.
    windows.fold(false, |found, ((first, second), third)| {
        found | ((*first == 0x1F) & (*second == 0x8B) & (*third == 0x08))
    })
}

/// Decodes gzip with any number of members. Bytes after the last member are ignored, as in gzip itself.
fn gunzip_stream(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    let mut output = Output::new(packed.len(), limit_bytes);
    let mut rest = packed;
    for _ in 0..GZIP_MEMBERS_MAX {
        let consumed = inflate_stream(Decompress::new_gzip(15), rest, &mut output, INVALID_GZIP)?;
        rest = rest.get(consumed..).unwrap_or_default();
        if coding_of_magic(rest) != Some(Coding::Gzip) {
            return Ok(output.finish());
        }
    }
    Err(DecodeError::Malformed("too many gzip members"))
}

/// Decodes zlib or raw deflate. RFC 9110 requires zlib; many clients send raw deflate.
fn inflate_deflate(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    // RFC 1950: method 8, and the two bytes are a multiple of 31. No raw stream of an encoder begins
    // so: it would be a stored block with a padding bit that is not zero.
    let is_zlib = packed.first_chunk().is_some_and(|header: &[u8; 2]| {
        header[0] & 0x0F == 8 && u16::from_be_bytes(*header).is_multiple_of(31)
    });
    let mut output = Output::new(packed.len(), limit_bytes);
    let malformed = DecodeError::Malformed("invalid deflate data");
    inflate_stream(Decompress::new(is_zlib), packed, &mut output, malformed)?;
    Ok(output.finish())
}

/// Runs `state` to the end of its stream; returns how many bytes of `packed` it consumed.
fn inflate_stream(
    mut state: Decompress,
    packed: &[u8],
    output: &mut Output,
    malformed: DecodeError,
) -> Result<usize, DecodeError> {
    loop {
        output.make_room()?;
        let consumed_before = state.total_in();
        let written_before = state.total_out();
        let rest =
            usize::try_from(consumed_before).ok().and_then(|consumed| packed.get(consumed..));
        let rest = rest.unwrap_or_default();
        let status = state.decompress_vec(rest, &mut output.bytes, FlushDecompress::None);
        output.check()?;
        match status {
            Ok(Status::StreamEnd) => {
                return usize::try_from(state.total_in()).map_err(|_| malformed);
            }
            Ok(_) if state.total_in() > consumed_before || state.total_out() > written_before => {}
            // No progress although there is space: the stream is truncated.
            Ok(_) | Err(_) => return Err(malformed),
        }
    }
}

fn inflate_zstd(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    const INVALID: &str = "invalid zstd data";
    let malformed = |_| DecodeError::Malformed(INVALID);
    let mut reader = zstd::stream::read::Decoder::with_buffer(packed).map_err(malformed)?;
    reader.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(malformed)?;
    read_all(reader, Output::new(packed.len(), limit_bytes), INVALID)
}

fn inflate_brotli(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    const INVALID: &str = "invalid brotli data";
    // RFC 7932, 9.1: this pattern "must not be used". The decoder treats it as an extension and would
    // allocate windows of up to 1 GiB; without it a window has at most 16 MiB.
    let large_window = packed.first().is_none_or(|first| first & 0x7F == 0x11);
    if large_window {
        return Err(DecodeError::Malformed(INVALID));
    }
    let reader = brotli::Decompressor::new(packed, BROTLI_BUFFER_BYTES);
    read_all(reader, Output::new(packed.len(), limit_bytes), INVALID)
}

fn inflate_lz4(packed: &[u8], limit_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    // The decoder treats empty input as the end of a stream, not as an error.
    if coding_of_magic(packed) != Some(Coding::Lz4) {
        return Err(DecodeError::Malformed("invalid lz4 data"));
    }
    let reader = lz4_flex::frame::FrameDecoder::new(packed);
    read_all(reader, Output::new(packed.len(), limit_bytes), "invalid lz4 data")
}

/// Reads `reader` to its end.
fn read_all(
    mut reader: impl Read,
    mut output: Output,
    malformed: &'static str,
) -> Result<Vec<u8>, DecodeError> {
    loop {
        let room = u64::try_from(output.make_room()?).unwrap_or(u64::MAX);
        // Limited to the spare capacity, so that `read_to_end` does not grow the vector.
        let read = reader.by_ref().take(room).read_to_end(&mut output.bytes);
        output.check()?;
        if read.map_err(|_| DecodeError::Malformed(malformed))? == 0 {
            return Ok(output.finish());
        }
    }
}

/// A vector with a limit: its capacity is at most the limit and some padding.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    limit_bytes: u64,
    limit: usize,
}

impl Output {
    /// An empty output for `packed_bytes` of input.
    pub(super) fn new(packed_bytes: usize, limit_bytes: u64) -> Self {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        let mut output = Self { bytes: Vec::new(), limit_bytes, limit };
        // JSON of events compresses to a quarter or less.
        output.grow(packed_bytes.saturating_mul(4));
        output
    }

    /// Ensures spare capacity for at least one byte, or fails if the limit is exceeded already. Returns the
    /// spare capacity. It may exceed the limit by the padding, so that reading one byte too many
    /// distinguishes "too large" from "exactly full".
    pub(super) fn make_room(&mut self) -> Result<usize, DecodeError> {
        self.check()?;
        if self.bytes.len() == self.bytes.capacity() {
            self.grow(self.bytes.len().saturating_mul(2));
        }
        Ok(self.bytes.capacity().saturating_sub(self.bytes.len()))
    }

    /// Ensures spare capacity for `more` bytes, or fails if they would exceed the limit.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), DecodeError> {
        let needed = self.bytes.len().saturating_add(more);
        if needed > self.limit {
            return Err(DecodeError::TooLarge { limit_bytes: self.limit_bytes });
        }
        if needed > self.bytes.capacity() {
            self.grow(needed.max(self.bytes.len().saturating_mul(2)));
        }
        Ok(())
    }

    /// Fails if the limit is exceeded.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        if self.bytes.len() > self.limit {
            return Err(DecodeError::TooLarge { limit_bytes: self.limit_bytes });
        }
        Ok(())
    }

    /// Returns the bytes, with spare capacity for the padding.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.reserve_exact(PADDING_BYTES);
        self.bytes
    }

    fn grow(&mut self, capacity: usize) {
        let capacity = capacity.max(OUTPUT_MIN_BYTES).min(self.limit).saturating_add(PADDING_BYTES);
        self.bytes.reserve_exact(capacity.saturating_sub(self.bytes.len()));
    }
}
