//! Forms with files: bodies of the media type `multipart/form-data` (RFC 7578), read into their [`Part`]s without a
//! copy.

use std::fmt;

use bytes::Bytes;
use memchr::memmem;

use crate::response::Problem;
use weir_base::error::Kind;

/// Most parts of a form.
const PARTS_MAX: usize = 100;

/// Most bytes of the headers of a part.
const HEADERS_MAX_BYTES: usize = 8 << 10;

/// Longest boundary (RFC 2046, section 5.1.1).
const BOUNDARY_MAX_BYTES: usize = 70;

/// One field of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The name of the file, if it is one.
    pub file_name: Option<String>,
    /// Its text, or the contents of the file.
    pub value: Bytes,
}

/// Errors of malformed forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The content type names no boundary.
    Boundary,
    /// There is no first boundary.
    NoPart,
    /// The body ends within a part.
    Unended,
    /// A boundary is followed by something else than a line break or its end mark.
    Delimiter,
    /// The headers of a part do not end within [`HEADERS_MAX_BYTES`].
    Headers,
    /// A part has no name.
    Nameless,
    /// There are more than [`PARTS_MAX`] parts.
    TooMany,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boundary => formatter.write_str("the content type names no boundary"),
            Self::NoPart => {
                formatter.write_str("the boundary of the content type is nowhere in the body")
            }
            Self::Unended => formatter.write_str("the body ends within a part"),
            Self::Delimiter => formatter.write_str("a boundary has something else behind it"),
            Self::Headers => {
                write!(
                    formatter,
                    "the headers of a part do not end within {HEADERS_MAX_BYTES} bytes"
                )
            }
            Self::Nameless => formatter.write_str("a part has no name"),
            Self::TooMany => write!(formatter, "there are more than {PARTS_MAX} parts"),
        }
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        let detail = format!("Multipart form parse error - {malformed}");
        Self::new(Kind::Invalid, "parse_error", detail).with_type("invalid_request")
    }
}

/// Whether a `Content-Type` is a form with files.
pub fn is_it(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("multipart/form-data")
}

/// Reads the parts of a form, in their order.
pub fn parts(content_type: &str, body: &Bytes) -> Result<Vec<Part>, Malformed> {
    let boundary = parameter(content_type, "boundary");
    let is_fit = |boundary: &String| (1..=BOUNDARY_MAX_BYTES).contains(&boundary.len());
    let boundary = boundary.filter(is_fit).ok_or(Malformed::Boundary)?;
    let delimiter = format!("\r\n--{boundary}");
    let delimiter = memmem::Finder::new(delimiter.as_bytes());
    let own = delimiter.needle();
    let first = own.get(2..).unwrap_or_default();
    // The first boundary may begin the body; or a preamble is before it, which is ignored.
    let mut rest = match body.strip_prefix(first) {
        Some(rest) => rest,
        None => {
            let at = delimiter.find(body).ok_or(Malformed::NoPart)?;
            body.get(at + own.len()..).unwrap_or_default()
        }
    };
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        // White space may follow a boundary.
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let part = rest.get(blanks..).and_then(|rest| rest.strip_prefix(b"\r\n"));
        let part = part.ok_or(Malformed::Delimiter)?;
        if parts.len() == PARTS_MAX {
            return Err(Malformed::TooMany);
        }
        let (headers, content) = split_headers(part)?;
        let end = delimiter.find(content).ok_or(Malformed::Unended)?;
        let (value, after) = content.split_at_checked(end).ok_or(Malformed::Unended)?;
        let (name, file_name) = names(headers).ok_or(Malformed::Nameless)?;
        parts.push(Part { name, file_name, value: body.slice_ref(value) });
        rest = after.get(own.len()..).unwrap_or_default();
    }
    Ok(parts)
}

/// Splits a part into its headers and its contents.
fn split_headers(part: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    if let Some(content) = part.strip_prefix(b"\r\n") {
        return Ok((&[], content));
    }
    let head = part.get(..HEADERS_MAX_BYTES).unwrap_or(part);
    let end = memmem::find(head, b"\r\n\r\n").ok_or(Malformed::Headers)?;
    let (headers, rest) = part.split_at_checked(end).ok_or(Malformed::Headers)?;
    Ok((headers, rest.get(4..).unwrap_or_default()))
}

/// The name of a field and of its file, from the headers of its part.
fn names(headers: &[u8]) -> Option<(String, Option<String>)> {
    let headers = String::from_utf8_lossy(headers);
    let disposition = headers.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    Some((parameter(disposition, "name")?, parameter(disposition, "filename")))
}

/// A parameter of a header, as in `form-data; name="csv"; filename="a.csv"`. In a quoted value, a quote is escaped by a
/// backslash; browsers write `%22`, which stays.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let is_wanted = name.trim().eq_ignore_ascii_case(wanted);
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let (value, next) = after.split_at_checked(end)?;
                (value.trim().to_owned(), next)
            }
        };
        if is_wanted {
            return Some(value);
        }
        rest = next.split_once(';')?.1;
    }
}

/// The text up to the closing quote, and the rest.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, text.get(at + 1..)?)),
            (_, '\\') => match characters.next()?.1 {
                escaped @ ('"' | '\\') => value.push(escaped),
                // Old browsers send whole Windows paths.
                other => value.extend(['\\', other]),
            },
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{Malformed, Part, is_it, parts};

    const TYPE: &str = "multipart/form-data; boundary=xYz";

    fn read(body: &str) -> Result<Vec<(String, Option<String>, String)>, Malformed> {
        let parts = parts(TYPE, &Bytes::copy_from_slice(body.as_bytes()))?;
        let text = |value: Bytes| String::from_utf8(value.to_vec()).unwrap();
        Ok(parts.into_iter().map(|part| (part.name, part.file_name, text(part.value))).collect())
    }

    /// Expectations: RFC 7578 and RFC 2046, and the bodies of curl, browsers and `requests`.
    #[test]
    fn forms_are_read() {
        let name = |name: &str| format!("Content-Disposition: form-data; name=\"{name}\"");
        let (a, b) = (name("a"), name("b"));
        let plain = |name: &str, value: &str| (name.to_owned(), None, value.to_owned());
        for (body, expected) in [
            (format!("--xYz\r\n{a}\r\n\r\n1\r\n--xYz--\r\n"), vec![plain("a", "1")]),
            (
                format!("--xYz\r\n{a}\r\n\r\n1\r\n--xYz\r\n{b}\r\n\r\n\r\n--xYz--"),
                vec![plain("a", "1"), plain("b", "")],
            ),
            (
                format!("before\r\n--xYz \t\r\n{a}\r\n\r\n--x\r\n\n--xYz\r\n--xYz--after"),
                vec![plain("a", "--x\r\n\n--xYz")],
            ),
            (
                "--xYz\r\ncontent-type: text/csv\r\nCONTENT-DISPOSITION: form-data;name=csv ; filename=\"a\\\";b.csv\"\
                 \r\n\r\nid\r\n1\r\n\r\n--xYz--"
                    .to_owned(),
                vec![("csv".to_owned(), Some("a\";b.csv".to_owned()), "id\r\n1\r\n".to_owned())],
            ),
            ("--xYz--\r\n".to_owned(), Vec::new()),
        ] {
            assert_eq!(read(&body), Ok(expected), "{body}");
        }
    }

    #[test]
    fn what_is_no_form_is_refused() {
        let head = "Content-Disposition: form-data; name=\"a\"";
        for (body, expected) in [
            (String::new(), Malformed::NoPart),
            ("a=1".to_owned(), Malformed::NoPart),
            ("--xYz".to_owned(), Malformed::Delimiter),
            (format!("--xYzz\r\n{head}\r\n\r\n1\r\n--xYz--"), Malformed::Delimiter),
            (format!("--xYz\r\n{head}\r\n\r\n1"), Malformed::Unended),
            (format!("--xYz\r\n{head}\r\n1\r\n--xYz--"), Malformed::Headers),
            ("--xYz\r\n\r\n1\r\n--xYz--".to_owned(), Malformed::Nameless),
            (
                "--xYz\r\nContent-Disposition: form-data\r\n\r\n1\r\n--xYz--".to_owned(),
                Malformed::Nameless,
            ),
            (
                format!("--xYz\r\n{}\r\n\r\n1\r\n--xYz--", "h: x\r\n".repeat(2_000)),
                Malformed::Headers,
            ),
            (
                format!("{}--xYz--", format!("--xYz\r\n{head}\r\n\r\n1\r\n").repeat(101)),
                Malformed::TooMany,
            ),
        ] {
            assert_eq!(read(&body), Err(expected), "{}", body.get(..80).unwrap_or(&body));
        }
        let body = Bytes::from_static(b"--xYz--");
        for content_type in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; charset=utf-8",
            &format!("multipart/form-data; boundary={}", "x".repeat(71)),
        ] {
            assert_eq!(parts(content_type, &body), Err(Malformed::Boundary), "{content_type}");
        }
        for content_type in [
            "multipart/form-data; boundary=\"xYz\"",
            "Multipart/Form-Data; charset=utf-8; Boundary=xYz",
        ] {
            assert!(is_it(content_type), "{content_type}");
            assert_eq!(parts(content_type, &body), Ok(Vec::new()), "{content_type}");
        }
        assert!(!is_it("application/json") && !is_it("multipart/mixed; boundary=x"));
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        #[test]
        fn parts_come_back(values in prop::collection::vec(("[a-z]{1,8}", "[a-z\r\n\"-]{0,40}"), 0..5)) {
            let mut body = String::new();
            for (name, value) in &values {
                prop_assume!(!format!("\r\n{value}\r\n").contains("\r\n--xYz"));
                body += &format!("--xYz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            }
            body += "--xYz--\r\n";
            let expected: Vec<_> =
                values.iter().map(|(name, value)| (name.clone(), None, value.clone())).collect();
            prop_assert_eq!(read(&body), Ok(expected));
        }

        #[test]
        fn takes_any_body(body in "(--xYz|\r\n|; |name=|\"|Content-Disposition:|\\PC){0,40}", header in "\\PC{0,60}") {
            let found: Result<Vec<Part>, Malformed> = parts(TYPE, &Bytes::from(body.clone()));
            prop_assert!(found.is_err() || body.contains("--xYz"));
            let _ = parts(&header, &Bytes::from(body));
        }
    }
}
