//! Compressions and archives, recognized by their first bytes whatever the name of the file: gzip, zstd, zip and Parquet,
//! and each within the others.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flate2::bufread::MultiGzDecoder;
use zip::ZipArchive;

use crate::files::Input;
use crate::read::budget::{Counted, Inflated};
use crate::read::rows::{Formats, Rows};
use crate::read::{elements, lines, parquet, table};
use crate::refusal::{Cause, ReadError};

/// Buffer of each layer.
const BUFFER_BYTES: usize = 256 << 10;
/// Layers of compression and archives within each other.
const LAYERS_MAX: usize = 4;
/// Memory that zstd may ask for, as a power of two: what its own program decompresses without a flag.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gzip,
    Zstd,
    Zip,
    Parquet,
    Text,
}

impl Kind {
    fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Self::Zip,
            [b'P', b'A', b'R', b'1', ..] => Self::Parquet,
            _ => Self::Text,
        }
    }
}

/// Opens a file and reads its rows.
pub(super) fn open(
    input: &Input,
    read_bytes: &Arc<AtomicU64>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), ReadError> {
    match input {
        Input::Standard => {
            let counted = Counted::new(io::stdin().lock(), read_bytes);
            stream(Box::new(BufReader::with_capacity(BUFFER_BYTES, counted)), read_bytes, rows, 0)
        }
        Input::File(path) => {
            let file = File::open(path).map_err(|error| rows.error(error))?;
            seekable(file, read_bytes, rows, 0)
        }
    }
}

/// Reads a file, of which any part can be read.
fn seekable(
    mut file: File,
    read_bytes: &Arc<AtomicU64>,
    rows: &mut Rows<'_, '_>,
    layer: usize,
) -> Result<(), ReadError> {
    let start = start_of(&mut file).map_err(|error| rows.error(error))?;
    match Kind::of(&start) {
        Kind::Parquet => parquet::read(file, read_bytes, rows),
        Kind::Zip => archive(file, read_bytes, rows, layer),
        Kind::Gzip | Kind::Zstd | Kind::Text => {
            let counted = Counted::new(file, read_bytes);
            let reader = BufReader::with_capacity(BUFFER_BYTES, counted);
            stream(Box::new(reader), read_bytes, rows, layer)
        }
    }
}

fn start_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    Read::by_ref(file).take(4).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Reads what can only be read from its beginning on.
fn stream(
    mut reader: Box<dyn BufRead + '_>,
    read_bytes: &Arc<AtomicU64>,
    rows: &mut Rows<'_, '_>,
    layer: usize,
) -> Result<(), ReadError> {
    if layer >= LAYERS_MAX {
        let message = format!("more than {LAYERS_MAX} layers of compression");
        return Err(rows.error(Cause::Content(message)));
    }
    let start = reader.fill_buf().map_err(|error| rows.error(error))?;
    match Kind::of(start) {
        Kind::Gzip => inflate(MultiGzDecoder::new(reader), read_bytes, rows, layer),
        Kind::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(reader);
            let limited = decoder.and_then(|mut decoder| {
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Ok(decoder)
            });
            inflate(limited.map_err(|error| rows.error(error))?, read_bytes, rows, layer)
        }
        Kind::Zip | Kind::Parquet => {
            // Both have to be read from their ends.
            let mut spooled = tempfile::tempfile().map_err(|error| rows.error(error))?;
            let copied = io::copy(&mut reader, &mut spooled).and_then(|_| spooled.rewind());
            copied.map_err(|error| rows.error(error))?;
            seekable(spooled, &Arc::new(AtomicU64::new(0)), rows, layer + 1)
        }
        Kind::Text => text(reader, rows),
    }
}

fn inflate(
    decoder: impl Read,
    read_bytes: &Arc<AtomicU64>,
    rows: &mut Rows<'_, '_>,
    layer: usize,
) -> Result<(), ReadError> {
    let limited = Inflated::new(decoder, read_bytes);
    stream(Box::new(BufReader::with_capacity(BUFFER_BYTES, limited)), read_bytes, rows, layer + 1)
}

/// Reads all members of a zip archive, by their names.
fn archive(
    file: File,
    read_bytes: &Arc<AtomicU64>,
    rows: &mut Rows<'_, '_>,
    layer: usize,
) -> Result<(), ReadError> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, Counted::new(file, read_bytes));
    let mut archive = ZipArchive::new(reader).map_err(|error| rows.error(error))?;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let name = archive.name_for_index(index).transpose();
        let name = name.map_err(|error| rows.error(error))?.unwrap_or_default().into_owned();
        if is_data(&name) {
            members.push((name, index));
        }
    }
    members.sort();
    let outer = rows.member.clone();
    for (name, index) in members {
        rows.member = if outer.is_empty() { name } else { format!("{outer}/{name}") };
        let member = archive.by_index(index).map_err(|error| rows.error(error))?;
        let limited = Inflated::new(member, read_bytes);
        let reader = BufReader::with_capacity(BUFFER_BYTES, limited);
        stream(Box::new(reader), read_bytes, rows, layer + 1)?;
        if rows.is_over {
            break;
        }
    }
    rows.member = outer;
    Ok(())
}

/// Whether a member of an archive has rows: not a directory, and not what other programs leave.
fn is_data(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    !file.is_empty()
        && !file.starts_with('.')
        && !name.starts_with("__MACOSX/")
        && !file.ends_with("manifest.json")
}

/// Reads text: JSON or CSV.
fn text(mut reader: Box<dyn BufRead + '_>, rows: &mut Rows<'_, '_>) -> Result<(), ReadError> {
    let start = reader.fill_buf().map_err(|error| rows.error(error))?;
    let mark = if start.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
    reader.consume(mark);
    let start = reader.fill_buf().map_err(|error| rows.error(error))?;
    if start.is_empty() {
        return Ok(());
    }
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = matches!(first, Some(b'{' | b'['));
    match rows.wanted.formats {
        Formats::Csv if !is_json => table::read(reader, rows),
        Formats::Any if !is_json => table::read(reader, rows),
        _ => match elements::start(start) {
            Some(skipped) => {
                reader.consume(skipped);
                elements::read(&mut *reader, rows)
            }
            None => lines::read(&mut *reader, rows),
        },
    }
}
