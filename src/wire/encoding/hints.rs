//! Encoding hints: what a request announces about the encoding of its body, and their form in the log.
//!
//! The log stores the body as received, so these hints are stored with it. Names are parsed only here;
//! everywhere else a coding is a value.

use bytes::Bytes;

use crate::encoding::text;
use crate::otlp;

/// A coding of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950 (zlib) or, as many clients send under that name, RFC 1951.
    Deflate,
    /// RFC 8878.
    Zstd,
    /// RFC 7932.
    Brotli,
    /// The LZ4 frame format. Not a registered content coding; load generators and log shippers use it.
    Lz4,
    /// `LZString.compressToBase64` of the JavaScript library lz-string.
    Lz64,
    /// RFC 4648, standard or URL-safe alphabet.
    Base64,
    /// A content coding that Weir does not know.
    Unknown,
}

impl Coding {
    /// Every coding, with its byte in the log. Bytes are never reused.
    const BYTES: [(Self, u8); 8] = [
        (Self::Gzip, 1),
        (Self::Deflate, 2),
        (Self::Zstd, 3),
        (Self::Brotli, 4),
        (Self::Lz4, 5),
        (Self::Lz64, 6),
        (Self::Base64, 7),
        (Self::Unknown, 8),
    ];

    /// The coding with this name in a `compression` field of a query or form, in any letter case. `None` for
    /// unknown names, which clients send as well.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], Coding); 12] = [
            (b"gzip", Coding::Gzip),
            (b"gzip-js", Coding::Gzip),
            (b"x-gzip", Coding::Gzip),
            (b"deflate", Coding::Deflate),
            (b"zstd", Coding::Zstd),
            (b"br", Coding::Brotli),
            (b"lz4", Coding::Lz4),
            (b"lz64", Coding::Lz64),
            (b"lz-string", Coding::Lz64),
            (b"lz_string", Coding::Lz64),
            (b"base64", Coding::Base64),
            (b"b64", Coding::Base64),
        ];
        let name = name.trim_ascii();
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, coding)| *coding)
    }

    /// The last coding that a `Content-Encoding` header lists, [`Coding::Unknown`] included. The layers
    /// below it are found by their magic numbers.
    pub fn from_header(value: &[u8]) -> Option<Self> {
        value
            .rsplit(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .find(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
            .map(|name| Self::from_name(name).unwrap_or(Self::Unknown))
    }

    fn to_byte(coding: Option<Self>) -> u8 {
        let byte = Self::BYTES.iter().find(|(known, _)| Some(*known) == coding);
        byte.map_or(0, |(_, byte)| *byte)
    }

    /// The inverse of [`Coding::to_byte`]; the outer `None` is a byte without a meaning.
    fn from_byte(byte: u8) -> Option<Option<Self>> {
        if byte == 0 {
            return Some(None);
        }
        let coding = Self::BYTES.iter().find(|(_, known)| *known == byte);
        coding.map(|(coding, _)| Some(*coding))
    }
}

/// The relevant part of `Content-Type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// `application/x-www-form-urlencoded`, with or without parameters.
    Form,
    /// OpenTelemetry traces, on the path that accepts them.
    Otlp(otlp::Form),
    /// Anything else, or absent: ignored.
    #[default]
    Other,
}

/// Whether clients of this path may add base64 to any body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathKind {
    /// `/e`, `/capture`, `/engage`, `/track`; also `/flags` and `/decide`, which fall back to base64.
    Legacy,
    /// `/batch`, `/i/v0/e`, `/i/v1/...`.
    #[default]
    Modern,
}

/// Everything besides the body that decides how the body is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `?compression=`, if it is a known name.
    pub compression: Option<Coding>,
    /// `?data=`, percent-decoded: the payload itself, instead of the body.
    pub data: Option<Bytes>,
    /// `Content-Encoding`; see [`Coding::from_header`].
    pub content_encoding: Option<Coding>,
    /// `Content-Type`.
    pub content: Content,
    /// The path.
    pub path: PathKind,
}

/// First byte of [`Hints::to_bytes`]. Another layout has another number.
const VERSION: u8 = 1;
const FLAG_LEGACY: u8 = 1;
const FLAG_FORM: u8 = 2;
const FLAG_DATA: u8 = 4;
const FLAG_OTLP_PROTOBUF: u8 = 8;
const FLAG_OTLP_JSON: u8 = 16;

impl Hints {
    /// The payload of a request: its body, or `?data=` in place of it.
    pub fn payload<'r>(&'r self, body: &'r [u8]) -> &'r [u8] {
        self.data.as_ref().filter(|data| !data.is_empty()).map_or(body, |data| data)
    }

    /// Reads the hints of a request. `query` is the part of the URL after `?`, empty if there is none;
    /// headers are as received, `None` if absent.
    pub fn new(
        query: &str,
        content_type: Option<&[u8]>,
        content_encoding: Option<&[u8]>,
        path: PathKind,
    ) -> Self {
        let mut hints = Self {
            content_encoding: content_encoding.and_then(Coding::from_header),
            content: content_type.map_or(Content::Other, content_of),
            path,
            ..Self::default()
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "compression" if hints.compression.is_none() => {
                    hints.compression = Coding::from_name(value.as_bytes());
                }
                "data" if hints.data.is_none() && !value.is_empty() => {
                    let data = value.into_owned().into_bytes();
                    hints.data = Some(Bytes::from(text::restore_plus(data)));
                }
                _ => {}
            }
        }
        hints
    }

    /// The hints as bytes for the log, 4 of them unless there is a `?data=`.
    ///
    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 1 | version, 1 |
    /// | 1 | 1 | flags: 1 legacy path, 2 form, 4 `data` is present, 8 OTLP as protobuf, 16 OTLP as JSON |
    /// | 2 | 1 | `compression`, 0 for none |
    /// | 3 | 1 | `content_encoding`, 0 for none |
    /// | 4 | rest | `data`, if flagged |
    pub fn to_bytes(&self) -> Vec<u8> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let data = self.data.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(data.len().saturating_add(4));
        bytes.push(VERSION);
        bytes.push(
            flag(self.path == PathKind::Legacy, FLAG_LEGACY)
                | match self.content {
                    Content::Form => FLAG_FORM,
                    Content::Otlp(otlp::Form::Protobuf) => FLAG_OTLP_PROTOBUF,
                    Content::Otlp(otlp::Form::Json) => FLAG_OTLP_JSON,
                    Content::Other => 0,
                }
                | flag(self.data.is_some(), FLAG_DATA),
        );
        bytes.push(Coding::to_byte(self.compression));
        bytes.push(Coding::to_byte(self.content_encoding));
        bytes.extend_from_slice(data);
        bytes
    }

    /// The inverse of [`Hints::to_bytes`]. `None` if `bytes` are malformed, or of a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([VERSION, flags, compression, content_encoding], data) = bytes.split_first_chunk()?
        else {
            return None;
        };
        let has_data = flags & FLAG_DATA != 0;
        if !has_data && !data.is_empty() {
            return None;
        }
        let content = match flags & !(FLAG_LEGACY | FLAG_DATA) {
            0 => Content::Other,
            FLAG_FORM => Content::Form,
            FLAG_OTLP_PROTOBUF => Content::Otlp(otlp::Form::Protobuf),
            FLAG_OTLP_JSON => Content::Otlp(otlp::Form::Json),
            _ => return None,
        };
        Some(Self {
            compression: Coding::from_byte(*compression)?,
            data: has_data.then(|| Bytes::copy_from_slice(data)),
            content_encoding: Coding::from_byte(*content_encoding)?,
            content,
            path: if flags & FLAG_LEGACY != 0 { PathKind::Legacy } else { PathKind::Modern },
        })
    }
}

fn content_of(content_type: &[u8]) -> Content {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if media_type.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        Content::Form
    } else {
        Content::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_requests_say() {
        let none = Hints::new("", None, None, PathKind::Modern);
        assert_eq!(none, Hints::default());

        let hints = Hints::new(
            "ip=1&_=1700000000000&ver=1.2&compression=GZIP-js",
            Some(b"Application/X-WWW-Form-Urlencoded; charset=UTF-8"),
            Some(b"deflate, identity"),
            PathKind::Legacy,
        );
        assert_eq!(hints.compression, Some(Coding::Gzip));
        assert_eq!(hints.content_encoding, Some(Coding::Deflate));
        assert_eq!((hints.content, hints.path), (Content::Form, PathKind::Legacy));
        assert_eq!(hints.data, None);

        let data = |query| Hints::new(query, None, None, PathKind::Legacy).data;
        assert_eq!(data("data=%7B%7D"), Some(Bytes::from_static(b"{}")));
        assert_eq!(data("data="), None);
        // Base64 that was not percent-encoded has lost its plus signs; JSON keeps its spaces.
        assert_eq!(data("data=ab+/"), Some(Bytes::from_static(b"ab+/")));
        assert_eq!(data("data={+}"), Some(Bytes::from_static(b"{ }")));
    }

    #[test]
    fn unknown_names_mean_nothing_in_a_query_and_something_in_a_header() {
        assert_eq!(Coding::from_name(b"none"), None);
        assert_eq!(Coding::from_name(b"lz-string"), Some(Coding::Lz64));
        assert_eq!(Coding::from_header(b"compress"), Some(Coding::Unknown));
        assert_eq!(Coding::from_header(b"identity"), None);
        assert_eq!(Coding::from_header(b" "), None);
        assert_eq!(Coding::from_header(b"br"), Some(Coding::Brotli));
        assert_eq!(Coding::from_header(b"gzip, GZIP"), Some(Coding::Gzip));
    }

    /// Goal: the log returns what was stored. Method: all combinations.
    #[test]
    fn bytes_round_trip() {
        let codings = || Coding::BYTES.iter().map(|(coding, _)| Some(*coding)).chain([None]);
        let payloads = [None, Some(Bytes::new()), Some(Bytes::from_static(b"{\"event\":\"a\"}"))];
        for (compression, content_encoding) in
            codings().flat_map(|one| codings().map(move |other| (one, other)))
        {
            for data in &payloads {
                for content in [
                    Content::Form,
                    Content::Other,
                    Content::Otlp(otlp::Form::Protobuf),
                    Content::Otlp(otlp::Form::Json),
                ] {
                    for path in [PathKind::Legacy, PathKind::Modern] {
                        let data = data.clone();
                        let hints = Hints { compression, data, content_encoding, content, path };
                        assert_eq!(Hints::from_bytes(&hints.to_bytes()), Some(hints));
                    }
                }
            }
        }
    }

    /// Goal: old logs stay readable. Method: bytes written by hand from the table.
    #[test]
    fn layout_is_as_documented() {
        let hints = Hints {
            compression: Some(Coding::Lz64),
            data: Some(Bytes::from_static(b"abc")),
            content_encoding: Some(Coding::Gzip),
            content: Content::Form,
            path: PathKind::Legacy,
        };
        assert_eq!(hints.to_bytes(), [1, 7, 6, 1, b'a', b'b', b'c']);
        assert_eq!(Hints::default().to_bytes(), [1, 0, 0, 0]);
        for (form, byte) in [(otlp::Form::Protobuf, 8), (otlp::Form::Json, 16)] {
            let hints = Hints { content: Content::Otlp(form), ..Hints::default() };
            assert_eq!(hints.to_bytes(), [1, byte, 0, 0]);
        }
    }

    #[test]
    fn refuses_bytes_that_nobody_wrote() {
        for bytes in [
            &[][..],
            &[1, 0, 0],
            &[2, 0, 0, 0],
            &[1, 32, 0, 0],
            &[1, 24, 0, 0],
            &[1, 10, 0, 0],
            &[1, 0, 9, 0],
            &[1, 0, 0, 9],
            &[1, 0, 0, 0, b'x'],
        ] {
            assert_eq!(Hints::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
