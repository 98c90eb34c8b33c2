//! Salvages the readable events of a body that is not valid JSON as a whole: [`salvage`].
//!
//! One event that is nested too deeply, or was built from a text template, must not cost the other
//! events of its batch. A scanner follows the outer structure by brackets and quotes alone. Each event
//! is then given to the parser on its own, and those that it rejects are left out. Nothing is
//! stored from the scan alone: the remaining text is parsed like any other body.

use std::ops::Range;

/// A body without its unreadable events.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// The rest, with at least one event.
    pub(super) body: Vec<u8>,
    /// Events left out; at least one.
    pub(super) unreadable: u64,
}

/// Removes what `is_json` rejects from an array of events, or from the `batch` of an envelope (and other
/// members of the envelope that it rejects). `is_json` gets documents in which the event is nested as
/// deeply as in the body.
///
/// `None` if the outer structure is broken, or if no event, or every event, would be left out.
pub(super) fn salvage(body: &[u8], is_json: impl FnMut(&[u8]) -> bool) -> Option<Salvaged> {
    let mut sieve =
        Sieve { scan: Scan { text: body, at: 0 }, is_json, out: Vec::new(), kept: 0, refused: 0 };
    match sieve.scan.peek()? {
        b'[' => sieve.events(Nesting::Array)?,
        b'{' => sieve.envelope()?,
        _ => return None,
    }
    let is_at_end = sieve.scan.peek().is_none();
    let is_useful = sieve.kept > 0 && sieve.refused > 0;
    (is_at_end && is_useful).then_some(Salvaged { body: sieve.out, unreadable: sieve.refused })
}

/// The containers around an event.
#[derive(Clone, Copy)]
enum Nesting {
    /// The array that is the whole body.
    Array,
    /// The `batch` array of the envelope.
    Envelope,
}

impl Nesting {
    fn brackets(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Array => (b"[", b"]"),
            Self::Envelope => (b"[[", b"]]"),
        }
    }
}

/// Copies the readable parts of a body.
struct Sieve<'text, F> {
    scan: Scan<'text>,
    is_json: F,
    out: Vec<u8>,
    kept: u64,
    refused: u64,
}

impl<F: FnMut(&[u8]) -> bool> Sieve<'_, F> {
    /// Reads the array of events at the scanner's position.
    fn events(&mut self, nesting: Nesting) -> Option<()> {
        self.scan.take(b'[')?;
        self.out.push(b'[');
        let mut is_first = true;
        while self.scan.member(b']', &mut is_first)? {
            let event = self.scan.value()?;
            if self.is_readable(event.clone(), nesting) {
                self.copy(event);
                self.kept += 1;
            } else {
                self.refused += 1;
            }
        }
        self.close(b']');
        Some(())
    }

    /// Reads the object with a `batch` at the scanner's position.
    fn envelope(&mut self) -> Option<()> {
        self.scan.take(b'{')?;
        self.out.push(b'{');
        let mut is_first = true;
        while self.scan.member(b'}', &mut is_first)? {
            let key = self.scan.string()?;
            self.scan.take(b':')?;
            let start = self.scan.start()?;
            if is_batch(self.scan.text.get(key.clone())?) && self.scan.peek() == Some(b'[') {
                self.out.extend_from_slice(self.scan.text.get(key.start..start)?);
                self.events(Nesting::Envelope)?;
                self.out.push(b',');
                continue;
            }
            let value = self.scan.value()?;
            if is_json_text(self.scan.text.get(key.clone())?)
                && self.is_readable(value.clone(), Nesting::Array)
            {
                self.copy(key.start..value.end);
            }
        }
        self.close(b'}');
        Some(())
    }

    fn is_readable(&mut self, value: Range<usize>, nesting: Nesting) -> bool {
        let (before, after) = nesting.brackets();
        let text = self.scan.text.get(value).unwrap_or_default();
        (self.is_json)(&[before, text, after].concat())
    }

    /// Copies a member and a comma.
    fn copy(&mut self, member: Range<usize>) {
        self.out.extend_from_slice(self.scan.text.get(member).unwrap_or_default());
        self.out.push(b',');
    }

    /// Writes the closing bracket in place of the last comma.
    fn close(&mut self, bracket: u8) {
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
        self.out.push(bracket);
    }
}

fn is_json_text(key: &[u8]) -> bool {
    serde_json::from_slice::<String>(key).is_ok()
}

fn is_batch(key: &[u8]) -> bool {
    serde_json::from_slice::<String>(key).is_ok_and(|key| key == "batch")
}

/// A scanner over text that may not be valid JSON.
struct Scan<'text> {
    text: &'text [u8],
    at: usize,
}

impl Scan<'_> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    /// Position of the next value.
    fn start(&mut self) -> Option<usize> {
        self.peek()?;
        Some(self.at)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then_some(())?;
        self.at += 1;
        Some(())
    }

    /// Steps to the next member of a container, over its comma. Returns `false` at the container's end.
    fn member(&mut self, closing: u8, is_first: &mut bool) -> Option<bool> {
        if self.peek()? == closing {
            self.at += 1;
            return Some(false);
        }
        if !std::mem::take(is_first) {
            self.take(b',')?;
        }
        Some(true)
    }

    /// Steps over a string, quotes included.
    fn string(&mut self) -> Option<Range<usize>> {
        self.take(b'"')?;
        let start = self.at - 1;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(start..self.at)
    }

    /// Steps over one value, up to the comma or bracket after it. Brackets are counted, not matched: text
    /// in which they do not match is not JSON, and the parser rejects it.
    fn value(&mut self) -> Option<Range<usize>> {
        let start = self.start()?;
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b',' if depth == 0 => break,
                b']' | b'}' if depth == 0 => break,
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        let value = self.text.get(start..self.at)?.trim_ascii_end();
        (!value.is_empty()).then_some(start..start + value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Salvaged, salvage};

    fn is_json(text: &[u8]) -> bool {
        serde_json::from_slice::<serde_json::Value>(text).is_ok()
    }

    #[test]
    fn what_is_readable_is_kept() {
        for (body, expected, unreadable) in [
            ("[1,01,2]", "[1,2]", 1),
            ("[None, {\"a\":\"]},[\\\"\"} ,{\"a\":[}},3]", "[{\"a\":\"]},[\\\"\"},3]", 2),
            (
                "{\"batch\" : [{\"a\":1}, {\"b\":'x'}, {\"c\":3}], \"api_key\":\"k\"}",
                "{\"batch\" : [{\"a\":1},{\"c\":3}],\"api_key\":\"k\"}",
                1,
            ),
            (
                "{\"b\\u0061tch\":[{},{[}},4],\"sent_at\":01,\"token\":\"t\"}",
                "{\"b\\u0061tch\":[{},4],\"token\":\"t\"}",
                1,
            ),
            ("{\"token\":\"t\",\"batch\":[{,},5]}", "{\"token\":\"t\",\"batch\":[5]}", 1),
        ] {
            let salvaged = salvage(body.as_bytes(), is_json);
            let expected = Salvaged { body: expected.as_bytes().to_vec(), unreadable };
            assert_eq!(salvaged, Some(expected), "{body}");
            assert!(salvaged.is_some_and(|salvaged| is_json(&salvaged.body)), "{body}");
        }
    }

    #[test]
    fn a_broken_outer_structure_is_not_guessed_at() {
        for body in [
            "",
            "nonsense",
            "7",
            "[1,01",
            "[1,01]]",
            "[1 2,01]x",
            "[1,,01]",
            "{\"batch\":[1,01]",
            "{batch:[1,01]}",
            "{\"batch\" [1,01]}",
            "{\"batch\":[1,\"01]}",
            // No event to leave out, or no event left.
            "[1,2]",
            "[01]",
            "{\"batch\":[01],\"token\":\"t\"}",
            "{\"event\":01}",
        ] {
            assert_eq!(salvage(body.as_bytes(), is_json), None, "{body}");
        }
    }

    #[test]
    fn depth_is_that_of_the_body() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        // serde_json reads 127 levels.
        for (body, is_kept) in [
            (format!("[0,{},01]", nested(126)), true),
            (format!("[0,{},01]", nested(127)), false),
            (format!("{{\"batch\":[0,{},01]}}", nested(125)), true),
            (format!("{{\"batch\":[0,{},01]}}", nested(126)), false),
        ] {
            let salvaged = salvage(body.as_bytes(), is_json).expect("one is readable");
            assert_eq!(salvaged.unreadable, if is_kept { 1 } else { 2 });
            assert!(is_json(&salvaged.body));
        }
    }
}
