//! CRC-32 checksums in the headers of Parquet pages, which the Parquet library verifies but does not write.
//!
//! The library passes each finished page to a [`PageStore`], first the header and then the data. The store
//! in this file ([`Pages`]) inserts the field `crc` of Parquet's `PageHeader` into the header, which makes
//! pages a few bytes longer than the library knows. [`spliced`] corrects the metadata of the column chunk.

use std::collections::VecDeque;
use std::io;
use std::io::Read;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use libdeflater::Crc;
use parking_lot::Mutex;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, PageKey, PageStore, PageStoreArgs, PageStoreFactory,
};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// `PageType::DICTIONARY_PAGE` in Thrift's zigzag encoding.
const DICTIONARY_PAGE: u64 = 2 << 1;

/// Thrift's compact encoding of the head of a field: an `i32` whose id is one above the last, and the
/// type of a struct.
const NEXT_I32: u8 = 0x15;
const STRUCT: u8 = 0x0c;

/// Factory of the page stores of a file; keeps a handle on each for [`PageStores::take`].
#[derive(Debug, Default)]
pub(super) struct PageStores {
    made: Mutex<Vec<SharedPages>>,
}

impl PageStores {
    /// The stores that were created since the last call, in the order of the columns.
    pub(super) fn take(&self) -> Vec<SharedPages> {
        std::mem::take(&mut *self.made.lock())
    }
}

impl PageStoreFactory for PageStores {
    fn create(&self, _column: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>, ParquetError> {
        let pages = SharedPages::default();
        self.made.lock().push(pages.clone());
        Ok(Box::new(pages))
    }
}

/// The pages of one column chunk: the writer of the column adds them, the writer of the file takes them.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedPages(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    /// A header whose data follows with the next call.
    header: Option<Bytes>,
    dictionary: Option<Page>,
    data: VecDeque<Page>,
    bytes: usize,
}

/// A page in the format of the file.
#[derive(Debug)]
struct Page {
    header: Bytes,
    data: Bytes,
}

impl Page {
    fn len(&self) -> usize {
        self.header.len() + self.data.len()
    }
}

impl PageStore for SharedPages {
    fn put(&mut self, bytes: Bytes) -> Result<PageKey, ParquetError> {
        let mut pages = self.0.lock();
        let Some(header) = pages.header.take() else {
            pages.header = Some(bytes);
            return Ok(PageKey::new(0));
        };
        let (header, page_type) = with_crc(&header, crc(&bytes)).ok_or_else(unknown_header)?;
        let page = Page { header: header.into(), data: bytes };
        pages.bytes += page.len();
        match page_type {
            DICTIONARY_PAGE => pages.dictionary = Some(page),
            _ => pages.data.push_back(page),
        }
        Ok(PageKey::new(0))
    }

    /// Not called: [`spliced`] writes the pages to the file.
    fn take(&mut self, _key: PageKey) -> Result<Bytes, ParquetError> {
        Err(ParquetError::General("pages with checksums are not taken one by one".to_owned()))
    }

    fn memory_size(&self) -> usize {
        self.0.lock().bytes
    }
}

fn unknown_header() -> ParquetError {
    ParquetError::General("the header of a page has no place for a checksum".to_owned())
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Inserts a checksum into the header of a page; also returns the page's type. The fields before the
/// checksum are required: type, uncompressed and compressed size. `None` for any other header.
fn with_crc(header: &[u8], crc: u32) -> Option<(Vec<u8>, u64)> {
    let (mut rest, mut page_type) = (header, None);
    for _ in 0..3 {
        rest = rest.strip_prefix(&[NEXT_I32])?;
        let (value, behind) = varint(rest)?;
        page_type = page_type.or(Some(value));
        rest = behind;
    }
    let fields = header.get(..header.len() - rest.len())?;
    let (next, behind) = rest.split_first()?;
    // Field ids are encoded as differences; the checksum comes between the previous and the next field.
    let distance = (next >> 4).checked_sub(1).filter(|distance| *distance > 0)?;
    if next & 0x0f != STRUCT {
        return None;
    }
    let mut with_crc = Vec::with_capacity(header.len() + 6);
    with_crc.extend_from_slice(fields);
    with_crc.push(NEXT_I32);
    put_varint(&mut with_crc, zigzag(crc));
    with_crc.push(distance << 4 | STRUCT);
    with_crc.extend_from_slice(behind);
    Some((with_crc, page_type?))
}

/// The bits of a checksum as an `i32` in Thrift's zigzag encoding.
fn zigzag(crc: u32) -> u32 {
    let sign = if crc >> 31 == 1 { u32::MAX } else { 0 };
    crc << 1 ^ sign
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut shift) = (0_u64, 0_u32);
    for (at, byte) in bytes.iter().enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
        shift += 7;
    }
    None
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// The arguments of `SerializedRowGroupWriter::append_column`: the bytes of a column chunk, which can be
/// read once, and its metadata with offsets from the start of a file.
pub(super) fn spliced(
    mut chunk: ArrowColumnChunk,
    pages: &SharedPages,
) -> Result<(Chunk, ColumnCloseResult), ParquetError> {
    let bloom_filter = chunk.close_mut().bloom_filter.take();
    let mut close = chunk.close().clone();
    close.bloom_filter = bloom_filter;
    drop(chunk);
    let pages = std::mem::take(&mut *pages.0.lock());
    let len = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let data_offset = len(pages.dictionary.as_ref().map_or(0, Page::len));
    let grown = len(pages.bytes) - close.metadata.compressed_size();
    close.bytes_written = close.bytes_written.saturating_add_signed(grown);
    if let Some(index) = &mut close.offset_index {
        let mut offset = data_offset;
        for (location, page) in index.page_locations.iter_mut().zip(&pages.data) {
            location.offset = offset;
            location.compressed_page_size = i32::try_from(page.len())?;
            offset += len(page.len());
        }
    }
    let unpacked = close.metadata.uncompressed_size() + grown;
    close.metadata = close
        .metadata
        .into_builder()
        .set_total_compressed_size(len(pages.bytes))
        .set_total_uncompressed_size(unpacked)
        .set_dictionary_page_offset(pages.dictionary.as_ref().map(|_| 0))
        .set_data_page_offset(data_offset)
        .build()?;
    let pieces = pages.dictionary.into_iter().chain(pages.data);
    let pieces: VecDeque<Bytes> = pieces.flat_map(|page| [page.header, page.data]).collect();
    Ok((Chunk { bytes: pages.bytes, pieces: Mutex::new(pieces) }, close))
}

/// A column chunk that is being written to a file.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: usize,
    pieces: Mutex<VecDeque<Bytes>>,
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }
}

impl ChunkReader for Chunk {
    type T = Pieces;

    fn get_read(&self, _start: u64) -> Result<Pieces, ParquetError> {
        Ok(Pieces(std::mem::take(&mut *self.pieces.lock())))
    }

    fn get_bytes(&self, _start: u64, _length: usize) -> Result<Bytes, ParquetError> {
        Err(ParquetError::General("a chunk is read from its beginning to its end".to_owned()))
    }
}

/// Reader of pages one after the other, which frees each page after it is read.
#[derive(Debug)]
pub(super) struct Pieces(VecDeque<Bytes>);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        let Some(piece) = self.0.front_mut() else { return Ok(0) };
        piece.reader().read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::{crc, with_crc, zigzag};

    /// CRC-32 of the check input of the standard (ITU-T V.42), and zigzag examples of Thrift's specification.
    #[test]
    fn checksums_are_those_of_the_specifications() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        for (bits, encoded) in [(0, 0), (u32::MAX, 1), (1, 2), (0x7fff_ffff, u32::MAX - 1)] {
            assert_eq!(zigzag(bits), encoded);
        }
    }

    #[test]
    fn a_header_gets_its_checksum_between_its_fields() {
        // DATA_PAGE, 300 bytes, 5 bytes packed, `data_page_header` (field 5) with one field.
        let data = [0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x0a, 0x2c, 0x15, 0x02, 0x00, 0x00];
        let expected =
            [0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x0a, 0x15, 0x06, 0x1c, 0x15, 0x02, 0x00, 0x00];
        assert_eq!(with_crc(&data, 3), Some((expected.to_vec(), 0)));
        // DICTIONARY_PAGE, `dictionary_page_header` is field 7.
        let dictionary = [0x15, 0x04, 0x15, 0x02, 0x15, 0x02, 0x4c, 0x00, 0x00];
        let expected = [0x15, 0x04, 0x15, 0x02, 0x15, 0x02, 0x15, 0x01, 0x3c, 0x00, 0x00];
        assert_eq!(with_crc(&dictionary, u32::MAX), Some((expected.to_vec(), 4)));
        // A header that has a checksum already, and one that is cut.
        assert_eq!(with_crc(&expected, 3), None);
        assert_eq!(with_crc(&data[..7], 3), None);
    }
}
