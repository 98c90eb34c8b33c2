//! Response compression: [`compressed`], for clients that accept gzip. [`table`] decides which
//! endpoints compress: lists and tables, without secrets of the server whose value a client could guess
//! from the length of a response that repeats its input (BREACH).
//!
//! [`table`]: crate::table

use std::io;
use std::io::Write;
use std::pin::Pin;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt, stream};
use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};

use crate::response::{Body, Response, StreamError};

/// Smallest compressed body; a shorter one fits into one packet anyway.
const BODY_MIN_BYTES: u64 = 1024;

/// Bytes compressed in one step, on a thread that serves other connections too: a fraction of a
/// millisecond.
const PIECE_BYTES: usize = 64 * 1024;

/// Memory of an encoder: its window, its tables, and a piece of output.
const ENCODER_BYTES: usize = 320 * 1024;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, StreamError>> + Send>>;

/// Compresses `response` while it is sent, if `Accept-Encoding` of the client allows gzip and the body
/// is a text of at least 1 KiB.
pub fn compressed(accept_encoding: Option<&str>, response: Response) -> Response {
    packed(accept_encoding, response, Sent::Full)
}

/// As [`compressed`], but flushed after each piece, so that the client can decode a piece as soon as it is sent: a page
/// is shown while its parts are computed.
pub fn compressed_promptly(accept_encoding: Option<&str>, response: Response) -> Response {
    packed(accept_encoding, response, Sent::Promptly)
}

/// When compressed bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// When the buffer of the encoder is full.
    Full,
    /// At the end of each piece.
    Promptly,
}

fn packed(accept_encoding: Option<&str>, mut response: Response, sent: Sent) -> Response {
    let is_small = response.body.left().is_some_and(|left| left < BODY_MIN_BYTES);
    if is_small || !is_text(&response.headers) {
        return response;
    }
    response.headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    if !takes_gzip(accept_encoding.unwrap_or_default()) {
        return response;
    }
    response.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    // The text stays in memory until all of it is compressed, which happens as fast as the client reads.
    let (pieces, own_bytes) = match response.body {
        Body::Full(bytes) => {
            let own_bytes = bytes.len();
            (stream::iter([Ok(bytes)]).boxed(), own_bytes)
        }
        Body::Counted(bytes) => (stream::iter([Ok(bytes)]).boxed(), 0),
        Body::Stream { pieces, held_bytes, .. } => (pieces, held_bytes),
    };
    let held_bytes = own_bytes.saturating_add(ENCODER_BYTES);
    response.body = Body::Stream { pieces: Box::pin(gzip(pieces, sent)), left: None, held_bytes };
    response
}

/// Compresses a whole text at once, for responses that are cached.
///
/// # Errors
///
/// None: the output is in memory.
pub fn compressed_whole(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}

/// Adds `Vary: Accept-Encoding` to a response, and `Content-Encoding` if it is compressed.
pub fn is_compressed(response: Response, is_gzip: bool) -> Response {
    let mut response = response.with_header(VARY, HeaderValue::from_static("accept-encoding"));
    if is_gzip {
        response.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Whether the media type is a text; formats such as Parquet are compressed already.
fn is_text(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|name| name.starts_with("text/") || name.contains("json"))
}

/// Whether the header has `gzip` with a weight above 0; without `gzip`, the same of `*`, which matches all other
/// encodings (RFC 9110, 12.5.3).
pub fn takes_gzip(accept_encoding: &str) -> bool {
    let accepts = |wanted: &str| {
        let mut accepted = None;
        for offer in accept_encoding.split(',') {
            let mut parts = offer.split(';').map(str::trim);
            if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted)) {
                continue;
            }
            let is_refused = parts.any(|weight| {
                weight
                    .strip_prefix("q=")
                    .is_some_and(|q| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0))
            });
            accepted = Some(accepted.unwrap_or(false) || !is_refused);
        }
        accepted
    };
    accepts("gzip").or_else(|| accepts("*")).unwrap_or(false)
}

/// The part of a body that is not sent yet.
struct Rest {
    pieces: Pieces,
    /// Received and not compressed yet.
    piece: Bytes,
    /// `None` at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
    sent: Sent,
    is_begun: bool,
}

fn gzip(pieces: Pieces, sent: Sent) -> impl Stream<Item = Result<Bytes, StreamError>> + Send {
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    let rest = Rest { pieces, piece: Bytes::new(), encoder, sent, is_begun: false };
    stream::try_unfold(rest, async |mut rest: Rest| {
        while let Some(mut encoder) = rest.encoder.take() {
            if rest.piece.is_empty() {
                match rest.pieces.next().await.transpose()? {
                    Some(piece) => rest.piece = piece,
                    None => return Ok(Some((Bytes::from(encoder.finish()?), rest))),
                }
            }
            // A client that reads fast would keep the thread from others until the end of a long text.
            if rest.is_begun {
                tokio::task::yield_now().await;
            }
            rest.is_begun = true;
            let part = rest.piece.split_to(rest.piece.len().min(PIECE_BYTES));
            encoder.write_all(&part)?;
            if rest.sent == Sent::Promptly && rest.piece.is_empty() {
                encoder.flush()?;
            }
            let made = std::mem::take(encoder.get_mut());
            rest.encoder = Some(encoder);
            if !made.is_empty() {
                return Ok(Some((Bytes::from(made), rest)));
            }
        }
        Ok::<_, StreamError>(None)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use bytes::Bytes;
    use flate2::read::MultiGzDecoder;
    use futures::{StreamExt, TryStreamExt};
    use hyper::StatusCode;
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::{compressed, compressed_promptly, takes_gzip};
    use crate::response::{Body, Response, StreamError};

    #[test]
    fn clients_say_what_they_take() {
        for (header, expected) in [
            ("gzip", true),
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP; q=0.5", true),
            ("*", true),
            ("", false),
            ("identity", false),
            ("br", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("xgzip", false),
            ("gzip;q=0, *", false),
            ("*, gzip;q=0", false),
            ("*;q=0, gzip", true),
            ("*;q=0", false),
            ("br, *;q=0.1", true),
        ] {
            assert_eq!(takes_gzip(header), expected, "{header}");
        }
    }

    async fn sent(response: Response) -> Result<Vec<u8>, StreamError> {
        match response.body {
            Body::Full(bytes) | Body::Counted(bytes) => Ok(bytes.to_vec()),
            Body::Stream { pieces, .. } => {
                pieces
                    .try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()))
                    .await
            }
        }
    }

    fn plain(bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        plain
    }

    #[tokio::test]
    async fn long_texts_are_compressed_and_nothing_else() {
        let long = json!(vec!["value"; 100_000]);
        let text = long.to_string().into_bytes();
        let json = || Response::json(StatusCode::OK, &long);
        let answer = compressed(Some("gzip"), json());
        assert_eq!(answer.headers["content-encoding"], "gzip");
        assert_eq!(answer.headers["vary"], "accept-encoding");
        let bytes = sent(answer).await.unwrap();
        assert!(bytes.len() < text.len() / 20, "{}", bytes.len());
        assert_eq!(plain(&bytes), text);
        let answer = compressed(None, json());
        assert_eq!(
            (answer.headers.get("content-encoding"), &answer.headers["vary"]),
            (None, &HeaderValue::from_static("accept-encoding"))
        );
        assert_eq!(sent(answer).await.unwrap(), text);
        let parquet = HeaderValue::from_static("application/vnd.apache.parquet");
        for answer in [
            Response::json(StatusCode::OK, &json!({"count": 0})),
            Response::empty(StatusCode::NO_CONTENT),
            Response::bytes(StatusCode::OK, parquet, vec![0; 5000]),
        ] {
            let answer = compressed(Some("gzip"), answer);
            assert!(answer.headers.get("content-encoding").is_none(), "{answer:?}");
            assert!(answer.headers.get("vary").is_none(), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn pieces_of_pages_can_be_read_before_the_next_one_comes() {
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        let pieces = ["<p>one</p>", "<p>two</p>"].map(|text| Ok(Bytes::from(text.repeat(200))));
        let answer = Response::stream(StatusCode::OK, html, futures::stream::iter(pieces));
        let Body::Stream { mut pieces, .. } = compressed_promptly(Some("gzip"), answer).body else {
            panic!("a stream")
        };
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        for expected in ["<p>one</p>", "<p>two</p>"] {
            decoder.write_all(&pieces.next().await.unwrap().unwrap()).unwrap();
            decoder.flush().unwrap();
            let read = String::from_utf8(std::mem::take(decoder.get_mut())).unwrap();
            assert_eq!(read, expected.repeat(200));
        }
    }

    #[tokio::test]
    async fn streams_are_compressed_as_they_come_and_break_where_they_broke() {
        let csv = || HeaderValue::from_static("text/csv; charset=utf-8");
        let piece = |n: u8| Bytes::from(vec![b'a' + n; 200_000]);
        let whole: Vec<Result<Bytes, StreamError>> =
            vec![Ok(piece(0)), Ok(Bytes::new()), Ok(piece(1))];
        let answer = Response::stream(StatusCode::OK, csv(), futures::stream::iter(whole));
        let bytes = sent(compressed(Some("gzip"), answer)).await.unwrap();
        assert_eq!(plain(&bytes), [piece(0), piece(1)].concat());
        let broken: Vec<Result<Bytes, StreamError>> = vec![Ok(piece(0)), Err("broken".into())];
        let answer = Response::stream(StatusCode::OK, csv(), futures::stream::iter(broken));
        let error = sent(compressed(Some("gzip"), answer)).await.unwrap_err();
        assert_eq!(error.to_string(), "broken");
    }
}
