//! Every encoder at every setting, over random JSON, and every truncation of its output.

use serde_json::Value;

use super::*;

/// Random JSON text, small and large, compressible or not.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z ]{0,200}".prop_map(Value::from),
        Just(Value::from("x".repeat(70_000))),
    ];
    let value = leaf.prop_recursive(4, 40, 8, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..8);
        let members = prop::collection::btree_map("[a-zé$_]{1,9}", inner, 0..8);
        prop_oneof![
            list.prop_map(Value::from),
            members.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::vec(value, 0..4).prop_map(|events| Value::from(events).to_string())
}

/// `text` by every encoder and setting, with the name and the announced coding.
fn packed_at_every_level(text: &[u8]) -> Vec<(String, Vec<u8>, &'static str)> {
    let mut all = Vec::new();
    for level in 0..=9 {
        let level = Compression::new(level);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
        gzip.write_all(text).unwrap();
        all.push((format!("gzip {level:?}"), gzip.finish().unwrap(), "gzip"));
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(text).unwrap();
        all.push((format!("zlib {level:?}"), zlib.finish().unwrap(), "deflate"));
        let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), level);
        deflate.write_all(text).unwrap();
        all.push((format!("deflate {level:?}"), deflate.finish().unwrap(), "deflate"));
    }
    for level in 1..=12 {
        let level = libdeflater::CompressionLvl::new(level).unwrap();
        let mut encoder = libdeflater::Compressor::new(level);
        let mut bytes = vec![0; encoder.gzip_compress_bound(text.len())];
        let written = encoder.gzip_compress(text, &mut bytes).unwrap();
        bytes.truncate(written);
        all.push((format!("libdeflate {level:?}"), bytes, "gzip"));
    }
    for level in [-7, 1, 3, 9, 15] {
        all.push((format!("zstd {level}"), zstd::encode_all(text, level).unwrap(), "zstd"));
    }
    for (quality, window) in [(0, 10), (1, 16), (5, 22), (9, 24)] {
        let mut bytes = Vec::new();
        let mut encoder = brotli::CompressorWriter::new(&mut bytes, 4096, quality, window);
        encoder.write_all(text).unwrap();
        drop(encoder);
        all.push((format!("brotli {quality} {window}"), bytes, "br"));
    }
    for (mode, checksums) in [
        (lz4_flex::frame::BlockMode::Independent, true),
        (lz4_flex::frame::BlockMode::Linked, false),
    ] {
        let info = lz4_flex::frame::FrameInfo::new()
            .block_mode(mode)
            .block_checksums(checksums)
            .content_checksum(checksums);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(text).unwrap();
        all.push((format!("lz4 {mode:?}"), encoder.finish().unwrap(), "lz4"));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        ..ProptestConfig::with_failure_persistence(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))
    })]

    /// Goal: a body of any encoder decodes to the same text. Method: as announced, by its magic
    /// number where it has one, in base64, in two members, and through a decoder with state.
    #[test]
    fn json_survives_every_encoder(text in any_json(), cut in any::<prop::sample::Index>()) {
        let mut decoder = Decoder::new();
        for (name, body, coding) in packed_at_every_level(text.as_bytes()) {
            let announced = modern("", Some(coding.as_bytes()));
            let decoded = decoder.decode(Bytes::from(body.clone()), &announced, LIMIT);
            let decoded = decoded.map(Decoded::into_vec);
            prop_assert_eq!(decoded.as_deref(), Ok(text.as_bytes()), "{}", &name);
            let in_base64 = Bytes::from(base64(&body));
            if inflate::is_compressed(&body) {
                let silent = modern("", None);
                let decoded = text_of(decode(Bytes::from(body), &silent, LIMIT));
                prop_assert_eq!(decoded.as_ref(), Ok(&text), "{}, silent", &name);
                let decoded = text_of(decode(in_base64, &legacy(""), LIMIT));
                prop_assert_eq!(decoded.as_ref(), Ok(&text), "{}, in base64", &name);
            } else if text.len() > 300 {
                // A short text in base64 may by chance be a stream of these codings itself.
                let decoded = text_of(decode(in_base64, &announced, LIMIT));
                prop_assert_eq!(decoded.as_ref(), Ok(&text), "{}, in base64", &name);
            }
        }
        let (first, second) = text.as_bytes().split_at(cut.index(text.len()));
        let members = [gzip(first), gzip(b""), gzip(second)].concat();
        prop_assert_eq!(text_of(decode(Bytes::from(members), &modern("", None), LIMIT)), Ok(text));
    }
}

/// Goal: a body that was truncated in transit is never taken for a complete one. Method: every prefix of
/// the output of every encoder.
#[test]
fn no_prefix_is_a_whole() {
    // The last bytes of a stream, such as an end mark, may contain no text.
    let text = JSON.repeat(3);
    for (name, body, coding) in packed_at_every_level(text.as_bytes()) {
        let announced = modern("", Some(coding.as_bytes()));
        for cut in 0..body.len() {
            let prefix = Bytes::copy_from_slice(&body[..cut]);
            match text_of(decode(prefix, &announced, LIMIT)) {
                Err(DecodeError::Malformed(_) | DecodeError::Empty) => {}
                Ok(found) if found == text && !coding.contains("gzip") => {}
                other => panic!("{name}, cut at {cut} of {}: {other:?}", body.len()),
            }
        }
    }
}

/// Goal: no encoder at any setting exceeds the limit. Method: a text one byte beyond it.
#[test]
fn the_limit_holds_at_every_level() {
    let text = "0".repeat(100_001);
    for (name, body, coding) in packed_at_every_level(text.as_bytes()) {
        let announced = modern("", Some(coding.as_bytes()));
        let over = decode(Bytes::from(body), &announced, 100_000);
        assert_eq!(over, Err(DecodeError::TooLarge { limit_bytes: 100_000 }), "{name}");
    }
}
