//! Oracles: the encoders of other crates, and bodies that SDKs were observed to send.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use flate2::Compression;
use proptest::prelude::*;

use super::*;
use crate::encoding::hints::Hints;
use weir_base::error::Kind;

mod levels;

const JSON: &str = r#"{"api_key":"phc_x","batch":[{"event":"$pageview","distinct_id":"ü 😀","properties":{"a":1}}]}"#;
const LIMIT: u64 = 1 << 20;
const FORM: Option<&[u8]> = Some(b"application/x-www-form-urlencoded");

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 3).unwrap()
}

fn brotli(text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = brotli::CompressorWriter::new(&mut packed, 4096, 5, 22);
    encoder.write_all(text).unwrap();
    drop(encoder);
    packed
}

fn lz4(text: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn lz64(text: &str) -> Vec<u8> {
    lz_str::compress_to_base64(text).into_bytes()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    STANDARD.encode(bytes).into_bytes()
}

fn form(data: &[u8], more: &str) -> Vec<u8> {
    let data: String = form_urlencoded::byte_serialize(data).collect();
    format!("data={data}{more}").into_bytes()
}

fn text_of(decoded: Result<Decoded, DecodeError>) -> Result<String, DecodeError> {
    decoded.map(|decoded| String::from_utf8(decoded.into_vec()).unwrap())
}

fn modern(query: &str, content_encoding: Option<&[u8]>) -> Hints {
    Hints::new(query, Some(b"application/json"), content_encoding, PathKind::Modern)
}

fn legacy(query: &str) -> Hints {
    Hints::new(query, Some(b"text/plain"), None, PathKind::Legacy)
}

/// The wire table: every body, with its hints, decodes to the same text.
#[test]
fn every_known_way_to_send_the_same_text() {
    let json = JSON.as_bytes();
    let form_on = |path| Hints::new("", FORM, None, path);
    let query_data =
        |data: &[u8], more: &str| legacy(&String::from_utf8(form(data, more)).unwrap());
    for (name, body, hints) in [
        // Plain: Python.
        ("plain", json.to_vec(), modern("", None)),
        ("plain with spaces before it", [b"\n ", json].concat(), modern("", None)),
        // Gzip: Node (header), posthog-js (no hint), old posthog-js (query).
        ("gzip by header", gzip(json), modern("", Some(b"gzip"))),
        ("gzip by magic", gzip(json), legacy("")),
        ("gzip by query", gzip(json), legacy("ip=1&_=1700000000000&ver=1.1&compression=gzip-js")),
        ("gzip under a wrong hint", gzip(json), legacy("compression=lz64")),
        ("gzip twice", gzip(&gzip(json)), modern("", Some(b"gzip"))),
        ("gzip in zstd", zstd(&gzip(json)), modern("", Some(b"gzip, zstd"))),
        ("gzip with a form's type", gzip(json), form_on(PathKind::Legacy)),
        ("gzip under an unknown coding", gzip(json), modern("", Some(b"exotic"))),
        // Hints on plain text.
        ("gzip hint on plain", json.to_vec(), modern("compression=gzip", None)),
        ("lz64 hint on plain", json.to_vec(), modern("compression=lz64", None)),
        ("base64 hint on plain", json.to_vec(), modern("compression=base64", None)),
        ("deflate header on plain", json.to_vec(), modern("", Some(b"deflate"))),
        ("br header on plain", json.to_vec(), modern("", Some(b"br"))),
        ("unknown coding on plain", json.to_vec(), modern("", Some(b"exotic"))),
        ("unknown hint", json.to_vec(), modern("compression=none", None)),
        // Load generators.
        ("zlib", zlib(json), modern("", Some(b"deflate"))),
        ("raw deflate", deflate(json), modern("", Some(b"deflate"))),
        ("zstd", zstd(json), modern("", Some(b"zstd"))),
        ("zstd by magic", zstd(json), modern("", None)),
        ("brotli", brotli(json), modern("", Some(b"br"))),
        ("lz4", lz4(json), modern("", Some(b"lz4"))),
        // lz-string.
        ("lz64 by query", lz64(JSON), legacy("compression=lz64")),
        ("lz64 by its other name", lz64(JSON), modern("compression=LZ-String", None)),
        ("lz64 in a form", form(&lz64(JSON), "&compression=lz64"), form_on(PathKind::Legacy)),
        // Base64.
        ("base64", base64(json), legacy("")),
        ("base64 on a new path", base64(json), modern("", None)),
        ("base64 and a line break", [base64(json), b"\n".to_vec()].concat(), modern("", None)),
        ("base64 by query", base64(json), modern("compression=base64", None)),
        ("base64url", URL_SAFE_NO_PAD.encode(json).into_bytes(), modern("compression=b64", None)),
        ("base64 of gzip", base64(&gzip(json)), modern("compression=gzip", None)),
        ("base64 twice", base64(&base64(json)), legacy("")),
        ("gzip of base64", gzip(&base64(json)), legacy("")),
        (
            "gzip of base64, both announced",
            gzip(&base64(json)),
            modern("compression=base64", Some(b"gzip")),
        ),
        ("base64 of zlib", base64(&zlib(json)), modern("compression=deflate", None)),
        // Forms.
        ("form", form(json, ""), form_on(PathKind::Modern)),
        ("form without its type", form(json, "&ip=1"), legacy("")),
        ("form of base64", form(&base64(json), "&compression=base64"), form_on(PathKind::Legacy)),
        ("form of base64, as flags", form(&base64(json), ""), form_on(PathKind::Modern)),
        (
            "form of base64, + not escaped",
            [b"data=".to_vec(), base64(json)].concat(),
            form_on(PathKind::Legacy),
        ),
        (
            "form of base64 of gzip",
            form(&base64(&gzip(json)), "&compression=gzip-js"),
            form_on(PathKind::Modern),
        ),
        ("base64 of a form", base64(&form(json, "")), form_on(PathKind::Legacy)),
        (
            "data is not first",
            [b"ver=1&ip=0&".to_vec(), form(json, "")].concat(),
            form_on(PathKind::Legacy),
        ),
        ("JSON with a form's type", json.to_vec(), form_on(PathKind::Legacy)),
        // Query.
        ("query", Vec::new(), query_data(json, "")),
        ("query wins", b"{}".to_vec(), query_data(json, "")),
        ("query of base64", Vec::new(), query_data(&base64(json), "&compression=base64")),
        ("query of lz64", Vec::new(), query_data(&lz64(JSON), "&compression=lz64")),
    ] {
        let decoded = decode(Bytes::from(body.clone()), &hints, LIMIT);
        assert_eq!(text_of(decoded).as_deref().map(str::trim), Ok(JSON), "{name}");
        // The log stores the hints as bytes.
        let hints = Hints::from_bytes(&hints.to_bytes()).unwrap();
        let decoded = decode(Bytes::from(body), &hints, LIMIT);
        assert_eq!(text_of(decoded).as_deref().map(str::trim), Ok(JSON), "{name}, replayed");
    }
}

#[test]
fn says_what_is_wrong() {
    let json = JSON.as_bytes();
    let malformed = |text| Err(DecodeError::Malformed(text));
    let form_hints = Hints::new("", FORM, None, PathKind::Legacy);
    let half = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let mut wrong_checksum = gzip(json);
    let length = wrong_checksum.len();
    wrong_checksum[length - 6] ^= 1;
    let nested = (0..6).fold(json.to_vec(), |layer, _| gzip(&layer));
    for (body, hints, expected) in [
        (Vec::new(), modern("", None), Err(DecodeError::Empty)),
        (Vec::new(), legacy("data=&compression=gzip"), Err(DecodeError::Empty)),
        (gzip(b""), modern("", None), Err(DecodeError::Empty)),
        (b"data=".to_vec(), form_hints.clone(), malformed("invalid urlencoded form data")),
        (
            b"a=b".to_vec(),
            form_hints.clone(),
            malformed("expected form data in POST request payload"),
        ),
        (b"xyz".to_vec(), modern("compression=gzip", None), malformed("invalid GZIP data")),
        (half(gzip(json)), modern("", None), malformed("invalid GZIP data")),
        (gzip(json)[..4].to_vec(), modern("", None), malformed("invalid GZIP data")),
        (wrong_checksum, modern("", None), malformed("invalid GZIP data")),
        (half(zlib(json)), modern("", Some(b"deflate")), malformed("invalid deflate data")),
        (half(deflate(json)), modern("", Some(b"deflate")), malformed("invalid deflate data")),
        (half(zstd(json)), modern("", Some(b"zstd")), malformed("invalid zstd data")),
        (half(brotli(json)), modern("", Some(b"br")), malformed("invalid brotli data")),
        (vec![0x11, 0x1E, 0, 0], modern("", Some(b"br")), malformed("invalid brotli data")),
        (half(lz4(json)), modern("", Some(b"lz4")), malformed("invalid lz4 data")),
        (b"\x01\x02".to_vec(), modern("", Some(b"lz4")), malformed("invalid lz4 data")),
        (
            half(lz64(JSON)),
            legacy("compression=lz64"),
            malformed("decompress_lz64: failed decompress to UTF16"),
        ),
        (b"!".to_vec(), legacy("compression=base64"), malformed("attempting to decode base64")),
        (b"\x02\x03".to_vec(), modern("", Some(b"exotic")), Err(DecodeError::Unsupported)),
        (nested, modern("", None), malformed("too many layers of compression")),
    ] {
        let decoded = decode(Bytes::from(body.clone()), &hints, LIMIT);
        assert_eq!(text_of(decoded), expected, "{hints:?} {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(DecodeError::Empty.kind(), Kind::Invalid);
    assert_eq!(DecodeError::TooLarge { limit_bytes: 1 }.kind(), Kind::TooLarge);
}

#[test]
fn a_plain_body_is_not_copied() {
    let body = Bytes::from_static(JSON.as_bytes());
    match decode(body.clone(), &modern("", None), LIMIT) {
        Ok(Decoded::AsReceived(same)) => assert_eq!(same.as_ptr(), body.as_ptr()),
        other => panic!("{other:?}"),
    }
}

/// One text in every compressed codec, with the hints it needs.
fn packed(text: &str) -> [(&'static str, Vec<u8>, Hints); 9] {
    let bytes = text.as_bytes();
    [
        ("plain", bytes.to_vec(), modern("", None)),
        ("gzip", gzip(bytes), modern("", None)),
        ("gzip of two members", [gzip(&bytes[..1]), gzip(&bytes[1..])].concat(), modern("", None)),
        ("zlib", zlib(bytes), modern("", Some(b"deflate"))),
        ("deflate", deflate(bytes), modern("", Some(b"deflate"))),
        ("zstd", zstd(bytes), modern("", None)),
        ("brotli", brotli(bytes), modern("", Some(b"br"))),
        ("lz4", lz4(bytes), modern("", None)),
        ("lz64", lz64(text), legacy("compression=lz64")),
    ]
}

/// Goal: the limit is exact for every codec. Method: exactly full, and one byte less.
#[test]
fn limits_are_exact() {
    for length in [1000, 20_000, 300_000] {
        let text = format!("{{{}", "x".repeat(length - 1));
        let limit_bytes = u64::try_from(length).unwrap();
        for (name, body, hints) in packed(&text) {
            let body = Bytes::from(body);
            let full = decode(body.clone(), &hints, limit_bytes);
            assert_eq!(text_of(full).as_ref(), Ok(&text), "{name}");
            let limit_bytes = limit_bytes - 1;
            let over = decode(body, &hints, limit_bytes);
            assert_eq!(over, Err(DecodeError::TooLarge { limit_bytes }), "{name}");
        }
    }
}

/// Goal: a decompression bomb costs no more memory than the limit. Method: half a MiB of zeros in each
/// codec; the capacity of the output if the limit allows it.
#[test]
fn bombs_are_refused_and_buffers_are_bounded() {
    let bomb = "0".repeat(512 << 10);
    let limit_bytes = 64 << 10;
    for (name, body, hints) in packed(&bomb) {
        let decoded = decode(Bytes::from(body), &hints, limit_bytes);
        assert_eq!(decoded, Err(DecodeError::TooLarge { limit_bytes }), "{name}");
    }
    let nested = gzip(&gzip(bomb.as_bytes()));
    let decoded = decode(Bytes::from(nested), &modern("", None), limit_bytes);
    assert_eq!(decoded, Err(DecodeError::TooLarge { limit_bytes }));
    // A zstd frame that requires a window of 2 GiB (RFC 8878: descriptor 0, window descriptor 21 << 3).
    let window = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 21 << 3, 0x01, 0x00, 0x00];
    let decoded = decode(Bytes::copy_from_slice(&window), &modern("", None), LIMIT);
    assert_eq!(decoded, Err(DecodeError::Malformed("invalid zstd data")));

    let text = format!("{{{}", "x".repeat(900_000));
    for (name, body, hints) in packed(&text) {
        let text = decode(Bytes::from(body), &hints, LIMIT).unwrap().into_vec();
        assert!(text.capacity() >= text.len() + PADDING_BYTES, "{name}");
        // lz-string may use half as much again; see there.
        assert!(text.capacity() <= (3 << 19) + 2 * PADDING_BYTES, "{name} {}", text.capacity());
    }
}

/// Goal: the fast path, which trusts the trailer, never returns a partial text. Method: bodies whose
/// trailer fits the first member, or nothing.
#[test]
fn trailers_that_lie() {
    let one = gzip(JSON.as_bytes());
    let (first, second) = JSON.split_at(JSON.len() / 2);
    let halves = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    let twice = [one.as_slice(), &one].concat();
    let end_of_bgzip = [one.as_slice(), &gzip(b"")].concat();
    let garbage = [one.as_slice(), b"trailing garbage"].concat();
    let zeros = [one.as_slice(), &[0; 512]].concat();
    let garbage_of_the_right_size = [one.as_slice(), &one[one.len() - 4..]].concat();
    for (body, expected) in [
        (halves, JSON.to_owned()),
        (twice, JSON.repeat(2)),
        (end_of_bgzip, JSON.to_owned()),
        (garbage, JSON.to_owned()),
        (zeros, JSON.to_owned()),
        (garbage_of_the_right_size, JSON.to_owned()),
    ] {
        let decoded = decode(Bytes::from(body), &modern("", None), LIMIT);
        assert_eq!(text_of(decoded), Ok(expected));
    }
    let members = gzip(b"").repeat(5000);
    let decoded = decode(Bytes::from(members), &modern("", None), LIMIT);
    assert_eq!(decoded, Err(DecodeError::Malformed("too many gzip members")));
}

/// Goal: the kept state never changes a result. Method: the same bodies through one decoder and through
/// new ones, large and small alternately.
#[test]
fn a_decoder_forgets_what_it_decoded() {
    let mut decoder = Decoder::new();
    for length in [100_000, 10, 50_000, 200_000, 3, 199_999] {
        let text = format!("[{}", length.to_string().repeat(length / 6 + 1));
        for (name, body, hints) in packed(&text) {
            let decoded = decoder.decode(Bytes::from(body), &hints, LIMIT).unwrap();
            assert_eq!(decoded.as_ref(), text.as_bytes(), "{name} {length}");
            let buffer = decoded.into_vec();
            assert!(buffer.capacity() >= buffer.len() + PADDING_BYTES, "{name} {length}");
        }
    }
}

mod lz_string {
    use super::*;

    fn ours(packed: &[u8]) -> Result<String, DecodeError> {
        lz64::decompress(packed, LIMIT).map(|text| String::from_utf8(text).unwrap())
    }

    fn oracle(packed: &str) -> Option<String> {
        lz_str::decompress_from_base64(packed).map(|units| String::from_utf16_lossy(&units))
    }

    #[test]
    fn phrases_units_and_surrogates() {
        for text in [
            "a".to_owned(),
            "aaaa".to_owned(),
            "a".repeat(10_000),
            "abab".repeat(1000),
            "ÿĀ\u{7FF}\u{800}\u{FFFD}\u{FFFF}\0".to_owned(),
            "😀".to_owned(),
            "😀😁😀😁😀".repeat(50),
            "x😀".repeat(500),
            JSON.repeat(100),
            (1..5000).filter_map(char::from_u32).collect(),
        ] {
            assert_eq!(ours(&lz64(&text)).as_deref(), Ok(text.as_str()));
        }
    }

    /// Every distinct code unit is announced once: the largest number of announcements there can be.
    #[test]
    fn every_code_unit() {
        let units: Vec<u16> = (0..=u16::MAX).collect();
        let packed = lz_str::compress_to_base64(units.as_slice());
        assert_eq!(ours(packed.as_bytes()), Ok(String::from_utf16_lossy(&units)));
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        for units in [
            &[0xD83D][..],
            &[0xDE00, 0xD83D],
            &[0xD83D, 0xD83D, 0xDE00, 0xDE00],
            &[0x61, 0xD83D, 0x62, 0xDE00, 0xD83D, 0xDE00],
            &[0xD83D, 0xD83D, 0xD83D, 0xD83D, 0xDE00],
        ] {
            let packed = lz_str::compress_to_base64(units);
            assert_eq!(ours(packed.as_bytes()), Ok(String::from_utf16_lossy(units)), "{units:x?}");
        }
    }

    #[test]
    fn the_limit_counts_utf8() {
        // Four bytes each; six while their halves are apart.
        let text = "😀".repeat(1000);
        assert_eq!(lz64::decompress(&lz64(&text), 4000), Ok(text.clone().into_bytes()));
        let too_large = Err(DecodeError::TooLarge { limit_bytes: 3999 });
        assert_eq!(lz64::decompress(&lz64(&text), 3999), too_large);
        let euros = "€".repeat(1000);
        assert_eq!(lz64::decompress(&lz64(&euros), 3000), Ok(euros.clone().into_bytes()));
        let too_large = Err(DecodeError::TooLarge { limit_bytes: 2999 });
        assert_eq!(lz64::decompress(&lz64(&euros), 2999), too_large);
    }

    /// Goal: no truncated text decodes as a complete one. Method: every prefix. Only the flush bits after
    /// the end may be missing.
    #[test]
    fn truncated_texts_are_refused() {
        let packed = lz64(JSON);
        for cut in 0..packed.len() {
            let prefix = &packed[..cut];
            match oracle(std::str::from_utf8(prefix).unwrap()).filter(|_| cut > 0) {
                Some(text) => assert_eq!(ours(prefix), Ok(text), "{cut}"),
                None => assert!(ours(prefix).map_or(true, |text| text == JSON), "{cut}"),
            }
            if cut + 6 < packed.len() {
                assert!(ours(prefix).is_err(), "{cut}");
            }
        }
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        ))]
        #[test]
        fn undoes_what_the_oracle_did(text in any::<String>()) {
            prop_assert_eq!(ours(&lz64(&text)), Ok(text));
        }

        #[test]
        fn undoes_repetitive_text(text in "[ab😀é]{0,2000}") {
            prop_assert_eq!(ours(&lz64(&text)), Ok(text));
        }

        #[test]
        fn undoes_any_code_units(units in prop::collection::vec(any::<u16>(), 0..400)) {
            let packed = lz_str::compress_to_base64(units.as_slice());
            prop_assert_eq!(ours(packed.as_bytes()), Ok(String::from_utf16_lossy(&units)));
        }

        /// If the oracle decodes a text, so does this decoder, to the same text. The reverse does not hold: the
        /// oracle requires one more character after an end that fills the last one.
        #[test]
        fn agrees_with_the_oracle_on_any_text(text in "[A-Za-z0-9+/]{1,200}={0,3}") {
            match oracle(&text) {
                Some(expected) => prop_assert_eq!(ours(text.as_bytes()), Ok(expected)),
                None => if let Ok(ours) = ours(text.as_bytes()) {
                    prop_assert_eq!(oracle(&format!("{text}A")), Some(ours));
                },
            }
        }
    }
}

/// A fixed number of bodies of each kind is enough: the codecs have their own fuzzers.
fn any_hints() -> impl Strategy<Value = Hints> {
    let coding = || {
        prop::sample::select(vec![
            None,
            Some(Coding::Gzip),
            Some(Coding::Deflate),
            Some(Coding::Zstd),
            Some(Coding::Brotli),
            Some(Coding::Lz4),
            Some(Coding::Lz64),
            Some(Coding::Base64),
            Some(Coding::Unknown),
        ])
    };
    (coding(), coding(), any::<bool>(), any::<bool>()).prop_map(
        |(compression, content_encoding, form, old)| Hints {
            compression,
            data: None,
            content_encoding,
            content: if form { Content::Form } else { Content::Other },
            path: if old { PathKind::Legacy } else { PathKind::Modern },
        },
    )
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    /// Goal: no body crashes the process or exceeds the limit.
    #[test]
    fn takes_any_bytes(
        mut body in prop::collection::vec(any::<u8>(), 0..400),
        hints in any_hints(),
        magic in prop::sample::select(vec![
            &b""[..], b"\x1F\x8B\x08\0\0\0\0\0\0\x03", b"\x28\xB5\x2F\xFD", b"\x04\x22\x4D\x18", b"data=", b"\x78\x9C",
        ]),
        limit_bytes in 0..2000_u64,
    ) {
        body.splice(0..0, magic.iter().copied());
        if let Ok(decoded) = decode(Bytes::from(body), &hints, limit_bytes) {
            prop_assert!(decoded.as_ref().len() <= usize::try_from(limit_bytes).unwrap());
        }
    }

    /// Goal: damage in transit is detected or harmless, in any codec; no panic.
    #[test]
    fn takes_damaged_bodies(which in 0..9_usize, at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (_, mut body, hints) = packed(JSON)[which].clone();
        let at = at.index(body.len());
        body[at] ^= 1 << bit;
        let _ = decode(Bytes::from(body), &hints, LIMIT);
    }

    /// Goal: any JSON-like text survives any codec.
    #[test]
    fn any_text_comes_back(text in any::<String>(), filler in 0..3000_usize) {
        let text = format!("[{text}{}", "€".repeat(filler));
        for (name, body, hints) in packed(&text) {
            let decoded = decode(Bytes::from(body), &hints, LIMIT).map_err(|error| error.to_string());
            let decoded = decoded.map(Decoded::into_vec);
            prop_assert_eq!(decoded, Ok(text.clone().into_bytes()), "{}", name);
        }
    }
}
