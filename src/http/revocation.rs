//! Responses that end with the caller's credential: a key, a session or a token. All responses to such callers go
//! through here, whatever the endpoint ([`Standing`]).

use bytes::Bytes;
use futures::{StreamExt, stream};
use hyper::header::CONTENT_TYPE;

use crate::response::{Body, Problem, Response, StreamError};
use weir_metadata::standing::Standing;

/// Media type of streams without an end, which clients do not expect to be complete.
pub const EVENT_STREAM: &str = "text/event-stream";

/// The error text when the credential ended while the response was computed.
pub const ENDED: &str = "What this was asked with has ended: the key was revoked, its user signed out or was removed, or the project was deleted.";

#[derive(Debug, thiserror::Error)]
#[error("whoever asked may ask no more")]
struct Ended;

/// The result of `answering`, unless the credential ends meanwhile. For operations that only read: a change that has
/// begun is completed, and its caller receives the response, even if the change ends their own key.
///
/// # Errors
///
/// 401 once the credential has ended; else those of `answering`.
pub async fn answered<T>(
    standing: &Standing,
    answering: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    tokio::select! {
        biased;
        answer = answering => answer,
        () = standing.ended() => Err(Problem::authentication_failed(ENDED)),
    }
}

/// The response, whose stream ends with the credential. A stream of events ends regularly, as after an hour; any other
/// is broken off, so that no client takes a part for the whole.
pub fn streamed(standing: &Standing, mut response: Response) -> Response {
    let Body::Stream { pieces, left, held_bytes } = response.body else { return response };
    let media_type = response.headers.get(CONTENT_TYPE);
    let is_of_events = media_type.is_some_and(|own| own == EVENT_STREAM);
    let standing = standing.clone();
    let ended = Box::pin(async move { standing.ended().await });
    let rest = stream::unfold(Some((pieces, ended)), move |rest| async move {
        let (mut pieces, mut ended) = rest?;
        tokio::select! {
            biased;
            () = &mut ended => match is_of_events {
                true => None,
                false => Some((Err::<Bytes, StreamError>(Ended.into()), None)),
            },
            piece = pieces.next() => piece.map(|piece| (piece, Some((pieces, ended)))),
        }
    });
    response.body = Body::Stream { pieces: Box::pin(rest), left, held_bytes };
    response
}
