//! One JSON value a line.

use std::io::BufRead;

use memchr::memchr;

use crate::read::rows::{ROW_MAX_BYTES, Rows};
use crate::refusal::ReadError;

/// Reads lines. Empty ones are none; one that is too long is refused, and not kept in memory.
pub(super) fn read(reader: &mut dyn BufRead, rows: &mut Rows<'_, '_>) -> Result<(), ReadError> {
    // A line that does not lie in the reader's buffer as a whole.
    let mut pieces: Vec<u8> = Vec::new();
    let mut bytes: u64 = 0;
    let mut line: u64 = 1;
    loop {
        let buffer = reader.fill_buf().map_err(|error| rows.error(error))?;
        let is_end = buffer.is_empty();
        let end = memchr(b'\n', buffer);
        let piece = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        let used = piece.len() + usize::from(end.is_some());
        bytes = bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(0));
        let is_whole = pieces.is_empty() && end.is_some();
        if !is_whole {
            let room = ROW_MAX_BYTES.saturating_sub(pieces.len()).saturating_add(1);
            pieces.extend_from_slice(piece.get(..room).unwrap_or(piece));
        }
        if end.is_none() && !is_end {
            reader.consume(used);
            continue;
        }
        let text = if is_whole { piece } else { pieces.as_slice() };
        let goes_on = match text.len() > ROW_MAX_BYTES {
            true => rows.too_long(Some(line), text, bytes),
            false if text.iter().all(u8::is_ascii_whitespace) => true,
            false => rows.text(Some(line), text),
        };
        reader.consume(used);
        if is_end || !goes_on {
            return Ok(());
        }
        pieces.clear();
        (bytes, line) = (0, line.saturating_add(1));
    }
}
