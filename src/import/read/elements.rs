//! The elements of a JSON array, on as many lines as they like: of a whole file, or the `results` of an answer of an API.

use std::io::BufRead;
use std::mem;

use crate::read::rows::{ROW_MAX_BYTES, Rows};
use crate::refusal::{Cause, ReadError};

/// Where in the beginning of a file the elements of its array begin. `None` if it has no array at its top: then it has
/// values on lines.
pub(super) fn start(text: &[u8]) -> Option<usize> {
    let first = text.iter().position(|byte| !byte.is_ascii_whitespace())?;
    match text.get(first)? {
        b'[' => Some(first + 1),
        b'{' => results(text, first + 1),
        _ => None,
    }
}

/// Where the elements of the member `results` begin, in an object whose members begin at `from`.
fn results(text: &[u8], from: usize) -> Option<usize> {
    let (mut scan, mut key) = (Scan { depth: 1, ..Scan::default() }, Vec::new());
    let mut is_results = false;
    for (place, byte) in text.iter().enumerate().skip(from) {
        let was_in_text = scan.is_in_text;
        scan.step(*byte);
        match byte {
            _ if scan.depth == 0 => return None,
            b'[' if !was_in_text && scan.depth == 2 && is_results => return Some(place + 1),
            b':' if !was_in_text && scan.depth == 1 => is_results = key == b"results",
            b',' if !was_in_text && scan.depth == 1 => is_results = false,
            b'"' if scan.depth == 1 && !was_in_text => key.clear(),
            _ if scan.depth == 1 && scan.is_in_text => key.push(*byte),
            _ => {}
        }
    }
    None
}

/// How deep a scan of JSON is.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
}

impl Scan {
    fn step(&mut self, byte: u8) {
        if self.is_in_text {
            match byte {
                _ if mem::take(&mut self.is_escaped) => {}
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_text = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.is_in_text = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Reads the elements of an array, from behind its bracket to the next. What comes after the array is not read.
pub(super) fn read(reader: &mut dyn BufRead, rows: &mut Rows<'_, '_>) -> Result<(), ReadError> {
    let mut element = Element::default();
    let mut line: u64 = 1;
    loop {
        let buffer = reader.fill_buf().map_err(|error| rows.error(error))?;
        if buffer.is_empty() {
            let message = "the file ends within its array".to_owned();
            return Err(rows.error(Cause::Content(message)));
        }
        for byte in buffer {
            line = line.saturating_add(u64::from(*byte == b'\n'));
            match element.take(*byte, line) {
                Step::On => {}
                Step::End if element.pass(rows) => {}
                Step::Last => {
                    element.pass(rows);
                    return Ok(());
                }
                Step::End => return Ok(()),
            }
        }
        let used = buffer.len();
        reader.consume(used);
    }
}

enum Step {
    On,
    /// An element ends.
    End,
    /// The array ends.
    Last,
}

/// An element as it is read.
#[derive(Debug, Default)]
struct Element {
    scan: Scan,
    text: Vec<u8>,
    bytes: u64,
    line: u64,
}

impl Element {
    fn take(&mut self, byte: u8, line: u64) -> Step {
        let is_between = self.scan.depth == 0 && !self.scan.is_in_text;
        match byte {
            b',' if is_between => return Step::End,
            b']' if is_between => return Step::Last,
            _ if is_between && self.text.is_empty() && byte.is_ascii_whitespace() => {
                return Step::On;
            }
            _ => {}
        }
        if self.text.is_empty() {
            self.line = line;
        }
        self.scan.step(byte);
        self.bytes = self.bytes.saturating_add(1);
        if self.text.len() <= ROW_MAX_BYTES {
            self.text.push(byte);
        }
        Step::On
    }

    /// Passes the element on, if there is one. Whether there is to be another one.
    fn pass(&mut self, rows: &mut Rows<'_, '_>) -> bool {
        let bytes = mem::take(&mut self.bytes);
        let goes_on = match self.text.len() {
            0 => true,
            length if length > ROW_MAX_BYTES => rows.too_long(Some(self.line), &self.text, bytes),
            _ => rows.text(Some(self.line), &self.text),
        };
        self.text.clear();
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::start;

    #[test]
    fn arrays_are_found_at_the_top() {
        for (text, rest) in [
            (r#" [{"a":1}]"#, Some(r#"{"a":1}]"#)),
            (r#"{"next":null,"results":[{"a":1}]}"#, Some(r#"{"a":1}]}"#)),
            (r#"{"next":"[\"x", "deep":{"results":[1]}, "results" : [ 2]}"#, Some(" 2]}")),
            (r#"{"event":"results","properties":{"results":[1]}}"#, None),
            (r#"{"results":{"a":[1]}}"#, None),
            (r#"{"a":"results","b":[1]}"#, None),
            ("{}\n{\"results\":[1]}", None),
            ("x", None),
            ("", None),
        ] {
            let found = start(text.as_bytes()).map(|place| &text[place..]);
            assert_eq!(found, rest, "{text}");
        }
    }
}
